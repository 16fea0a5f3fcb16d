//! Faults of the network: cuts, directions that stand still, connections that are reset.

use super::{Draw, Drawer, Fault, SECOND};
use crate::{disk::Crash, profile::Classes};

/// What the classes of a seed allow.
pub(super) fn kinds(classes: &Classes, kinds: &mut Vec<Draw>) {
    if classes.partitions {
        kinds.extend([Drawer::cut as Draw, Drawer::cut, Drawer::stall]);
    }
    if classes.resets {
        kinds.push(Drawer::resets);
    }
}

impl Drawer {
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

    fn resets(&mut self, mut at: u64) {
        for _ in 0..self.prng.between(1, 6) {
            let pick = self.prng.next_u64();
            self.push(at, Fault::Reset { pick });
            at += self.prng.between(1, 2 * SECOND);
        }
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
