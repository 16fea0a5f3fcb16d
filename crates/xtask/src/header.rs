//! Every Rust file opens with `//!`: what it is, why it is here, what it must never do.

use crate::{Finding, Tree};

/// The rule.
pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in tree.rust() {
        let first = file.text.lines().next().unwrap_or_default();
        let sentence = first.strip_prefix("//!").map(str::trim);
        if sentence.is_none_or(str::is_empty) {
            let message = "the first line must be `//!` and say what this file is";
            findings.push(Finding::failure(&file.path, 1, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> usize {
        let mut findings = Vec::new();
        check(&Tree::of(&[("crates/wire/src/x.rs", text)]), &mut findings);
        findings.len()
    }

    #[test]
    fn a_file_that_says_what_it_is_passes() {
        assert_eq!(findings("//! The header of a frame.\n\n#![no_main]\n"), 0);
    }

    #[test]
    fn a_file_that_does_not_fails() {
        assert_eq!(findings("use core::fmt;\n"), 1);
        assert_eq!(findings("//!\n//! Late.\n"), 1);
        assert_eq!(findings("// Not a doc.\n"), 1);
        assert_eq!(findings(""), 1);
    }
}
