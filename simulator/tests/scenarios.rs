//! Whole clusters in transcripts: every file of `scenarios/cluster` is run and must say what
//! happens.
//!
//! `UPDATE=1 cargo test -p simulator --test scenarios` rewrites what has changed; explain the
//! difference in the commit. `ONLY=part-of-a-name` runs some.

#[path = "../../crates/consensus/tests/transcript/diff.rs"]
mod diff;

use std::{
    fs, panic,
    path::{Path, PathBuf},
};

use simulator::Scenario;

fn scenarios() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/cluster");
    let entries = fs::read_dir(directory).expect("a directory");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no scenario");
    paths
}

fn check(path: &Path, update: bool) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let scenario = Scenario::parse(&text)?;
    let run = panic::catch_unwind(|| scenario.run());
    let found = run.map_err(|_| "it panics, see above".to_owned())??;
    if found == scenario.expected {
        return Ok(());
    }
    if update {
        return fs::write(path, scenario.head + &found).map_err(|error| error.to_string());
    }
    let lines = diff::lines(&scenario.expected, &found);
    Err(format!("`-` is expected, `+` is what happens:\n{lines}"))
}

/// Goal: clusters do what each file says; a file that fails is named with its difference.
#[test]
fn every_cluster_scenario_is_as_told() {
    let update = std::env::var("UPDATE").is_ok_and(|update| update == "1");
    let only = std::env::var("ONLY").unwrap_or_default();
    let paths = scenarios();
    let mut failures = Vec::new();
    for path in &paths {
        let name = path.file_name().unwrap_or_default().display().to_string();
        if !name.contains(&only) {
            continue;
        }
        if let Err(error) = check(path, update) {
            failures.push(format!("scenarios/cluster/{name}: {error}\n"));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} scenarios fail (UPDATE=1 rewrites transcripts)\n\n{}",
        failures.len(),
        paths.len(),
        failures.join("\n")
    );
}

/// Goal: what a script gets wrong is told with its line, before anything runs.
#[test]
fn a_misspelt_script_fails() {
    let parse = |line: &str| {
        let text = format!("# A goal.\ncluster 3 persisted\n{line}\n----\n");
        Scenario::parse(&text).map(|_| ())
    };
    assert_eq!(parse("topic 0 a 1"), Ok(()));
    for (line, wrong) in [
        ("tpoic 0 a 1", "line 3: `tpoic 0 a 1`: no verb `tpoic`"),
        ("send 0 a", "line 3: `send 0 a`: too few words, or too many"),
        (
            "send 0 a x",
            "line 3: `send 0 a x`: `x` does not stand here",
        ),
        (
            "begin crash 0",
            "line 3: `begin crash 0`: only one call begins",
        ),
        ("# Only a comment.", "nothing happens"),
    ] {
        assert_eq!(parse(line), Err(wrong.into()));
    }
}

/// Goal: a claim that does not hold fails, although nothing is wrong with the cluster.
#[test]
fn a_claim_that_does_not_hold_fails() {
    let text = "# A goal.\ncluster 3 persisted\ntopic 0 a 1\nsend 0 a 1\nlet p primary\n\
                deposed p\n----\n";
    let error = Scenario::parse(text).expect("a script").run();
    assert!(error.is_err_and(|error| error.contains("it is not so")));
}
