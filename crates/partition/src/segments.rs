//! What a partition retains, segment by segment: the same segments on every replica, for where
//! one ends follows from the log alone.
//!
//! ```text
//!   trimmed │ sealed │ sealed │ active
//!           └ start: the first op and the first offset that are served
//! ```
//!
//! The journal cuts its files by the same rule: a record goes into a new segment once the one
//! before has reached the size. So a segment here is a file there, until it is trimmed; the file
//! follows as soon as a checkpoint covers that.
//!
//! **Invariant:** the counters are the sums over the segments.

use alloc::{collections::VecDeque, vec::Vec};

use base::{Digest, Offset, Op, Timestamp};
use wire::{BatchHeader, Codec, HEADER_SIZE, Reader, SnapshotError, replica::PrepareHeader};

use crate::snapshot::count;

/// A part of the log that goes as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its first op.
    pub first: Op,
    /// Bytes of its file: a header and all records, with or without messages.
    pub size: u64,
    /// Bytes of its batches that are retained.
    pub batches_size: u64,
    /// The offset after its last message; where it would begin if it has none.
    pub end: Offset,
    /// When its newest message was appended; of an earlier segment if it has none.
    pub newest: Timestamp,
}

/// The segments of one partition, as far as it is committed.
#[derive(Clone, Debug)]
pub(crate) struct Segments {
    segment_size: u64,
    /// Oldest first; the last is the active one.
    list: VecDeque<Segment>,
    /// The first op whose messages are served.
    start_op: Op,
    /// The first offset that is served.
    start: Offset,
    /// Sum over the list.
    batches_size: u64,
}

impl Segments {
    pub(crate) fn new(segment_size: u64) -> Self {
        base::invariant!(segment_size > 0);
        Self {
            segment_size,
            list: [empty(Op(1), Offset(0), Timestamp(0))].into(),
            start_op: Op(1),
            start: Offset(0),
            batches_size: 0,
        }
    }

    pub(crate) const fn start_op(&self) -> Op {
        self.start_op
    }

    pub(crate) const fn start(&self) -> Offset {
        self.start
    }

    pub(crate) const fn batches_size(&self) -> u64 {
        self.batches_size
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The sealed ones, oldest first.
    pub(crate) fn sealed(&self) -> impl Iterator<Item = &Segment> {
        self.list.range(..self.list.len() - 1)
    }

    /// The first op of the segment behind the `gone` oldest.
    pub(crate) fn first_of(&self, gone: usize) -> Op {
        self.list[gone].first
    }

    fn active_mut(&mut self) -> &mut Segment {
        self.list.back_mut().expect("there is an active segment")
    }

    /// The next op of the log, whatever it is. Answers whether a segment is sealed by it.
    pub(crate) fn on_record(&mut self, prepare: &PrepareHeader) -> bool {
        let segment_size = self.segment_size;
        let active = self.active_mut();
        let rolls = active.size >= segment_size;
        if rolls {
            let next = empty(prepare.op, active.end, active.newest);
            self.list.push_back(next);
        }
        self.active_mut().size += u64::from(prepare.size);
        rolls
    }

    /// The record told last has these messages.
    pub(crate) fn on_messages(&mut self, batch: &BatchHeader) {
        let active = self.active_mut();
        active.batches_size += batch.batch_length;
        active.end = Offset(batch.base_offset + u64::from(batch.message_count));
        active.newest = Timestamp(batch.base_timestamp);
        self.batches_size += batch.batch_length;
    }

    /// Lets the oldest sealed segments go that end before op `before`, and of which no message is
    /// at or after offset `barrier`. Answers how many.
    pub(crate) fn trim(&mut self, before: Op, barrier: Offset) -> usize {
        let mut trimmed = 0;
        while let Some(next) = self.list.get(1).map(|next| next.first) {
            let oldest = &self.list[0];
            if next > before || oldest.end > barrier {
                break;
            }
            self.start_op = self.start_op.max(next);
            self.start = oldest.end;
            self.batches_size -= oldest.batches_size;
            self.list.pop_front();
            trimmed += 1;
        }
        self.assert_sums();
        trimmed
    }

    /// Lets all messages up to op `op` go; offsets begin anew. The file that is being written
    /// stays the active one.
    pub(crate) fn purge(&mut self, op: Op) {
        let active = *self.active_mut();
        self.list.clear();
        self.list.push_back(Segment {
            batches_size: 0,
            end: Offset(0),
            ..active
        });
        self.start_op = op.next();
        self.start = Offset(0);
        self.batches_size = 0;
        self.assert_sums();
    }

    fn assert_sums(&self) {
        let sum: u64 = self.list.iter().map(|segment| segment.batches_size).sum();
        base::invariant_eq!(sum, self.batches_size);
        base::invariant!(self.list[0].end >= self.start);
    }

    /// Appends all of it to a snapshot.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        self.start_op.0.write(out);
        self.start.0.write(out);
        count(self.list.len()).write(out);
        for segment in &self.list {
            segment.first.0.write(out);
            segment.size.write(out);
            segment.batches_size.write(out);
            segment.end.0.write(out);
            segment.newest.0.write(out);
        }
    }

    /// Reads what [`Self::write`] wrote when op `committed` was the last.
    pub(crate) fn read(
        reader: &mut Reader<'_>,
        committed: Op,
        segment_size: u64,
    ) -> Result<Self, SnapshotError> {
        let (start_op, start) = (Op(reader.read()?), Offset(reader.read()?));
        let mut list: VecDeque<Segment> = VecDeque::new();
        let mut batches_size: u64 = 0;
        for _ in 0..reader.read::<u32>()? {
            let segment = Segment {
                first: Op(reader.read()?),
                size: reader.read()?,
                batches_size: reader.read()?,
                end: Offset(reader.read()?),
                newest: Timestamp(reader.read()?),
            };
            let in_order = list.back().is_none_or(|last| {
                last.first < segment.first
                    && last.end <= segment.end
                    && last.newest <= segment.newest
            });
            let sum = batches_size.checked_add(segment.batches_size);
            batches_size = sum.ok_or(SnapshotError::Contradiction)?;
            if !in_order || segment.first.0.saturating_sub(1) > committed.0 || segment.end < start {
                return Err(SnapshotError::Contradiction);
            }
            list.push_back(segment);
        }
        if list.is_empty() || start_op < list[0].first {
            return Err(SnapshotError::Contradiction);
        }
        Ok(Self {
            segment_size,
            list,
            start_op,
            start,
            batches_size,
        })
    }

    pub(crate) fn digest_into(&self, digest: &mut Digest) {
        digest.u64(self.start_op.0);
        digest.u64(self.start.0);
        digest.u64(self.list.len() as u64);
        for segment in &self.list {
            digest.u64(segment.first.0);
            digest.u64(segment.size);
            digest.u64(segment.batches_size);
            digest.u64(segment.end.0);
            digest.u64(segment.newest.0);
        }
    }
}

const fn empty(first: Op, end: Offset, newest: Timestamp) -> Segment {
    Segment {
        first,
        size: HEADER_SIZE as u64,
        batches_size: 0,
        end,
        newest,
    }
}
