//! What a cluster that was damaged beyond its promise has said about it.
//!
//! A group may have lost what it acknowledged if it has said that a loss is possible; it may
//! stand still if it has said that nobody can decide an op; a node may be gone if it has stopped
//! for damage. Nothing else is excused, and without a word nothing is.

use std::collections::BTreeSet;

use base::GroupId;
use platform::Fatal;
use server::Observation;
use wire::replica::PrepareHeader;

use super::{Phase, World};
use crate::{disk::Crash, workload::Call};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Excuses {
    /// Groups that have said that what they acknowledged may be gone, or cannot be decided.
    groups: BTreeSet<GroupId>,
    /// Nodes that have stopped for damage.
    stopped: BTreeSet<u8>,
    /// Nodes that have lost their disk and do not trust their logs yet.
    blank: BTreeSet<u8>,
    /// Some group may stand still and has said why; its safety is not excused.
    pub(super) still: bool,
    /// All copies of some record were damaged.
    pub(super) everywhere: bool,
}

impl Excuses {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.stopped.is_empty() && !self.still
    }

    /// Whether what became of a group is excused; what the metadata has lost, all groups may have.
    pub(super) fn covers(&self, group: GroupId) -> bool {
        self.groups.contains(&group) || self.groups.contains(&GroupId::METADATA)
    }
}

impl World {
    /// Whether a step of a group needs no check any more, because the group has said, now or
    /// before, what it may have lost.
    pub(super) fn excuse(&mut self, node: u8, observation: &Observation) -> bool {
        if !self.shape.broken {
            return false;
        }
        self.note_standstill(node, observation);
        match observation {
            Observation::LossPossible { group, .. } => {
                base::sometimes!("broken promise: a loss was told");
                self.excuses.groups.insert(*group);
                self.end_audit();
                true
            }
            Observation::Committed { group, prepare, .. } if self.excuses.covers(*group) => {
                self.note_target(*group, prepare);
                true
            }
            Observation::Recovered { group, .. }
            | Observation::Restored { group, .. }
            | Observation::Acknowledged { group, .. }
            | Observation::Truncated { group, .. } => self.excuses.covers(*group),
            _ => false,
        }
    }

    /// Replies are not audited once the log that they follow from may be another.
    fn end_audit(&mut self) {
        if self.excuses.covers(GroupId::METADATA) {
            self.auditor.end();
        }
    }

    /// What a group commits after it has told of a loss is not checked; but whose it is, is known
    /// from then on, and calls to it are excused.
    fn note_target(&mut self, group: GroupId, prepare: &[u8]) {
        let Ok(header) = PrepareHeader::decode(prepare) else {
            return;
        };
        let made = self.workload.made.get(&(header.client, header.request));
        if let Some(target) = made.and_then(|made| made.call.target()) {
            // Where the metadata is lost, a number may come again.
            self.checkers
                .linear
                .on_target(self.time, group, target)
                .ok();
        }
    }

    /// A group may wait for ever if an op cannot be decided, or is gone from every disk.
    fn note_standstill(&mut self, node: u8, observation: &Observation) {
        match observation {
            Observation::Undecidable { .. } => {
                base::sometimes!("broken promise: an op cannot be decided");
                self.excuses.still = true;
            }
            Observation::Closed { .. } => self.excuses.still = true,
            Observation::Gap { .. } => self.excuses.still |= self.excuses.everywhere,
            Observation::Trusted => {
                self.excuses.blank.remove(&node);
            }
            _ => {}
        }
    }

    /// A node has lost its disk. As long as more than a minority is blank, each of them says so
    /// in every heartbeat and no group may go on; once all are, nobody is left who could tell
    /// that there ever was anything.
    pub(super) fn note_blank(&mut self, node: u8) {
        if !self.shape.broken {
            return;
        }
        let blank = &mut self.excuses.blank;
        blank.insert(node);
        let count = blank.len();
        if count > usize::from((self.shape.replicas - 1) / 2) {
            base::sometimes!("broken promise: a majority is blank");
            self.excuses.still = true;
        }
        if count == usize::from(self.shape.replicas) {
            base::sometimes!("broken promise: every disk is lost");
            self.excuses.groups.insert(GroupId::METADATA);
            self.end_audit();
        }
    }

    /// Whether a node may have stopped: it found damage where the promise was broken.
    pub(super) fn excuse_halt(&mut self, node: u8, fatal: Fatal) -> bool {
        let excused = self.shape.broken && fatal == Fatal::Damage;
        if excused {
            base::sometimes!("broken promise: a node stopped for damage");
            self.excuses.stopped.insert(node);
            self.crash(node, Crash::Process);
        }
        excused
    }

    /// Whether an answer to this call needs no check.
    pub(super) fn is_call_excused(&self, call: Option<&Call>) -> bool {
        if self.excuses.groups.is_empty() {
            return false;
        }
        let target = call.and_then(Call::partition);
        let group = target.and_then(|target| self.checkers.linear.newest_group_of(target));
        // What a group has committed since it spoke of a loss is not known any more.
        group.is_none_or(|group| self.excuses.covers(group))
    }

    /// A run in which a loss was told need not converge, nor serve: it ends once it stands still
    /// or its time is up.
    pub(super) fn end_excused(&mut self, converged: bool, overdue: bool) -> bool {
        if self.excuses.is_empty() || !(converged || overdue) {
            return false;
        }
        base::sometimes!(
            overdue,
            "broken promise: a group stands still and has said why"
        );
        self.check_unexcused();
        self.enter(Phase::Done);
        true
    }
}
