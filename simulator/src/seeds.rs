//! Regression seeds: `seeds/*.json`, each with the profile, the check that once failed, and one
//! sentence about it; those that `sim run --schedules` has written have their faults, too. All
//! must pass.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::history::History;

/// A seed that once failed.
#[derive(Clone, Debug)]
pub(crate) struct Regression {
    pub(crate) path: PathBuf,
    pub(crate) seed: u64,
    pub(crate) profile: String,
    pub(crate) check: String,
    pub(crate) about: String,
    /// What the file says happens, if it says more than the seed.
    pub(crate) history: Option<History>,
}

/// All seeds of a directory, by file name.
pub(crate) fn read(directory: &Path) -> io::Result<Vec<Regression>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            paths.push(path);
        }
    }
    paths.sort();
    paths
        .into_iter()
        .map(|path| parse(&fs::read_to_string(&path)?, path))
        .collect()
}

fn parse(text: &str, path: PathBuf) -> io::Result<Regression> {
    let invalid = |what: &str| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{}: {what}", path.display()),
        )
    };
    let value: Value = serde_json::from_str(text).map_err(|error| invalid(&error.to_string()))?;
    let text = |key: &str| {
        value[key]
            .as_str()
            .map(String::from)
            .ok_or_else(|| invalid(&format!("no text `{key}`")))
    };
    let history = if value["faults"].is_array() {
        Some(History::from_json(&value).map_err(|why| invalid(&why))?)
    } else {
        None
    };
    Ok(Regression {
        history,
        seed: value["seed"]
            .as_u64()
            .ok_or_else(|| invalid("no number `seed`"))?,
        profile: text("profile")?,
        check: text("check")?,
        about: text("about")?,
        path: path.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_file_has_four_fields() {
        let text = r#"{"seed": 7, "profile": "crash", "check": "views", "about": "Why."}"#;
        let read = parse(text, "x.json".into()).expect("valid");
        assert_eq!((read.seed, read.check.as_str()), (7, "views"));
        assert!(read.history.is_none());
        assert!(parse(r#"{"seed": 7}"#, "x.json".into()).is_err());
        assert!(parse("nonsense", "x.json".into()).is_err());
    }

    #[test]
    fn a_schedule_is_a_seed_file_that_brings_its_faults() {
        let text = r#"{"seed": 7, "profile": "smoke", "check": "views", "about": "Why.",
                       "shape": {}, "faults": [{"at": 5, "fault": {"restart": {"nodes": 1}}}]}"#;
        let read = parse(text, "x.json".into()).expect("valid");
        let faults = read.history.expect("it has faults").schedule.faults;
        assert_eq!(faults.len(), 1);
        let odd = text.replace("restart", "flood");
        assert!(parse(&odd, "x.json".into()).is_err());
    }
}
