//! Segments that are deleted on demand, purges and retention: files go from the disk, and neither
//! a restart nor a crash anywhere brings back what is gone.

use core::time::Duration;

use server::{Limits, Timing};
use wire::{
    ErrorCode, Operation, OptionsBlock, PollingStrategy, Request, Value,
    reply::{PartitionRecord, TopicRecord},
    request::{CreateTopic, DeleteSegments},
};

use crate::{
    client::{Answer, Client, create_stream, name, offset_of, store, stream, topic},
    node::{Node, Options},
};

fn options() -> Options {
    let limits = Limits {
        segment_size: 2 << 10,
        segment_size_min: 512,
        partition_checkpoint_ops: 1_000,
        index_interval: 1 << 10,
        tail_cache: 2 << 10,
        ..Limits::default()
    };
    Options {
        shards: 2,
        limits,
        ..Options::default()
    }
}

fn logs(node: &Node) -> Vec<u64> {
    let names = node.disk.files_below("partitions/");
    let firsts = names.iter().filter_map(|name| {
        let (_, name) = name.rsplit_once('/')?;
        name.strip_suffix(".log")?.parse().ok()
    });
    firsts.collect()
}

fn delete(count: u32) -> Request<'static> {
    Request::DeleteSegments(DeleteSegments {
        stream: stream(),
        topic: topic().topic,
        partition_id: 0,
        segments_count: count,
    })
}

/// What the topic's record and its only partition's say: messages, bytes, segments.
fn stats(node: &mut Node, client: &mut Client) -> (u64, u64, u32) {
    let body = client.ask(node, &Request::GetTopic(topic())).result();
    let body = body.expect("it exists");
    let mut reader = wire::Reader::new(&body);
    let record: TopicRecord<'_> = reader.read().expect("a topic");
    let partition: PartitionRecord = reader.read().expect("its partition");
    assert_eq!(record.messages_count, partition.messages_count);
    assert_eq!(record.size_bytes, partition.size_bytes);
    (
        partition.messages_count,
        partition.size_bytes,
        partition.segments_count,
    )
}

fn fill(node: &mut Node, client: &mut Client, from: u64, messages: u64) {
    for number in from..from + messages {
        let payload = format!("{number:0100}");
        assert_eq!(client.produce(node, 0, &[&payload]), number);
    }
}

fn offsets(node: &mut Node, client: &mut Client) -> Vec<u64> {
    client
        .poll(node, 0, PollingStrategy::First, 1_000)
        .offsets()
}

/// A node with 40 messages in at least five segments.
fn filled() -> (Node, Client) {
    let mut node = Node::with(options());
    let mut client = Client::log_in(&mut node, 1);
    client.create_topic(&mut node, 1);
    fill(&mut node, &mut client, 0, 40);
    node.settle();
    assert!(logs(&node).len() >= 5);
    (node, client)
}

fn assert_done(answer: &Answer) {
    assert_eq!(answer.result(), Ok(Vec::new()));
    let Answer::Reply(header, _) = answer else {
        panic!("an eviction");
    };
    assert_eq!(header.operation, Operation::TrimLog, "as clients expect it");
}

#[test]
fn deleted_segments_vanish_from_the_disk_and_stay_away() {
    let (mut node, mut client) = filled();
    let before = logs(&node);
    let (count, size, segments) = stats(&mut node, &mut client);
    assert_eq!((count, segments as usize), (40, before.len()));
    assert_done(&client.ask(&mut node, &delete(2)));
    let rest = offsets(&mut node, &mut client);
    let first = rest[0];
    assert_eq!(rest, (first..40).collect::<Vec<_>>());
    assert_eq!(first, before[2] - before[0], "an op is a message here");
    node.settle();
    assert_eq!(logs(&node)[0], before[2]);
    let trimmed = stats(&mut node, &mut client);
    assert_eq!(trimmed.0, 40 - first);
    assert_eq!(
        trimmed.1 * 40,
        size * (40 - first),
        "all messages are alike"
    );
    // What is below the start is skipped; times are exact; a retry deletes no more.
    let below = client.poll(&mut node, 0, PollingStrategy::Offset(1), 2);
    assert_eq!(below.offsets(), [first, first + 1]);
    let early = client.poll(&mut node, 0, PollingStrategy::Timestamp(0), 2);
    assert_eq!(early.offsets(), [first, first + 1]);
    let frame = client.frame(&delete(1));
    assert_done(&client.exchange(&mut node, &frame));
    let once = logs(&node);
    node.settle();
    assert_done(&client.exchange(&mut node, &frame));
    node.settle();
    assert_eq!(
        logs(&node),
        [&once[..]].concat()[once.len() - logs(&node).len()..]
    );
    let left = offsets(&mut node, &mut client);
    for _ in 0..2 {
        node.crash();
        let mut client = Client::log_in(&mut node, 2);
        assert_eq!(offsets(&mut node, &mut client), left);
        assert_eq!(stats(&mut node, &mut client).0, left.len() as u64);
    }
    let mut client = Client::log_in(&mut node, 3);
    fill(&mut node, &mut client, 40, 3);
}

#[test]
fn the_active_segment_and_what_is_not_read_stays() {
    let (mut node, mut client) = filled();
    let before = logs(&node);
    client
        .ask(&mut node, &store(0, 0))
        .result()
        .expect("stored");
    assert_done(&client.ask(&mut node, &delete(9)));
    node.settle();
    assert_eq!(logs(&node)[0], 1, "held up by the consumer");
    let second = before[1] - 1;
    client
        .ask(&mut node, &store(0, second))
        .result()
        .expect("stored");
    assert_done(&client.ask(&mut node, &delete(9)));
    node.settle();
    assert_eq!(logs(&node)[0], before[1]);
    client
        .ask(&mut node, &store(0, 39))
        .result()
        .expect("stored");
    assert_done(&client.ask(&mut node, &delete(u32::MAX)));
    node.settle();
    assert_eq!(logs(&node)[0], before[before.len() - 1]);
    assert_eq!(client.produce(&mut node, 0, &["goes on"]), 40);
}

#[test]
fn a_deletion_is_refused_with_the_codes_of_what_is_missing() {
    let (mut node, mut client) = filled();
    let request = |stream, partition_id| {
        Request::DeleteSegments(DeleteSegments {
            stream,
            topic: topic().topic,
            partition_id,
            segments_count: 1,
        })
    };
    let missing = client.ask(&mut node, &request(wire::Identifier::Numeric(77), 0));
    assert_eq!(missing.code(), Some(ErrorCode::STREAM_ID_NOT_FOUND));
    let missing = client.ask(&mut node, &request(stream(), 1));
    assert_eq!(missing.code(), Some(ErrorCode::PARTITION_NOT_FOUND));
    assert_eq!(missing.result(), Err(ErrorCode::PARTITION_NOT_FOUND));
}

/// Goal: wherever the process dies after a deletion was answered, what is gone stays gone and
/// what is left is served. Method: disk requests are held back and let go one by one, and it dies
/// before the n-th.
#[test]
fn a_node_that_dies_anywhere_amid_a_deletion_goes_on() {
    let mut removed = [0, 0];
    for steps in 0..60 {
        let (mut node, mut client) = filled();
        let before = logs(&node);
        assert_done(&client.ask(&mut node, &delete(3)));
        let left = offsets(&mut node, &mut client);
        node.hold = Some(|_| true);
        let mut done = 0;
        for _ in 0..400 {
            if done == steps {
                break;
            }
            done += usize::from(node.let_one_go());
            node.run();
            node.pass(Duration::from_millis(5));
        }
        node.hold = None;
        removed[usize::from(logs(&node)[0] > before[0])] += 1;
        node.crash();
        assert_eq!(node.halted, None, "step {steps}");
        let mut client = Client::log_in(&mut node, 2);
        assert_eq!(offsets(&mut node, &mut client), left, "step {steps}");
        node.settle();
        fill(&mut node, &mut client, 40, 2);
        node.settle();
        assert_eq!(
            logs(&node)[0],
            before[3],
            "step {steps}: files go after all"
        );
    }
    assert!(removed[0] > 5 && removed[1] > 5, "{removed:?}");
}

#[test]
fn a_purge_is_seen_at_once_and_no_restart_undoes_or_repeats_it() {
    for whole_stream in [false, true] {
        let (mut node, mut client) = filled();
        client
            .ask(&mut node, &store(0, 7))
            .result()
            .expect("stored");
        let purge = match whole_stream {
            true => Request::PurgeStream(stream()),
            false => Request::PurgeTopic(topic()),
        };
        let active = logs(&node).pop().expect("an active one");
        let frame = client.frame(&purge);
        let first = client.exchange(&mut node, &frame);
        assert_eq!(first.result(), Ok(Vec::new()));
        assert_eq!(stats(&mut node, &mut client), (0, 0, 1));
        assert_eq!(offsets(&mut node, &mut client), []);
        let consumer = offset_of(crate::client::consumer(7), 0);
        let stored = client.ask(&mut node, &Request::GetConsumerOffset(consumer));
        assert_eq!(stored.result(), Ok(Vec::new()), "its offset is gone too");
        fill(&mut node, &mut client, 0, 3);
        // The same request again is answered, and purges nothing.
        let again = client.exchange(&mut node, &frame);
        assert_eq!(again.result(), Ok(Vec::new()));
        node.settle();
        assert!(logs(&node).len() <= 2, "the sealed files are gone");
        assert!(logs(&node)[0] >= active, "the sealed files are gone");
        for _ in 0..2 {
            node.crash();
            let mut client = Client::log_in(&mut node, 2);
            assert_eq!(offsets(&mut node, &mut client), [0, 1, 2]);
            assert_eq!(stats(&mut node, &mut client).0, 3);
        }
        let mut client = Client::log_in(&mut node, 3);
        fill(&mut node, &mut client, 3, 40);
        assert_eq!(offsets(&mut node, &mut client), (0..43).collect::<Vec<_>>());
        let middle = client.poll(&mut node, 0, PollingStrategy::Offset(20), 3);
        assert_eq!(middle.offsets(), [20, 21, 22]);
    }
}

/// Creates the topic with these options.
fn created(node: &mut Node, given: &OptionsBlock, partitions_count: u32) -> Client {
    let mut client = Client::log_in(node, 1);
    let made = client.ask(node, &create_stream("orders")).result();
    made.expect("created");
    let create = Request::CreateTopic(CreateTopic {
        stream: stream(),
        partitions_count,
        name: name("paid"),
        options: given.as_options(),
    });
    client.ask(node, &create).result().expect("created");
    client
}

fn given(key: &str, value: u64) -> OptionsBlock {
    let mut block = OptionsBlock::new();
    block.push(
        key,
        Value {
            kind: wire::options::kind::UINT64,
            data: &value.to_le_bytes(),
        },
    );
    block
}

#[test]
fn what_is_too_old_goes_when_it_is_and_the_active_segment_stays() {
    let mut options = options();
    options.timing = Timing {
        retention: Duration::from_secs(5),
        ..Timing::default()
    };
    let mut node = Node::with(options);
    let mut client = created(&mut node, &given("message_expiry", 60_000_000), 1);
    fill(&mut node, &mut client, 0, 20);
    node.pass(Duration::from_secs(40));
    fill(&mut node, &mut client, 20, 20);
    assert_eq!(offsets(&mut node, &mut client).len(), 40);
    node.pass(Duration::from_secs(30));
    let left = offsets(&mut node, &mut client);
    assert!(
        left[0] > 5 && left[0] <= 20,
        "the first half is gone: {left:?}"
    );
    node.pass(Duration::from_secs(60));
    assert!(logs(&node).len() <= 2, "{:?}", logs(&node));
    node.crash();
    let mut client = Client::log_in(&mut node, 2);
    fill(&mut node, &mut client, 40, 1);
}

#[test]
fn what_is_too_much_goes_as_soon_as_a_segment_is_full() {
    let mut node = Node::with(options());
    let mut client = created(&mut node, &given("max_topic_size", 8 << 10), 2);
    fill(&mut node, &mut client, 0, 200);
    node.settle();
    let left = offsets(&mut node, &mut client);
    assert_eq!(left.last(), Some(&199));
    let size = stats_of_first(&mut node, &mut client);
    let share = 4 << 10;
    assert!(size <= share + (3 << 10), "{size}");
    assert!(size > share / 2, "{size}");
    assert!(logs(&node).len() <= 6, "{:?}", logs(&node));
}

fn stats_of_first(node: &mut Node, client: &mut Client) -> u64 {
    let body = client.ask(node, &Request::GetTopic(topic())).result();
    let body = body.expect("it exists");
    let mut reader = wire::Reader::new(&body);
    let _: TopicRecord<'_> = reader.read().expect("a topic");
    let partition: PartitionRecord = reader.read().expect("its partition");
    partition.size_bytes
}

#[test]
fn a_dead_consumer_pins_the_disk_for_so_long_only_or_fills_the_topic() {
    for factor in [2, 0] {
        let mut options = options();
        options.limits.patience_factor = factor;
        let mut node = Node::with(options);
        let mut client = created(&mut node, &given("max_topic_size", 8 << 10), 1);
        fill(&mut node, &mut client, 0, 1);
        client
            .ask(&mut node, &store(0, 0))
            .result()
            .expect("stored");
        if factor > 0 {
            fill(&mut node, &mut client, 1, 200);
            node.settle();
            assert!(stats(&mut node, &mut client).1 <= (16 << 10) + (3 << 10));
            continue;
        }
        let mut sent = 1;
        let refused = loop {
            let payload = format!("{sent:0100}");
            let batch = crate::client::batch_of(&[&payload]);
            let to = wire::Partitioning::PartitionId(0);
            let answer = client.ask(&mut node, &crate::client::send(to, &batch, 1));
            if let Some(code) = answer.code().filter(|code| *code != ErrorCode::OK) {
                break code;
            }
            sent += 1;
            assert!(sent < 1_000, "it never fills");
        };
        assert_eq!(refused, ErrorCode::TOPIC_FULL);
        assert!(stats(&mut node, &mut client).1 >= 16 << 10);
        // The consumer reads on, and there is room again.
        client
            .ask(&mut node, &store(0, sent - 1))
            .result()
            .expect("stored");
        node.settle();
        fill(&mut node, &mut client, sent, 1);
    }
}

#[test]
fn idle_partitions_have_no_timer() {
    let mut node = Node::with(options());
    let _ = created(&mut node, &given("message_expiry", 60_000_000), 100);
    node.settle();
    node.pass(Duration::from_secs(1));
    let idle = node.deadline();
    let scrub_only = node.now().monotonic + Duration::from_secs(600);
    assert!(idle.is_none_or(|at| at > scrub_only), "{idle:?}");
}
