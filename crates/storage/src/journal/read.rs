//! Reading: from memory at once if the records are there, else from the files in chunks.
//!
//! A reader walks records from an entry of the index and verifies each; it stops below
//! `written_op`, and takes the rest from memory as soon as it reaches the records kept there.
//! Records are slices of the chunk they were read in: a body is not copied.

use alloc::vec::Vec;

use base::{Buffer, Bytes, Offset, Op};
use platform::{DiskError, DiskRequest, FileId, OpenMode, Outbox};
use wire::{
    HEADER_SIZE,
    replica::{Invalid, PrepareHeader},
};

use super::{
    Context, Damage, Flight, Journal, JournalEvent, Stage,
    patrol::{Cursor, Suspicion},
    salvage::{Outcome, Salvage},
    scan::Origin,
};
use crate::{
    FileIds,
    index::Start,
    record::{Examined, Messages, examine},
    segment::{SEGMENT_HEADER_SIZE, Segment, SegmentFile},
    tail::{Found, HEADERS_MIN, Item},
};

/// A range of ops to read.
#[derive(Clone, Copy, Debug)]
pub struct ReadOps {
    /// The first op.
    pub from: Op,
    /// The last op; what is not appended yet is not waited for.
    pub to: Op,
    /// Bytes of all records, unless the first alone is larger.
    pub bytes_max: usize,
}

/// Messages to read.
#[derive(Clone, Copy, Debug)]
pub struct ReadMessages {
    /// The first.
    pub start: Start,
    /// The first op to look at: what stands before it has been trimmed or purged.
    pub from: Op,
    /// The last op to look at: the commit.
    pub up_to: Op,
    /// No record is read beyond so many messages from the start on.
    pub count_max: u32,
    /// Bytes of all records, unless the first alone is larger.
    pub bytes_max: usize,
}

/// What a reader is for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// Ops from the given one.
    Ops { id: u64, from: Op },
    /// Ops from the first record of messages that `start` accepts, none before `from`.
    Messages { id: u64, start: Start, from: Op },
    /// The ops that the tail lacks after a truncation.
    Refill,
    /// One chunk, to see whether it is still whole.
    Scrub,
}

/// A read in progress.
#[derive(Debug)]
pub(super) struct Reader {
    purpose: Purpose,
    to: Op,
    bytes_max: usize,
    /// Messages to take before it is full.
    count_left: u64,
    /// Where in the first segment the last wanted record ends, if the index can tell.
    end: Option<u64>,
    /// The op at `position` of the segment that starts with `segment`.
    next: Op,
    segment: Op,
    position: u64,
    /// The last op that was written when the read in flight was asked for, and still is: behind
    /// it may stand what a truncation has cut off.
    readable: Op,
    /// Bytes to read from there at least.
    need: usize,
    /// Checksum of the op before `next`, once known.
    parent: Option<u128>,
    /// Waits for its segment's file to be opened.
    waits: bool,
    full: bool,
    salvage: Salvage,
    prepares: Vec<Bytes>,
    bytes: usize,
    items: Vec<Item>,
}

impl Reader {
    fn new(purpose: Purpose, to: Op, bytes_max: usize) -> Self {
        Self {
            purpose,
            to,
            bytes_max,
            count_left: u64::MAX,
            end: None,
            next: Op(0),
            segment: Op(0),
            position: 0,
            readable: Op(0),
            need: HEADER_SIZE,
            parent: None,
            waits: false,
            full: false,
            salvage: Salvage::default(),
            prepares: Vec::new(),
            bytes: 0,
            items: Vec::new(),
        }
    }

    const fn is_scrub(&self) -> bool {
        matches!(self.purpose, Purpose::Scrub)
    }

    fn is_refill(&self) -> bool {
        matches!(self.purpose, Purpose::Refill)
    }

    /// Whether records in memory are as good as those on disk.
    const fn reads_memory(&self) -> bool {
        matches!(self.purpose, Purpose::Ops { .. } | Purpose::Messages { .. })
    }

    const fn origin(&self) -> Origin {
        Origin {
            op: self.next,
            parent: self.parent,
            position: self.position,
        }
    }

    fn is_done(&self) -> bool {
        self.full || self.next > self.to
    }

    /// Takes the next record, if it is asked for.
    fn take(&mut self, header: &PrepareHeader, record: &Bytes) {
        base::invariant!(header.op == self.next);
        let wanted = match self.purpose {
            Purpose::Ops { from, .. } => header.op >= from,
            Purpose::Messages { start, from, .. } => {
                !self.prepares.is_empty()
                    || header.op >= from
                        && Messages::of(header, record).is_some_and(|m| start.accepts(&m))
            }
            Purpose::Refill => {
                let place = Some((self.segment, self.position));
                self.items.push(Item::new(*header, record.clone(), place));
                false
            }
            Purpose::Scrub => false,
        };
        if wanted {
            if !self.prepares.is_empty() && self.bytes + record.len() > self.bytes_max {
                self.full = true;
                return;
            }
            self.bytes += record.len();
            self.prepares.push(record.clone());
            self.count(header, record);
        }
        self.next = self.next.next();
        self.parent = Some(header.checksum);
    }

    /// Counts the messages of a record that was taken.
    fn count(&mut self, header: &PrepareHeader, record: &Bytes) {
        let Purpose::Messages { start, .. } = self.purpose else {
            return;
        };
        let Some(messages) = Messages::of(header, record) else {
            return;
        };
        let first = match start {
            Start::Offset(offset) => messages.offset.max(offset.0),
            Start::Timestamp(_) => messages.offset,
        };
        let count = messages.end.saturating_sub(first);
        self.count_left = self.count_left.saturating_sub(count);
        self.full |= self.count_left == 0;
    }
}

impl Journal {
    /// Reads a range of ops: [`JournalEvent::Read`], at once if they are in memory.
    pub fn read(
        &mut self,
        id: u64,
        range: ReadOps,
        files: &mut FileIds,
        out: &mut Outbox,
        events: &mut Vec<JournalEvent>,
    ) {
        let from = range.from.max(self.first_op());
        let to = range.to.min(self.head);
        let mut reader = Reader::new(Purpose::Ops { id, from }, to, range.bytes_max);
        reader.next = from;
        if from <= to && self.is_before_memory(from) && !self.is_missing(from) {
            self.place_reader(&mut reader, from);
        }
        self.start_reader(reader, &mut Context { files, out, events });
    }

    /// Reads messages: [`JournalEvent::Read`] with the prepares from the record on that contains
    /// the start or follows it, at once if they are in memory. Records without messages may be
    /// among them.
    pub fn read_messages(
        &mut self,
        id: u64,
        range: ReadMessages,
        files: &mut FileIds,
        out: &mut Outbox,
        events: &mut Vec<JournalEvent>,
    ) {
        let (start, from) = (range.start, range.from);
        let to = range.up_to.min(self.head);
        let mut reader = Reader::new(Purpose::Messages { id, start, from }, to, range.bytes_max);
        reader.count_left = u64::from(range.count_max.max(1));
        let complete = !self.is_before_memory(self.first_op());
        match self.tail.find(start, from, complete) {
            Found::At(op) => reader.next = op,
            Found::Beyond => reader.next = to.next(),
            Found::Unknown => {
                let before = |segment: &Segment| segment.index.begins_at_or_before(start, from);
                let index = self.segments.partition_point(before).saturating_sub(1);
                let segment = &self.segments[index];
                let place = segment.index.find_start(start, from);
                let (op, position) = place.unwrap_or((segment.first, SEGMENT_HEADER_SIZE));
                reader.segment = segment.first;
                reader.next = op;
                reader.position = position;
                if let Start::Offset(offset) = start {
                    let last = offset.0.saturating_add(reader.count_left - 1);
                    reader.end = segment.index.find_end(Start::Offset(Offset(last)), from);
                }
            }
        }
        self.start_reader(reader, &mut Context { files, out, events });
    }

    /// Fetches the headers up to `op` that the tail lacks.
    pub(super) fn start_refill(&mut self, op: Op, context: &mut Context<'_>) {
        let window = HEADERS_MIN as u64 - 1;
        let from = Op(op.0.saturating_sub(window)).max(self.reachable_from(op));
        let mut reader = Reader::new(Purpose::Refill, op, usize::MAX);
        self.place_reader(&mut reader, from);
        self.start_reader(reader, context);
    }

    /// The first op from which all up to `op` are there.
    pub(super) fn reachable_from(&self, op: Op) -> Op {
        let missing = self
            .missing_below(op)
            .map_or(Op(0), |missing| missing.next());
        missing.max(self.first_op())
    }

    /// Lets a reader begin at or before `from`, which is on disk.
    fn place_reader(&self, reader: &mut Reader, from: Op) {
        let segment = &self.segments[self.segment_of(from)];
        let place = segment.index.find_op(from);
        let (op, position) = place.unwrap_or((segment.first, SEGMENT_HEADER_SIZE));
        reader.segment = segment.first;
        reader.next = op;
        reader.position = position;
    }

    /// Verifies the records of one chunk.
    pub(super) fn start_scrub(&mut self, cursor: Cursor, context: &mut Context<'_>) {
        let index = self
            .segment_index(cursor.segment)
            .expect("the caller has seen it");
        let last = Op(self.segments[index + 1].first.0 - 1);
        let mut reader = Reader::new(Purpose::Scrub, last, usize::MAX);
        reader.segment = cursor.segment;
        reader.next = cursor.origin.op;
        reader.position = cursor.origin.position;
        reader.parent = cursor.origin.parent;
        self.start_reader(reader, context);
    }

    /// Reads of some segments end as soon as nothing is in flight for them; what they have
    /// fetched so far is their answer.
    pub(super) fn give_up_reads(&mut self, of: impl Fn(Op) -> bool) {
        let count = self.readers.len();
        self.readers
            .retain(|_, reader| !reader.is_refill() || !of(reader.segment));
        if self.readers.len() < count {
            base::invariant!(matches!(self.stage, Stage::Refilling));
            self.stage = Stage::Idle;
        }
        for reader in self.readers.values_mut() {
            if of(reader.segment) {
                reader.to = Op(0);
            }
        }
    }

    /// A truncation takes everything above `op` out of all reads.
    pub(super) fn clamp_readers(&mut self, op: Op) {
        let count = self.readers.len();
        self.readers
            .retain(|_, reader| !reader.is_refill() || reader.to <= op);
        if self.readers.len() < count {
            base::invariant!(matches!(self.stage, Stage::Refilling));
            self.stage = Stage::Idle;
        }
        for reader in self.readers.values_mut() {
            reader.to = reader.to.min(op);
            reader.readable = reader.readable.min(op);
        }
    }

    fn start_reader(&mut self, reader: Reader, context: &mut Context<'_>) {
        if matches!(self.stage, Stage::Ended) {
            return;
        }
        base::invariant!(
            !matches!(self.stage, Stage::Recovering(_)),
            "recovery comes first"
        );
        self.readers_made += 1;
        self.continue_reader(self.readers_made, reader, context);
    }

    /// Whether the record of `op` is only in the files.
    fn is_before_memory(&self, op: Op) -> bool {
        self.tail
            .first_record()
            .map_or(op <= self.written, |first| op < first)
    }

    /// The segment that `op`, which is written, is in.
    fn segment_of(&self, op: Op) -> usize {
        let after = self.segments.partition_point(|segment| segment.first <= op);
        after.checked_sub(1).expect("the op is not before the log")
    }

    /// Takes what is in memory, or asks for the next chunk.
    fn continue_reader(&mut self, key: u64, mut reader: Reader, context: &mut Context<'_>) {
        if reader.reads_memory() {
            while !reader.is_done() && !self.is_before_memory(reader.next) {
                let item = self.tail.get(reader.next).expect("it is in memory");
                let record = item.record.as_ref().expect("its record is too");
                reader.take(&item.header, record);
            }
        }
        if reader.is_done() {
            self.end_reader(reader, context.events);
            return;
        }
        if self.is_missing(reader.next) {
            self.end_at_hole(reader, context.events);
            return;
        }
        let index = self.segment_of(reader.next);
        let segment = &mut self.segments[index];
        if segment.first != reader.segment {
            base::invariant!(segment.first == reader.next);
            reader.segment = segment.first;
            reader.position = SEGMENT_HEADER_SIZE;
            reader.end = None;
        }
        segment.used = self.readers_made;
        if let SegmentFile::Open(file) = segment.file {
            let end = reader.end.filter(|&end| end > reader.position);
            let mut end = end.unwrap_or(segment.size);
            // What is missing may be written while this is read.
            let after = self.holes.partition_point(|hole| hole.from < reader.next);
            if let Some(hole) = self.holes.get(after)
                && hole.segment == reader.segment
            {
                end = end.min(hole.position);
            }
            let left = end.saturating_sub(reader.position);
            let left = usize::try_from(left).unwrap_or(usize::MAX);
            let chunk = self.config.read_chunk.min(left).max(reader.need);
            let offset = reader.position;
            reader.salvage.ask(offset, chunk);
            reader.readable = self.written;
            self.start_read(file, (offset, chunk), key, &reader, context);
        } else {
            reader.waits = true;
            self.open_segment(reader.segment, context);
        }
        self.readers.insert(key, reader);
    }

    fn start_read(
        &mut self,
        file: FileId,
        (offset, size): (u64, usize),
        key: u64,
        reader: &Reader,
        context: &mut Context<'_>,
    ) {
        let read = DiskRequest::Read {
            file,
            offset,
            buffer: reader.salvage.room(size),
        };
        let request = self.request(read, context.out);
        self.flights
            .insert(request, Flight::Read { reader: key, file });
    }

    /// Reads a piece of a chunk that could not be read whole.
    fn read_piece(
        &mut self,
        key: u64,
        reader: Reader,
        place: (u64, usize),
        context: &mut Context<'_>,
    ) {
        let index = self.segment_index(reader.segment);
        let file = index.and_then(|index| self.segments[index].open());
        let Some(file) = file else {
            return self.continue_reader(key, reader, context);
        };
        self.start_read(file, place, key, &reader, context);
        self.readers.insert(key, reader);
    }

    /// Opens a segment's file, unless that is under way.
    pub(super) fn open_segment(&mut self, first: Op, context: &mut Context<'_>) {
        let index = self.segment_index(first).expect("the segment exists");
        if matches!(self.segments[index].file, SegmentFile::Opening(_)) {
            return;
        }
        base::invariant!(self.segments[index].file == SegmentFile::Closed);
        let file = context.files.next();
        self.segments[index].file = SegmentFile::Opening(file);
        let path = self.segment_path(first);
        let open = DiskRequest::Open {
            file,
            path,
            mode: OpenMode::Existing,
        };
        let request = self.request(open, context.out);
        self.flights.insert(
            request,
            Flight::Open {
                segment: first,
                file,
            },
        );
    }

    /// A segment's file is open, or the segment is gone: its readers go on, or end.
    pub(super) fn on_opened(&mut self, first: Op, file: Option<FileId>, context: &mut Context<'_>) {
        match file {
            Some(file) if self.is_opening(first, file) => {
                let index = self.segment_index(first).expect("it is being opened");
                self.segments[index].file = SegmentFile::Open(file);
            }
            Some(file) => self.retire(file),
            None => {}
        }
        let waiting: Vec<_> = self
            .readers
            .iter()
            .filter_map(|(key, reader)| (reader.waits && reader.segment == first).then_some(*key))
            .collect();
        for key in waiting {
            let mut reader = self.readers.remove(&key).expect("just seen");
            reader.waits = false;
            self.continue_reader(key, reader, context);
        }
        self.wake_patrol(first, context);
        self.close_sealed(context.out);
    }

    pub(super) fn on_read(
        &mut self,
        key: u64,
        buffer: Result<Buffer, DiskError>,
        context: &mut Context<'_>,
    ) {
        // A refill may have been given up.
        let Some(mut reader) = self.readers.remove(&key) else {
            return;
        };
        base::sometimes!(buffer.is_err(), "storage: a read of a running log failed");
        let before = reader.next;
        let walked = match reader.salvage.on_read(buffer) {
            Outcome::Chunk(chunk) => self.walk(&mut reader, &chunk),
            Outcome::Again(offset, size) if !reader.is_done() => {
                return self.read_piece(key, reader, (offset, size), context);
            }
            Outcome::Again(..) => Ok(()),
            Outcome::Dead => return self.fail(DiskError::Io, context.events),
        };
        match walked {
            Ok(()) if reader.is_scrub() && reader.next > before => {
                self.end_reader(reader, context.events);
            }
            Ok(()) => self.continue_reader(key, reader, context),
            Err(reason) => self.end_damaged(&reader, reason, context),
        }
        if self.too_many_open {
            self.close_sealed(context.out);
        }
    }

    /// Takes records from a chunk as long as it lasts.
    fn walk(&self, reader: &mut Reader, chunk: &Bytes) -> Result<(), Invalid> {
        if reader.is_done() {
            return Ok(());
        }
        if chunk.len() < reader.need {
            return Err(Invalid::Size);
        }
        let mut at = 0;
        while !reader.is_done() && reader.next <= reader.readable {
            if self.segments[self.segment_of(reader.next)].first != reader.segment
                || self.is_missing(reader.next)
            {
                break;
            }
            match examine(&chunk[at..], &self.expected(reader.next, reader.parent)) {
                Examined::Record(header) => {
                    let end = at + header.size as usize;
                    reader.take(&header, &chunk.slice(at, end));
                    at = end;
                    reader.position += u64::from(header.size);
                    reader.need = HEADER_SIZE;
                }
                Examined::Short(need) => {
                    reader.need = need;
                    break;
                }
                Examined::Invalid(reason) => return Err(reason),
            }
        }
        Ok(())
    }

    /// The next op is known to be missing: a read ends there, or is damaged if it has nothing yet.
    fn end_at_hole(&mut self, reader: Reader, events: &mut Vec<JournalEvent>) {
        let hole = self.hole_at(reader.next).expect("the caller has seen it");
        let (position, segment) = (hole.position, hole.segment);
        match reader.purpose {
            Purpose::Ops { id, .. } | Purpose::Messages { id, .. }
                if reader.prepares.is_empty() =>
            {
                base::sometimes!("storage: a read met what is missing");
                events.push(JournalEvent::Damaged(Damage {
                    read: Some(id),
                    op: reader.next,
                    segment,
                    position,
                    reason: Invalid::Checksum,
                }));
            }
            // What it was to fetch has changed: it is begun anew.
            Purpose::Refill => self.stage = Stage::Idle,
            _ => self.end_reader(reader, events),
        }
    }

    fn end_reader(&mut self, reader: Reader, events: &mut Vec<JournalEvent>) {
        match reader.purpose {
            Purpose::Ops { id, .. } | Purpose::Messages { id, .. } => {
                events.push(JournalEvent::Read {
                    id,
                    prepares: reader.prepares,
                });
            }
            Purpose::Refill => {
                base::invariant!(matches!(self.stage, Stage::Refilling));
                self.tail.replace_older(reader.items);
                self.tail.evict(self.config.tail_cache, self.written);
                if self.head == reader.to {
                    self.head_checksum = reader.parent;
                }
                self.stage = Stage::Idle;
            }
            Purpose::Scrub => {
                self.patrol.scrubbing = false;
                // A truncation may have come in between.
                if reader.next <= reader.to.next() {
                    self.patrol.cursor = Some(Cursor {
                        segment: reader.segment,
                        origin: reader.origin(),
                    });
                }
            }
        }
    }

    /// A record was not what it must be. The read is over; what else is damaged there is found
    /// out.
    fn end_damaged(&mut self, reader: &Reader, reason: Invalid, context: &mut Context<'_>) {
        let (op, segment, position) = (reader.next, reader.segment, reader.position);
        match reader.purpose {
            Purpose::Ops { id, .. } | Purpose::Messages { id, .. } => {
                context.events.push(JournalEvent::Damaged(Damage {
                    read: Some(id),
                    op,
                    segment,
                    position,
                    reason,
                }));
            }
            // Without the end of the log nothing can be cut there.
            Purpose::Refill => self.stage = Stage::AwaitingPatrol,
            Purpose::Scrub => {
                base::sometimes!("storage: the scrubber found damage");
                self.patrol.scrubbing = false;
            }
        }
        let origin = reader.origin();
        self.suspect(Suspicion { segment, origin }, context);
    }
}
