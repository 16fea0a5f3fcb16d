//! Reads are answered by a primary that is certainly still one, and stamps come from clocks that
//! a majority believes.

use base::GroupId;
use server::Observation;
use wire::ErrorCode;

use crate::{client::Client, cluster::Cluster};

/// Three nodes and a topic with one message; the client is connected to node 0.
fn with_message() -> (Cluster, Client) {
    let mut cluster = Cluster::new(3);
    let mut client = cluster.log_in(0, 1);
    cluster.create_topic(0, &mut client, 1);
    assert_eq!(cluster.produce(0, &mut client, "first"), Ok(0));
    (cluster, client)
}

#[test]
fn a_read_waits_for_the_first_lease_and_is_then_answered() {
    let (mut cluster, mut client) = with_message();
    // Everybody has restarted: nobody has been heard yet.
    for node in 0..3 {
        cluster.kill(node);
    }
    for node in 0..3 {
        cluster.start(node);
    }
    client = Client {
        request: 0,
        ..cluster.log_in(1, client.id.0 + 1)
    };
    let polled = cluster.poll(1, &mut client).expect("a poll");
    assert_eq!(polled.offsets(), [0]);
}

#[test]
fn a_primary_that_was_stopped_answers_nothing_old() {
    let (mut cluster, mut client) = with_message();
    let group = GroupId::METADATA;
    let old = cluster.primary(group).expect("one leads");
    let other = (old + 1) % 3;
    let mut reader = cluster.log_in(old, 9);
    assert_eq!(
        cluster.poll(old, &mut reader).expect("a poll").offsets(),
        [0]
    );
    // Stopped while the others go on without it.
    cluster.paused.push(old);
    cluster.pass_millis(4_000);
    if old == 0 {
        client = cluster.log_in(other, 10);
    }
    let node = if old == 0 { other } else { 0 };
    assert_eq!(cluster.produce(node, &mut client, "second"), Ok(1));
    // The read was on its way to it when it was stopped.
    let request = wire::Request::PollMessages(crate::client::poll(
        0,
        wire::PollingStrategy::First,
        10,
        false,
    ));
    let frame = reader.frame(&request);
    cluster.nodes[old].arrive(reader.connection, &frame);
    cluster.paused.clear();
    cluster.nodes[old].run();
    assert!(cluster.nodes[old].frames(reader.connection).is_empty());
    cluster.run();
    cluster.pass_millis(3_000);
    let frames = cluster.nodes[old].frames(reader.connection);
    let answer = crate::client::Answer::of(&frames[0]);
    let polled = crate::client::Polled::decode(&answer.result().expect("a poll"));
    assert_eq!(polled.offsets(), [0, 1], "fresh, by way of the new primary");
}

#[test]
fn a_primary_cut_off_refuses_reads_once_its_lease_is_out() {
    let (mut cluster, _) = with_message();
    let old = cluster.primary(GroupId::METADATA).expect("one leads");
    let mut reader = cluster.log_in(old, 9);
    for other in (0..3).filter(|other| *other != old) {
        cluster.cut(old, other);
    }
    cluster.pass_millis(500);
    assert_eq!(
        cluster
            .poll(old, &mut reader)
            .expect("the lease still holds")
            .offsets(),
        [0]
    );
    cluster.pass_millis(450);
    let refused = cluster.poll(old, &mut reader);
    assert_eq!(refused, Err(ErrorCode::TRANSIENT_NOT_ACCEPTED));
    cluster.heal();
    cluster.pass_millis(2_000);
    let again = cluster
        .poll(old, &mut reader)
        .expect("by way of whoever leads now");
    assert_eq!(again.offsets(), [0]);
}

#[test]
fn no_view_begins_while_a_read_lease_may_hold() {
    // Two backups are made to wish for another view by a third of five that hears nobody; the
    // primary serves all the while, and what it answers is never older than what was written.
    let (mut cluster, _) = with_message();
    let old = cluster.primary(GroupId::METADATA).expect("one leads");
    let (one, two) = ((old + 1) % 3, (old + 2) % 3);
    let mut reader = cluster.log_in(old, 9);
    let mut writer = cluster.log_in(two, 10);
    // One hears nothing of the primary; two hears both, and is drawn along once it is silent
    // to both, never before.
    cluster.cut(old, one);
    for round in 0..60 {
        cluster.pass_millis(100);
        let written = cluster.produce(two, &mut writer, "more");
        if let (Ok(offset), Ok(polled)) = (written, cluster.poll(old, &mut reader)) {
            let newest = polled.offsets().last().copied().unwrap_or_default();
            assert!(newest >= offset, "round {round}: {newest} after {offset}");
        }
    }
}

#[test]
fn stamps_keep_to_the_clocks_of_the_majority() {
    let mut cluster = Cluster::new(3);
    let mut client = cluster.log_in(0, 1);
    cluster.create_topic(0, &mut client, 1);
    let primary = cluster.primary(GroupId::METADATA).expect("one leads");
    let hour = 3_600_000_000;
    cluster.pass_millis(500);
    // Its clock is set back, and then far ahead.
    for step in [-hour, hour] {
        cluster.nodes[primary].clock = step;
        cluster.produce(0, &mut client, "a").expect("sent");
        cluster.pass_millis(500);
        cluster.produce(0, &mut client, "b").expect("sent");
        let outside = |it: &Observation| match it {
            Observation::Clock { ahead } => ahead.signum() == step.signum(),
            _ => false,
        };
        assert!(cluster.saw(primary, outside), "it says so");
    }
    cluster.nodes[primary].clock = 0;
    cluster.pass_millis(500);
    let inside = |it: &Observation| matches!(it, Observation::Clock { ahead: 0 });
    assert!(cluster.saw(primary, inside));
    let stamps = stamps(&cluster);
    assert!(stamps.is_sorted(), "{stamps:?}");
    let (first, last) = (stamps[0], stamps[stamps.len() - 1]);
    assert!(last - first < 5_000_000, "no hour has passed: {stamps:?}");
}

/// The timestamps of all that node 0 has committed of partitions.
fn stamps(cluster: &Cluster) -> Vec<u64> {
    let observations = cluster.nodes[0].observations.iter();
    let committed = observations.filter_map(|observation| match observation {
        Observation::Committed { group, prepare, .. } if *group != GroupId::METADATA => {
            let header = wire::replica::PrepareHeader::decode(prepare).expect("committed");
            Some(header.timestamp.0)
        }
        _ => None,
    });
    committed.collect()
}
