//! Every scenario and every kept seed says what it is for, where a reader sees it first.
//!
//! A transcript (`scenarios/*.txt`) begins with a comment line; a JSON file (`seeds/*.json`,
//! `scenarios/*.json`) is an object with a sentence under `about`.

use serde_json::Value;

use crate::{File, Finding, Tree};

/// The rule.
pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let kept =
        |file: &&File| file.path.starts_with("scenarios/") || file.path.starts_with("seeds/");
    for file in tree.files.iter().filter(kept) {
        let says = match file.path.rsplit('.').next() {
            Some("txt") => has_comment(&file.text),
            Some("json") => has_about(&file.text),
            Some("md") => true,
            _ => {
                let message = "only .txt, .json and .md belong here";
                findings.push(Finding::failure(&file.path, 0, message));
                continue;
            }
        };
        if !says {
            let message = "say what it is for: a first line `# …` (.txt), a key `about` (.json)";
            findings.push(Finding::failure(&file.path, 1, message));
        }
    }
}

fn has_comment(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    first
        .strip_prefix('#')
        .is_some_and(|rest| !rest.trim().is_empty())
}

fn has_about(text: &str) -> bool {
    let Ok(Value::Object(object)) = serde_json::from_str(text) else {
        return false;
    };
    object
        .get("about")
        .and_then(Value::as_str)
        .is_some_and(|about| !about.trim().is_empty())
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
    fn a_file_with_a_header_passes() {
        assert_eq!(
            findings(
                "scenarios/view_change.txt",
                "# A primary dies.\n\ncrash 0\n"
            ),
            0
        );
        assert_eq!(
            findings("seeds/1.json", "{\"about\": \"Lost a tail.\", \"seed\": 7}"),
            0
        );
        assert_eq!(findings("docs/x.txt", "no header needed here"), 0);
    }

    #[test]
    fn a_file_without_one_fails() {
        assert_eq!(findings("scenarios/view_change.txt", "crash 0\n"), 1);
        assert_eq!(findings("scenarios/view_change.txt", "#\ncrash 0\n"), 1);
        assert_eq!(findings("seeds/1.json", "{\"seed\": 7}"), 1);
        assert_eq!(findings("seeds/1.json", "{\"about\": \" \"}"), 1);
        assert_eq!(findings("seeds/1.json", "not json"), 1);
        assert_eq!(findings("seeds/1.yaml", "about: x"), 1);
    }
}
