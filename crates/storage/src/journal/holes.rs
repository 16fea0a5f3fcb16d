//! Ops that are missing: known by their identity, put back into their place.
//!
//! A hole is a run of missing ops in one segment. The op after it names the identity of its
//! highest op; that op, once it has come, names the one below, and so on down. What has come is
//! kept in memory until the hole is complete, and then written in one piece: whole sectors that
//! cannot be read are written over without being read, and a hole that is not complete after a
//! crash is the same hole again.
//!
//! **Invariant:** holes are disjoint, sorted, and in existing segments.

use alloc::{collections::VecDeque, vec::Vec};

use base::{Bytes, Op};
use platform::{DiskRequest, OpenMode};
use wire::replica::{Invalid, PrepareHeader};

use super::{Context, Damage, Gap, Journal, JournalEvent, cut::Then, write::PIECES_MAX};
use crate::{
    FileIds,
    record::Messages,
    segment::{SEGMENT_HEADER_SIZE, SegmentHeader},
};

/// Missing ops of one segment.
#[derive(Debug)]
pub(super) struct Hole {
    /// The segment, by first op.
    pub(super) segment: Op,
    pub(super) from: Op,
    pub(super) to: Op,
    /// Where `from` begins.
    pub(super) position: u64,
    /// Where `to` ends; `None` if nothing follows in this segment.
    pub(super) end: Option<u64>,
    /// Identity of `to`; unknown if what names it is missing too.
    pub(super) checksum: Option<u128>,
    /// What has come, from the highest op down; the lowest first.
    held: VecDeque<Bytes>,
    /// Identity of the op below those.
    wanted: Option<u128>,
    /// Messages of the op after `to`, if it is in this segment.
    pub(super) next: Option<Messages>,
}

impl Hole {
    pub(super) const fn new(segment: Op, ops: (Op, Op), position: u64) -> Self {
        Self {
            segment,
            from: ops.0,
            to: ops.1,
            position,
            end: None,
            checksum: None,
            held: VecDeque::new(),
            wanted: None,
            next: None,
        }
    }

    /// Tells the identity of the highest op.
    pub(super) fn identify(&mut self, checksum: Option<u128>) {
        if self.checksum.is_none() {
            self.checksum = checksum;
            self.wanted = checksum;
        }
    }

    fn contains(&self, op: Op) -> bool {
        self.from <= op && op <= self.to
    }

    fn is_complete(&self) -> bool {
        self.held.len() as u64 == self.to.0 - self.from.0 + 1
    }

    /// The highest op that has not come, if its identity is known.
    fn wanted(&self) -> Option<(Op, u128)> {
        if self.is_complete() {
            return None;
        }
        Some((Op(self.to.0 - self.held.len() as u64), self.wanted?))
    }
}

impl Journal {
    /// What is missing, lowest first.
    #[must_use]
    pub fn gaps(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        // Below a hole of known identity, those that only it will identify belong to it.
        let mut from = None;
        for hole in &self.holes {
            let first = from.filter(|(_, next)| *next == hole.from);
            let first = first.map_or(hole.from, |(first, _)| first);
            match hole.checksum {
                Some(checksum) => {
                    from = None;
                    let to = hole.to;
                    gaps.push(Gap {
                        from: first,
                        to,
                        checksum,
                    });
                }
                None => from = Some((first, hole.to.next())),
            }
        }
        gaps
    }

    /// Whether an op of this log is missing.
    #[must_use]
    pub fn is_missing(&self, op: Op) -> bool {
        self.hole_at(op).is_some()
    }

    /// Missing ops whose identity is known, in ascending order: of each hole the highest that has
    /// not come yet. The identity of the one below it is known once it has.
    pub fn wanted(&self) -> impl Iterator<Item = (Op, u128)> + '_ {
        self.holes.iter().filter_map(Hole::wanted)
    }

    /// Takes a verified prepare, if it is wanted. [`JournalEvent::Repaired`] once its gap is
    /// complete and in its place, durably.
    pub fn repair(
        &mut self,
        prepare: Bytes,
        files: &mut FileIds,
        out: &mut platform::Outbox,
    ) -> bool {
        let taken = self.take_repair(prepare);
        if taken {
            self.take_from_memory();
            self.advance_quietly(files, out);
        }
        taken
    }

    fn take_repair(&mut self, prepare: Bytes) -> bool {
        let Ok(header) = PrepareHeader::decode(&prepare) else {
            return false;
        };
        let key = (header.op, header.checksum);
        let wanted = |hole: &Hole| hole.wanted() == Some(key);
        let Some(index) = self.holes.iter().position(wanted) else {
            return false;
        };
        let hole = &mut self.holes[index];
        hole.held.push_front(prepare);
        hole.wanted = Some(header.parent);
        let complete = hole.is_complete();
        if complete
            && let Some(below) = index.checked_sub(1)
            && self.holes[below].to.next() == header.op
        {
            base::sometimes!("storage: a repaired op names what is missing below its segment");
            self.holes[below].identify(Some(header.parent));
        }
        true
    }

    /// What is missing on disk may still be in memory.
    pub(super) fn take_from_memory(&mut self) {
        loop {
            let here = self.wanted().find_map(|(op, checksum)| {
                let item = self.tail.get(op)?;
                let same = item.header.checksum == checksum;
                item.record.clone().filter(|_| same)
            });
            let Some(record) = here else { return };
            base::sometimes!("storage: a damaged op was still in memory");
            let taken = self.take_repair(record);
            base::invariant!(taken);
        }
    }

    pub(super) fn hole_at(&self, op: Op) -> Option<&Hole> {
        let after = self.holes.partition_point(|hole| hole.from <= op);
        self.holes[..after].last().filter(|hole| op <= hole.to)
    }

    /// The last op below `op` that is missing.
    pub(super) fn missing_below(&self, op: Op) -> Option<Op> {
        let after = self.holes.partition_point(|hole| hole.to < op);
        Some(self.holes[..after].last()?.to)
    }

    /// The hole whose highest op is `op`.
    pub(super) fn hole_that_ends(&self, op: Op) -> Option<&Hole> {
        self.hole_at(op).filter(|hole| hole.to == op)
    }

    /// Notes a hole; it joins the one just before it if nothing is known of what is between.
    pub(super) fn add_hole(&mut self, mut hole: Hole) {
        let at = self.holes.partition_point(|other| other.from < hole.from);
        if let Some(before) = self.holes[..at].last_mut() {
            base::invariant!(before.to < hole.from);
            let joins = before.segment == hole.segment
                && before.to.next() == hole.from
                && before.end.is_none_or(|end| end == hole.position)
                && before.held.is_empty();
            if joins {
                before.to = hole.to;
                before.end = hole.end;
                before.next = hole.next;
                before.checksum = None;
                before.identify(hole.checksum);
                return;
            }
        }
        hole.wanted = hole.checksum;
        self.holes.insert(at, hole);
    }

    /// Everything above `op` is gone.
    pub(super) fn cut_holes(&mut self, op: Op) {
        self.holes.retain(|hole| hole.from <= op);
    }

    /// The identity of the head, which is missing, has become known by the op after it.
    pub(super) fn identify_head(&mut self, checksum: u128) {
        let head = self.head;
        if let Some(hole) = self.holes.last_mut()
            && hole.contains(head)
            && hole.to == head
        {
            hole.identify(Some(checksum));
        }
    }

    /// The first hole that is complete, unless holes are being looked for. A segment is mended
    /// from below: where a hole lies is sure only once what is before it fits.
    pub(super) fn complete_hole(&self) -> Option<usize> {
        if self.patrol.is_busy() {
            return None;
        }
        let lowest =
            |index: usize| index == 0 || self.holes[index - 1].segment != self.holes[index].segment;
        (0..self.holes.len()).find(|index| lowest(*index) && self.holes[*index].is_complete())
    }

    /// Writes a complete hole in its place, with the header of its segment if that may be
    /// damaged too, and syncs it.
    pub(super) fn start_repair(&mut self, index: usize, context: &mut Context<'_>) {
        if self.is_misfit(index) {
            // Told once the entry point that has completed the hole has returned.
            let from = self.holes[index].from;
            let path = self.config.directory.clone();
            let requests = VecDeque::from([DiskRequest::SyncDir { path }]);
            return self.continue_sequence(requests, Then::Misfit { from }, context);
        }
        let hole = &self.holes[index];
        let size: usize = hole.held.iter().map(|record| record.len()).sum();
        let end = hole.position + size as u64;
        let (segment, from, to) = (hole.segment, hole.from, hole.to);
        let (at_end, mut position) = (hole.end.is_none(), hole.position);
        let mut data = Vec::with_capacity(hole.held.len() + 1);
        if from == segment {
            let lowest = hole.held.front().expect("a hole is never empty");
            let header = PrepareHeader::decode(lowest).expect("repairs are prepares");
            let place = self.segment_index(segment).expect("holes are in segments");
            self.segments[place].parent = Some(header.parent);
            data.push(self.segment_header(segment, header.parent));
            position = 0;
        }
        data.extend(self.holes[index].held.iter().cloned());
        let file = context.files.next();
        let path = self.segment_path(segment);
        let mode = OpenMode::CreateIfMissing;
        let mut requests = VecDeque::from([DiskRequest::Open { file, path, mode }]);
        for pieces in data.chunks(PIECES_MAX) {
            let size: usize = pieces.iter().map(|piece| piece.len()).sum();
            let (offset, data) = (position, pieces.to_vec());
            requests.push_back(DiskRequest::Write { file, offset, data });
            position += size as u64;
        }
        if at_end {
            requests.push_back(DiskRequest::Truncate { file, size: end });
        }
        requests.push_back(DiskRequest::SyncData { file });
        requests.push_back(DiskRequest::Close { file });
        let path = self.config.directory.clone();
        requests.push_back(DiskRequest::SyncDir { path });
        self.continue_sequence(requests, Then::Repaired { from, to, end }, context);
    }

    pub(super) fn segment_header(&self, first: Op, parent: u128) -> Bytes {
        base::invariant!(SEGMENT_HEADER_SIZE > 0);
        SegmentHeader {
            cluster: self.config.cluster,
            group: self.config.group,
            first,
            parent,
        }
        .encode()
    }

    /// Whether a repair is being written: nobody else reads there meanwhile.
    pub(super) const fn is_repairing(&self) -> bool {
        matches!(
            self.stage,
            super::Stage::Sequence {
                then: Then::Repaired { .. },
                ..
            }
        )
    }

    /// Whether what has come is not as long as the room for it.
    fn is_misfit(&self, index: usize) -> bool {
        let hole = &self.holes[index];
        if !hole.is_complete() {
            return false;
        }
        let size: u64 = hole.held.iter().map(|record| record.len() as u64).sum();
        hole.end.is_some_and(|end| end != hole.position + size)
    }

    /// What has come for the hole at `from` does not fit into it.
    pub(super) fn on_misfit(&mut self, from: Op, events: &mut Vec<JournalEvent>) {
        let misfit = |index: &usize| self.holes[*index].from == from && self.is_misfit(*index);
        let Some(index) = (0..self.holes.len()).find(misfit) else {
            return; // A truncation or a reset has taken it away meanwhile.
        };
        if self.widen_hole(index, events) {
            return;
        }
        // Somebody else's record was taken for what follows: this log cannot be mended.
        let hole = &self.holes[index];
        events.push(JournalEvent::Damaged(Damage {
            read: None,
            op: hole.from,
            segment: hole.segment,
            position: hole.position,
            reason: Invalid::Size,
        }));
        self.fail(platform::DiskError::Io, events);
    }

    /// What was taken for the op after a hole is a whole record of this log, left in a wrong
    /// place by a misdirected write: up to the next hole, where it came to an end, all is missing
    /// too. False if no hole follows in this segment.
    fn widen_hole(&mut self, index: usize, events: &mut Vec<JournalEvent>) -> bool {
        let segment = self.holes[index].segment;
        let following = self.holes.get(index + 1);
        if following.is_none_or(|next| next.segment != segment) {
            return false;
        }
        base::sometimes!("storage: a misdirected record had been taken for the one that belongs");
        let mut wide = self.holes.remove(index + 1);
        let hole = &self.holes[index];
        let (misplaced, until) = (hole.to.next(), wide.from);
        wide.from = hole.from;
        wide.position = hole.position;
        self.holes[index] = wide;
        let place = self.segment_index(segment).expect("holes are in segments");
        self.segments[place].index.forget(misplaced, until);
        let told = |gap: &Gap| gap.from <= misplaced && misplaced <= gap.to;
        events.extend(self.gaps().into_iter().find(told).map(JournalEvent::Gap));
        true
    }

    /// A hole is filled, durably.
    pub(super) fn on_repaired(&mut self, ops: (Op, Op), end: u64, context: &mut Context<'_>) {
        self.note_repaired(ops, end, context.events);
        // What was found meanwhile in the same segment had to wait.
        self.examine_next(context);
    }

    fn note_repaired(&mut self, (from, to): (Op, Op), end: u64, events: &mut Vec<JournalEvent>) {
        // A truncation or a reset may have taken it away meanwhile.
        let same = |hole: &Hole| (hole.from, hole.to) == (from, to) && hole.is_complete();
        let Some(index) = self.holes.iter().position(same) else {
            return;
        };
        let hole = self.holes.remove(index);
        base::sometimes!(
            hole.from < hole.to,
            "storage: a gap of several ops was repaired"
        );
        base::sometimes!(
            hole.from == hole.segment,
            "storage: a segment's beginning was repaired"
        );
        if hole.end.is_none() {
            base::sometimes!("storage: the end of a segment was repaired");
            let segment = self
                .segment_index(hole.segment)
                .expect("holes are in segments");
            self.segments[segment].size = end;
        }
        for op in from.0..=to.0 {
            events.push(JournalEvent::Repaired { op: Op(op) });
        }
    }
}
