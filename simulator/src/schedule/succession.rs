//! Faults that aim at the moment when one primary follows another: what the old one has told and
//! what the new one has not heard yet.

use super::{DiskDamage, DiskFault, Draw, Drawer, Fault, SECOND};
use crate::{
    disk::{Crash, Point},
    profile::Classes,
};

/// What the classes of a seed allow.
pub(super) fn kinds(classes: &Classes, kinds: &mut Vec<Draw>) {
    if classes.successions {
        kinds.extend([
            Drawer::rotation as Draw,
            Drawer::rotation,
            Drawer::inheritance,
            Drawer::coronation,
        ]);
        if classes.damage {
            kinds.extend([
                Drawer::damaged_heir as Draw,
                Drawer::damaged_heir,
                Drawer::damaged_orphan,
            ]);
        }
    }
}

impl Drawer {
    fn suspect(&self) -> u64 {
        u64::try_from(self.shape.timing.suspect.as_micros()).expect("seconds")
    }

    /// The mask of so many nodes in a row, round the end.
    fn row(&self, from: u8, count: u8) -> u64 {
        let node = |step: u8| (from + step) % self.shape.replicas;
        (0..count).fold(0, |mask, step| mask | 1 << node(step))
    }

    /// One node after the other is cut off, the next at once when the last comes back: whoever is
    /// primary is left behind with what only it has, and returns to a view that has moved on.
    fn rotation(&mut self, mut at: u64) {
        let replicas = u64::from(self.shape.replicas);
        let all = (1u64 << replicas) - 1;
        let clients = ((1u64 << self.shape.clients) - 1) << replicas;
        let first = self.prng.below(replicas);
        let turns = self.prng.between(2, 2 * replicas);
        for turn in 0..turns {
            let node = 1 << ((first + turn) % replicas);
            let mut rest = all & !node;
            if replicas > 3 && self.prng.chance(1, 3) {
                // Another one goes with it.
                let other = 1 << self.node();
                rest &= !other;
            }
            // Some clients stay with the one that is alone and go on asking it.
            let others = rest | (clients & self.prng.next_u64());
            self.cut_both(at, all & !rest, others);
            at += self.suspect() + self.prng.between(300_000, 3 * SECOND);
            self.push(at, Fault::Heal);
            if self.prng.chance(1, 3) {
                at += self.prng.between(1_000, 2 * SECOND);
            }
        }
    }

    /// Some lag behind, one dies with its newest writes in flight, and the rest dies for longer:
    /// those that lag and the one that died must still know all that was acknowledged.
    fn inheritance(&mut self, at: u64) {
        let replicas = self.shape.replicas;
        let minority = (replicas - 1) / 2;
        let all = (1u64 << replicas) - 1;
        let first = self.node();
        let behind = self.row(first, minority);
        let dead = self.row(first + minority + 1, minority);
        let heir = (first + minority) % replicas;
        self.cut_both(at, behind, all & !behind);
        let crash = if self.prng.chance(1, 2) {
            Crash::Process
        } else {
            Crash::Power
        };
        let armed = at + self.prng.between(50_000, SECOND);
        let point = [Point::Submit, Point::Complete, Point::Sync][self.prng.index(3)];
        let nth = 1 + self.prng.below(4);
        let downtime = self.prng.between(1, 300_000);
        self.push(
            armed,
            Fault::CrashAtDisk {
                node: heir,
                point,
                nth,
                crash,
                downtime,
            },
        );
        let died = armed + self.prng.between(10_000, SECOND);
        let crash = Crash::Process;
        self.push(died, Fault::Crash { nodes: dead, crash });
        let healed = died + self.prng.between(1, 500_000);
        self.push(healed, Fault::Heal);
        let back = died + self.suspect() + self.prng.between(SECOND, 10 * SECOND);
        self.push(back, Fault::Restart { nodes: dead });
    }

    /// A node dies, and others at the disk requests of the view change that follows.
    fn coronation(&mut self, at: u64) {
        let old = self.node();
        let crash = Crash::Process;
        self.push(
            at,
            Fault::Crash {
                nodes: 1 << old,
                crash,
            },
        );
        let elected = at + self.suspect();
        for _ in 0..self.prng.between(1, 3) {
            let node = self.node();
            let armed = elected + self.prng.below(SECOND);
            let point = [Point::Submit, Point::Complete, Point::Sync][self.prng.index(3)];
            let nth = 1 + self.prng.below(5);
            let crash = if self.prng.chance(1, 2) {
                Crash::Process
            } else {
                Crash::Power
            };
            let downtime = self.prng.between(1, 3 * SECOND);
            self.push(
                armed,
                Fault::CrashAtDisk {
                    node,
                    point,
                    nth,
                    crash,
                    downtime,
                },
            );
        }
        let back = elected + self.prng.below(6 * SECOND);
        self.push(back, Fault::Restart { nodes: 1 << old });
    }

    /// Damage to what `node`, which is down, has got and others have not.
    fn damage_fresh(&mut self, at: u64, node: u8) {
        for _ in 0..self.prng.between(1, 3) {
            let (damage, pick) = (DiskDamage::Fresh, self.prng.next_u64());
            self.disk(at, node, DiskFault::Damage { damage, pick });
        }
    }

    /// Some lag behind; of those that have got all, one dies and finds its newest records damaged,
    /// and the rest are down while it is elected with those that lag: nobody there may decide
    /// about what only the others still have.
    fn damaged_heir(&mut self, at: u64) {
        let replicas = self.shape.replicas;
        let minority = (replicas - 1) / 2;
        let all = (1u64 << replicas) - 1;
        let first = self.node();
        let behind = self.row(first, minority);
        let heir = (first + minority) % replicas;
        self.cut_both(at, behind, all & !behind);
        let died = at + self.prng.between(SECOND / 5, 3 * SECOND / 2);
        let crash = Crash::Process;
        let others = all & !behind;
        self.push(
            died,
            Fault::Crash {
                nodes: others,
                crash,
            },
        );
        self.damage_fresh(died + 1, heir);
        self.push(died + 2, Fault::Heal);
        let back = died + self.prng.between(3, 300_000);
        self.push(back, Fault::Restart { nodes: 1 << heir });
        let later = back + 2 * self.suspect() + self.prng.between(SECOND, 8 * SECOND);
        self.push(later, Fault::Restart { nodes: others });
    }

    /// One goes on alone for a moment, dies, and finds damaged what only it ever had: the others
    /// must be able to say that nobody was ever told of it.
    fn damaged_orphan(&mut self, at: u64) {
        let all = (1u64 << self.shape.replicas) - 1;
        let orphan = self.node();
        self.cut_both(at, 1 << orphan, all & !(1 << orphan));
        let died = at + self.prng.between(self.suspect() / 4, self.suspect());
        let crash = Crash::Process;
        self.push(died, Fault::Crash { nodes: all, crash });
        self.damage_fresh(died + 1, orphan);
        self.push(died + 2, Fault::Heal);
        let back = died + self.prng.between(3, 300_000);
        self.push(back, Fault::Restart { nodes: all });
    }
}
