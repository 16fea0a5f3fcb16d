//! Damage on disks: found, said, and repaired from whoever still has what it took.

use base::GroupId;
use server::Observation;
use wire::ErrorCode;

use crate::{
    client::{Client, batch_of, confirmed, create_stream, name, persisted, send, stream},
    cluster::Cluster,
    node::{Node, Options},
};

/// Small segments, so that a few messages seal some.
fn small() -> Options {
    let mut options = Options::default();
    options.limits.segment_size = 2 << 10;
    options.limits.segment_size_min = 512;
    options.limits.tail_cache = 1 << 10;
    options.limits.read_chunk = 1 << 10;
    options
}

const COUNT: u64 = 30;

/// Three nodes and a persisted topic with messages in several segments.
fn with_segments(options: &Options) -> (Cluster, Client) {
    let mut cluster = Cluster::with(3, options);
    let mut client = cluster.log_in(1, 1);
    let block = persisted();
    let create = wire::Request::CreateTopic(wire::request::CreateTopic {
        stream: stream(),
        partitions_count: 1,
        name: name("paid"),
        options: block.as_options(),
    });
    for request in [create_stream("orders"), create] {
        let answer = cluster.ask(1, &mut client, &request).expect("answered");
        answer.result().expect("created");
    }
    for offset in 0..COUNT {
        let sent = cluster.produce(1, &mut client, &format!("message {offset}"));
        assert_eq!(sent, Ok(offset));
    }
    cluster.pass_millis(1_000);
    (cluster, client)
}

/// The segments of the one partition, oldest first.
fn segments(node: &Node) -> Vec<String> {
    let files = node.disk.files_below("partitions/");
    let logs = files.into_iter().filter(|file| file.ends_with(".log"));
    logs.map(String::from).collect()
}

/// Turns a byte of the `index`-th record of a file.
fn spoil(node: &mut Node, file: &str, index: usize) {
    let content = node.disk.content_mut(file);
    let mut at = 256;
    for _ in 0..index {
        let size = wire::array(&content[at..], 48).map(u32::from_le_bytes);
        at += size.expect("a record") as usize;
    }
    content[at + 300] ^= 0x40;
}

fn offsets(cluster: &mut Cluster, node: usize, id: u128) -> Vec<u64> {
    let mut client = cluster.log_in(node, id);
    cluster.poll(node, &mut client).expect("a poll").offsets()
}

fn repaired(observation: &Observation) -> bool {
    matches!(observation, Observation::Repaired { .. })
}

#[test]
fn damage_in_the_middle_is_repaired_while_clients_work() {
    let (mut cluster, mut client) = with_segments(&small());
    let files = segments(&cluster.nodes[2]);
    assert!(files.len() > 3, "{files:?}");
    let before: Vec<Vec<u8>> = files
        .iter()
        .map(|file| cluster.nodes[2].disk.content(file).to_vec())
        .collect();
    cluster.kill(2);
    spoil(&mut cluster.nodes[2], &files[0], 1);
    spoil(&mut cluster.nodes[2], &files[1], 0);
    spoil(&mut cluster.nodes[2], &files[1], 1);
    cluster.start(2);
    for offset in COUNT..COUNT + 5 {
        assert_eq!(cluster.produce(1, &mut client, "more"), Ok(offset));
    }
    cluster.pass_millis(5_000);
    assert!(cluster.saw(2, repaired));
    for (file, before) in files.iter().zip(&before).take(files.len() - 1) {
        assert_eq!(cluster.nodes[2].disk.content(file), before, "{file}");
    }
    // It leads with all of it, once the others are gone one by one.
    cluster.kill(0);
    cluster.pass_millis(8_000);
    let all: Vec<u64> = (0..COUNT + 5).collect();
    assert_eq!(offsets(&mut cluster, 2, 9), all);
}

#[test]
fn each_node_may_have_lost_something_else() {
    let (mut cluster, _) = with_segments(&small());
    let files = segments(&cluster.nodes[0]);
    for node in 0..3 {
        cluster.kill(node);
    }
    for node in 0..3 {
        // Sealed or not: every record has a good copy somewhere.
        for (index, file) in files.iter().enumerate() {
            if index % 3 == node {
                spoil(&mut cluster.nodes[node], file, 0);
            }
        }
    }
    for node in 0..3 {
        cluster.start(node);
    }
    cluster.pass_millis(20_000);
    let all: Vec<u64> = (0..COUNT).collect();
    for node in 0..3 {
        assert_eq!(
            offsets(&mut cluster, node, 20 + node as u128),
            all,
            "node {node}"
        );
        assert!(cluster.saw(node, repaired), "node {node}");
    }
    let mut client = cluster.log_in(0, 30);
    assert_eq!(cluster.produce(0, &mut client, "more"), Ok(COUNT));
}

#[test]
fn damage_to_the_metadata_is_repaired() {
    let mut options = small();
    options.limits.metadata_segment_size = 1 << 10;
    let (mut cluster, mut client) = with_segments(&options);
    let all = cluster.nodes[2].disk.files_below("metadata/");
    let file = all.first().expect("a segment").to_string();
    cluster.kill(2);
    let content = cluster.nodes[2].disk.content_mut(&file);
    content[256 + 200] ^= 1;
    cluster.start(2);
    assert_eq!(cluster.produce(1, &mut client, "more"), Ok(COUNT));
    cluster.pass_millis(5_000);
    let group = GroupId::METADATA;
    assert!(cluster.saw(
        2,
        |it| matches!(it, Observation::Repaired { group: of, .. } if *of == group)
    ));
    cluster.kill(0);
    cluster.pass_millis(8_000);
    let all: Vec<u64> = (0..=COUNT).collect();
    assert_eq!(offsets(&mut cluster, 2, 9), all);
}

#[test]
fn the_scrubber_finds_rot_and_heals_it_before_anybody_reads_it() {
    let (mut cluster, _) = with_segments(&small());
    let files = segments(&cluster.nodes[2]);
    let before = cluster.nodes[2].disk.content(&files[1]).to_vec();
    spoil(&mut cluster.nodes[2], &files[1], 1);
    cluster.pass_millis(60_000);
    assert!(cluster.saw(2, |it| matches!(it, Observation::Gap { .. })));
    assert!(cluster.saw(2, repaired));
    assert_eq!(cluster.nodes[2].disk.content(&files[1]), before);
}

#[test]
fn a_poll_over_damage_is_an_error_and_then_well_again() {
    let mut options = small();
    options.timing.scrub = core::time::Duration::ZERO;
    let (mut cluster, _) = with_segments(&options);
    let files = segments(&cluster.nodes[0]);
    let mut client = cluster.log_in(1, 5);
    // Of the primary, while its peers are busy.
    spoil(&mut cluster.nodes[0], &files[0], 2);
    let damaged = cluster.poll(1, &mut client);
    assert_eq!(
        damaged.map(|it| it.offsets()),
        Err(ErrorCode::CANNOT_READ_MESSAGE)
    );
    cluster.pass_millis(3_000);
    let all: Vec<u64> = (0..COUNT).collect();
    assert_eq!(
        cluster.poll(1, &mut client).expect("repaired").offsets(),
        all
    );
}

#[test]
fn a_damaged_end_puts_the_log_in_doubt_and_the_group_makes_it_good() {
    let (mut cluster, _) = with_segments(&small());
    let files = segments(&cluster.nodes[2]);
    let last = files.last().expect("some");
    cluster.kill(2);
    // Not zeros, as a crash leaves them, but something else.
    let content = cluster.nodes[2].disk.content_mut(last);
    let end = content.len();
    for byte in &mut content[end - 40..] {
        *byte ^= 0x5a;
    }
    cluster.start(2);
    cluster.pass_millis(8_000);
    let all: Vec<u64> = (0..COUNT).collect();
    cluster.kill(0);
    cluster.pass_millis(8_000);
    assert_eq!(offsets(&mut cluster, 2, 9), all);
}

/// One node with two topics' partitions.
fn alone(options: Options) -> (Node, Client) {
    let mut node = Node::with(Options {
        shards: 1,
        ..options
    });
    let mut client = Client::log_in(&mut node, 1);
    client.create_topic(&mut node, 2);
    for offset in 0..COUNT {
        for partition in 0..2 {
            let text = format!("message {offset}");
            assert_eq!(client.produce(&mut node, partition, &[&text]), offset);
        }
    }
    (node, client)
}

#[test]
fn alone_a_damaged_partition_is_closed_and_the_others_live() {
    let (mut node, _) = alone(small());
    let files = segments(&node);
    node.kill();
    spoil(&mut node, &files[0], 1);
    node.start();
    assert_eq!(node.halted, None);
    let mut client = Client::log_in(&mut node, 2);
    let codes = [0, 1].map(|partition| {
        let batch = batch_of(&["more"]);
        let request = send(wire::Partitioning::PartitionId(partition), &batch, 1);
        let answer = client.ask(&mut node, &request);
        let poll = wire::Request::PollMessages(crate::client::poll(
            partition,
            wire::PollingStrategy::First,
            100,
            false,
        ));
        let polled = client.ask(&mut node, &poll);
        if answer.code().is_none() {
            assert_eq!(confirmed(&answer).base_offset, COUNT);
        }
        (answer.code(), polled.code())
    });
    let closed = (
        Some(ErrorCode::CANNOT_APPEND_MESSAGE),
        Some(ErrorCode::CANNOT_READ_MESSAGE),
    );
    assert!(
        codes.contains(&closed) && codes.contains(&(None, None)),
        "{codes:?}"
    );
    // It stays so, and the stop is not held up by it.
    node.stop();
    assert_eq!(node.stopped, 1);
}

#[test]
fn alone_with_damaged_metadata_the_node_says_so_and_stops() {
    let (mut node, _) = alone(small());
    node.kill();
    let file = node.disk.files_below("metadata/")[0].to_string();
    node.disk.content_mut(&file)[256 + 200] ^= 1;
    node.start();
    assert_eq!(node.halted, Some(platform::Fatal::Damage));
}

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_recovers() {
    let (mut node, mut client) = alone(Options::default());
    node.disk.full = true;
    // The first is admitted; when it does not fit, nothing is known of it.
    let batch = batch_of(&["a"]);
    let request = send(wire::Partitioning::PartitionId(0), &batch, 1);
    let frame = client.frame(&request);
    node.send(client.connection, &frame);
    assert!(node.frames(client.connection).is_empty());
    let mut second = Client::connect(&mut node, 3);
    let login = crate::client::login(crate::node::USERNAME, crate::node::PASSWORD);
    let refused = second.ask(&mut node, &login);
    assert_eq!(refused.code(), Some(ErrorCode::CANNOT_WRITE_TO_FILE));
    node.pass(core::time::Duration::from_secs(11));
    let unknown = client.take(&mut node);
    assert_eq!(unknown.code(), Some(ErrorCode::TRANSIENT_NOT_COMMITTED));
    let refused = client.ask(&mut node, &request);
    assert_eq!(refused.code(), Some(ErrorCode::CANNOT_APPEND_MESSAGE));
    let polled = client.poll(&mut node, 1, wire::PollingStrategy::First, 100);
    assert_eq!(polled.offsets().len() as u64, COUNT);
    assert_eq!(node.halted, None);
    node.disk.full = false;
    node.pass(core::time::Duration::from_secs(2));
    let polled = client.poll(&mut node, 0, wire::PollingStrategy::First, 100);
    assert_eq!(
        polled.offsets().len() as u64,
        COUNT + 1,
        "it fitted after all"
    );
    assert_eq!(client.produce(&mut node, 0, &["b"]), COUNT + 1);
}

#[test]
fn a_full_backup_does_not_hold_the_cluster_up() {
    let (mut cluster, mut client) = with_segments(&small());
    cluster.nodes[2].disk.full = true;
    for offset in COUNT..COUNT + 20 {
        assert_eq!(cluster.produce(1, &mut client, "more"), Ok(offset));
    }
    cluster.nodes[2].disk.full = false;
    cluster.pass_millis(5_000);
    cluster.kill(0);
    cluster.pass_millis(8_000);
    assert_eq!(offsets(&mut cluster, 2, 9).len() as u64, COUNT + 20);
}
