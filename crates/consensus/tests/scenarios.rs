//! The protocol in transcripts: every file of `scenarios/` is run and must say what happens.
//!
//! `UPDATE=1 cargo test -p consensus --test scenarios` rewrites what has changed; explain the
//! difference in the commit.

mod cluster;
mod transcript;

use std::{
    fs, panic,
    path::{Path, PathBuf},
};

use transcript::{Scenario, diff};

/// Whether a file that says something else is a failure, or is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    Fails,
    IsWritten,
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

/// All scenarios of a directory by name; none at all is an error, so is what is not one.
fn scenarios(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let error = |error| format!("{}: {error}", directory.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(error)? {
        let path = entry.map_err(error)?.path();
        // Scenarios of whole clusters are the simulator's.
        if path.is_dir() && path.ends_with("cluster") {
            continue;
        }
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("txt") => paths.push(path),
            Some("md") => {}
            _ => return Err(format!("{} is no scenario", path.display())),
        }
    }
    if paths.is_empty() {
        return Err(format!("no scenario in {}", directory.display()));
    }
    paths.sort();
    Ok(paths)
}

/// Runs one file.
fn check(path: &Path, difference: Difference) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let scenario = Scenario::parse(&text)?;
    let found = panic::catch_unwind(|| scenario.run()).map_err(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
        format!("panic: {}", message.unwrap_or("(no message)"))
    })?;
    if found == scenario.expected {
        return Ok(());
    }
    if difference == Difference::IsWritten {
        return fs::write(path, scenario.head + &found).map_err(|error| error.to_string());
    }
    Err(format!(
        "`-` is expected, `+` is what happens:\n{}",
        diff::lines(&scenario.expected, &found)
    ))
}

/// Goal: the protocol does what each file says; a file that fails is named with its difference.
#[test]
fn every_scenario_is_as_told() {
    let difference = match std::env::var("UPDATE").as_deref() {
        Ok("1") => Difference::IsWritten,
        _ => Difference::Fails,
    };
    let paths = scenarios(&directory()).expect("scenarios");
    let failures: Vec<String> = paths
        .iter()
        .filter_map(|path| {
            let name = path.file_name().unwrap_or_default().display();
            let error = check(path, difference).err()?;
            Some(format!("scenarios/{name}: {error}\n"))
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {} scenarios fail (UPDATE=1 rewrites transcripts)\n\n{}",
        failures.len(),
        paths.len(),
        failures.join("\n")
    );
}

/// Goal: a check that runs nothing does not pass; an empty directory is an error.
#[test]
fn a_directory_without_scenarios_fails() {
    let empty = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no_scenarios");
    fs::create_dir_all(&empty).expect("a directory");
    assert!(scenarios(&empty).is_err());
    assert!(scenarios(&empty.join("missing")).is_err());
    assert!(scenarios(&directory()).is_ok());
}

/// Goal: what a script gets wrong is told with its line, before anything runs.
#[test]
fn a_misspelt_script_fails() {
    let error = |text: &str| Scenario::parse(text).expect_err("wrong");
    let script = |line: &str| format!("# A goal.\ncluster 3 persisted\n{line}\n----\n");
    assert!(Scenario::parse(&script("prepare 0 2")).is_ok());
    for (line, wrong) in [
        ("prepere 0", "line 3: no verb `prepere`"),
        ("prepare", "line 3: `prepare`: too few numbers, or too many"),
        ("run 1", "line 3: `run 1`: too few numbers, or too many"),
        ("crash 3", "line 3: `crash 3`: no replica 3"),
        ("cut 1 1", "line 3: `cut 1 1`: no link from 1 to itself"),
        ("pass soon", "line 3: `soon` is no number"),
        ("# Only a comment.", "nothing happens"),
    ] {
        assert_eq!(error(&script(line)), wrong);
    }
    for text in [
        "cluster 3 persisted\nrun\n----\n",
        "# \ncluster 3 persisted\nrun\n----\n",
        "# A goal.\nrun\n----\n",
        "# A goal.\ncluster 0 persisted\nrun\n----\n",
        "# A goal.\ncluster 3 lazily\nrun\n----\n",
        "# A goal.\ncluster 3 persisted\nrun\n",
    ] {
        error(text);
    }
}

/// Goal: a file that says something else fails and shows where; told to, it is rewritten and its
/// script stays as it was.
#[test]
fn a_transcript_that_differs_fails_or_is_rewritten() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("differs.txt");
    let head = "# A goal.\n\ncluster 1 persisted\n\n# Why.\nprepare 0\ndurable 0\n----\n";
    fs::write(
        &path,
        format!("{head}prepare 0\ndurable 0\n  0 commits 2\n"),
    )
    .expect("written");
    let error = check(&path, Difference::Fails).expect_err("it commits 1");
    assert!(
        error.ends_with("\n    prepare 0\n    durable 0\n  -   0 commits 2\n  +   0 commits 1\n"),
        "{error}"
    );
    check(&path, Difference::IsWritten).expect("rewritten");
    let text = fs::read_to_string(&path).expect("readable");
    assert_eq!(text, format!("{head}prepare 0\ndurable 0\n  0 commits 1\n"));
    check(&path, Difference::Fails).expect("as told");
}
