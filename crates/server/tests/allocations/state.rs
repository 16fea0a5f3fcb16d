//! What state costs at the size of its limits, and one beyond: memory of a restored state, as
//! `docs/limits.md` tells it. Method: fill up to the limit, take the snapshot that a node would
//! start from, and count what restoring it holds on to.

use allocation_counter::measure;
use base::{ClientId, GroupId, Op};
use metadata::{Change, Metadata};
use partition::PartitionState;
use wire::{ErrorCode, Identifier, Operation};

use crate::{metadata_log, partition_log};

/// Bytes that what `make` makes holds on to.
fn held<T>(make: impl FnOnce() -> T) -> (T, u64) {
    let mut made = None;
    let info = measure(|| made = Some(make()));
    let bytes = u64::try_from(info.bytes_current).expect("it frees nothing else");
    (made.expect("made"), bytes)
}

fn restored(metadata: &Metadata) -> (Metadata, u64) {
    let snapshot = metadata.snapshot();
    let limits = metadata::Limits::default();
    held(|| Metadata::restore(limits, "iggy", &snapshot).expect("a whole snapshot"))
}

#[test]
fn ten_thousand_sessions() {
    const SESSIONS: usize = 10_000;
    const BYTES_EACH: u64 = 1_024;
    let mut log = metadata_log::Log::empty(metadata::Limits::default());
    let (_, empty) = restored(&log.metadata);
    for client in 1..=SESSIONS as u128 {
        let applied = log.register(ClientId(client), 0);
        assert!(matches!(
            applied.changes[..],
            [Change::SessionOpened { .. }]
        ));
        // Every session has an answer that a retry would get.
        let name = format!("stream-{client}");
        let entry = metadata_log::Entry {
            client: ClientId(client),
            session: log.metadata.op().0,
            request: 1,
            request_checksum: 0,
            operation: Operation::CreateStream,
            body: &metadata_log::create_stream(&name),
        };
        assert!(log.append(&entry).reply.result.is_ok());
        log.prepares.clear();
    }
    let streams = {
        let mut log = metadata_log::Log::new(metadata::Limits::default());
        for client in 1..=SESSIONS {
            let name = format!("stream-{client}");
            log.code(Operation::CreateStream, &metadata_log::create_stream(&name));
        }
        restored(&log.metadata).1
    };
    let (state, bytes) = restored(&log.metadata);
    assert_eq!(state.sessions().count(), SESSIONS);
    let each = bytes.saturating_sub(streams.max(empty)) / SESSIONS as u64;
    println!("a session with its last answer: {each} bytes");
    assert!(each <= BYTES_EACH, "{each} bytes a session");
    // One more: the stalest goes, and no other.
    let applied = log.register(ClientId(1 << 70), 0);
    let gone = Change::SessionClosed {
        client: ClientId(1),
        session: 1,
    };
    assert!(applied.changes.contains(&gone), "{:?}", applied.changes);
    assert_eq!(log.metadata.sessions().count(), SESSIONS);
}

#[test]
fn a_thousand_topics_and_ten_thousand_partitions() {
    const TOPICS: u64 = 1_000;
    const PARTITIONS: u64 = 10_000;
    const BYTES_EACH: u64 = 512;
    let mut log = metadata_log::Log::new(metadata::Limits::default());
    let create = metadata_log::create_stream("all");
    assert_eq!(log.code(Operation::CreateStream, &create), 0);
    let (_, before) = restored(&log.metadata);
    for topic in 0..TOPICS {
        let name = format!("topic-{topic}");
        let count = u32::try_from(PARTITIONS / TOPICS).expect("few");
        let body = metadata_log::create_topic(Identifier::Numeric(0), &name, count);
        assert_eq!(log.code(Operation::CreateTopic, &body), 0);
    }
    let (state, after) = restored(&log.metadata);
    assert_eq!(u64::from(state.counts().partitions), PARTITIONS);
    let each = (after - before) / PARTITIONS;
    println!("a partition in the metadata, with its share of a topic of ten: {each} bytes");
    assert!(each <= BYTES_EACH, "{each} bytes a partition");
}

#[test]
fn the_offsets_of_a_hundred_thousand_consumers() {
    const CONSUMERS: u32 = 100_000;
    const BYTES_EACH: u64 = 128;
    let limits = partition::Limits::default();
    let mut log = partition_log::Log::new(limits);
    log.send(&[b"message"]);
    let store = Operation::StoreConsumerOffset;
    for consumer in 0..CONSUMERS {
        let body = partition_log::store(partition_log::single(consumer), 0);
        let asked = (ClientId(1), u64::from(consumer) + 1);
        assert!(log.run(asked, store, &body).result.is_ok());
    }
    // One more is refused, one that is there goes on.
    let request = u64::from(CONSUMERS);
    let more = partition_log::store(partition_log::single(CONSUMERS), 0);
    let refused = log.run((ClientId(1), request + 1), store, &more).result;
    assert_eq!(refused, Err(ErrorCode::TOO_MANY_CONSUMER_OFFSETS));
    let again = partition_log::store(partition_log::single(7), 0);
    assert!(
        log.run((ClientId(1), request + 2), store, &again)
            .result
            .is_ok()
    );
    let snapshot = log.state.snapshot();
    let (group, ids) = (GroupId::partition(Op(5), 0), partition_log::IDS);
    let restore = || PartitionState::restore(group, ids, limits, &snapshot);
    let (state, bytes) = held(|| restore().expect("a whole snapshot"));
    let last = state.stored_offset(partition_log::single(CONSUMERS - 1));
    assert_eq!(last.map(|offset| offset.0), Some(0));
    let each = bytes / u64::from(CONSUMERS);
    println!(
        "a stored offset: {each} bytes, {} in a snapshot",
        snapshot.len() as u64 / u64::from(CONSUMERS)
    );
    assert!(each <= BYTES_EACH, "{each} bytes a consumer");
}
