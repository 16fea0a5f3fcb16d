//! Byte streams: cut anywhere, pipelined, broken, abandoned.

use base::{Domain, Prng};
use wire::{Operation, Partitioning, PollingStrategy, Request, RequestHeader};

use crate::{
    client::{Answer, Client, batch_of, confirmed, create_stream, login, poll, send, store},
    node::{Node, PASSWORD, USERNAME},
};

#[test]
fn garbage_closes_its_connection_and_no_other() {
    for shards in [1, 2] {
        let node = &mut Node::new(shards);
        let mut good = Client::log_in(node, 1);
        let ping = Client::connect(node, 8).numbered(&Request::Ping, 0, 1);
        let broken = |at: usize, byte: u8| {
            let mut frame = ping.to_vec();
            frame[at] = byte;
            frame
        };
        for frame in [
            vec![0; 256],
            vec![0xFF; 300],
            broken(49, 0),    // smaller than a header
            broken(51, 0xFF), // larger than any frame
            broken(60, 8),    // a reply
            broken(60, 6),    // a replica's prepare
            broken(176, 64),  // an internal operation
            broken(176, 99),  // no operation
            broken(176, 160), // a send without session
            broken(128, 0),   // no client
        ] {
            let bad = Client::connect(node, 2);
            node.send(bad.connection, &frame);
            assert!(node.is_closed(bad.connection));
            assert!(node.frames(bad.connection).is_empty());
            assert!(good.ask(node, &Request::Ping).result().is_ok());
        }
        let mut late = Client::log_in(node, 3);
        assert!(late.ask(node, &create_stream("orders")).result().is_ok());
    }
}

#[test]
fn random_bytes_never_stop_the_node() {
    let node = &mut Node::new(2);
    let mut prng = Prng::new(7, Domain::Client, 1);
    let mut good = Client::log_in(node, 1);
    good.create_topic(node, 1);
    let batch = batch_of(&["a"]);
    let whole: Vec<Vec<u8>> = [
        login(USERNAME, PASSWORD),
        create_stream("x"),
        send(Partitioning::PartitionId(0), &batch, 1),
        Request::PollMessages(poll(0, PollingStrategy::First, 1, true)),
        store(0, 0),
        Request::Logout,
    ]
    .iter()
    .map(|request| good.numbered(request, good.session, 1).to_vec())
    .collect();
    for round in 0..300_u64 {
        let bad = Client::log_in(node, 2 + u128::from(round % 5));
        let mut frame = whole[prng.index(whole.len())].clone();
        frame[128..144].copy_from_slice(&bad.id.0.to_le_bytes());
        frame[184..192].copy_from_slice(&bad.session.to_le_bytes());
        frame[168..176].copy_from_slice(&(round + 1).to_le_bytes());
        for _ in 0..1 + prng.index(3) {
            let at = 144 + prng.index(frame.len() - 144);
            frame[at] = prng.next_u64().to_le_bytes()[0];
        }
        node.send(bad.connection, &frame);
        let frames = node.frames(bad.connection);
        assert!(frames.len() == 1 || node.is_closed(bad.connection) && frames.is_empty());
        node.disconnect(bad.connection);
    }
    assert_eq!(node.halted, None);
    assert!(good.ask(node, &Request::Ping).result().is_ok());
}

#[test]
fn pipelined_requests_are_answered_in_order_exactly_once_each() {
    for shards in [1, 2] {
        let node = &mut Node::new(shards);
        let mut client = Client::log_in(node, 1);
        client.create_topic(node, 3);
        let batch = batch_of(&["a", "b"]);
        let mut frames = Vec::new();
        for round in 0..30 {
            let partition = round % 3;
            let target = Partitioning::PartitionId(partition);
            frames.push(client.frame(&send(target, &batch, 2)));
            frames.push(client.frame(&Request::Ping));
            let first = poll(partition, PollingStrategy::First, 1, true);
            frames.push(client.frame(&Request::PollMessages(first)));
            frames.push(client.frame(&create_stream(&format!("stream-{round}"))));
            frames.push(client.frame(&Request::GetStreams));
        }
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| frame.to_vec()).collect();
        node.send(client.connection, &bytes);
        let answers = node.frames(client.connection);
        assert_eq!(answers.len(), frames.len());
        for (frame, answer) in frames.iter().zip(&answers) {
            let asked = RequestHeader::decode(frame).expect("a request");
            let Answer::Reply(header, _) = Answer::of(answer) else {
                panic!("no eviction")
            };
            assert_eq!(header.operation, asked.operation);
            assert_eq!(header.request, asked.request);
            assert!(Answer::of(answer).result().is_ok());
        }
        let sends = answers.iter().map(Answer::of).filter(|answer| {
            matches!(answer, Answer::Reply(header, _)
                if header.operation == Operation::SendMessages)
        });
        let offsets: Vec<u64> = sends.map(|answer| confirmed(&answer).base_offset).collect();
        let expected: Vec<u64> = (0..30).map(|round| round / 3 * 2).collect();
        assert_eq!(offsets, expected);
    }
}

#[test]
fn a_stream_may_be_cut_anywhere() {
    let node = &mut Node::new(2);
    let mut client = Client::log_in(node, 1);
    client.create_topic(node, 1);
    let payload = "y".repeat(9_000);
    let batch = batch_of(&["a", &payload]);
    let mut prng = Prng::new(3, Domain::Client, 2);
    for round in 0..50 {
        let target = Partitioning::PartitionId(0);
        let mut bytes = client.frame(&send(target, &batch, 2)).to_vec();
        bytes.extend_from_slice(&client.frame(&Request::Ping));
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, tail) = rest.split_at(1 + prng.index(rest.len()));
            node.send(client.connection, piece);
            rest = tail;
        }
        let answers = node.frames(client.connection);
        assert_eq!(answers.len(), 2);
        let confirmation = confirmed(&Answer::of(&answers[0]));
        assert_eq!(confirmation.base_offset, round * 2);
    }
    let polled = client.poll(node, 0, PollingStrategy::Last, 1);
    assert_eq!(polled.messages, [(99, payload.into_bytes())]);
}

#[test]
fn a_client_that_goes_amid_a_request_leaves_nothing_behind() {
    for shards in [1, 2] {
        let node = &mut Node::new(shards);
        let mut client = Client::log_in(node, 1);
        client.create_topic(node, 1);
        let mut gone = Client::log_in(node, 2);
        let batch = batch_of(&["a"]);
        node.hold = Some(|request| matches!(request, platform::DiskRequest::Write { .. }));
        let frame = gone.frame(&send(Partitioning::PartitionId(0), &batch, 1));
        node.send(gone.connection, &frame);
        node.disconnect(gone.connection);
        let mut login_gone = Client::connect(node, 3);
        node.hold_logins = true;
        let frame = login_gone.frame(&login(USERNAME, PASSWORD));
        node.send(login_gone.connection, &frame);
        node.disconnect(login_gone.connection);
        node.let_go();
        let polled = client.poll(node, 0, PollingStrategy::First, 9);
        assert_eq!(polled.offsets(), [0]);
        node.pass(core::time::Duration::from_millis(60));
        assert_eq!(node.deadline(), None);
    }
}
