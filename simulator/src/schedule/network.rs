//! Faults of the network: cuts, directions that stand still, connections that are reset.

use super::{Draw, Drawer, Fault, SECOND};
use crate::{
    disk::Crash,
    network::{Damage, Slowness},
    profile::Classes,
};

/// What the classes of a seed allow.
pub(super) fn kinds(classes: &Classes, kinds: &mut Vec<Draw>) {
    if classes.partitions {
        kinds.extend([
            Drawer::cut as Draw,
            Drawer::cut,
            Drawer::cut,
            Drawer::stall,
            Drawer::ring,
            Drawer::bridge,
            Drawer::swizzle,
        ]);
    }
    if classes.resets {
        kinds.extend([Drawer::resets as Draw, Drawer::forget]);
    }
    if classes.slow_links {
        kinds.extend([Drawer::slow_link as Draw, Drawer::lag, Drawer::spike]);
    }
    if classes.damaged_links {
        kinds.push(Drawer::damage);
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
            // Clients that do not reach a node, or any.
            _ => {
                let from_all = self.prng.chance(1, 4);
                let nodes = if from_all { replicas } else { node };
                self.cut_both(at, some_clients, nodes);
            }
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

    /// Each node sees its two neighbours on a ring, or hears only the one before it.
    fn ring(&mut self, at: u64) {
        let replicas = u64::from(self.shape.replicas);
        let one_way = self.prng.chance(1, 2);
        for node in 0..replicas {
            let next = 1u64 << ((node + 1) % replicas);
            let previous = 1u64 << ((node + replicas - 1) % replicas);
            let seen = if one_way { next } else { next | previous };
            let (from, to) = (1 << node, ((1 << replicas) - 1) & !seen);
            self.push(at, Fault::Cut { from, to });
        }
        let length = self.prng.between(SECOND, 25 * SECOND);
        self.push(at + length, Fault::Heal);
    }

    /// Two sides that do not see each other, and a node that sees both.
    fn bridge(&mut self, at: u64) {
        let replicas = (1u64 << self.shape.replicas) - 1;
        let bridge = 1 << self.node();
        let one = self.prng.next_u64() & replicas & !bridge;
        self.cut_both(at, one, replicas & !one & !bridge);
        let length = self.prng.between(SECOND, 25 * SECOND);
        self.push(at + length, Fault::Heal);
    }

    /// Ways stop one after another and come back in another order.
    fn swizzle(&mut self, at: u64) {
        let mut ways = Vec::new();
        for _ in 0..self.prng.between(2, 6) {
            ways.push((1 << self.node(), 1 << self.node()));
        }
        let mut time = at;
        for &(from, to) in &ways {
            self.push(time, Fault::Cut { from, to });
            time += self.prng.between(1, SECOND);
        }
        while !ways.is_empty() {
            time += self.prng.between(1, 2 * SECOND);
            let (from, to) = ways.swap_remove(self.prng.index(ways.len()));
            self.push(time, Fault::Mend { from, to });
        }
    }

    /// Some nodes to some others, mostly one to one, sometimes all that concerns one.
    fn way(&mut self) -> (u64, u64) {
        let replicas = (1u64 << self.shape.replicas) - 1;
        let (one, other) = (1 << self.node(), 1 << self.node());
        match self.prng.below(4) {
            0 => (one, replicas),
            1 => (replicas, one),
            _ => (one, other),
        }
    }

    fn slow(&mut self, at: u64, slowness: Slowness) {
        let (from, to) = self.way();
        self.push(at, Fault::Slow { from, to, slowness });
        let length = self.prng.between(SECOND, 40 * SECOND);
        self.push(at + length, Fault::Mend { from, to });
    }

    /// Little passes at a time, and more is sent than passes.
    fn slow_link(&mut self, at: u64) {
        let slowness = Slowness {
            bytes_per_second: 1000 << self.prng.below(6),
            ..Slowness::default()
        };
        self.slow(at, slowness);
    }

    /// What arrives is ever older, on a link that is never silent.
    fn lag(&mut self, at: u64) {
        let slowness = Slowness {
            lag_percent: self.prng.between(30, 300),
            ..Slowness::default()
        };
        self.slow(at, slowness);
    }

    fn spike(&mut self, at: u64) {
        let most = [20_000, 200_000, 2 * SECOND][self.prng.index(3)];
        let slowness = Slowness {
            delay: self.prng.between(1_000, most),
            ..Slowness::default()
        };
        self.slow(at, slowness);
    }

    fn damage(&mut self, mut at: u64) {
        for _ in 0..self.prng.between(1, 4) {
            let (from, to) = self.way();
            let damage = [Damage::Flip, Damage::Hole, Damage::Tail][self.prng.index(3)];
            let pick = self.prng.next_u64();
            self.push(
                at,
                Fault::Damage {
                    from,
                    to,
                    damage,
                    pick,
                },
            );
            at += self.prng.between(1, 5 * SECOND);
        }
    }

    fn forget(&mut self, mut at: u64) {
        for _ in 0..self.prng.between(1, 4) {
            let pick = self.prng.next_u64();
            self.push(at, Fault::Forget { pick });
            at += self.prng.between(1, 5 * SECOND);
        }
    }

    pub(super) fn cut_both(&mut self, at: u64, one: u64, other: u64) {
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
