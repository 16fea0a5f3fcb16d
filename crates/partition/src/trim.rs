//! What makes a partition's log shorter at its beginning: trims, segment by segment, and purges.
//!
//! Both are ops of the partition's own log, so that every replica lets go of the same, and a
//! restart of nothing else. What a trim may take is judged when it is applied: never the active
//! segment, and never what a stored offset says is still to be read, unless the op says that the
//! consumers have waited long enough.

use alloc::vec::Vec;

use base::{Offset, Op, Timestamp};
use wire::{
    Codec, ErrorCode,
    internal::{PurgePartition, TrimLog},
    replica::PrepareHeader,
};

use crate::{consumers::Consumers, state::PartitionState};

/// What a topic lets its partitions retain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Sealed segments whose newest message is older than this, in microseconds, may go.
    pub age_max: Option<u64>,
    /// Beyond so many bytes of messages the oldest sealed segments may go.
    pub size_max: Option<u64>,
    /// How long consumers that have not read may hold up what may go.
    pub patience: Patience,
}

/// How long consumers may hold up what retention would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// For ever.
    Endless,
    /// Until a message is so old, in microseconds, or there is so many times what may be retained.
    Limited {
        /// The age is at least this, whatever the topic says.
        age_min: u64,
        /// In multiples of the topic's own bounds.
        factor: u64,
    },
}

/// What is to be trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// All before this op.
    pub before: Op,
    /// Whether it goes although a consumer has not read it.
    pub past_consumers: bool,
}

impl Trim {
    /// The body of the op.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        TrimLog {
            before: self.before.0,
            past_consumers: self.past_consumers,
        }
        .encode()
    }
}

/// The body of the op that purges a partition.
#[must_use]
pub fn purge_body(generation: u64) -> Vec<u8> {
    PurgePartition { generation }.encode()
}

impl PartitionState {
    /// The offset that no segment may hold which is trimmed while consumers are waited for: the
    /// first that the slowest has not read.
    fn barrier(&self) -> Offset {
        if base::planted::bug(51) {
            return Offset(u64::MAX);
        }
        self.consumers
            .slowest()
            .map_or(Offset(u64::MAX), |slowest| Offset(slowest.0 + 1))
    }

    /// What must be trimmed so that the `count` oldest sealed segments go, as far as their
    /// messages have been read; nothing if none may go.
    #[must_use]
    pub fn oldest_segments(&self, count: u32) -> Option<Trim> {
        let barrier = self.barrier();
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let read = self
            .segments
            .sealed()
            .take(count)
            .take_while(|segment| segment.end <= barrier)
            .count();
        Some(Trim {
            before: self.first_after(read)?,
            past_consumers: false,
        })
    }

    /// What must be trimmed now; nothing if all is to be retained.
    #[must_use]
    pub fn expired(&self, retention: &Retention, now: Timestamp) -> Option<Trim> {
        let barrier = self.barrier();
        let mut retained = self.segments.batches_size();
        let (mut gone, mut past_consumers) = (0, false);
        for segment in self.segments.sealed() {
            let age = now.0.saturating_sub(segment.newest.0);
            let over = |bound: Option<u64>, value: u64| bound.is_some_and(|bound| value > bound);
            if !over(retention.age_max, age) && !over(retention.size_max, retained) {
                break;
            }
            if segment.end > barrier {
                if !retention.patience.has_ended(retention, age, retained) {
                    break;
                }
                past_consumers = true;
            }
            retained -= segment.batches_size;
            gone += 1;
        }
        Some(Trim {
            before: self.first_after(gone)?,
            past_consumers,
        })
    }

    /// When the oldest sealed segment will be older than `age_max`, if it has any.
    #[must_use]
    pub fn expires_at(&self, age_max: u64) -> Option<Timestamp> {
        let oldest = self.segments.sealed().next()?;
        Some(Timestamp(
            oldest.newest.0.saturating_add(age_max).saturating_add(1),
        ))
    }

    /// Whether consumers that are waited for without end have let it grow to twice its bound.
    #[must_use]
    pub fn is_full(&self, retention: &Retention) -> bool {
        let endless = retention.patience == Patience::Endless;
        let full = |bound: u64| self.segments.batches_size() >= bound.saturating_mul(2);
        endless && retention.size_max.is_some_and(full)
    }

    /// The first op of the segment behind the `gone` oldest.
    fn first_after(&self, gone: usize) -> Option<Op> {
        if gone == 0 {
            return None;
        }
        Some(self.segments.first_of(gone))
    }

    pub(crate) fn apply_trim(&mut self, body: &[u8]) -> Result<(), ErrorCode> {
        let trim = TrimLog::decode(body).map_err(|error| error.code())?;
        let barrier = if trim.past_consumers {
            Offset(u64::MAX)
        } else {
            self.barrier()
        };
        self.segments.trim(Op(trim.before), barrier);
        Ok(())
    }

    /// A purge that is done already is not done again, however often it comes.
    pub(crate) fn apply_purge(
        &mut self,
        prepare: &PrepareHeader,
        body: &[u8],
    ) -> Result<(), ErrorCode> {
        let purge = PurgePartition::decode(body).map_err(|error| error.code())?;
        if purge.generation <= self.committed.purges && !base::planted::bug(52) {
            return Ok(());
        }
        self.committed.purges = self.committed.purges.max(purge.generation);
        self.committed.next_offset = Offset(0);
        self.segments.purge(prepare.op);
        self.consumers = Consumers::default();
        Ok(())
    }

    /// A purge has entered the log: what comes after it begins at offset 0.
    pub(crate) fn append_purge(&mut self, body: &[u8]) {
        let Ok(purge) = PurgePartition::decode(body) else {
            return;
        };
        if purge.generation > self.appended.purges || base::planted::bug(52) {
            self.appended.purges = self.appended.purges.max(purge.generation);
            self.appended.next_offset = Offset(0);
        }
    }
}

impl Patience {
    /// Whether a segment whose newest message is `age` old goes although it has not been read,
    /// with `retained` bytes from it on.
    fn has_ended(self, retention: &Retention, age: u64, retained: u64) -> bool {
        let Self::Limited { age_min, factor } = self else {
            return false;
        };
        let too_old = |bound: u64| age > bound.saturating_mul(factor).max(age_min);
        let too_large = |bound: u64| retained > bound.saturating_mul(factor);
        retention.age_max.is_some_and(too_old) || retention.size_max.is_some_and(too_large)
    }
}
