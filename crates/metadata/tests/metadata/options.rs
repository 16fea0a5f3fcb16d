//! Every topic option at its bounds, one beyond, and in every kind it may come in
//! (`wire.md` 4.9).

use crate::support::{Log, block, create_stream, create_topic_with, id, update_topic};
use metadata::{Limits, TopicOptions};
use wire::{
    Operation, PROTOCOL_VERSION, Value,
    options::kind::{BOOL, RAW, STRING, UINT8, UINT32, UINT64},
    request::TopicTarget,
};

/// A number in a kind of its size.
fn number(value: u64) -> (u8, Vec<u8>) {
    (UINT64, value.to_le_bytes().to_vec())
}

fn count(value: u32) -> (u8, Vec<u8>) {
    (UINT32, value.to_le_bytes().to_vec())
}

fn text(value: &str) -> (u8, Vec<u8>) {
    (STRING, value.as_bytes().to_vec())
}

fn byte(kind: u8, value: u8) -> (u8, Vec<u8>) {
    (kind, vec![value])
}

/// Creates a topic with one option; the code, and what the topic has if it is 0.
fn created(
    key: &str,
    (kind, data): &(u8, Vec<u8>),
    partitions: u32,
) -> (u32, Option<TopicOptions>) {
    let mut log = Log::new(Limits::default());
    assert_eq!(log.code(Operation::CreateStream, &create_stream("a")), 0);
    let options = block(&[(key, Value { kind: *kind, data })]);
    let body = create_topic_with(id(0), "t", partitions, options.as_options());
    let code = log.code(Operation::CreateTopic, &body);
    let (stream, topic) = (id(0), id(0));
    let found = log.metadata.resolve_topic(&TopicTarget { stream, topic });
    assert_eq!(found.is_ok(), code == 0, "all or nothing");
    (code, found.ok().map(|topic| topic.options))
}

/// A key, its value by kind, and the code of the answer.
type Case<'a> = (&'a str, (u8, Vec<u8>), u32);

#[test]
fn sizes_and_counts_at_their_bounds_and_one_beyond() {
    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;
    let cases: &[Case<'_>] = &[
        ("segment_size", number(MIB), 0),
        ("segment_size", number(MIB - 512), 4042),
        ("segment_size", number(MIB + 1), 4042),
        ("segment_size", number(MIB + 512), 0),
        ("segment_size", number(GIB), 0),
        ("segment_size", number(GIB + 512), 4042),
        ("segment_size", number(0), 0),
        ("segment_size", text("1 GiB"), 0),
        ("segment_size", text("1 GB"), 0),
        ("segment_size", text("2 GiB"), 4042),
        ("messages_required_to_save", count(0), 4042),
        ("messages_required_to_save", count(1), 0),
        ("messages_required_to_save", count(16_777_216), 0),
        ("messages_required_to_save", count(16_777_217), 4042),
        ("messages_required_to_save", text("16777216"), 0),
        ("messages_required_to_save", text("16777217"), 4042),
        ("messages_required_to_save", number(1), 4042),
        ("size_of_messages_required_to_save", number(GIB), 0),
        ("size_of_messages_required_to_save", number(GIB + 1), 4042),
        ("size_of_messages_required_to_save", number(0), 0),
        // The segments of a topic without a size of its own have 1 GiB.
        ("max_topic_size", number(GIB), 0),
        ("max_topic_size", number(GIB - 1), 1019),
        ("max_topic_size", number(0), 0),
        ("max_topic_size", text("unlimited"), 0),
        ("message_expiry", number(1), 0),
        ("message_expiry", number(u64::MAX), 0),
        ("message_expiry", text("0"), 0),
        ("message_expiry", text("18446744073709551615us"), 0),
        ("message_expiry", text("18446744073709551616us"), 4042),
    ];
    for (key, value, code) in cases {
        assert_eq!(created(key, value, 1).0, *code, "{key} {value:?}");
    }
}

#[test]
fn every_option_refuses_kinds_and_texts_that_are_not_its_own() {
    let keys = [
        "compression_algorithm",
        "message_expiry",
        "max_topic_size",
        "segment_size",
        "durability",
        "consumer_offset_durability",
        "messages_required_to_save",
        "size_of_messages_required_to_save",
        "preallocate_segments",
        "enforce_fsync",
    ];
    for key in keys {
        for value in [
            text("nonsense"),
            text(" "),
            byte(RAW, 1),
            (UINT64, vec![0xFF; 8]),
        ] {
            let unlimited = matches!(key, "message_expiry" | "max_topic_size");
            let fine = unlimited && value.0 == UINT64;
            let expected = if fine { 0 } else { 4042 };
            assert_eq!(created(key, &value, 1).0, expected, "{key} {value:?}");
        }
        assert_eq!(created(&key.to_uppercase(), &text("none"), 1).0, 4041);
    }
    for (key, value, code) in [
        ("compression_algorithm", byte(UINT8, 0), 4042),
        ("compression_algorithm", byte(UINT8, 1), 0),
        ("compression_algorithm", byte(UINT8, 2), 0),
        ("compression_algorithm", byte(UINT8, 3), 4042),
        ("preallocate_segments", byte(BOOL, 0), 0),
        ("preallocate_segments", byte(BOOL, 1), 0),
        ("preallocate_segments", byte(BOOL, 2), 4042),
        ("preallocate_segments", text("true"), 0),
        ("preallocate_segments", text("yes"), 4042),
        ("enforce_fsync", byte(BOOL, 1), 0),
        ("enforce_fsync", text("false"), 0),
        ("durability", text("Persisted"), 0),
        ("durability", byte(BOOL, 1), 4042),
        ("consumer_offset_durability", text("REPLICATED"), 0),
        ("consumer_offset_durability", text("quorum"), 4042),
    ] {
        assert_eq!(created(key, &value, 1).0, code, "{key} {value:?}");
    }
}

#[test]
fn defaults_are_kept_as_what_they_stand_for() {
    let defaults = TopicOptions::defaults(&Limits::default());
    for key in ["message_expiry", "max_topic_size", "segment_size"] {
        for value in [number(0), text("server_default")] {
            let (_, options) = created(key, &value, 1);
            let options = options.expect("valid");
            assert_eq!(options.message_expiry, defaults.message_expiry);
            assert_eq!(options.topic_size_max, defaults.topic_size_max);
            assert_eq!(options.segment_size, defaults.segment_size);
            let explicit = options.explicit();
            let (name, told) = explicit
                .as_options()
                .iter()
                .next()
                .expect("set by the client");
            assert_eq!((name, told.as_number() > Some(0)), (key, true));
        }
    }
    assert_eq!(PROTOCOL_VERSION, 11_264, "the catalogue of this version");
}

#[test]
fn an_update_may_set_three_keys_and_leaves_all_else() {
    let mut log = Log::new(Limits::default());
    assert_eq!(log.code(Operation::CreateStream, &create_stream("a")), 0);
    let options = block(&[("segment_size", Value::text("2 MiB"))]);
    let body = create_topic_with(id(0), "t", 1, options.as_options());
    assert_eq!(log.code(Operation::CreateTopic, &body), 0);
    let (stream, topic) = (id(0), id(0));
    let found = |log: &Log| {
        let topic = log.metadata.resolve_topic(&TopicTarget { stream, topic });
        topic.expect("created").options
    };
    let before = found(&log);
    for (key, code) in [
        ("segment_size", 4041),
        ("durability", 4041),
        ("consumer_offset_durability", 4041),
        ("messages_required_to_save", 4041),
        ("size_of_messages_required_to_save", 4041),
        ("preallocate_segments", 4041),
        ("enforce_fsync", 4041),
        ("compression_algorithm", 0),
        ("message_expiry", 0),
        ("max_topic_size", 0),
    ] {
        let options = block(&[(key, Value::text("none"))]);
        let options = if key == "max_topic_size" {
            block(&[(key, Value::text("2 MiB"))])
        } else {
            options
        };
        let body = update_topic((stream, topic), "t", options.as_options());
        assert_eq!(log.code(Operation::UpdateTopic, &body), code, "{key}");
    }
    // A bound that depends on another option holds for an update too.
    let small = block(&[("max_topic_size", Value::text("2097151"))]);
    let body = update_topic((stream, topic), "t", small.as_options());
    assert_eq!(log.code(Operation::UpdateTopic, &body), 1019);
    let after = found(&log);
    assert_eq!(after.topic_size_max, 2 << 20);
    assert_eq!(after.segment_size, before.segment_size);
    assert_eq!(after.durability, before.durability);
    // A new name alone changes no option.
    let body = update_topic((stream, topic), "renamed", block(&[]).as_options());
    assert_eq!(log.code(Operation::UpdateTopic, &body), 0);
    assert_eq!(found(&log), after);
}
