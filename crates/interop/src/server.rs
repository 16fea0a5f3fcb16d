//! One server process on a port of the kernel's choice.

use std::{
    fs::{self, File},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use crate::{PASSWORD, USERNAME, process, wait};

/// From the start of the process to the first accepted connection, on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(30);
/// From SIGTERM to the end of the process.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Server {
    /// Starts a server on the data in `directory` (empty is fine) and waits until it serves.
    ///
    /// # Panics
    /// If it ends or does not serve in time; its log is quoted.
    #[must_use]
    pub fn start(directory: &Path) -> Self {
        let data = directory.join("data");
        let config = data.join("runtime").join("current_config.toml");
        let _ = fs::remove_file(&config);
        let log = directory.join("server.log");
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .expect("the scratch directory is writable");
        let child = Command::new(process::server_binary())
            .current_dir(directory)
            .env("IGGY_PATH", &data)
            .env("IGGY_TCP_ADDRESS", "127.0.0.1:0")
            .env("IGGY_ROOT_USERNAME", USERNAME)
            .env("IGGY_ROOT_PASSWORD", PASSWORD)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a file handle can be cloned"))
            .stderr(output)
            .spawn()
            .expect("the server binary runs");
        let unbound = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self {
            child,
            address: unbound,
            log,
        };
        server.address = wait::until_blocking("the server serves", START_LIMIT, || {
            server.assert_running();
            bound_address(&config).filter(|address| TcpStream::connect(address).is_ok())
        });
        server
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the process at once, as `kill -9` does.
    ///
    /// # Panics
    /// If it had ended before.
    pub fn kill(mut self) {
        self.assert_running();
        self.child.kill().expect("the process is ours");
        self.child.wait().expect("the process is ours");
    }

    /// Asks the process to stop in good order and waits for its end.
    ///
    /// # Panics
    /// If it had ended before or does not end in time.
    pub fn stop(mut self) -> ExitStatus {
        self.assert_running();
        let id = self.child.id();
        let sent = Command::new("sh")
            .arg("-c")
            .arg(format!("kill -TERM {id}"))
            .status();
        assert!(sent.expect("a shell runs").success());
        wait::until_blocking("the server stops", STOP_LIMIT, || {
            self.child.try_wait().expect("the process is ours")
        })
    }

    /// # Panics
    /// If the process has ended; its log is quoted.
    pub fn assert_running(&mut self) {
        if let Some(status) = self.child.try_wait().expect("the process is ours") {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            panic!("the server has ended ({status}); its log:\n{log}");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `[tcp] address` of the effective configuration, once it is written and bound.
fn bound_address(config: &Path) -> Option<SocketAddr> {
    let text = fs::read_to_string(config).ok()?;
    let config: toml::Table = text.parse().ok()?;
    let address: SocketAddr = config.get("tcp")?.get("address")?.as_str()?.parse().ok()?;
    (address.port() != 0).then_some(address)
}
