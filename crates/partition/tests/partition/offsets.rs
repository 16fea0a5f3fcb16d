//! Consumer offsets: what may be stored, by whom, and how many.

use base::{ClientId, Offset};
use partition::{Limits, consumer_key};
use wire::{Codec, Consumer, ConsumerKind, Identifier, Name, Operation, reply::ConsumerOffset};

use crate::support::{Log, SERVER, delete, group_consumer, single, store};

const CLIENT: ClientId = ClientId(7);

fn code(log: &mut Log, request: u64, operation: Operation, body: &[u8]) -> u32 {
    let reply = log.run((CLIENT, request), operation, body);
    reply.result.map_or_else(
        |code| code.0,
        |payload| {
            assert_eq!(payload, []);
            0
        },
    )
}

#[test]
fn each_store_and_delete_has_its_code() {
    use Operation::{DeleteConsumerOffset as Delete, StoreConsumerOffset as Store};
    let mut log = Log::new(Limits {
        consumers_max: 2,
        ..Limits::default()
    });
    assert_eq!(
        code(&mut log, 1, Store, &store(single(1), 0)),
        4100,
        "empty partition"
    );
    log.send(&[b"a", b"b", b"c"]);
    let cases = [
        (0, Store, store(single(1), 2)),
        (4100, Store, store(single(1), 3)),
        // An explicit store may go back.
        (0, Store, store(single(1), 0)),
        (0, Store, store(single(2), 1)),
        (3024, Store, store(single(3), 1)),
        (0, Store, store(single(1), 1)),
        // Groups are counted apart, and their numbers are not those of single consumers.
        (0, Store, store(group_consumer(1), 2)),
        (0, Store, store(group_consumer(9), 2)),
        (3024, Store, store(group_consumer(8), 2)),
        (3021, Delete, delete(single(3))),
        (0, Delete, delete(single(2))),
        (3021, Delete, delete(single(2))),
        (0, Store, store(single(3), 1)),
        (3, Store, vec![]),
        (3, Store, delete(single(1))),
        (3, Delete, store(single(1), 1)),
    ];
    for (request, (expected, operation, body)) in (2..).zip(cases) {
        let found = code(&mut log, request, operation, &body);
        assert_eq!(found, expected, "request {request}, {operation:?}");
    }
    let stored = [
        single(1),
        single(2),
        single(3),
        group_consumer(1),
        group_consumer(9),
    ]
    .map(|consumer| log.state.stored_offset(consumer).map(|offset| offset.0));
    assert_eq!(stored, [Some(1), None, Some(1), Some(2), Some(2)]);
}

#[test]
fn only_what_is_committed_can_be_stored() {
    let mut log = Log::new(Limits::default());
    log.send(&[b"a"]);
    log.append(
        (SERVER, 0),
        Operation::StoreConsumerOffset,
        &store(single(1), 1),
    );
    log.append(
        (SERVER, 0),
        Operation::SendMessages,
        &crate::support::batch(&[b"b"]),
    );
    log.append(
        (SERVER, 0),
        Operation::StoreConsumerOffset,
        &store(single(2), 1),
    );
    assert_eq!(
        log.commit().result.map_err(|code| code.0),
        Err(4100),
        "before the message"
    );
    assert!(log.commit().result.is_ok());
    assert!(log.commit().result.is_ok(), "after it");
}

#[test]
fn auto_commit_never_goes_back() {
    let mut log = Log::new(Limits::default());
    log.send(&[b"a", b"b", b"c"]);
    for (offset, stored) in [(1, 1), (2, 2), (0, 2)] {
        let body = log.state.auto_commit_body(single(4), Offset(offset));
        let reply = log.run((SERVER, 0), Operation::StoreConsumerOffset, &body);
        assert!(reply.result.is_ok());
        assert_eq!(log.state.stored_offset(single(4)), Some(Offset(stored)));
    }
    // A client may.
    assert_eq!(
        code(
            &mut log,
            1,
            Operation::StoreConsumerOffset,
            &store(single(4), 0)
        ),
        0
    );
    assert_eq!(log.state.stored_offset(single(4)), Some(Offset(0)));
}

#[test]
fn an_offset_reads_as_a_record_or_nothing() {
    let mut log = Log::new(Limits::default());
    assert!(log.state.get_consumer_offset(single(1)).is_empty());
    log.send(&[b"a", b"b", b"c"]);
    assert_eq!(
        code(
            &mut log,
            1,
            Operation::StoreConsumerOffset,
            &store(single(1), 1)
        ),
        0
    );
    let body = log.state.get_consumer_offset(single(1));
    let record = ConsumerOffset {
        partition_id: 3,
        current_offset: 2,
        stored_offset: 1,
    };
    assert_eq!(ConsumerOffset::decode(&body), Ok(record));
    assert!(log.state.get_consumer_offset(group_consumer(1)).is_empty());
}

#[test]
fn consumers_have_one_key_however_they_are_named() {
    let name = Identifier::Named(Name::new("billing").expect("a name"));
    let hash = base::checksum::xxh32(b"billing");
    let key = |kind, id| consumer_key(Consumer { kind, id }).map_err(|code| code.0);
    assert_eq!(key(ConsumerKind::Single, name), Ok(single(hash)));
    assert_eq!(
        key(ConsumerKind::Single, Identifier::Numeric(hash)),
        Ok(single(hash))
    );
    assert_eq!(
        key(ConsumerKind::Group, Identifier::Numeric(4)),
        Ok(group_consumer(4))
    );
    assert_eq!(key(ConsumerKind::Group, name), Err(5000));
}
