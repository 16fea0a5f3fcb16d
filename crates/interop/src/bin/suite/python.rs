//! The Python client: `python/suite.py`, run by an interpreter that has `apache-iggy`.

use std::{path::Path, process::Command};

use interop::{Recorder, Scratch, Server};

/// # Panics
/// If a step of the suite fails, the server has ended, or the record differs.
pub(crate) async fn run(python: &Path) {
    let scratch = Scratch::new("python");
    let mut server = Server::start(scratch.path());
    let recorder = Recorder::default();
    let address = recorder.door(server.address()).await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/suite.py");
    let mut suite = Command::new(python);
    suite.arg(script).arg(address.to_string());
    let status = tokio::task::spawn_blocking(move || suite.status())
        .await
        .expect("waiting does not panic")
        .expect("the interpreter runs");
    assert!(status.success(), "the suite failed: {status}");
    server.assert_running();
    recorder.check("python");
}
