//! The state of one partition: where its log ends, what of it is committed, who has read how far
//! and who wrote what.
//!
//! ```text
//!   0 ≤ committed.op ≤ appended.op
//!   0 ≤ committed.next_offset ≤ appended.next_offset    unless a purge lies between them
//!
//!   op      1 … committed.op              … appended.op
//!           └ applied: polls, offsets and ┘└ may be cut off by a view change: counts for the
//!             retries see this             │ next offset and for duplicates only
//! ```
//!
//! A prepare passes twice: `on_append` when it enters this replica's log, `apply` when it is
//! committed. Replicated state changes in `apply` only.

use alloc::vec::Vec;

use base::{ClientId, Digest, GroupId, Offset, Op, PartitionIds, Timestamp};
use wire::{
    AckLevel, BatchError, BatchHeader, Codec, Consumer, ConsumerKind, ErrorCode, Identifier,
    Operation, OptionalPartition, SnapshotError, batch,
    replica::PrepareHeader,
    reply::{Confirmation, ConsumerOffset},
    request::{DeleteConsumerOffset, OffsetTarget, StoreConsumerOffset},
};

use crate::{
    Limits,
    consumers::{ConsumerKey, Consumers, Store},
    producers::{Known, Outcome, Producers},
    segments::{Segment, Segments},
    snapshot,
};

/// A place in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    /// The last op.
    pub op: Op,
    /// The offset after the last message.
    pub next_offset: Offset,
    /// When the last message was appended.
    pub timestamp: Timestamp,
    /// How often all messages have been purged: each time offsets begin anew.
    pub purges: u64,
}

impl Frontier {
    /// Offset of the last message, if there is one.
    #[must_use]
    pub fn last_offset(&self) -> Option<Offset> {
        self.next_offset.0.checked_sub(1).map(Offset)
    }
}

/// Where a batch was given its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// Offset of its first message.
    pub base_offset: Offset,
    /// When it was appended. The prepare's header must carry the same.
    pub timestamp: Timestamp,
    /// How many messages it has.
    pub count: u32,
}

/// Why a prepare of the primary is not what this replica's log must go on with. The primary or
/// this replica has a bug, or memory is damaged: the replica must not acknowledge it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divergence {
    /// The body is not a batch.
    Batch(BatchError),
    /// It is stamped for another partition.
    Partition(u64),
    /// It does not start at this log's next offset.
    BaseOffset {
        /// Where this log goes on.
        expected: Offset,
        /// Where the batch says it starts.
        found: Offset,
    },
    /// Its append time is before the message before it, or is not the prepare's.
    Timestamp(Timestamp),
}

/// What to do with a request, judged by its client and number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Prepare it.
    New,
    /// It is in the log already, not committed: never prepare it again. The outcome is unknown
    /// until its commit (code 57 for this copy).
    InFlight,
    /// It is committed: answer as then.
    Replay(Reply),
    /// It is committed and its answer is gone (code 59).
    AlreadyApplied,
}

/// The answer to a committed request; the server frames it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The op that was answered. A replayed reply names the op of the first execution.
    pub op: Op,
    /// The payload: a counted list of confirmations for messages, empty for offsets.
    pub result: Result<Vec<u8>, ErrorCode>,
}

/// The state of one partition.
#[derive(Clone, Debug)]
pub struct PartitionState {
    group: GroupId,
    ids: PartitionIds,
    limits: Limits,
    pub(crate) appended: Frontier,
    pub(crate) committed: Frontier,
    pub(crate) segments: Segments,
    pub(crate) consumers: Consumers,
    producers: Producers,
}

impl PartitionState {
    /// The state before the first op.
    ///
    /// # Panics
    /// If there is no room for a producer.
    #[must_use]
    pub fn new(group: GroupId, ids: PartitionIds, limits: Limits) -> Self {
        base::invariant!(group != GroupId::METADATA);
        base::invariant!(
            limits.producers_max > 0,
            "a retry must find its own request"
        );
        Self {
            group,
            ids,
            limits,
            appended: Frontier::default(),
            committed: Frontier::default(),
            segments: Segments::new(limits.segment_size),
            consumers: Consumers::default(),
            producers: Producers::default(),
        }
    }

    /// The committed state in bytes, the same on every replica at equal commits.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        let whose = (self.group, self.ids);
        let mut out = snapshot::write_head(whose, &self.committed, self.digest());
        self.segments.write(&mut out);
        self.consumers.write(&mut out);
        self.producers.write(&mut out);
        out
    }

    /// The state that a snapshot was taken of; the log ends there.
    ///
    /// # Errors
    /// [`SnapshotError`] if it is damaged, of another version or of another partition.
    ///
    /// # Panics
    /// If there is no room for a producer.
    pub fn restore(
        group: GroupId,
        ids: PartitionIds,
        limits: Limits,
        bytes: &[u8],
    ) -> Result<Self, SnapshotError> {
        let restored = snapshot::read(bytes, limits.segment_size)?;
        if (restored.group, restored.ids) != (group, ids) {
            return Err(SnapshotError::Contradiction);
        }
        let mut state = Self {
            appended: restored.committed,
            committed: restored.committed,
            segments: restored.segments,
            consumers: restored.consumers,
            producers: restored.producers,
            ..Self::new(group, ids, limits)
        };
        if state.digest() != restored.digest {
            return Err(SnapshotError::Digest);
        }
        if base::planted::bug(21) {
            state.producers = Producers::default();
        }
        Ok(state)
    }

    /// This partition's state as a snapshot of it has it.
    ///
    /// # Errors
    /// As [`Self::restore`].
    pub fn restored(&self, bytes: &[u8]) -> Result<Self, SnapshotError> {
        Self::restore(self.group, self.ids, self.limits, bytes)
    }

    /// This partition's state before the first op.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self::new(self.group, self.ids, self.limits)
    }

    /// Its group.
    #[must_use]
    pub const fn group(&self) -> GroupId {
        self.group
    }

    /// How clients know it.
    #[must_use]
    pub const fn ids(&self) -> PartitionIds {
        self.ids
    }

    /// The end of this replica's log.
    #[must_use]
    pub const fn appended(&self) -> Frontier {
        self.appended
    }

    /// The end of what has been applied.
    #[must_use]
    pub const fn committed(&self) -> Frontier {
        self.committed
    }

    /// Offset of the last committed message, 0 if there is none: what clients are shown.
    #[must_use]
    pub fn current_offset(&self) -> Offset {
        self.committed.last_offset().unwrap_or_default()
    }

    /// Offset of the first message still kept, or to come.
    #[must_use]
    pub const fn first_offset(&self) -> Offset {
        self.segments.start()
    }

    /// The first op whose messages are served: what the log holds before it is on its way out.
    #[must_use]
    pub const fn first_op(&self) -> Op {
        self.segments.start_op()
    }

    /// Committed messages that are retained.
    #[must_use]
    pub const fn messages_count(&self) -> u64 {
        self.committed.next_offset.0 - self.segments.start().0
    }

    /// Bytes of retained messages, with the headers of their batches.
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.segments.batches_size()
    }

    /// Segments that are retained; the active one is always there.
    #[must_use]
    pub fn segments_count(&self) -> usize {
        self.segments.len()
    }

    /// The segments that may be trimmed, oldest first.
    pub fn sealed_segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.sealed()
    }

    /// The stored offset of a consumer.
    #[must_use]
    pub fn stored_offset(&self, consumer: ConsumerKey) -> Option<Offset> {
        self.consumers.get(consumer)
    }

    /// Body of get_consumer_offset (120): nothing if none is stored.
    #[must_use]
    pub fn get_consumer_offset(&self, consumer: ConsumerKey) -> Vec<u8> {
        let Some(stored) = self.stored_offset(consumer) else {
            return Vec::new();
        };
        let record = ConsumerOffset {
            partition_id: self.ids.partition,
            current_offset: self.current_offset().0,
            stored_offset: stored.0,
        };
        record.encode()
    }

    /// The primary judges a request before it prepares it.
    ///
    /// A send that is in the log a second time would take offsets a second time: there is no
    /// way to undo it at its commit. So the primary must ask here, and prepare only what is
    /// [`Decision::New`]; [`Self::apply`] asserts that it did. The judgement is sound although
    /// it looks at the table of the commit: what is in the log beyond it is in flight here.
    #[must_use]
    pub fn check_request(&self, client: ClientId, request: u64) -> Decision {
        if client.0 == 0 {
            return Decision::New;
        }
        match self.producers.check(client, request) {
            Known::Not => Decision::New,
            Known::InFlight => Decision::InFlight,
            Known::Committed(op, outcome) => Decision::Replay(self.reply(op, outcome)),
            Known::Superseded => Decision::AlreadyApplied,
        }
    }

    /// The primary gives a verified batch its place at the end of the log, in place. The header
    /// of its prepare must carry the timestamp returned; [`Self::on_append`] makes it count.
    ///
    /// # Errors
    /// [`BatchError`] if `bytes` is not a batch.
    pub fn stamp(&self, bytes: &mut [u8], realtime: Timestamp) -> Result<Stamped, BatchError> {
        let base_offset = self.appended.next_offset;
        let timestamp = realtime.max(self.appended.timestamp);
        let header = batch::stamp(bytes, self.ids.partition, base_offset.0, timestamp.0)?;
        Ok(Stamped {
            base_offset,
            timestamp,
            count: header.message_count,
        })
    }

    /// A backup derives what the primary must have stamped, and compares. Only messages are
    /// stamped; other ops always pass.
    ///
    /// # Errors
    /// [`Divergence`] if the log cannot go on with this prepare.
    pub fn verify(&self, prepare: &PrepareHeader, body: &[u8]) -> Result<(), Divergence> {
        if prepare.operation != Operation::SendMessages {
            return Ok(());
        }
        let header = BatchHeader::decode(body).map_err(Divergence::Batch)?;
        if header.batch_length != body.len() as u64 {
            return Err(Divergence::Batch(BatchError::Length));
        }
        if header.partition_id != u64::from(self.ids.partition) {
            return Err(Divergence::Partition(header.partition_id));
        }
        let (expected, found) = (self.appended.next_offset, Offset(header.base_offset));
        if found != expected {
            return Err(Divergence::BaseOffset { expected, found });
        }
        let timestamp = Timestamp(header.base_timestamp);
        if timestamp < self.appended.timestamp || timestamp != prepare.timestamp {
            return Err(Divergence::Timestamp(timestamp));
        }
        Ok(())
    }

    /// A prepare has entered this replica's log.
    ///
    /// # Panics
    /// If it is not the next one, or was not verified.
    pub fn on_append(&mut self, prepare: &PrepareHeader, body: &[u8]) {
        base::invariant!(prepare.group == self.group);
        base::invariant!(prepare.op == self.appended.op.next(), "the log has no gaps");
        self.appended.op = prepare.op;
        if prepare.operation == Operation::SendMessages {
            let header = stamped(body);
            base::invariant!(
                header.base_offset == self.appended.next_offset.0,
                "verified before"
            );
            base::invariant!(
                header.base_timestamp >= self.appended.timestamp.0,
                "verified before"
            );
            self.appended = after(prepare.op, &header, self.appended.purges);
        }
        if prepare.operation == Operation::PurgePartition {
            self.append_purge(body);
        }
        if is_numbered(prepare) {
            self.producers.on_append(prepare.client, prepare.request);
            if base::planted::bug(22) && prepare.operation == Operation::SendMessages {
                self.record(prepare, sent(&stamped(body)));
            }
        }
        if base::planted::bug(34) && prepare.operation == Operation::StoreConsumerOffset {
            let _ = self.store(prepare, body);
        }
        self.assert_invariants();
    }

    /// The log has been cut back, or its end is known anew: it now is what has been applied,
    /// then these prepares (header and body), in order.
    pub fn reset_appended<'a>(
        &mut self,
        uncommitted: impl Iterator<Item = (PrepareHeader, &'a [u8])>,
    ) {
        self.appended = self.committed;
        self.producers.forget_in_flight();
        for (prepare, body) in uncommitted {
            self.on_append(&prepare, body);
        }
    }

    /// Applies the next committed prepare, which has been appended before.
    ///
    /// # Panics
    /// If it is not the next one, or if its messages are in the log a second time: see
    /// [`Self::check_request`].
    pub fn apply(&mut self, prepare: &PrepareHeader, body: &[u8]) -> Reply {
        base::invariant!(prepare.group == self.group);
        base::invariant!(
            prepare.op == self.committed.op.next(),
            "ops are applied in order, each once"
        );
        base::invariant!(
            prepare.op <= self.appended.op,
            "only what is in the log can commit"
        );
        self.committed.op = prepare.op;
        self.segments.on_record(prepare);
        let numbered = is_numbered(prepare);
        if numbered {
            self.producers.on_commit(prepare.client);
        }
        let reply = match prepare.operation {
            Operation::SendMessages => self.apply_messages(prepare, body),
            Operation::StoreConsumerOffset
            | Operation::DeleteConsumerOffset
            | Operation::TrimLog
            | Operation::PurgePartition => self.apply_numbered(prepare, body),
            Operation::Noop => Reply {
                op: prepare.op,
                result: Ok(Vec::new()),
            },
            _ => Reply {
                op: prepare.op,
                result: Err(ErrorCode::FEATURE_UNAVAILABLE),
            },
        };
        self.assert_invariants();
        reply
    }

    fn apply_messages(&mut self, prepare: &PrepareHeader, body: &[u8]) -> Reply {
        let header = stamped(body);
        base::invariant!(
            header.base_offset == self.committed.next_offset.0,
            "verified before"
        );
        self.committed = after(prepare.op, &header, self.committed.purges);
        self.segments.on_messages(&header);
        let outcome = sent(&header);
        if is_numbered(prepare) && !base::planted::bug(22) {
            self.record(prepare, outcome);
        }
        self.reply(prepare.op, outcome)
    }

    /// An op whose outcome is that it was done, or a code.
    fn apply_numbered(&mut self, prepare: &PrepareHeader, body: &[u8]) -> Reply {
        let numbered = is_numbered(prepare);
        if numbered {
            match self.producers.check(prepare.client, prepare.request) {
                Known::Committed(op, outcome) => return self.reply(op, outcome),
                Known::Superseded => {
                    let result = Err(ErrorCode::REQUEST_ALREADY_APPLIED);
                    return Reply {
                        op: prepare.op,
                        result,
                    };
                }
                Known::Not | Known::InFlight => {}
            }
        }
        let result = match prepare.operation {
            Operation::StoreConsumerOffset if base::planted::bug(34) => Ok(()),
            Operation::StoreConsumerOffset => self.store(prepare, body),
            Operation::TrimLog => self.apply_trim(body),
            Operation::PurgePartition => self.apply_purge(prepare, body),
            _ => self.delete(body),
        };
        let outcome = Outcome::Done(result);
        if numbered {
            self.record(prepare, outcome);
        }
        self.reply(prepare.op, outcome)
    }

    fn store(&mut self, prepare: &PrepareHeader, body: &[u8]) -> Result<(), ErrorCode> {
        let request = StoreConsumerOffset::decode(body).map_err(|error| error.code())?;
        let consumer = consumer_key(request.target.consumer)?;
        let last = self.committed.last_offset();
        if last.is_none_or(|last| request.offset > last.0) {
            return Err(ErrorCode::INVALID_OFFSET);
        }
        let store = if prepare.client.0 == 0 {
            Store::Monotone
        } else {
            Store::Explicit
        };
        let max = self.limits.consumers_max;
        self.consumers
            .store(consumer, Offset(request.offset), store, max)
    }

    fn delete(&mut self, body: &[u8]) -> Result<(), ErrorCode> {
        let request = DeleteConsumerOffset::decode(body).map_err(|error| error.code())?;
        self.consumers
            .delete(consumer_key(request.target.consumer)?)
    }

    fn record(&mut self, prepare: &PrepareHeader, outcome: Outcome) {
        let (client, request) = (prepare.client, prepare.request);
        self.producers.record(
            (client, request),
            prepare.op,
            outcome,
            self.limits.producers_max,
        );
    }

    fn reply(&self, op: Op, outcome: Outcome) -> Reply {
        let result = match outcome {
            Outcome::Done(result) => result.map(|()| Vec::new()),
            Outcome::Sent { base_offset, .. } => {
                let confirmation = Confirmation {
                    stream_id: self.ids.stream,
                    topic_id: self.ids.topic,
                    partition_id: self.ids.partition,
                    base_offset: base_offset.0,
                };
                Ok(wire::Counted(alloc::vec![confirmation]).encode())
            }
        };
        Reply { op, result }
    }

    /// The stored offset of a consumer, as requests name it.
    const fn offset_target(&self, consumer: ConsumerKey) -> OffsetTarget<'static> {
        OffsetTarget {
            consumer: Consumer {
                kind: consumer.kind,
                id: Identifier::Numeric(consumer.id),
            },
            stream: Identifier::Numeric(self.ids.stream),
            topic: Identifier::Numeric(self.ids.topic),
            partition: OptionalPartition(Some(self.ids.partition)),
        }
    }

    /// Body of the StoreConsumerOffset that a server prepares by itself (client 0) when a poll
    /// with auto-commit has been served: such a store raises an offset and never lowers it.
    #[must_use]
    pub fn auto_commit_body(&self, consumer: ConsumerKey, offset: Offset) -> Vec<u8> {
        let target = self.offset_target(consumer);
        StoreConsumerOffset {
            target,
            offset: offset.0,
            ack: AckLevel::Quorum,
        }
        .encode()
    }

    /// Body of the DeleteConsumerOffset that a server prepares by itself (client 0) when a
    /// consumer is gone.
    #[must_use]
    pub fn forget_body(&self, consumer: ConsumerKey) -> Vec<u8> {
        let target = self.offset_target(consumer);
        let ack = AckLevel::Quorum;
        DeleteConsumerOffset { target, ack }.encode()
    }

    /// The consumer groups that have an offset stored.
    pub fn stored_groups(&self) -> impl Iterator<Item = u32> + '_ {
        self.consumers.groups()
    }

    /// A hash of the replicated state: equal on all replicas at equal commits, whatever is in
    /// flight.
    #[must_use]
    pub fn digest(&self) -> u128 {
        let mut digest = Digest::default();
        digest.u64(self.group.0);
        digest.u64(self.committed.op.0);
        digest.u64(self.committed.next_offset.0);
        digest.u64(self.committed.timestamp.0);
        digest.u64(self.committed.purges);
        self.segments.digest_into(&mut digest);
        self.consumers.digest_into(&mut digest);
        self.producers.digest_into(&mut digest);
        digest.finish()
    }

    fn assert_invariants(&self) {
        base::invariant!(self.committed.op <= self.appended.op);
        let place = |frontier: &Frontier| (frontier.purges, frontier.next_offset);
        base::invariant!(place(&self.committed) <= place(&self.appended));
        base::invariant!(self.segments.start() <= self.committed.next_offset);
        base::invariant!(self.committed.timestamp <= self.appended.timestamp);
    }
}

/// How this partition knows the consumer of a request. A group is known by its number: whoever
/// prepares the op has resolved its name.
///
/// # Errors
/// 5000 for a group that is named.
pub fn consumer_key(consumer: Consumer<'_>) -> Result<ConsumerKey, ErrorCode> {
    let id = match (consumer.kind, consumer.id) {
        (ConsumerKind::Group, Identifier::Numeric(id)) => Some(id),
        _ => consumer.single_key(),
    };
    let id = id.ok_or(ErrorCode::CONSUMER_GROUP_ID_NOT_FOUND)?;
    Ok(ConsumerKey {
        kind: consumer.kind,
        id,
    })
}

/// Whether a client asked and numbered its request; the server's own ops are not remembered.
fn is_numbered(prepare: &PrepareHeader) -> bool {
    prepare.client.0 != 0 && prepare.operation != Operation::Noop
}

/// The header of a batch that has been verified.
fn stamped(body: &[u8]) -> BatchHeader {
    BatchHeader::decode(body).expect("a batch is verified before it enters the log")
}

/// What a producer is told of its batch.
const fn sent(header: &BatchHeader) -> Outcome {
    Outcome::Sent {
        base_offset: Offset(header.base_offset),
        count: header.message_count,
    }
}

fn after(op: Op, header: &BatchHeader, purges: u64) -> Frontier {
    Frontier {
        op,
        next_offset: Offset(header.base_offset + u64::from(header.message_count)),
        timestamp: Timestamp(header.base_timestamp),
        purges,
    }
}
