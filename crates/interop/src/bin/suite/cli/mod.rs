//! The command line client: every sub-command that needs no desktop keyring, and what it prints.
//!
//! ```text
//!   suite ──runs──▶ iggy ──▶ door of the recorder ──▶ server
//! ```
//!
//! Each invocation is a process, a connection and a session of its own. What it prints for people
//! is read back as rows of cells; what matters is what the server told it.

mod access;
mod messages;
mod resources;
mod system;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use interop::{PASSWORD, Recorder, Scratch, Server, USERNAME};

type Step = fn(&Cli);

/// In this order: later ones use what earlier ones have made.
const STEPS: [(&str, Step); 9] = [
    ("system", system::run),
    ("archive", system::archive),
    ("contexts", system::contexts),
    ("streams", resources::streams),
    ("topics", resources::topics),
    ("groups", resources::groups),
    ("messages", messages::run),
    ("tokens", access::tokens),
    ("users", access::users),
];

/// # Panics
/// If a step of the suite fails, the server has ended, or the record differs.
pub(crate) async fn run(program: &Path) {
    let scratch = Scratch::new("cli");
    let home = scratch.path().join("home");
    fs::create_dir(&home).expect("the scratch directory is writable");
    let mut server = Server::start(scratch.path());
    let recorder = Recorder::default();
    let cli = Cli {
        program: program.into(),
        address: recorder.door(server.address()).await,
        home,
    };
    let steps = tokio::task::spawn_blocking(move || {
        for (name, step) in STEPS {
            step(&cli);
            println!("cli {name}: ok");
        }
    });
    steps.await.expect("no step fails");
    server.assert_running();
    recorder.check("cli");
}

/// The program, and the server that it is to talk to.
struct Cli {
    program: PathBuf,
    address: SocketAddr,
    /// Where it keeps its contexts.
    home: PathBuf,
}

/// What the client printed as rows of cells, whether as a table or as a list.
type Rows = Vec<Vec<String>>;

impl Cli {
    /// What root's command prints.
    ///
    /// # Panics
    /// If it fails.
    fn ok(&self, arguments: &[&str]) -> String {
        self.ok_as(USERNAME, PASSWORD, arguments)
    }

    /// What a user's command prints.
    fn ok_as(&self, user: &str, password: &str, arguments: &[&str]) -> String {
        let rights = ["--username", user, "--password", password];
        self.printed(&rights, arguments)
    }

    /// What a command prints that logs in with a token.
    fn ok_with_token(&self, token: &str, arguments: &[&str]) -> String {
        self.printed(&["--token", token], arguments)
    }

    fn printed(&self, rights: &[&str], arguments: &[&str]) -> String {
        let output = self.execute(rights, arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "iggy {arguments:?} fails ({}):\n{text}{complaint}",
            output.status
        );
        text
    }

    /// What root's command prints, as rows.
    fn rows(&self, arguments: &[&str]) -> Rows {
        rows(&self.ok(arguments))
    }

    /// Runs a command of root that must fail and say `reason`.
    fn refused(&self, arguments: &[&str], reason: &str) {
        self.refused_as(USERNAME, PASSWORD, arguments, reason);
    }

    /// Runs a command of a user that must fail and say `reason`.
    fn refused_as(&self, user: &str, password: &str, arguments: &[&str], reason: &str) {
        self.refusal(
            &["--username", user, "--password", password],
            arguments,
            reason,
        );
    }

    /// Runs a command that logs in with a token, must fail and say `reason`.
    fn refused_with_token(&self, token: &str, arguments: &[&str], reason: &str) {
        self.refusal(&["--token", token], arguments, reason);
    }

    fn refusal(&self, rights: &[&str], arguments: &[&str], reason: &str) {
        let output = self.execute(rights, arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && text.contains(reason),
            "iggy {arguments:?} does not fail with {reason:?} ({}):\n{}{text}",
            output.status,
            String::from_utf8_lossy(&output.stdout)
        );
    }

    fn execute(&self, rights: &[&str], arguments: &[&str]) -> Output {
        Command::new(&self.program)
            .env("HOME", &self.home)
            .env("IGGY_HOME", self.home.join("iggy"))
            .env("RUST_BACKTRACE", "0")
            .args(["--tcp-server-address", &self.address.to_string()])
            .args(rights)
            .args(arguments)
            .output()
            .expect("the client runs")
    }
}

/// Rows of a table (without its rules) or of a list.
fn rows(text: &str) -> Rows {
    text.lines()
        .filter(|line| line.contains('|') && !line.starts_with("|--"))
        .map(|line| {
            let cells = line.trim_matches('|').split('|');
            cells.map(|cell| cell.trim().to_owned()).collect()
        })
        .collect()
}

/// The value beside `property` in a table of two columns.
///
/// # Panics
/// If there is none.
fn property(rows: &Rows, property: &str) -> String {
    rows.iter()
        .find(|row| row.first().is_some_and(|cell| cell == property))
        .and_then(|row| row.get(1))
        .unwrap_or_else(|| panic!("no {property:?} in {rows:?}"))
        .clone()
}

/// One column of all rows.
fn column(rows: &Rows, index: usize) -> Vec<&str> {
    rows.iter()
        .map(|row| row.get(index).map_or("", String::as_str))
        .collect()
}
