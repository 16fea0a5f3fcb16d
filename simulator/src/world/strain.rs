//! Faults of the network, of clocks and of clients as they happen.

use super::{World, nodes::Life};
use crate::schedule::{Fault, Identity};

/// All hosts, both ways.
const EVERYWHERE: (u64, u64) = (u64::MAX, u64::MAX);

impl World {
    /// What does not concern a disk or the life of a node.
    pub(super) fn on_strain(&mut self, fault: Fault) {
        match fault {
            Fault::Cut { from, to } => {
                self.statistics.cuts += 1;
                self.network.cut(from, to);
            }
            Fault::Heal => {
                self.with_network(|network, now, out| network.heal(now, EVERYWHERE, out));
            }
            Fault::Mend { from, to } => {
                self.with_network(|network, now, out| network.heal(now, (from, to), out));
            }
            Fault::Reset { pick } => {
                self.with_network(|network, now, out| network.reset_one(now, pick, out));
            }
            Fault::Forget { pick } => {
                self.with_network(|network, now, out| network.forget_one(now, pick, out));
            }
            Fault::Slow { from, to, slowness } => {
                self.network.slow_down(self.time, (from, to), slowness);
            }
            Fault::Damage {
                from,
                to,
                damage,
                pick,
            } => self.network.damage((from, to), damage, pick),
            Fault::StepClock { node, micros } => self.step_clock(node, micros),
            Fault::SlowProcessor { node, factor } => {
                self.nodes[usize::from(node)].slowness = factor;
            }
            Fault::ClientCrash { clients, machine } => {
                for client in self.clients_of(clients) {
                    self.crash_client(client, machine);
                }
            }
            Fault::ClientReturn { clients, identity } => {
                for client in self.clients_of(clients) {
                    self.return_client(client, identity);
                }
            }
            Fault::Burst { clients, calls } => {
                for client in self.clients_of(clients) {
                    self.burst(client, calls);
                }
            }
            other => unreachable!("{other:?} is no fault of the network, a clock or a client"),
        }
    }

    fn clients_of(&self, mask: u64) -> Vec<u8> {
        (0..self.shape.clients)
            .filter(|client| mask >> client & 1 == 1)
            .collect()
    }

    fn step_clock(&mut self, node: u8, micros: i64) {
        let it = &mut self.nodes[usize::from(node)];
        let running = it.life == Life::Running;
        base::sometimes!(
            running && micros > 3_000_000,
            "fault: a clock steps far forward"
        );
        base::sometimes!(
            running && micros < -3_000_000,
            "fault: a clock steps far back"
        );
        it.clock.step(micros);
    }

    /// Ends what is wrong with the network, the clocks and the clients.
    pub(super) fn heal_strain(&mut self) {
        self.with_network(|network, now, out| network.heal(now, EVERYWHERE, out));
        for node in &mut self.nodes {
            node.slowness = 1;
        }
        let limits = &self.shape.limits;
        let room = limits.connections_max.min(limits.clients_max);
        for client in 0..self.shape.clients {
            if usize::from(client) < room {
                self.return_client(client, Identity::Same);
            } else {
                // More than a node has room for, or than there are sessions for: whoever is left
                // out would wait for ever, or take the others' sessions without end.
                self.crash_client(client, false);
            }
        }
    }
}
