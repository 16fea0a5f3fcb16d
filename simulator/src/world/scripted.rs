//! A world that a script moves: faults and calls are given, and what is told is kept as lines.
//!
//! Nothing here is drawn, except what a world without faults draws too: delays and latencies.

use std::collections::{BTreeMap, BTreeSet};

use base::{GroupId, Op, View};
use client::Completion;
use platform::Fatal;
use server::{Observation, Role};
use wire::{Codec, Counted, Reader, batch, reply};

use super::{Outcome, World, nodes::Life};
use crate::{
    check::{linear::Target, liveness},
    schedule::Fault,
    workload::{Call, Order},
};

/// What a script hears of.
#[derive(Debug, Default)]
pub(super) struct Tale {
    /// What has been told and not been taken.
    lines: Vec<String>,
    /// The part of every replica of every group.
    parts: BTreeMap<(u8, GroupId), (View, Role)>,
    /// Words for what replicas have said of themselves.
    said: BTreeSet<&'static str>,
}

/// How a record is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bytes {
    /// One bit in the middle of it is another.
    Bit,
    /// Another record of its segment stands there, whole.
    Astray,
    /// It is zeros.
    Zeros,
    /// Its sectors cannot be read.
    Sectors,
}

/// What a script waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The client's call has ended.
    Idle { client: u8 },
    /// A replica that runs leads the group in this view or a later one.
    Primary { group: GroupId, from: View },
    /// Every group stands at its head on every node, in one view.
    Converged,
    /// No damage to what is committed is left.
    Repaired,
    /// Somebody has said this.
    Said { word: &'static str },
    /// A node is not running.
    Down { node: u8 },
}

impl World {
    /// Starts all nodes and clients; nobody calls anything yet.
    pub(crate) fn begin_scripted(&mut self) {
        self.tale = Some(Tale::default());
        for node in 0..self.shape.replicas {
            self.inflict(Fault::Restart { nodes: 1 << node });
        }
        self.start_clients();
    }

    /// Everything that is due until `micros` from now happens.
    pub(crate) fn pass(&mut self, micros: u64) {
        let end = self.time + micros;
        while self.failure.is_none() && (!self.ready.is_empty() || self.is_due_by(end)) {
            self.step_scripted();
        }
        self.time = end.max(self.time);
    }

    fn is_due_by(&self, end: u64) -> bool {
        let next = self.heap.peek();
        next.is_some_and(|std::cmp::Reverse((at, ..))| *at <= end)
    }

    fn step_scripted(&mut self) {
        if let Some(due) = self.next_due() {
            self.statistics.events += 1;
            self.on_due(due);
        }
    }

    /// Whether it comes true within `micros`.
    pub(crate) fn wait(&mut self, wait: Wait, micros: u64) -> bool {
        let end = self.time + micros;
        // Convergence looks at everything, so it is not asked after every event.
        let pause = match wait {
            Wait::Converged | Wait::Repaired => 100_000,
            _ => 0,
        };
        loop {
            if self.is_true(wait) {
                return true;
            }
            if self.failure.is_some() || self.time >= end {
                return false;
            }
            if pause > 0 {
                self.pass(pause);
            } else if self.ready.is_empty() && !self.is_due_by(end) {
                self.time = end;
            } else {
                self.step_scripted();
            }
        }
    }

    fn is_true(&self, wait: Wait) -> bool {
        match wait {
            Wait::Idle { client } => self.workload.is_idle(usize::from(client)),
            Wait::Primary { group, from } => {
                let primary = self.primary_of(group);
                primary.is_some_and(|(_, view)| view >= from)
            }
            Wait::Converged => {
                let committed = &self.checkers.committed;
                let groups = committed.groups.keys();
                let heads = groups.map(|&group| (group, committed.head(group)));
                let standings = self.standings_now();
                liveness::not_converged(self.shape.replicas, &heads.collect(), &standings).is_none()
            }
            Wait::Repaired => self.damage_left().is_none(),
            Wait::Said { word } => self.tale().said.contains(word),
            Wait::Down { node } => self.nodes[usize::from(node)].life != Life::Running,
        }
    }

    fn tale(&self) -> &Tale {
        self.tale.as_ref().expect("a script runs")
    }

    /// The script is over: heal, converge, serve, and check everything once more.
    pub(crate) fn finish_scripted(&mut self) -> Outcome {
        self.on_calm();
        self.run_on()
    }

    /// Why the run has failed, if it has.
    pub(crate) fn failed(&self) -> Option<String> {
        let failure = self.failure.as_ref()?;
        Some(format!("{}: {}", failure.check, failure.message))
    }

    /// Whether what was lost is excused by what was said of it.
    pub(crate) fn is_excused(&self) -> bool {
        !self.excuses.is_empty()
    }

    /// A fault happens just so; why it may not, if it may not.
    pub(crate) fn suffer(&mut self, fault: Fault) -> Result<(), String> {
        self.disturbed_at = self.time;
        let before = (self.statistics.power_losses, self.statistics.wipes);
        let asks = match fault {
            Fault::Crash {
                nodes,
                crash: crate::disk::Crash::Power,
            } => (u64::from(nodes.count_ones()), 0),
            Fault::Wipe { .. } | Fault::WipeDirectory { .. } => (1, 1),
            _ => (0, 0),
        };
        self.inflict(fault);
        let losses = self.statistics.power_losses - before.0;
        let wipes = self.statistics.wipes - before.1;
        if (losses, wipes) == asks {
            return Ok(());
        }
        Err("more than a cluster is to survive: say `broken`".into())
    }

    /// The record of an op of a group is damaged on a node.
    pub(crate) fn suffer_damage(
        &mut self,
        node: u8,
        record: (GroupId, Op),
        how: Bytes,
    ) -> Result<(), String> {
        self.damage_record(node, record, how)
    }

    /// A client makes a call, if it has none outstanding.
    pub(crate) fn order(&mut self, client: u8, order: Order) -> Result<(), String> {
        let slot = usize::from(client);
        if !self.workload.is_idle(slot) {
            return Err(format!("client {client} waits for another call"));
        }
        let frame = self.workload.order(self.time, slot, order);
        self.client_turn(client, Some(frame));
        Ok(())
    }

    /// The number that the next stream or topic is known by.
    pub(crate) const fn name_next(&self) -> u64 {
        self.workload.name_next()
    }

    /// The group of a partition, once a message of it is committed.
    pub(crate) fn group_of(&self, target: Target) -> Option<GroupId> {
        self.checkers.linear.newest_group_of(target)
    }

    /// The last committed op of a group.
    pub(crate) fn head_of(&self, group: GroupId) -> Op {
        self.checkers.committed.head(group)
    }

    /// Who leads a group in the latest view that anybody leads it in.
    pub(crate) fn primary_of(&self, group: GroupId) -> Option<(u8, View)> {
        let parts = self.tale().parts.iter();
        let leads = parts.filter(|((_, of), (_, role))| *of == group && *role == Role::Primary);
        let primary = leads.max_by_key(|(_, (view, _))| *view);
        primary.map(|((node, _), (view, _))| (*node, *view))
    }

    /// Where a replica of a group stands; none if its node is down.
    pub(crate) fn standing_of(&self, node: u8, group: GroupId) -> Option<(View, Role, Op)> {
        let (view, role) = *self.tale().parts.get(&(node, group))?;
        let commit = self.checkers.committed.position(node, group);
        Some((view, role, commit))
    }

    /// What has been told since this was last asked.
    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        let tale = self.tale.as_mut().expect("a script runs");
        std::mem::take(&mut tale.lines)
    }

    fn tell_line(&mut self, line: String) {
        if let Some(tale) = &mut self.tale {
            tale.lines.push(line);
        }
    }

    pub(super) fn tell_halt(&mut self, node: u8, fatal: Fatal) {
        if let Some(tale) = &mut self.tale {
            tale.said.insert("halt");
        }
        self.tell_line(format!("{node} halts: {fatal:?}"));
    }

    pub(super) fn tell_start(&mut self, node: u8) {
        self.tell_line(format!("{node} starts again"));
    }

    /// A node has stopped, or is about to begin.
    pub(super) fn tell_silence(&mut self, node: u8) {
        if let Some(tale) = &mut self.tale {
            tale.parts.retain(|(at, _), _| *at != node);
        }
    }

    pub(super) fn tell_observation(&mut self, node: u8, observation: &Observation) {
        let Some(tale) = &mut self.tale else { return };
        let name = |group: &GroupId| {
            if *group == GroupId::METADATA {
                "metadata".to_owned()
            } else {
                let target = self.checkers.linear.target_of(*group);
                target.map_or_else(
                    || "a partition".into(),
                    |target| format!("partition {}", target.partition),
                )
            }
        };
        let (word, line) = match observation {
            Observation::View {
                group, view, role, ..
            } => {
                tale.parts.insert((node, *group), (*view, *role));
                return;
            }
            Observation::Gap { group, from, to } => (
                "gap",
                format!("{node} misses {} ops {from}..={to}", name(group)),
            ),
            Observation::Repaired { group, op } => (
                "repaired",
                format!("{node} has repaired {} op {op}", name(group)),
            ),
            Observation::Doubt { group, op } => (
                "doubt",
                format!("{node} doubts {} after op {op}", name(group)),
            ),
            Observation::Undecidable { group, view, op } => (
                "undecidable",
                format!(
                    "{node} cannot decide {} op {op} in view {view}",
                    name(group)
                ),
            ),
            Observation::LossPossible { group, view } => (
                "loss",
                format!("{node} may have lost {} in view {view}", name(group)),
            ),
            Observation::DiskFull { full: true } => ("full", format!("the disk of {node} is full")),
            Observation::DiskFull { full: false } => {
                ("room", format!("the disk of {node} has room again"))
            }
            Observation::Clock { ahead } => {
                let is = match ahead {
                    0 => "is right again",
                    1.. => "is ahead of the others",
                    _ => "is behind the others",
                };
                ("clock", format!("the clock of {node} {is}"))
            }
            _ => return,
        };
        tale.said.insert(word);
        tale.lines.push(line);
    }

    pub(super) fn tell_completion(&mut self, client: u8, completion: &Completion) {
        if self.tale.is_none() {
            return;
        }
        let call = self.workload.pending(usize::from(client));
        let told = call.map_or_else(|| "?".into(), |call| told(call, completion));
        self.tell_line(format!("client {client}: {told}"));
    }
}

/// What a client was told, in words.
fn told(call: &Call, completion: &Completion) -> String {
    let answer = match &completion.outcome {
        Ok(answer) => answer,
        Err(error) => return error.to_string(),
    };
    let unreadable = || "an answer that cannot be read".to_owned();
    match call {
        Call::Send { payloads, .. } => {
            let Ok(Counted(confirmations)) = answer.decode::<Counted<reply::Confirmation>>() else {
                return unreadable();
            };
            let first = confirmations
                .first()
                .map_or(0, |confirmation| confirmation.base_offset);
            let last = first + payloads.len() as u64 - 1;
            format!("sent, offsets {first}..={last}")
        }
        Call::Poll { .. } => {
            let mut reader = Reader::new(answer.payload());
            let Ok(head) = reply::PollHead::read(&mut reader) else {
                return unreadable();
            };
            let mut offsets = Vec::new();
            for piece in batch::split(reader.take_rest()) {
                let Ok((header, frames)) = piece.and_then(batch::frames) else {
                    return unreadable();
                };
                let deltas = frames.flatten().map(|frame| u64::from(frame.offset_delta));
                offsets.extend(deltas.map(|delta| header.base_offset + delta));
            }
            let head = head.current_offset;
            match (offsets.first(), offsets.last()) {
                (Some(first), Some(last)) => format!("reads {first}..={last} of 0..={head}"),
                _ => "reads nothing".into(),
            }
        }
        Call::GetOffset { .. } => match answer.decode_optional::<reply::ConsumerOffset>() {
            Ok(Some(told)) => format!("offset {}", told.stored_offset),
            Ok(None) => "no offset".into(),
            Err(_) => unreadable(),
        },
        _ => "done".into(),
    }
}
