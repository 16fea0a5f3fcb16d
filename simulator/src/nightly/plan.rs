//! What a night consists of, in slices: each is finished and written down, or done again.
//!
//! ```text
//!   seeds 60 %  ─ profiles by weight, some seconds each
//!   fuzz  20 %  ─ one target after the other
//!   bugs  20 %  ─ each planted bug once; then the rest of the night is for the others
//! ```
//!
//! The next slice is a function of what has been spent, so a killed night goes on as if it had
//! not been killed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::state::{Night, Spent};
use crate::{mutants, profile::PROFILES};

/// A piece of work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Slice {
    /// Seeds of a profile, from `first` on.
    Seeds { profile: String, first: u64 },
    /// A fuzz target.
    Fuzz { target: String },
    /// A planted bug, with and without asserts.
    Bug { number: u32 },
}

/// Seconds of one slice of seeds or of fuzzing.
pub(super) const SLICE_SECONDS: u64 = 30;

/// The share of the night, in percent.
const SEEDS: u64 = 60;
const FUZZ: u64 = 20;
const BUGS: u64 = 20;

/// Whoever runs a slice over and over and never finishes it is left out.
pub(super) const ATTEMPTS_MAX: u32 = 3;

/// How often a profile is run, relative to the others.
fn weight(profile: &str) -> u64 {
    match profile {
        "swarm" => 40,
        "crash" | "partition" | "disk" => 12,
        "smoke" | "quiet" | "lite" => 3,
        _ => 6,
    }
}

impl Night {
    /// What is to be done next; nothing if nothing can be.
    pub(super) fn next(&self) -> Option<Slice> {
        let seeds: u64 = self.profiles.values().map(|tally| tally.spent.wall).sum();
        let fuzz: u64 = self.fuzz.values().map(|tally| tally.spent.wall).sum();
        let candidates = [
            (SEEDS, seeds, self.next_seeds()),
            (FUZZ, fuzz, self.next_fuzz()),
            (BUGS, self.bugs_spent.wall, self.next_bug()),
        ];
        let open = candidates
            .into_iter()
            .filter_map(|(share, spent, slice)| Some((spent * 100 / share, slice?)));
        open.min_by_key(|(spent, _)| *spent).map(|(_, slice)| slice)
    }

    fn next_seeds(&self) -> Option<Slice> {
        let spent = |name: &str| self.profiles.get(name).map_or(0, |tally| tally.spent.wall);
        let names = PROFILES.iter().map(|profile| profile.name);
        let name = names.min_by_key(|name| spent(name) * 100 / weight(name))?;
        let next = self.profiles.get(name).map(|tally| tally.next);
        Some(Slice::Seeds {
            profile: name.into(),
            first: next.unwrap_or(self.start),
        })
    }

    fn next_fuzz(&self) -> Option<Slice> {
        let spent = |target: &&String| self.fuzz.get(*target).map_or(0, |tally| tally.spent.wall);
        let target = self.targets.iter().min_by_key(spent)?.clone();
        Some(Slice::Fuzz { target })
    }

    fn next_bug(&self) -> Option<Slice> {
        let hunted = |number: u32| self.hunted.contains(&number);
        let mut open = mutants::all().filter(|mutant| !hunted(mutant.number));
        let next = open.next().filter(|_| self.hunts)?;
        let number = next.number;
        Some(Slice::Bug { number })
    }

    /// Milliseconds of work so far.
    pub(super) fn elapsed(&self) -> u64 {
        let seeds = self.profiles.values().map(|tally| tally.spent);
        let fuzz = self.fuzz.values().map(|tally| tally.spent);
        let all = seeds.chain(fuzz).chain([self.bugs_spent]);
        all.map(|Spent { wall, .. }| wall).sum()
    }
}

/// How the night's seconds are shared out, for the report.
pub(super) fn shares(night: &Night) -> BTreeMap<&'static str, u64> {
    let seconds = |millis: u64| millis / 1_000;
    let seeds = night.profiles.values().map(|tally| tally.spent.wall).sum();
    let fuzz = night.fuzz.values().map(|tally| tally.spent.wall).sum();
    BTreeMap::from([
        ("seeds", seconds(seeds)),
        ("fuzz", seconds(fuzz)),
        ("planted bugs", seconds(night.bugs_spent.wall)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nightly::state::Tally;

    fn night() -> Night {
        Night {
            start: 100,
            hunts: true,
            targets: vec!["one".into(), "two".into()],
            ..Night::default()
        }
    }

    /// Spends `millis` on a slice.
    fn spend(night: &mut Night, slice: &Slice, millis: u64) {
        let spent = |tally: &mut Tally| tally.spent.wall += millis;
        match slice {
            Slice::Seeds { profile, first } => {
                let tally = night.profiles.entry(profile.clone()).or_default();
                tally.next = first + 7;
                spent(tally);
            }
            Slice::Fuzz { target } => {
                night.fuzz.entry(target.clone()).or_default().spent.wall += millis;
            }
            Slice::Bug { number } => {
                night.hunted.insert(*number);
                night.bugs_spent.wall += millis;
            }
        }
    }

    #[test]
    fn a_night_keeps_its_shares_and_visits_everything() {
        let mut night = night();
        for _ in 0..1_000 {
            let slice = night.next().expect("never done");
            spend(&mut night, &slice, 1_000);
        }
        assert_eq!(night.elapsed(), 1_000_000);
        assert_eq!(night.hunted.len(), mutants::all().count());
        let shares = shares(&night);
        let (seeds, fuzz) = (shares["seeds"], shares["fuzz"]);
        assert!(seeds > 2 * fuzz && fuzz > 200, "{seeds} {fuzz}");
        assert_eq!(night.profiles.len(), PROFILES.len());
        let wall = |name: &str| night.profiles[name].spent.wall;
        assert!(wall("swarm") > 2 * wall("crash"));
        assert_eq!(night.fuzz.len(), 2);
        assert!(night.profiles.values().all(|tally| tally.next > 100));
    }

    #[test]
    fn without_fuzzing_and_bugs_there_are_seeds() {
        let mut night = Night::default();
        let first = night.next();
        assert!(matches!(first, Some(Slice::Seeds { first: 0, .. })));
        night.hunts = true;
        night.hunted = mutants::all().map(|mutant| mutant.number).collect();
        night.bugs_spent.wall = 0;
        assert!(matches!(night.next(), Some(Slice::Seeds { .. })));
    }

    #[test]
    fn the_next_slice_outlives_the_process() {
        let mut night = night();
        for _ in 0..50 {
            let slice = night.next().expect("never done");
            spend(&mut night, &slice, 700);
            let text = serde_json::to_string(&night).expect("plain data");
            let again: Night = serde_json::from_str(&text).expect("our own");
            assert_eq!(again.next(), night.next());
        }
    }
}
