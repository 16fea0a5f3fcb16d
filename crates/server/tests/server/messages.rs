//! Sending and polling (`wire.md` 5.8 and 6).

use wire::{
    Codec, Counted, ErrorCode, Identifier, OptionalPartition, Partitioning, PollingStrategy,
    Request, batch,
    reply::{Confirmation, TopicDetails},
    request::{CreateTopic, PollMessages, SendMessages, SendTarget, TopicTarget},
};

use crate::{
    client::{
        Client, batch_of, confirmed, create_stream, name, persisted, poll, send, stream, topic,
    },
    node::{Node, Options},
};

/// Three partitions, on one shard and on two.
fn on_one_and_two_shards(test: impl Fn(&mut Node, &mut Client)) {
    for shards in [1, 2] {
        let mut node = Node::new(shards);
        let mut client = Client::log_in(&mut node, 1);
        client.create_topic(&mut node, 3);
        test(&mut node, &mut client);
    }
}

#[test]
fn a_send_names_the_partition_and_the_offset_of_its_first_message() {
    on_one_and_two_shards(|node, client| {
        for partition in 0..3 {
            assert_eq!(client.produce(node, partition, &["a", "b"]), 0);
            assert_eq!(client.produce(node, partition, &["c"]), 2);
            let polled = client.poll(node, partition, PollingStrategy::First, 10);
            assert_eq!(polled.partition, partition);
            assert_eq!(polled.current_offset, 2);
            let expected = [(0, "a"), (1, "b"), (2, "c")];
            let expected = expected.map(|(offset, text)| (offset, text.as_bytes().to_vec()));
            assert_eq!(polled.messages, expected);
        }
    });
}

#[test]
fn balanced_sends_go_round_the_partitions() {
    on_one_and_two_shards(|node, client| {
        let batch = batch_of(&["a"]);
        let mut partitions: Vec<u32> = (0..6)
            .map(|_| {
                let answer = client.ask(node, &send(Partitioning::Balanced, &batch, 1));
                confirmed(&answer).partition_id
            })
            .collect();
        partitions.sort_unstable();
        assert_eq!(partitions, [0, 0, 1, 1, 2, 2]);
    });
}

#[test]
fn a_key_always_goes_to_its_partition() {
    on_one_and_two_shards(|node, client| {
        for key in [&b"a"[..], b"b", b"customer-17", &[0xFF; 255]] {
            let batch = batch_of(&["a"]);
            let expected = Partitioning::partition_of_key(key, 3);
            for _ in 0..2 {
                let request = send(Partitioning::MessagesKey(key), &batch, 1);
                let answer = client.ask(node, &request);
                assert_eq!(confirmed(&answer).partition_id, expected);
            }
        }
    });
}

#[test]
fn a_broken_batch_is_denied_with_its_code_and_leaves_no_trace() {
    on_one_and_two_shards(|node, client| {
        let whole = batch_of(&["a", "b"]);
        let mut frame = whole.clone();
        *frame.last_mut().expect("a payload") ^= 1;
        let mut checksum = whole.clone();
        checksum[40] ^= 1;
        let mut reserved = whole.clone();
        reserved[100] = 1;
        let cut = &whole[..whole.len() - 1];
        let cases = [
            (&frame[..], 2, ErrorCode::INVALID_MESSAGE_CHECKSUM),
            (&checksum, 2, ErrorCode::INVALID_BATCH_CHECKSUM),
            (&reserved, 2, ErrorCode::INVALID_RESERVED_FIELD),
            (&whole, 3, ErrorCode::INVALID_MESSAGES_COUNT),
            (&whole, 0, ErrorCode::INVALID_MESSAGES_COUNT),
            (cut, 2, ErrorCode::INVALID_MESSAGES_SIZE),
            (&[], 2, ErrorCode::INVALID_MESSAGES_SIZE),
        ];
        for (batch, count, code) in cases {
            let request = send(Partitioning::PartitionId(0), batch, count);
            assert_eq!(client.ask(node, &request).code(), Some(code));
        }
        assert_eq!(client.produce(node, 0, &["c"]), 0);
    });
}

#[test]
fn a_send_to_what_is_not_there_is_denied_by_status() {
    on_one_and_two_shards(|node, client| {
        let batch = batch_of(&["a"]);
        let to = |stream: Identifier<'static>, topic: Identifier<'static>, partition| {
            Request::SendMessages(SendMessages {
                target: SendTarget {
                    stream,
                    topic,
                    partitioning: Partitioning::PartitionId(partition),
                    messages_count: 1,
                },
                batch: &batch,
            })
        };
        let TopicTarget { stream, topic } = topic();
        let cases = [
            (
                to(Identifier::Numeric(5), topic, 0),
                ErrorCode::STREAM_ID_NOT_FOUND,
            ),
            (
                to(stream, Identifier::Numeric(5), 0),
                ErrorCode::TOPIC_ID_NOT_FOUND,
            ),
            (to(stream, topic, 3), ErrorCode::PARTITION_NOT_FOUND),
        ];
        for (request, code) in cases {
            assert_eq!(client.ask(node, &request).code(), Some(code));
        }
    });
}

#[test]
fn a_send_to_a_topic_without_partitions_is_denied() {
    let node = &mut Node::new(1);
    let mut client = Client::log_in(node, 1);
    client.create_topic(node, 0);
    let batch = batch_of(&["a"]);
    for partitioning in [Partitioning::Balanced, Partitioning::MessagesKey(b"k")] {
        let answer = client.ask(node, &send(partitioning, &batch, 1));
        assert_eq!(answer.code(), Some(ErrorCode::NO_PARTITIONS));
    }
    let named = client.ask(node, &send(Partitioning::PartitionId(0), &batch, 1));
    assert_eq!(named.code(), Some(ErrorCode::PARTITION_NOT_FOUND));
}

#[test]
fn every_polling_strategy_starts_where_it_says() {
    on_one_and_two_shards(|node, client| {
        client.produce(node, 1, &["a", "b"]);
        node.time += 1_000_000;
        let late = node.now().realtime.0;
        client.produce(node, 1, &["c", "d", "e"]);
        let mut offsets = |strategy, count| client.poll(node, 1, strategy, count).offsets();
        assert_eq!(offsets(PollingStrategy::First, 2), [0, 1]);
        assert_eq!(offsets(PollingStrategy::First, 9), [0, 1, 2, 3, 4]);
        assert_eq!(offsets(PollingStrategy::Offset(1), 2), [1, 2]);
        assert_eq!(offsets(PollingStrategy::Offset(4), 2), [4]);
        assert_eq!(offsets(PollingStrategy::Offset(5), 2), []);
        assert_eq!(offsets(PollingStrategy::Offset(u64::MAX), 2), []);
        assert_eq!(offsets(PollingStrategy::Last, 2), [3, 4]);
        assert_eq!(offsets(PollingStrategy::Last, 9), [0, 1, 2, 3, 4]);
        assert_eq!(offsets(PollingStrategy::Last, 0), []);
        assert_eq!(offsets(PollingStrategy::First, 0), []);
        assert_eq!(offsets(PollingStrategy::Timestamp(late), 9), [2, 3, 4]);
        assert_eq!(offsets(PollingStrategy::Timestamp(0), 1), [0]);
        assert_eq!(offsets(PollingStrategy::Timestamp(late + 1), 9), []);
        assert_eq!(offsets(PollingStrategy::Next, 2), [0, 1]);
        assert_eq!(offsets(PollingStrategy::Next, 2), [0, 1]);
    });
}

#[test]
fn a_poll_of_what_is_not_there_is_denied_and_an_undecodable_one_too() {
    on_one_and_two_shards(|node, client| {
        let missing = poll(3, PollingStrategy::First, 1, false);
        let answer = client.ask(node, &Request::PollMessages(missing));
        assert_eq!(answer.code(), Some(ErrorCode::PARTITION_NOT_FOUND));
        let stream = Identifier::Numeric(7);
        let missing = PollMessages { stream, ..missing };
        let answer = client.ask(node, &Request::PollMessages(missing));
        assert_eq!(answer.code(), Some(ErrorCode::STREAM_ID_NOT_FOUND));
        let frame = client.command(100, &[1, 2, 3]);
        let answer = client.exchange(node, &frame);
        assert_eq!(answer.code(), Some(ErrorCode::INVALID_COMMAND));
    });
}

#[test]
fn an_absent_partition_means_the_first_for_a_single_consumer() {
    on_one_and_two_shards(|node, client| {
        client.produce(node, 0, &["a"]);
        let request = PollMessages {
            partition: OptionalPartition(None),
            ..poll(2, PollingStrategy::First, 1, false)
        };
        let body = client.ask(node, &Request::PollMessages(request)).result();
        let polled = crate::client::Polled::decode(&body.expect("served"));
        assert_eq!((polled.partition, polled.offsets()), (0, vec![0]));
    });
}

#[test]
fn served_records_carry_their_place_and_intact_checksums() {
    on_one_and_two_shards(|node, client| {
        client.produce(node, 2, &["a", "b"]);
        client.produce(node, 2, &["c"]);
        let request = poll(2, PollingStrategy::First, 9, false);
        let body = client.ask(node, &Request::PollMessages(request)).result();
        let body = body.expect("served");
        let records: Vec<_> = batch::split(&body[16..]).map(Result::unwrap).collect();
        assert_eq!(records.len(), 2);
        for (record, base_offset) in records.into_iter().zip([0, 2]) {
            let header = batch::verify(record).expect("intact");
            assert_eq!(header.partition_id, 2);
            assert_eq!(header.base_offset, base_offset);
            assert_eq!(header.base_timestamp, node.now().realtime.0);
            assert_eq!(header.origin_timestamp, 5);
        }
    });
}

#[test]
fn polls_reach_beyond_the_memory_into_many_segments() {
    let mut options = Options {
        shards: 2,
        ..Options::default()
    };
    options.limits.segment_size = 16 << 10;
    options.limits.segment_size_min = 512;
    options.limits.tail_cache = 1 << 10;
    options.limits.read_chunk = 4 << 10;
    options.limits.index_interval = 2 << 10;
    let mut node = Node::with(options);
    let mut client = Client::log_in(&mut node, 1);
    client.create_topic(&mut node, 1);
    for index in 0..200 {
        let payload = format!("message {index}");
        assert_eq!(client.produce(&mut node, 0, &[&payload]), index);
    }
    let files = node.disk.files_below("partitions/").len();
    assert!(files > 4, "{files} segments");
    let polled = client.poll(&mut node, 0, PollingStrategy::First, 1_000);
    assert_eq!(polled.messages.len(), 200);
    let expected = (0..200).map(|index| (index, format!("message {index}").into_bytes()));
    assert!(polled.messages.into_iter().eq(expected));
    let polled = client.poll(&mut node, 0, PollingStrategy::Offset(77), 3);
    assert_eq!(polled.offsets(), [77, 78, 79]);
    let body = client.ask(&mut node, &Request::GetTopic(topic())).result();
    let body = body.expect("found");
    let details = TopicDetails::decode(&body).expect("a topic");
    assert_eq!(details.partitions[0].segments_count as usize, files);
    assert_eq!(details.partitions[0].current_offset, 199);
}

#[test]
fn a_persisted_topic_acknowledges_only_what_is_synced() {
    let node = &mut Node::new(1);
    let mut client = Client::log_in(node, 1);
    assert!(client.ask(node, &create_stream("orders")).result().is_ok());
    let block = persisted();
    let create = Request::CreateTopic(CreateTopic {
        stream: stream(),
        partitions_count: 1,
        name: name("paid"),
        options: block.as_options(),
    });
    assert!(client.ask(node, &create).result().is_ok());
    node.hold = Some(|request| matches!(request, platform::DiskRequest::SyncData { .. }));
    let batch = batch_of(&["a"]);
    let frame = client.frame(&send(Partitioning::PartitionId(0), &batch, 1));
    node.send(client.connection, &frame);
    assert!(node.frames(client.connection).is_empty());
    let mut reader = Client::connect(node, 2);
    assert!(reader.ask(node, &Request::Ping).result().is_ok());
    node.let_go();
    assert_eq!(confirmed(&client.take(node)).base_offset, 0);
    assert!(node.disk.unsynced().is_empty());
}

#[test]
fn a_poll_never_shows_what_is_not_committed() {
    let node = &mut Node::new(1);
    let mut client = Client::log_in(node, 1);
    client.create_topic(node, 1);
    client.produce(node, 0, &["a"]);
    let mut reader = Client::log_in(node, 2);
    node.hold = Some(|request| matches!(request, platform::DiskRequest::Write { .. }));
    let batch = batch_of(&["b"]);
    let frame = client.frame(&send(Partitioning::PartitionId(0), &batch, 1));
    node.send(client.connection, &frame);
    let polled = reader.poll(node, 0, PollingStrategy::First, 9);
    assert_eq!((polled.offsets(), polled.current_offset), (vec![0], 0));
    node.let_go();
    assert_eq!(confirmed(&client.take(node)).base_offset, 1);
    let polled = reader.poll(node, 0, PollingStrategy::First, 9);
    assert_eq!((polled.offsets(), polled.current_offset), (vec![0, 1], 1));
}

#[test]
fn a_confirmation_lists_one_partition_by_its_numbers() {
    on_one_and_two_shards(|node, client| {
        let batch = batch_of(&["a"]);
        let answer = client.ask(node, &send(Partitioning::PartitionId(2), &batch, 1));
        let body = answer.result().expect("sent");
        let expected = Confirmation {
            stream_id: 0,
            topic_id: 0,
            partition_id: 2,
            base_offset: 0,
        };
        assert_eq!(body, Counted(vec![expected]).encode());
    });
}
