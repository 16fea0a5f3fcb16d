//! Configuration: no file and no environment panics the server's own loader, which is included
//! here as it stands. What it refuses, it refuses with a reason.
//!
//! Lines of the form `NAME=value` before the first empty line are the environment, the rest the
//! file.

#![no_main]
#![allow(dead_code, reason = "the server uses the rest of these modules")]

#[path = "../../crates/viewstamp/src/config/mod.rs"]
mod config;
#[path = "../../crates/viewstamp/src/data.rs"]
mod data;
#[path = "../../crates/viewstamp/src/encryption.rs"]
mod encryption;
#[path = "../../crates/viewstamp/src/exit.rs"]
mod exit;

use std::{env, fs, process};

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (environment, file) = text.split_once("\n\n").unwrap_or(("", text));
    let variables = environment
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let path = env::temp_dir().join(format!("viewstamp-fuzz-{}.toml", process::id()));
    fs::write(&path, file).expect("the temporary directory is writable");
    let loaded = config::load(Some(&path), variables, &config::Overrides::default());
    if let Err(problems) = loaded {
        assert!(!problems.is_empty(), "refused without a reason");
    }
});
