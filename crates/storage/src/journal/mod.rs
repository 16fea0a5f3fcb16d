//! The journal: one group's log on disk, and its newest ops in memory.
//!
//! One function, [`Journal::advance`], chooses what to do next whenever nothing is in flight:
//!
//! ```text
//!   recover ─▶ idle ─▶ sync, if due        ─▶ idle
//!                  ├─▶ create a segment     ─▶ write ─▶ idle
//!                  ├─▶ refill ─▶ cut        ─▶ idle      (truncation)
//!                  └─▶ close, remove
//! ```
//!
//! Reads run beside all of it; they end below `written_op`, so no writer touches what they see.
//!
//! **Invariant:** `synced_op <= written_op <= submitted <= head`, executed at the end of every
//! entry point.

mod close;
mod cut;
mod event;
mod full;
mod holes;
mod patrol;
mod read;
mod rebase;
mod recovery;
mod salvage;
mod scan;
mod write;

pub use event::{Damage, Gap, JournalConfig, JournalEvent};
pub use read::{ReadMessages, ReadOps};

use alloc::{
    boxed::Box,
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

use base::{Bytes, Op};
use platform::{DiskDone, DiskError, DiskRequest, DiskResult, Effect, FileId, Outbox, Path, Token};
use wire::replica::{PrepareHeader, verify_header};

use self::{
    cut::{Cut, Then},
    holes::Hole,
    patrol::Patrol,
    read::Reader,
    recovery::Recovery,
};
use crate::{
    FileIds,
    record::{Expected, Messages},
    segment::{SEGMENT_HEADER_SIZE, Segment, SegmentFile, segment_name},
    tail::{Item, Tail},
};

/// Everything an entry point hands down.
struct Context<'a> {
    files: &'a mut FileIds,
    out: &'a mut Outbox,
    events: &'a mut Vec<JournalEvent>,
}

/// What the journal waits for. At most one request, the step, is in flight for it.
#[derive(Debug)]
enum Stage {
    /// Nothing; the next work may start.
    Idle,
    /// Reading the log at start-up.
    Recovering(Box<Recovery>),
    /// A new segment's file.
    Creating,
    /// A write up to this op, from there on.
    Writing { to: Op, offset: u64 },
    /// A sync of the active segment's data.
    SyncingData { to: Op },
    /// A sync of the active segment's name.
    SyncingNames { to: Op },
    /// A reader that fetches ops from before the tail.
    Refilling,
    /// What the refill found damaged is being looked at.
    AwaitingPatrol,
    /// The file that a cut ends in; opened as a reader would.
    OpeningTarget(Cut),
    /// Requests that must run one after the other.
    Sequence {
        /// The request in flight, in case the disk is full.
        current: DiskRequest,
        requests: VecDeque<DiskRequest>,
        then: Then,
    },
    /// The names to remove.
    ListingToRemove,
    /// The end.
    Ended,
}

/// How the journal is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Close,
    Remove,
}

/// A request in flight beside the step.
#[derive(Debug)]
enum Flight {
    Open { segment: Op, file: FileId },
    Read { reader: u64, file: FileId },
    Scan { file: FileId },
}

/// One group's log.
#[derive(Debug)]
pub struct Journal {
    config: JournalConfig,
    stage: Stage,
    /// The request that the stage waits for.
    step: Option<u64>,
    /// Requests made so far.
    requests: u64,
    /// By first op; the last is the active one.
    segments: Vec<Segment>,
    tail: Tail,
    /// What is missing, by op.
    holes: Vec<Hole>,
    patrol: Patrol,
    /// The op before the first, and its identity.
    base: (Op, u128),
    head: Op,
    /// Unknown while a truncation fetches it from disk.
    head_checksum: Option<u128>,
    submitted: Op,
    written: Op,
    synced: Op,
    sync_wanted: bool,
    /// Whether the active segment's name is durable.
    name_durable: bool,
    /// There was no directory when it was opened.
    absent: bool,
    /// Ascending; ops above the first are not written before it is done.
    truncations: VecDeque<Op>,
    /// The old log is still there.
    resetting: bool,
    resets: u64,
    /// Segments below may go.
    drop_to: Op,
    /// The disk is full, and nothing is written.
    full: bool,
    /// It was, and what did not fit is being tried again.
    hopes: bool,
    ending: Option<Ending>,
    readers: BTreeMap<u64, Reader>,
    readers_made: u64,
    flights: BTreeMap<u64, Flight>,
    /// Files to close once no read is in flight on them.
    retired: Vec<FileId>,
    /// More sealed segments are open than should be, because all are being read.
    too_many_open: bool,
    /// The log is removed, and its owner has not been told.
    removed: bool,
}

impl Journal {
    /// Starts recovery: [`JournalEvent::Record`] for every record, then
    /// [`JournalEvent::Recovered`].
    ///
    /// # Panics
    /// If a segment could not hold a record or nothing could be read.
    #[must_use]
    pub fn open(config: JournalConfig, out: &mut Outbox) -> Self {
        let mut journal = Self::new(config);
        journal.stage = Stage::Recovering(Box::default());
        let path = journal.config.directory.clone();
        journal.start_step(DiskRequest::List { path }, out);
        journal
    }

    /// Recovers once more from the start, as [`Self::open`] does: what the records were to continue
    /// turned out not to be what they continue.
    ///
    /// # Panics
    /// If anything has been done since recovery ended.
    pub fn reopen(&mut self, out: &mut Outbox) {
        base::invariant!(matches!(self.stage, Stage::Idle) && self.flights.is_empty());
        base::invariant!(self.ending.is_none());
        self.close_all(out);
        let mut journal = Self::new(self.config.clone());
        journal.requests = self.requests;
        journal.stage = Stage::Recovering(Box::default());
        let path = journal.config.directory.clone();
        journal.start_step(DiskRequest::List { path }, out);
        *self = journal;
    }

    /// Removes a directory left behind by a group that no longer exists, without reading it:
    /// [`JournalEvent::Removed`].
    #[must_use]
    pub fn remove_leftover(config: JournalConfig, out: &mut Outbox) -> Self {
        let mut journal = Self::new(config);
        journal.remove(out);
        journal
    }

    fn new(config: JournalConfig) -> Self {
        base::invariant!(config.segment_size > SEGMENT_HEADER_SIZE);
        base::invariant!(config.read_chunk >= wire::HEADER_SIZE);
        Self {
            config,
            stage: Stage::Idle,
            step: None,
            requests: 0,
            segments: Vec::new(),
            tail: Tail::default(),
            holes: Vec::new(),
            patrol: Patrol::default(),
            base: (Op(0), 0),
            head: Op(0),
            head_checksum: Some(0),
            submitted: Op(0),
            written: Op(0),
            synced: Op(0),
            sync_wanted: false,
            name_durable: true,
            absent: false,
            truncations: VecDeque::new(),
            resetting: false,
            resets: 0,
            drop_to: Op(0),
            full: false,
            hopes: false,
            ending: None,
            readers: BTreeMap::new(),
            readers_made: 0,
            flights: BTreeMap::new(),
            retired: Vec::new(),
            too_many_open: false,
            removed: false,
        }
    }

    /// A disk request of this journal has ended.
    ///
    /// # Panics
    /// If the body answered with the wrong kind of result.
    pub fn on_disk(
        &mut self,
        done: DiskDone,
        files: &mut FileIds,
        out: &mut Outbox,
        events: &mut Vec<JournalEvent>,
    ) {
        base::invariant!(done.token.owner == self.config.owner);
        let context = &mut Context { files, out, events };
        let request = done.token.request;
        if self.step == Some(request) {
            self.step = None;
            match done.result {
                _ if matches!(self.stage, Stage::Ended) => {}
                Ok(result) => {
                    self.on_space(context.events);
                    self.on_step(result, context);
                }
                Err(error) => self.on_step_error(error, context),
            }
        } else if let Some(flight) = self.flights.remove(&request) {
            self.on_flight(request, flight, done.result, context);
        }
        self.close_retired(context.out);
        self.advance(context);
        self.tell_removed(context.events);
        self.assert_invariants();
    }

    /// A read that was in flight when the log went keeps its file open: the owner, which forgets
    /// the journal once it is told, must wait for it.
    fn tell_removed(&mut self, events: &mut Vec<JournalEvent>) {
        if self.removed && self.flights.is_empty() {
            base::invariant!(self.retired.is_empty());
            self.removed = false;
            events.push(JournalEvent::Removed);
        }
    }

    /// Appends the next op; it is written by the next [`Self::submit`].
    ///
    /// # Panics
    /// If it is not the next op of this chain.
    pub fn append(&mut self, prepare: Bytes) {
        base::invariant!(
            !matches!(self.stage, Stage::Recovering(_)),
            "recovery comes first"
        );
        base::invariant!(self.ending.is_none());
        debug_assert!(verify_header(&prepare).is_ok());
        let header = PrepareHeader::decode(&prepare).expect("the caller appends prepares");
        base::invariant!(header.size as usize == prepare.len());
        base::invariant!(header.group == self.config.group);
        base::invariant!(header.op == self.head.next());
        match self.head_checksum {
            Some(checksum) => base::invariant!(header.parent == checksum),
            None => self.identify_head(header.parent),
        }
        self.head = header.op;
        self.head_checksum = Some(header.checksum);
        self.tail.push(Item::new(header, prepare, None));
        self.tail.evict(self.config.tail_cache, self.written);
        self.assert_invariants();
    }

    /// Lets everything appended so far be written, in as few writes as segments allow; called
    /// once per turn. What is submitted while a write is in flight goes into the next one.
    pub fn submit(&mut self, files: &mut FileIds, out: &mut Outbox) {
        self.submitted = self.head;
        self.advance_quietly(files, out);
    }

    /// Asks for everything written so far to become durable; [`JournalEvent::Synced`]. A
    /// persisted journal does so by itself.
    pub fn sync(&mut self, out: &mut Outbox) {
        let writing = matches!(self.stage, Stage::Writing { .. });
        if self.config.persisted || (self.synced == self.written && !writing) {
            return;
        }
        self.sync_wanted = true;
        if matches!(self.stage, Stage::Idle) && self.ending.is_none() {
            self.start_sync(out);
        }
        self.assert_invariants();
    }

    /// Drops all ops above `op`, wherever they are: [`JournalEvent::Truncated`] once that is
    /// durable. Appending may go on at once; nothing appended is written before.
    ///
    /// # Panics
    /// If `op` is above the head.
    pub fn truncate_after(&mut self, op: Op, files: &mut FileIds, out: &mut Outbox) {
        base::invariant!(
            !matches!(self.stage, Stage::Recovering(_)),
            "recovery comes first"
        );
        base::invariant!(op <= self.head);
        base::invariant!(op >= self.base.0);
        self.tail.truncate(op);
        if op < self.head {
            self.head_checksum = self.identity(op);
            self.give_up_patrol();
        }
        self.cut_holes(op);
        self.head = op;
        self.submitted = op;
        self.written = self.written.min(op);
        self.synced = self.synced.min(op);
        self.truncations.retain(|pending| *pending < op);
        self.truncations.push_back(op);
        for segment in &mut self.segments {
            segment.index.cut(op);
        }
        self.clamp_readers(op);
        self.advance_quietly(files, out);
    }

    /// Header of one of the newest ops: of at least the last 128, unless a truncation has just
    /// taken them away.
    #[must_use]
    pub fn header(&self, op: Op) -> Option<PrepareHeader> {
        self.tail.get(op).map(|item| item.header)
    }

    /// The last op appended and its checksum, 0 for the empty log. While a truncation to below
    /// the ops in memory runs, the checksum is 0 until it has been read.
    #[must_use]
    pub fn head(&self) -> (Op, u128) {
        (self.head, self.head_checksum.unwrap_or(0))
    }

    /// The identity of an op, if it is in memory or missing.
    fn identity(&self, op: Op) -> Option<u128> {
        if op == self.base.0 {
            return Some(self.base.1).filter(|checksum| *checksum != 0 || op == Op(0));
        }
        let here = self.tail.get(op).map(|item| item.header.checksum);
        here.or_else(|| self.hole_that_ends(op)?.checksum)
    }

    /// The last op appended.
    #[must_use]
    pub const fn appended_op(&self) -> Op {
        self.head
    }

    /// The last op in the page cache.
    #[must_use]
    pub const fn written_op(&self) -> Op {
        self.written
    }

    /// The last op that survives a power loss.
    #[must_use]
    pub const fn synced_op(&self) -> Op {
        self.synced
    }

    /// The oldest op on disk, or the first to come.
    #[must_use]
    pub fn first_op(&self) -> Op {
        let oldest = self.segments.first().filter(|_| !self.resetting);
        let first = oldest.map(|segment| segment.first);
        first.unwrap_or(self.base.0.next())
    }

    /// The op before the first of the log, and its identity; 0 if there is none, or if damage
    /// hides it.
    #[must_use]
    pub const fn base(&self) -> (Op, u128) {
        self.base
    }

    /// Whether there was nothing of this log on the disk when it was opened.
    #[must_use]
    pub const fn was_absent(&self) -> bool {
        self.absent
    }

    /// Segment files.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Bytes in segment files.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size).sum()
    }

    /// Whether nothing is appended that is not written, and nothing is in flight.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let at_rest = matches!(self.stage, Stage::Idle | Stage::Ended);
        at_rest && self.flights.is_empty() && self.written == self.head
    }

    /// Closes all files once everything submitted is done; nothing may be appended any more.
    pub fn close(&mut self, out: &mut Outbox) {
        self.ending.get_or_insert(Ending::Close);
        let at_rest = matches!(self.stage, Stage::Idle) && self.flights.is_empty();
        if at_rest && !self.has_work() {
            self.close_all(out);
        }
    }

    /// Removes the whole log once nothing is in flight: [`JournalEvent::Removed`]. Reads that
    /// have not ended are not answered.
    pub fn remove(&mut self, out: &mut Outbox) {
        self.ending = Some(Ending::Remove);
        if self.full || self.waits_for_its_owner() {
            self.full = false;
            self.stage = Stage::Idle;
        }
        if matches!(self.stage, Stage::Idle) {
            self.start_removal(out);
        }
    }

    fn assert_invariants(&self) {
        base::invariant!(self.synced <= self.written);
        base::invariant!(self.written <= self.submitted);
        base::invariant!(self.submitted <= self.head);
        if self.written < self.head {
            let first = self
                .tail
                .first_record()
                .expect("unwritten records are in memory");
            base::invariant!(first <= self.written.next());
        }
        if let Some(op) = self.truncations.front() {
            base::invariant!(self.written <= *op);
        }
    }

    /// As [`Self::advance`], from an entry point that has nobody to tell: starting work never
    /// completes any.
    fn advance_quietly(&mut self, files: &mut FileIds, out: &mut Outbox) {
        let mut events = Vec::new();
        self.advance(&mut Context {
            files,
            out,
            events: &mut events,
        });
        base::invariant!(events.is_empty(), "starting work tells nothing");
        self.assert_invariants();
    }

    /// Starts the next work, if nothing is in flight.
    fn advance(&mut self, context: &mut Context<'_>) {
        while self.step.is_none() {
            let moved = match self.stage {
                Stage::Idle => self.start_work(context),
                Stage::OpeningTarget(_) => self.continue_cut(context),
                _ => false,
            };
            if !moved {
                return;
            }
        }
    }

    /// The last op that may be written now.
    fn write_limit(&self) -> Op {
        if self.resetting {
            return self.written;
        }
        self.truncations
            .front()
            .map_or(self.submitted, |op| self.submitted.min(*op))
    }

    fn has_work(&self) -> bool {
        if self.sync_is_due() || self.full {
            return self.sync_is_due();
        }
        let truncates = |op: &Op| self.may_truncate(*op);
        self.resetting
            || self.complete_hole().is_some()
            || self.written < self.write_limit()
            || self.truncations.front().is_some_and(truncates)
            || self.may_drop()
    }

    /// What to do next, in order of urgency. Answers whether anything changed.
    fn start_work(&mut self, context: &mut Context<'_>) -> bool {
        if self.ending == Some(Ending::Remove) {
            self.start_removal(context.out);
        } else if self.sync_is_due() {
            self.sync_written(context);
        } else if !self.has_work() {
            base::sometimes!(
                !self.truncations.is_empty() && !self.full,
                "storage: a truncation waits for a repair"
            );
            if self.ending != Some(Ending::Close) || !self.flights.is_empty() {
                return false;
            }
            self.close_all(context.out);
        } else if self.resetting {
            self.start_reset(context);
        } else if let Some(hole) = self.complete_hole() {
            self.start_repair(hole, context);
        } else if self.written < self.write_limit() {
            self.start_write(context);
        } else if let Some(op) = self
            .truncations
            .front()
            .copied()
            .filter(|op| self.may_truncate(*op))
        {
            self.start_truncation(op, context);
        } else {
            self.start_drop(context);
        }
        true
    }

    fn on_step(&mut self, result: DiskResult, context: &mut Context<'_>) {
        match (core::mem::replace(&mut self.stage, Stage::Idle), result) {
            (Stage::Recovering(recovery), result) => {
                self.on_recovery(*recovery, Ok(result), context);
            }
            (Stage::Creating, DiskResult::Opened { .. }) => self.on_created(),
            (Stage::Writing { to, .. }, DiskResult::Written) => self.on_written(to, context.events),
            (Stage::SyncingData { to }, DiskResult::Done) => self.on_data_synced(to, context),
            (Stage::SyncingNames { to }, DiskResult::Done) => {
                self.name_durable = true;
                self.on_synced(to, context.events);
            }
            (
                Stage::Sequence { requests, then, .. },
                DiskResult::Done | DiskResult::Written | DiskResult::Opened { .. },
            ) => self.continue_sequence(requests, then, context),
            (Stage::ListingToRemove, DiskResult::Names(names)) => {
                self.remove_names(&names, context);
            }
            (stage, result) => panic!("{result:?} is no answer in {stage:?}"),
        }
    }

    fn on_step_error(&mut self, error: DiskError, context: &mut Context<'_>) {
        let syncs = matches!(
            self.stage,
            Stage::SyncingData { .. } | Stage::SyncingNames { .. }
        );
        if syncs && base::planted::bug(36) {
            return self.on_step(DiskResult::Done, context);
        }
        match core::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Recovering(recovery) => self.on_recovery(*recovery, Err(error), context),
            Stage::ListingToRemove if error == DiskError::NotFound => {
                self.remove_names(&[], context);
            }
            stage => {
                self.stage = stage;
                if error != DiskError::Full || !self.on_full(context.events) {
                    self.fail(error, context.events);
                }
            }
        }
    }

    fn on_flight(
        &mut self,
        request: u64,
        flight: Flight,
        result: Result<DiskResult, DiskError>,
        context: &mut Context<'_>,
    ) {
        if matches!(self.stage, Stage::Ended) {
            if let (Flight::Open { file, .. }, Ok(_)) = (flight, result) {
                self.retire(file);
            }
            return;
        }
        match (flight, result) {
            (Flight::Open { segment, file }, Ok(DiskResult::Opened { .. })) => {
                self.on_opened(segment, Some(file), context);
            }
            (Flight::Open { segment, file }, Err(error)) => {
                // A truncation may have removed the file under the request.
                if self.is_opening(segment, file) {
                    self.fail(error, context.events);
                } else {
                    self.on_opened(segment, None, context);
                }
            }
            (Flight::Read { reader, .. }, Ok(DiskResult::Read { buffer })) => {
                self.on_read(reader, Ok(buffer), context);
            }
            (Flight::Read { reader, .. }, Err(error)) => {
                self.on_read(reader, Err(error), context);
            }
            (Flight::Scan { .. }, Ok(DiskResult::Read { buffer })) => {
                self.on_scanned(request, Ok(buffer), context);
            }
            (Flight::Scan { .. }, Err(error)) => self.on_scanned(request, Err(error), context),
            (flight, result) => panic!("{result:?} is no answer to {flight:?}"),
        }
    }

    fn fail(&mut self, error: DiskError, events: &mut Vec<JournalEvent>) {
        self.stage = Stage::Ended;
        self.readers.clear();
        self.give_up_patrol();
        events.push(JournalEvent::Failed(error));
    }

    fn start_step(&mut self, request: DiskRequest, out: &mut Outbox) {
        base::invariant!(self.step.is_none());
        self.step = Some(self.request(request, out));
    }

    fn request(&mut self, request: DiskRequest, out: &mut Outbox) -> u64 {
        self.requests += 1;
        let token = Token {
            owner: self.config.owner,
            request: self.requests,
        };
        out.push(Effect::Disk { token, request });
        self.requests
    }

    fn expected(&self, op: Op, parent: Option<u128>) -> Expected {
        Expected {
            cluster: self.config.cluster,
            group: self.config.group,
            op,
            parent,
        }
    }

    fn segment_path(&self, first: Op) -> Path {
        self.config.directory.join(&segment_name(first))
    }

    /// The segment that starts with `first`.
    fn segment_index(&self, first: Op) -> Option<usize> {
        self.segments
            .binary_search_by_key(&first, |segment| segment.first)
            .ok()
    }

    fn is_opening(&self, first: Op, file: FileId) -> bool {
        let index = self.segment_index(first);
        index.is_some_and(|index| self.segments[index].file == SegmentFile::Opening(file))
    }

    /// Notes a record in the index of the active segment.
    fn note(&mut self, op: Op, position: u64, messages: Option<Messages>) {
        let after_gap = self.hole_that_ends(Op(op.0 - 1)).is_some();
        let interval = if after_gap {
            0
        } else {
            self.config.index_interval
        };
        let active = self.segments.last_mut().expect("a record is in a segment");
        active.index.note(op, position, interval);
        let Some(messages) = messages else { return };
        for segment in self.segments.iter_mut().rev() {
            if !segment.index.fill(op, messages) {
                break;
            }
        }
    }
}
