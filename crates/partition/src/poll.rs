//! Polls: where to start, and a reply made of slices of the journal's own bytes.
//!
//! ```text
//!   plan_poll ─▶ Empty
//!             └▶ Read(PollReply) ─ start() ─▶ the journal reads ─▶ push(prepare) … ─▶ finish()
//! ```
//!
//! A reply is a 16-byte head and, per record, the batch as it stands in the log; a record served
//! in part gets a fresh header, and its frames are still slices. No message is copied.
//!
//! **Invariant:** nothing at or beyond the committed offset at planning time is ever served,
//! whatever the journal hands in.

use alloc::{vec, vec::Vec};

use base::{Bytes, Offset, Op, Timestamp};
use wire::{
    BatchError, BatchHeader, HEADER_SIZE, Operation, PollingStrategy, batch,
    batch::BATCH_HEADER_SIZE, replica::PrepareHeader, reply::PollHead,
};

use crate::{consumers::ConsumerKey, state::PartitionState};

/// Where a poll starts to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollStart {
    /// At the message with this offset.
    Offset(Offset),
    /// At the first message appended at or after this time.
    Timestamp(Timestamp),
}

/// What a poll needs.
#[derive(Debug)]
pub enum PollPlan {
    /// Nothing: the reply is a head without messages.
    Empty(Polled),
    /// Prepares from the journal.
    Read(PollReply),
}

/// A poll as far as a partition looks at it.
#[derive(Clone, Copy, Debug)]
pub struct Poll {
    /// For whom.
    pub consumer: ConsumerKey,
    /// Where to start.
    pub strategy: PollingStrategy,
    /// At most so many messages.
    pub count: u32,
    /// At most so many bytes of body, except that the first message is always served.
    pub bytes_max: usize,
}

/// Whether a reply can take more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Hand in the next prepares, from [`PollReply::start`] on.
    More,
    /// It has what was asked for, or all there is.
    Done,
}

/// A finished reply.
#[derive(Clone, Debug)]
pub struct Polled {
    /// The body, in pieces.
    pub body: Vec<Bytes>,
    /// How many messages it has.
    pub count: u32,
    /// Offset of the last of them: what auto-commit stores.
    pub last_offset: Option<Offset>,
}

impl PartitionState {
    /// Decides where a poll starts; only committed messages count.
    #[must_use]
    pub fn plan_poll(&self, poll: &Poll) -> PollPlan {
        match self.start_of(poll) {
            Some(start) if poll.count > 0 => PollPlan::Read(self.reply_to(poll, start)),
            _ => PollPlan::Empty(self.reply_to(poll, PollStart::Offset(Offset(0))).finish()),
        }
    }

    /// Where to start, if a committed message is there.
    fn start_of(&self, poll: &Poll) -> Option<PollStart> {
        let last = self.committed().last_offset()?;
        let offset = match poll.strategy {
            PollingStrategy::Timestamp(timestamp) => {
                let timestamp = Timestamp(timestamp);
                let exists = timestamp <= self.committed().timestamp;
                return exists.then_some(PollStart::Timestamp(timestamp));
            }
            PollingStrategy::Offset(offset) => Offset(offset),
            PollingStrategy::First => self.first_offset(),
            PollingStrategy::Last => {
                let before = u64::from(poll.count.saturating_sub(1));
                Offset(last.0.saturating_sub(before))
            }
            PollingStrategy::Next => {
                let stored = self.stored_offset(poll.consumer);
                stored.map_or(Offset(0), |stored| Offset(stored.0 + 1))
            }
        };
        // What retention has removed is skipped.
        let offset = offset.max(self.first_offset());
        (offset <= last).then_some(PollStart::Offset(offset))
    }

    fn reply_to(&self, poll: &Poll, start: PollStart) -> PollReply {
        PollReply {
            partition: self.ids().partition,
            current_offset: self.current_offset(),
            end: self.committed().next_offset,
            from: self.first_op(),
            up_to: self.committed().op,
            purges: self.committed().purges,
            start,
            count_left: poll.count,
            bytes_left: poll.bytes_max.saturating_sub(PollHead::SIZE),
            count: 0,
            last_offset: None,
            pieces: Vec::new(),
            done: false,
        }
    }
}

/// A reply in the making.
#[derive(Debug)]
pub struct PollReply {
    partition: u32,
    current_offset: Offset,
    /// The first offset not to serve.
    end: Offset,
    /// The first op whose messages are served.
    from: Op,
    up_to: Op,
    purges: u64,
    start: PollStart,
    count_left: u32,
    bytes_left: usize,
    count: u32,
    last_offset: Option<Offset>,
    pieces: Vec<Bytes>,
    done: bool,
}

impl PollReply {
    /// Where the journal must read next.
    #[must_use]
    pub const fn start(&self) -> PollStart {
        self.start
    }

    /// The first op the journal may read messages from: what stands before it has been trimmed or
    /// purged.
    #[must_use]
    pub const fn from(&self) -> Op {
        self.from
    }

    /// How often the partition had been purged when this was planned: its offsets are those of
    /// that time.
    #[must_use]
    pub const fn purges(&self) -> u64 {
        self.purges
    }

    /// Messages it has so far.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The last op the journal may read.
    #[must_use]
    pub const fn up_to(&self) -> Op {
        self.up_to
    }

    /// Messages it still has room for.
    #[must_use]
    pub const fn count_left(&self) -> u32 {
        self.count_left
    }

    /// Bytes of messages it still has room for.
    #[must_use]
    pub const fn bytes_left(&self) -> usize {
        self.bytes_left
    }

    /// Takes what it needs from the next prepare, in op order. Prepares without messages, and
    /// messages before the start, are skipped.
    ///
    /// # Errors
    /// [`BatchError`] if a prepare that the journal found whole has no batch: a bug of whoever
    /// appended it, to be answered as an error and never as "no messages".
    pub fn push(&mut self, prepare: &Bytes) -> Result<Progress, BatchError> {
        if self.done {
            return Ok(Progress::Done);
        }
        let header = PrepareHeader::decode(prepare).map_err(|_| BatchError::Truncated)?;
        if header.op > self.up_to {
            self.done = true;
        } else if header.operation == Operation::SendMessages && header.op >= self.from {
            let body = prepare.slice(HEADER_SIZE, prepare.len());
            self.push_batch(&body)?;
        }
        Ok(if self.done {
            Progress::Done
        } else {
            Progress::More
        })
    }

    fn push_batch(&mut self, body: &Bytes) -> Result<(), BatchError> {
        let header = BatchHeader::decode(body)?;
        let size = usize::try_from(header.batch_length).map_err(|_| BatchError::Length)?;
        let end = header.base_offset + u64::from(header.message_count);
        let from = match self.start {
            PollStart::Offset(offset) if offset.0 >= end => return Ok(()),
            PollStart::Offset(offset) => offset.0.max(header.base_offset),
            PollStart::Timestamp(timestamp) if header.base_timestamp < timestamp.0 => {
                return Ok(());
            }
            PollStart::Timestamp(_) => header.base_offset,
        };
        // What should have followed has been trimmed meanwhile: a reply has no gap.
        let gap = self.count > 0 && self.last_offset.is_some_and(|last| last.0 + 1 != from);
        if header.base_offset >= self.end.0 || gap {
            self.done = true;
            return Ok(());
        }
        let whole = from == header.base_offset
            && end <= self.end.0
            && header.message_count <= self.count_left
            && size <= self.bytes_left;
        if whole {
            self.pieces.push(body.slice(0, size));
            self.took(header.message_count, end - 1, size);
            return Ok(());
        }
        self.push_slice(body, from)
    }

    /// Takes the messages of a batch from offset `from` on, as many as there is room for.
    fn push_slice(&mut self, body: &Bytes, from: u64) -> Result<(), BatchError> {
        let count_max = self.room_in(body, from)?;
        let Some(slice) = batch::slice(body, from, count_max)? else {
            self.done = true;
            return Ok(());
        };
        self.pieces.push(Bytes::copy_of(&slice.header_bytes()));
        self.pieces.push(body.slice(slice.start, slice.end));
        let size = BATCH_HEADER_SIZE + slice.end - slice.start;
        self.took(slice.header.message_count, slice.last_offset, size);
        // The rest of this batch had no room, or there is nothing committed after it.
        self.done |= slice.end < body.len();
        Ok(())
    }

    /// How many messages of a batch from offset `from` on fit: count, bytes and commit.
    fn room_in(&self, body: &Bytes, from: u64) -> Result<u32, BatchError> {
        let (header, frames) = batch::frames(body)?;
        let mut count: u32 = 0;
        let mut size = BATCH_HEADER_SIZE;
        for frame in frames {
            let frame = frame?;
            let offset = header.base_offset + u64::from(frame.offset_delta);
            if offset < from {
                continue;
            }
            size += frame.as_bytes().len();
            let first = self.count == 0 && count == 0;
            let fits = first || size <= self.bytes_left;
            if count == self.count_left || offset >= self.end.0 || !fits {
                break;
            }
            count += 1;
        }
        Ok(count)
    }

    fn took(&mut self, count: u32, last_offset: u64, size: usize) {
        base::invariant!(count <= self.count_left);
        base::invariant!(
            last_offset < self.end.0,
            "only committed messages are served"
        );
        base::invariant!(
            self.last_offset
                .is_none_or(|last| last.0 + 1 == last_offset + 1 - u64::from(count))
        );
        self.count += count;
        self.count_left -= count;
        self.bytes_left = self.bytes_left.saturating_sub(size);
        self.last_offset = Some(Offset(last_offset));
        self.start = PollStart::Offset(Offset(last_offset + 1));
        let smallest = BATCH_HEADER_SIZE + batch::FRAME_HEADER_SIZE;
        self.done =
            self.count_left == 0 || last_offset + 1 == self.end.0 || self.bytes_left < smallest;
    }

    /// The reply with what it has so far.
    #[must_use]
    pub fn finish(self) -> Polled {
        let head = PollHead {
            partition_id: self.partition,
            current_offset: self.current_offset.0,
            count: self.count,
        };
        let mut body = vec![Bytes::copy_of(&head.to_bytes())];
        body.extend(self.pieces);
        Polled {
            body,
            count: self.count,
            last_offset: self.last_offset,
        }
    }
}
