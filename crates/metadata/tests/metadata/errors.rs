//! Every code a metadata op can answer, and that an op which answers one changes nothing.

use crate::support::{
    CLIENT, Entry, Log, block, create_stream, create_stream_with, create_topic, create_topic_with,
    id, named, partitions, topic, update_stream, update_topic,
};
use base::ClientId;
use metadata::Limits;
use wire::{Codec, Operation, Options, Value, options::kind};

/// Streams `a` (topics `t` with 3 partitions, `u` with none) and `b`.
fn populated() -> Log {
    let mut log = Log::new(Limits::default());
    for (operation, body) in [
        (Operation::CreateStream, create_stream("a")),
        (Operation::CreateStream, create_stream("b")),
        (Operation::CreateTopic, create_topic(named("a"), "t", 3)),
        (Operation::CreateTopic, create_topic(named("a"), "u", 0)),
    ] {
        assert_eq!(log.code(operation, &body), 0);
    }
    log
}

fn option(key: &str, value: Value<'_>) -> Vec<u8> {
    create_topic_with(named("a"), "new", 1, block(&[(key, value)]).as_options())
}

#[test]
fn each_bad_request_has_its_code_and_changes_nothing() {
    use Operation::{
        CreatePartitions, CreateStream, CreateTopic, DeletePartitions, DeleteStream, DeleteTopic,
        UpdateStream, UpdateTopic,
    };
    let (a, t, none) = (named("a"), named("t"), Options::default());
    let colour = block(&[("colour", Value::text("red"))]);
    let segment = block(&[("segment_size", Value::text("1 GiB"))]);
    let small = block(&[("max_topic_size", Value::text("1 MiB"))]);
    let bad = block(&[("message_expiry", Value::text("soon"))]);
    let cases: &[(u32, Operation, Vec<u8>)] = &[
        (3, CreateStream, vec![]),
        (3, CreateStream, vec![0]),
        (3, CreateStream, vec![1, 0xFF]),
        (3, UpdateStream, create_stream("a")),
        (3, DeleteStream, vec![]),
        (3, DeleteStream, [id(0).encode(), vec![0]].concat()),
        (3, CreateTopic, topic(a, t)),
        (3, UpdateTopic, topic(a, t)),
        (3, DeleteTopic, id(0).encode()),
        (3, CreatePartitions, topic(a, t)),
        (3, DeletePartitions, [partitions(a, t, 1), vec![0]].concat()),
        (3, Operation::PurgeStream, vec![]),
        (3, Operation::PurgeTopic, id(0).encode()),
        (1009, Operation::PurgeStream, id(2).encode()),
        (1009, Operation::PurgeTopic, topic(id(9), t)),
        (2010, Operation::PurgeTopic, topic(a, id(9))),
        (3, Operation::CreateUser, vec![]),
        (5, Operation::DeleteSegments, vec![]),
        (5, Operation::CreateTopicWithAssignments, vec![]),
        (5, Operation::SendMessages, vec![]),
        (1012, CreateStream, create_stream("a")),
        (1012, UpdateStream, update_stream(a, "b")),
        (
            4041,
            CreateStream,
            create_stream_with("c", colour.as_options()),
        ),
        (1009, UpdateStream, update_stream(id(2), "c")),
        (1009, DeleteStream, named("c").encode()),
        (1009, CreateTopic, create_topic(id(9), "t", 1)),
        (1009, UpdateTopic, update_topic((id(9), t), "t", none)),
        (1009, DeleteTopic, topic(id(9), t)),
        (1009, CreatePartitions, partitions(id(9), t, 1)),
        (1009, DeletePartitions, partitions(id(9), t, 1)),
        (2010, UpdateTopic, update_topic((a, id(9)), "t", none)),
        (2010, DeleteTopic, topic(a, named("v"))),
        (2010, CreatePartitions, partitions(named("b"), t, 1)),
        (2010, DeletePartitions, partitions(named("b"), t, 1)),
        (2013, CreateTopic, create_topic(a, "t", 1)),
        (2013, UpdateTopic, update_topic((a, t), "u", none)),
        (2015, CreateTopic, create_topic(a, "new", 1001)),
        (2015, CreatePartitions, partitions(a, t, 0)),
        (2015, CreatePartitions, partitions(a, t, 1001)),
        (2015, DeletePartitions, partitions(a, t, 0)),
        (2015, DeletePartitions, partitions(a, t, 1001)),
        (2019, DeletePartitions, partitions(a, t, 4)),
        (2019, DeletePartitions, partitions(a, named("u"), 1)),
        (4041, CreateTopic, option("colour", Value::text("red"))),
        (
            4041,
            CreateTopic,
            option("Durability", Value::text("persisted")),
        ),
        (
            4041,
            UpdateTopic,
            update_topic((a, t), "t", colour.as_options()),
        ),
        // May be set at creation only.
        (
            4041,
            UpdateTopic,
            update_topic((a, t), "t", segment.as_options()),
        ),
        (
            4042,
            CreateTopic,
            option("durability", Value::text("maybe")),
        ),
        (
            4042,
            UpdateTopic,
            update_topic((a, t), "t", bad.as_options()),
        ),
        (
            1019,
            CreateTopic,
            option("max_topic_size", Value::text("1023 MiB")),
        ),
        (
            1019,
            UpdateTopic,
            update_topic((a, t), "t", small.as_options()),
        ),
    ];
    let mut log = populated();
    for (code, operation, body) in cases {
        let streams = log.metadata.get_streams(&|_| metadata::EMPTY_PARTITION);
        let topics = log.metadata.get_topics(a, &|_| metadata::EMPTY_PARTITION);
        let groups: Vec<_> = log.metadata.partitions().collect();
        let applied = log.ask(*operation, body);
        let found = applied.reply.result.map_or_else(|code| code.0, |_| 0);
        assert_eq!(found, *code, "{operation:?} {body:?}");
        assert_eq!(applied.changes, []);
        assert_eq!(
            log.metadata.get_streams(&|_| metadata::EMPTY_PARTITION),
            streams
        );
        assert_eq!(
            log.metadata.get_topics(a, &|_| metadata::EMPTY_PARTITION),
            topics
        );
        assert!(log.metadata.partitions().eq(groups));
    }
}

#[test]
fn an_update_that_fails_half_way_changes_nothing() {
    // The options are good, the name is taken; and the other way round.
    let mut log = populated();
    let before = log
        .metadata
        .get_topics(named("a"), &|_| metadata::EMPTY_PARTITION);
    let good = block(&[("message_expiry", Value::text("1h"))]);
    let bad = block(&[("message_expiry", Value::text("soon"))]);
    let (a, t) = (named("a"), named("t"));
    let body = update_topic((a, t), "u", good.as_options());
    assert_eq!(log.code(Operation::UpdateTopic, &body), 2013);
    let body = update_topic((a, t), "free", bad.as_options());
    assert_eq!(log.code(Operation::UpdateTopic, &body), 4042);
    assert_eq!(
        log.metadata.get_topics(a, &|_| metadata::EMPTY_PARTITION),
        before
    );
}

#[test]
fn too_large_an_options_block_has_a_code_of_its_own() {
    let mut log = populated();
    let mut body = create_topic(named("a"), "new", 1);
    body.extend_from_slice(&vec![0; wire::options::OPTIONS_SIZE_MAX + 1]);
    assert_eq!(log.code(Operation::CreateTopic, &body), 4043);
}

#[test]
fn a_user_without_rights_may_do_nothing() {
    let mut log = populated();
    let user = crate::users::create_user("alice", None);
    assert_eq!(log.code(Operation::CreateUser, &user), 0);
    log.user = 1;
    for (operation, body) in [
        (Operation::CreateStream, create_stream("c")),
        (Operation::UpdateStream, update_stream(id(0), "c")),
        (Operation::DeleteStream, id(0).encode()),
        (Operation::CreateTopic, create_topic(id(0), "new", 1)),
        (
            Operation::UpdateTopic,
            update_topic((id(0), id(0)), "new", Options::default()),
        ),
        (Operation::DeleteTopic, topic(id(0), id(0))),
        (Operation::CreatePartitions, partitions(id(0), id(0), 1)),
        (Operation::DeletePartitions, partitions(id(0), id(0), 1)),
    ] {
        assert_eq!(log.code(operation, &body), 41, "{operation:?}");
    }
    let refused = log.register(ClientId(5), 2);
    assert_eq!(refused.reply.result.map_err(|code| code.0), Err(42));
    assert_eq!(log.metadata.session(ClientId(5)), None);
    assert_eq!(log.metadata.find_user(named("iggy")), Some(0));
    assert_eq!(log.metadata.find_user(named("someone")), None);
}

#[test]
fn an_error_is_remembered_like_any_answer() {
    let mut log = populated();
    let session = log.metadata.session(CLIENT).expect("logged in").session;
    let body = create_stream("a");
    let operation = Operation::CreateStream;
    let entry = Entry {
        client: CLIENT,
        session,
        request: 90,
        request_checksum: 0,
        operation,
        body: &body,
    };
    let first = log.append(&entry).reply;
    assert_eq!(
        first.result.as_ref().map_err(|code| code.0),
        Err(&1012).map_err(|code| *code)
    );
    // The name is free now, and the answer stays.
    let delete = Entry {
        request: 91,
        operation: Operation::DeleteStream,
        body: &id(0).encode(),
        ..entry
    };
    assert!(log.append(&delete).reply.result.is_ok());
    assert_eq!(log.append(&entry).reply, first);
    assert_eq!(first.body(), wire::result::rejection(wire::ErrorCode(1012)));
}

/// The code that a new topic with this option gets; 0 for success.
fn code_of(key: &str, value: Value<'_>) -> u32 {
    populated().code(Operation::CreateTopic, &option(key, value))
}

#[test]
fn option_values_as_text() {
    let cases: &[(u32, &str, &str)] = &[
        (0, "compression_algorithm", "GZIP"),
        (4042, "compression_algorithm", "lz4"),
        (0, "message_expiry", "server_default"),
        (0, "message_expiry", "never_expire"),
        (0, "message_expiry", "7days 12h"),
        (4042, "message_expiry", "soon"),
        (0, "max_topic_size", "1 GiB"),
        (0, "max_topic_size", "unlimited"),
        (4042, "max_topic_size", "large"),
        (0, "segment_size", "1 MiB"),
        (4042, "segment_size", "1048064"),
        (4042, "segment_size", "1073742336"),
        (4042, "segment_size", "1048577"),
        (0, "durability", "Persisted"),
        (4042, "durability", "persistent"),
        (0, "consumer_offset_durability", "persisted"),
        (4042, "consumer_offset_durability", "no"),
        (0, "messages_required_to_save", "1"),
        (0, "messages_required_to_save", "16777216"),
        (4042, "messages_required_to_save", "16777217"),
        (4042, "messages_required_to_save", "0"),
        (0, "size_of_messages_required_to_save", "1 GiB"),
        (4042, "size_of_messages_required_to_save", "1073741825"),
        (0, "preallocate_segments", "true"),
        (4042, "preallocate_segments", "yes"),
        (0, "enforce_fsync", "true"),
        (4042, "enforce_fsync", "1"),
    ];
    for (code, key, text) in cases {
        assert_eq!(code_of(key, Value::text(text)), *code, "{key} {text}");
    }
}

#[test]
fn option_values_of_other_kinds() {
    const GIB: &[u8] = &u64::to_le_bytes(1 << 30);
    const ODD: &[u8] = &u64::to_le_bytes((1 << 20) + 1);
    let cases: &[(u32, &str, u8, &[u8])] = &[
        (0, "compression_algorithm", kind::UINT8, &[2]),
        (4042, "compression_algorithm", kind::UINT8, &[3]),
        (4042, "compression_algorithm", kind::UINT64, GIB),
        (0, "message_expiry", kind::UINT64, &[0xFF; 8]),
        (0, "message_expiry", kind::UINT64, &[0; 8]),
        (4042, "message_expiry", kind::UINT32, &[1; 4]),
        (0, "max_topic_size", kind::UINT64, &[0; 8]),
        (0, "max_topic_size", kind::UINT64, GIB),
        (4042, "max_topic_size", kind::BOOL, &[1]),
        (0, "segment_size", kind::UINT64, &[0; 8]),
        (0, "segment_size", kind::UINT64, GIB),
        (4042, "segment_size", kind::UINT64, ODD),
        (4042, "durability", kind::BOOL, &[1]),
        (0, "messages_required_to_save", kind::UINT32, &[0, 0, 0, 1]),
        (
            4042,
            "messages_required_to_save",
            kind::UINT32,
            &[1, 0, 0, 1],
        ),
        (4042, "messages_required_to_save", kind::UINT32, &[0; 4]),
        (
            0,
            "size_of_messages_required_to_save",
            kind::UINT64,
            &[0; 8],
        ),
        (
            4042,
            "size_of_messages_required_to_save",
            kind::UINT64,
            &[0xFF; 8],
        ),
        (0, "preallocate_segments", kind::BOOL, &[0]),
        (4042, "preallocate_segments", kind::BOOL, &[2]),
        (0, "enforce_fsync", kind::BOOL, &[1]),
        (4042, "enforce_fsync", kind::UINT8, &[1]),
    ];
    for (code, key, kind, data) in cases {
        let value = Value { kind: *kind, data };
        assert_eq!(code_of(key, value), *code, "{key} {value:?}");
    }
}
