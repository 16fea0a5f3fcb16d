//! Seeded chaos: random delivery, loss, cuts, crashes, restarts and suspicions on one to five
//! replicas, damaged records and replaced disks; the invariants of `cluster` hold after every
//! step, and once all is well again the cluster converges and commits a fresh op.
//!
//! Unless a run is reckless, no op is ever without a witness on a view-change quorum: then nothing
//! may be lost, and no group may say that it is, or that it cannot decide for good.
//!
//! `CONSENSUS_SEEDS=100000` runs that many; `CONSENSUS_SEED=15 CONSENSUS_TRACE=1` one, and tells
//! it.

mod cluster;

use std::{panic, time::Duration};

use base::{Domain, Op, Prng};
use cluster::{Cluster, Crash, Mode};
use consensus::Trust;

/// What may happen in a run.
#[derive(Clone, Copy, Debug)]
struct Chaos {
    mode: Mode,
    /// More replicas may lose power, records or disks than the group can miss.
    reckless: bool,
    /// Records are damaged and disks replaced.
    rot: bool,
    /// Letters arrive again, and late.
    soup: bool,
}

/// Runs one seed.
fn run(seed: u64, chaos: Chaos) {
    let mut prng = Prng::new(seed, Domain::Workload, 0);
    let count = prng.between(1, 5);
    let count = usize::try_from(count).expect("small");
    let trust = if chaos.rot && prng.chance(1, 3) {
        Trust::Blank
    } else {
        Trust::Trusted
    };
    let mut cluster = Cluster::new(count, chaos.mode, trust, seed);
    cluster.soup = chaos.soup;
    cluster.loud = std::env::var_os("CONSENSUS_TRACE").is_some();
    // Some runs are calm, some wild.
    let trouble = prng.between(1, 12);
    let lossy = prng.chance(1, 2);
    for _ in 0..prng.between(100, 900) {
        step(&mut cluster, &mut prng, chaos, trouble, lossy);
    }
    cluster.heal();
    // One of two may have committed on its own, for all that the other one knows.
    let few = count < 3 && (chaos.rot || chaos.mode == Mode::Replicated);
    assert!(
        !cluster.loss || chaos.reckless || few,
        "a loss that was none"
    );
}

fn step(cluster: &mut Cluster, prng: &mut Prng, chaos: Chaos, trouble: u64, lossy: bool) {
    let count = cluster.count();
    let index = prng.index(count);
    let other = (index + 1 + prng.index(count.max(2) - 1)) % count;
    let pair = other != index;
    match prng.below(100) {
        0..=34 if pair => {
            for _ in 0..prng.between(1, 4) {
                cluster.deliver(index, other);
            }
        }
        35..=49 => drop(cluster.write(index)),
        50..=55 => drop(cluster.sync(index)),
        56..=65 => drop(cluster.store(index)),
        66..=71 => drop(cluster.serve(index)),
        72..=78 => {
            for _ in 0..prng.between(1, 5) {
                cluster.prepare(index);
            }
        }
        79..=83 => drop(cluster.heartbeat(index)),
        84..=86 => {
            cluster.now = cluster.now + Duration::from_millis(prng.between(1, 200));
            for index in 0..count {
                cluster.timers(index);
            }
        }
        87 if pair && chaos.rot => cluster.mend(index, other),
        88..=89 if pair && lossy => drop(cluster.lose(index, other)),
        90 if prng.below(12) < trouble => isolate(cluster, prng, index),
        91..=95 if prng.below(12) < trouble => upset(cluster, prng, chaos, index, other),
        96..=98 if chaos.rot && prng.below(12) < trouble => rot(cluster, prng, chaos, index),
        _ => cluster.run(1),
    }
}

/// One replica, or two, talk to nobody else for a while; the others go on.
fn isolate(cluster: &mut Cluster, prng: &mut Prng, index: usize) {
    let count = cluster.count();
    let other = prng.index(count);
    let inside = |replica: usize| replica == index || replica == other;
    for a in 0..count {
        for b in (0..count).filter(|b| inside(a) != inside(*b)) {
            cluster.cut(a, b);
            cluster.cut(b, a);
        }
    }
    while cluster.prepare(index) {}
    let now = cluster.now;
    for replica in (0..count).filter(|replica| !inside(*replica)) {
        cluster.suspect(replica);
        cluster.run(1);
    }
    if prng.chance(1, 2) {
        cluster.act(index, |group, out| group.abdicate(now, out));
    }
    cluster.run(usize::try_from(prng.below(4)).expect("small"));
}

/// Something goes wrong.
fn upset(cluster: &mut Cluster, prng: &mut Prng, chaos: Chaos, index: usize, other: usize) {
    let now = cluster.now;
    let pair = other != index;
    match prng.below(10) {
        0 | 1 => cluster.suspect(index),
        2 => cluster.act(index, |group, out| group.abdicate(now, out)),
        3 if pair => cluster.connect(index, other),
        4 if pair => cluster.cut(index, other),
        5 | 6 => cluster.restart(index),
        7 => {
            let kept = usize::try_from(prng.below(4)).expect("small");
            cluster.crash(index, Crash::Process, kept);
        }
        8 => {
            let safe = chaos.mode == Mode::Persisted || cluster.can_spare(index, None);
            if safe || chaos.reckless {
                let kept = usize::try_from(prng.below(4)).expect("small");
                cluster.crash(index, Crash::Power, kept);
            }
        }
        _ => {
            for index in 0..cluster.count() {
                cluster.restart(index);
            }
        }
    }
}

/// A disk loses a record or two, or all that it had.
fn rot(cluster: &mut Cluster, prng: &mut Prng, chaos: Chaos, index: usize) {
    if prng.chance(1, 4) {
        if cluster.count() > 1 && (chaos.reckless || cluster.can_spare(index, None)) {
            cluster.wipe(index);
            if prng.chance(1, 2) {
                cluster.restart(index);
            }
        }
        return;
    }
    let held = cluster.nodes[index].log.len() as u64;
    if held == 0 || cluster.count() == 1 {
        return;
    }
    // Mostly near the end, where it is not known what is committed.
    let depth = if prng.chance(2, 3) { 4 } else { held };
    let back = prng.below(depth);
    let last = Op(held.saturating_sub(back).max(1));
    for op in (last.0..=last.0 + prng.below(3)).map(Op) {
        if op.0 <= held && (chaos.reckless || cluster.can_spare(index, Some(op))) {
            cluster.damage(index, op);
        }
    }
    if prng.chance(2, 3) {
        cluster.crash(index, Crash::Process, 0);
        cluster.restart(index);
    }
}

/// Runs many seeds and names the first that fails.
fn run_all(chaos: Chaos, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        if panic::catch_unwind(|| run(seed, chaos)).is_err() {
            panic!("seed {seed} of {chaos:?}");
        }
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse().expect("a number"))
    };
    match (number("CONSENSUS_SEED"), number("CONSENSUS_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => 0..count.unwrap_or(1_000),
    }
}

const PERSISTED: Chaos = Chaos {
    mode: Mode::Persisted,
    reckless: false,
    rot: false,
    soup: false,
};

const REPLICATED: Chaos = Chaos {
    mode: Mode::Replicated,
    ..PERSISTED
};

const RECKLESS: Chaos = Chaos {
    reckless: true,
    ..REPLICATED
};

#[test]
fn persisted_logs_stay_one_and_complete() {
    run_all(PERSISTED, seeds());
}

#[test]
fn replicated_logs_stay_one_and_complete_while_enough_keep_power() {
    run_all(REPLICATED, seeds());
}

#[test]
fn after_losing_power_everywhere_the_cluster_still_converges() {
    run_all(RECKLESS, seeds());
}

#[test]
fn damaged_records_and_replaced_disks_lose_nothing() {
    let rot = |mode| Chaos {
        mode,
        rot: true,
        ..PERSISTED
    };
    run_all(rot(Mode::Persisted), seeds());
    run_all(rot(Mode::Replicated), seeds());
}

#[test]
fn letters_that_arrive_twice_or_late_change_nothing() {
    let soup = |mode| Chaos {
        mode,
        rot: true,
        soup: true,
        ..PERSISTED
    };
    run_all(soup(Mode::Persisted), seeds());
    run_all(soup(Mode::Replicated), seeds());
}
