//! Reading the whole log at start-up, a chunk at a time.
//!
//! ```text
//!   list ─▶ open, sync, evict ─▶ read ─▶ next segment ... ─▶ cut ─▶ recovered
//!                                │  ▲                    └─▶ wait for cut_damaged
//!                       invalid  ▼  │  holes are known
//!                                scan
//! ```
//!
//! A record that is not what it must be does not end the log. The rest of its segment is scanned,
//! and read again around the holes. Whether a crash can have left a hole, or only damage, decides
//! what becomes of it: see `docs/format.md`, "Torn, missing, damaged".
//!
//! A segment is synced and evicted before it is read: it may have been written or repaired just
//! before the process died, and after a failed sync the page cache may show what the device never
//! took.

use alloc::{
    boxed::Box,
    collections::{BTreeSet, VecDeque},
    format,
    string::String,
    vec::Vec,
};

use base::{Buffer, Bytes, Op};
use platform::{DiskError, DiskRequest, DiskResult, Effect, Level, OpenMode, Outbox};
use wire::{
    HEADER_SIZE,
    replica::{Invalid, PrepareHeader},
};

use super::{
    Context, Damage, Journal, JournalEvent, Stage,
    cut::{Cut, Then},
    holes::Hole,
    salvage::{Outcome, Salvage},
    scan::{Layout, Origin, Scan},
};
use crate::{
    FileIds,
    record::{Examined, examine},
    segment::{SEGMENT_HEADER_SIZE, Segment, SegmentFile, SegmentHeader, parse_name},
    tail::Item,
};

/// Scans of one segment; each finds damage that the one before did not.
const SCANS_MAX: u32 = 16;

/// What recovery waits for.
#[derive(Debug, Default)]
enum Phase {
    #[default]
    Reading,
    /// A segment, before it is read.
    Syncing,
    Evicting,
    Scanning(Scan),
    /// For [`Journal::cut_damaged`].
    Waiting(Cut),
}

/// How the log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// As it was left, or torn by a crash.
    Crash,
    /// It may have held more.
    Damage,
}

/// The last whole record.
#[derive(Clone, Copy, Debug)]
struct Whole {
    op: Op,
    checksum: u128,
    segment: Op,
    end: u64,
}

/// How far recovery has come.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    phase: Phase,
    /// Segments that have not been opened yet, by first op.
    ahead: VecDeque<Op>,
    salvage: Salvage,
    /// Size of the file being read.
    size: u64,
    /// Where the next record begins.
    position: u64,
    /// Bytes to read from there at least.
    need: usize,
    /// Scans of this segment so far.
    scans: u32,
    /// Where the log ends in the last segment, if a scan has told, and how.
    end: Option<(u64, Ending)>,
    whole: Option<Whole>,
    /// Segments whose header is to be written anew.
    headless: BTreeSet<Op>,
    /// Highest op of a whole record out of place.
    stray: Op,
}

impl Journal {
    pub(super) fn on_recovery(
        &mut self,
        recovery: Recovery,
        result: Result<DiskResult, DiskError>,
        context: &mut Context<'_>,
    ) {
        let chunk = match result {
            Ok(DiskResult::Names(names)) => return self.on_names(recovery, &names, context),
            Err(DiskError::NotFound) if self.segments.is_empty() => {
                self.absent = true;
                return self.on_names(recovery, &[], context);
            }
            Ok(DiskResult::Opened { size }) => return self.on_segment(recovery, size, context),
            Ok(DiskResult::Done) => return self.on_synced_segment(recovery, context),
            Ok(DiskResult::Read { buffer }) => Ok(buffer),
            Err(error) if matches!(recovery.phase, Phase::Reading | Phase::Scanning(_)) => {
                // What could not be opened or listed is no damage of its content.
                if recovery.size == 0 {
                    return self.fail(error, context.events);
                }
                base::sometimes!("storage: a read of recovery failed");
                Err(error)
            }
            Err(error) => return self.fail(error, context.events),
            Ok(result) => panic!("{result:?} is no answer to recovery"),
        };
        self.on_piece(recovery, chunk, context);
    }

    fn on_piece(
        &mut self,
        mut recovery: Recovery,
        piece: Result<Buffer, DiskError>,
        context: &mut Context<'_>,
    ) {
        match recovery.salvage.on_read(piece) {
            Outcome::Dead => self.fail(DiskError::Io, context.events),
            Outcome::Again(offset, size) => self.recovery_read(recovery, offset, size, context),
            Outcome::Chunk(chunk) => {
                if let Phase::Scanning(scan) = &mut recovery.phase {
                    scan.on_chunk(&chunk);
                    self.scan_on(recovery, context);
                } else {
                    self.on_chunk(recovery, &chunk, context);
                }
            }
        }
    }

    fn on_names(&mut self, mut recovery: Recovery, names: &[String], context: &mut Context<'_>) {
        recovery.ahead = names.iter().filter_map(|name| parse_name(name)).collect();
        recovery.ahead.retain(|first| *first > Op(0));
        recovery.ahead.make_contiguous().sort_unstable();
        let others = [".checkpoint", ".tmp"];
        let foreign = names
            .iter()
            .filter(|name| parse_name(name).is_none())
            .filter(|name| !others.iter().any(|other| name.ends_with(other)))
            .count();
        if foreign > 0 {
            let directory = &self.config.directory;
            let line = format!("{directory}: left alone {foreign} files that are no segments");
            let level = Level::Warn;
            context.out.push(Effect::Log { level, line });
        }
        let Some(&first) = recovery.ahead.front() else {
            let cut = Cut {
                doomed: Vec::new(),
                end: None,
                before: self.create_directories(),
                then: Then::Recovered { cut_bytes: 0 },
            };
            return self.start_cut(cut, context);
        };
        base::sometimes!(first > Op(1), "storage: a log begins after op 1");
        let before = Op(first.0 - 1);
        self.base = (before, 0);
        self.skip_to(before, (before == Op(0)).then_some(0));
        self.open_next(recovery, context);
    }

    /// Everything up to `op` is on disk, or missing.
    fn skip_to(&mut self, op: Op, checksum: Option<u128>) {
        self.head = op;
        self.head_checksum = checksum;
        self.submitted = op;
        self.written = op;
        self.synced = op;
    }

    /// Opens the next segment, or ends recovery at the clean end of the last one.
    fn open_next(&mut self, mut recovery: Recovery, context: &mut Context<'_>) {
        let Some(&first) = recovery.ahead.front() else {
            return self.finish(recovery, Ending::Crash, context);
        };
        if first <= self.head {
            // Two files claim the same ops.
            let events = &mut *context.events;
            self.tell_damage(self.head, first, 0, Invalid::Field, events);
            return self.fail(DiskError::Io, events);
        }
        base::invariant!(first == self.head.next());
        recovery.ahead.pop_front();
        recovery.scans = 0;
        recovery.size = 0;
        recovery.phase = Phase::Reading;
        let file = context.files.next();
        self.segments
            .push(Segment::new(first, SegmentFile::Open(file)));
        self.close_sealed(context.out);
        let path = self.segment_path(first);
        let mode = OpenMode::Existing;
        self.recovery_step(
            recovery,
            DiskRequest::Open { file, path, mode },
            context.out,
        );
    }

    fn recovery_step(&mut self, recovery: Recovery, request: DiskRequest, out: &mut Outbox) {
        self.stage = Stage::Recovering(Box::new(recovery));
        self.start_step(request, out);
    }

    fn recovery_file(&self) -> platform::FileId {
        let active = self.segments.last().expect("a segment is open");
        active.open().expect("recovery has opened it")
    }

    /// A segment is open.
    fn on_segment(&mut self, mut recovery: Recovery, size: u64, context: &mut Context<'_>) {
        recovery.size = size;
        recovery.position = 0;
        recovery.need = HEADER_SIZE;
        let file = self.recovery_file();
        recovery.phase = Phase::Syncing;
        self.recovery_step(recovery, DiskRequest::SyncData { file }, context.out);
    }

    fn on_synced_segment(&mut self, mut recovery: Recovery, context: &mut Context<'_>) {
        let file = self.recovery_file();
        if matches!(recovery.phase, Phase::Syncing) {
            recovery.phase = Phase::Evicting;
            self.recovery_step(recovery, DiskRequest::Evict { file }, context.out);
        } else {
            recovery.phase = Phase::Reading;
            self.read_on(recovery, context);
        }
    }

    /// Reads the next chunk of the open segment, or goes on to the next one.
    fn read_on(&mut self, mut recovery: Recovery, context: &mut Context<'_>) {
        if recovery.position == 0 && recovery.size < SEGMENT_HEADER_SIZE {
            self.lack_header(&mut recovery);
        }
        while let Some(hole) = self.hole_at(self.head.next()) {
            let (to, checksum, end) = (hole.to, hole.checksum, hole.end);
            self.skip_to(to, checksum);
            recovery.need = HEADER_SIZE;
            let Some(end) = end else { break };
            recovery.position = end;
        }
        let active = self.segments.last_mut().expect("a segment is open");
        active.size = active.size.max(recovery.position.min(recovery.size));
        let last = recovery.ahead.front().map(|next| Op(next.0 - 1));
        if last == Some(self.head) && recovery.position > 0 {
            return self.open_next(recovery, context);
        }
        if let Some((end, ending)) = recovery.end
            && recovery.position >= end
        {
            return self.finish(recovery, ending, context);
        }
        let left = recovery.size.saturating_sub(recovery.position);
        if left == 0 {
            return match last {
                Some(last) => self.on_short(recovery, last, context),
                None => self.finish(recovery, Ending::Crash, context),
            };
        }
        if left < recovery.need as u64 {
            return self.on_invalid(recovery, context);
        }
        let chunk = self.config.read_chunk.max(recovery.need);
        let chunk = usize::try_from(left).map_or(chunk, |left| chunk.min(left));
        let position = recovery.position;
        recovery.salvage.ask(position, chunk);
        self.recovery_read(recovery, position, chunk, context);
    }

    fn recovery_read(
        &mut self,
        recovery: Recovery,
        offset: u64,
        size: usize,
        context: &mut Context<'_>,
    ) {
        let read = DiskRequest::Read {
            file: self.recovery_file(),
            offset,
            buffer: recovery.salvage.room(size),
        };
        self.recovery_step(recovery, read, context.out);
    }

    fn on_chunk(&mut self, mut recovery: Recovery, chunk: &Bytes, context: &mut Context<'_>) {
        if chunk.len() < recovery.need {
            // The file is shorter than it was said to be.
            recovery.size = recovery.position + chunk.len() as u64;
            return self.read_on(recovery, context);
        }
        let mut at = 0;
        if recovery.position == 0 {
            at = HEADER_SIZE;
            self.on_header(&mut recovery, chunk);
        }
        while self.hole_at(self.head.next()).is_none() && !self.is_sealed_at_head(&recovery) {
            let expected = self.expected(self.head.next(), self.head_checksum);
            match examine(&chunk[at..], &expected) {
                Examined::Record(header) => {
                    let end = at + header.size as usize;
                    self.recover_record(&mut recovery, header, chunk.slice(at, end), context);
                    at = end;
                    recovery.need = HEADER_SIZE;
                }
                Examined::Short(need) => {
                    recovery.need = need;
                    break;
                }
                Examined::Invalid(_) => return self.on_invalid(recovery, context),
            }
        }
        self.read_on(recovery, context);
    }

    /// Whether the open segment is complete and not the last.
    fn is_sealed_at_head(&self, recovery: &Recovery) -> bool {
        recovery.ahead.front() == Some(&self.head.next())
    }

    /// A segment's header: whose log this is, and what the op before was.
    fn on_header(&mut self, recovery: &mut Recovery, chunk: &[u8]) {
        let header = SegmentHeader::decode(chunk).filter(|header| {
            let follows = |parent| header.parent == 0 || parent == header.parent;
            header.cluster == self.config.cluster
                && header.group == self.config.group
                && header.first == self.head.next()
                && self.head_checksum.is_none_or(follows)
        });
        let Some(header) = header else {
            return self.lack_header(recovery);
        };
        recovery.position = SEGMENT_HEADER_SIZE;
        if header.parent != 0 {
            self.learn_parent(header.parent);
        }
    }

    fn lack_header(&mut self, recovery: &mut Recovery) {
        base::sometimes!("storage: a segment has no header");
        recovery.position = SEGMENT_HEADER_SIZE;
        let active = self.segments.last().expect("a segment is open");
        recovery.headless.insert(active.first);
        // What it would have said may be known: the segments before can go without it.
        if let Some(parent) = self.head_checksum
            && active.first == self.head.next()
        {
            self.learn_parent(parent);
        }
    }

    /// The identity of the op before the open segment has become known.
    fn learn_parent(&mut self, parent: u128) {
        let active = self.segments.last_mut().expect("a segment is open");
        active.parent = Some(parent);
        let before = Op(active.first.0 - 1);
        if before == self.base.0 {
            self.base.1 = parent;
        }
        if self.head == before && self.head_checksum.is_none() {
            self.head_checksum = Some(parent);
            self.identify_head(parent);
        }
    }

    fn recover_record(
        &mut self,
        recovery: &mut Recovery,
        header: PrepareHeader,
        record: Bytes,
        context: &mut Context<'_>,
    ) {
        let segment = self.segments.last().expect("a segment is open").first;
        let position = recovery.position;
        if header.op == segment {
            self.learn_parent(header.parent);
        }
        let item = Item::new(header, record.clone(), Some((segment, position)));
        self.note(header.op, position, item.messages);
        if self
            .tail
            .last()
            .is_some_and(|last| last.next() != header.op)
        {
            self.tail = crate::tail::Tail::default();
        }
        self.tail.push(item);
        self.skip_to(header.op, Some(header.checksum));
        self.tail.evict(self.config.tail_cache, self.written);
        recovery.position += u64::from(header.size);
        recovery.whole = Some(Whole {
            op: header.op,
            checksum: header.checksum,
            segment,
            end: recovery.position,
        });
        let event = JournalEvent::Record { prepare: record };
        context.events.push(event);
    }

    /// A segment that is not the last ends before it should.
    fn on_short(&mut self, recovery: Recovery, last: Op, context: &mut Context<'_>) {
        let active = self.segments.last().expect("a segment is open");
        let from = self.head.next();
        let is_full = active.first < from && active.size >= self.config.segment_size;
        let hole = if is_full {
            base::sometimes!("storage: a segment file is missing");
            let mut segment = Segment::new(from, SegmentFile::Closed);
            segment.parent = self.head_checksum;
            self.segments.push(segment);
            Hole::new(from, (from, last), SEGMENT_HEADER_SIZE)
        } else {
            base::sometimes!("storage: a sealed segment is too short");
            Hole::new(active.first, (from, last), recovery.position)
        };
        self.add_hole(hole);
        self.skip_to(last, None);
        self.open_next(recovery, context);
    }

    /// The next record is not what it must be: what stands behind it?
    fn on_invalid(&mut self, mut recovery: Recovery, context: &mut Context<'_>) {
        if base::planted::bug(26) {
            return self.finish(recovery, Ending::Crash, context);
        }
        recovery.scans += 1;
        if recovery.scans > SCANS_MAX {
            return self.fail(DiskError::Io, context.events);
        }
        let origin = Origin {
            op: self.head.next(),
            parent: self.head_checksum,
            position: recovery.position,
        };
        let (cluster, group) = (self.config.cluster, self.config.group);
        let scan = Scan::new(cluster, group, origin, recovery.size);
        recovery.phase = Phase::Scanning(if self.config.loses_pages {
            scan
        } else {
            scan.keeps_pages()
        });
        self.scan_on(recovery, context);
    }

    fn scan_on(&mut self, mut recovery: Recovery, context: &mut Context<'_>) {
        let Phase::Scanning(scan) = &recovery.phase else {
            unreachable!("the caller scans")
        };
        if let Some((offset, size)) = scan.next_read(self.config.read_chunk) {
            recovery.salvage.ask(offset, size);
            return self.recovery_read(recovery, offset, size, context);
        }
        let last = recovery.ahead.front().map(|next| Op(next.0 - 1));
        let layout = scan.layout(last, last.is_some());
        recovery.phase = Phase::Reading;
        recovery.need = HEADER_SIZE;
        recovery.stray = recovery.stray.max(layout.stray);
        // An earlier scan may have found less.
        let next = self.head.next();
        self.holes.retain(|hole| hole.from < next);
        match last {
            Some(last) => self.mend_sealed(&layout, last),
            None => self.mend_last(&mut recovery, &layout),
        }
        self.read_on(recovery, context);
    }

    /// A segment that is not the last was durable, all of it.
    fn mend_sealed(&mut self, layout: &Layout, last: Op) {
        base::sometimes!("storage: a sealed segment is damaged");
        self.add_missing(layout, layout.missing.len());
        if layout.end.op <= last {
            let segment = self.segments.last().expect("a segment is open").first;
            let hole = Hole::new(segment, (layout.end.op, last), layout.end.position);
            self.add_hole(hole);
        }
    }

    fn add_missing(&mut self, layout: &Layout, count: usize) {
        let segment = self.segments.last().expect("a segment is open").first;
        for missing in &layout.missing[..count] {
            let mut hole = Hole::new(segment, (missing.from, missing.to), missing.position);
            hole.end = Some(missing.end);
            hole.identify(Some(missing.checksum));
            hole.next = missing.next;
            self.add_hole(hole);
        }
    }

    /// In the last segment a hole may be what a crash has left: nothing after it was durable, so
    /// nothing was acknowledged. Unless a record says that the op was committed, or that there
    /// were later ones.
    fn mend_last(&mut self, recovery: &mut Recovery, layout: &Layout) {
        let crashed = |torn: bool, op: Op| torn && layout.commit < op && recovery.stray < op;
        let mut torn_at = None;
        for (index, missing) in layout.missing.iter().enumerate() {
            if crashed(missing.torn, missing.from) {
                torn_at = Some((index, missing.position));
                break;
            }
            base::sometimes!(
                missing.torn,
                "storage: a committed op is missing like a torn one"
            );
        }
        if let Some((count, position)) = torn_at {
            base::sometimes!("storage: what follows a torn record is dropped with it");
            self.add_missing(layout, count);
            recovery.end = Some((position, Ending::Crash));
            return;
        }
        self.add_missing(layout, layout.missing.len());
        let end = layout.end;
        let is_clean = end.position >= recovery.size;
        let ending = if is_clean || crashed(layout.end_torn, end.op) {
            base::sometimes!(!is_clean, "storage: a torn tail is cut");
            Ending::Crash
        } else {
            Ending::Damage
        };
        base::sometimes!(
            !layout.missing.is_empty(),
            "storage: the last segment is damaged amid whole records"
        );
        recovery.end = Some((end.position, ending));
    }

    /// The log ends after the last whole record.
    fn finish(&mut self, mut recovery: Recovery, mut ending: Ending, context: &mut Context<'_>) {
        if self.ending == Some(super::Ending::Remove) {
            // Nobody will read it, nor need its end be found.
            self.stage = Stage::Idle;
            return;
        }
        let head = recovery.whole.map_or(self.base.0, |whole| whole.op);
        if head < self.head || recovery.stray > head {
            base::sometimes!(
                recovery.stray > head,
                "storage: a misplaced record tells that the log was longer"
            );
            ending = Ending::Damage;
        }
        let read = self.segments.last().map(|segment| segment.first);
        let checksum = recovery.whole.map(|whole| whole.checksum);
        let base = Some(self.base.1).filter(|parent| *parent != 0 || self.base.0 == Op(0));
        self.skip_to(head, checksum.or(base));
        self.cut_holes(head);
        let mut doomed: Vec<_> = recovery.ahead.iter().rev().copied().collect();
        // Of a log that begins after a base the first segment stays: its header is the base.
        let keeps_first = usize::from(self.base.0 > Op(0));
        while self.segments.len() > keeps_first
            && let Some(segment) = self.segments.pop_if(|segment| segment.first > head)
        {
            doomed.push(segment.first);
            recovery.headless.remove(&segment.first);
            if let Some(file) = segment.open() {
                self.retire(file);
            }
        }
        self.close_retired(context.out);
        let mut end = None;
        let mut cut_bytes = recovery.size;
        if let Some(last) = self.segments.last_mut() {
            let kept = recovery
                .whole
                .map_or(SEGMENT_HEADER_SIZE, |whole| whole.end);
            base::invariant!(
                recovery
                    .whole
                    .is_none_or(|whole| whole.segment == last.first)
            );
            last.size = kept;
            let is_open = Some(last.first) == read;
            if is_open {
                cut_bytes = recovery.size.saturating_sub(kept);
            }
            if !is_open && ending == Ending::Damage || is_open && cut_bytes > 0 {
                end = Some(kept);
            }
        }
        let before = self.rebuild_headers(&recovery, context.files);
        let cut = Cut {
            doomed,
            end,
            before,
            then: Then::Recovered { cut_bytes },
        };
        if ending == Ending::Damage {
            base::sometimes!("storage: the end of the log is damaged");
            recovery.phase = Phase::Waiting(cut);
            self.stage = Stage::Recovering(Box::new(recovery));
            let event = JournalEvent::TailDamaged { after: head };
            context.events.push(event);
            return;
        }
        self.start_cut(cut, context);
    }

    /// After [`JournalEvent::TailDamaged`]: the owner has made durable that the log may lack
    /// ops; recovery goes on.
    pub fn cut_damaged(&mut self, files: &mut FileIds, out: &mut Outbox) {
        match core::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Recovering(recovery) if matches!(recovery.phase, Phase::Waiting(_)) => {
                let Phase::Waiting(cut) = recovery.phase else {
                    unreachable!("just seen")
                };
                let mut events = Vec::new();
                let context = &mut Context {
                    files,
                    out,
                    events: &mut events,
                };
                self.start_cut(cut, context);
                base::invariant!(events.is_empty(), "starting work tells nothing");
            }
            stage => self.stage = stage,
        }
    }

    /// Whether it waits for [`Self::cut_damaged`].
    pub(super) fn waits_for_its_owner(&self) -> bool {
        let waits = |recovery: &Recovery| matches!(recovery.phase, Phase::Waiting(_));
        matches!(&self.stage, Stage::Recovering(recovery) if waits(recovery))
    }

    /// Writes headers that are damaged, where it is known what they were. The others come with
    /// the repair of their first op.
    fn rebuild_headers(&self, recovery: &Recovery, files: &mut FileIds) -> Vec<DiskRequest> {
        let mut requests = Vec::new();
        for first in &recovery.headless {
            let Some(index) = self.segment_index(*first) else {
                continue;
            };
            if self.is_missing(*first) {
                continue;
            }
            base::sometimes!("storage: a segment's header is written anew");
            // Nothing but the header itself tells the base of a log without records.
            let parent = self.segments[index].parent.unwrap_or(0);
            let (file, path) = (files.next(), self.segment_path(*first));
            let mode = OpenMode::Existing;
            requests.push(DiskRequest::Open { file, path, mode });
            requests.push(DiskRequest::Write {
                file,
                offset: 0,
                data: [self.segment_header(*first, parent)].into(),
            });
            requests.push(DiskRequest::SyncData { file });
            requests.push(DiskRequest::Close { file });
        }
        requests
    }

    fn tell_damage(
        &self,
        op: Op,
        segment: Op,
        position: u64,
        reason: Invalid,
        events: &mut Vec<JournalEvent>,
    ) {
        events.push(JournalEvent::Damaged(Damage {
            read: None,
            op,
            segment,
            position,
            reason,
        }));
    }
}
