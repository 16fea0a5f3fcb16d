//! A partition's log: builds sealed prepares the way a primary does, and keeps them.

use base::{Bytes, ClientId, GroupId, Offset, Op, ReplicaIndex, Timestamp, View};
use partition::{ConsumerKey, Limits, PartitionIds, PartitionState, Reply};
use wire::{
    AckLevel, BatchBuilder, Codec, Consumer, ConsumerKind, HEADER_SIZE, Identifier, Operation,
    OptionalPartition,
    batch::Message,
    replica::PrepareHeader,
    request::{DeleteConsumerOffset, OffsetTarget, StoreConsumerOffset},
};

pub(crate) const IDS: PartitionIds = PartitionIds {
    stream: 1,
    topic: 2,
    partition: 3,
};

/// The server itself.
pub(crate) const SERVER: ClientId = ClientId(0);

pub(crate) fn group() -> GroupId {
    GroupId::partition(Op(5), 0)
}

/// A partition group of one replica.
#[derive(Clone)]
pub(crate) struct Log {
    pub(crate) state: PartitionState,
    /// Every prepare so far.
    pub(crate) prepares: Vec<Bytes>,
    pub(crate) realtime: Timestamp,
}

impl Log {
    pub(crate) fn new(limits: Limits) -> Self {
        let state = PartitionState::new(group(), IDS, limits);
        Self {
            state,
            prepares: Vec::new(),
            realtime: Timestamp(1_000),
        }
    }

    /// Seals a prepare for the end of the log and appends it; nothing is committed.
    pub(crate) fn append(
        &mut self,
        (client, request): (ClientId, u64),
        operation: Operation,
        body: &[u8],
    ) -> PrepareHeader {
        let mut frame = vec![0; HEADER_SIZE + body.len()];
        frame[HEADER_SIZE..].copy_from_slice(body);
        let mut timestamp = self.realtime;
        if operation == Operation::SendMessages {
            let batch = &mut frame[HEADER_SIZE..];
            timestamp = self
                .state
                .stamp(batch, self.realtime)
                .expect("a batch")
                .timestamp;
        }
        let op = self.state.appended().op.next();
        let header = PrepareHeader {
            checksum: 0,
            checksum_body: 0,
            cluster: 1,
            size: 0,
            view: View(0),
            replica: ReplicaIndex(0),
            parent: self
                .prepares
                .last()
                .map_or(0, |prepare| header_of(prepare).checksum),
            client,
            group: group(),
            op,
            commit: Op(0),
            timestamp,
            request,
            session: 1,
            request_checksum: 0,
            user: 0,
            operation,
            encryption: None,
        };
        header.seal_into(&mut frame);
        let header = PrepareHeader::verify(&frame).expect("just sealed");
        let body = &frame[HEADER_SIZE..];
        self.state
            .verify(&header, body)
            .expect("what the primary stamps, it verifies");
        self.state.on_append(&header, body);
        self.prepares.push(Bytes::copy_of(&frame));
        header
    }

    /// Applies the next prepare that is in the log.
    pub(crate) fn commit(&mut self) -> Reply {
        let index = usize::try_from(self.state.committed().op.0).expect("small");
        let prepare = &self.prepares[index];
        self.state
            .apply(&header_of(prepare), &prepare[HEADER_SIZE..])
    }

    /// Appends and commits.
    pub(crate) fn run(
        &mut self,
        asked: (ClientId, u64),
        operation: Operation,
        body: &[u8],
    ) -> Reply {
        self.append(asked, operation, body);
        while self.state.committed().op.next() < self.state.appended().op {
            self.commit();
        }
        self.commit()
    }

    /// Appends and commits messages with these payloads, from the server itself.
    pub(crate) fn send(&mut self, payloads: &[&[u8]]) -> Reply {
        self.run((SERVER, 0), Operation::SendMessages, &batch(payloads))
    }
}

pub(crate) fn header_of(prepare: &Bytes) -> PrepareHeader {
    PrepareHeader::verify(prepare).expect("sealed by the helper")
}

/// A producer's batch.
pub(crate) fn batch(payloads: &[&[u8]]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for (id, payload) in (1..).zip(payloads) {
        let message = Message {
            id,
            origin_timestamp: 5,
            payload,
            user_headers: &[],
        };
        builder.push(message).expect("a valid message");
    }
    builder.finish().expect("at least one message")
}

pub(crate) fn single(id: u32) -> ConsumerKey {
    ConsumerKey {
        kind: ConsumerKind::Single,
        id,
    }
}

pub(crate) fn group_consumer(id: u32) -> ConsumerKey {
    ConsumerKey {
        kind: ConsumerKind::Group,
        id,
    }
}

fn target(consumer: ConsumerKey) -> OffsetTarget<'static> {
    OffsetTarget {
        consumer: Consumer {
            kind: consumer.kind,
            id: Identifier::Numeric(consumer.id),
        },
        stream: Identifier::Numeric(IDS.stream),
        topic: Identifier::Numeric(IDS.topic),
        partition: OptionalPartition(Some(IDS.partition)),
    }
}

pub(crate) fn store(consumer: ConsumerKey, offset: u64) -> Vec<u8> {
    StoreConsumerOffset {
        target: target(consumer),
        offset,
        ack: AckLevel::Quorum,
    }
    .encode()
}

pub(crate) fn delete(consumer: ConsumerKey) -> Vec<u8> {
    DeleteConsumerOffset {
        target: target(consumer),
        ack: AckLevel::Quorum,
    }
    .encode()
}

/// The payload of a send's confirmation.
pub(crate) fn confirmed(reply: &Reply) -> Offset {
    let payload = reply.result.as_ref().expect("a confirmation");
    let list = wire::Counted::<wire::reply::Confirmation>::decode(payload)
        .expect("a list")
        .0;
    assert_eq!(list.len(), 1);
    let ids = (list[0].stream_id, list[0].topic_id, list[0].partition_id);
    assert_eq!(ids, (IDS.stream, IDS.topic, IDS.partition));
    Offset(list[0].base_offset)
}
