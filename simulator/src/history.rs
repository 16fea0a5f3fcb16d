//! A history before it happens: the shape of the cluster and its faults, as data and as a file.
//!
//! A seed means another history once the order of draws has moved on; a file keeps the times and
//! targets of all faults and everything else that was drawn before the run. What clients do and
//! how long each message takes still comes from the seed.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    check::Failure,
    profile::{Profile, Shape},
    report,
    runner::Run,
    schedule::{Fault, Schedule},
};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) shape: Shape,
    pub(crate) schedule: Schedule,
}

/// A fault of a file.
#[derive(Serialize, Deserialize)]
struct Entry {
    /// Virtual time, in microseconds.
    at: u64,
    fault: Fault,
}

impl History {
    /// What a seed means today.
    pub(crate) fn draw(seed: u64, profile: &Profile) -> Self {
        let shape = Shape::draw(seed, profile);
        let schedule = Schedule::draw(&shape);
        Self { shape, schedule }
    }

    /// As a file, with how the run ended.
    fn to_json(&self, profile: &Profile, run: &Run) -> Value {
        let faults = self.schedule.faults.iter();
        let faults: Vec<Entry> = faults
            .map(|(at, fault)| Entry {
                at: *at,
                fault: *fault,
            })
            .collect();
        let (check, about) = run.outcome.failure.as_ref().map_or_else(
            || ("none", "A run that passed.".into()),
            |Failure { check, message, .. }| (*check, format!("Failed {check}: {message}")),
        );
        json!({
            "about": about,
            "seed": run.seed,
            "profile": profile.name,
            "check": check,
            "digest": report::digest(run.outcome.digest),
            "shape": self.shape,
            "faults": faults,
        })
    }

    /// From a file. What its shape does not say, since it is older, is what the seed means today.
    pub(crate) fn from_json(value: &Value) -> Result<Self, String> {
        let text = |key: &str| {
            let text = value[key].as_str();
            text.ok_or_else(|| format!("no text `{key}`"))
        };
        let seed = value["seed"].as_u64().ok_or("no number `seed`")?;
        let name = text("profile")?;
        let profile = Profile::find(name).ok_or_else(|| format!("no profile {name}"))?;
        let drawn = json!(Shape::draw(seed, profile));
        let shape = overlay(drawn, &value["shape"]);
        let shape = serde_json::from_value(shape).map_err(|error| format!("shape: {error}"))?;
        let faults = value["faults"].clone();
        let faults: Vec<Entry> =
            serde_json::from_value(faults).map_err(|error| format!("faults: {error}"))?;
        let mut faults: Vec<_> = faults
            .into_iter()
            .map(|Entry { at, fault }| (at, fault))
            .collect();
        faults.sort_by_key(|(at, _)| *at);
        let schedule = Schedule { faults };
        Ok(Self { shape, schedule })
    }

    /// Reads a file; its profile comes with it.
    pub(crate) fn read(path: &Path) -> io::Result<(&'static Profile, Self)> {
        let invalid = |why: String| {
            let text = format!("{}: {why}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let text = fs::read_to_string(path)?;
        let value: Value =
            serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        let history = Self::from_json(&value).map_err(invalid)?;
        let profile = value["profile"].as_str().and_then(Profile::find);
        Ok((profile.expect("read with it"), history))
    }

    /// Writes the history of `run` to `directory` under its profile and seed; the file's name.
    pub(crate) fn write(directory: &Path, profile: &Profile, run: &Run) -> io::Result<String> {
        fs::create_dir_all(directory)?;
        let path = directory.join(format!("{}-{}.json", profile.name, run.seed));
        let history = Self::draw(run.seed, profile);
        fs::write(&path, format!("{:#}\n", history.to_json(profile, run)))?;
        Ok(path.display().to_string())
    }
}

/// `below` with all that `above` says.
fn overlay(below: Value, above: &Value) -> Value {
    match (below, above) {
        (below, Value::Null) => below,
        (Value::Object(below), Value::Object(above)) => {
            let merged = below.into_iter().map(|(key, value)| {
                let said = above.get(&key).unwrap_or(&Value::Null);
                let value = overlay(value, said);
                (key, value)
            });
            Value::Object(merged.collect::<Map<_, _>>())
        }
        (_, above) => above.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        profile::PROFILES,
        runner::{run_history, run_seed},
    };

    fn file(seed: u64, profile: &Profile) -> (Value, u64) {
        let run = run_seed(seed, profile, false);
        let history = History::draw(seed, profile);
        (history.to_json(profile, &run), run.outcome.digest)
    }

    #[test]
    fn a_history_read_from_its_file_is_the_same_history() {
        let smoke = Profile::find("smoke").expect("there");
        for seed in 1..=5 {
            let (value, digest) = file(seed, smoke);
            let text = value.to_string();
            let value: Value = serde_json::from_str(&text).expect("our own");
            let history = History::from_json(&value).expect("our own");
            let run = run_history(history, false);
            assert_eq!((run.seed, run.outcome.digest), (seed, digest));
        }
    }

    #[test]
    fn every_fault_of_every_profile_survives_the_file() {
        for profile in &PROFILES {
            for seed in 1..=40 {
                let history = History::draw(seed, profile);
                let run = Run {
                    seed,
                    ..Run::default()
                };
                let text = history.to_json(profile, &run).to_string();
                let value: Value = serde_json::from_str(&text).expect("our own");
                let again = History::from_json(&value).expect("our own");
                assert_eq!(history.schedule, again.schedule);
                assert_eq!(format!("{:?}", history.shape), format!("{:?}", again.shape));
            }
        }
    }

    #[test]
    fn faults_may_be_taken_out_and_an_older_file_still_runs() {
        let smoke = Profile::find("smoke").expect("there");
        let (mut value, digest) = file(3, smoke);
        value["shape"]
            .as_object_mut()
            .expect("an object")
            .remove("think");
        let older = History::from_json(&value).expect("what is missing is drawn");
        assert_eq!(run_history(older, false).outcome.digest, digest);
        value["faults"] = json!([]);
        let calm = History::from_json(&value).expect("no faults are fine");
        let run = run_history(calm, false);
        assert!(run.outcome.failure.is_none());
        assert_eq!(run.outcome.statistics.crashes, 0);
    }

    #[test]
    fn a_file_that_is_none_says_why() {
        let why = |value: Value| History::from_json(&value).expect_err("not a history");
        assert!(why(json!({})).contains("seed"));
        assert!(why(json!({"seed": 1})).contains("profile"));
        assert!(why(json!({"seed": 1, "profile": "smoke"})).contains("faults"));
        let odd = json!({"seed": 1, "profile": "smoke", "faults": [{"at": 1, "fault": "flood"}]});
        assert!(why(odd).contains("flood"));
    }
}
