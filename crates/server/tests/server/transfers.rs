//! A node that misses what the others' logs no longer hold goes on from a checkpoint of theirs,
//! whatever happens on the way.

use base::{GroupId, Op};
use platform::DiskRequest;
use server::{Limits, Observation};
use wire::replica::PrepareHeader;

use crate::{
    client::{Client, create_stream},
    cluster::Cluster,
    node::{Node, Options},
};

fn options() -> Options {
    let limits = Limits {
        checkpoint_ops: 8,
        partition_checkpoint_ops: 8,
        metadata_segment_size: 1 << 10,
        checkpoint_chunk: 300,
        ..Limits::default()
    };
    Options {
        shards: 2,
        limits,
        ..Options::default()
    }
}

/// Where the metadata of a node stands: the last op applied, and the digest after it.
fn stand(node: &Node) -> (Op, u128) {
    let found = |observation: &Observation| match observation {
        Observation::Committed {
            group: GroupId::METADATA,
            prepare,
            digest,
        } => {
            let header = PrepareHeader::decode(prepare).expect("a prepare");
            Some((header.op, *digest))
        }
        Observation::Restored {
            group: GroupId::METADATA,
            op,
            digest,
            ..
        } => Some((*op, *digest)),
        _ => None,
    };
    node.observations
        .iter()
        .rev()
        .find_map(found)
        .unwrap_or_default()
}

fn restored(node: &Node) -> Vec<Op> {
    let found = |observation: &Observation| match observation {
        Observation::Restored {
            group: GroupId::METADATA,
            op,
            ..
        } => Some(*op),
        _ => None,
    };
    node.observations.iter().filter_map(found).collect()
}

/// The first op of a node's metadata log.
fn first_op(node: &Node) -> u64 {
    let names = node.disk.files_below("metadata/");
    let ops = names.iter().filter_map(|name| {
        let name = name.strip_prefix("metadata/")?;
        name.strip_suffix(".log")?.parse::<u64>().ok()
    });
    ops.min().expect("a segment")
}

fn create_streams(cluster: &mut Cluster, node: usize, client: &mut Client, names: &[String]) {
    for name in names {
        let answer = cluster
            .ask(node, client, &create_stream(name))
            .expect("answered");
        answer.result().expect("created");
    }
}

fn named(prefix: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("{prefix}-{number}"))
        .collect()
}

/// A cluster of three in which node 2 has died and the others' logs have left it behind.
fn left_behind() -> (Cluster, Client) {
    let mut cluster = Cluster::with(3, &options());
    let mut client = cluster.log_in(0, 1);
    cluster.create_topic(0, &mut client, 2);
    cluster.kill(2);
    create_streams(&mut cluster, 0, &mut client, &named("first", 40));
    cluster.pass_millis(500);
    let head = stand(&cluster.nodes[2]).0.0;
    for node in 0..2 {
        assert!(
            first_op(&cluster.nodes[node]) > head + 1,
            "node {node} holds what 2 lacks"
        );
    }
    (cluster, client)
}

fn assert_caught_up(cluster: &Cluster) {
    let expected = stand(&cluster.nodes[0]);
    for node in 1..3 {
        assert_eq!(stand(&cluster.nodes[node]), expected, "node {node}");
    }
}

/// The node that has caught up counts: with it and one other alone, ops commit.
fn assert_counts(cluster: &mut Cluster) {
    cluster.kill(0);
    cluster.pass_millis(4_000);
    let mut client = cluster.log_in(2, 77);
    create_streams(cluster, 2, &mut client, &named("with two", 3));
    cluster.create_topic_in(2, &mut client, "first-1");
}

#[test]
fn a_node_that_comes_late_goes_on_from_a_checkpoint() {
    let (mut cluster, _) = left_behind();
    cluster.start(2);
    cluster.pass_millis(4_000);
    assert_caught_up(&cluster);
    assert_eq!(restored(&cluster.nodes[2]).last(), Some(&Op(40)));
    assert!(first_op(&cluster.nodes[2]) > 40);
    assert_counts(&mut cluster);
}

#[test]
fn what_was_taken_over_is_there_after_a_restart() {
    let (mut cluster, mut client) = left_behind();
    cluster.start(2);
    cluster.pass_millis(4_000);
    assert_caught_up(&cluster);
    cluster.kill(2);
    create_streams(&mut cluster, 0, &mut client, &named("second", 2));
    cluster.start(2);
    cluster.pass_millis(4_000);
    // The first op after it was followed by a checkpoint of its own.
    assert_eq!(restored(&cluster.nodes[2]), [Op(40), Op(41)]);
    assert_caught_up(&cluster);
    assert_counts(&mut cluster);
}

#[test]
fn a_node_that_slept_through_elections_catches_up_and_counts() {
    let (mut cluster, _) = left_behind();
    for round in 0..3 {
        // With node 2 away the others elect whom they can.
        let primary = cluster.primary(GroupId::METADATA).expect("one leads");
        cluster.kill(primary);
        cluster.pass_millis(200);
        cluster.start(primary);
        cluster.pass_millis(4_000);
        let mut client = cluster.log_in(primary, 20 + round);
        let names = named(&format!("round {round}"), 3);
        create_streams(&mut cluster, primary, &mut client, &names);
    }
    // One of the two that know dies as the sleeper comes back: nothing goes without it.
    cluster.kill(0);
    cluster.start(2);
    cluster.pass_millis(8_000);
    let mut client = cluster.log_in(2, 50);
    create_streams(&mut cluster, 2, &mut client, &named("two of three", 2));
    cluster.start(0);
    cluster.pass_millis(4_000);
    assert_caught_up(&cluster);
    assert_counts(&mut cluster);
}

fn reads_a_checkpoint(request: &DiskRequest) -> bool {
    matches!(request, DiskRequest::Open { path, mode: platform::OpenMode::Existing, .. }
        if path.0.starts_with("metadata/") && path.0.ends_with(".checkpoint"))
}

/// Starts node 2, and stops the world once it has asked for its `parts`th part; answers who is
/// asked.
fn amid_transfer(cluster: &mut Cluster, parts: usize) -> usize {
    for node in 0..2 {
        cluster.nodes[node].hold = Some(reads_a_checkpoint);
    }
    cluster.start(2);
    let mut served = 0;
    for _ in 0..500 {
        let asked = (0..2).find(|&node| cluster.nodes[node].held_count() > 0);
        if let Some(node) = asked {
            served += 1;
            if served == parts {
                return node;
            }
            cluster.nodes[node].let_one_go();
            cluster.run();
        }
        cluster.pass_millis(10);
    }
    panic!("nobody is asked for part {parts}")
}

#[test]
fn the_rest_comes_from_another_when_the_source_dies() {
    for parts in [1, 2, 4] {
        let (mut cluster, _) = left_behind();
        let source = amid_transfer(&mut cluster, parts);
        let other = 1 - source;
        cluster.kill(source);
        cluster.nodes[other].let_go();
        cluster.pass_millis(8_000);
        let expected = stand(&cluster.nodes[other]);
        assert_eq!(stand(&cluster.nodes[2]).0, expected.0, "part {parts}");
        let mut client = cluster.log_in(2, 50);
        create_streams(&mut cluster, 2, &mut client, &named("two of three", 2));
        cluster.nodes[source].hold = None;
        cluster.start(source);
        cluster.pass_millis(4_000);
        assert_caught_up(&cluster);
    }
}

#[test]
fn a_target_that_has_gone_is_replaced_by_a_newer_one() {
    for parts in [1, 3] {
        let (mut cluster, mut client) = left_behind();
        amid_transfer(&mut cluster, parts);
        // Two more checkpoints, and neither source has the first any more.
        create_streams(&mut cluster, 0, &mut client, &named("meanwhile", 24));
        for node in 0..2 {
            cluster.nodes[node].let_go();
        }
        cluster.pass_millis(8_000);
        assert_caught_up(&cluster);
        assert_eq!(
            restored(&cluster.nodes[2]).last(),
            Some(&Op(64)),
            "part {parts}"
        );
    }
}

/// Goal: wherever the receiver dies, it begins again or has all of it. Method: all its disk
/// requests are held back and let go one by one, and it dies before the n-th.
#[test]
fn a_receiver_that_dies_anywhere_begins_again() {
    let mut ends = [0, 0];
    for steps in (0..60).step_by(1) {
        let (mut cluster, _) = left_behind();
        cluster.nodes[2].hold = Some(|_| true);
        cluster.start(2);
        let mut done = 0;
        for _ in 0..400 {
            if done == steps {
                break;
            }
            done += usize::from(cluster.nodes[2].let_one_go());
            cluster.run();
            cluster.pass_millis(5);
        }
        ends[usize::from(stand(&cluster.nodes[2]).0 >= Op(40))] += 1;
        cluster.nodes[2].hold = None;
        cluster.kill(2);
        cluster.start(2);
        cluster.pass_millis(4_000);
        assert_caught_up(&cluster);
        assert_counts(&mut cluster);
        if done < steps {
            break;
        }
    }
    assert!(ends[0] > 8 && ends[1] > 2, "before and after: {ends:?}");
}

#[test]
fn a_node_whose_checkpoints_are_lost_takes_one_from_another() {
    let (mut cluster, _) = left_behind();
    cluster.start(2);
    cluster.pass_millis(4_000);
    cluster.kill(2);
    let names: Vec<String> = cluster.nodes[2]
        .disk
        .files_below("metadata/")
        .iter()
        .filter(|name| name.ends_with(".checkpoint"))
        .map(|name| (*name).to_owned())
        .collect();
    assert!(!names.is_empty());
    for name in names {
        cluster.nodes[2].disk.damage(&name, 300);
    }
    cluster.start(2);
    cluster.pass_millis(4_000);
    assert_caught_up(&cluster);
    assert_eq!(cluster.nodes[2].halted, None);
    assert_counts(&mut cluster);
}
