//! Suites of published clients that are programs of their own, against a real server.
//!
//! Usage: `suite python PYTHON` or `suite cli IGGY`; `ci/interop-python` and `ci/interop-cli`
//! install the program and call this. Each suite compares its record of exercised commands with
//! `records/`.

mod cli;
mod python;

use std::{env, path::PathBuf, process::ExitCode};

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [suite, program] = &arguments[..] else {
        return usage();
    };
    let program = PathBuf::from(program);
    match suite.as_str() {
        "cli" => cli::run(&program).await,
        "python" => python::run(&program).await,
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: suite python PYTHON | suite cli IGGY");
    ExitCode::from(2)
}
