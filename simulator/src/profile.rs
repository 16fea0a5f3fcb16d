//! Profiles: what kind of cluster a seed draws and which faults may happen to it.
//!
//! Swarm at the level of fault classes: a profile says how likely each class is, a seed draws
//! which are on, so that runs differ in kind and not only in luck.

mod list;

use std::time::Duration;

use base::{Domain, Prng};
use serde::{Deserialize, Serialize};
use server::{Limits, Timing};

use crate::{atlas::Promise, disk::DiskSpeed, network::NetworkSpeed, world::ClockShape};

pub(crate) use list::PROFILES;

/// How likely things are. Shares are in percent of seeds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    /// A paragraph.
    pub(crate) about: &'static str,
    pub(crate) replicas: (u64, u64),
    pub(crate) shards: (u64, u64),
    pub(crate) clients: (u64, u64),
    /// Stretches in which clients work and faults happen; the rest is idle.
    pub(crate) busy_stretches: (u64, u64),
    /// Fault events drawn for each of them.
    pub(crate) faults_per_stretch: (u64, u64),
    /// Range of the mean pause of a client between two calls, in microseconds.
    pub(crate) think: (u64, u64),
    pub(crate) crashes: u64,
    pub(crate) power_losses: u64,
    pub(crate) wipes: u64,
    pub(crate) damage: u64,
    pub(crate) disk_errors: u64,
    pub(crate) disk_full: u64,
    pub(crate) slow_disks: u64,
    pub(crate) pauses: u64,
    pub(crate) partitions: u64,
    pub(crate) resets: u64,
    /// Faults that follow the primary from node to node.
    pub(crate) successions: u64,
    /// Links between nodes with little room, or that are late.
    pub(crate) slow_links: u64,
    /// Bytes between nodes that are damaged on their way.
    pub(crate) damaged_links: u64,
    /// Clocks that drift and step.
    pub(crate) clocks: u64,
    pub(crate) slow_processors: u64,
    /// Clients that die and come back.
    pub(crate) client_crashes: u64,
    /// Bursts of calls against tiny limits.
    pub(crate) overloads: u64,
    /// Fewer sessions than clients.
    pub(crate) evictions: u64,
    /// Seeds in which every topic is `persisted`, so that all nodes may lose power at once.
    pub(crate) all_persisted: u64,
    /// More than a cluster is meant to survive, to see what it says.
    pub(crate) broken: bool,
}

impl Profile {
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|profile| profile.name == name)
    }
}

/// Which fault classes a seed has.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Classes {
    pub(crate) crashes: bool,
    pub(crate) power_losses: bool,
    pub(crate) wipes: bool,
    pub(crate) damage: bool,
    pub(crate) disk_errors: bool,
    pub(crate) disk_full: bool,
    pub(crate) slow_disks: bool,
    pub(crate) pauses: bool,
    pub(crate) partitions: bool,
    pub(crate) resets: bool,
    pub(crate) successions: bool,
    pub(crate) slow_links: bool,
    pub(crate) damaged_links: bool,
    pub(crate) clocks: bool,
    pub(crate) slow_processors: bool,
    pub(crate) client_crashes: bool,
    pub(crate) overloads: bool,
    pub(crate) evictions: bool,
}

/// What topics ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Durability {
    /// Every topic is `persisted`.
    AllPersisted,
    /// Each topic draws one of the two.
    Mixed,
}

/// A stretch of virtual time, in microseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Stretch {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The fields of [`Limits`], for files; the server knows of none.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Limits")]
struct LimitsFields {
    frame_size_max: usize,
    connections_max: usize,
    pipeline_max: usize,
    client_queue_bytes_max: usize,
    replica_queue_bytes_max: usize,
    parked_max: usize,
    segment_size: u64,
    segment_size_min: u64,
    metadata_segment_size: u64,
    checkpoint_ops: u64,
    partition_checkpoint_ops: u64,
    checkpoint_chunk: usize,
    views_size: u64,
    index_interval: u64,
    read_chunk: usize,
    tail_cache: usize,
    poll_bytes_max: usize,
    repair_max: usize,
    clients_max: usize,
    producers_max: usize,
    consumers_max: usize,
    #[serde(default)]
    patience_factor: u64,
}

/// The fields of [`Timing`], for files; the server knows of none.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Timing")]
struct TimingFields {
    heartbeat: Duration,
    suspect: Duration,
    view_change_retry: Duration,
    view_change: Duration,
    repair_retry: Duration,
    redial: Duration,
    flush: Duration,
    park: Duration,
    scrub: Duration,
    #[serde(default)]
    retention: Duration,
    #[serde(default)]
    patience: Duration,
    request: Duration,
    rebalancing: Duration,
    client_heartbeat: Duration,
}

/// Everything a seed decides before the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) seed: u64,
    pub(crate) replicas: u8,
    pub(crate) shards: u16,
    pub(crate) clients: u8,
    #[serde(with = "LimitsFields")]
    pub(crate) limits: Limits,
    #[serde(with = "TimingFields")]
    pub(crate) timing: Timing,
    pub(crate) network: NetworkSpeed,
    pub(crate) disks: Vec<DiskSpeed>,
    pub(crate) clocks: Vec<ClockShape>,
    /// Clients give every attempt up at once.
    pub(crate) impatient: bool,
    pub(crate) durability: Durability,
    pub(crate) classes: Classes,
    pub(crate) busy: Vec<Stretch>,
    pub(crate) faults_per_stretch: (u64, u64),
    /// Mean pause of a client between two calls in a busy stretch, in microseconds.
    pub(crate) think: u64,
    /// The atlas admits everything.
    pub(crate) broken: bool,
}

impl Shape {
    pub(crate) fn draw(seed: u64, profile: &Profile) -> Self {
        let mut prng = Prng::new(seed, Domain::Shape, 0);
        let within = |prng: &mut Prng, (low, high): (u64, u64)| prng.between(low, high);
        // Small clusters are drawn more often: they show most at the least cost.
        let few = |prng: &mut Prng, range| within(prng, range).min(within(prng, range));
        let replicas = small(few(&mut prng, profile.replicas));
        let shards = u16::from(small(few(&mut prng, profile.shards)));
        let clients = small(within(&mut prng, profile.clients));
        let mut on = |share: u64| prng.chance(share, 100);
        let classes = Classes {
            crashes: on(profile.crashes),
            power_losses: on(profile.power_losses),
            wipes: on(profile.wipes),
            damage: on(profile.damage),
            disk_errors: on(profile.disk_errors),
            disk_full: on(profile.disk_full),
            slow_disks: on(profile.slow_disks),
            pauses: on(profile.pauses),
            partitions: on(profile.partitions),
            resets: on(profile.resets),
            successions: profile.successions > 0 && on(profile.successions),
            slow_links: on(profile.slow_links),
            damaged_links: on(profile.damaged_links),
            clocks: on(profile.clocks),
            slow_processors: on(profile.slow_processors),
            client_crashes: on(profile.client_crashes),
            overloads: on(profile.overloads),
            evictions: on(profile.evictions),
        };
        let all_persisted = on(profile.all_persisted);
        let durability = if all_persisted {
            Durability::AllPersisted
        } else {
            Durability::Mixed
        };
        let stretches = within(&mut prng, profile.busy_stretches);
        let mut busy = Vec::new();
        let mut start = 2_000_000;
        for _ in 0..stretches {
            let end = start + prng.between(6_000_000, 14_000_000);
            busy.push(Stretch { start, end });
            start = end + prng.between(60_000_000, 140_000_000);
        }
        let timing = draw_timing(&mut prng, classes);
        Self {
            seed,
            replicas,
            shards,
            clients,
            limits: draw_limits(&mut prng, classes, clients),
            timing,
            network: draw_network(&mut prng),
            disks: (0..replicas).map(|_| draw_disk(&mut prng)).collect(),
            clocks: (0..replicas)
                .map(|_| draw_clock(&mut prng, classes))
                .collect(),
            impatient: classes.client_crashes && prng.chance(1, 4),
            durability,
            classes,
            busy,
            faults_per_stretch: profile.faults_per_stretch,
            think: within(&mut prng, profile.think),
            broken: profile.broken,
        }
    }

    /// When the faults and the workload end.
    pub(crate) fn busy_end(&self) -> u64 {
        self.busy.last().expect("at least one stretch").end
    }

    /// What the cluster is to survive.
    pub(crate) fn promise(&self) -> Promise {
        Promise {
            replicas: self.replicas,
            shards: self.shards,
            all_persisted: self.durability == Durability::AllPersisted,
            broken: self.broken,
        }
    }
}

fn draw_limits(prng: &mut Prng, classes: Classes, clients: u8) -> Limits {
    let mut limits = usual_limits(prng);
    if classes.overloads {
        limits.pipeline_max = usize::from(small(prng.between(1, 3)));
        limits.client_queue_bytes_max = 64 << 10;
        limits.replica_queue_bytes_max = 8192 << prng.below(4);
        limits.parked_max = usize::from(small(prng.between(1, 8)));
        limits.repair_max = 1;
        // Sometimes a node does not have room for all clients.
        limits.connections_max = usize::from(small(prng.between(2, 2 * u64::from(clients))));
    }
    if classes.evictions {
        limits.clients_max = usize::from(small(prng.between(1, u64::from(clients))));
    }
    limits
}

fn usual_limits(prng: &mut Prng) -> Limits {
    Limits {
        frame_size_max: 1 << 20,
        connections_max: 64,
        pipeline_max: usize::from(small(prng.between(4, 16))),
        client_queue_bytes_max: 1 << 20,
        replica_queue_bytes_max: 256 << 10,
        parked_max: 64,
        segment_size: prng.between(8, 32) * 512,
        segment_size_min: 512,
        metadata_segment_size: prng.between(8, 32) * 512,
        views_size: 2 << 10,
        index_interval: 256,
        read_chunk: 1024 << prng.below(4),
        tail_cache: 512 << prng.below(5),
        poll_bytes_max: 64 << 10,
        repair_max: usize::from(small(prng.between(2, 16))),
        clients_max: 64,
        producers_max: 64,
        consumers_max: 64,
        patience_factor: 3,
        checkpoint_ops: prng.between(8, 32),
        partition_checkpoint_ops: prng.between(8, 64),
        checkpoint_chunk: 256 << prng.below(6),
    }
}

fn draw_timing(prng: &mut Prng, classes: Classes) -> Timing {
    let heartbeat = 10 * prng.between(60, 95);
    Timing {
        heartbeat: Duration::from_millis(heartbeat),
        suspect: Duration::from_millis(heartbeat * 4),
        view_change_retry: Duration::from_millis(400),
        view_change: Duration::from_millis(2_000),
        repair_retry: Duration::from_millis(200),
        redial: Duration::from_millis(200),
        flush: Duration::from_millis(50),
        // Where nothing is damaged, there is little to find.
        scrub: Duration::from_millis(if classes.damage { 200 } else { 20_000 }),
        retention: Duration::from_secs(5),
        patience: Duration::from_secs(20),
        park: Duration::from_millis(2_000),
        request: Duration::from_secs(10),
        rebalancing: Duration::from_secs(5),
        client_heartbeat: Duration::from_secs(10),
    }
}

fn draw_network(prng: &mut Prng) -> NetworkSpeed {
    NetworkSpeed {
        delay_min: prng.between(30, 500),
        delay_mean: 100 << prng.below(8),
        fragment_one_in: [0, 4, 8, 32][prng.index(4)],
        window: 4096 << prng.below(6),
    }
}

fn draw_clock(prng: &mut Prng, classes: Classes) -> ClockShape {
    // Most clocks are set right, some are wrong by seconds or by an hour.
    let most = match prng.below(8) {
        0 => 3_000_000,
        1 if classes.clocks => 3_600_000_000,
        _ => 4_000,
    };
    let either = |prng: &mut Prng, most: u64| {
        let size = i64::try_from(prng.below(2 * most + 1)).expect("small");
        size - i64::try_from(most).expect("small")
    };
    ClockShape {
        offset: either(prng, most),
        drift: either(prng, if classes.clocks { 500 } else { 30 }),
        alone: classes.clocks && prng.chance(1, 4),
    }
}

fn draw_disk(prng: &mut Prng) -> DiskSpeed {
    let slow = if prng.chance(1, 10) { 20 } else { 1 };
    DiskSpeed {
        read: slow * prng.between(20, 300),
        write: slow * prng.between(10, 200),
        sync: slow * prng.between(200, 4_000),
        stall_one_in: [0, 100, 400][prng.index(3)],
    }
}

fn small(value: u64) -> u8 {
    u8::try_from(value).expect("shapes are small")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_one_shape() {
        let draw = |seed| format!("{:?}", Shape::draw(seed, &PROFILES[0]));
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    #[test]
    fn swarm_runs_are_long_and_idle_most_of_the_time() {
        let shapes = (0..50).map(|seed| Shape::draw(seed, &PROFILES[0]));
        let total: u64 = shapes.map(|shape| shape.busy_end()).sum();
        assert!(total / 50 > 900_000_000, "{}", total / 50);
    }

    #[test]
    fn names_are_unique_and_found() {
        for profile in &PROFILES {
            assert_eq!(
                Profile::find(profile.name).map(|found| found.about),
                Some(profile.about)
            );
        }
        assert!(Profile::find("nonsense").is_none());
    }
}
