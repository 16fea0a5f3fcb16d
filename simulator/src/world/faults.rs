//! Faults as they happen, as hard as the atlas allows.

use super::{
    Due, Phase, World,
    nodes::{Doom, Life},
};
use crate::{
    disk::{Crash, Operation},
    profile::Durability,
    schedule::{DiskFault, Fault},
};

impl World {
    pub(super) fn on_fault_due(&mut self, index: u32) {
        if self.phase != Phase::Faults {
            return;
        }
        self.disturbed_at = self.time;
        let (_, fault) = self.schedule.faults[index as usize];
        self.digest.add(self.time ^ u64::from(index) << 48);
        if self.trace {
            super::trace::world(self.time, &format!("{fault:?}"));
        }
        self.inflict(fault);
    }

    /// It happens now.
    pub(super) fn inflict(&mut self, fault: Fault) {
        match fault {
            Fault::Crash { nodes, crash } => {
                for node in self.nodes_of(nodes) {
                    self.crash(node, crash);
                }
            }
            Fault::CrashAtDisk {
                node,
                point,
                nth,
                crash,
                downtime,
            } => {
                // A node that is down dies while it recovers.
                let it = &mut self.nodes[usize::from(node)];
                let at = it.disk.passed(point) + nth;
                it.doom = Some(Doom {
                    point,
                    at,
                    crash,
                    downtime,
                });
            }
            Fault::Wipe { node } => self.wipe(node),
            Fault::WipeDirectory { node, pick } => self.wipe_directory(node, pick),
            Fault::DamageEverywhere { pick } => self.damage_everywhere(pick),
            Fault::Disk { node, fault } => self.on_disk_fault(node, fault),
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
    pub(super) fn crash(&mut self, node: u8, crash: Crash) {
        if self.nodes[usize::from(node)].life != Life::Running {
            return;
        }
        let crash = match crash {
            Crash::Power if !self.atlas.admit_power_loss(self.time, node) => Crash::Process,
            crash => crash,
        };
        if self.trace {
            super::trace::world(self.time, &format!("node {node} dies: {crash:?}"));
        }
        self.atlas.on_stop(self.time, node);
        self.stop_node(node, crash);
    }

    /// A machine loses its disk, if no other is needed for what it alone would hold.
    fn wipe(&mut self, node: u8) {
        let others_damaged = self.is_damaged_beside(node);
        if !self.atlas.admit_wipe(self.time, node, others_damaged) {
            self.crash(node, Crash::Process);
            return;
        }
        base::sometimes!("fault: a disk was lost");
        if self.trace {
            super::trace::world(self.time, &format!("node {node} loses its disk"));
        }
        self.statistics.wipes += 1;
        self.atlas.on_stop(self.time, node);
        self.stop_node(node, Crash::Power);
        self.nodes[usize::from(node)].disk.wipe();
        self.forget_damage(node);
        self.note_blank(node);
        self.checkers.views.on_wiped(node);
    }

    /// A machine loses what one of its shards knows of views, or one log with its checkpoints.
    fn wipe_directory(&mut self, node: u8, pick: u64) {
        let directories = self.nodes[usize::from(node)].disk.directories();
        let others_damaged = self.is_damaged_beside(node) || self.is_wounded(node);
        if directories.is_empty() || !self.atlas.admit_wipe(self.time, node, others_damaged) {
            self.crash(node, Crash::Process);
            return;
        }
        self.statistics.wipes += 1;
        self.atlas.on_stop(self.time, node);
        self.stop_node(node, Crash::Power);
        let count = directories.len() as u64;
        let index = usize::try_from(pick % count).expect("few directories");
        let directory = &directories[index];
        if self.trace {
            super::trace::world(self.time, &format!("node {node} loses {directory}"));
        }
        self.nodes[usize::from(node)].disk.wipe_below(directory);
        if directory.starts_with("shard-") {
            base::sometimes!("fault: the views of a shard were lost");
            self.note_blank(node);
            self.checkers.views.on_wiped(node);
        } else {
            base::sometimes!("fault: a log was lost with all its checkpoints");
        }
    }

    fn on_disk_fault(&mut self, node: u8, fault: DiskFault) {
        let time = self.time;
        let it = &mut self.nodes[usize::from(node)];
        match fault {
            // A failed sync may take what `replicated` topics have acknowledged with it.
            DiskFault::Error {
                operation: Operation::Sync,
                nth,
            } if self.shape.durability != Durability::AllPersisted => {
                it.disk.fail(Operation::Write, nth);
            }
            DiskFault::Error { operation, nth } => it.disk.fail(operation, nth),
            DiskFault::Space { free } => it.disk.limit_space(free),
            DiskFault::Slow { slowness } => {
                base::sometimes!(slowness > 1, "fault: a disk was slow");
                it.disk.slow_down(slowness);
            }
            DiskFault::Stuck { micros } => {
                base::sometimes!("fault: a disk was stuck");
                it.stuck_until = it.stuck_until.max(time + micros);
            }
            DiskFault::Evict => it.disk.drop_caches(),
            DiskFault::Damage { damage, pick } => self.damage(node, damage, pick),
        }
    }

    /// A process that stopped because its disk failed it is started again; true if it has.
    pub(super) fn forgive_halt(&mut self, node: u8) -> bool {
        if !self.nodes[usize::from(node)].disk.has_failed() {
            return false;
        }
        base::sometimes!("fault: a process stopped because its disk failed");
        let downtime = self.delays.between(100_000, 5_000_000);
        self.crash(node, Crash::Process);
        let incarnation = self.nodes[usize::from(node)].incarnation;
        self.push(self.time + downtime, Due::Restart { node, incarnation });
        true
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
        let is_down = matches!(self.phase, Phase::Core | Phase::CoreCalls);
        if self.nodes[usize::from(node)].incarnation == incarnation && !is_down {
            self.tell_start(node);
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
        let nodes: Vec<u8> = (0..self.shape.replicas).collect();
        self.heal_nodes(&nodes);
    }

    /// Ends all faults of these nodes, and those between any.
    pub(super) fn heal_nodes(&mut self, nodes: &[u8]) {
        self.disturbed_at = self.time;
        self.heal_strain();
        for &node in nodes {
            let it = &mut self.nodes[usize::from(node)];
            it.doom = None;
            it.stuck_until = 0;
            it.disk.heal();
            // What a slow disk would have kept for minutes comes now.
            let (incarnation, slots) = (it.incarnation, it.disk.slots_in_flight());
            for slot in slots {
                let slot = u32::try_from(slot).expect("few requests in flight");
                let at = self.time + self.delays.below(500_000);
                let due = Due::Disk {
                    node,
                    incarnation,
                    slot,
                };
                self.push(at, due);
            }
            self.resume(node);
            self.restart(node);
        }
    }
}
