//! The end of a run: heal, converge, serve, converge again, and look at everything once more.

use std::collections::BTreeMap;

use base::{GroupId, Op};

use super::{Due, Phase, World, clients::SimulatedClient};
use crate::{
    check::{bytes, committed::check_origin, linear, liveness},
    segments::directory,
    workload::FinalCall,
};

/// Within so much virtual time each step of the end must be done.
const LIVENESS_BOUND: u64 = 90_000_000;
const INSPECT_EVERY: u64 = 1_000_000;
/// A replica may know that an op is committed before its own write of it has completed.
const QUIET: u64 = 5_000_000;

impl World {
    pub(super) fn on_calm(&mut self) {
        if self.trace {
            super::trace::world(self.time, "all faults end");
        }
        self.points_at_calm = self.nodes.iter().map(|node| node.disk.points()).collect();
        match self.draw_core() {
            Some(core) => self.heal_core(&core),
            None => self.heal_rest(),
        }
        self.push(self.time + INSPECT_EVERY, Due::Inspect);
    }

    fn heal_rest(&mut self) {
        self.heal_all();
        self.enter(Phase::Healing);
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.phase_started = self.time;
    }

    pub(super) fn on_inspect(&mut self) {
        let missing = match self.phase {
            Phase::Faults | Phase::Done => None,
            Phase::Healing => self.clients_wait().or_else(|| self.groups_diverge()),
            Phase::Core | Phase::CoreCalls | Phase::LastCalls => self.clients_wait(),
            Phase::Settling => self
                .groups_diverge()
                .or_else(|| self.damage_left())
                .or_else(|| self.memberships_unfinished()),
            Phase::Quiet if self.time - self.phase_started < QUIET => return self.inspect_later(),
            Phase::Quiet => self.groups_diverge().or_else(|| self.disks_work()),
            Phase::Stopping => self.not_stopped(),
            Phase::Risen => self.groups_diverge().or_else(|| self.disks_work()),
        };
        let overdue = self.time - self.phase_started > self.liveness_bound();
        if self.phase != Phase::Faults && self.end_excused(missing.is_none(), overdue) {
            return;
        }
        if let Some(missing) = missing {
            if overdue {
                let (phase, must) = (self.phase, self.must());
                let message = format!("{phase:?} does not end ({must:?} is due): {missing}");
                self.fail("liveness", message);
                return;
            }
        } else {
            self.next_phase();
        }
        self.inspect_later();
    }

    fn liveness_bound(&self) -> u64 {
        match self.phase {
            // The scrubbers must have been everywhere, and repair what they found.
            Phase::Settling => LIVENESS_BOUND + 2 * self.scrub_round(),
            _ => LIVENESS_BOUND,
        }
    }

    fn inspect_later(&mut self) {
        self.push(self.time + INSPECT_EVERY, Due::Inspect);
    }

    fn next_phase(&mut self) {
        match self.phase {
            Phase::Healing => {
                self.last_calls = self.workload.final_calls();
                for call in &self.last_calls {
                    if let FinalCall::Send(target) = call {
                        self.must_hold.push(*target);
                    }
                }
                self.enter(Phase::LastCalls);
                for client in 0..self.shape.clients {
                    self.next_last_call(client);
                }
            }
            Phase::Core => {
                self.last_calls = self.workload.final_calls();
                self.enter(Phase::CoreCalls);
                for client in 0..self.shape.clients {
                    self.next_last_call(client);
                }
            }
            Phase::CoreCalls if self.last_calls.is_empty() => self.heal_rest(),
            Phase::LastCalls if self.last_calls.is_empty() => self.enter(Phase::Settling),
            Phase::Settling => self.enter(Phase::Quiet),
            Phase::Quiet => {
                self.final_checks();
                self.check_histories();
                self.stop_all();
                self.enter(Phase::Stopping);
            }
            Phase::Stopping => {
                self.start_all();
                self.enter(Phase::Risen);
            }
            Phase::Risen => {
                self.final_checks();
                self.enter(Phase::Done);
            }
            Phase::CoreCalls | Phase::LastCalls | Phase::Faults | Phase::Done => {}
        }
    }

    /// What some client still waits for.
    fn clients_wait(&self) -> Option<String> {
        let waiting = (0..usize::from(self.shape.clients)).find_map(|client| {
            let call = self.workload.pending(client)?;
            Some(format!("client {client} waits for {call:?}"))
        });
        waiting.or_else(|| {
            let stopped = self.clients.iter().find_map(SimulatedClient::stopped);
            stopped.map(|reason| format!("a client has stopped: {reason}"))
        })
    }

    /// Which disk has not done yet what it was asked for.
    fn disks_work(&self) -> Option<String> {
        let mut nodes = self.nodes.iter();
        let busy = nodes.position(|node| node.disk.is_changing())?;
        Some(format!("the disk of node {busy} is busy"))
    }

    fn groups_diverge(&self) -> Option<String> {
        let heads = self.required_heads();
        liveness::not_converged(self.shape.replicas, &heads, &self.standings_now())
    }

    fn memberships_unfinished(&self) -> Option<String> {
        let is_there =
            |id| (0..usize::from(self.shape.clients)).any(|it| self.workload.id(it) == id);
        self.checkers.groups.unfinished(is_there)
    }

    /// The groups that must stand everywhere: the metadata's and, after the last calls, those of
    /// every partition that clients could write to.
    fn required_heads(&self) -> BTreeMap<GroupId, Op> {
        let committed = &self.checkers.committed;
        let partitions = self
            .must_hold
            .iter()
            .filter_map(|target| self.checkers.linear.newest_group_of(*target));
        let groups = std::iter::once(GroupId::METADATA).chain(partitions);
        groups.map(|group| (group, committed.head(group))).collect()
    }

    /// What holds whatever was lost: every op was asked for, in an order that could be, and what
    /// was acknowledged before its group spoke of a loss is in the history.
    pub(super) fn check_unexcused(&mut self) {
        let time = self.time;
        let made = &self.workload.made;
        let window = |client, request| made.get(&(client, request)).map(|made| made.window);
        let committed = &self.checkers.committed;
        let is_call = |client, request| made.contains_key(&(client, request));
        let verdict = check_origin(time, committed, is_call)
            .and_then(|()| self.checkers.durability.check_end(time, committed, &[]))
            .and_then(|()| linear::check_order(time, committed, window));
        self.check(verdict);
    }

    fn final_checks(&mut self) {
        let damaged = self.network.damaged_and_open();
        if damaged > 0 {
            let message = format!("{damaged} connections are kept that carried damaged bytes");
            return self.fail("links", message);
        }
        let time = self.time;
        let made = &self.workload.made;
        let window = |client, request| made.get(&(client, request)).map(|made| made.window);
        let committed = &self.checkers.committed;
        let heads = self.required_heads();
        let positions: Vec<(u8, GroupId, Op)> = heads
            .keys()
            .flat_map(|&group| (0..self.shape.replicas).map(move |node| (node, group)))
            .map(|(node, group)| (node, group, committed.position(node, group)))
            .collect();
        let verdict = check_origin(time, committed, |client, request| {
            made.contains_key(&(client, request))
        })
        .and_then(|()| {
            self.checkers
                .durability
                .check_end(time, committed, &positions)
        })
        .and_then(|()| linear::check_order(time, committed, window))
        .and_then(|()| {
            let irreparable = self.shape.broken && self.statistics.damages > 0;
            let compared = heads.iter().filter(|_| !irreparable);
            compared
                .map(|(&group, &commit)| (group, commit))
                .try_for_each(|(group, commit)| {
                    let directory = directory(group);
                    let files = self
                        .nodes
                        .iter()
                        .map(|node| node.disk.files_below(&directory));
                    let replicas: Vec<_> = (0..)
                        .zip(files)
                        .map(|(node, files)| bytes::Segments { node, files })
                        .collect();
                    bytes::check(time, group, commit, committed, &replicas)
                })
        });
        self.check(verdict);
    }

    /// The black-box cross-check of everything that clients asked for.
    fn check_histories(&mut self) {
        match self.workload.history.check(self.time) {
            Ok(searched) => {
                self.statistics.objects_searched = searched.objects;
                self.statistics.objects_undecided = searched.undecided;
            }
            Err(failure) => self.check(Err(failure)),
        }
    }
}
