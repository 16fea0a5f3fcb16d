//! A replica of a partition that misses what the others' logs no longer begin with takes over a
//! checkpoint, and fills its log from where theirs begin, whatever happens on the way.

use base::{GroupId, Op};
use server::{Limits, Observation};
use wire::{PollingStrategy, Request, replica::PrepareHeader, request::DeleteSegments};

use crate::{
    client::{Client, stream, topic},
    cluster::Cluster,
    node::{Node, Options},
};

fn options() -> Options {
    let limits = Limits {
        segment_size: 2 << 10,
        segment_size_min: 512,
        partition_checkpoint_ops: 16,
        checkpoint_chunk: 300,
        repair_max: 4,
        index_interval: 1 << 10,
        tail_cache: 2 << 10,
        ..Limits::default()
    };
    Options {
        shards: 1,
        limits,
        ..Options::default()
    }
}

/// The partition's group: the op that created the topic is the third.
fn group() -> GroupId {
    GroupId::partition(Op(3), 0)
}

/// Names of the partition's files that end like this.
fn files(node: &Node, suffix: &str) -> Vec<String> {
    let names = node.disk.files_below("partitions/");
    let names = names.iter().filter(|name| name.ends_with(suffix));
    names.map(|name| (*name).to_owned()).collect()
}

/// The last op applied, and the digest after it.
fn stand(node: &Node) -> (Op, u128) {
    let found = |observation: &Observation| match observation {
        Observation::Committed {
            group: of,
            prepare,
            digest,
        } if *of == group() => {
            let header = PrepareHeader::decode(prepare).expect("a prepare");
            Some((header.op, *digest))
        }
        Observation::Restored {
            group: of,
            op,
            digest,
            ..
        } if *of == group() => Some((*op, *digest)),
        _ => None,
    };
    let last = node.observations.iter().rev().find_map(found);
    last.unwrap_or_default()
}

fn produce(cluster: &mut Cluster, client: &mut Client, from: u64, count: u64) {
    for number in from..from + count {
        let payload = format!("{number:0100}");
        assert_eq!(cluster.produce(0, client, &payload), Ok(number));
    }
}

fn delete(cluster: &mut Cluster, client: &mut Client, count: u32) {
    let request = Request::DeleteSegments(DeleteSegments {
        stream: stream(),
        topic: topic().topic,
        partition_id: 0,
        segments_count: count,
    });
    let answer = cluster.ask(0, client, &request).expect("answered");
    assert_eq!(answer.result(), Ok(Vec::new()));
    cluster.pass_millis(500);
}

/// A cluster of three in which node 2 has died early, and the others have deleted what it lacks.
fn left_behind() -> (Cluster, Client) {
    let mut cluster = Cluster::with(3, &options());
    let mut client = cluster.log_in(0, 1);
    cluster.create_topic(0, &mut client, 1);
    produce(&mut cluster, &mut client, 0, 3);
    cluster.pass_millis(500);
    cluster.kill(2);
    produce(&mut cluster, &mut client, 3, 50);
    delete(&mut cluster, &mut client, 4);
    produce(&mut cluster, &mut client, 53, 5);
    for node in 0..2 {
        let first = &files(&cluster.nodes[node], ".log")[0];
        assert!(!first.ends_with("00001.log"), "{first} is gone at {node}");
    }
    (cluster, client)
}

/// Node 2 has the same state and the same files as the others, and serves from them.
fn assert_caught_up(cluster: &mut Cluster) {
    let expected = stand(&cluster.nodes[0]);
    for node in 1..3 {
        assert_eq!(stand(&cluster.nodes[node]), expected, "node {node}");
        let logs = files(&cluster.nodes[node], ".log");
        assert_eq!(logs, files(&cluster.nodes[0], ".log"), "node {node}");
    }
    for name in files(&cluster.nodes[0], ".log") {
        let content = |node: usize| cluster.nodes[node].disk.content(&name);
        assert!(content(0) == content(2), "{name} differs");
    }
}

/// With node 2 and one other alone, all is served and ops commit.
fn assert_counts(cluster: &mut Cluster, without: usize) {
    let mut client = cluster.log_in(2, 76);
    let before = cluster.poll(2, &mut client).expect("served").offsets();
    cluster.kill(without);
    cluster.pass_millis(4_000);
    let mut client = cluster.log_in(2, 77);
    let after = cluster.poll(2, &mut client).expect("served").offsets();
    assert_eq!(before, after);
    let next = after.last().expect("messages") + 1;
    assert_eq!(cluster.produce(2, &mut client, "with two"), Ok(next));
    let request = crate::client::poll(0, PollingStrategy::Offset(after[0] + 1), 5, false);
    let answer = cluster.ask(2, &mut client, &Request::PollMessages(request));
    assert!(answer.expect("answered").result().is_ok());
}

#[test]
fn a_node_that_comes_late_fills_its_log_from_where_the_others_begin() {
    for without in 0..2 {
        let (mut cluster, _) = left_behind();
        cluster.start(2);
        cluster.pass_millis(4_000);
        assert_caught_up(&mut cluster);
        assert_counts(&mut cluster, without);
    }
}

#[test]
fn what_was_filled_is_there_after_a_restart() {
    let (mut cluster, mut client) = left_behind();
    cluster.start(2);
    cluster.pass_millis(4_000);
    cluster.kill(2);
    produce(&mut cluster, &mut client, 58, 2);
    cluster.start(2);
    cluster.pass_millis(4_000);
    assert_caught_up(&mut cluster);
    assert_counts(&mut cluster, 0);
}

/// Goal: wherever the receiver dies, it goes on afterwards. Method: all its disk requests are held
/// back and let go one by one, and it dies before the n-th; the others trim on meanwhile, in every
/// other round.
#[test]
fn a_receiver_that_dies_anywhere_goes_on() {
    let mut ends = [0, 0];
    for steps in 0..90 {
        let (mut cluster, mut client) = left_behind();
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
        ends[usize::from(stand(&cluster.nodes[2]).0 > Op(10))] += 1;
        cluster.nodes[2].hold = None;
        cluster.kill(2);
        if steps % 2 == 1 {
            delete(&mut cluster, &mut client, 2);
        }
        cluster.start(2);
        cluster.pass_millis(4_000);
        assert_eq!(cluster.nodes[2].halted, None, "step {steps}");
        assert_caught_up(&mut cluster);
        if steps % 8 == 0 {
            assert_counts(&mut cluster, 0);
        }
    }
    assert!(ends[0] > 8 && ends[1] > 8, "before and after: {ends:?}");
}

/// The others trim again and again while the log is being filled.
#[test]
fn a_start_that_moves_is_followed() {
    let (mut cluster, mut client) = left_behind();
    cluster.nodes[2].hold = Some(|_| true);
    cluster.start(2);
    let mut next = 58;
    for round in 0..60 {
        for _ in 0..5 {
            cluster.nodes[2].let_one_go();
            cluster.run();
        }
        cluster.pass_millis(10);
        if round % 8 == 7 {
            produce(&mut cluster, &mut client, next, 8);
            next += 8;
            delete(&mut cluster, &mut client, 2);
        }
    }
    cluster.nodes[2].hold = None;
    cluster.nodes[2].let_go();
    cluster.pass_millis(8_000);
    assert_caught_up(&mut cluster);
    assert_counts(&mut cluster, 1);
}

#[test]
fn a_node_whose_checkpoints_or_log_are_damaged_is_whole_again() {
    for what in [".checkpoint", ".log"] {
        let (mut cluster, mut client) = left_behind();
        cluster.start(2);
        cluster.pass_millis(4_000);
        cluster.kill(2);
        for name in files(&cluster.nodes[2], what) {
            cluster.nodes[2].disk.damage(&name, 300);
        }
        produce(&mut cluster, &mut client, 58, 2);
        cluster.start(2);
        cluster.pass_millis(8_000);
        assert_eq!(cluster.nodes[2].halted, None);
        assert_eq!(stand(&cluster.nodes[2]), stand(&cluster.nodes[0]), "{what}");
        assert_counts(&mut cluster, 0);
    }
}
