//! Planted bugs: each alone against its budget of seeds. The score says how far a passing
//! campaign can be trusted.
//!
//! Numbers, classes and budgets are those of the table of mutations that the project started
//! from; a bug is listed here once its site exists in the product code.

use crate::{
    profile::Profile,
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
}

const fn mutant(
    number: u32,
    class: char,
    budget: u64,
    profile: &'static str,
    what: &'static str,
) -> Mutant {
    Mutant {
        number,
        what,
        class,
        budget,
        profile,
    }
}

/// All bugs that can be planted.
pub(crate) const MUTANTS: [Mutant; 17] = [
    mutant(
        1,
        'S',
        500,
        "swarm",
        "prepare_ok before the write completes",
    ),
    mutant(
        2,
        'S',
        500,
        "crash",
        "prepare_ok of a persisted topic without a sync",
    ),
    mutant(3, 'S', 200, "swarm", "replication quorum one short"),
    mutant(4, 'S', 500, "partition", "view-change quorum one short"),
    mutant(5, 'S', 500, "partition", "own votes counted twice"),
    mutant(
        7,
        'S',
        1_000,
        "crash",
        "view not durable before do_view_change",
    ),
    mutant(
        8,
        'S',
        5_000,
        "crash",
        "log_view not durable before prepare_ok",
    ),
    mutant(
        9,
        'S',
        1_000,
        "swarm",
        "do_view_change carries the latest view as log_view",
    ),
    mutant(
        10,
        'S',
        1_000,
        "partition",
        "new log picked by highest op only",
    ),
    mutant(15, 'S', 100, "partition", "commit without a quorum"),
    mutant(16, 'S', 100, "swarm", "reply before the commit"),
    mutant(
        19,
        'S',
        2_000,
        "partition",
        "a later view truncates to the commit",
    ),
    mutant(
        23,
        'S',
        200,
        "swarm",
        "a repeated request in the pipeline is executed again",
    ),
    mutant(24, 'S', 200, "crash", "checksum of a body not verified"),
    mutant(
        27,
        'R',
        1_000,
        "crash",
        "view store compacted without syncs",
    ),
    mutant(
        33,
        'D',
        50,
        "swarm",
        "the state machine uses the local clock",
    ),
    mutant(
        34,
        'S',
        300,
        "partition",
        "consumer offset applied out of the log",
    ),
];

/// Bugs that have a site but that no run can be expected to show, and why. They are hunted only
/// when asked for by number.
pub(crate) const OUT_OF_REACH: [Mutant; 2] = [
    mutant(
        6,
        'S',
        500,
        "partition",
        "prepare_ok of another view counted: it must be late by as many views as there are \
         replicas, on a link that silence has closed by then",
    ),
    mutant(
        18,
        'S',
        500,
        "crash",
        "prepares of an older view accepted: the link of a silent primary is closed before \
         another view begins",
    ),
];

/// How one bug fared.
pub(crate) struct Verdict {
    pub(crate) mutant: Mutant,
    /// Seeds until it was caught; none if it was not.
    pub(crate) seeds: Option<u64>,
    pub(crate) killer: &'static str,
    pub(crate) cpu_micros: u64,
}

/// Plants a bug and runs seeds until it is caught or its budget is spent. A seed that fails
/// without the bug too catches nothing.
pub(crate) fn hunt(mutant: Mutant, budget: u64, jobs: usize) -> Verdict {
    let profile = Profile::find(mutant.profile).expect("profiles of mutants exist");
    let mut verdict = Verdict {
        mutant,
        seeds: None,
        killer: "-",
        cpu_micros: 0,
    };
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
        };
        let Summary {
            failures,
            cpu_micros,
            ..
        } = campaign.run(|_| {});
        activate(0);
        verdict.cpu_micros += cpu_micros;
        let Some((seed, failure)) = failures.first() else {
            break;
        };
        if run_seed(*seed, profile, false).outcome.failure.is_none() {
            verdict.seeds = Some(*seed);
            verdict.killer = failure.check;
            break;
        }
        start = seed + 1;
    }
    verdict
}

/// One line of the table.
pub(crate) fn line(verdict: &Verdict) -> String {
    let Mutant {
        number,
        what,
        class,
        ..
    } = verdict.mutant;
    let seeds = verdict
        .seeds
        .map_or_else(|| "alive".into(), |seeds| seeds.to_string());
    let (whole, tenths) = (
        verdict.cpu_micros / 1_000_000,
        verdict.cpu_micros / 100_000 % 10,
    );
    format!(
        "{number:>3}  {class}  {seeds:>6}  {whole:>5}.{tenths}  {:<12} {what}",
        verdict.killer
    )
}

/// The head of the table.
pub(crate) const HEAD: &str = "bug  class seeds   CPU s  killer       what";

/// Whether bugs are compiled in.
pub(crate) const AVAILABLE: bool = cfg!(feature = "planted-bugs");

fn activate(number: u32) {
    #[cfg(feature = "planted-bugs")]
    base::planted::activate(number);
    #[cfg(not(feature = "planted-bugs"))]
    assert!(
        number == 0,
        "bugs are planted only with the feature planted-bugs"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_has_a_number_of_its_own_and_a_profile() {
        for pair in MUTANTS.windows(2) {
            assert!(pair[0].number < pair[1].number);
        }
        for mutant in &MUTANTS {
            assert!(
                Profile::find(mutant.profile).is_some(),
                "{}",
                mutant.profile
            );
            assert!(mutant.budget > 0);
        }
    }
}
