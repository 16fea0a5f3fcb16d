//! Planted bugs: each alone against its budget of seeds. The score says how far a passing
//! campaign can be trusted.
//!
//! With the product's own asserts silenced the same hunt says what the checkers find alone.
//!
//! **Invariant:** one bug at a time; the switch is one static for all threads of the process.

mod list;
mod page;

use std::time::Instant;

use serde_json::{Value, json};

pub(crate) use list::{FAST, OWN, all};
pub(crate) use page::page;

use crate::{
    marks::PLANTED,
    profile::Profile,
    report,
    runner::{Campaign, Summary, run_seed},
};

/// A planted bug.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutant {
    pub(crate) number: u32,
    pub(crate) what: &'static str,
    /// S safety, L liveness, D determinism, R recovery.
    pub(crate) class: char,
    /// Seeds within which it must be caught.
    pub(crate) budget: u64,
    /// Where it shows best.
    pub(crate) profile: &'static str,
    /// Why it is not the literal mutation of the table, and what it is instead.
    pub(crate) adapted: Option<&'static str>,
}

impl Mutant {
    /// Whether the product has a place for it.
    pub(crate) fn has_site(&self) -> bool {
        PLANTED.contains(&self.number)
    }

    fn is_own(&self) -> bool {
        OWN.iter().any(|own| own.number == self.number)
    }
}

/// Whether the product's own asserts stop a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asserts {
    On,
    Off,
}

/// How long one bug is hunted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Seeds.
    pub(crate) budget: u64,
    /// Seeds at a time.
    pub(crate) jobs: usize,
    /// No longer than this.
    pub(crate) until: Option<Instant>,
}

/// How one bug fared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    pub(crate) mutant: Mutant,
    pub(crate) asserts: Asserts,
    /// Seeds until it was caught; none if it was not.
    pub(crate) seeds: Option<u64>,
    pub(crate) killer: &'static str,
    pub(crate) cpu_micros: u64,
}

/// Plants a bug and runs seeds until it is caught or its budget is spent. A seed that fails
/// without the bug too catches nothing.
pub(crate) fn hunt(mutant: Mutant, asserts: Asserts, effort: Effort) -> Verdict {
    let Effort {
        budget,
        jobs,
        until,
    } = effort;
    let profile = Profile::find(mutant.profile).expect("profiles of mutants exist");
    let mut verdict = Verdict {
        mutant,
        asserts,
        seeds: None,
        killer: "-",
        cpu_micros: 0,
    };
    if !mutant.has_site() {
        verdict.killer = "no site";
        return verdict;
    }
    silence(asserts == Asserts::Off);
    let mut start = 1;
    while start <= budget {
        activate(mutant.number);
        let seeds = budget + 1 - start;
        let campaign = Campaign {
            start,
            seeds,
            jobs,
            profile,
            stop_at_failure: true,
            until,
            twice: false,
        };
        let Summary {
            runs,
            failures,
            cpu_micros,
            ..
        } = campaign.run(|_| {});
        activate(0);
        verdict.cpu_micros += cpu_micros;
        let Some((seed, failure)) = failures.first() else {
            if runs < seeds {
                verdict.killer = "time";
            }
            break;
        };
        if run_seed(*seed, profile, false).outcome.failure.is_none() {
            verdict.seeds = Some(*seed);
            verdict.killer = match (failure.check, asserts) {
                // Whatever still panics is none of our invariants.
                ("assert", Asserts::Off) => "panic",
                (check, _) => check,
            };
            break;
        }
        start = seed + 1;
    }
    silence(false);
    verdict
}

/// One line of the table on the terminal.
pub(crate) fn line(verdict: &Verdict) -> String {
    let Mutant {
        number,
        what,
        class,
        ..
    } = verdict.mutant;
    format!(
        "{number:>3}  {class}  {:>6}  {:>7}  {:<12} {what}{}",
        seeds(verdict),
        cpu_seconds(verdict),
        verdict.killer,
        match verdict.asserts {
            Asserts::On => "",
            Asserts::Off => " (asserts off)",
        }
    )
}

/// The head of the table.
pub(crate) const HEAD: &str = "bug  class seeds   CPU s  killer       what";

fn seeds(verdict: &Verdict) -> String {
    verdict
        .seeds
        .map_or_else(|| "alive".into(), |seeds| seeds.to_string())
}

fn cpu_seconds(verdict: &Verdict) -> String {
    let tenths = verdict.cpu_micros / 100_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Killed and hunted of one kind: of the table if `own` is not set, else of our own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Score {
    pub(crate) killed: usize,
    pub(crate) of: usize,
}

/// The bugs of a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Table,
    Own,
}

impl Score {
    /// Counts the verdicts of one origin and mode.
    pub(crate) fn of(verdicts: &[Verdict], origin: Origin, asserts: Asserts) -> Self {
        let counted = verdicts.iter().filter(|verdict| {
            verdict.asserts == asserts && verdict.mutant.is_own() == (origin == Origin::Own)
        });
        counted.fold(Self::default(), |score, verdict| Self {
            killed: score.killed + usize::from(verdict.seeds.is_some()),
            of: score.of + 1,
        })
    }
}

/// The lines below the table; the last is the score.
pub(crate) fn scores(verdicts: &[Verdict]) -> String {
    let mut lines = Vec::new();
    let mut say = |origin, asserts, what: &str| {
        let score = Score::of(verdicts, origin, asserts);
        if score.of > 0 {
            lines.push(format!("{what} {} of {}", score.killed, score.of));
        }
    };
    say(Origin::Own, Asserts::Off, "own bugs with asserts off");
    say(Origin::Own, Asserts::On, "own bugs");
    say(Origin::Table, Asserts::Off, "score with asserts off");
    say(Origin::Table, Asserts::On, "score");
    // Whatever was asked for, the last line is a score and nothing else.
    let last = lines.last_mut().expect("at least one bug is hunted");
    let numbers: Vec<&str> = last.rsplit(' ').take(3).collect();
    *last = format!("score {} of {}", numbers[2], numbers[0]);
    lines.join("\n")
}

/// What `--json` writes.
pub(crate) fn json(verdicts: &[Verdict]) -> Value {
    let row = |verdict: &Verdict| {
        json!({
            "bug": verdict.mutant.number,
            "what": verdict.mutant.what,
            "class": verdict.mutant.class.to_string(),
            "own": verdict.mutant.is_own(),
            "asserts": verdict.asserts == Asserts::On,
            "profile": verdict.mutant.profile,
            "budget": verdict.mutant.budget,
            "seeds": verdict.seeds,
            "cpu_seconds": report::seconds(verdict.cpu_micros),
            "killer": verdict.killer,
        })
    };
    verdicts.iter().map(row).collect()
}

/// Whether bugs are compiled in.
pub(crate) const AVAILABLE: bool = cfg!(feature = "planted-bugs");

#[cfg(feature = "planted-bugs")]
fn activate(number: u32) {
    base::planted::activate(number);
}

#[cfg(feature = "planted-bugs")]
fn silence(silent: bool) {
    base::planted::silence_invariants(silent);
}

#[cfg(not(feature = "planted-bugs"))]
fn activate(number: u32) {
    assert!(number == 0, "bugs are compiled in with planted-bugs only");
}

#[cfg(not(feature = "planted-bugs"))]
fn silence(silent: bool) {
    assert!(!silent, "asserts are silenced with planted-bugs only");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(number: u32, seeds: Option<u64>, asserts: Asserts) -> Verdict {
        let mutant = *all()
            .find(|mutant| mutant.number == number)
            .expect("listed");
        Verdict {
            mutant,
            asserts,
            seeds,
            killer: "views",
            cpu_micros: 1_250_000,
        }
    }

    #[test]
    fn every_bug_has_a_number_of_its_own_and_a_profile() {
        let numbers: Vec<u32> = all().map(|mutant| mutant.number).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "each number once");
        for mutant in all() {
            assert!(
                Profile::find(mutant.profile).is_some(),
                "{}",
                mutant.profile
            );
            assert!(mutant.budget > 0);
            assert!("SLDR".contains(mutant.class));
        }
    }

    #[test]
    fn every_site_in_the_product_is_listed_and_fast_bugs_have_one() {
        for number in PLANTED {
            assert!(
                all().any(|mutant| mutant.number == *number),
                "bug {number} has a site but no row"
            );
        }
        assert!(FAST.iter().all(|number| PLANTED.contains(number)));
    }

    #[test]
    fn a_bug_without_a_site_is_alive() {
        let mutant = Mutant {
            number: 9_999,
            ..OWN[0]
        };
        let effort = Effort {
            budget: 5,
            jobs: 1,
            until: None,
        };
        let verdict = hunt(mutant, Asserts::On, effort);
        assert_eq!((verdict.seeds, verdict.killer), (None, "no site"));
    }

    #[test]
    fn the_score_of_the_table_comes_last() {
        let verdicts = [
            verdict(1, Some(3), Asserts::On),
            verdict(2, None, Asserts::On),
            verdict(1, None, Asserts::Off),
            verdict(37, Some(1), Asserts::On),
        ];
        let text = scores(&verdicts);
        assert_eq!(
            text,
            "own bugs 1 of 1\nscore with asserts off 0 of 1\nscore 1 of 2"
        );
        assert_eq!(scores(&verdicts[3..]), "score 1 of 1");
        assert_eq!(scores(&verdicts[2..3]), "score 0 of 1");
    }

    #[test]
    fn a_line_has_bug_class_seeds_seconds_and_killer() {
        let text = line(&verdict(8, Some(12), Asserts::On));
        for part in ["  8  S", "12", "1.2", "views", "log_view"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
