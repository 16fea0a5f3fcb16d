//! Reads: bodies as clients decode them, names and numbers as identifiers, sums of statistics.

use base::{GroupId, Op, View};
use metadata::{Change, Durability, Limits, PartitionIds, PartitionStats};
use wire::{
    Codec, CompressionAlgorithm, Counted, Operation, OptionsScope, Value,
    options::kind,
    reply::{OptionDescription, StreamDetails, StreamRecord, TopicDetails, TopicRecord},
    request::TopicTarget,
};

use crate::support::{
    Log, block, create_stream, create_topic, create_topic_with, id, named, partitions,
    timestamp_of, update_topic,
};

fn stats(group: GroupId) -> PartitionStats {
    let position = group.0 & 1023;
    PartitionStats {
        current_offset: 9 + position,
        size_bytes: 1000,
        messages_count: 10 + position,
        segments_count: 2,
    }
}

#[test]
fn creations_answer_with_the_record() {
    let mut log = Log::new(Limits::default());
    let payload = log
        .result(Operation::CreateStream, &create_stream("a"))
        .expect("free");
    let stream = StreamRecord::decode(&payload).expect("a stream record");
    assert_eq!(
        (stream.id, stream.topics_count, stream.messages_count),
        (0, 0, 0)
    );
    assert_eq!(stream.name.as_str(), "a");
    assert_eq!(stream.created_at, timestamp_of(Op(2)).0);

    let applied = log.ask(Operation::CreateTopic, &create_topic(named("a"), "t", 2));
    let payload = applied.reply.result.expect("free");
    let details = TopicDetails::decode(&payload).expect("topic and partitions");
    assert_eq!((details.topic.id, details.topic.partitions_count), (0, 2));
    assert_eq!(details.topic.message_expiry, u64::MAX);
    assert_eq!(details.topic.max_topic_size, u64::MAX);
    assert_eq!(
        details.topic.compression_algorithm,
        CompressionAlgorithm::None
    );
    let ids: Vec<_> = details
        .partitions
        .iter()
        .map(|partition| partition.id)
        .collect();
    assert_eq!(ids, [0, 1]);
    let segments: Vec<_> = details
        .partitions
        .iter()
        .map(|p| p.segments_count)
        .collect();
    assert_eq!(segments, [1, 1], "a fresh partition has one segment");
    for (position, change) in (0..).zip(&applied.changes) {
        let Change::PartitionCreated(info) = change else {
            panic!("{change:?}")
        };
        assert_eq!(info.group, GroupId::partition(Op(3), position));
        assert_eq!(
            info.view,
            View(3),
            "the group starts in the view of its creation"
        );
        let partition = u32::from(position);
        assert_eq!(
            info.ids,
            PartitionIds {
                stream: 0,
                topic: 0,
                partition
            }
        );
    }
}

#[test]
fn explicit_and_derived_options_are_told_apart() {
    let mut log = Log::new(Limits::default());
    log.result(Operation::CreateStream, &create_stream("a"))
        .expect("free");
    let options = block(&[
        ("message_expiry", Value::text("1h")),
        ("durability", Value::text("PERSISTED")),
        (
            "compression_algorithm",
            Value {
                kind: kind::UINT8,
                data: &[2],
            },
        ),
    ]);
    let body = create_topic_with(id(0), "t", 1, options.as_options());
    let payload = log.result(Operation::CreateTopic, &body).expect("valid");
    let topic = TopicDetails::decode(&payload)
        .expect("topic and partitions")
        .topic;
    let explicit: Vec<_> = topic.options.0.iter().collect();
    let hour = 3_600_000_000_u64.to_le_bytes();
    assert_eq!(
        explicit,
        [
            ("compression_algorithm", Value::text("gzip")),
            ("durability", Value::text("persisted")),
            (
                "message_expiry",
                Value {
                    kind: kind::UINT64,
                    data: &hour
                }
            ),
        ],
        "canonical kinds, by name"
    );
    let derived: Vec<_> = topic.derived_options.0.iter().map(|(key, _)| key).collect();
    assert_eq!(
        derived,
        [
            "consumer_offset_durability",
            "max_topic_size",
            "messages_required_to_save",
            "preallocate_segments",
            "segment_size",
            "size_of_messages_required_to_save",
        ]
    );
    // An update makes what it sets explicit and leaves the rest.
    let options = block(&[("max_topic_size", Value::text("2 GiB"))]);
    let body = update_topic((id(0), id(0)), "renamed", options.as_options());
    log.result(Operation::UpdateTopic, &body).expect("valid");
    let body = log.metadata.get_topics(id(0), &stats);
    let topics = Counted::<TopicRecord<'_>>::decode(&body).expect("a list").0;
    assert_eq!(topics[0].name.as_str(), "renamed");
    assert_eq!(topics[0].options.0.iter().count(), 4);
    assert_eq!(topics[0].derived_options.0.iter().count(), 5);
    assert_eq!(
        (topics[0].message_expiry, topics[0].max_topic_size),
        (3_600_000_000, 2 << 30)
    );
}

#[test]
fn what_a_published_client_sends_is_accepted() {
    // Body of create_topic as recorded from the unmodified Python client 0.9.0: stream `orders`,
    // topic `events`, 3 partitions, six options.
    const RECORDED: &str = "02066f726465727303000000066576656e74730215000000636f6d707265737369\
        6f6e5f616c676f726974686d0204000000677a6970021a000000636f6e73756d65725f6f66667365745f6475\
        726162696c697479020a0000007265706c696361746564020a0000006475726162696c697479020a00000072\
        65706c69636174656402190000006d657373616765735f72657175697265645f746f5f736176650b04000000\
        0a0000000214000000707265616c6c6f636174655f7365676d656e7473030100000000020c0000007365676d\
        656e745f73697a650c080000000000100000000000";
    let byte = |at: usize| u8::from_str_radix(&RECORDED[at..at + 2], 16).expect("hex");
    let body: Vec<u8> = (0..RECORDED.len()).step_by(2).map(byte).collect();
    let mut log = Log::new(Limits::default());
    log.result(Operation::CreateStream, &create_stream("orders"))
        .expect("free");
    let payload = log.result(Operation::CreateTopic, &body).expect("valid");
    let details = TopicDetails::decode(&payload).expect("topic and partitions");
    assert_eq!(details.partitions.len(), 3);
    assert_eq!(
        details.topic.compression_algorithm,
        CompressionAlgorithm::Gzip
    );
    // What came is what is reported: same keys, kinds and order.
    assert!(body.ends_with(details.topic.options.0.as_bytes()));
    assert_eq!(details.topic.options.0.iter().count(), 6);
}

#[test]
fn the_older_name_of_durability_still_works() {
    let mut log = Log::new(Limits::default());
    log.result(Operation::CreateStream, &create_stream("a"))
        .expect("free");
    let fsync = ("enforce_fsync", Value::text("true"));
    let replicated = ("durability", Value::text("replicated"));
    let both = block(&[fsync, replicated]);
    let body = create_topic_with(id(0), "t", 1, both.as_options());
    assert_eq!(
        log.code(Operation::CreateTopic, &body),
        4042,
        "they contradict each other"
    );
    let body = create_topic_with(id(0), "t", 1, block(&[fsync]).as_options());
    assert_eq!(log.code(Operation::CreateTopic, &body), 0);
    let target = TopicTarget {
        stream: id(0),
        topic: id(0),
    };
    let info = log
        .metadata
        .resolve_partition(&target, 0)
        .expect("it has one");
    assert_eq!(info.options.durability, Durability::Persisted);
    assert_eq!(
        info.options.consumer_offset_durability,
        Durability::Replicated
    );
}

#[test]
fn reads_sum_what_the_groups_hold() {
    let mut log = Log::new(Limits::default());
    for (operation, body) in [
        (Operation::CreateStream, create_stream("a")),
        (Operation::CreateStream, create_stream("empty")),
        (Operation::CreateTopic, create_topic(id(0), "t", 2)),
        (Operation::CreateTopic, create_topic(id(0), "u", 1)),
        (
            Operation::CreatePartitions,
            partitions(id(0), named("u"), 1),
        ),
    ] {
        log.result(operation, &body).expect("valid");
    }
    let body = log.metadata.get_stream(named("a"), &stats);
    let details = StreamDetails::decode(&body).expect("stream and topics");
    assert_eq!(
        (details.stream.size_bytes, details.stream.messages_count),
        (4000, 41)
    );
    assert_eq!(details.stream.topics_count, 2);
    let sums: Vec<_> = details
        .topics
        .iter()
        .map(|t| (t.size_bytes, t.messages_count))
        .collect();
    assert_eq!(sums, [(2000, 21), (2000, 20)]);

    let body = log.metadata.get_streams(&stats);
    let names: Vec<_> = Vec::<StreamRecord<'_>>::decode(&body)
        .expect("records")
        .iter()
        .map(|stream| (stream.id, stream.name.as_str().to_owned()))
        .collect();
    assert_eq!(names, [(0, "a".to_owned()), (1, "empty".to_owned())]);

    let target = TopicTarget {
        stream: id(0),
        topic: named("t"),
    };
    let body = log.metadata.get_topic(&target, &stats);
    let details = TopicDetails::decode(&body).expect("topic and partitions");
    let offsets: Vec<_> = details
        .partitions
        .iter()
        .map(|p| p.current_offset)
        .collect();
    assert_eq!(offsets, [9, 10]);
    assert_eq!(details.partitions[0].segments_count, 2);
    let counts = log.metadata.counts();
    assert_eq!(
        (counts.streams, counts.topics, counts.partitions),
        (2, 2, 4)
    );
}

#[test]
fn absence_is_an_empty_body() {
    let mut log = Log::new(Limits::default());
    assert!(log.metadata.get_streams(&stats).is_empty());
    assert!(log.metadata.get_stream(named("a"), &stats).is_empty());
    assert!(log.metadata.get_topics(named("a"), &stats).is_empty());
    log.result(Operation::CreateStream, &create_stream("a"))
        .expect("free");
    let target = TopicTarget {
        stream: named("a"),
        topic: id(0),
    };
    assert!(log.metadata.get_topic(&target, &stats).is_empty());
    assert_eq!(
        log.metadata.get_topics(named("a"), &stats),
        [0; 4],
        "a stream without topics"
    );
}

#[test]
fn identifiers_resolve_by_number_and_by_name() {
    let mut log = Log::new(Limits::default());
    log.result(Operation::CreateStream, &create_stream("a"))
        .expect("free");
    log.result(Operation::CreateTopic, &create_topic(id(0), "0", 1))
        .expect("free");
    let resolve = |stream, topic, partition| {
        let target = TopicTarget { stream, topic };
        log.metadata
            .resolve_partition(&target, partition)
            .map(|p| p.group)
            .map_err(|e| e.0)
    };
    let group = GroupId::partition(Op(3), 0);
    assert_eq!(resolve(id(0), id(0), 0), Ok(group));
    assert_eq!(resolve(named("a"), named("0"), 0), Ok(group));
    assert_eq!(resolve(named("b"), id(0), 0), Err(1009));
    assert_eq!(resolve(id(0), id(1), 0), Err(2010));
    assert_eq!(resolve(id(0), id(0), 1), Err(3007));
    assert_eq!(
        log.metadata.partition(group).map(|p| p.ids.partition),
        Some(0)
    );
    assert_eq!(log.metadata.partition(GroupId::partition(Op(3), 1)), None);
    let topic = log.metadata.resolve_topic(&TopicTarget {
        stream: id(0),
        topic: id(0),
    });
    assert_eq!(topic.map(|topic| topic.partitions_count), Ok(1));
    assert_eq!(log.metadata.resolve_stream(named("a")), Ok(0));
}

#[test]
fn the_catalogue_describes_itself() {
    let log = Log::new(Limits {
        segment_size: 4096,
        segment_size_min: 512,
        ..Limits::default()
    });
    let body = log.metadata.describe_options(OptionsScope::Topic);
    let entries = Counted::<OptionDescription<'_>>::decode(&body)
        .expect("a list")
        .0;
    assert_eq!(entries.len(), 9);
    // Each default, set explicitly, is a valid value.
    for entry in &entries {
        let value = Value {
            kind: entry.kind,
            data: entry.default.0,
        };
        let mut log = log.clone();
        log.result(Operation::CreateStream, &create_stream("a"))
            .expect("free");
        let options = block(&[(entry.key.as_str(), value)]);
        let body = create_topic_with(id(0), "t", 1, options.as_options());
        let payload = log
            .result(Operation::CreateTopic, &body)
            .expect("a default is valid");
        let topic = TopicDetails::decode(&payload)
            .expect("topic and partitions")
            .topic;
        let explicit: Vec<_> = topic.options.0.iter().collect();
        assert_eq!(explicit, [(entry.key.as_str(), value)]);
    }
    let segment = entries
        .iter()
        .find(|entry| entry.key.as_str() == "segment_size");
    assert_eq!(
        segment.expect("it is there").default.0,
        4096_u64.to_le_bytes()
    );
    for scope in [OptionsScope::Stream, OptionsScope::User] {
        assert_eq!(log.metadata.describe_options(scope), [0; 4]);
    }
}

#[test]
fn a_recreated_partition_is_another_group() {
    let mut log = Log::new(Limits::default());
    log.result(Operation::CreateStream, &create_stream("a"))
        .expect("free");
    let create = create_topic(id(0), "t", 2);
    log.result(Operation::CreateTopic, &create).expect("free");
    let before: Vec<_> = log
        .metadata
        .partitions()
        .map(|partition| partition.group)
        .collect();
    let applied = log.ask(Operation::DeleteStream, &id(0).encode());
    let deleted: Vec<_> = applied
        .changes
        .iter()
        .map(|change| match change {
            Change::PartitionDeleted { group, .. } => *group,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(deleted, before);
    log.result(Operation::CreateStream, &create_stream("a"))
        .expect("free again");
    log.result(Operation::CreateTopic, &create)
        .expect("free again");
    assert!(
        log.metadata
            .partitions()
            .all(|partition| !before.contains(&partition.group))
    );
    assert_eq!(
        log.metadata.resolve_stream(named("a")),
        Ok(0),
        "numbers are reused"
    );
}
