//! Faults of disks: errors, no space, slowness, damage to what was written, disks that are lost.

use super::{Draw, Drawer, Fault, SECOND};
use crate::{
    disk::{Crash, Operation},
    profile::Classes,
};
use serde::{Deserialize, Serialize};

/// Something that happens to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DiskFault {
    /// The n-th such request from now on fails.
    Error { operation: Operation, nth: u64 },
    /// Files may grow by so many bytes in all; by any number if none.
    Space { free: Option<u64> },
    /// Requests take so many times as long.
    Slow { slowness: u64 },
    /// No request ends before so many microseconds have passed.
    Stuck { micros: u64 },
    /// The kernel forgets its clean pages.
    Evict,
    /// Something that is durable in a log is not what was written; `pick` says where.
    Damage { damage: DiskDamage, pick: u64 },
}

/// What a device holds instead of what was written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DiskDamage {
    /// Some bits of a sector are others.
    Rot,
    /// Some sectors cannot be read.
    Unreadable,
    /// A write that was followed by others has not happened.
    LostWrite,
    /// A write has happened in another place too, or only there.
    MisdirectedWrite,
    /// Some bits of one of the newest records of a log that others have not got, but for the
    /// last.
    Fresh,
}

const DAMAGES: [DiskDamage; 4] = [
    DiskDamage::Rot,
    DiskDamage::Unreadable,
    DiskDamage::LostWrite,
    DiskDamage::MisdirectedWrite,
];

/// What the classes of a seed allow.
pub(super) fn kinds(classes: &Classes, kinds: &mut Vec<Draw>) {
    if classes.disk_errors {
        kinds.extend([Drawer::disk_error as Draw, Drawer::forgotten_write]);
    }
    if classes.disk_full {
        kinds.push(Drawer::disk_full);
    }
    if classes.slow_disks {
        kinds.extend([Drawer::slow_disk as Draw, Drawer::stuck_disk]);
    }
    if classes.damage {
        kinds.extend([
            Drawer::damaged_disks as Draw,
            Drawer::damaged_disks,
            Drawer::damage_while_down,
        ]);
    }
    if classes.wipes {
        kinds.push(Drawer::wipe);
    }
}

/// What no cluster promises to survive.
pub(super) fn broken_kinds(classes: &Classes, kinds: &mut Vec<Draw>) {
    if classes.power_losses {
        kinds.push(Drawer::power_lost_everywhere);
    }
    if classes.wipes {
        kinds.push(Drawer::wipe_most);
    }
    if classes.damage {
        kinds.extend([Drawer::damage_everywhere as Draw, Drawer::damage_everywhere]);
    }
}

impl Drawer {
    fn power_lost_everywhere(&mut self, at: u64) {
        let nodes = (1 << self.shape.replicas) - 1;
        let crash = Crash::Power;
        self.push(at, Fault::Crash { nodes, crash });
        let downtime = self.downtime();
        self.push(at + downtime, Fault::Restart { nodes });
    }

    /// More disks are lost than a minority, one after the other or at once.
    fn wipe_most(&mut self, mut at: u64) {
        let first = self.node();
        let replicas = self.shape.replicas;
        for next in 0..=replicas / 2 {
            let node = (first + next) % replicas;
            self.push(at, Fault::Wipe { node });
            let downtime = self.downtime();
            self.push(at + downtime, Fault::Restart { nodes: 1 << node });
            at += self.prng.below(2 * SECOND);
        }
    }

    fn damage_everywhere(&mut self, at: u64) {
        let pick = self.prng.next_u64();
        self.push(at, Fault::DamageEverywhere { pick });
    }

    pub(super) fn disk(&mut self, at: u64, node: u8, fault: DiskFault) {
        self.push(at, Fault::Disk { node, fault });
    }

    fn disk_error(&mut self, at: u64) {
        let operations = [Operation::Read, Operation::Write, Operation::Sync];
        let operation = operations[self.prng.index(3)];
        let nth = 1 + self.prng.below(20);
        let node = self.node();
        self.disk(at, node, DiskFault::Error { operation, nth });
        if self.prng.chance(1, 3) {
            let later = at + self.prng.between(1, 2 * SECOND);
            self.disk(later, node, DiskFault::Evict);
        }
    }

    /// A sync fails, and the power with it before anybody can have noticed.
    fn forgotten_write(&mut self, mut at: u64) {
        let node = self.node();
        for _ in 0..self.prng.between(1, 3) {
            let (operation, nth) = (Operation::Sync, 1 + self.prng.below(3));
            self.disk(at, node, DiskFault::Error { operation, nth });
            at += self.prng.between(1, 100_000);
        }
        at += self.prng.between(1, 200_000);
        let (nodes, crash) = (1 << node, Crash::Power);
        self.push(at, Fault::Crash { nodes, crash });
        let downtime = self.downtime();
        self.push(at + downtime, Fault::Restart { nodes });
    }

    fn disk_full(&mut self, at: u64) {
        let node = self.node();
        let free = Some(self.prng.below(4) * self.prng.below(4096));
        self.disk(at, node, DiskFault::Space { free });
        let mut end = at + self.prng.between(SECOND / 10, 15 * SECOND);
        if self.prng.chance(1, 2) {
            // Some room, not enough for long.
            let free = Some(self.prng.below(4096));
            self.disk(end, node, DiskFault::Space { free });
            end += self.prng.between(SECOND / 10, 10 * SECOND);
        }
        self.disk(end, node, DiskFault::Space { free: None });
    }

    fn slow_disk(&mut self, at: u64) {
        let node = self.node();
        let slowness = [10, 100, 100][self.prng.index(3)];
        self.disk(at, node, DiskFault::Slow { slowness });
        let end = at + self.prng.between(SECOND / 2, 20 * SECOND);
        self.disk(end, node, DiskFault::Slow { slowness: 1 });
    }

    fn stuck_disk(&mut self, at: u64) {
        let micros = self.prng.between(SECOND / 10, 15 * SECOND);
        let node = self.node();
        self.disk(at, node, DiskFault::Stuck { micros });
    }

    fn one_damage(&mut self, at: u64, node: u8) {
        let (damage, pick) = (DAMAGES[self.prng.index(4)], self.prng.next_u64());
        self.disk(at, node, DiskFault::Damage { damage, pick });
    }

    fn damaged_disks(&mut self, mut at: u64) {
        for _ in 0..self.prng.between(1, 4) {
            let node = self.node();
            self.one_damage(at, node);
            at += self.prng.between(1, 3 * SECOND);
        }
    }

    /// The node finds it when it starts.
    fn damage_while_down(&mut self, at: u64) {
        let node = self.node();
        let nodes = 1 << node;
        let crash = [Crash::Process, Crash::Power][self.prng.index(2)];
        self.push(at, Fault::Crash { nodes, crash });
        for _ in 0..self.prng.between(1, 3) {
            self.one_damage(at + 1, node);
        }
        let downtime = self.downtime();
        self.push(at + 1 + downtime, Fault::Restart { nodes });
    }

    fn wipe(&mut self, at: u64) {
        let node = self.node();
        if self.prng.chance(1, 3) {
            let pick = self.prng.next_u64();
            self.push(at, Fault::WipeDirectory { node, pick });
        } else {
            self.push(at, Fault::Wipe { node });
        }
        let downtime = self.downtime();
        self.push(at + downtime, Fault::Restart { nodes: 1 << node });
    }
}
