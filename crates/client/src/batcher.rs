//! Collects messages into batches, one open batch per partition, until one is large enough, full
//! enough or old enough.
//!
//! Per partition, messages leave in the order they came: a batch is closed before the next opens,
//! and closed batches are first in, first out.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::time::Duration;

use base::{Domain, Instant, Prng};
use wire::{
    BatchBuilder, BatchError, Identifier, Partitioning, Request,
    batch::{FRAME_HEADER_SIZE, Message},
    request::{SendMessages, SendTarget},
};

use crate::RequestFrame;

/// A partition, by numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionTarget {
    /// Its stream.
    pub stream: u32,
    /// Its topic.
    pub topic: u32,
    /// The partition.
    pub partition: u32,
}

/// When a batch is closed, and how much may wait.
#[derive(Clone, Copy, Debug)]
pub struct BatcherConfig {
    /// Messages of one batch.
    pub count_max: u32,
    /// Bytes of one batch; a single larger message goes alone.
    pub size_max: usize,
    /// Age of an open batch.
    pub linger: Duration,
    /// Bytes of all batches, open and closed.
    pub backlog_max: usize,
}

impl Default for BatcherConfig {
    fn default() -> Self {
        Self {
            count_max: 1000,
            size_max: 1 << 20,
            linger: Duration::from_millis(1),
            backlog_max: 64 << 20,
        }
    }
}

/// A message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    /// Too much waits already: take closed batches first.
    Full,
    /// No server would take it.
    Invalid(BatchError),
}

/// A closed batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Where it goes.
    pub target: PartitionTarget,
    /// How many messages it has.
    pub messages_count: u32,
    /// Header and messages, with all checksums.
    pub bytes: Vec<u8>,
}

impl Batch {
    /// The request that appends it.
    #[must_use]
    pub fn request(&self) -> Request<'_> {
        let PartitionTarget {
            stream,
            topic,
            partition,
        } = self.target;
        Request::SendMessages(SendMessages {
            target: SendTarget {
                stream: Identifier::Numeric(stream),
                topic: Identifier::Numeric(topic),
                partitioning: Partitioning::PartitionId(partition),
                messages_count: self.messages_count,
            },
            batch: &self.bytes,
        })
    }

    /// The request that appends it, laid out.
    #[must_use]
    pub fn request_frame(&self) -> RequestFrame {
        RequestFrame::new(&self.request())
    }
}

#[derive(Debug)]
struct Open {
    builder: BatchBuilder,
    since: Instant,
}

/// Collects messages into batches.
#[derive(Debug)]
pub struct Batcher {
    config: BatcherConfig,
    prng: Prng,
    open: BTreeMap<PartitionTarget, Open>,
    closed: VecDeque<Batch>,
    /// Bytes of all batches here.
    backlog: usize,
}

impl Batcher {
    /// An empty one; `seed` is where message ids come from that the application leaves at 0.
    #[must_use]
    pub fn new(config: BatcherConfig, seed: u64) -> Self {
        assert!(config.count_max > 0);
        Self {
            config,
            prng: Prng::new(seed, Domain::Client, u64::MAX),
            open: BTreeMap::new(),
            closed: VecDeque::new(),
            backlog: 0,
        }
    }

    /// Appends a message; one with id 0 gets a random id.
    ///
    /// # Errors
    /// [`PushError`] if it was not taken.
    pub fn push(
        &mut self,
        now: Instant,
        target: PartitionTarget,
        mut message: Message<'_>,
    ) -> Result<(), PushError> {
        let size = FRAME_HEADER_SIZE + message.payload.len() + message.user_headers.len();
        if self.backlog > 0 && self.backlog + size > self.config.backlog_max {
            return Err(PushError::Full);
        }
        while message.id == 0 {
            message.id = self.prng.next_u128();
        }
        let has_room = |open: &Open| {
            open.builder.message_count() < self.config.count_max
                && open.builder.size() + size <= self.config.size_max
        };
        if self.open.get(&target).is_some_and(|open| !has_room(open)) {
            self.close(target);
        }
        match self.push_open(now, target, message) {
            Err(BatchError::TimestampDelta) => {
                // Too far in time from the others: it starts a batch of its own.
                self.close(target);
                self.push_open(now, target, message)
                    .map_err(PushError::Invalid)
            }
            outcome => outcome.map_err(PushError::Invalid),
        }
    }

    fn push_open(
        &mut self,
        now: Instant,
        target: PartitionTarget,
        message: Message<'_>,
    ) -> Result<(), BatchError> {
        let mut open = self.open.remove(&target).unwrap_or_else(|| Open {
            builder: BatchBuilder::new(),
            since: now,
        });
        let before = if open.builder.message_count() == 0 {
            0
        } else {
            open.builder.size()
        };
        let outcome = open.builder.push(message);
        let count = open.builder.message_count();
        if count > 0 {
            self.backlog += open.builder.size() - before;
            self.open.insert(target, open);
        }
        if count == self.config.count_max {
            self.close(target);
        }
        outcome
    }

    fn close(&mut self, target: PartitionTarget) {
        let Some(open) = self.open.remove(&target) else {
            return;
        };
        let messages_count = open.builder.message_count();
        let bytes = open.builder.finish().expect("an open batch has a message");
        self.closed.push_back(Batch {
            target,
            messages_count,
            bytes,
        });
    }

    /// Closes the batches that are old enough.
    pub fn on_timers(&mut self, now: Instant) {
        let is_due = |open: &Open| open.since + self.config.linger <= now;
        let due: Vec<PartitionTarget> = self
            .open
            .iter()
            .filter(|(_, open)| is_due(open))
            .map(|(target, _)| *target)
            .collect();
        for target in due {
            self.close(target);
        }
    }

    /// Closes all batches, however small.
    pub fn flush(&mut self) {
        while let Some((&target, _)) = self.open.first_key_value() {
            self.close(target);
        }
    }

    /// When [`Self::on_timers`] must be called next.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.open
            .values()
            .map(|open| open.since + self.config.linger)
            .min()
    }

    /// The next closed batch.
    pub fn take_closed(&mut self) -> Option<Batch> {
        let batch = self.closed.pop_front()?;
        self.backlog -= batch.bytes.len();
        Some(batch)
    }

    /// Bytes of all batches, open and closed.
    #[must_use]
    pub const fn backlog_bytes(&self) -> usize {
        self.backlog
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use wire::batch::verify;

    use super::*;

    const TARGET: PartitionTarget = PartitionTarget {
        stream: 1,
        topic: 2,
        partition: 3,
    };
    const OTHER: PartitionTarget = PartitionTarget {
        stream: 1,
        topic: 2,
        partition: 4,
    };

    fn batcher(config: BatcherConfig) -> Batcher {
        Batcher::new(config, 1)
    }

    fn message(payload: &[u8]) -> Message<'_> {
        Message {
            id: 0,
            origin_timestamp: 5,
            payload,
            user_headers: &[],
        }
    }

    fn payloads(batch: &Batch) -> Vec<Vec<u8>> {
        verify(&batch.bytes).expect("a valid batch");
        let (_, frames) = wire::batch::frames(&batch.bytes).expect("a valid batch");
        frames
            .map(|frame| frame.expect("a valid frame").payload().to_vec())
            .collect()
    }

    #[test]
    fn batch_is_closed_at_its_count_and_keeps_the_order() {
        let mut batcher = batcher(BatcherConfig {
            count_max: 2,
            ..BatcherConfig::default()
        });
        for payload in [b"a", b"b", b"c"] {
            batcher.push(Instant(0), TARGET, message(payload)).unwrap();
        }
        batcher.push(Instant(0), OTHER, message(b"x")).unwrap();
        let batch = batcher.take_closed().unwrap();
        assert_eq!((batch.target, batch.messages_count), (TARGET, 2));
        assert_eq!(payloads(&batch), [b"a", b"b"]);
        assert_eq!(batcher.take_closed(), None);
        batcher.flush();
        assert_eq!(payloads(&batcher.take_closed().unwrap()), [b"c"]);
        assert_eq!(batcher.take_closed().unwrap().target, OTHER);
        assert_eq!(batcher.backlog_bytes(), 0);
    }

    #[test]
    fn batch_is_closed_before_it_grows_too_large() {
        let size_max = 256 + 2 * (FRAME_HEADER_SIZE + 100);
        let mut batcher = batcher(BatcherConfig {
            size_max,
            ..BatcherConfig::default()
        });
        for _ in 0..3 {
            batcher
                .push(Instant(0), TARGET, message(&[7; 100]))
                .unwrap();
        }
        let batch = batcher.take_closed().unwrap();
        assert_eq!(batch.bytes.len(), size_max);
        batcher
            .push(Instant(0), TARGET, message(&vec![7; size_max]))
            .unwrap();
        assert_eq!(batcher.take_closed().unwrap().messages_count, 1);
    }

    #[test]
    fn batch_leaves_when_it_has_lingered() {
        let linger = Duration::from_micros(10);
        let mut batcher = batcher(BatcherConfig {
            linger,
            ..BatcherConfig::default()
        });
        assert_eq!(batcher.deadline(), None);
        batcher.push(Instant(5), TARGET, message(b"a")).unwrap();
        batcher.push(Instant(9), TARGET, message(b"b")).unwrap();
        assert_eq!(batcher.deadline(), Some(Instant(15)));
        batcher.on_timers(Instant(14));
        assert_eq!(batcher.take_closed(), None);
        batcher.on_timers(Instant(15));
        assert_eq!(batcher.take_closed().unwrap().messages_count, 2);
    }

    #[test]
    fn backlog_is_bounded_and_invalid_messages_leave_no_trace() {
        let backlog_max = 256 + FRAME_HEADER_SIZE + 10;
        let mut batcher = batcher(BatcherConfig {
            backlog_max,
            ..BatcherConfig::default()
        });
        let empty = batcher.push(Instant(0), TARGET, message(b""));
        assert_eq!(empty, Err(PushError::Invalid(BatchError::PayloadEmpty)));
        assert_eq!((batcher.backlog_bytes(), batcher.deadline()), (0, None));
        batcher.push(Instant(0), TARGET, message(&[1; 10])).unwrap();
        assert_eq!(
            batcher.push(Instant(0), TARGET, message(b"x")),
            Err(PushError::Full)
        );
        batcher.flush();
        batcher.take_closed().unwrap();
        batcher.push(Instant(0), TARGET, message(b"x")).unwrap();
    }

    #[test]
    fn message_far_away_in_time_starts_a_new_batch() {
        let mut batcher = batcher(BatcherConfig::default());
        batcher.push(Instant(0), TARGET, message(b"a")).unwrap();
        let late = Message {
            origin_timestamp: 1 << 33,
            ..message(b"b")
        };
        batcher.push(Instant(0), TARGET, late).unwrap();
        assert_eq!(payloads(&batcher.take_closed().unwrap()), [b"a"]);
    }

    #[test]
    fn messages_without_an_id_get_different_ones() {
        let mut batcher = batcher(BatcherConfig::default());
        batcher.push(Instant(0), TARGET, message(b"a")).unwrap();
        batcher.push(Instant(0), TARGET, message(b"b")).unwrap();
        batcher.flush();
        let batch = batcher.take_closed().unwrap();
        let (_, frames) = wire::batch::frames(&batch.bytes).unwrap();
        let ids: Vec<u128> = frames.map(|frame| frame.unwrap().id).collect();
        assert!(ids[0] != 0 && ids[1] != 0 && ids[0] != ids[1]);
    }
}
