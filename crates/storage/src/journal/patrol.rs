//! Damage in a log that runs: the scrubber looks for it, and whoever finds some has the rest of
//! that segment looked at.
//!
//! One segment is scanned at a time, beside everything else. What it finds is registered as
//! holes; nothing is written here.

use alloc::{collections::VecDeque, vec::Vec};

use base::{Buffer, Op};
use platform::{DiskError, DiskRequest, Outbox};

use super::{
    Context, Flight, Journal, JournalEvent, Stage,
    holes::Hole,
    salvage::{Outcome, Salvage},
    scan::{Origin, Scan},
};
use crate::{FileIds, segment::SEGMENT_HEADER_SIZE};

/// Damage to be looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspicion {
    pub(super) segment: Op,
    pub(super) origin: Origin,
}

/// A segment being scanned.
#[derive(Debug)]
struct Examination {
    segment: Op,
    scan: Scan,
    salvage: Salvage,
    /// The last op that may be there, if known.
    bound: Option<Op>,
    /// The last op that must be there, and its identity if that is known.
    last: Op,
    last_checksum: Option<u128>,
    /// Where that op ends.
    limit: u64,
    /// Waits for the segment's file to be opened.
    waits: bool,
    /// The read in flight.
    request: Option<u64>,
}

/// Where the scrubber goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    pub(super) segment: Op,
    pub(super) origin: Origin,
}

/// The state of both.
#[derive(Debug, Default)]
pub(super) struct Patrol {
    suspicions: VecDeque<Suspicion>,
    examination: Option<Examination>,
    pub(super) cursor: Option<Cursor>,
    pub(super) scrubbing: bool,
}

impl Patrol {
    /// Whether any damage has not been looked at.
    pub(super) fn is_busy(&self) -> bool {
        self.examination.is_some() || !self.suspicions.is_empty()
    }
}

impl Journal {
    /// Verifies the next chunk of the sealed segments, round and round; nothing if a chunk is in
    /// flight. Damage is told as [`JournalEvent::Gap`].
    pub fn scrub(&mut self, files: &mut FileIds, out: &mut Outbox) {
        let changes = matches!(self.stage, Stage::Recovering(_) | Stage::Ended)
            || self.resetting
            || !self.truncations.is_empty();
        if changes || self.ending.is_some() || self.patrol.scrubbing || self.patrol.is_busy() {
            return;
        }
        let Some(cursor) = self.scrub_place() else {
            return;
        };
        self.patrol.scrubbing = true;
        let mut events = Vec::new();
        let context = &mut Context {
            files,
            out,
            events: &mut events,
        };
        self.start_scrub(cursor, context);
        base::invariant!(events.is_empty(), "a chunk is not read at once");
    }

    /// The next place in a sealed segment that is not known to be missing.
    fn scrub_place(&mut self) -> Option<Cursor> {
        let sealed = self.segments.len().checked_sub(1)?;
        let first = |index: usize| {
            let segment = &self.segments[index];
            Cursor {
                segment: segment.first,
                origin: Origin {
                    op: segment.first,
                    parent: segment.parent,
                    position: SEGMENT_HEADER_SIZE,
                },
            }
        };
        let place = self.patrol.cursor.take();
        let mut at = place.filter(|cursor| self.segment_index(cursor.segment).is_some());
        // Every hole and every segment is passed once at most.
        for _ in 0..=self.holes.len() + sealed {
            let cursor = at.unwrap_or_else(|| first(0));
            let index = self.segment_index(cursor.segment).expect("filtered");
            if index >= sealed {
                base::sometimes!(sealed > 0, "storage: the scrubber has gone round");
                at = None;
                if sealed == 0 {
                    return None;
                }
                continue;
            }
            let next = self.segments[index + 1].first;
            let missing = self
                .hole_at(cursor.origin.op)
                .map(|hole| (hole.to, hole.end));
            match missing {
                _ if cursor.origin.op >= next => at = Some(first(index + 1)),
                None => return Some(cursor),
                Some((to, Some(position))) => {
                    let op = to.next();
                    let parent = None;
                    at = Some(Cursor {
                        origin: Origin {
                            op,
                            parent,
                            position,
                        },
                        ..cursor
                    });
                }
                Some((_, None)) => at = Some(first(index + 1)),
            }
        }
        None
    }

    /// A record was not what it must be: the rest of its segment is looked at.
    pub(super) fn suspect(&mut self, suspicion: Suspicion, context: &mut Context<'_>) {
        self.patrol.suspicions.push_back(suspicion);
        self.examine_next(context);
    }

    /// Starts the next scan, if none is under way.
    pub(super) fn examine_next(&mut self, context: &mut Context<'_>) {
        while self.patrol.examination.is_none() && !self.is_repairing() {
            let Some(suspicion) = self.patrol.suspicions.pop_front() else {
                self.on_patrol_rests();
                return;
            };
            self.start_examination(suspicion, context);
        }
    }

    /// What waited for the damage to be known goes on.
    fn on_patrol_rests(&mut self) {
        if matches!(self.stage, Stage::AwaitingPatrol) {
            self.stage = Stage::Idle;
        }
    }

    fn start_examination(&mut self, suspicion: Suspicion, context: &mut Context<'_>) {
        let Suspicion { segment, origin } = suspicion;
        let known = self.segment_index(segment);
        let Some(index) = known.filter(|_| !self.is_missing(origin.op)) else {
            return; // found before, or gone
        };
        let (last, last_checksum, limit) = self.end_of(index);
        if origin.op > last || origin.position >= limit {
            return;
        }
        // While a truncation waits, the file goes on behind the last op.
        let bound = last_checksum.map(|_| last);
        let (cluster, group) = (self.config.cluster, self.config.group);
        let examination = Examination {
            segment,
            scan: Scan::new(cluster, group, origin, limit),
            salvage: Salvage::default(),
            bound,
            last,
            last_checksum,
            limit,
            waits: false,
            request: None,
        };
        self.patrol.examination = Some(examination);
        self.continue_examination(context);
    }

    /// The last op of a segment that is written, its identity if known, and where it ends.
    fn end_of(&self, index: usize) -> (Op, Option<u128>, u64) {
        let segment = &self.segments[index];
        if let Some(next) = self.segments.get(index + 1) {
            return (Op(next.first.0 - 1), next.parent, segment.size);
        }
        let last = self.written;
        let item = self.tail.get(last);
        let place = item.and_then(|item| Some((item, item.place?)));
        match place.filter(|(_, (first, _))| *first == segment.first) {
            Some((item, (_, position))) => {
                let end = position + u64::from(item.header.size);
                (last, Some(item.header.checksum), end)
            }
            None => (last, None, segment.size),
        }
    }

    fn continue_examination(&mut self, context: &mut Context<'_>) {
        let chunk = self.config.read_chunk;
        let examination = self
            .patrol
            .examination
            .as_mut()
            .expect("the caller has one");
        let Some((offset, size)) = examination.scan.next_read(chunk) else {
            return self.end_examination(context);
        };
        examination.salvage.ask(offset, size);
        self.read_examined(offset, size, context);
    }

    fn read_examined(&mut self, offset: u64, size: usize, context: &mut Context<'_>) {
        let examination = self
            .patrol
            .examination
            .as_mut()
            .expect("the caller has one");
        let first = examination.segment;
        let index = self.segment_index(first).expect("else it was given up");
        let examination = self.patrol.examination.as_mut().expect("as above");
        let Some(file) = self.segments[index].open() else {
            examination.waits = true;
            return self.open_segment(first, context);
        };
        let buffer = examination.salvage.room(size);
        let read = DiskRequest::Read {
            file,
            offset,
            buffer,
        };
        let request = self.request(read, context.out);
        self.flights.insert(request, Flight::Scan { file });
        let examination = self.patrol.examination.as_mut().expect("as above");
        examination.request = Some(request);
    }

    /// A segment's file is open.
    pub(super) fn wake_patrol(&mut self, first: Op, context: &mut Context<'_>) {
        let Some(examination) = &mut self.patrol.examination else {
            return;
        };
        if examination.waits && examination.segment == first {
            examination.waits = false;
            self.continue_examination(context);
        }
    }

    /// A read of the scan has ended.
    pub(super) fn on_scanned(
        &mut self,
        request: u64,
        result: Result<Buffer, DiskError>,
        context: &mut Context<'_>,
    ) {
        let examined = self.patrol.examination.as_mut();
        let Some(examination) = examined.filter(|scan| scan.request == Some(request)) else {
            return; // given up
        };
        examination.request = None;
        match examination.salvage.on_read(result) {
            Outcome::Chunk(chunk) => {
                examination.scan.on_chunk(&chunk);
                self.continue_examination(context);
            }
            Outcome::Again(offset, size) => self.read_examined(offset, size, context),
            Outcome::Dead => self.fail(DiskError::Io, context.events),
        }
    }

    fn end_examination(&mut self, context: &mut Context<'_>) {
        let examination = self.patrol.examination.take().expect("the caller has one");
        let Examination {
            segment,
            scan,
            bound,
            last,
            last_checksum,
            limit,
            ..
        } = examination;
        let layout = scan.layout(bound, bound.is_some());
        let before = self.holes.len();
        for missing in &layout.missing {
            let mut hole = Hole::new(segment, (missing.from, missing.to), missing.position);
            hole.end = Some(missing.end);
            hole.identify(Some(missing.checksum));
            hole.next = missing.next;
            self.register(hole, context.events);
        }
        if layout.end.op <= last {
            let mut hole = Hole::new(segment, (layout.end.op, last), layout.end.position);
            hole.end = Some(limit);
            hole.identify(last_checksum);
            self.register(hole, context.events);
        }
        if self.holes.len() == before {
            base::sometimes!("storage: suspected damage was not there");
        }
        self.take_from_memory();
        self.examine_next(context);
    }

    /// Notes what is missing from now on, but for what is known to be.
    fn register(&mut self, hole: Hole, events: &mut Vec<JournalEvent>) {
        if hole.from > self.written {
            return; // about to be cut off
        }
        let mut from = hole.from;
        let mut position = hole.position;
        let mut parts = Vec::new();
        for known in &self.holes {
            if known.to < from || known.from > hole.to {
                continue;
            }
            if known.from > from {
                // Its lowest op will tell the identity of the one below.
                let mut part = Hole::new(hole.segment, (from, Op(known.from.0 - 1)), position);
                part.end = Some(known.position);
                parts.push(part);
            }
            from = known.to.next();
            position = known.end.unwrap_or(u64::MAX);
        }
        if from <= hole.to {
            let mut rest = Hole::new(hole.segment, (from, hole.to), position);
            rest.end = hole.end;
            rest.next = hole.next;
            rest.identify(hole.checksum);
            parts.push(rest);
        }
        for part in parts {
            base::sometimes!("storage: damage was found in a log that runs");
            self.index_after(&part);
            let (first, last) = (part.from, part.to);
            self.add_hole(part);
            let told = |gap: &super::Gap| gap.from <= first && last <= gap.to;
            events.extend(self.gaps().into_iter().find(told).map(JournalEvent::Gap));
        }
    }

    /// Reads of what follows a hole begin right behind it.
    fn index_after(&mut self, hole: &Hole) {
        let Some(end) = hole.end else { return };
        let index = self.segment_index(hole.segment).expect("it was scanned");
        let next = self.segments.get(index + 1).map(|next| next.first);
        if hole.to < self.written && next != Some(hole.to.next()) {
            let op = hole.to.next();
            self.segments[index].index.insert(op, end, hole.next);
        }
    }

    /// The segments are no longer what they were.
    pub(super) fn give_up_patrol(&mut self) {
        self.patrol = Patrol {
            scrubbing: self.patrol.scrubbing,
            ..Patrol::default()
        };
        self.on_patrol_rests();
    }
}
