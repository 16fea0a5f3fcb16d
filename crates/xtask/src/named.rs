//! Every test that `docs/acceptance.md` names exists, and no row there is silent.
//!
//! A name is `crate::file::test` in backticks, where `file` is a file or directory of the crate,
//! or `scenarios/...` for a scenario. A row without a name has to say that it is left, and why.

use crate::{Finding, Tree};

/// The page.
const PAGE: &str = "docs/acceptance.md";

/// How many lines of attributes and comments may stand between `#[test]` and its function.
const ATTRIBUTES_MAX: usize = 4;

/// The rule.
pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let Some(page) = tree.files.iter().find(|file| file.path == PAGE) else {
        return;
    };
    for (index, line) in page.text.lines().enumerate() {
        let mut fail = |message| findings.push(Finding::failure(PAGE, index + 1, message));
        let mut named = 0;
        for name in names(line) {
            named += 1;
            if !exists(tree, name) {
                fail(format!("there is no test `{name}`"));
            }
        }
        if is_row(line) && named == 0 && !line.contains("left:") {
            fail("a row names a test, or says `left:` and why".to_owned());
        }
    }
}

/// Whether a line is a row of a table with an id like `D16` in front.
fn is_row(line: &str) -> bool {
    let id = line.strip_prefix("| ").unwrap_or_default();
    let mut characters = id.chars();
    characters.next().is_some_and(|c| c.is_ascii_uppercase())
        && characters.next().is_some_and(|c| c.is_ascii_digit())
}

/// What stands in backticks and looks like the name of a test or scenario.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.filter(|text| text.contains("::") || text.starts_with("scenarios/"))
}

fn exists(tree: &Tree, name: &str) -> bool {
    if name.starts_with("scenarios/") {
        return tree.contains(&format!("{name}.txt"));
    }
    let [of, place, test] = name.split("::").collect::<Vec<_>>()[..] else {
        return false;
    };
    let mut files = tree.rust().filter(|file| {
        let mut path = file.path.trim_end_matches(".rs").split('/');
        file.crate_name() == Some(of) && path.any(|part| part == place)
    });
    files.any(|file| has_test(&file.text, test))
}

fn has_test(text: &str, test: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let declared = |line: &str| {
        let line = line.trim_start_matches("async ");
        line.strip_prefix("fn ")
            .and_then(|rest| rest.strip_prefix(test))
            .is_some_and(|rest| rest.starts_with('('))
    };
    (0..lines.len()).any(|index| {
        let above = &lines[index.saturating_sub(ATTRIBUTES_MAX)..index];
        declared(lines[index])
            && above
                .iter()
                .any(|line| *line == "#[test]" || line.starts_with("#[tokio::test"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(row: &str) -> usize {
        let tests = "#[test]\nfn it_holds() {}\n\n\n\n\nfn helper() {}\n";
        let tree = Tree::of(&[
            (PAGE, row),
            ("crates/server/tests/server/trims.rs", tests),
            ("scenarios/cluster/all_is_well.txt", ""),
        ]);
        let mut findings = Vec::new();
        check(&tree, &mut findings);
        findings.len()
    }

    #[test]
    fn a_row_with_a_test_or_a_scenario_that_exists_passes() {
        assert_eq!(findings("| D1 | polls | `server::trims::it_holds` |\n"), 0);
        let scenario = "| C1 | kills | `scenarios/cluster/all_is_well` |\n";
        assert_eq!(findings(scenario), 0);
        assert_eq!(findings("| S7 | agents | left: no HTTP |\n"), 0);
        assert_eq!(findings("| Id | what | tests |\n|---|---|---|\n"), 0);
    }

    #[test]
    fn a_name_of_no_test_or_of_another_place_fails() {
        for name in [
            "server::trims::it_fails",
            "server::trims::it_hold",
            "server::trims::helper",
            "server::groups::it_holds",
            "client::trims::it_holds",
            "server::it_holds",
            "scenarios/all_is_well",
        ] {
            let row = format!("| D1 | polls | `{name}` |\n");
            assert_eq!(findings(&row), 1, "{name}");
        }
    }

    #[test]
    fn a_row_that_names_nothing_fails() {
        assert_eq!(findings("| D1 | polls | soon |\n"), 1);
    }
}
