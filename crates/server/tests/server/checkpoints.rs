//! A node goes on from its newest whole checkpoint, and what the log before it held is in there.

use base::{GroupId, Op};
use server::{Limits, Observation};
use wire::Partitioning;

use crate::{
    client::{Client, batch_of, confirmed, create_stream, send, store},
    node::{Node, Options},
};

fn options() -> Options {
    let limits = Limits {
        checkpoint_ops: 8,
        partition_checkpoint_ops: 8,
        metadata_segment_size: 1 << 10,
        ..Limits::default()
    };
    Options {
        shards: 2,
        limits,
        ..Options::default()
    }
}

/// The op that a group was last restored at, and the digest of its state then.
fn restored(node: &Node, of: impl Fn(GroupId) -> bool) -> Option<(Op, u128)> {
    let found = |observation: &Observation| match observation {
        Observation::Restored {
            group, op, digest, ..
        } if of(*group) => Some((*op, *digest)),
        _ => None,
    };
    node.observations.iter().rev().find_map(found)
}

/// The digest of a group's state after an op, as it was told when that was committed.
fn digest_at(node: &Node, at: (GroupId, Op)) -> u128 {
    let found = |observation: &Observation| match observation {
        Observation::Committed {
            group,
            prepare,
            digest,
        } => {
            let header = wire::replica::PrepareHeader::decode(prepare).expect("a prepare");
            ((*group, header.op) == at).then_some(*digest)
        }
        _ => None,
    };
    node.observations.iter().find_map(found).expect("committed")
}

fn is_metadata(group: GroupId) -> bool {
    group == GroupId::METADATA
}

fn names(node: &Node, suffix: &str) -> Vec<u64> {
    let names = node.disk.files_below("metadata");
    let ops = names.iter().filter_map(|name| {
        let name = name.strip_prefix("metadata/")?;
        name.strip_suffix(suffix)?.parse().ok()
    });
    ops.collect()
}

/// A node whose metadata has come to op 1 + `streams`.
fn with_streams(streams: usize) -> Node {
    let mut node = Node::with(options());
    let mut client = Client::log_in(&mut node, 1);
    for number in 0..streams {
        let name = format!("stream-{number}");
        let answer = client.ask(&mut node, &create_stream(&name));
        answer.result().expect("created");
    }
    node.settle();
    node
}

#[test]
fn a_start_goes_on_from_the_newest_and_the_log_before_the_older_is_gone() {
    let mut node = with_streams(28);
    assert_eq!(names(&node, ".checkpoint"), [16, 24]);
    let first = names(&node, ".log")[0];
    assert!((2..=16).contains(&first), "the log begins with op {first}");
    node.crash();
    let (op, digest) = restored(&node, is_metadata).expect("from a checkpoint");
    assert_eq!(op, Op(24));
    assert_eq!(digest, digest_at(&node, (GroupId::METADATA, op)));
    // All names are taken, on whichever shard one asks.
    for id in 2..6 {
        let mut client = Client::log_in(&mut node, id);
        let again = client.ask(&mut node, &create_stream("stream-3"));
        assert!(again.result().is_err());
        let new = client.ask(&mut node, &create_stream(&format!("new-{id}")));
        new.result().expect("created");
    }
}

#[test]
fn a_damaged_newest_is_answered_by_the_older_until_the_next() {
    let mut node = with_streams(28);
    node.disk
        .damage("metadata/00000000000000000024.checkpoint", 700);
    node.crash();
    let (op, digest) = restored(&node, is_metadata).expect("from a checkpoint");
    assert_eq!(op, Op(16));
    assert_eq!(digest, digest_at(&node, (GroupId::METADATA, op)));
    let mut client = Client::log_in(&mut node, 2);
    for number in 0..4 {
        let answer = client.ask(&mut node, &create_stream(&format!("late-{number}")));
        answer.result().expect("created");
    }
    node.settle();
    assert_eq!(names(&node, ".checkpoint"), [16, 32]);
    node.crash();
    let (op, _) = restored(&node, is_metadata).expect("from a checkpoint");
    assert_eq!(op, Op(32));
}

#[test]
fn alone_without_a_checkpoint_for_its_log_a_node_stops() {
    let mut node = with_streams(28);
    for op in [16, 24] {
        let name = format!("metadata/{op:020}.checkpoint");
        node.disk.damage(&name, 700);
    }
    node.crash();
    assert_eq!(node.halted, Some(platform::Fatal::Damage));
}

#[test]
fn a_partition_goes_on_from_its_checkpoint_with_offsets_and_producers() {
    let mut node = Node::with(options());
    let mut client = Client::log_in(&mut node, 1);
    client.create_topic(&mut node, 1);
    for number in 0..9 {
        client.produce(&mut node, 0, &[&format!("message {number}")]);
    }
    client
        .ask(&mut node, &store(0, 4))
        .result()
        .expect("stored");
    for number in 9..15 {
        client.produce(&mut node, 0, &[&format!("message {number}")]);
    }
    let batch = batch_of(&["message 15"]);
    let last = send(Partitioning::PartitionId(0), &batch, 1);
    let frame = client.frame(&last);
    let first = confirmed(&client.exchange(&mut node, &frame)).base_offset;
    assert_eq!(first, 15);
    node.settle();
    node.crash();
    let (op, digest) = restored(&node, |group| !is_metadata(group)).expect("from a checkpoint");
    assert_eq!(op, Op(16));
    let group = GroupId::partition(Op(3), 0);
    assert_eq!(digest, digest_at(&node, (group, op)));
    let mut client = Client::log_in(&mut node, 2);
    let polled = client.poll(&mut node, 0, wire::PollingStrategy::First, 100);
    assert_eq!(polled.offsets(), (0..16).collect::<Vec<_>>());
    assert_eq!(client.produce(&mut node, 0, &["message 16"]), 16);
}

#[test]
fn a_group_that_is_deleted_takes_its_checkpoints_along() {
    for hold in [false, true] {
        let mut node = Node::with(options());
        let mut client = Client::log_in(&mut node, 1);
        client.create_topic(&mut node, 1);
        if hold {
            // One is being written while the group goes.
            node.hold = Some(|request| {
                matches!(request, platform::DiskRequest::Open { path, .. }
                    if path.0.ends_with("checkpoint.tmp"))
            });
        }
        for _ in 0..8 {
            client.produce(&mut node, 0, &["message"]);
        }
        node.pass(core::time::Duration::from_millis(100));
        assert_eq!(node.held_count(), usize::from(hold));
        let delete = wire::Request::DeleteTopic(crate::client::topic());
        client.ask(&mut node, &delete).result().expect("deleted");
        node.let_go();
        node.settle();
        assert!(node.disk.files_below("partitions").is_empty());
        assert!(node.disk.directories_below("partitions/").is_empty());
    }
}
