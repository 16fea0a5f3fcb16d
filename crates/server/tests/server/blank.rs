//! Nodes whose disks are new: those of a new cluster, and those that came in the place of one that
//! died. A node that has forgotten what it promised must not vote as if it had promised nothing.

use wire::ErrorCode;

use crate::{client::Client, cluster::Cluster, node::Node};

/// Three nodes, and a topic with `count` messages.
fn with_messages(count: u64) -> (Cluster, Client) {
    let mut cluster = Cluster::new(3);
    let mut client = cluster.log_in(1, 1);
    cluster.create_topic(1, &mut client, 1);
    for offset in 0..count {
        let sent = cluster.produce(1, &mut client, &format!("message {offset}"));
        assert_eq!(sent, Ok(offset));
    }
    (cluster, client)
}

fn all_of(cluster: &mut Cluster, node: usize, id: u128) -> Vec<u64> {
    let mut client = cluster.log_in(node, id);
    cluster.poll(node, &mut client).expect("a poll").offsets()
}

fn wipe(cluster: &mut Cluster, node: usize) {
    cluster.kill(node);
    cluster.nodes[node].wipe();
}

#[test]
fn a_new_cluster_needs_all_its_nodes_once_and_then_a_quorum() {
    let mut cluster = Cluster::new(3);
    wipe(&mut cluster, 2);
    for node in 0..2 {
        wipe(&mut cluster, node);
        cluster.start(node);
    }
    // Two of three may be all that is left of a cluster that has promised things.
    let mut client = Client::connect(&mut cluster.nodes[0], 1);
    let login = crate::client::login(crate::node::USERNAME, crate::node::PASSWORD);
    let refused = cluster.ask(0, &mut client, &login).expect("an answer");
    assert_eq!(refused.code(), Some(ErrorCode::TRANSIENT_NOT_ACCEPTED));
    cluster.start(2);
    cluster.pass_millis(3_000);
    let mut client = cluster.log_in(0, 2);
    cluster.create_topic(0, &mut client, 1);
    assert_eq!(cluster.produce(0, &mut client, "first"), Ok(0));
    // From now on a quorum will do, also for what is new.
    cluster.kill(2);
    cluster.pass_millis(3_000);
    let request = crate::client::create_topic("other", 4);
    let created = cluster.ask(0, &mut client, &request).expect("an answer");
    created.result().expect("created by two");
    assert_eq!(cluster.produce(0, &mut client, "second"), Ok(1));
}

#[test]
fn one_node_founds_itself() {
    let mut node = Node::new(2);
    let mut client = Client::log_in(&mut node, 1);
    client.create_topic(&mut node, 3);
    assert_eq!(client.produce(&mut node, 1, &["a"]), 0);
}

#[test]
fn a_wiped_node_comes_back_and_counts_again() {
    let (mut cluster, _) = with_messages(5);
    wipe(&mut cluster, 2);
    cluster.start(2);
    cluster.pass_millis(15_000);
    let mut client = cluster.log_in(1, 2);
    assert_eq!(cluster.produce(1, &mut client, "more"), Ok(5));
    // It holds everything, and with one other it is a quorum.
    for other in 0..2 {
        cluster.kill(other);
        cluster.pass_millis(8_000);
        assert_eq!(
            all_of(&mut cluster, 2, 10 + other as u128),
            [0, 1, 2, 3, 4, 5]
        );
        cluster.start(other);
        cluster.pass_millis(8_000);
    }
}

#[test]
fn a_wiped_node_does_not_vote_away_what_it_has_acknowledged() {
    let (mut cluster, mut client) = with_messages(2);
    let primary = cluster.primary(base::GroupId::METADATA).expect("one leads");
    assert_eq!(primary, 0);
    // Acknowledged by 0 and 1 alone: 2 hears nothing.
    cluster.cut(0, 2);
    cluster.cut(1, 2);
    assert_eq!(cluster.produce(1, &mut client, "third"), Ok(2));
    // 1 loses its disk, 0 is gone: who is left knows nothing of the third.
    wipe(&mut cluster, 1);
    cluster.kill(0);
    cluster.start(1);
    cluster.heal();
    cluster.pass_millis(20_000);
    let mut client = Client::connect(&mut cluster.nodes[2], 5);
    let login = crate::client::login(crate::node::USERNAME, crate::node::PASSWORD);
    let refused = cluster.ask(2, &mut client, &login).expect("an answer");
    assert_eq!(refused.code(), Some(ErrorCode::TRANSIENT_NOT_ACCEPTED));
    // Nothing was lost: the one that has it comes back.
    cluster.start(0);
    cluster.pass_millis(15_000);
    assert_eq!(all_of(&mut cluster, 2, 6), [0, 1, 2]);
}

#[test]
fn a_wiped_primary_does_not_lead_from_nothing() {
    let (mut cluster, _) = with_messages(3);
    // Back before anybody has missed it.
    wipe(&mut cluster, 0);
    cluster.start(0);
    cluster.pass_millis(15_000);
    let mut client = cluster.log_in(1, 2);
    assert_eq!(cluster.produce(1, &mut client, "more"), Ok(3));
    assert_eq!(all_of(&mut cluster, 0, 3), [0, 1, 2, 3]);
}

#[test]
fn with_more_wiped_than_a_quorum_can_spare_the_cluster_refuses() {
    let (mut cluster, _) = with_messages(3);
    for node in [0, 1] {
        wipe(&mut cluster, node);
    }
    for node in [0, 1] {
        cluster.start(node);
    }
    cluster.pass_millis(30_000);
    for node in 0..3 {
        let mut client = Client::connect(&mut cluster.nodes[node], 20 + node as u128);
        let login = crate::client::login(crate::node::USERNAME, crate::node::PASSWORD);
        let refused = cluster.ask(node, &mut client, &login).expect("an answer");
        assert_eq!(
            refused.code(),
            Some(ErrorCode::TRANSIENT_NOT_ACCEPTED),
            "node {node}"
        );
    }
}

#[test]
fn a_wiped_node_learns_of_the_topics_made_in_its_absence() {
    let (mut cluster, mut client) = with_messages(1);
    wipe(&mut cluster, 2);
    for name in ["a", "b", "c"] {
        let request = crate::client::create_topic(name, 3);
        let created = cluster.ask(1, &mut client, &request).expect("an answer");
        created.result().expect("created");
    }
    cluster.start(2);
    cluster.pass_millis(20_000);
    cluster.kill(0);
    cluster.pass_millis(8_000);
    let mut client = cluster.log_in(2, 3);
    assert_eq!(cluster.produce(2, &mut client, "more"), Ok(1));
    let request = crate::client::create_topic("d", 3);
    let created = cluster.ask(2, &mut client, &request).expect("an answer");
    created.result().expect("created");
    assert_eq!(cluster.produce(2, &mut client, "again"), Ok(2));
}
