//! The faults of a run as data: drawn from the seed before the run starts, so that they can be
//! kept, read, replayed and cut down.
//!
//! A fault names its target plainly and does not look at the state of the world; the atlas
//! decides at its time whether it must be milder (a power loss that would take more copies than
//! the cluster is meant to survive becomes a process crash).
//!
//! Each kind of fault is a function that draws one; the files below have them by domain.

mod clients;
mod clocks;
mod disk;
mod network;
mod process;
mod succession;

use base::{Domain, Prng};
use serde::{Deserialize, Serialize};

use crate::{
    disk::{Crash, Point},
    network::{Damage, Slowness},
    profile::Shape,
};

pub(crate) use disk::{DiskDamage, DiskFault};

/// Something that happens to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    /// Kills the process, or cuts the power, of every node in the mask.
    Crash { nodes: u64, crash: Crash },
    /// Kills the node when it passes a point for the n-th time from now on; it restarts after
    /// `downtime` microseconds.
    CrashAtDisk {
        node: u8,
        point: Point,
        nth: u64,
        crash: Crash,
        downtime: u64,
    },
    /// The machine dies, and its disk is empty when it is started again.
    Wipe { node: u8 },
    /// The machine dies, and one directory of its disk is gone when it is started again.
    WipeDirectory { node: u8, pick: u64 },
    /// All copies of some record are damaged.
    DamageEverywhere { pick: u64 },
    /// Something happens to a disk.
    Disk { node: u8, fault: DiskFault },
    /// Starts every node in the mask that is down.
    Restart { nodes: u64 },
    /// Stops a process without ending it.
    Pause { node: u8 },
    /// Lets it go on.
    Resume { node: u8 },
    /// Stops bytes from the hosts in one mask to those in the other.
    Cut { from: u64, to: u64 },
    /// Ends all cuts, and all else that is wrong with the network.
    Heal,
    /// Ends what is wrong between the hosts of one mask and those of the other, in one direction.
    Mend { from: u64, to: u64 },
    /// Resets some open connection.
    Reset { pick: u64 },
    /// Makes one side of some open connection lose it without the other noticing.
    Forget { pick: u64 },
    /// Slows bytes down from the hosts in one mask to those in the other.
    Slow {
        from: u64,
        to: u64,
        slowness: Slowness,
    },
    /// Damages the next bytes from the hosts in one mask to those in the other.
    Damage {
        from: u64,
        to: u64,
        damage: Damage,
        pick: u64,
    },
    /// Moves the realtime clock of a node.
    StepClock { node: u8, micros: i64 },
    /// Makes everything that a node computes take so many times as long; 1 is usual.
    SlowProcessor { node: u8, factor: u8 },
    /// Ends clients of a mask without a word, or, with their machine, without a sound.
    ClientCrash { clients: u64, machine: bool },
    /// Starts those of them that are down, under their old identity or a new one.
    ClientReturn { clients: u64, identity: Identity },
    /// Clients of a mask make their next calls one after another without a pause.
    Burst { clients: u64, calls: u32 },
}

/// As whom a client comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Identity {
    /// As the one it was, whose numbers it goes on from.
    Same,
    /// As somebody whom no server has heard of.
    New,
}

/// When what happens; sorted by time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) faults: Vec<(u64, Fault)>,
}

const SECOND: u64 = 1_000_000;

impl Schedule {
    /// The faults of a seed.
    pub(crate) fn draw(shape: &Shape) -> Self {
        let mut drawer = Drawer {
            prng: Prng::new(shape.seed, Domain::Process, u64::MAX),
            shape: shape.clone(),
            faults: Vec::new(),
        };
        let mut kinds: Vec<Draw> = Vec::new();
        process::kinds(&shape.classes, &mut kinds);
        disk::kinds(&shape.classes, &mut kinds);
        if shape.broken {
            disk::broken_kinds(&shape.classes, &mut kinds);
        }
        network::kinds(&shape.classes, &mut kinds);
        succession::kinds(&shape.classes, &mut kinds);
        clocks::kinds(&shape.classes, &mut kinds);
        clients::kinds(&shape.classes, &mut kinds);
        for stretch in &shape.busy {
            let (low, high) = shape.faults_per_stretch;
            let count = drawer.prng.between(low, high);
            for _ in 0..count {
                if kinds.is_empty() {
                    break;
                }
                let draw = kinds[drawer.prng.index(kinds.len())];
                let at = drawer.prng.between(stretch.start, stretch.end);
                draw(&mut drawer, at);
            }
        }
        let mut faults = drawer.faults;
        faults.sort_by_key(|(at, _)| *at);
        Self { faults }
    }
}

/// Draws one kind of fault, to happen from the given time on.
type Draw = fn(&mut Drawer, u64);

struct Drawer {
    prng: Prng,
    shape: Shape,
    faults: Vec<(u64, Fault)>,
}

impl Drawer {
    fn push(&mut self, at: u64, fault: Fault) {
        self.faults.push((at, fault));
    }

    fn node(&mut self) -> u8 {
        u8::try_from(self.prng.below(u64::from(self.shape.replicas))).expect("a node")
    }

    /// A non-empty set of nodes: mostly one, sometimes some, sometimes all.
    fn nodes(&mut self) -> u64 {
        let all = (1 << self.shape.replicas) - 1;
        match self.prng.below(8) {
            0 => all,
            1 | 2 => (self.prng.next_u64() & all).max(1),
            _ => 1 << self.node(),
        }
    }

    fn downtime(&mut self) -> u64 {
        match self.prng.below(4) {
            0 => self.prng.between(1, 200_000),
            1 => self.prng.between(SECOND, 30 * SECOND),
            _ => self.prng.between(200_000, 5 * SECOND),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{PROFILES, Profile};

    #[test]
    fn schedules_are_sorted_repeatable_and_crash_often_enough() {
        let mut crashes = 0;
        for seed in 0..100 {
            let shape = Shape::draw(seed, &PROFILES[0]);
            let schedule = Schedule::draw(&shape);
            assert_eq!(schedule, Schedule::draw(&shape));
            assert!(schedule.faults.is_sorted_by_key(|(at, _)| *at));
            let crash =
                |fault: &Fault| matches!(fault, Fault::Crash { .. } | Fault::CrashAtDisk { .. });
            crashes += schedule
                .faults
                .iter()
                .filter(|(_, fault)| crash(fault))
                .count();
        }
        assert!(crashes > 400, "{crashes}");
    }

    #[test]
    fn quiet_means_quiet() {
        let quiet = Profile::find("quiet").expect("there");
        assert!(Schedule::draw(&Shape::draw(1, quiet)).faults.is_empty());
    }
}
