//! Starting, resting, stopping, crashing and coming back.

use core::time::Duration;

use wire::{ErrorCode, Partitioning, PollingStrategy, Request};

use crate::{
    client::{Client, batch_of, create_stream, send, store, topic},
    node::{Node, Options},
};

/// Makes some of everything; the payload of every acknowledged message.
fn fill(node: &mut Node, rounds: u64) -> Vec<Vec<u8>> {
    let mut client = Client::log_in(node, 1);
    client.create_topic(node, 4);
    let mut payloads = Vec::new();
    for round in 0..rounds {
        for partition in 0..4 {
            let payload = format!("round {round}");
            assert_eq!(client.produce(node, partition, &[&payload]), round);
        }
        assert!(client.ask(node, &store(0, round)).result().is_ok());
        payloads.push(format!("round {round}").into_bytes());
    }
    payloads
}

fn check(node: &mut Node, id: u128, payloads: &[Vec<u8>]) {
    let client = &mut Client::log_in(node, id);
    for partition in 0..4 {
        let polled = client.poll(node, partition, PollingStrategy::First, 1_000);
        let messages = polled.messages.into_iter().map(|(_, payload)| payload);
        assert!(messages.eq(payloads.iter().cloned()));
    }
    let next = client.poll(node, 0, PollingStrategy::Next, 9);
    assert!(next.messages.is_empty());
}

/// Whether the node said that it may have lost what was never synced.
fn warned_of_loss(node: &mut Node) -> bool {
    let lines = std::mem::take(&mut node.log);
    lines.iter().any(|line| line.contains("clean stop"))
}

pub(crate) fn small_segments(shards: usize) -> Options {
    let mut options = Options {
        shards,
        ..Options::default()
    };
    options.limits.segment_size = 4 << 10;
    options.limits.segment_size_min = 512;
    options.limits.metadata_segment_size = 2 << 10;
    options.limits.read_chunk = 1 << 10;
    options.limits.tail_cache = 1 << 10;
    options
}

#[test]
fn a_restart_recovers_everything_acknowledged() {
    for shards in [1, 2] {
        for options in [
            small_segments(shards),
            Options {
                shards,
                ..Options::default()
            },
        ] {
            let node = &mut Node::with(options);
            let payloads = fill(node, 40);
            for life in 2..5 {
                node.crash();
                assert_eq!((node.ready, node.halted), (shards, None));
                check(node, life, &payloads);
            }
        }
    }
}

#[test]
fn a_machine_that_rebooted_without_loss_serves_all_it_has() {
    for shards in [1, 2] {
        let node = &mut Node::new(shards);
        let payloads = fill(node, 5);
        node.reboot();
        assert!(warned_of_loss(node));
        check(node, 2, &payloads);
        let mut client = Client::log_in(node, 3);
        assert_eq!(client.produce(node, 1, &["more"]), 5);
    }
}

#[test]
fn a_session_and_its_answers_outlive_a_restart() {
    for shards in [1, 2] {
        let node = &mut Node::new(shards);
        let mut client = Client::log_in(node, 1);
        client.create_topic(node, 1);
        let batch = batch_of(&["a"]);
        let sent = client.frame(&send(Partitioning::PartitionId(0), &batch, 1));
        let first = client.exchange(node, &sent);
        let created = client.frame(&create_stream("other"));
        let second = client.exchange(node, &created);
        node.crash();
        let mut again = Client::log_in(node, 1);
        // The same requests, in the session that followed.
        again.request = client.request - 2;
        let request = send(Partitioning::PartitionId(0), &batch, 1);
        assert_eq!(again.ask(node, &request), first);
        assert_eq!(again.ask(node, &create_stream("other")), second);
    }
}

#[test]
fn deleted_topics_stay_deleted_over_a_restart() {
    for shards in [1, 2] {
        let node = &mut Node::new(shards);
        let mut client = Client::log_in(node, 1);
        client.create_topic(node, 3);
        client.produce(node, 0, &["a"]);
        // The process dies before the files are gone.
        node.hold = Some(|request| matches!(request, platform::DiskRequest::RemoveFile { .. }));
        let delete = Request::DeleteTopic(topic());
        assert!(client.ask(node, &delete).result().is_ok());
        assert_eq!(node.disk.files_below("partitions/").len(), 1);
        node.hold = None;
        node.crash();
        let mut client = Client::log_in(node, 2);
        let answer = client.ask(node, &Request::GetTopic(topic()));
        assert_eq!(answer.result(), Ok(Vec::new()));
        node.settle();
        assert!(node.disk.directories_below("partitions/").is_empty());
        assert_eq!(node.halted, None);
        node.crash();
        client = Client::log_in(node, 3);
        client.create_topic(node, 1);
        assert_eq!(client.produce(node, 0, &["b"]), 0);
    }
}

#[test]
fn an_idle_shard_has_no_timer() {
    for shards in [1, 2] {
        let node = &mut Node::new(shards);
        assert_eq!(node.deadline(), None);
        fill(node, 3);
        let mut watcher = Client::connect(node, 9);
        assert!(watcher.ask(node, &Request::Ping).result().is_ok());
        // One flush interval after the last write everything is synced.
        node.pass(Duration::from_millis(50));
        assert_eq!(node.deadline(), None);
        assert!(node.disk.unsynced().is_empty());
        node.crash();
        check(
            node,
            2,
            &(0..3)
                .map(|r| format!("round {r}").into_bytes())
                .collect::<Vec<_>>(),
        );
        node.pass(Duration::from_millis(50));
        assert_eq!(node.deadline(), None);
    }
}

#[test]
fn a_stop_syncs_everything_and_tells_when_it_is_done() {
    for shards in [1, 2] {
        let node = &mut Node::new(shards);
        let payloads = fill(node, 5);
        let mut client = Client::log_in(node, 8);
        let create = crate::client::create_topic("gone", 2);
        assert!(client.ask(node, &create).result().is_ok());
        let gone = wire::request::TopicTarget {
            topic: wire::Identifier::Named(crate::client::name("gone")),
            ..topic()
        };
        let delete = Request::DeleteTopic(gone);
        assert!(client.ask(node, &delete).result().is_ok());
        assert!(!node.disk.unsynced().is_empty());
        let client = Client::connect(node, 2);
        node.stop();
        assert_eq!(node.stopped, shards);
        assert!(node.disk.unsynced().is_empty());
        assert!(node.is_closed(client.connection));
        let late = Client::connect(node, 3);
        assert!(node.is_closed(late.connection));
        node.reboot();
        assert!(!warned_of_loss(node));
        check(node, 4, &payloads);
    }
}

#[test]
fn a_stop_waits_for_the_disk_and_serves_nobody_meanwhile() {
    let node = &mut Node::new(1);
    let mut client = Client::log_in(node, 1);
    client.create_topic(node, 1);
    node.hold = Some(|request| matches!(request, platform::DiskRequest::Write { .. }));
    let batch = batch_of(&["a"]);
    let frame = client.frame(&send(Partitioning::PartitionId(0), &batch, 1));
    node.send(client.connection, &frame);
    node.stop();
    assert_eq!(node.stopped, 0);
    assert!(node.is_closed(client.connection));
    node.let_go();
    assert_eq!(node.stopped, 1);
    assert!(node.disk.unsynced().is_empty());
}

#[test]
fn a_stop_amid_recovery_is_obeyed() {
    for shards in [1, 2] {
        let node = &mut Node::new(shards);
        let payloads = fill(node, 3);
        for (id, held) in (2..).zip([
            (|request| matches!(request, platform::DiskRequest::Read { .. }))
                as fn(&platform::DiskRequest) -> bool,
            |request| matches!(request, platform::DiskRequest::Open { .. }),
            |request| matches!(request, platform::DiskRequest::List { .. }),
            |request| {
                matches!(request, platform::DiskRequest::List { path }
                    if path.0.starts_with("partitions"))
            },
        ]) {
            node.hold = Some(held);
            node.crash();
            node.stop();
            node.let_go();
            assert_eq!((node.stopped, node.halted), (shards, None));
            // What was not read was not synced, and the stop did not claim so.
            let synced = node.disk.unsynced().is_empty();
            node.reboot();
            assert!(synced || warned_of_loss(node));
            check(node, id, &payloads);
        }
    }
}

#[test]
fn an_early_client_is_served_once_the_node_is() {
    // A second shard that is slow to read its views still answers the first one's questions.
    let node = &mut Node::new(2);
    fill(node, 3);
    node.hold = Some(|request| {
        matches!(request, platform::DiskRequest::List { path } if path.0.starts_with("shard-1"))
            || matches!(request, platform::DiskRequest::Open { path, .. }
                if path.0.starts_with("shard-1"))
    });
    node.crash();
    assert!(node.held_count() > 0);
    let mut client = Client::log_in(node, 2);
    let frame = client.frame(&Request::GetTopic(topic()));
    node.send(client.connection, &frame);
    assert!(node.frames(client.connection).is_empty());
    node.let_go();
    let body = client.take(node).result().expect("found");
    assert!(!body.is_empty());
    let answer = client.ask(node, &Request::GetStreams);
    assert_ne!(answer.code(), Some(ErrorCode::TRANSIENT_NOT_ACCEPTED));
}
