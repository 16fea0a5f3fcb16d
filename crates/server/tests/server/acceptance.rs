//! What the published suites take for granted and no other file here is about: who wins a race,
//! names made of digits, large and many batches, and starts at every length of a log.

use wire::{
    Codec, ErrorCode, Identifier, Partitioning, PollingStrategy, Request,
    reply::{StreamDetails, StreamRecord, TopicDetails},
    request::{TopicTarget, UpdateStream},
};

use crate::{
    client::{
        Client, batch_of, confirmed, create_stream, create_topic, name, no_options, send, stream,
    },
    lifecycle::small_segments,
    node::Node,
};

/// Every client asks at once; their answers.
fn race(
    node: &mut Node,
    clients: &mut [Client],
    request: impl Fn(usize) -> String,
) -> Vec<Result<Vec<u8>, ErrorCode>> {
    for (index, client) in clients.iter_mut().enumerate() {
        let frame = client.frame(&create_stream(&request(index)));
        node.arrive(client.connection, &frame);
    }
    node.run();
    let answers = clients.iter().map(|client| client.take(node).result());
    answers.collect()
}

#[test]
fn of_many_who_create_the_same_one_wins_and_different_names_all_do() {
    for shards in [1, 2] {
        let node = &mut Node::new(shards);
        let mut clients: Vec<Client> = (1..=20).map(|id| Client::log_in(node, id)).collect();
        let answers = race(node, &mut clients, |_| "same".into());
        let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1);
        assert_eq!(lost, vec![Err(ErrorCode::STREAM_NAME_ALREADY_EXISTS); 19]);
        let answers = race(node, &mut clients, |index| format!("own {index}"));
        let mut ids: Vec<u32> = answers
            .into_iter()
            .map(|answer| {
                let payload = answer.expect("nobody else has this name");
                StreamRecord::decode(&payload).expect("a stream").id
            })
            .collect();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(1..=20));
    }
}

#[test]
fn a_name_made_of_digits_is_a_name_and_no_number() {
    let node = &mut Node::new(1);
    let client = &mut Client::log_in(node, 1);
    for text in ["1", "0"] {
        let created = client.ask(node, &create_stream(text)).result();
        assert!(created.is_ok());
    }
    let find = |node: &mut Node, client: &mut Client, by| {
        let body = client.ask(node, &Request::GetStream(by)).result();
        let body = body.expect("a read");
        let found = StreamDetails::decode(&body).expect("a stream");
        (found.stream.id, found.stream.name.as_str().to_owned())
    };
    let by_name = |text| Identifier::Named(name(text));
    assert_eq!(find(node, client, by_name("1")), (0, "1".into()));
    assert_eq!(find(node, client, by_name("0")), (1, "0".into()));
    assert_eq!(find(node, client, Identifier::Numeric(1)), (1, "0".into()));
    let rename = Request::UpdateStream(UpdateStream {
        stream: by_name("0"),
        name: name("2"),
        options: no_options(),
    });
    assert_eq!(client.ask(node, &rename).result(), Ok(Vec::new()));
    assert_eq!(find(node, client, Identifier::Numeric(1)), (1, "2".into()));
    let taken = Request::UpdateStream(UpdateStream {
        stream: Identifier::Numeric(1),
        name: name("1"),
        options: no_options(),
    });
    let refused = client.ask(node, &taken).code();
    assert_eq!(refused, Some(ErrorCode::STREAM_NAME_ALREADY_EXISTS));
}

#[test]
fn topics_named_by_digits_are_told_apart_as_well() {
    let node = &mut Node::new(1);
    let client = &mut Client::log_in(node, 1);
    assert!(client.ask(node, &create_stream("orders")).result().is_ok());
    for text in ["1", "0"] {
        assert!(client.ask(node, &create_topic(text, 1)).result().is_ok());
    }
    for (topic, id) in [
        (Identifier::Named(name("1")), 0),
        (Identifier::Named(name("0")), 1),
        (Identifier::Numeric(0), 0),
    ] {
        let target = TopicTarget {
            stream: stream(),
            topic,
        };
        let body = client.ask(node, &Request::GetTopic(target)).result();
        let body = body.expect("a read");
        assert_eq!(TopicDetails::decode(&body).expect("a topic").topic.id, id);
    }
}

#[test]
fn a_batch_of_a_thousand_has_one_answer_and_is_polled_at_once() {
    let node = &mut Node::with(small_segments(1));
    let client = &mut Client::log_in(node, 1);
    client.create_topic(node, 1);
    assert_eq!(client.produce(node, 0, &["first"]), 0);
    let payloads: Vec<String> = (0..1_000)
        .map(|number| format!("message {number}"))
        .collect();
    let payloads: Vec<&str> = payloads.iter().map(String::as_str).collect();
    let batch = batch_of(&payloads);
    let request = send(Partitioning::PartitionId(0), &batch, payloads.len());
    let confirmation = confirmed(&client.ask(node, &request));
    assert_eq!(confirmation.base_offset, 1);
    let polled = client.poll(node, 0, PollingStrategy::Offset(1), 1_000);
    assert_eq!(polled.current_offset, 1_000);
    let expected = (1..).zip(payloads).map(|(at, text)| (at, text.into()));
    assert!(polled.messages.into_iter().eq(expected));
}

#[test]
fn five_thousand_batches_of_one_message_are_all_there_in_order() {
    let node = &mut Node::new(2);
    let client = &mut Client::log_in(node, 1);
    client.create_topic(node, 1);
    for number in 0..5_000 {
        let payload = format!("message {number}");
        assert_eq!(client.produce(node, 0, &[&payload]), number);
    }
    for crashed in [false, true] {
        if crashed {
            node.crash();
            *client = Client::log_in(node, 2);
        }
        let polled = client.poll(node, 0, PollingStrategy::First, 5_000);
        let expected = (0..5_000).map(|number| (number, format!("message {number}").into()));
        assert!(polled.messages.into_iter().eq(expected));
    }
}

#[test]
fn a_restart_after_every_message_of_two_segments_counts_them_right() {
    let node = &mut Node::with(small_segments(1));
    let client = &mut Client::log_in(node, 1);
    client.create_topic(node, 1);
    let payload = "x".repeat(300);
    for count in 0..30 {
        node.crash();
        *client = Client::log_in(node, 2 + u128::from(count));
        let polled = client.poll(node, 0, PollingStrategy::First, 100);
        assert!(polled.offsets().into_iter().eq(0..count));
        assert_eq!(client.produce(node, 0, &[&payload]), count);
    }
}

#[test]
fn gaps_in_the_numbers_of_what_is_left_survive_a_restart_and_are_filled_first() {
    let node = &mut Node::new(2);
    let client = &mut Client::log_in(node, 1);
    for text in ["a", "b", "c", "d"] {
        assert!(client.ask(node, &create_stream(text)).result().is_ok());
    }
    for id in [1, 2] {
        let delete = Request::DeleteStream(Identifier::Numeric(id));
        assert_eq!(client.ask(node, &delete).result(), Ok(Vec::new()));
    }
    node.crash();
    let client = &mut Client::log_in(node, 2);
    for (text, id) in [("e", 1), ("f", 2), ("g", 4)] {
        let payload = client.ask(node, &create_stream(text)).result();
        let payload = payload.expect("created");
        assert_eq!(StreamRecord::decode(&payload).expect("a stream").id, id);
    }
}
