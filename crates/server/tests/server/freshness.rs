//! Reads of the metadata: every node tells what was acknowledged to anybody before it was asked,
//! or that it cannot know (ADR 10).

use base::GroupId;
use wire::{
    ErrorCode, Identifier, Request,
    reply::{StreamRecord, TopicRecord},
    request::{CreateConsumerGroup, GroupTarget, PartitionsCount, TopicTarget},
};

use crate::{
    client::{Client, create_stream, name, topic},
    cluster::Cluster,
    node::{Node, Options},
};

/// Three nodes with a topic of one partition; a client of the primary, and clients of the others.
fn cluster() -> (Cluster, (usize, Client), Vec<(usize, Client)>) {
    let mut cluster = Cluster::new(3);
    let mut root = cluster.log_in(0, 1);
    cluster.create_topic(0, &mut root, 1);
    let primary = cluster.primary(GroupId::METADATA).expect("one leads");
    let writer = cluster.log_in(primary, 2);
    let others = (0..3)
        .filter(|node| *node != primary)
        .map(|node| (node, cluster.log_in(node, 10 + node as u128)))
        .collect();
    (cluster, (primary, writer), others)
}

fn done(cluster: &mut Cluster, node: usize, client: &mut Client, what: &Request<'_>) -> Vec<u8> {
    let answer = cluster.ask(node, client, what).expect("answered");
    answer.result().expect("done")
}

#[test]
fn what_was_acknowledged_anywhere_is_read_everywhere() {
    // No time passes between the acknowledgement and the reads, so that no heartbeat has told
    // anybody of the commit.
    let (mut cluster, (primary, mut writer), mut others) = cluster();
    let target = topic();
    let more = Request::CreatePartitions(PartitionsCount {
        stream: target.stream,
        topic: target.topic,
        count: 2,
    });
    let group = Request::CreateConsumerGroup(CreateConsumerGroup {
        stream: target.stream,
        topic: target.topic,
        name: name("readers"),
    });
    done(&mut cluster, primary, &mut writer, &create_stream("late"));
    for (node, client) in &mut others {
        let streams = done(&mut cluster, *node, client, &Request::GetStreams);
        assert_eq!(names(&streams), ["orders", "late"], "node {node}");
    }
    done(&mut cluster, primary, &mut writer, &more);
    for (node, client) in &mut others {
        let body = done(&mut cluster, *node, client, &Request::GetTopic(topic()));
        let record: TopicRecord<'_> = wire::Reader::new(&body).read().expect("a topic");
        assert_eq!(record.partitions_count, 3, "node {node}");
    }
    done(&mut cluster, primary, &mut writer, &group);
    for (node, client) in &mut others {
        let TopicTarget { stream, topic } = topic();
        let group = Identifier::Named(name("readers"));
        let wanted = Request::GetConsumerGroup(GroupTarget {
            stream,
            topic,
            group,
        });
        let body = done(&mut cluster, *node, client, &wanted);
        assert!(!body.is_empty(), "node {node}");
    }
    let gone = Request::DeleteStream(Identifier::Named(name("late")));
    done(&mut cluster, primary, &mut writer, &gone);
    for (node, client) in &mut others {
        let streams = done(&mut cluster, *node, client, &Request::GetStreams);
        assert_eq!(names(&streams), ["orders"], "node {node}");
    }
}

#[test]
fn a_node_that_is_cut_off_tells_nothing_old() {
    let (mut cluster, (primary, mut writer), mut others) = cluster();
    let (lonely, mut reader) = others.remove(0);
    let (other, _) = others.remove(0);
    for node in [primary, other] {
        cluster.cut(lonely, node);
    }
    cluster.pass_millis(3_000);
    done(&mut cluster, primary, &mut writer, &create_stream("late"));
    let refused = cluster.ask(lonely, &mut reader, &Request::GetStreams);
    let code = refused.expect("answered").code();
    assert_eq!(code, Some(ErrorCode::TRANSIENT_NOT_ACCEPTED));
    // What says nothing about the log is answered all the same.
    let nodes = cluster.ask(lonely, &mut reader, &Request::GetClusterMetadata);
    assert!(nodes.expect("answered").result().is_ok());
    cluster.heal();
    cluster.pass_millis(3_000);
    let streams = done(&mut cluster, lonely, &mut reader, &Request::GetStreams);
    assert_eq!(names(&streams), ["orders", "late"]);
}

#[test]
fn a_former_primary_tells_nothing_old() {
    let (mut cluster, (old, _), mut others) = cluster();
    let mut reader = cluster.log_in(old, 20);
    cluster.paused.push(old);
    cluster.pass_millis(4_000);
    let (node, client) = &mut others[0];
    done(&mut cluster, *node, client, &create_stream("late"));
    // The read was on its way when the old primary was stopped.
    let frame = reader.frame(&Request::GetStreams);
    cluster.nodes[old].arrive(reader.connection, &frame);
    cluster.paused.clear();
    cluster.run();
    cluster.pass_millis(3_000);
    let frames = cluster.nodes[old].frames(reader.connection);
    let answer = crate::client::Answer::of(&frames[0]);
    let streams = answer.result().expect("by way of the new primary");
    assert_eq!(names(&streams), ["orders", "late"]);
}

#[test]
fn shards_of_one_node_agree_on_what_is_there() {
    let mut node = Node::with(Options {
        shards: 3,
        ..Options::default()
    });
    let mut clients: Vec<Client> = (1..=6).map(|id| Client::log_in(&mut node, id)).collect();
    for writer in 0..clients.len() {
        let stream = format!("stream {writer}");
        let created = clients[writer].ask(&mut node, &create_stream(&stream));
        created.result().expect("created");
        for client in &mut clients {
            let body = client.ask(&mut node, &Request::GetStreams).result();
            let count = names(&body.expect("streams")).len();
            assert_eq!(count, writer + 1);
        }
    }
}

/// The names of the streams in an answer.
fn names(body: &[u8]) -> Vec<String> {
    let mut reader = wire::Reader::new(body);
    let mut names = Vec::new();
    while reader.left() > 0 {
        let record: StreamRecord<'_> = reader.read().expect("a stream");
        names.push(record.name.as_str().to_owned());
    }
    names
}
