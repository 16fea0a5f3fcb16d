//! Faults of processes and machines: crashes, at a time or at a disk request, power losses, pauses.

use super::{Draw, Drawer, Fault, SECOND};
use crate::{
    disk::{Crash, Point},
    profile::Classes,
};

/// What the classes of a seed allow.
pub(super) fn kinds(classes: &Classes, kinds: &mut Vec<Draw>) {
    if classes.crashes {
        kinds.extend([
            Drawer::crash as Draw,
            Drawer::crash_at_disk,
            Drawer::crash_loop,
        ]);
    }
    if classes.power_losses {
        kinds.extend([Drawer::power_loss as Draw, Drawer::power_at_disk]);
    }
    if classes.pauses {
        kinds.push(Drawer::pause);
    }
}

impl Drawer {
    fn crash_at_disk(&mut self, at: u64) {
        self.at_disk(at, Crash::Process);
    }

    fn power_at_disk(&mut self, at: u64) {
        self.at_disk(at, Crash::Power);
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
        let node = self.node();
        let (point, within) = match self.prng.below(4) {
            0 => (Point::Complete, 40),
            1 => (Point::Sync, 12),
            2 if self.prng.chance(1, 2) => (Point::Rename, 2),
            _ => (Point::Submit, 40),
        };
        let nth = 1 + self.prng.below(within);
        let downtime = self.downtime();
        self.push(
            at,
            Fault::CrashAtDisk {
                node,
                point,
                nth,
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
        let longest = [2 * SECOND, 20 * SECOND, 60 * SECOND][self.prng.index(3)];
        let length = self.prng.between(100_000, longest);
        self.push(at, Fault::Pause { node });
        self.push(at + length, Fault::Resume { node });
    }
}
