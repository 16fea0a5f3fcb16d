//! Regression seeds: `seeds/*.json`, each with the profile, the check that once failed, and one
//! sentence about it. All must pass.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// A seed that once failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Regression {
    pub(crate) path: PathBuf,
    pub(crate) seed: u64,
    pub(crate) profile: String,
    pub(crate) check: String,
    pub(crate) about: String,
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
    Ok(Regression {
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
        assert!(parse(r#"{"seed": 7}"#, "x.json".into()).is_err());
        assert!(parse("nonsense", "x.json".into()).is_err());
    }
}
