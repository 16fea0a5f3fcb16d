//! The binary under test: found or built, never assumed to be fresh.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// The project's root.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .ancestors()
        .nth(2)
        .expect("crates/interop is two levels below the root")
        .into()
}

/// The server to test: `VIEWSTAMP_SERVER` if set, else the release build, brought up to date.
///
/// # Panics
/// If there is no such program or it does not build.
#[must_use]
pub fn server_binary() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(find_or_build).clone()
}

fn find_or_build() -> PathBuf {
    if let Some(path) = env::var_os("VIEWSTAMP_SERVER") {
        let path = PathBuf::from(path);
        assert!(
            path.is_file(),
            "VIEWSTAMP_SERVER is no program: {}",
            path.display()
        );
        return path;
    }
    let target = target_directory();
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--release",
            "-p",
            "viewstamp",
            "--bin",
            "viewstamp-server",
        ])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(root())
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the server does not build");
    target.join("release").join("viewstamp-server")
}

/// Tests are in `<target>/<profile>/deps`; the server is put beside their profile.
fn target_directory() -> PathBuf {
    let test = env::current_exe().expect("a test knows where it is");
    test.ancestors()
        .nth(3)
        .expect("a test is three levels below the target directory")
        .into()
}
