//! 100 columns in Rust sources and scripts, so that two files fit side by side.
//!
//! rustfmt keeps code within the limit but leaves comments and literals alone. Lines that cannot
//! be broken are excused: those with a URL, and those inside a literal that spans lines.

use crate::{File, Finding, Tree, scan};

const COLUMNS: usize = 100;

/// The rule.
pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in tree
        .files
        .iter()
        .filter(|file| file.is_rust() || is_script(file))
    {
        let classes = if file.is_rust() {
            scan::classify(&file.text)
        } else {
            Vec::new()
        };
        let mut start = 0;
        for (index, line) in file.text.split('\n').enumerate() {
            let columns = line.chars().count();
            let begins_in_literal =
                start > 0 && classes.get(start - 1) == Some(&scan::Class::Literal);
            if columns > COLUMNS && !line.contains("://") && !begins_in_literal {
                let message = format!("{columns} columns, more than {COLUMNS}: break the line");
                findings.push(Finding::failure(&file.path, index + 1, message));
            }
            start += line.len() + 1;
        }
    }
}

fn is_script(file: &File) -> bool {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    (file.path.starts_with("ci/") || file.path.starts_with(".ci/"))
        && (!name.contains('.') || name.ends_with(".sh"))
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
    fn a_line_of_100_columns_passes_and_one_of_101_fails() {
        assert_eq!(findings("crates/wire/src/x.rs", &"é".repeat(100)), 0);
        assert_eq!(findings("crates/wire/src/x.rs", &"é".repeat(101)), 1);
        assert_eq!(findings("ci/cluster", &"x".repeat(101)), 1);
        assert_eq!(findings("docs/durability.md", &"x".repeat(101)), 0);
    }

    #[test]
    fn a_line_that_cannot_be_broken_passes() {
        let url = format!("// https://example.org/{}", "x".repeat(100));
        assert_eq!(findings("crates/wire/src/x.rs", &url), 0);
        let literal = format!("let x = r#\"\n{}\n\"#;\n", "x".repeat(120));
        assert_eq!(findings("crates/wire/src/x.rs", &literal), 0);
    }
}
