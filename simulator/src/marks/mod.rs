//! Marks: which rare branches of the product and of the simulator a campaign has reached.
//!
//! The build script finds all `sometimes!("…")`; a run tells which it has reached. A campaign that
//! never reaches one proves nothing about it, so a large one fails.

#[cfg(test)]
mod scan;

use std::{collections::BTreeMap, fmt::Write};

use wire::{Code, ErrorCode};

use crate::profile::{PROFILES, Profile};

include!(concat!(env!("OUT_DIR"), "/marks.rs"));

/// From so many seeds of the first profile on, every mark is required.
pub(crate) const REQUIRED_FROM: u64 = 2_000;

/// A mark that only one profile can reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elsewhere {
    pub(crate) mark: &'static str,
    pub(crate) profile: &'static str,
    pub(crate) why: &'static str,
}

/// The marks that the first profile cannot reach, and who does.
pub(crate) const ELSEWHERE: &[Elsewhere] = &[];

/// A client was answered to this command, well or badly.
pub(crate) fn reach_command(code: Code) {
    reach(&COMMANDS, code.number());
}

/// A client was told this code.
pub(crate) fn reach_code(code: ErrorCode) {
    reach(&CODES, code.0);
}

fn reach(table: &'static [(u32, base::marks::Site)], number: u32) {
    if let Ok(index) = table.binary_search_by_key(&number, |(number, _)| *number) {
        table[index].1.reach();
    }
}

/// How many seeds have reached each mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    seeds: BTreeMap<&'static str, u64>,
}

impl Marks {
    /// A run has reached these.
    pub(crate) fn add(&mut self, reached: &[&'static str]) {
        for mark in reached {
            *self.seeds.entry(mark).or_default() += 1;
        }
    }

    /// Every mark with the number of seeds that have reached it.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let seeds = |mark: &&'static str| self.seeds.get(mark).copied().unwrap_or(0);
        MARKS.iter().map(move |mark| (*mark, seeds(mark)))
    }

    /// What a campaign of `profile` should have reached and has not: in the first profile all
    /// but the marks of others, in another profile its own.
    pub(crate) fn missed(&self, profile: &Profile) -> Vec<&'static str> {
        missed(profile.name, PROFILES[0].name, ELSEWHERE, self.all())
    }

    /// The table of `--marks`, the rarest first.
    pub(crate) fn table(&self) -> String {
        let mut rows: Vec<_> = self.all().collect();
        rows.sort_by_key(|(_, seeds)| *seeds);
        let mut text = String::from("  seeds  mark\n");
        for (mark, seeds) in rows {
            let _ = write!(text, "{seeds:>7}  {mark}");
            if let Some(Elsewhere { profile, why, .. }) = elsewhere(mark) {
                let _ = write!(text, " (only in {profile}: {why})");
            }
            text.push('\n');
        }
        text
    }
}

fn elsewhere(mark: &str) -> Option<&'static Elsewhere> {
    ELSEWHERE.iter().find(|row| row.mark == mark)
}

fn missed(
    profile: &str,
    first: &str,
    elsewhere: &[Elsewhere],
    all: impl Iterator<Item = (&'static str, u64)>,
) -> Vec<&'static str> {
    let home = |mark: &str| {
        let row = elsewhere.iter().find(|row| row.mark == mark);
        row.map_or(first, |row| row.profile)
    };
    all.filter(|(mark, seeds)| *seeds == 0 && home(mark) == profile)
        .map(|(mark, _)| mark)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_that_no_seed_reaches_is_missed_by_its_profile_only() {
        let elsewhere = [Elsewhere {
            mark: "area: full",
            profile: "disk",
            why: "only there are disks small",
        }];
        let reached = || [("area: full", 0), ("area: rare", 0), ("area: often", 9)].into_iter();
        assert_eq!(
            missed("swarm", "swarm", &elsewhere, reached()),
            ["area: rare"]
        );
        assert_eq!(
            missed("disk", "swarm", &elsewhere, reached()),
            ["area: full"]
        );
        assert!(missed("quiet", "swarm", &elsewhere, reached()).is_empty());
    }

    #[test]
    fn seeds_are_counted_and_the_rarest_come_first() {
        let mut marks = Marks::default();
        let Some(first) = MARKS.first() else { return };
        marks.add(&[first]);
        marks.add(&[first]);
        assert!(marks.all().any(|row| row == (*first, 2)));
        assert!(!marks.missed(&PROFILES[0]).contains(first));
        let table = marks.table();
        assert!(table.trim_end().ends_with(first), "{table}");
    }

    #[test]
    fn marks_have_an_area_and_those_of_other_profiles_exist() {
        for mark in MARKS {
            assert!(mark.contains(": "), "{mark}: an area first");
        }
        for row in ELSEWHERE {
            assert!(MARKS.contains(&row.mark), "{}: no such mark", row.mark);
            assert!(Profile::find(row.profile).is_some(), "{}", row.profile);
            assert!(row.why.len() > 10);
        }
    }
}
