//! The server as a process: how it starts, what it refuses, and how it ends.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A data directory that goes with its owner.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("viewstamp-process-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    /// A server on this directory and a free port.
    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_viewstamp-server"));
        command
            .env_clear()
            .env("IGGY_PATH", &self.0)
            .env("IGGY_TCP_ADDRESS", "127.0.0.1:0")
            .env("IGGY_ROOT_USERNAME", "iggy")
            .env("IGGY_ROOT_PASSWORD", "secret")
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    /// Starts a server; where clients connect, once it tells.
    fn serve(&self, command: &mut Command) -> (Process, SocketAddr) {
        let mut process = Process(command.spawn().unwrap());
        let stderr = process.0.stderr.take().unwrap();
        let mut said = vec![];
        for line in BufReader::new(stderr).lines() {
            said.push(line.unwrap());
            if said.last().unwrap().contains("listening") {
                let file = self.0.join("runtime/current_config.toml");
                let table: toml::Table = fs::read_to_string(file).unwrap().parse().unwrap();
                let address = table["tcp"]["address"].as_str().unwrap().parse().unwrap();
                return (process, address);
            }
        }
        panic!("it has ended: {said:?}");
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that does not outlive its test.
struct Process(Child);

impl Process {
    fn signal(&self, signal: &str) {
        let kill = Command::new("kill")
            .args([signal, &self.0.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
    }

    fn wait(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn refused(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn it_serves_where_it_says_and_stops_in_good_order() {
    for signal in ["-TERM", "-INT"] {
        let directory = Directory::new();
        let (mut process, address) = directory.serve(&mut directory.command());
        let client = TcpStream::connect(address).unwrap();
        process.signal(signal);
        assert_eq!(process.wait(), Some(0));
        drop(client);
    }
}

/// The published suites give every transport port 0 and look up the one that was bound.
#[test]
fn it_starts_as_the_published_suites_start_a_server() {
    let directory = Directory::new();
    let mut command = directory.command();
    command.env_remove("IGGY_PATH").envs([
        ("IGGY_SYSTEM_PATH", directory.0.to_str().unwrap()),
        ("IGGY_HTTP_ADDRESS", "127.0.0.1:0"),
        ("IGGY_QUIC_ADDRESS", "127.0.0.1:0"),
        ("IGGY_WEBSOCKET_ADDRESS", "127.0.0.1:0"),
        ("IGGY_HTTP_ENABLED", "false"),
        ("IGGY_QUIC_ENABLED", "false"),
        ("IGGY_WEBSOCKET_ENABLED", "false"),
        ("IGGY_SHARDING_CPU_ALLOCATION", "2"),
    ]);
    let (mut process, address) = directory.serve(&mut command);
    assert_ne!(address.port(), 0);
    assert!(TcpStream::connect(address).is_ok());
    let file = directory.0.join("runtime/current_config.toml");
    let table: toml::Table = fs::read_to_string(file).unwrap().parse().unwrap();
    for transport in ["http", "quic", "websocket"] {
        assert_eq!(table[transport]["enabled"].as_bool(), Some(false));
    }
    process.signal("-TERM");
    assert_eq!(process.wait(), Some(0));
}

#[test]
fn it_starts_again_on_what_it_left_even_after_a_kill() {
    let directory = Directory::new();
    for (signal, code) in [("-KILL", None), ("-TERM", Some(0)), ("-KILL", None)] {
        let (mut process, _) = directory.serve(&mut directory.command());
        process.signal(signal);
        assert_eq!(process.wait(), code);
    }
}

#[test]
fn a_second_process_on_the_same_data_is_refused() {
    let directory = Directory::new();
    let (process, _) = directory.serve(&mut directory.command());
    let (code, message) = refused(&mut directory.command());
    assert_eq!(code, Some(4), "{message}");
    assert!(message.contains(&process.0.id().to_string()), "{message}");
}

#[test]
fn each_cause_has_its_exit_code_and_says_what_to_do() {
    let directory = Directory::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    // Flags, environment, exit code, a part of the message.
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], i32, &'a str);
    let cases: [Case<'_>; 7] = [
        (&["--nonsense"], &[], 2, "--nonsense"),
        (&["--shards", "many"], &[], 2, "--shards"),
        (&["--config", "/nowhere.toml"], &[], 3, "/nowhere.toml"),
        (&[], &[("IGGY_TCP_ADRESS", "x")], 3, "IGGY_TCP_ADDRESS"),
        (
            &[],
            &[("IGGY_QUIC_ENABLED", "true")],
            3,
            "IGGY_QUIC_ENABLED",
        ),
        (&[], &[("IGGY_PATH", "/dev/null/x")], 5, "/dev/null/x"),
        (&[], &[("IGGY_TCP_ADDRESS", &taken)], 13, &taken),
    ];
    for (flags, variables, code, part) in cases {
        let mut command = directory.command();
        command.args(flags).envs(variables.iter().copied());
        let (ended, message) = refused(&mut command);
        assert_eq!(ended, Some(code), "{message}");
        assert!(message.contains(part), "{message}");
    }
    let mut half = directory.command();
    half.env_remove("IGGY_ROOT_PASSWORD");
    assert_eq!(refused(&mut half).0, Some(3));
}

#[test]
fn data_of_another_number_of_shards_is_refused_until_it_is_wiped() {
    let directory = Directory::new();
    let run = |flags: &[&str]| {
        let (mut process, _) = directory.serve(directory.command().args(flags));
        process.signal("-TERM");
        assert_eq!(process.wait(), Some(0));
    };
    run(&["--shards", "2"]);
    let (code, message) = refused(directory.command().args(["--shards", "3"]));
    assert_eq!(code, Some(11), "{message}");
    run(&["--shards", "3", "--fresh"]);
}

#[test]
fn a_made_up_password_is_said_once_even_if_nothing_is_logged() {
    let directory = Directory::new();
    // A taken port, so that the process ends by itself.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = directory.command();
    command
        .env_remove("IGGY_ROOT_USERNAME")
        .env_remove("IGGY_ROOT_PASSWORD")
        .env("IGGY_TCP_ADDRESS", taken.local_addr().unwrap().to_string())
        .env("RUST_LOG", "off");
    let (first, second) = (refused(&mut command), refused(&mut command));
    assert_eq!((first.0, second.0), (Some(13), Some(13)));
    assert!(first.1.contains("password") && !second.1.contains("password"));
}
