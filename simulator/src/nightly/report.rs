//! The report of a night, for people (Markdown) and for programs (JSON).

use std::{collections::BTreeMap, fmt::Write, fs, io, path::Path};

use serde_json::{Value, json};

use super::{plan, state::Night};
use crate::{
    marks::{Marks, REQUIRED_FROM},
    mutants,
    profile::PROFILES,
};

impl Night {
    /// Why the night is red; empty if it is green.
    pub(super) fn red(&self) -> Vec<String> {
        let mut red = Vec::new();
        if !self.failures.is_empty() {
            red.push(format!("{} failures", self.failures.len()));
        }
        let swarm = self.profiles.get(PROFILES[0].name);
        if swarm.is_some_and(|tally| tally.runs >= REQUIRED_FROM) {
            let missed = self.marks_missed();
            if !missed.is_empty() {
                red.push(format!("{} marks never reached", missed.len()));
            }
        }
        red
    }

    /// Marks of all seeds of all profiles.
    fn marks(&self) -> BTreeMap<&'static str, u64> {
        let seeds = |mark: &str| {
            let counts = self.profiles.values().map(|tally| tally.marks.get(mark));
            counts.flatten().sum()
        };
        let all = Marks::default();
        all.all().map(|(mark, _)| (mark, seeds(mark))).collect()
    }

    fn marks_missed(&self) -> Vec<&'static str> {
        let marks = self.marks().into_iter();
        let missed = marks.filter(|(_, seeds)| *seeds == 0);
        missed.map(|(mark, _)| mark).collect()
    }

    /// Killed and hunted, of the table (`own` not set) or of our own.
    fn score(&self, own: bool, asserts: bool) -> (usize, usize) {
        let counted = self
            .verdicts
            .iter()
            .filter(|row| row["own"] == own && row["asserts"] == asserts);
        counted.fold((0, 0), |(killed, of), row| {
            (killed + usize::from(!row["seeds"].is_null()), of + 1)
        })
    }

    fn json(&self) -> Value {
        let profiles: BTreeMap<&String, Value> = self
            .profiles
            .iter()
            .map(|(name, tally)| {
                let value = json!({
                    "first_seed": self.start,
                    "runs": tally.runs,
                    "failed": tally.failed,
                    "seeds_per_hour": per_hour(tally.runs, tally.spent.wall),
                    "committed_ops": tally.committed_ops,
                    "crashes": tally.crashes,
                    "simulated_seconds": tally.simulated_seconds,
                    "wall_seconds": tally.spent.wall / 1_000,
                    "cpu_seconds": tally.spent.cpu / 1_000,
                });
                (name, value)
            })
            .collect();
        let score = |own, asserts| {
            let (killed, of) = self.score(own, asserts);
            json!({ "killed": killed, "of": of })
        };
        json!({
            "commit": self.commit,
            "seconds": self.elapsed() / 1_000,
            "budget_seconds": self.budget / 1_000,
            "processes": self.processes,
            "shares": plan::shares(self),
            "red": self.red(),
            "profiles": profiles,
            "failures": self.failures,
            "marks": self.marks(),
            "marks_missed": self.marks_missed(),
            "fuzz": self.fuzz,
            "score": {
                "table": score(false, true),
                "table_asserts_off": score(false, false),
                "own": score(true, true),
                "own_asserts_off": score(true, false),
            },
            "planted_bugs": self.verdicts,
        })
    }

    fn markdown(&self) -> String {
        let mut text = String::new();
        let red = self.red();
        let verdict = if red.is_empty() {
            "green".into()
        } else {
            format!("red: {}", red.join(", "))
        };
        let _ = writeln!(text, "# A night of {}: {verdict}\n", self.commit);
        let _ = writeln!(
            text,
            "{} of {} seconds, in {} process(es).",
            self.elapsed() / 1_000,
            self.budget / 1_000,
            self.processes
        );
        for (part, seconds) in plan::shares(self) {
            let _ = writeln!(text, "{seconds} s {part}.");
        }
        self.failures_section(&mut text);
        self.seeds_section(&mut text);
        self.marks_section(&mut text);
        self.fuzz_section(&mut text);
        self.bugs_section(&mut text);
        text
    }

    fn failures_section(&self, text: &mut String) {
        text.push_str("\n## Failures\n\n");
        if self.failures.is_empty() {
            text.push_str("None.\n");
        }
        for found in &self.failures {
            let _ = writeln!(
                text,
                "- {}: {}\n  `{}`",
                found.what, found.message, found.replay
            );
        }
    }

    fn seeds_section(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\n## Seeds\n\nEach profile from seed {}.\n\n\
             | profile | runs | failed | seeds per hour | committed ops | crashes | \
             simulated hours | CPU s |\n|---|---|---|---|---|---|---|---|",
            self.start
        );
        for (name, tally) in &self.profiles {
            let _ = writeln!(
                text,
                "| {name} | {} | {} | {} | {} | {} | {} | {} |",
                tally.runs,
                tally.failed,
                per_hour(tally.runs, tally.spent.wall),
                tally.committed_ops,
                tally.crashes,
                tally.simulated_seconds / 3_600,
                tally.spent.cpu / 1_000,
            );
        }
    }

    fn marks_section(&self, text: &mut String) {
        let marks = self.marks();
        let missed = self.marks_missed();
        let _ = writeln!(
            text,
            "\n## Marks\n\n{} of {} reached.\n",
            marks.len() - missed.len(),
            marks.len()
        );
        for mark in missed {
            let _ = writeln!(text, "- never reached: {mark}");
        }
        let mut rare: Vec<_> = marks.into_iter().filter(|(_, seeds)| *seeds > 0).collect();
        rare.sort_by_key(|(_, seeds)| *seeds);
        for (mark, seeds) in rare.into_iter().take(10) {
            let _ = writeln!(text, "- by {seeds} seeds: {mark}");
        }
    }

    fn fuzz_section(&self, text: &mut String) {
        text.push_str("\n## Fuzzing\n\n");
        if self.targets.is_empty() {
            text.push_str("Skipped: nothing to fuzz with here.\n");
        }
        for (target, fuzzed) in &self.fuzz {
            let _ = writeln!(
                text,
                "- {target}: {} s, {} of {} slices failed",
                fuzzed.spent.wall / 1_000,
                fuzzed.failed,
                fuzzed.slices
            );
        }
    }

    fn bugs_section(&self, text: &mut String) {
        text.push_str("\n## Planted bugs\n\n");
        if !self.hunts {
            text.push_str("Skipped: no build with planted bugs was named.\n");
            return;
        }
        for (own, asserts, words) in [
            (false, true, "score"),
            (false, false, "score with asserts off"),
            (true, true, "bugs of our own"),
            (true, false, "bugs of our own with asserts off"),
        ] {
            let (killed, of) = self.score(own, asserts);
            let _ = writeln!(text, "- {words}: {killed} of {of}");
        }
        let open = mutants::all().count() - self.hunted.len();
        if open > 0 {
            let _ = writeln!(text, "- not hunted for lack of time: {open}");
        }
        let alive = self.verdicts.iter().filter(|row| row["seeds"].is_null());
        for row in alive {
            let asserts = if row["asserts"] == true { "on" } else { "off" };
            let _ = writeln!(
                text,
                "- alive (asserts {asserts}): {}, {} ({})",
                row["bug"],
                row["what"].as_str().unwrap_or_default(),
                row["killer"].as_str().unwrap_or_default()
            );
        }
    }

    /// Writes `report.md` and `report.json`.
    pub(super) fn report(&self, directory: &Path) -> io::Result<()> {
        fs::write(directory.join("report.md"), self.markdown())?;
        fs::write(
            directory.join("report.json"),
            format!("{:#}\n", self.json()),
        )
    }
}

fn per_hour(count: u64, millis: u64) -> u64 {
    count * 3_600_000 / millis.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nightly::state::{Found, Spent, Tally};

    fn night() -> Night {
        let mut night = Night {
            commit: "abc".into(),
            hunts: true,
            ..Night::default()
        };
        night.profiles.insert(
            "crash".into(),
            Tally {
                runs: 500,
                spent: Spent {
                    wall: 100_000,
                    cpu: 190_000,
                },
                ..Tally::default()
            },
        );
        night.verdicts = vec![
            json!({"bug": 1, "own": false, "asserts": true, "seeds": 3, "what": "x"}),
            json!({"bug": 2, "own": false, "asserts": true, "seeds": null, "what": "y"}),
        ];
        night
    }

    #[test]
    fn a_night_without_findings_is_green_and_says_what_it_did() {
        let night = night();
        let text = night.markdown();
        for part in [
            "# A night of abc: green",
            "| crash | 500 | 0 | 18000 |",
            "- score: 1 of 2",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert_eq!(night.json()["score"]["table"]["killed"], 1);
        assert_eq!(night.json()["profiles"]["crash"]["seeds_per_hour"], 18_000);
    }

    #[test]
    fn a_failure_makes_it_red_and_stands_there_with_its_replay_line() {
        let mut night = night();
        night.failures.push(Found {
            what: "views in crash".into(),
            message: "two primaries".into(),
            replay: "cargo sim replay 7 --profile crash".into(),
        });
        assert_eq!(night.red(), ["1 failures"]);
        let text = night.markdown();
        assert!(
            text.contains("`cargo sim replay 7 --profile crash`"),
            "{text}"
        );
        assert_eq!(night.json()["failures"][0]["what"], "views in crash");
    }
}
