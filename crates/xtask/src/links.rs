//! Relative links of Markdown pages lead to something that exists.
//!
//! Links to the web are not followed, since a test must not need a network. Links inside code are
//! not links.

use crate::{Finding, Tree};

/// The rule.
pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        let mut in_fence = false;
        for (index, line) in file.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                in_fence = !in_fence;
            }
            if in_fence {
                continue;
            }
            for target in targets(line) {
                let resolved = resolve(&file.path, target);
                if !resolved.is_some_and(|path| path.is_empty() || tree.contains(&path)) {
                    let message = format!("the link to `{target}` leads nowhere");
                    findings.push(Finding::failure(&file.path, index + 1, message));
                }
            }
        }
    }
}

/// The relative targets of `[text](target)` on a line, outside `code`.
fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = line[at..].find("](") {
        let start = at + next + 2;
        let Some(length) = line[start..].find(')') else {
            break;
        };
        let target = line[start..start + length]
            .split_whitespace()
            .next()
            .unwrap_or_default();
        let in_code = line[..start].matches('`').count() % 2 == 1;
        if !in_code && !target.contains("://") && !target.starts_with("mailto:") {
            found.push(target);
        }
        at = start + length;
    }
    found
}

/// The path from the root that a link on page `from` names; `None` above the root.
fn resolve(from: &str, target: &str) -> Option<String> {
    let target = target.split('#').next().unwrap_or_default();
    if target.is_empty() {
        return Some(from.into());
    }
    let mut names: Vec<&str> = from.split('/').collect();
    names.pop();
    for name in target.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop()?;
            }
            name => names.push(name),
        }
    }
    Some(names.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> usize {
        let mut findings = Vec::new();
        let tree = Tree::of(&[
            ("docs/adr/0001.md", text),
            ("README.md", ""),
            ("docs/a.md", ""),
        ]);
        check(&tree, &mut findings);
        findings.len()
    }

    #[test]
    fn a_link_to_a_page_or_to_the_web_passes() {
        assert_eq!(
            findings("See [a](../a.md), [it](../../README.md#status) and [here](#x).\n"),
            0
        );
        assert_eq!(
            findings("See [the paper](https://example.org/vr.pdf).\n"),
            0
        );
    }

    #[test]
    fn a_link_to_nothing_fails() {
        assert_eq!(findings("See [a](a.md) and [b](../b.md).\n"), 2);
        assert_eq!(findings("See [a](../../../outside.md).\n"), 1);
    }

    #[test]
    fn code_is_not_a_link() {
        assert_eq!(findings("`[a](nowhere)`\n\n```\n[a](nowhere)\n```\n"), 0);
    }
}
