//! The clean stop at the end of a run: every node is asked to stop, leaves nothing behind, and
//! comes up again from its disk with everything.
//!
//! In half of the runs the power goes while all nodes are down. A clean stop has synced
//! everything, so not even a `replicated` topic may lose anything.

use base::{Domain, Prng};
use platform::Event;

use super::{World, nodes::Life};
use crate::{
    check::leaks::{self, Left},
    disk::Crash,
};

impl World {
    /// Asks every node to stop.
    pub(super) fn stop_all(&mut self) {
        if self.trace {
            super::trace::world(self.time, "all nodes are asked to stop");
        }
        for node in 0..self.shape.replicas {
            for shard in 0..self.shape.shards {
                self.tell(node, shard, Event::Stop, 1_000);
            }
        }
    }

    /// A shard says that it has stopped.
    pub(super) fn on_shard_stopped(&mut self, node: u8, shard: u16) {
        let it = &mut self.nodes[usize::from(node)];
        it.shards[usize::from(shard)].stopped = true;
    }

    /// Why the nodes have not stopped, or what they have left behind.
    pub(super) fn not_stopped(&self) -> Option<String> {
        (0..self.shape.replicas).find_map(|node| {
            let it = &self.nodes[usize::from(node)];
            if let Some(shard) = it.shards.iter().position(|shard| !shard.stopped) {
                return Some(format!("shard {shard} of node {node} does not stop"));
            }
            let left = Left {
                requests: it.disk.requests(),
                connections: self.network.connections_of(u16::from(node)),
                timers: it
                    .shards
                    .iter()
                    .filter(|shard| shard.shard.deadline().is_some())
                    .count(),
                files: it.disk.open_files(),
            };
            let leaked = leaks::leaked(&left)?;
            Some(format!("node {node} has stopped and {leaked}"))
        })
    }

    /// The processes end; perhaps the power does. Then all start again.
    pub(super) fn start_all(&mut self) {
        let mut prng = Prng::new(self.shape.seed, Domain::Process, 1);
        let power = prng.chance(1, 2);
        for node in 0..self.shape.replicas {
            let crash = if power { Crash::Power } else { Crash::Process };
            self.end_node(node, crash);
            assert!(self.nodes[usize::from(node)].life != Life::Running);
        }
        if power {
            base::sometimes!("fault: the power goes after a clean stop");
        } else {
            base::sometimes!("fault: a clean stop and a start");
        }
        if self.trace {
            super::trace::world(self.time, &format!("all start again; power lost: {power}"));
        }
        for node in 0..self.shape.replicas {
            self.start_node(node);
        }
    }
}
