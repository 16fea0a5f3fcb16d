//! Bad input, for every command there is (`wire.md` 3.9 and 7.1).
//!
//! Bodies are made from the golden vectors: cut at every length, with a byte too many, and with
//! each byte turned into ones that break lengths, kinds, flags and UTF-8. Each gets the code of
//! what is wrong with it, changes nothing, leaves its connection alive and disturbs nobody.
//! A command that a later version adds to the vectors is covered without a line here.

use base::Bytes;
use wire::{
    Code, Codec, Consumer, ConsumerKind, ErrorCode, EvictionReason, HEADER_SIZE, Identifier,
    Operation, OptionalPartition, OptionsBlock, Partitioning, Plane, PollingStrategy, Request,
    RequestHeader, batch, header,
    request::{
        CreateTopic, DeleteSegments, GroupTarget, OffsetTarget, PartitionsCount, PollMessages,
        SendMessages, SendTarget, TopicTarget, UpdateStream, UpdateTopic,
    },
};

use crate::{
    client::{Answer, Client, batch_of, name, no_options, poll, store, stream, topic},
    node::{Node, PASSWORD, USERNAME},
};

/// A request of the golden vectors.
struct Sample {
    name: String,
    operation: Operation,
    code: u32,
    body: Vec<u8>,
}

/// All requests of this protocol version, but those that end the session they come in.
fn samples() -> Vec<Sample> {
    let file = include_str!("../../../wire/vectors/iggy-0.11.0.json");
    let mut samples = Vec::new();
    // One object each, indented by two; its keys by three.
    for vector in file.split("\n  {").skip(1) {
        let text = |key| text_of(vector, key).expect("every vector has one");
        let (name, kind, hex) = (text("name"), text("kind"), text("hex"));
        if kind != "request" || name.starts_with("edge_") {
            continue;
        }
        let bytes = bytes_of_hex(hex);
        let header =
            RequestHeader::decode(&bytes).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        if header.operation.plane() == Plane::Session {
            continue;
        }
        samples.push(Sample {
            name: name.into(),
            operation: header.operation,
            code: header.code,
            body: bytes[HEADER_SIZE..].to_vec(),
        });
    }
    assert!(samples.len() > 90, "{} samples", samples.len());
    samples
}

/// The text of a key of a vector.
fn text_of<'a>(vector: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = vector.split_once(&format!("\n   \"{key}\": \""))?;
    rest.split('"').next()
}

fn bytes_of_hex(hex: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// A body with one thing or another wrong with it, or with nothing: who knows.
fn mutations(body: &[u8]) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = (0..body.len()).map(|end| body[..end].to_vec()).collect();
    all.push([body, &[0]].concat());
    for at in 0..body.len() {
        for byte in [0, 0x80, 0xFF] {
            let mut mutated = body.to_vec();
            mutated[at] = byte;
            all.push(mutated);
        }
    }
    all
}

/// The code of what is wrong with a body, if anything is.
fn fault(sample: &Sample, body: &[u8]) -> Option<ErrorCode> {
    match Request::decode(sample.operation, sample.code, body) {
        Err(error) => Some(error.code()),
        Ok(Request::SendMessages(send)) => match batch::verify(send.batch) {
            Err(error) => Some(error.code()),
            Ok(header) if header.message_count != send.target.messages_count => {
                Some(ErrorCode::INVALID_MESSAGES_COUNT)
            }
            Ok(_) => None,
        },
        Ok(_) => None,
    }
}

fn frame_of(client: &mut Client, operation: Operation, code: u32, body: &[u8]) -> Bytes {
    let reads = operation == Operation::NonReplicated;
    client.request += u64::from(!reads);
    let number = client.request + u64::from(reads);
    let ping = RequestHeader::new(client.id, client.session, number, Code::Ping);
    let header = RequestHeader {
        operation,
        code,
        ..ping
    };
    header::request(&header, body)
}

/// A node with a stream, a topic of two partitions with messages, and two clients.
fn populated(shards: usize) -> (Node, Client, Client) {
    let mut node = Node::new(shards);
    let mut client = Client::log_in(&mut node, 1);
    let mut other = Client::log_in(&mut node, 2);
    client.create_topic(&mut node, 2);
    client.produce(&mut node, 1, &["a", "b"]);
    assert!(other.ask(&mut node, &Request::Ping).result().is_ok());
    (node, client, other)
}

#[test]
fn every_broken_body_of_every_command_has_its_code_and_changes_nothing() {
    let mut broken = 0;
    for sample in samples() {
        let (mut node, mut client, mut other) = populated(2);
        let before = other.ask(&mut node, &Request::GetTopic(topic()));
        for body in mutations(&sample.body) {
            let Some(expected) = fault(&sample, &body) else {
                continue;
            };
            broken += 1;
            let frame = frame_of(&mut client, sample.operation, sample.code, &body);
            let answer = client.exchange(&mut node, &frame);
            let Answer::Reply(header, rest) = &answer else {
                panic!("{}: {answer:?} for {body:?}", sample.name);
            };
            // What cannot be decoded is denied before anything is looked up: it is no op.
            let unresolved = sample.operation == Operation::SendMessages;
            if unresolved {
                let codes = [
                    expected,
                    ErrorCode::STREAM_ID_NOT_FOUND,
                    ErrorCode::TOPIC_ID_NOT_FOUND,
                    ErrorCode::PARTITION_NOT_FOUND,
                ];
                assert!(
                    codes.contains(&header.status),
                    "{}: {answer:?}",
                    sample.name
                );
            } else {
                assert_eq!(header.status, expected, "{}: {body:?}", sample.name);
            }
            assert!(rest.is_empty(), "a denial has no body");
            assert_eq!(header.operation, sample.operation);
        }
        assert!(!node.is_closed(client.connection));
        for client in [&mut client, &mut other] {
            assert!(client.ask(&mut node, &Request::Ping).result().is_ok());
        }
        let after = other.ask(&mut node, &Request::GetTopic(topic()));
        assert_eq!(before.result(), after.result(), "{}", sample.name);
    }
    assert!(
        broken > 2_000,
        "{broken} broken bodies are too few to show anything"
    );
}

#[test]
fn a_broken_batch_has_its_code_in_a_topic_that_exists() {
    let (mut node, mut client, mut other) = populated(2);
    let batch = batch_of(&["one", "two"]);
    let TopicTarget { stream, topic } = topic();
    let valid = SendMessages {
        target: SendTarget {
            stream,
            topic,
            partitioning: Partitioning::PartitionId(0),
            messages_count: 2,
        },
        batch: &batch,
    };
    let sample = Sample {
        name: "send".into(),
        operation: Operation::SendMessages,
        code: 0,
        body: valid.encode(),
    };
    let target_ends = sample.body.len() - batch.len();
    for body in mutations(&sample.body) {
        // Before the batch stand names that other tests break.
        if body[..target_ends.min(body.len())] != sample.body[..target_ends.min(body.len())] {
            continue;
        }
        let Some(expected) = fault(&sample, &body) else {
            continue;
        };
        let frame = frame_of(&mut client, sample.operation, 0, &body);
        let answer = client.exchange(&mut node, &frame);
        assert_eq!(answer.code(), Some(expected), "{body:?}");
    }
    let polled = other.poll(&mut node, 0, PollingStrategy::First, 10);
    assert!(polled.messages.is_empty(), "nothing broken was appended");
    assert_eq!(client.produce(&mut node, 0, &["whole"]), 0);
}

// tidy: long — a table, one row per command.
#[test]
fn what_does_not_exist_and_what_is_too_much_has_its_code() {
    use ErrorCode as E;
    let (mut node, mut client, mut other) = populated(2);
    let (nobody, orders) = (Identifier::Numeric(77), stream());
    let no_topic = TopicTarget {
        stream: orders,
        topic: nobody,
    };
    let count = |count| {
        let TopicTarget { stream, topic } = topic();
        PartitionsCount {
            stream,
            topic,
            count,
        }
    };
    let offset = |partition, kind| OffsetTarget {
        consumer: Consumer {
            kind,
            id: Identifier::Numeric(1),
        },
        stream: topic().stream,
        topic: topic().topic,
        partition: OptionalPartition(partition),
    };
    let new_topic = |partitions_count| {
        Request::CreateTopic(CreateTopic {
            stream: orders,
            partitions_count,
            name: name("more"),
            options: no_options(),
        })
    };
    let mut unknown = OptionsBlock::new();
    unknown.push("colour", wire::Value::text("red"));
    let group = ConsumerKind::Group;
    let cases = [
        (Request::DeleteStream(nobody), E::STREAM_ID_NOT_FOUND),
        (
            Request::UpdateStream(UpdateStream {
                stream: nobody,
                name: name("x"),
                options: no_options(),
            }),
            E::STREAM_ID_NOT_FOUND,
        ),
        (
            Request::UpdateStream(UpdateStream {
                stream: orders,
                name: name("x"),
                options: unknown.as_options(),
            }),
            E::UNSUPPORTED_OPTION_KEY,
        ),
        (Request::DeleteTopic(no_topic), E::TOPIC_ID_NOT_FOUND),
        (
            Request::UpdateTopic(UpdateTopic {
                stream: orders,
                topic: nobody,
                name: name("x"),
                options: no_options(),
            }),
            E::TOPIC_ID_NOT_FOUND,
        ),
        (new_topic(1001), E::TOO_MANY_PARTITIONS),
        (new_topic(u32::MAX), E::TOO_MANY_PARTITIONS),
        (Request::CreatePartitions(count(0)), E::TOO_MANY_PARTITIONS),
        (
            Request::CreatePartitions(count(1001)),
            E::TOO_MANY_PARTITIONS,
        ),
        (
            Request::DeletePartitions(count(3)),
            E::INVALID_PARTITIONS_COUNT,
        ),
        (
            Request::DeletePartitions(count(1001)),
            E::TOO_MANY_PARTITIONS,
        ),
        (store(9, 0), E::PARTITION_NOT_FOUND),
        (store(1, 2), E::INVALID_OFFSET),
        (store(1, u64::MAX), E::INVALID_OFFSET),
        (
            Request::GetConsumerOffset(offset(Some(2), ConsumerKind::Single)),
            E::PARTITION_NOT_FOUND,
        ),
        (
            Request::GetConsumerOffset(offset(Some(0), group)),
            E::CONSUMER_GROUP_ID_NOT_FOUND,
        ),
        (
            Request::PollMessages(PollMessages {
                stream: nobody,
                ..poll(0, PollingStrategy::First, 1, false)
            }),
            E::STREAM_ID_NOT_FOUND,
        ),
        (
            Request::PollMessages(poll(2, PollingStrategy::First, 1, false)),
            E::PARTITION_NOT_FOUND,
        ),
        (Request::PurgeStream(nobody), E::STREAM_ID_NOT_FOUND),
        (Request::PurgeTopic(no_topic), E::TOPIC_ID_NOT_FOUND),
        (
            Request::DeleteSegments(DeleteSegments {
                stream: orders,
                topic: topic().topic,
                partition_id: 9,
                segments_count: 1,
            }),
            E::PARTITION_NOT_FOUND,
        ),
        (
            Request::JoinConsumerGroup(GroupTarget {
                stream: orders,
                topic: topic().topic,
                group: nobody,
            }),
            E::CONSUMER_GROUP_ID_NOT_FOUND,
        ),
        (Request::DeleteUser(nobody), E::RESOURCE_NOT_FOUND),
        (
            Request::DeletePersonalAccessToken(name("none")),
            E::RESOURCE_NOT_FOUND,
        ),
    ];
    for (request, expected) in cases {
        let code = client.ask(&mut node, &request).code();
        assert_eq!(code, Some(expected), "{request:?}");
        assert!(other.ask(&mut node, &Request::Ping).result().is_ok());
    }
    assert!(!node.is_closed(client.connection));
}

#[test]
fn a_broken_login_is_evicted_and_the_next_one_works() {
    let mut node = Node::new(2);
    let mut other = Client::log_in(&mut node, 50);
    let valid = crate::client::login(USERNAME, PASSWORD).encode();
    let mut client = Client::connect(&mut node, 7);
    for body in mutations(&valid) {
        let header = RequestHeader::new(client.id, 0, 0, Code::LoginRegister);
        let frame = header::request(&header, &body);
        let answer = client.exchange(&mut node, &frame);
        match answer {
            Answer::Eviction(
                EvictionReason::MalformedLogin
                | EvictionReason::IncompatibleProtocol
                | EvictionReason::InvalidCredentials
                | EvictionReason::InvalidToken,
            ) => {}
            // A client may call itself what it likes.
            Answer::Reply(..) if answer.result().is_ok() => {
                client.session = 1;
                let frame = frame_of(&mut client, Operation::Logout, 0, &[]);
                client.exchange(&mut node, &frame);
                client = Client::connect(&mut node, u128::from(client.request) << 64 | 7);
            }
            answer => panic!("{answer:?} for {body:?}"),
        }
        assert!(!node.is_closed(client.connection));
    }
    client.log_in_again(&mut node);
    assert!(other.ask(&mut node, &Request::Ping).result().is_ok());
}

#[test]
fn a_frame_that_breaks_the_rules_of_the_header_closes_its_connection_only() {
    let mut node = Node::new(2);
    let mut other = Client::log_in(&mut node, 1);
    let set = |at: usize, bytes: &[u8]| (at, bytes.to_vec());
    let broken = [
        ("a size below a header's", set(48, &255_u32.to_le_bytes())),
        ("a size beyond the limit", set(48, &u32::MAX.to_le_bytes())),
        ("a command of servers", set(60, &[6])),
        ("a command nobody knows", set(60, &[99])),
        ("no client", set(128, &[0; 16])),
        ("no operation", set(176, &[0])),
        ("an operation of servers", set(176, &[64])),
        ("an operation of servers", set(176, &[68])),
        ("an operation nobody knows", set(176, &[250])),
        ("a write without a number", set(168, &[0; 8])),
        ("a write without a session", set(184, &[0; 8])),
    ];
    for (what, (at, bytes)) in broken {
        let mut client = Client::log_in(&mut node, 2);
        let mut frame = client.frame(&Request::DeleteStream(stream())).to_vec();
        frame[at..at + bytes.len()].copy_from_slice(&bytes);
        node.send(client.connection, &frame);
        assert!(node.is_closed(client.connection), "{what}");
        assert!(
            other.ask(&mut node, &Request::Ping).result().is_ok(),
            "{what}"
        );
    }
    // A wrong checksum is told, and the connection lives.
    let mut client = Client::log_in(&mut node, 3);
    let mut frame = client.frame(&Request::DeleteStream(stream())).to_vec();
    frame[144] ^= 1;
    let answer = client.exchange(&mut node, &frame);
    assert_eq!(answer.code(), Some(ErrorCode::INVALID_FORMAT));
    assert!(client.ask(&mut node, &Request::Ping).result().is_ok());
}
