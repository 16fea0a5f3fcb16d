//! Faults as they happen, and the atlas that keeps them survivable.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Due, Phase, World,
    nodes::{Doom, Life},
};
use crate::{
    disk::{Crash, Point},
    profile::{Durability, Shape},
    schedule::Fault,
};

/// Which nodes may have lost what `replicated` topics had acknowledged, and how many may at once.
///
/// A node is exposed from its power loss until all its shards say that their logs hold again
/// what they may have acknowledged, and a moment more, so that this is durable. With at most a
/// minority exposed nothing acknowledged is lost; beyond that the design promises nothing, so the
/// atlas makes such a power loss a process crash.
#[derive(Debug, Default)]
pub(super) struct Atlas {
    exposed_max: u8,
    shards: u16,
    anything_goes: bool,
    exposed: BTreeMap<u8, Exposure>,
}

/// How far an exposed node has come.
#[derive(Debug, Default)]
struct Exposure {
    trusted: BTreeSet<u16>,
    complete_at: Option<u64>,
}

/// After which what a node says of its logs is durable.
const SETTLED: u64 = 1_000_000;

impl Atlas {
    pub(super) fn new(shape: &Shape) -> Self {
        Self {
            exposed_max: shape.exposed_max(),
            shards: shape.shards,
            anything_goes: shape.durability == Durability::AllPersisted,
            exposed: BTreeMap::new(),
        }
    }

    /// May `node` lose power now? If so, it is exposed from now on.
    fn admit(&mut self, time: u64, node: u8) -> bool {
        if self.anything_goes {
            return true;
        }
        self.settle(time);
        let others = self
            .exposed
            .keys()
            .filter(|exposed| **exposed != node)
            .count();
        if others + 1 > usize::from(self.exposed_max) {
            return false;
        }
        self.exposed.insert(node, Exposure::default());
        true
    }

    /// The process of `node` has ended: what it said a moment ago may not be durable.
    fn on_stop(&mut self, time: u64, node: u8) {
        self.settle(time);
        if let Some(exposure) = self.exposed.get_mut(&node) {
            *exposure = Exposure::default();
        }
    }

    /// Forgets exposed nodes that are no longer.
    fn settle(&mut self, time: u64) {
        self.exposed.retain(|_, exposure| {
            exposure
                .complete_at
                .is_none_or(|complete_at| time < complete_at + SETTLED)
        });
    }

    /// A shard trusts its logs again.
    pub(super) fn on_trusted(&mut self, time: u64, node: u8, shard: u16) {
        if let Some(exposure) = self.exposed.get_mut(&node) {
            exposure.trusted.insert(shard);
            if exposure.trusted.len() == usize::from(self.shards) {
                exposure.complete_at = Some(time);
            }
        }
    }
}

impl World {
    pub(super) fn on_fault_due(&mut self, index: u32) {
        if self.phase != Phase::Faults {
            return;
        }
        let (_, fault) = self.schedule.faults[index as usize];
        self.digest.add(self.time ^ u64::from(index) << 48);
        if self.trace {
            super::trace::world(self.time, &format!("{fault:?}"));
        }
        match fault {
            Fault::Crash { nodes, crash } => {
                for node in self.nodes_of(nodes) {
                    self.crash(node, crash);
                }
            }
            Fault::CrashAtDisk {
                node,
                requests,
                crash,
                downtime,
            } => {
                let it = &mut self.nodes[usize::from(node)];
                if it.life == Life::Running {
                    let at_request = it.disk.passed(Point::Submit) + requests;
                    it.doom = Some(Doom {
                        at_request,
                        crash,
                        downtime,
                    });
                }
            }
            Fault::Restart { nodes } => {
                for node in self.nodes_of(nodes) {
                    self.restart(node);
                }
            }
            Fault::Pause { node } => {
                let it = &mut self.nodes[usize::from(node)];
                if it.life == Life::Running && !it.paused {
                    it.paused = true;
                    self.statistics.pauses += 1;
                }
            }
            Fault::Resume { node } => self.resume(node),
            strain => self.on_strain(strain),
        }
    }

    fn nodes_of(&self, mask: u64) -> Vec<u8> {
        (0..self.shape.replicas)
            .filter(|node| mask >> node & 1 == 1)
            .collect()
    }

    /// Ends a node as hard as the atlas allows.
    fn crash(&mut self, node: u8, crash: Crash) {
        if self.nodes[usize::from(node)].life != Life::Running {
            return;
        }
        let crash = match crash {
            Crash::Power if !self.atlas.admit(self.time, node) => Crash::Process,
            crash => crash,
        };
        if self.trace {
            super::trace::world(self.time, &format!("node {node} dies: {crash:?}"));
        }
        self.atlas.on_stop(self.time, node);
        self.stop_node(node, crash);
    }

    /// A node dies with a disk request in flight.
    pub(super) fn die_at_disk(&mut self, node: u8, doom: Doom) {
        self.crash(node, doom.crash);
        let incarnation = self.nodes[usize::from(node)].incarnation;
        self.push(
            self.time + doom.downtime,
            Due::Restart { node, incarnation },
        );
    }

    pub(super) fn on_restart_due(&mut self, node: u8, incarnation: u32) {
        if self.nodes[usize::from(node)].incarnation == incarnation {
            self.restart(node);
        }
    }

    fn restart(&mut self, node: u8) {
        if self.nodes[usize::from(node)].life == Life::Running {
            return;
        }
        if self.trace {
            super::trace::world(self.time, &format!("node {node} starts"));
        }
        let again = self.nodes[usize::from(node)].incarnation > 0;
        self.statistics.restarts += u64::from(again);
        self.start_node(node);
    }

    fn resume(&mut self, node: u8) {
        if std::mem::take(&mut self.nodes[usize::from(node)].paused) {
            self.wake_all(node);
        }
    }

    /// Ends all faults for good.
    pub(super) fn heal_all(&mut self) {
        self.heal_strain();
        for node in 0..self.shape.replicas {
            self.nodes[usize::from(node)].doom = None;
            self.resume(node);
            self.restart(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_a_minority_is_exposed() {
        let mut atlas = Atlas {
            exposed_max: 1,
            shards: 2,
            ..Atlas::default()
        };
        assert!(atlas.admit(0, 0));
        assert!(atlas.admit(0, 0));
        assert!(!atlas.admit(0, 1));
        atlas.on_trusted(5, 0, 0);
        assert!(!atlas.admit(5 + SETTLED, 1));
        atlas.on_trusted(6, 0, 1);
        assert!(!atlas.admit(6, 1));
        assert!(atlas.admit(6 + SETTLED, 1));
    }

    #[test]
    fn what_a_process_said_before_it_died_does_not_count() {
        let mut atlas = Atlas {
            exposed_max: 1,
            shards: 1,
            ..Atlas::default()
        };
        assert!(atlas.admit(0, 0));
        atlas.on_trusted(5, 0, 0);
        atlas.on_stop(6, 0);
        assert!(!atlas.admit(5 + SETTLED, 1));
    }

    #[test]
    fn persisted_topics_survive_anything() {
        let mut atlas = Atlas {
            anything_goes: true,
            ..Atlas::default()
        };
        assert!((0..5).all(|node| atlas.admit(0, node)));
    }
}
