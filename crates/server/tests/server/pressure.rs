//! Limits, each at the limit and one beyond: what does not fit is refused by name, and nobody
//! else notices.

use core::time::Duration;

use wire::{Code, ErrorCode, Partitioning, PollingStrategy, Request, RequestHeader, header};

use crate::{
    client::{Client, batch_of, confirmed, create_stream, create_topic, login, send},
    node::{Node, Options, PASSWORD, USERNAME},
};

fn options(shards: usize) -> Options {
    Options {
        shards,
        ..Options::default()
    }
}

/// A request whose frame has this many bytes.
fn ping_of(client: &Client, size: usize) -> base::Bytes {
    let header = RequestHeader::new(client.id, 0, 1, Code::Ping);
    header::request(&header, &vec![0; size - 256])
}

#[test]
fn a_frame_of_the_largest_size_is_served_and_one_byte_more_closes_the_connection() {
    let mut options = options(1);
    options.limits.frame_size_max = 4096;
    let node = &mut Node::with(options);
    let client = Client::connect(node, 1);
    let answer = client.exchange(node, &ping_of(&client, 4096));
    assert_eq!(
        answer.code(),
        Some(ErrorCode::INVALID_COMMAND),
        "read to its end"
    );
    let other = Client::connect(node, 2);
    node.send(other.connection, &ping_of(&other, 4097)[..256]);
    assert!(node.is_closed(other.connection));
    assert!(node.frames(other.connection).is_empty());
    let answer = client.exchange(node, &ping_of(&client, 256));
    assert!(answer.result().is_ok());
}

#[test]
fn a_connection_too_many_is_closed_and_a_freed_place_is_taken_again() {
    for shards in [1, 2] {
        let mut options = options(shards);
        options.limits.connections_max = 4;
        let node = &mut Node::with(options);
        let clients: Vec<Client> = (1..=4).map(|id| Client::connect(node, id)).collect();
        for _ in 0..2 {
            let beyond = Client::connect(node, 9);
            assert!(node.is_closed(beyond.connection));
        }
        for mut client in clients.iter().copied() {
            assert!(client.ask(node, &Request::Ping).result().is_ok());
        }
        node.disconnect(clients[0].connection);
        let mut late = Client::connect(node, 10);
        assert!(late.ask(node, &Request::Ping).result().is_ok());
    }
}

#[test]
fn requests_beyond_the_parking_lot_are_refused_at_once_and_the_parked_after_their_patience() {
    let mut options = options(1);
    options.limits.parked_max = 2;
    let node = &mut Node::with(options);
    let mut client = Client::log_in(node, 1);
    assert!(client.ask(node, &create_stream("orders")).result().is_ok());
    let mut others: Vec<Client> = (2..=5).map(|id| Client::log_in(node, id)).collect();
    node.hold = Some(|request| {
        matches!(request, platform::DiskRequest::CreateDir { path }
            if path.0.starts_with("partitions/"))
    });
    let created = client.ask(node, &create_topic("paid", 1));
    assert!(created.result().is_ok());
    let batch = batch_of(&["a"]);
    let request = send(Partitioning::PartitionId(0), &batch, 1);
    for other in &mut others {
        let frame = other.frame(&request);
        node.send(other.connection, &frame);
    }
    let refused = Some(ErrorCode::TRANSIENT_NOT_ACCEPTED);
    for other in &others[2..] {
        assert_eq!(other.take(node).code(), refused);
    }
    for other in &others[..2] {
        assert!(node.frames(other.connection).is_empty());
    }
    node.pass(Duration::from_millis(1_499));
    assert!(node.frames(others[0].connection).is_empty());
    node.pass(Duration::from_millis(1));
    for other in &others[..2] {
        assert_eq!(other.take(node).code(), refused);
    }
    // 58 promises that nothing was admitted.
    node.let_go();
    let polled = client.poll(node, 0, PollingStrategy::First, 9);
    assert!(polled.messages.is_empty());
}

#[test]
fn logins_beyond_what_is_being_computed_are_refused_at_once_and_may_come_again() {
    let mut options = options(1);
    options.limits.parked_max = 2;
    let node = &mut Node::with(options);
    let mut before = Client::log_in(node, 9);
    let mut clients: Vec<Client> = (1..=4).map(|id| Client::connect(node, id)).collect();
    node.hold_logins = true;
    for client in &mut clients {
        let frame = client.frame(&login(USERNAME, PASSWORD));
        node.send(client.connection, &frame);
    }
    let refused = Some(ErrorCode::TRANSIENT_NOT_ACCEPTED);
    for client in &clients[2..] {
        assert_eq!(client.take(node).code(), refused);
    }
    for client in &clients[..2] {
        assert!(node.frames(client.connection).is_empty());
    }
    // Whoever needs no computation is served meanwhile.
    assert!(before.ask(node, &create_stream("orders")).result().is_ok());
    node.let_go();
    for client in &clients[..2] {
        assert!(client.take(node).result().is_ok());
    }
    for client in &mut clients[2..] {
        client.log_in_again(node);
    }
}

#[test]
fn more_writers_than_the_pipeline_holds_are_all_served_in_turn() {
    for shards in [1, 2] {
        let mut options = options(shards);
        options.limits.pipeline_max = 2;
        let node = &mut Node::with(options);
        let mut clients: Vec<Client> = (1..=9).map(|id| Client::log_in(node, id)).collect();
        clients[0].create_topic(node, 1);
        node.hold = Some(|request| matches!(request, platform::DiskRequest::Write { .. }));
        let batch = batch_of(&["a"]);
        let request = send(Partitioning::PartitionId(0), &batch, 1);
        for client in &mut clients {
            let frame = client.frame(&request);
            node.send(client.connection, &frame);
            assert!(node.frames(client.connection).is_empty());
        }
        node.let_go();
        let answers = clients.iter().map(|client| client.take(node));
        let mut offsets: Vec<u64> = answers.map(|a| confirmed(&a).base_offset).collect();
        offsets.sort_unstable();
        assert_eq!(offsets, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }
}

#[test]
fn more_metadata_writers_than_the_pipeline_holds_are_all_served_in_turn() {
    for shards in [1, 2] {
        let mut options = options(shards);
        options.limits.pipeline_max = 2;
        let node = &mut Node::with(options);
        let mut clients: Vec<Client> = (1..=9).map(|id| Client::log_in(node, id)).collect();
        node.hold = Some(|request| matches!(request, platform::DiskRequest::Write { .. }));
        for (index, client) in clients.iter_mut().enumerate() {
            let frame = client.frame(&create_stream(&format!("stream-{index}")));
            node.send(client.connection, &frame);
            assert!(node.frames(client.connection).is_empty());
        }
        node.let_go();
        for client in &clients {
            assert!(client.take(node).result().is_ok());
        }
    }
}

#[test]
fn what_does_not_commit_in_time_has_an_unknown_outcome() {
    for shards in [1, 2] {
        let node = &mut Node::new(shards);
        let mut writer = Client::log_in(node, 1);
        let mut reader = Client::log_in(node, 2);
        writer.create_topic(node, 1);
        writer.produce(node, 0, &["a"]);
        node.hold = Some(|request| {
            matches!(
                request,
                platform::DiskRequest::Write { .. } | platform::DiskRequest::Read { .. }
            )
        });
        let batch = batch_of(&["b"]);
        let frame = writer.frame(&send(Partitioning::PartitionId(0), &batch, 1));
        node.send(writer.connection, &frame);
        // An auto-commit waits behind the write.
        let poll = crate::client::poll(0, PollingStrategy::First, 1, true);
        let frame = reader.frame(&Request::PollMessages(poll));
        node.send(reader.connection, &frame);
        node.pass(Duration::from_millis(9_999));
        assert!(node.frames(writer.connection).is_empty());
        assert!(node.frames(reader.connection).is_empty());
        node.pass(Duration::from_millis(1));
        let unknown = Some(ErrorCode::TRANSIENT_NOT_COMMITTED);
        assert_eq!(writer.take(node).code(), unknown);
        assert_eq!(reader.take(node).code(), unknown);
        // The late outcomes are told to nobody.
        node.let_go();
        assert!(node.frames(writer.connection).is_empty());
        assert!(node.frames(reader.connection).is_empty());
        assert!(writer.ask(node, &Request::Ping).result().is_ok());
        let polled = writer.poll(node, 0, PollingStrategy::First, 9);
        assert_eq!(polled.offsets(), [0, 1]);
    }
}

#[test]
fn a_client_that_does_not_read_holds_up_only_itself() {
    for shards in [1, 2] {
        let mut options = options(shards);
        options.limits.client_queue_bytes_max = 3 << 20;
        let node = &mut Node::with(options);
        let mut other = Client::log_in(node, 1);
        let mut slow = Client::log_in(node, 2);
        other.create_topic(node, 1);
        let payload = "x".repeat(700_000);
        other.produce(node, 0, &[&payload]);
        node.stall(slow.connection, true);
        let poll = crate::client::poll(0, PollingStrategy::First, 1, false);
        for _ in 0..4 {
            let frame = slow.frame(&Request::PollMessages(poll));
            node.send(slow.connection, &frame);
        }
        // Two answers are more than may be unsent: the third request is not even read.
        assert_eq!(node.frames(slow.connection).len(), 2);
        assert!(!node.is_read(slow.connection));
        assert!(!node.is_closed(slow.connection));
        let polled = other.poll(node, 0, PollingStrategy::First, 1);
        assert_eq!(polled.offsets(), [0]);
        node.stall(slow.connection, false);
        assert_eq!(node.frames(slow.connection).len(), 2);
        assert!(slow.ask(node, &Request::Ping).result().is_ok());
    }
}

#[test]
fn a_client_that_lets_too_much_pile_up_is_cut_off() {
    let mut options = options(1);
    options.limits.client_queue_bytes_max = 512;
    let node = &mut Node::with(options);
    let mut other = Client::connect(node, 1);
    let mut slow = Client::connect(node, 2);
    node.stall(slow.connection, true);
    for _ in 0..2 {
        let frame = slow.frame(&Request::Ping);
        node.send(slow.connection, &frame);
        assert!(!node.is_closed(slow.connection));
    }
    let frame = slow.frame(&Request::Ping);
    node.send(slow.connection, &frame);
    assert!(node.is_closed(slow.connection));
    assert_eq!(node.frames(slow.connection).len(), 2);
    assert!(other.ask(node, &Request::Ping).result().is_ok());
}

#[test]
fn a_session_too_many_ends_the_one_that_wrote_longest_ago() {
    for shards in [1, 2] {
        let mut options = options(shards);
        options.limits.clients_max = 2;
        let node = &mut Node::with(options);
        let mut first = Client::log_in(node, 1);
        let mut second = Client::log_in(node, 2);
        assert!(first.ask(node, &create_stream("a")).result().is_ok());
        let mut third = Client::log_in(node, 3);
        let denied = second.ask(node, &Request::GetStreams).code();
        assert_eq!(denied, Some(ErrorCode::UNAUTHENTICATED));
        assert!(first.ask(node, &create_stream("b")).result().is_ok());
        assert!(third.ask(node, &create_stream("c")).result().is_ok());
    }
}
