//! The faults of a run as data: drawn from the seed before the run starts, so that they can be
//! kept, read, replayed and cut down.
//!
//! A fault names its target plainly and does not look at the state of the world; the atlas
//! decides at its time whether it must be milder (a power loss that would take more copies than
//! the cluster is meant to survive becomes a process crash).

use base::{Domain, Prng};

use crate::{disk::Crash, profile::Shape};

/// Something that happens to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Kills the process, or cuts the power, of every node in the mask.
    Crash { nodes: u64, crash: Crash },
    /// Kills the node after it has asked for so many more disk requests, with that one in
    /// flight; the node restarts after `downtime` microseconds.
    CrashAtDisk {
        node: u8,
        requests: u64,
        crash: Crash,
        downtime: u64,
    },
    /// Starts every node in the mask that is down.
    Restart { nodes: u64 },
    /// Stops a process without ending it.
    Pause { node: u8 },
    /// Lets it go on.
    Resume { node: u8 },
    /// Stops bytes from the hosts in one mask to those in the other.
    Cut { from: u64, to: u64 },
    /// Ends all cuts.
    Heal,
    /// Resets some open connection.
    Reset { pick: u64 },
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
            shape,
            faults: Vec::new(),
        };
        let classes = shape.classes;
        let mut kinds = Vec::new();
        let mut enable = |on: bool, of: &[Kind]| kinds.extend(of.iter().filter(|_| on));
        enable(
            classes.crashes,
            &[Kind::Crash, Kind::CrashAtDisk, Kind::CrashLoop],
        );
        enable(classes.power_losses, &[Kind::PowerLoss, Kind::PowerAtDisk]);
        enable(classes.pauses, &[Kind::Pause]);
        enable(classes.partitions, &[Kind::Cut, Kind::Cut, Kind::Stall]);
        enable(classes.resets, &[Kind::Resets]);
        for stretch in &shape.busy {
            let (low, high) = shape.faults_per_stretch;
            let count = drawer.prng.between(low, high);
            for _ in 0..count {
                if kinds.is_empty() {
                    break;
                }
                let kind: Kind = kinds[drawer.prng.index(kinds.len())];
                let at = drawer.prng.between(stretch.start, stretch.end);
                drawer.draw(kind, at);
            }
        }
        let mut faults = drawer.faults;
        faults.sort_by_key(|(at, _)| *at);
        Self { faults }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Crash,
    CrashAtDisk,
    CrashLoop,
    PowerLoss,
    PowerAtDisk,
    Pause,
    Cut,
    Stall,
    Resets,
}

struct Drawer<'a> {
    prng: Prng,
    shape: &'a Shape,
    faults: Vec<(u64, Fault)>,
}

impl Drawer<'_> {
    fn draw(&mut self, kind: Kind, at: u64) {
        match kind {
            Kind::Crash => self.crash(at),
            Kind::CrashAtDisk => self.at_disk(at, Crash::Process),
            Kind::CrashLoop => self.crash_loop(at),
            Kind::PowerLoss => self.power_loss(at),
            Kind::PowerAtDisk => self.at_disk(at, Crash::Power),
            Kind::Pause => self.pause(at),
            Kind::Cut => self.cut(at),
            Kind::Stall => self.stall(at),
            Kind::Resets => self.resets(at),
        }
    }

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

    fn crash(&mut self, at: u64) {
        let nodes = self.nodes();
        let downtime = self.downtime();
        self.push(
            at,
            Fault::Crash {
                nodes,
                crash: Crash::Process,
            },
        );
        self.push(at + downtime, Fault::Restart { nodes });
    }

    fn crash_loop(&mut self, mut at: u64) {
        let node = self.node();
        for _ in 0..self.prng.between(2, 4) {
            self.push(
                at,
                Fault::Crash {
                    nodes: 1 << node,
                    crash: Crash::Process,
                },
            );
            at += self.prng.between(1, 100_000);
            self.push(at, Fault::Restart { nodes: 1 << node });
            at += self.prng.between(1_000, 4 * SECOND);
        }
    }

    fn at_disk(&mut self, at: u64, crash: Crash) {
        let (node, requests) = (self.node(), 1 + self.prng.below(40));
        let downtime = self.downtime();
        self.push(
            at,
            Fault::CrashAtDisk {
                node,
                requests,
                crash,
                downtime,
            },
        );
    }

    fn power_loss(&mut self, at: u64) {
        let nodes = self.nodes();
        self.push(
            at,
            Fault::Crash {
                nodes,
                crash: Crash::Power,
            },
        );
        if self.prng.chance(1, 2) {
            let downtime = self.downtime();
            self.push(at + downtime, Fault::Restart { nodes });
            return;
        }
        for node in 0..self.shape.replicas {
            let downtime = self.downtime();
            if nodes >> node & 1 == 1 {
                self.push(at + downtime, Fault::Restart { nodes: 1 << node });
            }
        }
    }

    fn pause(&mut self, at: u64) {
        let node = self.node();
        let length = self.prng.between(100_000, 20 * SECOND);
        self.push(at, Fault::Pause { node });
        self.push(at + length, Fault::Resume { node });
    }

    fn resets(&mut self, mut at: u64) {
        for _ in 0..self.prng.between(1, 6) {
            let pick = self.prng.next_u64();
            self.push(at, Fault::Reset { pick });
            at += self.prng.between(1, 2 * SECOND);
        }
    }

    fn cut(&mut self, at: u64) {
        let replicas = (1u64 << self.shape.replicas) - 1;
        let clients = ((1u64 << self.shape.clients) - 1) << self.shape.replicas;
        let node = 1 << self.node();
        let some = self.prng.next_u64() & replicas;
        let some_clients = self.prng.next_u64() & clients;
        match self.prng.below(7) {
            // One node alone, from everyone or only from the other nodes.
            0 => self.cut_both(at, node, replicas | clients),
            1 => self.cut_both(at, node, replicas),
            // It hears nobody; nobody hears it.
            2 => self.push(
                at,
                Fault::Cut {
                    from: replicas,
                    to: node,
                },
            ),
            3 => self.push(
                at,
                Fault::Cut {
                    from: node,
                    to: replicas,
                },
            ),
            // Two halves, clients on either side.
            4 => self.cut_both(
                at,
                some | some_clients,
                (replicas | clients) & !(some | some_clients),
            ),
            // Two nodes that others still hear.
            5 => {
                let other = 1 << self.node();
                self.cut_both(at, node, other);
            }
            _ => self.cut_both(at, some_clients, node),
        }
        let length = self.prng.between(200_000, 25 * SECOND);
        self.push(at + length, Fault::Heal);
    }

    /// One direction stands still for a moment, and its sender restarts meanwhile: what it had
    /// said arrives in a later view.
    fn stall(&mut self, at: u64) {
        let (from, to) = (self.node(), self.node());
        self.push(
            at,
            Fault::Cut {
                from: 1 << from,
                to: 1 << to,
            },
        );
        let crash_at = at + self.prng.between(20_000, 400_000);
        if self.shape.classes.crashes {
            let crash = Crash::Process;
            self.push(
                crash_at,
                Fault::Crash {
                    nodes: 1 << from,
                    crash,
                },
            );
            let restart_at = crash_at + self.prng.between(1, 200_000);
            self.push(restart_at, Fault::Restart { nodes: 1 << from });
        }
        let length = self.prng.between(300_000, 2 * SECOND);
        self.push(at + length, Fault::Heal);
    }

    fn cut_both(&mut self, at: u64, one: u64, other: u64) {
        self.push(
            at,
            Fault::Cut {
                from: one,
                to: other,
            },
        );
        self.push(
            at,
            Fault::Cut {
                from: other,
                to: one,
            },
        );
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
