//! What still stands in a damaged segment, from the first record that is not whole.
//!
//! ```text
//!   record ─▶ record ─▶ ????? ──seek──▶ record ─▶ record, body damaged ─▶ record ─▶ end
//!   └───── run ─────┘   hole            └ run ┘   hole, of known identity └ run ┘
//! ```
//!
//! The place of the next record is lost with a header, so every byte may begin one. A header of
//! this log with a valid checksum begins a *run*; which runs belong to the log is decided at the
//! end, because a misdirected write leaves whole records where they do not belong. Runs must
//! follow each other in op and place, with room for what is missing between them; of all such
//! choices the one with the most records is taken, and of equal ones the one that goes on longest.

use alloc::vec::Vec;

use base::{GroupId, Op};
use wire::{
    HEADER_SIZE,
    replica::{PrepareHeader, verify, verify_header},
};

use super::salvage::SECTOR_SIZE;
use crate::record::Messages;

const CLUSTER_AT: usize = 32;
const GROUP_AT: usize = 160;

/// From here on every header of a prepare is zero.
const ZEROS_AT: u64 = 229;

/// A seek keeps a header less one byte of what it has read for the next chunk.
const CHUNK_MIN: usize = 4 << 10;

/// Runs that a run may follow, counted back from it.
const LOOK_BACK: usize = 64;

/// The record that is expected at a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) op: Op,
    /// Identity of the op before, if known.
    pub(super) parent: Option<u128>,
    pub(super) position: u64,
}

/// Records one after the other, each the parent of the next.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: Op,
    last: Op,
    position: u64,
    end: u64,
    /// As the first names it.
    parent: u128,
    /// Of the last.
    checksum: u128,
    /// Of the first.
    messages: Option<Messages>,
    /// Otherwise it is one record of which only the header is.
    whole: bool,
}

/// Ops that are missing in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) from: Op,
    pub(super) to: Op,
    pub(super) position: u64,
    pub(super) end: u64,
    /// Identity of `to`.
    pub(super) checksum: u128,
    /// Whether a crash can have left this.
    pub(super) torn: bool,
    /// Messages of the op after `to`.
    pub(super) next: Option<Messages>,
}

/// What a scan has found.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) missing: Vec<Missing>,
    /// Where the op after the last of the log would be.
    pub(super) end: Origin,
    /// Whether a crash can have left what stands there.
    pub(super) end_torn: bool,
    /// Highest op of a whole record that is not in its place.
    pub(super) stray: Op,
    /// Highest commit that any header tells.
    pub(super) commit: Op,
}

/// A scan in progress.
#[derive(Debug)]
pub(super) struct Scan {
    cluster: u128,
    group: GroupId,
    origin: Origin,
    /// Where the segment ends.
    limit: u64,
    /// Whether a crash can have left sectors of zeros in the middle of the file.
    loses_pages: bool,
    at: u64,
    /// Bytes to read from there at least.
    need: usize,
    /// Whether any byte may begin a record, and not only this one.
    seeking: bool,
    runs: Vec<Run>,
    /// Places where a record had to begin and did not, and whether a crash can have left that.
    breaks: Vec<(u64, bool)>,
    commit: Op,
}

impl Scan {
    pub(super) fn new(cluster: u128, group: GroupId, origin: Origin, limit: u64) -> Self {
        Self {
            cluster,
            group,
            origin,
            limit,
            loses_pages: true,
            at: origin.position,
            need: HEADER_SIZE,
            seeking: false,
            runs: Vec::new(),
            breaks: Vec::new(),
            commit: Op(0),
        }
    }

    /// The file is what its process left: sectors of zeros are no crash's work.
    pub(super) const fn keeps_pages(mut self) -> Self {
        self.loses_pages = false;
        self
    }

    /// Where to read on, and how much; `None` at the end.
    pub(super) fn next_read(&self, chunk: usize) -> Option<(u64, usize)> {
        let left = self.limit.saturating_sub(self.at);
        if left == 0 {
            return None;
        }
        let size = chunk.max(self.need).max(CHUNK_MIN);
        Some((
            self.at,
            usize::try_from(left).map_or(size, |left| size.min(left)),
        ))
    }

    /// Takes what was read from there.
    pub(super) fn on_chunk(&mut self, chunk: &[u8]) {
        let left = self.limit - self.at;
        if chunk.len() < self.need && (chunk.len() as u64) < left {
            // The file is shorter than it was said to be.
            self.limit = self.at + chunk.len() as u64;
        }
        let mut rest = match usize::try_from(left) {
            Ok(left) => &chunk[..left.min(chunk.len())],
            Err(_) => chunk,
        };
        loop {
            let left = self.limit - self.at;
            if left < HEADER_SIZE as u64 {
                if !self.seeking && left > 0 {
                    self.breaks.push((self.at, true));
                }
                self.at = self.limit;
                return;
            }
            let before = self.at;
            if !self.take(rest, left) {
                return;
            }
            let moved = usize::try_from(self.at - before).unwrap_or(usize::MAX);
            rest = &rest[moved.min(rest.len())..];
        }
    }

    /// Looks at one place; false if more bytes are needed.
    fn take(&mut self, rest: &[u8], left: u64) -> bool {
        if !self.has(rest, HEADER_SIZE, left) {
            return false;
        }
        match self.header(rest) {
            Some(header) => self.on_header(&header, rest, left),
            None => self.on_break(rest, left),
        }
    }

    /// Whether `size` bytes, or all that are left, are there.
    fn has(&mut self, rest: &[u8], size: usize, left: u64) -> bool {
        let size = usize::try_from(left).map_or(size, |left| size.min(left));
        self.need = size;
        if rest.len() < size {
            return false;
        }
        self.need = HEADER_SIZE;
        true
    }

    fn header(&self, bytes: &[u8]) -> Option<PrepareHeader> {
        verify_header(bytes).ok()?;
        let header = PrepareHeader::decode(bytes).ok()?;
        let ours = header.cluster == self.cluster && header.group == self.group;
        (ours && header.size as usize >= HEADER_SIZE && header.op > Op(0)).then_some(header)
    }

    fn on_header(&mut self, header: &PrepareHeader, rest: &[u8], left: u64) -> bool {
        let size = header.size as usize;
        if header.size as u64 > left {
            // The file ends inside the record.
            return self.on_lost_place(true, rest);
        }
        if !self.has(rest, size, left) {
            return false;
        }
        let record = &rest[..size];
        let whole = verify(record).is_ok();
        if !whole && !self.has(rest, size + HEADER_SIZE, left) {
            return false;
        }
        self.commit = self.commit.max(header.commit);
        if !whole && !self.seeking {
            let torn = self.loses_pages && has_zero_sector(record, self.at);
            self.breaks.push((self.at, torn));
        }
        self.push(header, record, whole);
        // A damaged record leads on only if something there follows it.
        let next = &rest[size..];
        let leads_on = whole
            || next.len() < HEADER_SIZE
            || self
                .header(next)
                .is_some_and(|next| next.parent == header.checksum);
        self.seeking = !leads_on;
        self.at += if leads_on {
            size as u64
        } else {
            HEADER_SIZE as u64
        };
        true
    }

    fn push(&mut self, header: &PrepareHeader, record: &[u8], whole: bool) {
        let end = self.at + record.len() as u64;
        if let Some(last) = self.runs.last_mut() {
            let follows = last.end == self.at
                && last.last.next() == header.op
                && last.checksum == header.parent;
            if follows && last.whole && whole {
                last.last = header.op;
                last.end = end;
                last.checksum = header.checksum;
                return;
            }
        }
        self.runs.push(Run {
            first: header.op,
            last: header.op,
            position: self.at,
            end,
            parent: header.parent,
            checksum: header.checksum,
            messages: Messages::of(header, record),
            whole,
        });
    }

    /// No header here; if one had to be, what does it look like?
    fn on_break(&mut self, rest: &[u8], left: u64) -> bool {
        let mut torn = false;
        if !self.seeking {
            // The header, up to the end of the last sector it is in; but every header ends with
            // zeros, so a sector that begins among them says nothing.
            let first = SECTOR_SIZE - self.at % SECTOR_SIZE;
            let sectors = if first < ZEROS_AT { 2 } else { 1 };
            let size = first + (sectors - 1) * SECTOR_SIZE;
            let size = usize::try_from(size).expect("two sectors");
            if !self.has(rest, size, left) {
                return false;
            }
            let header = &rest[..size.min(rest.len())];
            torn = self.loses_pages && has_zero_sector(header, self.at);
        }
        self.on_lost_place(torn, rest)
    }

    fn on_lost_place(&mut self, torn: bool, rest: &[u8]) -> bool {
        if !self.seeking {
            self.breaks.push((self.at, torn));
            self.seeking = true;
        }
        let cluster = self.cluster.to_le_bytes();
        let group = self.group.0.to_le_bytes();
        let ours = |header: &[u8]| {
            header[CLUSTER_AT..].starts_with(&cluster) && header[GROUP_AT..].starts_with(&group)
        };
        let found = rest[1..].windows(HEADER_SIZE).position(ours);
        let skipped = found.map_or(rest.len() + 1 - HEADER_SIZE, |at| at + 1);
        self.at += skipped as u64;
        true
    }

    /// What belongs to the log. `last` is the last op that the segment may hold, if known; a
    /// record of which only the header is whole ends it only if `may_end_damaged`.
    pub(super) fn layout(&self, last: Option<Op>, may_end_damaged: bool) -> Layout {
        let mut chosen = self.choose(last);
        while !may_end_damaged && chosen.last().is_some_and(|&run| !self.runs[run].whole) {
            chosen.pop();
        }
        let strays = self.runs.iter().enumerate();
        let strays = strays.filter(|(index, run)| run.whole && !chosen.contains(index));
        let stray = strays.map(|(_, run)| run.last).max().unwrap_or(Op(0));
        let mut missing: Vec<Missing> = Vec::new();
        let mut end = self.origin;
        for &index in &chosen {
            let run = &self.runs[index];
            if run.first > end.op {
                let to = Op(run.first.0 - 1);
                self.miss(
                    &mut missing,
                    (end.op, to),
                    (end.position, run.position),
                    run.parent,
                );
            }
            if !run.whole {
                let place = (run.position, run.end);
                self.miss(&mut missing, (run.first, run.last), place, run.checksum);
            } else if let Some(hole) = missing.last_mut()
                && hole.to.next() == run.first
            {
                hole.next = run.messages;
            }
            end = Origin {
                op: run.last.next(),
                parent: Some(run.checksum),
                position: run.end,
            };
        }
        Layout {
            missing,
            end,
            end_torn: self.is_torn(end.position),
            stray,
            commit: self.commit,
        }
    }

    /// Notes missing ops, together with those just before them.
    fn miss(
        &self,
        missing: &mut Vec<Missing>,
        (from, to): (Op, Op),
        (position, end): (u64, u64),
        checksum: u128,
    ) {
        if let Some(last) = missing.last_mut()
            && last.to.next() == from
            && last.end == position
        {
            last.to = to;
            last.end = end;
            last.checksum = checksum;
            return;
        }
        missing.push(Missing {
            from,
            to,
            position,
            end,
            checksum,
            torn: self.is_torn(position),
            next: None,
        });
    }

    fn is_torn(&self, position: u64) -> bool {
        self.breaks.contains(&(position, true))
    }

    /// The runs that belong to the log, in order.
    fn choose(&self, last: Option<Op>) -> Vec<usize> {
        let origin = &self.origin;
        let before = Op(origin.op.0 - 1);
        // The best choice that ends with each run: its records, and the run before.
        let mut best: Vec<Option<(u64, Option<usize>)>> = Vec::new();
        for (index, run) in self.runs.iter().enumerate() {
            let records = if run.whole {
                2 * (run.last.0 - run.first.0 + 1)
            } else {
                1
            };
            let mut choice = None;
            if last.is_none_or(|last| run.last <= last) {
                if run.follows(before, origin.position, origin.parent) {
                    choice = Some((records, None));
                }
                let near = index.saturating_sub(LOOK_BACK);
                for (earlier, before) in best.iter().enumerate().skip(near) {
                    let (Some((sum, _)), other) = (*before, &self.runs[earlier]) else {
                        continue;
                    };
                    if run.follows(other.last, other.end, Some(other.checksum))
                        && choice.is_none_or(|(most, _)| sum + records > most)
                    {
                        choice = Some((sum + records, Some(earlier)));
                    }
                }
            }
            best.push(choice);
        }
        let mut chosen = Vec::new();
        // Of equal ones, the log that goes on for longest: of two records that cannot both be in
        // their place, the later one is evidence for the earlier, and not the other way round.
        let ends = best.iter().enumerate().filter_map(|(index, choice)| {
            let (records, _) = (*choice)?;
            Some((records, self.runs[index].last, index))
        });
        let mut next = ends.max().map(|(_, _, index)| index);
        while let Some(index) = next {
            chosen.push(index);
            next = best[index].and_then(|(_, before)| before);
        }
        chosen.reverse();
        chosen
    }
}

impl Run {
    /// Whether it can stand behind an op that ends at `end`, and everything between be missing.
    fn follows(&self, op: Op, end: u64, checksum: Option<u128>) -> bool {
        let (Some(missing), Some(room)) = (
            self.first.0.checked_sub(op.0 + 1),
            self.position.checked_sub(end),
        ) else {
            return false;
        };
        if missing == 0 {
            return room == 0 && checksum.is_none_or(|checksum| checksum == self.parent);
        }
        room / HEADER_SIZE as u64 >= missing
    }
}

/// Whether the part of `bytes`, which begin at `position`, in any one sector is all zero: a crash
/// leaves that of what it did not write, and hardly anything else does.
fn has_zero_sector(bytes: &[u8], position: u64) -> bool {
    let first = SECTOR_SIZE - position % SECTOR_SIZE;
    let (head, rest) = bytes.split_at(bytes.len().min(usize::try_from(first).unwrap_or(0)));
    let sector = usize::try_from(SECTOR_SIZE).expect("small");
    let mut parts = core::iter::once(head).chain(rest.chunks(sector));
    parts.any(|part| !part.is_empty() && part.iter().all(|byte| *byte == 0))
}
