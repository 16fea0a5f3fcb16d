//! Faults as they happen, and the atlas that keeps them survivable.

use std::collections::BTreeMap;

use base::{GroupId, Op};

use super::{
    Due, Phase, World,
    nodes::{Doom, Life},
};
use crate::{
    disk::Crash,
    profile::{Durability, Shape},
    schedule::Fault,
};

/// Which nodes may have lost what `replicated` topics had acknowledged, and how many may at once.
///
/// A node is exposed from its power loss until it has, for every group, caught up with all that
/// was committed when it came back. With fewer than a quorum exposed nothing acknowledged is
/// lost; beyond that the design promises nothing, so the atlas makes such a power loss a process
/// crash.
#[derive(Debug, Default)]
pub(super) struct Atlas {
    exposed_max: u8,
    anything_goes: bool,
    /// What an exposed node must have committed again; none until it has come back.
    exposed: BTreeMap<u8, BTreeMap<GroupId, Op>>,
}

impl Atlas {
    pub(super) fn new(shape: &Shape) -> Self {
        Self {
            exposed_max: shape.exposed_max(),
            anything_goes: shape.durability == Durability::AllPersisted,
            exposed: BTreeMap::new(),
        }
    }

    /// May `node` lose power now? If so, it is exposed from now on.
    fn admit(&mut self, node: u8, heads: &BTreeMap<GroupId, Op>) -> bool {
        if self.anything_goes {
            return true;
        }
        let others = self
            .exposed
            .keys()
            .filter(|exposed| **exposed != node)
            .count();
        if others + 1 > usize::from(self.exposed_max) {
            return false;
        }
        self.exposed.insert(node, heads.clone());
        true
    }

    /// `node` has started again.
    fn on_restart(&mut self, node: u8, heads: &BTreeMap<GroupId, Op>) {
        if let Some(needed) = self.exposed.get_mut(&node) {
            needed.clone_from(heads);
        }
    }

    /// Forgets exposed nodes that have everything again, as `has` tells.
    fn refresh(&mut self, has: impl Fn(u8, GroupId, Op) -> bool) {
        self.exposed
            .retain(|node, needed| !needed.iter().all(|(group, op)| has(*node, *group, *op)));
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
                    let at_request = it.disk.submitted() + requests;
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
            Fault::Cut { from, to } => {
                self.statistics.cuts += 1;
                self.network.cut(from, to);
            }
            Fault::Heal => self.with_network(|network, now, out| network.heal(now, out)),
            Fault::Reset { pick } => {
                self.with_network(|network, now, out| network.reset_one(now, pick, out));
            }
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
            Crash::Power if !self.may_lose_power(node) => Crash::Process,
            crash => crash,
        };
        if self.trace {
            super::trace::world(self.time, &format!("node {node} dies: {crash:?}"));
        }
        self.stop_node(node, crash);
    }

    fn may_lose_power(&mut self, node: u8) -> bool {
        let committed = &self.checkers.committed;
        let standings = &self.standings;
        self.atlas.refresh(|node, group, op| {
            let normal = standings
                .get(&(node, group))
                .is_some_and(|standing| standing.normal);
            let gone = !standings.contains_key(&(node, group)) && op.0 == 0;
            gone || normal && committed.position(node, group) >= op
        });
        let heads = self.heads();
        self.atlas.admit(node, &heads)
    }

    pub(super) fn heads(&self) -> BTreeMap<GroupId, Op> {
        let groups = &self.checkers.committed.groups;
        groups
            .iter()
            .map(|(group, history)| (*group, Op(history.len() as u64)))
            .collect()
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
        self.statistics.restarts += 1;
        let heads = self.heads();
        self.atlas.on_restart(node, &heads);
        self.start_node(node);
    }

    fn resume(&mut self, node: u8) {
        if std::mem::take(&mut self.nodes[usize::from(node)].paused) {
            self.wake_all(node);
        }
    }

    /// Ends all faults for good.
    pub(super) fn heal_all(&mut self) {
        self.with_network(|network, now, out| network.heal(now, out));
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

    fn heads(op: u64) -> BTreeMap<GroupId, Op> {
        BTreeMap::from([(GroupId::METADATA, Op(op))])
    }

    #[test]
    fn no_more_than_a_minority_is_exposed() {
        let mut atlas = Atlas {
            exposed_max: 1,
            ..Atlas::default()
        };
        assert!(atlas.admit(0, &heads(3)));
        assert!(atlas.admit(0, &heads(3)));
        assert!(!atlas.admit(1, &heads(3)));
        atlas.on_restart(0, &heads(5));
        atlas.refresh(|_, _, op| op <= Op(4));
        assert!(!atlas.admit(1, &heads(5)));
        atlas.refresh(|_, _, op| op <= Op(5));
        assert!(atlas.admit(1, &heads(5)));
    }

    #[test]
    fn persisted_topics_survive_anything() {
        let mut atlas = Atlas {
            anything_goes: true,
            ..Atlas::default()
        };
        assert!((0..5).all(|node| atlas.admit(node, &heads(1))));
    }
}
