//! The same request again: answered as the first time, executed once (`wire.md` 3.3).

use wire::{ErrorCode, Partitioning, PollingStrategy, Request};

use crate::{
    client::{Answer, Client, batch_of, create_stream, send, store},
    node::Node,
};

fn on_one_and_two_shards(test: impl Fn(&mut Node, &mut Client)) {
    for shards in [1, 2] {
        let mut node = Node::new(shards);
        let mut client = Client::log_in(&mut node, 1);
        client.create_topic(&mut node, 1);
        test(&mut node, &mut client);
    }
}

#[test]
fn a_repeated_metadata_request_gets_the_same_bytes() {
    on_one_and_two_shards(|node, client| {
        let frame = client.frame(&create_stream("twice"));
        node.send(client.connection, &frame);
        let first = node.frames(client.connection);
        assert!(Answer::of(&first[0]).result().is_ok());
        node.send(client.connection, &frame);
        assert_eq!(node.frames(client.connection), first);
        // A rejection is remembered too.
        let frame = client.frame(&create_stream("twice"));
        node.send(client.connection, &frame);
        let rejected = node.frames(client.connection);
        let taken = Some(ErrorCode::STREAM_NAME_ALREADY_EXISTS);
        assert_eq!(Answer::of(&rejected[0]).code(), taken);
        let delete = Request::DeleteStream(wire::Identifier::Numeric(1));
        assert!(client.ask(node, &delete).result().is_ok());
        node.send(client.connection, &frame);
        assert_eq!(node.frames(client.connection), rejected);
    });
}

#[test]
fn a_repeated_send_gets_the_same_offset_and_adds_nothing() {
    on_one_and_two_shards(|node, client| {
        client.produce(node, 0, &["a"]);
        let batch = batch_of(&["b", "c"]);
        let frame = client.frame(&send(Partitioning::PartitionId(0), &batch, 2));
        node.send(client.connection, &frame);
        let first = node.frames(client.connection);
        assert!(Answer::of(&first[0]).result().is_ok());
        for _ in 0..3 {
            node.send(client.connection, &frame);
            assert_eq!(node.frames(client.connection), first);
        }
        let polled = client.poll(node, 0, PollingStrategy::First, 9);
        assert_eq!(polled.offsets(), [0, 1, 2]);
    });
}

#[test]
fn a_repeated_store_gets_the_same_bytes_and_changes_nothing() {
    on_one_and_two_shards(|node, client| {
        client.produce(node, 0, &["a", "b"]);
        let frame = client.frame(&store(0, 0));
        node.send(client.connection, &frame);
        let first = node.frames(client.connection);
        assert!(Answer::of(&first[0]).result().is_ok());
        node.send(client.connection, &frame);
        assert_eq!(node.frames(client.connection), first);
    });
}

#[test]
fn an_answer_no_longer_kept_is_told_as_already_applied() {
    on_one_and_two_shards(|node, client| {
        let old = client.frame(&create_stream("first"));
        assert!(client.exchange(node, &old).result().is_ok());
        for index in 0..20 {
            let create = create_stream("first");
            let answer = client.ask(node, &create);
            let taken = Some(ErrorCode::STREAM_NAME_ALREADY_EXISTS);
            assert_eq!(answer.code(), taken, "{index}");
        }
        let answer = client.exchange(node, &old);
        assert_eq!(answer.code(), Some(ErrorCode::REQUEST_ALREADY_APPLIED));
        let batch = batch_of(&["a"]);
        let old = client.frame(&send(Partitioning::PartitionId(0), &batch, 1));
        assert!(client.exchange(node, &old).result().is_ok());
        for _ in 0..20 {
            client.produce(node, 0, &["b"]);
        }
        let answer = client.exchange(node, &old);
        let gone = Some(ErrorCode::REQUEST_ALREADY_APPLIED);
        assert_eq!(answer.code(), gone);
        let polled = client.poll(node, 0, PollingStrategy::First, 99);
        assert_eq!(polled.messages.len(), 21);
    });
}

#[test]
fn a_number_used_for_something_else_is_refused() {
    on_one_and_two_shards(|node, client| {
        let frame = client.frame(&create_stream("one"));
        assert!(client.exchange(node, &frame).result().is_ok());
        let other = client.numbered(&create_stream("two"), client.session, client.request);
        let answer = client.exchange(node, &other);
        assert_eq!(answer.code(), Some(ErrorCode::INVALID_COMMAND));
    });
}

#[test]
fn a_retry_on_a_new_connection_finds_the_answer_of_the_old_one() {
    on_one_and_two_shards(|node, client| {
        let batch = batch_of(&["a"]);
        let request = send(Partitioning::PartitionId(0), &batch, 1);
        let frame = client.frame(&request);
        assert!(client.exchange(node, &frame).result().is_ok());
        node.disconnect(client.connection);
        let mut again = Client::log_in(node, 1);
        again.request = client.request - 1;
        let answer = again.ask(node, &request);
        assert_eq!(crate::client::confirmed(&answer).base_offset, 0);
        let polled = again.poll(node, 0, PollingStrategy::First, 9);
        assert_eq!(polled.offsets(), [0]);
    });
}

#[test]
fn a_retry_of_what_is_still_being_written_is_not_written_again() {
    on_one_and_two_shards(|node, client| {
        let batch = batch_of(&["a"]);
        let request = send(Partitioning::PartitionId(0), &batch, 1);
        let in_partitions = |request: &platform::DiskRequest| {
            matches!(request, platform::DiskRequest::Write { .. })
        };
        let mut again = Client::connect(node, 1);
        again.log_in_again(node);
        again.request = client.request;
        node.hold = Some(in_partitions);
        let frame = again.frame(&request);
        node.send(again.connection, &frame);
        assert!(node.frames(again.connection).is_empty());
        assert_eq!(node.held_count(), 1);
        // The producer loses its connection; its next life cannot log in while nothing is
        // written, so the retry comes once the disk goes on.
        node.disconnect(again.connection);
        node.let_go();
        let mut third = Client::log_in(node, 1);
        third.request = again.request - 1;
        let answer = third.ask(node, &request);
        assert_eq!(crate::client::confirmed(&answer).base_offset, 0);
        let polled = third.poll(node, 0, PollingStrategy::First, 9);
        assert_eq!(polled.offsets(), [0]);
    });
}
