//! A send and a poll allocate nothing per message and copy no body.
//!
//! Method: the same bytes once as one message and once as 250. Everything that is done per frame,
//! per batch and per turn is done as often for both, so whatever is allocated more is allocated
//! per message. A copied body would be seen in the bytes: a send needs one buffer to receive the
//! frame in, a poll from memory needs none.

#![allow(
    dead_code,
    reason = "the harness is shared with the tests in tests/server, which use all of it"
)]

#[path = "../server/client.rs"]
mod client;
#[path = "../server/disk.rs"]
mod disk;
#[path = "../../../metadata/tests/metadata/support.rs"]
mod metadata_log;
mod meter;
#[path = "../server/node.rs"]
mod node;
#[path = "../../../partition/tests/partition/support.rs"]
mod partition_log;
mod state;

use base::Bytes;
use wire::{BatchBuilder, Partitioning, PollingStrategy, Request, batch::Message};

use client::{Client, poll, send};
use meter::Allocated;
use node::Node;

const MESSAGES: usize = 250;
const PAYLOAD: usize = 1_000;
/// What a turn may allocate for its bookkeeping: headers, lists, the reply.
const BOOKKEEPING: u64 = 16 << 10;

/// A batch of `count` messages that is `MESSAGES` messages long in bytes.
fn batch_of(count: usize) -> Vec<u8> {
    const FRAME_HEADER: usize = 48;
    let size = MESSAGES * (PAYLOAD + FRAME_HEADER) / count - FRAME_HEADER;
    let payload = vec![7; size];
    let mut builder = BatchBuilder::new();
    for id in 1..=count as u128 {
        let message = Message {
            id,
            origin_timestamp: 5,
            payload: &payload,
            user_headers: &[],
        };
        builder.push(message).expect("a valid message");
    }
    builder.finish().expect("a batch")
}

struct Bench {
    node: Node,
    client: Client,
}

impl Bench {
    fn new() -> Self {
        let mut node = Node::new(1);
        let mut client = Client::log_in(&mut node, 1);
        client.create_topic(&mut node, 2);
        let mut bench = Self { node, client };
        // Queues and tables get their size, the segment its first blocks.
        for partition in [0, 1] {
            for count in [1, MESSAGES, 1] {
                bench.send(partition, count);
                bench.poll(partition, PollingStrategy::Last, 1);
            }
        }
        bench
    }

    fn send(&mut self, partition: u32, count: usize) -> (Allocated, usize) {
        let batch = batch_of(count);
        let frame = self
            .client
            .frame(&send(Partitioning::PartitionId(partition), &batch, count));
        let Self { node, client } = self;
        let allocated = meter::of(|| {
            assert!(client.exchange(node, &frame).result().is_ok());
        });
        (allocated, frame.len())
    }

    fn poll(&mut self, partition: u32, strategy: PollingStrategy, count: u32) -> Allocated {
        let request = Request::PollMessages(poll(partition, strategy, count, false));
        let frame: Bytes = self.client.frame(&request);
        let Self { node, client } = self;
        meter::of(|| {
            let answer = client.exchange(node, &frame);
            assert!(answer.result().expect("a poll").len() > PAYLOAD);
        })
    }
}

#[test]
fn a_send_allocates_nothing_per_message_and_copies_no_body() {
    let mut bench = Bench::new();
    // Tables grow now and then, whoever sends: the least of several counts.
    let mut least = |count| {
        let sends: Vec<_> = (0..5).map(|_| bench.send(0, count)).collect();
        let by_count = |(allocated, _): &(Allocated, usize)| allocated.count;
        sends.into_iter().min_by_key(by_count).expect("five")
    };
    let ((one, size), (many, same)) = (least(1), least(MESSAGES));
    assert_eq!(size, same, "the same bytes");
    assert_eq!(many.count, one.count, "{one:?} {many:?}");
    for allocated in [one, many] {
        assert!(
            allocated.bytes <= size as u64 + BOOKKEEPING,
            "{allocated:?} for a frame of {size} bytes: something was copied"
        );
    }
    println!("a send of {size} bytes: one message {one:?}, {MESSAGES} messages {many:?}");
}

#[test]
fn a_poll_from_memory_allocates_nothing_per_message_and_copies_no_body() {
    let mut bench = Bench::new();
    bench.send(0, 1);
    bench.send(1, MESSAGES);
    let count = u32::try_from(MESSAGES).expect("few");
    let one = bench.poll(0, PollingStrategy::Last, 1);
    let many = bench.poll(1, PollingStrategy::Last, count);
    assert_eq!(many.count, one.count, "{one:?} {many:?}");
    for allocated in [one, many] {
        assert!(
            allocated.bytes <= BOOKKEEPING,
            "{allocated:?}: something was copied"
        );
    }
    println!("a poll from memory: one message {one:?}, {MESSAGES} messages {many:?}");
}

#[test]
fn a_poll_of_a_part_of_a_batch_copies_no_body_either() {
    let mut bench = Bench::new();
    bench.send(1, MESSAGES);
    let few = bench.poll(1, PollingStrategy::Last, 200);
    let most = bench.poll(1, PollingStrategy::Last, 240);
    assert_eq!(few.count, most.count, "{few:?} {most:?}");
    assert!(most.bytes <= BOOKKEEPING, "{most:?}");
}

#[test]
fn a_poll_from_disk_allocates_nothing_per_message() {
    let mut bench = Bench::new();
    bench.send(0, 1);
    bench.send(1, MESSAGES);
    // Beyond what the newest records are kept in memory for.
    for _ in 0..8 {
        bench.send(0, 1);
        bench.send(1, 1);
    }
    let count = u32::try_from(MESSAGES).expect("few");
    // After the messages of the first sends of all.
    let start = PollingStrategy::Offset(1 + MESSAGES as u64 + 1);
    let one = bench.poll(0, start, 1);
    let many = bench.poll(1, start, count);
    assert_eq!(many.count, one.count, "{one:?} {many:?}");
    println!("a poll from disk: one message {one:?}, {MESSAGES} messages {many:?}");
}
