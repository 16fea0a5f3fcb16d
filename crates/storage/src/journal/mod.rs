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

mod cut;
mod read;
mod recovery;
mod write;

pub use read::{ReadMessages, ReadOps};

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

use base::{Bytes, GroupId, Op};
use platform::{DiskDone, DiskError, DiskRequest, DiskResult, Effect, FileId, Outbox, Path, Token};
use wire::replica::{Invalid, PrepareHeader, verify_header};

use self::{cut::Cut, cut::Then, read::Reader, recovery::Recovery};
use crate::{
    FileIds,
    record::{Expected, Messages},
    segment::{SEGMENT_HEADER_SIZE, Segment, SegmentFile, segment_name},
    tail::{Item, Tail},
};

/// Sealed segments kept open for reading.
const SEALED_OPEN_MAX: usize = 4;

/// What a journal is for and how it behaves.
#[derive(Clone, Debug)]
pub struct JournalConfig {
    /// The group whose log it is.
    pub group: GroupId,
    /// The cluster; records of another are refused.
    pub cluster: u128,
    /// Where the segments are; missing directories are created.
    pub directory: Path,
    /// A segment of at least this size is full; the record that crosses it lands whole.
    pub segment_size: u64,
    /// Whether every write is synced at once; otherwise the caller asks for syncs.
    pub persisted: bool,
    /// Owner in the tokens of all its requests.
    pub owner: u64,
    /// Bytes read at a time, unless a record is larger.
    pub read_chunk: usize,
    /// Bytes between two entries of the index.
    pub index_interval: u64,
    /// Bytes of the newest records kept in memory.
    pub tail_cache: usize,
}

/// What a journal tells its owner.
#[derive(Debug)]
pub enum JournalEvent {
    /// During recovery: the next record of the log, verified and chained to the one before.
    Record {
        /// The sealed frame.
        prepare: Bytes,
    },
    /// During recovery: the log may have held more than what follows `after` and is not told.
    /// What stands there is neither a record nor torn by a crash. The journal waits for
    /// [`Journal::cut_damaged`].
    TailDamaged {
        /// The last op that will be left.
        after: Op,
    },
    /// Recovery has ended: everything up to `head` but the gaps is durable, anything after it is
    /// gone. `head` itself is never missing.
    Recovered {
        /// The last op.
        head: Op,
        /// The op before the first, and its identity; 0 if there is none, or if damage hides it.
        base: (Op, u128),
        /// Bytes cut from the last segment.
        cut_bytes: u64,
        /// What is missing in between, lowest first.
        gaps: Vec<Gap>,
    },
    /// Everything up to `op` is in the page cache.
    Written {
        /// The last such op.
        op: Op,
    },
    /// Everything up to `op` survives a power loss.
    Synced {
        /// The last such op.
        op: Op,
    },
    /// Nothing above `op` is left on disk, durably. A truncation that a deeper one has overtaken
    /// is not told.
    Truncated {
        /// The op asked for.
        op: Op,
    },
    /// A read has ended well.
    Read {
        /// As given.
        id: u64,
        /// Sealed frames in op order, verified; none if there was nothing in the range, or a
        /// truncation took it away.
        prepares: Vec<Bytes>,
    },
    /// Damage was found in a log that runs: these ops are missing from now on.
    Gap(Gap),
    /// A missing op is in its place again, durably.
    Repaired {
        /// The op.
        op: Op,
    },
    /// The log is empty and begins after the op asked for, durably.
    Reset,
    /// The disk is full: nothing is written until [`Journal::retry`].
    Full,
    /// What did not fit has been written after all.
    Space,
    /// All files and the directory are gone, durably.
    Removed,
    /// The disk failed: the journal does nothing any more.
    Failed(DiskError),
    /// A record that must be there is not; ends the read or the log it was found by.
    Damaged(Damage),
}

/// Ops that were in the log and are damaged on this disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first.
    pub from: Op,
    /// The last.
    pub to: Op,
    /// Identity of the last, as the op after it names it: the hash chain tells what is missing.
    pub checksum: u128,
}

/// What was found in a record's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The read that found it; recovery or a truncation if none.
    pub read: Option<u64>,
    /// The op that must be there.
    pub op: Op,
    /// First op of the segment.
    pub segment: Op,
    /// Where in the segment.
    pub position: u64,
    /// What is wrong.
    pub reason: Invalid,
}

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
    Recovering(Recovery),
    /// A new segment's file.
    Creating,
    /// A write up to this op.
    Writing { to: Op },
    /// A sync of the active segment's data.
    SyncingData { to: Op },
    /// A sync of the active segment's name.
    SyncingNames { to: Op },
    /// A reader that fetches ops from before the tail.
    Refilling,
    /// The file that a cut ends in; opened as a reader would.
    OpeningTarget(Cut),
    /// Requests that must run one after the other.
    Sequence {
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
    /// Ascending; ops above the first are not written before it is done.
    truncations: VecDeque<Op>,
    ending: Option<Ending>,
    readers: BTreeMap<u64, Reader>,
    readers_made: u64,
    flights: BTreeMap<u64, Flight>,
    /// Files to close once no read is in flight on them.
    retired: Vec<FileId>,
    /// More sealed segments are open than should be, because all are being read.
    too_many_open: bool,
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
        journal.stage = Stage::Recovering(Recovery::default());
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
        journal.stage = Stage::Recovering(Recovery::default());
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
            base: (Op(0), 0),
            head: Op(0),
            head_checksum: Some(0),
            submitted: Op(0),
            written: Op(0),
            synced: Op(0),
            sync_wanted: false,
            name_durable: true,
            truncations: VecDeque::new(),
            ending: None,
            readers: BTreeMap::new(),
            readers_made: 0,
            flights: BTreeMap::new(),
            retired: Vec::new(),
            too_many_open: false,
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
                Ok(_) if matches!(self.stage, Stage::Ended) => {}
                Ok(result) => self.on_step(result, context),
                Err(error) => self.fail(error, context.events),
            }
        } else if let Some(flight) = self.flights.remove(&request) {
            self.on_flight(flight, done.result, context);
        }
        self.close_retired(context.out);
        self.advance(context);
        self.assert_invariants();
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
        if let Some(checksum) = self.head_checksum {
            base::invariant!(header.parent == checksum);
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
        self.tail.truncate(op);
        if op < self.head {
            let kept = self.tail.get(op).map(|item| item.header.checksum);
            self.head_checksum = if op == Op(0) { Some(0) } else { kept };
        }
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
        self.segments.first().map_or(Op(1), |segment| segment.first)
    }

    /// The op before the first of the log, and its identity; 0 if there is none, or if damage
    /// hides it.
    #[must_use]
    pub const fn base(&self) -> (Op, u128) {
        self.base
    }

    /// What is missing, lowest first.
    #[must_use]
    pub fn gaps(&self) -> Vec<Gap> {
        Vec::new()
    }

    /// Whether an op of this log is missing.
    #[must_use]
    pub fn is_missing(&self, op: Op) -> bool {
        self.gaps().iter().any(|gap| gap.from <= op && op <= gap.to)
    }

    /// Missing ops whose identity is known, in ascending order: of each gap the highest that has
    /// not come yet. The identity of the one below it is known once it has.
    pub fn wanted(&self) -> impl Iterator<Item = (Op, u128)> + '_ {
        self.gaps().into_iter().map(|gap| (gap.to, gap.checksum))
    }

    /// Takes a verified prepare, if it is wanted. [`JournalEvent::Repaired`] once its gap is
    /// complete and in its place, durably.
    pub fn repair(&mut self, prepare: Bytes, files: &mut FileIds, out: &mut Outbox) -> bool {
        let _ = (prepare, files, out);
        false
    }

    /// After [`JournalEvent::TailDamaged`]: the owner has made durable that the log may lack
    /// ops; recovery goes on.
    pub fn cut_damaged(&mut self, files: &mut FileIds, out: &mut Outbox) {
        let _ = (files, out);
    }

    /// Removes all ops and starts an empty log after `base`, whose identity is `checksum`:
    /// [`JournalEvent::Reset`] once that is durable. Appending may go on at once; nothing
    /// appended is written before. A crash in between leaves a beginning of the old log, or
    /// nothing.
    pub fn reset(&mut self, base: Op, checksum: u128, files: &mut FileIds, out: &mut Outbox) {
        let _ = (base, checksum, files, out);
    }

    /// Removes the oldest segments, whole, of which all ops are below `op`; never the active one.
    /// [`Self::first_op`] tells how far it has come.
    pub fn drop_before(&mut self, op: Op, files: &mut FileIds, out: &mut Outbox) {
        let _ = (op, files, out);
    }

    /// Verifies the next chunk of the sealed segments, round and round; nothing if a chunk is in
    /// flight. Damage is told as [`JournalEvent::Gap`].
    pub fn scrub(&mut self, files: &mut FileIds, out: &mut Outbox) {
        let _ = (files, out);
    }

    /// After [`JournalEvent::Full`]: tries again. [`JournalEvent::Space`] if it works,
    /// [`JournalEvent::Full`] if not.
    pub fn retry(&mut self, files: &mut FileIds, out: &mut Outbox) {
        let _ = (files, out);
    }

    /// Whether the journal waits for [`Self::retry`].
    #[must_use]
    pub const fn is_full(&self) -> bool {
        false
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
        self.truncations
            .front()
            .map_or(self.submitted, |op| self.submitted.min(*op))
    }

    fn has_work(&self) -> bool {
        self.sync_is_due() || self.written < self.write_limit() || !self.truncations.is_empty()
    }

    /// What to do next, in order of urgency. Answers whether anything changed.
    fn start_work(&mut self, context: &mut Context<'_>) -> bool {
        if self.ending == Some(Ending::Remove) {
            self.start_removal(context.out);
        } else if self.sync_is_due() {
            self.sync_written(context);
        } else if self.written < self.write_limit() {
            self.start_write(context);
        } else if let Some(op) = self.truncations.front().copied() {
            self.start_truncation(op, context);
        } else if self.ending == Some(Ending::Close) && self.flights.is_empty() {
            self.close_all(context.out);
        } else {
            return false;
        }
        true
    }

    fn on_step(&mut self, result: DiskResult, context: &mut Context<'_>) {
        match (core::mem::replace(&mut self.stage, Stage::Idle), result) {
            (Stage::Recovering(recovery), result) => self.on_recovery(recovery, result, context),
            (Stage::Creating, DiskResult::Opened { .. }) => self.on_created(),
            (Stage::Writing { to }, DiskResult::Written) => self.on_written(to, context.events),
            (Stage::SyncingData { to }, DiskResult::Done) => self.on_data_synced(to, context),
            (Stage::SyncingNames { to }, DiskResult::Done) => {
                self.name_durable = true;
                self.on_synced(to, context.events);
            }
            (Stage::Sequence { requests, then }, DiskResult::Done) => {
                self.continue_sequence(requests, then, context);
            }
            (Stage::ListingToRemove, DiskResult::Names(names)) => {
                self.remove_names(&names, context);
            }
            (stage, result) => panic!("{result:?} is no answer in {stage:?}"),
        }
    }

    fn on_flight(
        &mut self,
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
                self.on_read(reader, buffer, context);
            }
            (Flight::Read { .. }, Err(error)) => self.fail(error, context.events),
            (flight, result) => panic!("{result:?} is no answer to {flight:?}"),
        }
    }

    fn fail(&mut self, error: DiskError, events: &mut Vec<JournalEvent>) {
        self.stage = Stage::Ended;
        self.readers.clear();
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
        let active = self.segments.last_mut().expect("a record is in a segment");
        active.index.note(op, position, self.config.index_interval);
        let Some(messages) = messages else { return };
        for segment in self.segments.iter_mut().rev() {
            if !segment.index.fill(op, messages) {
                break;
            }
        }
    }

    /// Closes a file as soon as no read is in flight on it.
    fn retire(&mut self, file: FileId) {
        base::invariant!(!self.retired.contains(&file));
        self.retired.push(file);
    }

    fn is_in_flight(&self, file: FileId) -> bool {
        let reads =
            |flight: &Flight| matches!(flight, Flight::Read { file: of, .. } if *of == file);
        self.flights.values().any(reads)
    }

    fn close_retired(&mut self, out: &mut Outbox) {
        for file in core::mem::take(&mut self.retired) {
            if self.is_in_flight(file) {
                self.retired.push(file);
            } else {
                self.request(DiskRequest::Close { file }, out);
            }
        }
    }

    /// Closes the sealed segments that were read longest ago, beyond the bound; those that are
    /// being read have to wait.
    fn close_sealed(&mut self, out: &mut Outbox) {
        let sealed = self.segments.len().saturating_sub(1);
        let mut open: Vec<_> = self.segments[..sealed]
            .iter()
            .enumerate()
            .filter_map(|(index, segment)| Some((segment.used, index, segment.open()?)))
            .collect();
        open.sort_unstable();
        let mut excess = open.len().saturating_sub(SEALED_OPEN_MAX);
        for (_, index, file) in open {
            if excess > 0 && !self.is_in_flight(file) {
                self.segments[index].file = SegmentFile::Closed;
                self.request(DiskRequest::Close { file }, out);
                excess -= 1;
            }
        }
        self.too_many_open = excess > 0;
    }

    fn close_all(&mut self, out: &mut Outbox) {
        for index in 0..self.segments.len() {
            if let Some(file) = self.segments[index].open() {
                self.retire(file);
            }
            // One that is being opened is closed as soon as it is open.
            self.segments[index].file = SegmentFile::Closed;
        }
        self.close_retired(out);
        self.stage = Stage::Ended;
    }
}
