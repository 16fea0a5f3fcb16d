//! Every bound, at the limit and one beyond.

use crate::support::{
    Entry, Log, block, create_stream, create_topic, create_topic_with, id, partitions,
};
use base::ClientId;
use metadata::{Change, Decision, Limits, RequestKey};
use wire::{Codec, Operation, Value};

fn small() -> Limits {
    Limits {
        streams_max: 3,
        topics_max: 2,
        partitions_max: 5,
        partitions_per_request_max: 4,
        clients_max: 3,
        replies_max: 2,
        ..Limits::default()
    }
}

#[test]
fn streams() {
    let mut log = Log::new(small());
    for name in ["a", "b", "c"] {
        assert_eq!(log.code(Operation::CreateStream, &create_stream(name)), 0);
    }
    assert_eq!(log.code(Operation::CreateStream, &create_stream("d")), 1020);
    assert_eq!(log.code(Operation::DeleteStream, &id(1).encode()), 0);
    assert_eq!(log.code(Operation::CreateStream, &create_stream("d")), 0);
}

#[test]
fn topics_of_a_stream() {
    let mut log = Log::new(small());
    for name in ["a", "b"] {
        assert_eq!(log.code(Operation::CreateStream, &create_stream(name)), 0);
    }
    for (stream, name, code) in [(0, "x", 0), (0, "y", 0), (0, "z", 2021), (1, "x", 0)] {
        let body = create_topic(id(stream), name, 0);
        assert_eq!(
            log.code(Operation::CreateTopic, &body),
            code,
            "{stream} {name}"
        );
    }
}

#[test]
fn partitions_of_a_request_and_of_a_topic() {
    let mut log = Log::new(small());
    assert_eq!(log.code(Operation::CreateStream, &create_stream("a")), 0);
    assert_eq!(
        log.code(Operation::CreateTopic, &create_topic(id(0), "x", 5)),
        2015
    );
    assert_eq!(
        log.code(Operation::CreateTopic, &create_topic(id(0), "x", 4)),
        0
    );
    let add = |count| partitions(id(0), id(0), count);
    assert_eq!(log.code(Operation::CreatePartitions, &add(5)), 2015);
    assert_eq!(log.code(Operation::CreatePartitions, &add(2)), 3013);
    assert_eq!(log.code(Operation::CreatePartitions, &add(1)), 0);
    assert_eq!(log.code(Operation::CreatePartitions, &add(1)), 3013);
    assert_eq!(log.metadata.counts().partitions, 5);
    assert_eq!(log.code(Operation::DeletePartitions, &add(4)), 0);
    assert_eq!(log.code(Operation::DeletePartitions, &add(1)), 0);
    assert_eq!(log.code(Operation::DeletePartitions, &add(1)), 2019);
    // A topic may be asked for with more than it may have, if requests are larger than topics.
    let mut log = Log::new(Limits {
        partitions_max: 3,
        ..small()
    });
    assert_eq!(log.code(Operation::CreateStream, &create_stream("a")), 0);
    assert_eq!(
        log.code(Operation::CreateTopic, &create_topic(id(0), "x", 4)),
        3013
    );
    assert_eq!(
        log.code(Operation::CreateTopic, &create_topic(id(0), "x", 3)),
        0
    );
}

#[test]
fn preallocated_bytes_of_a_new_topic() {
    let mut log = Log::new(Limits::default());
    assert_eq!(log.code(Operation::CreateStream, &create_stream("a")), 0);
    let options = block(&[("preallocate_segments", Value::text("true"))]);
    let body = |name, count| create_topic_with(id(0), name, count, options.as_options());
    assert_eq!(log.code(Operation::CreateTopic, &body("x", 65)), 4042);
    assert_eq!(log.code(Operation::CreateTopic, &body("x", 64)), 0);
}

#[test]
fn sessions_beyond_the_limit_evict_the_one_that_committed_least_recently() {
    let mut log = Log::empty(small());
    for client in 1..=3 {
        assert!(log.register(ClientId(client), 0).reply.result.is_ok());
    }
    assert_eq!(log.metadata.counts().clients, 3);
    // Client 1 commits something: now client 2 is the stalest.
    let entry = Entry {
        client: ClientId(1),
        session: 1,
        request: 1,
        request_checksum: 0,
        operation: Operation::CreateStream,
        body: &create_stream("a"),
    };
    assert!(log.append(&entry).reply.result.is_ok());
    let applied = log.register(ClientId(4), 0);
    let opened = Change::SessionOpened {
        client: ClientId(4),
        session: 5,
        user: 0,
    };
    let closed = Change::SessionClosed {
        client: ClientId(2),
        session: 2,
    };
    assert_eq!(applied.changes, [closed, opened]);
    // Renewing a session takes no room.
    let applied = log.register(ClientId(3), 0);
    let opened = Change::SessionOpened {
        client: ClientId(3),
        session: 6,
        user: 0,
    };
    let closed = Change::SessionClosed {
        client: ClientId(3),
        session: 3,
    };
    assert_eq!(applied.changes, [closed, opened]);
    let left: Vec<_> = log
        .metadata
        .sessions()
        .map(|(client, _)| client.0)
        .collect();
    assert_eq!(left, [1, 3, 4]);
}

#[test]
fn replies_beyond_the_limit_are_gone_and_never_executed_again() {
    let mut log = Log::empty(small());
    log.register(ClientId(1), 0)
        .reply
        .result
        .expect("root may log in");
    let bodies = ["a", "b", "c"].map(create_stream);
    let entry = |request: u64| Entry {
        client: ClientId(1),
        session: 1,
        request,
        request_checksum: 0,
        operation: Operation::CreateStream,
        body: &bodies[usize::try_from(request - 1).expect("small")],
    };
    let first: Vec<_> = (1..=3)
        .map(|request| log.append(&entry(request)).reply)
        .collect();
    let key = |request| RequestKey {
        client: ClientId(1),
        session: 1,
        request,
        request_checksum: 0,
    };
    assert_eq!(
        log.metadata.check_request(&key(1)),
        Decision::AlreadyApplied
    );
    assert_eq!(
        log.metadata.check_request(&key(2)),
        Decision::Replay(first[1].clone())
    );
    assert_eq!(
        log.metadata.check_request(&key(3)),
        Decision::Replay(first[2].clone())
    );
    assert_eq!(log.metadata.check_request(&key(4)), Decision::New);
    let again = log.append(&entry(1)).reply;
    assert_eq!(again.result.map_err(|code| code.0), Err(59));
    assert_eq!(log.metadata.counts().streams, 3);
}

#[test]
#[should_panic(expected = "10 bits")]
fn more_partitions_per_request_than_a_group_id_can_name_are_refused_at_start() {
    let limits = Limits {
        partitions_per_request_max: 1001,
        ..Limits::default()
    };
    let _ = Log::empty(limits);
}
