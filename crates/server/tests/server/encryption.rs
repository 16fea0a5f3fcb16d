//! Messages encrypted at rest: nothing readable on the disk, everything readable by a poll.

use core::time::Duration;

use server::EncryptionKey;
use wire::{
    BatchBuilder, ErrorCode, Partitioning, PollingStrategy, Request,
    batch::{self, Message},
};

use crate::{
    client::{Client, confirmed, poll, send},
    node::{Node, Options},
};

const SECRET: &str = "nobody may read this";

fn options(key: u8) -> Options {
    Options {
        shards: 2,
        encryption: (key > 0).then(|| EncryptionKey::new([key; 32])),
        ..Options::default()
    }
}

/// Whether any file of the node has these bytes.
fn on_disk(node: &Node, bytes: &[u8]) -> bool {
    let mut directories = vec!["partitions".to_owned(), "metadata".to_owned()];
    for shard in 0..2 {
        directories.push(format!("shard-{shard}"));
    }
    directories.extend(
        node.disk
            .directories_below("partitions")
            .into_iter()
            .map(str::to_owned),
    );
    let mut files = directories
        .iter()
        .flat_map(|directory| node.disk.files_below(directory));
    files.any(|file| {
        let content = node.disk.content(file);
        content.windows(bytes.len()).any(|window| window == bytes)
    })
}

#[test]
fn nothing_readable_is_on_the_disk_and_polls_are_plain() {
    let mut node = Node::with(options(9));
    let mut client = Client::log_in(&mut node, 1);
    client.create_topic(&mut node, 2);
    client.produce(&mut node, 0, &[SECRET, "second", "third"]);
    client.produce(&mut node, 0, &["fourth"]);
    assert!(!on_disk(&node, SECRET.as_bytes()));
    let mut plain = Node::with(options(0));
    let mut other = Client::log_in(&mut plain, 1);
    other.create_topic(&mut plain, 2);
    other.produce(&mut plain, 0, &[SECRET]);
    assert!(
        on_disk(&plain, SECRET.as_bytes()),
        "or the check above means nothing"
    );
    for _ in 0..2 {
        let all = client.poll(&mut node, 0, PollingStrategy::First, 10);
        assert_eq!(all.offsets(), [0, 1, 2, 3]);
        assert_eq!(all.messages[0].1, SECRET.as_bytes());
        // From the middle of a batch to the middle of another.
        let some = client.poll(&mut node, 0, PollingStrategy::Offset(1), 2);
        assert_eq!(some.messages[1], (2, b"third".to_vec()));
        assert_eq!(some.offsets(), [1, 2]);
        // Read back from the disk the second time.
        node.crash();
        client = Client::log_in(&mut node, 2);
    }
}

#[test]
fn a_large_batch_of_many_sizes_is_served_whole_by_offset_and_by_time() {
    let mut node = Node::with(options(9));
    let mut client = Client::log_in(&mut node, 1);
    client.create_topic(&mut node, 1);
    let headers = [2, 1, 0, 0, 0, b'k', 3, 1, 0, 0, 0, 1];
    let payload = |index: usize| vec![u8::try_from(index).expect("few"); 1 + index * 655];
    let mut builder = BatchBuilder::new();
    for index in 0..100 {
        let message = Message {
            id: 1,
            origin_timestamp: 5,
            payload: &payload(index),
            user_headers: &headers,
        };
        builder.push(message).expect("valid");
    }
    let batch = builder.finish().expect("a batch");
    let request = send(Partitioning::PartitionId(0), &batch, 100);
    let answer = client.ask(&mut node, &request);
    assert_eq!(confirmed(&answer).base_offset, 0);
    node.pass(Duration::from_millis(10));
    client.produce(&mut node, 0, &["later"]);
    node.crash();
    let mut client = Client::log_in(&mut node, 2);
    for strategy in [PollingStrategy::First, PollingStrategy::Timestamp(1)] {
        let request = Request::PollMessages(poll(0, strategy, 200, false));
        let body = client.ask(&mut node, &request).result().expect("a poll");
        let batches: Vec<&[u8]> = batch::split(&body[16..])
            .map(|b| b.expect("whole"))
            .collect();
        assert_eq!(batches.len(), 2);
        batch::verify(batches[0]).expect("checksums are those of plain messages");
        let (_, frames) = batch::frames(batches[0]).expect("a batch");
        for (index, frame) in frames.enumerate() {
            let frame = frame.expect("a message");
            assert_eq!(frame.payload(), payload(index));
            assert_eq!(frame.user_headers(), headers);
        }
    }
}

#[test]
fn another_key_or_none_is_an_error_and_never_no_messages() {
    let mut node = Node::with(options(9));
    let mut client = Client::log_in(&mut node, 1);
    client.create_topic(&mut node, 1);
    client.produce(&mut node, 0, &[SECRET]);
    for key in [8, 0] {
        node.options.encryption = options(key).encryption;
        node.crash();
        let mut client = Client::log_in(&mut node, u128::from(key) + 2);
        let request = Request::PollMessages(poll(0, PollingStrategy::First, 1, false));
        let code = client.ask(&mut node, &request).code();
        assert_eq!(code, Some(ErrorCode::CANNOT_DECRYPT_DATA));
    }
    node.options.encryption = options(9).encryption;
    node.crash();
    let mut client = Client::log_in(&mut node, 1);
    let polled = client.poll(&mut node, 0, PollingStrategy::First, 1);
    assert_eq!(polled.messages, [(0, SECRET.as_bytes().to_vec())]);
}

#[test]
fn what_was_written_before_there_was_a_key_stays_readable() {
    let mut node = Node::with(options(0));
    let mut client = Client::log_in(&mut node, 1);
    client.create_topic(&mut node, 1);
    client.produce(&mut node, 0, &["plain"]);
    node.options.encryption = options(9).encryption;
    node.crash();
    let mut client = Client::log_in(&mut node, 2);
    client.produce(&mut node, 0, &[SECRET]);
    assert!(!on_disk(&node, SECRET.as_bytes()));
    let polled = client.poll(&mut node, 0, PollingStrategy::First, 5);
    let payloads: Vec<&[u8]> = polled
        .messages
        .iter()
        .map(|(_, bytes)| &bytes[..])
        .collect();
    assert_eq!(payloads, [b"plain".as_slice(), SECRET.as_bytes()]);
}
