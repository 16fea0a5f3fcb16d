//! Every core crate says `#![no_std]`: then clocks, files, threads and random hashes do not exist
//! in it, and nobody has to look for them.
//!
//! A core crate with a thin std driver may say it under `cfg_attr`, as long as the core builds
//! without.

use crate::{Finding, Tree, edges};

/// The rule.
pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for row in edges::CRATES
        .iter()
        .filter(|row| row.kind == edges::Kind::Core)
    {
        let path = format!("crates/{}/src/lib.rs", row.name);
        let Some(file) = tree.files.iter().find(|file| file.path == path) else {
            continue;
        };
        let says = |line: &str| line.starts_with("#![") && line.contains("no_std");
        if !file.text.lines().any(says) {
            let message = "a core crate must say `#![no_std]` (and `extern crate alloc;`)";
            findings.push(Finding::failure(&path, 0, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> usize {
        let mut findings = Vec::new();
        check(&Tree::of(&[(path, text)]), &mut findings);
        findings.len()
    }

    #[test]
    fn a_core_crate_that_says_it_passes() {
        assert_eq!(
            findings("crates/wire/src/lib.rs", "//! Doc.\n\n#![no_std]\n"),
            0
        );
        let conditional = "#![cfg_attr(not(feature = \"tokio\"), no_std)]\n";
        assert_eq!(findings("crates/client/src/lib.rs", conditional), 0);
    }

    #[test]
    fn a_core_crate_that_does_not_fails() {
        assert_eq!(
            findings("crates/wire/src/lib.rs", "//! No `#![no_std]` here.\n"),
            1
        );
    }

    #[test]
    fn a_std_crate_need_not_say_it() {
        assert_eq!(findings("crates/uring/src/lib.rs", "//! Doc.\n"), 0);
    }
}
