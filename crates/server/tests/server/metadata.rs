//! Streams, topics and partitions: made, found, counted and removed (`wire.md` 5.4 to 5.6).

use wire::{
    Codec, Counted, ErrorCode, Identifier, Operation, Partitioning, PollingStrategy, Request,
    reply::{StreamDetails, StreamRecord, TopicDetails, TopicRecord},
    request::{PartitionsCount, TopicTarget, UpdateStream},
};

use crate::{
    client::{
        Answer, Client, Polled, batch_of, create_stream, create_topic, name, no_options, poll,
        send, store, stream, topic,
    },
    node::Node,
};

/// On one shard and on two, over a connection to each shard.
fn on_every_shard(test: impl Fn(&mut Node, &mut Client)) {
    for shards in [1, 2] {
        for skipped in 0..shards {
            let mut node = Node::new(shards);
            for _ in 0..skipped {
                node.connect();
            }
            let mut client = Client::log_in(&mut node, 1);
            assert_eq!(node.shard_of(client.connection), skipped);
            test(&mut node, &mut client);
        }
    }
}

fn partitions(count: u32) -> PartitionsCount<'static> {
    let TopicTarget { stream, topic } = topic();
    PartitionsCount {
        stream,
        topic,
        count,
    }
}

fn topic_details(client: &mut Client, node: &mut Node) -> Option<(u32, Vec<(u32, u64)>)> {
    let body = client.ask(node, &Request::GetTopic(topic())).result();
    let body = body.expect("reads do not fail");
    if body.is_empty() {
        return None;
    }
    let details = TopicDetails::decode(&body).expect("a topic");
    let partitions = details.partitions.iter();
    let partitions = partitions.map(|partition| (partition.id, partition.messages_count));
    Some((details.topic.id, partitions.collect()))
}

#[test]
fn a_created_stream_is_found_by_number_and_by_name() {
    on_every_shard(|node, client| {
        let answer = client.ask(node, &create_stream("orders"));
        let payload = answer.result().expect("created");
        let created = StreamRecord::decode(&payload).expect("a stream");
        assert_eq!((created.id, created.name), (0, name("orders")));
        for by in [Identifier::Numeric(0), stream()] {
            let body = client.ask(node, &Request::GetStream(by)).result();
            let body = body.expect("found");
            let found = StreamDetails::decode(&body).expect("a stream");
            assert_eq!(found.stream.name, name("orders"));
            assert_eq!(found.stream.created_at, created.created_at);
        }
        let all = client.ask(node, &Request::GetStreams).result();
        assert_eq!(all, Ok(payload));
    });
}

#[test]
fn what_is_not_there_has_an_empty_body() {
    on_every_shard(|node, client| {
        for request in [
            Request::GetStreams,
            Request::GetStream(stream()),
            Request::GetStream(Identifier::Numeric(9)),
            Request::GetTopic(topic()),
            Request::GetTopics(stream()),
        ] {
            assert_eq!(client.ask(node, &request).result(), Ok(Vec::new()));
        }
    });
}

#[test]
fn writes_to_what_is_not_there_are_rejected_with_its_code() {
    on_every_shard(|node, client| {
        let no_stream = Some(ErrorCode::STREAM_ID_NOT_FOUND);
        let no_topic = Some(ErrorCode::TOPIC_ID_NOT_FOUND);
        let delete = Request::DeleteStream(stream());
        assert_eq!(client.ask(node, &delete).code(), no_stream);
        assert_eq!(client.ask(node, &create_topic("paid", 1)).code(), no_stream);
        let created = client.ask(node, &create_stream("orders"));
        assert!(created.result().is_ok());
        let taken = client.ask(node, &create_stream("orders"));
        assert_eq!(taken.code(), Some(ErrorCode::STREAM_NAME_ALREADY_EXISTS));
        let delete = Request::DeleteTopic(topic());
        assert_eq!(client.ask(node, &delete).code(), no_topic);
        let add = Request::CreatePartitions(partitions(1));
        assert_eq!(client.ask(node, &add).code(), no_topic);
    });
}

#[test]
fn partitions_are_added_and_removed_and_counted() {
    on_every_shard(|node, client| {
        client.create_topic(node, 2);
        client.produce(node, 1, &["a", "b", "c"]);
        let add = Request::CreatePartitions(partitions(2));
        assert_eq!(client.ask(node, &add).result(), Ok(Vec::new()));
        let found = topic_details(client, node);
        assert_eq!(found, Some((0, vec![(0, 0), (1, 3), (2, 0), (3, 0)])));
        assert_eq!(client.produce(node, 3, &["d"]), 0);
        let remove = Request::DeletePartitions(partitions(2));
        assert_eq!(client.ask(node, &remove).result(), Ok(Vec::new()));
        let found = topic_details(client, node);
        assert_eq!(found, Some((0, vec![(0, 0), (1, 3)])));
        let body = client.ask(node, &Request::GetTopics(stream())).result();
        let body = body.expect("found");
        let topics = Counted::<TopicRecord<'_>>::decode(&body).expect("topics");
        let [record] = topics.0.as_slice() else {
            panic!("one topic")
        };
        assert_eq!((record.partitions_count, record.messages_count), (2, 3));
        let body = client.ask(node, &Request::GetStream(stream())).result();
        let body = body.expect("found");
        let found = StreamDetails::decode(&body).expect("a stream");
        assert_eq!(found.stream.messages_count, 3);
        assert!(found.stream.size_bytes > 0);
    });
}

#[test]
fn a_stream_may_be_renamed_and_is_found_by_its_new_name_only() {
    on_every_shard(|node, client| {
        assert!(client.ask(node, &create_stream("old")).result().is_ok());
        let rename = Request::UpdateStream(UpdateStream {
            stream: Identifier::Named(name("old")),
            name: name("orders"),
            options: no_options(),
        });
        assert_eq!(client.ask(node, &rename).result(), Ok(Vec::new()));
        let old = Request::GetStream(Identifier::Named(name("old")));
        assert_eq!(client.ask(node, &old).result(), Ok(Vec::new()));
        let new = client.ask(node, &Request::GetStream(stream())).result();
        assert!(!new.expect("found").is_empty());
    });
}

#[test]
fn a_deleted_topic_is_gone_for_every_command_and_so_are_its_files() {
    on_every_shard(|node, client| {
        client.create_topic(node, 3);
        client.produce(node, 0, &["a"]);
        assert_eq!(node.disk.directories_below("partitions/").len(), 3);
        let delete = Request::DeleteTopic(topic());
        assert_eq!(client.ask(node, &delete).result(), Ok(Vec::new()));
        let gone = Some(ErrorCode::TOPIC_ID_NOT_FOUND);
        let batch = batch_of(&["b"]);
        let request = send(Partitioning::PartitionId(0), &batch, 1);
        assert_eq!(client.ask(node, &request).code(), gone);
        let first = poll(0, PollingStrategy::First, 1, false);
        let answer = client.ask(node, &Request::PollMessages(first));
        assert_eq!(answer.code(), gone);
        assert_eq!(client.ask(node, &store(0, 0)).code(), gone);
        node.settle();
        assert!(node.disk.directories_below("partitions/").is_empty());
        assert!(node.disk.files_below("partitions/").is_empty());
    });
}

#[test]
fn a_recreated_topic_serves_only_its_new_incarnation() {
    on_every_shard(|node, client| {
        client.create_topic(node, 1);
        client.produce(node, 0, &["old"]);
        assert!(client.ask(node, &store(0, 0)).result().is_ok());
        // The removal's disk requests are still under way when the topic is there again.
        node.hold = Some(|request| matches!(request, platform::DiskRequest::RemoveFile { .. }));
        let delete = Request::DeleteTopic(topic());
        assert!(client.ask(node, &delete).result().is_ok());
        client.create_topic(node, 1);
        let polled = client.poll(node, 0, PollingStrategy::First, 10);
        assert_eq!(polled.messages, []);
        assert_eq!(client.produce(node, 0, &["new"]), 0);
        assert_eq!(node.held_count(), 1);
        node.let_go();
        node.crash();
        let client = &mut Client::log_in(node, 2);
        let polled = client.poll(node, 0, PollingStrategy::First, 10);
        assert_eq!(polled.messages, [(0, b"new".to_vec())]);
        let next = client.poll(node, 0, PollingStrategy::Next, 10);
        assert_eq!(next.offsets(), [0]);
        assert_eq!(node.disk.directories_below("partitions/").len(), 1);
    });
}

#[test]
fn a_topic_deleted_while_its_partitions_are_built_is_only_removed() {
    on_every_shard(|node, client| {
        assert!(client.ask(node, &create_stream("orders")).result().is_ok());
        let about_partitions = |request: &platform::DiskRequest| {
            matches!(request, platform::DiskRequest::List { path }
                | platform::DiskRequest::CreateDir { path } if path.0.starts_with("partitions"))
        };
        node.hold = Some(about_partitions);
        let created = client.ask(node, &create_topic("paid", 2));
        assert!(created.result().is_ok());
        // A request that waits for a partition is told that it will not come.
        let mut waiting = Client::log_in(node, 2);
        let batch = batch_of(&["a"]);
        let frame = waiting.frame(&send(Partitioning::PartitionId(0), &batch, 1));
        node.send(waiting.connection, &frame);
        assert!(node.frames(waiting.connection).is_empty());
        let delete = Request::DeleteTopic(topic());
        assert!(client.ask(node, &delete).result().is_ok());
        let answer = waiting.take(node);
        assert_eq!(answer.code(), Some(ErrorCode::PARTITION_NOT_FOUND));
        while node.held_count() > 0 {
            node.let_go();
        }
        node.settle();
        assert!(node.disk.directories_below("partitions/").is_empty());
        assert_eq!(node.halted, None);
        node.crash();
        assert_eq!((node.halted, node.ready), (None, node.shards.len()));
    });
}

#[test]
fn a_request_that_comes_before_its_partition_is_built_is_answered_after() {
    on_every_shard(|node, client| {
        assert!(client.ask(node, &create_stream("orders")).result().is_ok());
        node.hold = Some(|request| {
            matches!(request, platform::DiskRequest::CreateDir { path }
                if path.0.starts_with("partitions/"))
        });
        let created = client.ask(node, &create_topic("paid", 1));
        assert!(created.result().is_ok());
        let batch = batch_of(&["a"]);
        let frame = client.frame(&send(Partitioning::PartitionId(0), &batch, 1));
        node.send(client.connection, &frame);
        assert!(node.frames(client.connection).is_empty());
        node.let_go();
        assert_eq!(crate::client::confirmed(&client.take(node)).base_offset, 0);
        let first = poll(0, PollingStrategy::First, 1, false);
        let body = client.ask(node, &Request::PollMessages(first)).result();
        let polled = Polled::decode(&body.expect("served"));
        assert_eq!(polled.offsets(), [0]);
    });
}

#[test]
fn a_create_topic_reply_has_the_operation_that_clients_parse_it_by() {
    on_every_shard(|node, client| {
        assert!(client.ask(node, &create_stream("orders")).result().is_ok());
        let answer = client.ask(node, &create_topic("paid", 2));
        let payload = answer.result().expect("created");
        let details = TopicDetails::decode(&payload).expect("a topic");
        assert_eq!(details.partitions.len(), 2);
        assert_eq!(details.partitions[0].segments_count, 1);
        let Answer::Reply(header, _) = answer else {
            unreachable!("it had a result")
        };
        assert_eq!(header.operation, Operation::CreateTopic);
    });
}
