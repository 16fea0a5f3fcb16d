//! `cargo xtask tidy`: the project's own checks, as a command.
//!
//! The same check runs as a test (`tests/tidy.rs`), so `cargo test --workspace` cannot pass
//! without it. Exit status: 0 clean (warnings allowed), 1 a rule is broken, 2 usage.

use std::{env, process::ExitCode};

const USAGE: &str = "\
usage: cargo xtask tidy

  tidy   crate edges, file and function sizes, banned words, headers, links, named tests;
         a warning is advice, a failure names the rule and the way out
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn tidy() -> ExitCode {
    let tree = match xtask::Tree::read(&xtask::root()) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: cannot read the project: {error}");
            return ExitCode::FAILURE;
        }
    };
    let findings = xtask::tidy(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    let failures = xtask::failures(&findings);
    println!(
        "tidy: {} files, {} warnings, {failures} failures",
        tree.files.len(),
        findings.len() - failures
    );
    if failures == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
