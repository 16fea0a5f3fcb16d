//! Before everything heals, a random core may have to do without the rest: as many nodes as a
//! view change needs, fully connected and trusting their logs. It must answer every client.

use base::{Domain, Prng};

use super::{Phase, World, nodes::Life};
use crate::{
    check::recoverable::{self, Must, Node},
    disk::Crash,
};

impl World {
    /// What the cluster must be able to do as it is now.
    pub(super) fn must(&self) -> Must {
        let nodes: Vec<Node> = (0..self.shape.replicas)
            .map(|node| self.recoverable(node))
            .collect();
        recoverable::must(&nodes)
    }

    fn recoverable(&self, node: u8) -> Node {
        let it = &self.nodes[usize::from(node)];
        Node {
            runs: it.life == Life::Running && !it.paused,
            heard_by: self.network.heard_by(u16::from(node)),
            in_doubt: self.atlas.is_at_fault(node),
            damaged: self.is_wounded(node),
            full: it.disk.is_limited(),
        }
    }

    /// The nodes that are to be the core at first; none if all heal at once.
    pub(super) fn draw_core(&self) -> Option<Vec<u8>> {
        let mut prng = Prng::new(self.shape.seed, Domain::Process, 2);
        if self.shape.broken || self.shape.replicas < 3 || !prng.chance(1, 2) {
            return None;
        }
        let mut able: Vec<u8> = (0..self.shape.replicas)
            .filter(|&node| !self.atlas.is_at_fault(node) && !self.is_wounded(node))
            .collect();
        let quorum = recoverable::view_change_quorum(usize::from(self.shape.replicas));
        while able.len() > quorum {
            able.swap_remove(prng.index(able.len()));
        }
        (able.len() == quorum).then_some(able)
    }

    /// All faults end but one: who is not of the core is down.
    pub(super) fn heal_core(&mut self, core: &[u8]) {
        if self.trace {
            super::trace::world(self.time, &format!("the core is {core:?}"));
        }
        self.heal_nodes(core);
        for node in 0..self.shape.replicas {
            if !core.contains(&node) && self.nodes[usize::from(node)].life == Life::Running {
                self.crash(node, Crash::Process);
            }
        }
        base::sometimes!("world: a core serves while the rest is down");
        assert_eq!(
            self.must(),
            Must::Write,
            "a core is drawn so that it must serve"
        );
        self.enter(Phase::Core);
    }
}
