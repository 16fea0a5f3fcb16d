//! What consumer groups have polled and not committed, as the primary of a partition knows it.
//!
//! ```text
//!   in flight  =  a poll of the group is being read now
//!              or it has polled further than the offset it has stored
//!              or an earlier primary may have served it, and it has stored less than there was
//! ```
//!
//! None of it is replicated. A new primary does not know what its predecessor served, and takes
//! everything that was committed by then for polled: what was polled and not committed stays
//! fenced across a failover until it is committed, or the rebalancing timeout ends the wait.

use ::core::time::Duration;
use alloc::collections::BTreeMap;

use base::{Instant, Offset, Timestamp};
use partition::ConsumerKey;
use wire::{Codec, ConsumerKind, DecodeError, Operation, Reader, Sink};

use super::{Hosted, Read};
use crate::{ask::Ask, core::Core};

/// Code of the question whether a group has anything in flight. No client can ask it.
pub(crate) const PROBE: u32 = 0xFFFF_FF01;

/// How long a group's polls are held up for a member that is joining and may get the partition
/// without further ado. Long enough for the op to commit; if it does not, polls go on.
const FREEZE: Duration = Duration::from_secs(5);

/// Body of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// The consumer group.
    pub(crate) group: u32,
    /// When it was created.
    pub(crate) created_at: Timestamp,
    /// Its generation, if its polls are to be held up until that changes; else 0.
    pub(crate) freeze: u64,
}

impl<'a> Codec<'a> for Probe {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            group: reader.read()?,
            created_at: Timestamp(reader.read()?),
            freeze: reader.read()?,
        })
    }

    fn write(&self, out: &mut impl Sink) {
        self.group.write(out);
        self.created_at.0.write(out);
        self.freeze.write(out);
    }
}

/// What this replica found when it began to serve.
#[derive(Clone, Copy, Debug)]
struct TakeOver {
    /// The last message that an earlier primary may have served.
    last: Option<Offset>,
    /// When: groups created later were not served before.
    at: Timestamp,
}

/// Since when polls of a group are held up.
#[derive(Clone, Copy, Debug)]
struct Freeze {
    generation: u64,
    until: Instant,
}

/// What is known of polls, for as long as this replica is the primary.
#[derive(Debug, Default)]
pub(super) struct Marks {
    take_over: Option<TakeOver>,
    /// The last message that each group has been served.
    polled: BTreeMap<u32, Offset>,
    frozen: BTreeMap<u32, Freeze>,
}

impl Marks {
    pub(super) fn note_polled(&mut self, group: u32, offset: Offset) {
        let polled = self.polled.entry(group).or_insert(offset);
        *polled = offset.max(*polled);
    }

    /// All messages are gone, and offsets begin anew: nothing is in flight.
    pub(super) fn on_purge(&mut self) {
        self.polled.clear();
        if let Some(take_over) = &mut self.take_over {
            take_over.last = None;
        }
    }

    fn is_ahead(&self, probe: &Probe, stored: Option<Offset>) -> bool {
        let beyond = |offset: Offset| stored.is_none_or(|stored| stored < offset);
        let polled = self.polled.get(&probe.group).copied();
        if polled.is_some_and(beyond) {
            return true;
        }
        let before = self
            .take_over
            .filter(|take_over| probe.created_at <= take_over.at);
        let unknown = before.and_then(|take_over| take_over.last);
        base::sometimes!(
            unknown.is_some_and(beyond),
            "groups: a new primary does not know what was polled"
        );
        unknown.is_some_and(beyond)
    }
}

impl Hosted {
    /// The first request since this replica serves: from here on it knows what is polled.
    pub(crate) fn note_serving(&mut self, core: &mut Core) {
        let Some(partition) = self.partition.as_ref() else {
            return;
        };
        if self.marks.take_over.is_none() {
            self.marks.take_over = Some(TakeOver {
                last: partition.committed().last_offset(),
                at: core.stamp(),
            });
            if partition.stored_groups().next().is_some() {
                core.orphaned.insert(self.id);
            }
        }
    }

    /// Whether polls of a group are held up, which has this generation here.
    pub(crate) fn is_frozen(&self, group: u32, generation: u64, now: Instant) -> bool {
        let freeze = self.marks.frozen.get(&group);
        freeze.is_some_and(|freeze| freeze.generation == generation && now < freeze.until)
    }

    /// Forgets what is known of a group that is gone.
    pub(crate) fn forget_group(&mut self, group: u32) {
        self.marks.polled.remove(&group);
        self.marks.frozen.remove(&group);
    }

    /// Answers whether a group has anything in flight here: one byte, 0 if not.
    pub(super) fn on_probe(&mut self, ask: &Ask, core: &mut Core) {
        let in_flight = match Probe::decode(ask.body()) {
            Ok(probe) => self.is_in_flight(&probe, core),
            Err(_) => true,
        };
        let body = [u8::from(in_flight)];
        let op = self
            .partition
            .as_ref()
            .map_or(base::Op(0), |one| one.committed().op);
        let answer = ask.reply(op, Operation::NonReplicated, &body);
        core.answers.push(answer);
    }

    fn is_in_flight(&mut self, probe: &Probe, core: &Core) -> bool {
        let Some(partition) = self.partition.as_ref() else {
            return true;
        };
        let consumer = ConsumerKey {
            kind: ConsumerKind::Group,
            id: probe.group,
        };
        let of_group =
            |read: &Read| matches!(read, Read::Poll(one) if one.poll.consumer == consumer);
        let reading = self.reads.values().any(of_group);
        let stored = partition.stored_offset(consumer);
        if reading || self.marks.is_ahead(probe, stored) {
            return true;
        }
        if probe.freeze > 0 {
            let freeze = Freeze {
                generation: probe.freeze,
                until: core.now.monotonic + FREEZE,
            };
            self.marks.frozen.insert(probe.group, freeze);
        }
        false
    }
}
