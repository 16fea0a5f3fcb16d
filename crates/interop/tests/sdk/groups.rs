//! Consumer groups: members, their partitions, polls and offsets of a group.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use iggy::prelude::{
    Consumer, ConsumerGroupClient, ConsumerGroupDetails, ConsumerOffsetClient, Identifier,
    IggyClient, IggyMessage, MessageClient, PollingStrategy, SystemClient, TopicClient, UserClient,
};
use interop::{client, until};

use super::{error, orders, placed, refused, topics::PARTITIONS};

const REBALANCE_LIMIT: Duration = Duration::from_secs(40);

pub(crate) async fn run(client: &IggyClient, address: SocketAddr) {
    let created = client
        .create_consumer_group(&orders(), &placed(), "workers")
        .await
        .expect("creates");
    assert_eq!((created.id, created.name.as_str()), (0, "workers"));
    assert_eq!((created.partitions_count, created.members_count), (3, 0));
    let again = client
        .create_consumer_group(&orders(), &placed(), "workers")
        .await;
    refused(again, error::GROUP_EXISTS);

    one_member(client).await;
    two_members(client, address).await;

    let leave = async || {
        client
            .leave_consumer_group(&orders(), &placed(), &workers())
            .await
    };
    leave().await.expect("leaves");
    refused(leave().await, error::NOT_A_MEMBER);
    assert_eq!(details(client).await.members_count, 0);
    client
        .delete_consumer_group(&orders(), &placed(), &workers())
        .await
        .expect("deletes");
    let gone = client
        .get_consumer_group(&orders(), &placed(), &workers())
        .await;
    assert!(gone.expect("an answer").is_none());
    let joined = client
        .join_consumer_group(&orders(), &placed(), &workers())
        .await;
    refused(joined, error::GROUP_NOT_FOUND);
}

fn workers() -> Identifier {
    client::named("workers")
}

async fn details(client: &IggyClient) -> ConsumerGroupDetails {
    let details = client
        .get_consumer_group(&orders(), &placed(), &workers())
        .await;
    details.expect("an answer").expect("the group")
}

async fn one_member(client: &IggyClient) {
    client
        .join_consumer_group(&orders(), &placed(), &workers())
        .await
        .expect("joins");
    let group = details(client).await;
    assert_eq!(group.members_count, 1);
    let [member] = &group.members[..] else {
        panic!("one member: {group:?}");
    };
    assert_eq!(BTreeSet::from_iter(&member.partitions).len(), 3);
    let listed = client.get_consumer_groups(&orders(), &placed()).await;
    let listed = listed.expect("all groups");
    assert_eq!((listed.len(), listed[0].members_count), (1, 1));
    let me = client.get_me().await.expect("my own record");
    assert_eq!(me.consumer_groups_count, 1);
    let mine = &me.consumer_groups[0];
    assert_eq!((mine.stream_id, mine.topic_id, mine.group_id), (0, 0, 0));

    // Without a partition, a member polls its own ones in turn and sees every message once.
    let topic = client.get_topic(&orders(), &placed()).await;
    let topic = topic.expect("an answer").expect("the topic");
    let mut seen = Vec::new();
    for _ in 0..4 * PARTITIONS {
        seen.extend(poll(client).await);
    }
    assert_eq!(seen.len() as u64, topic.messages_count);
    assert_eq!(BTreeSet::from_iter(&seen).len(), seen.len());
    for partition in &topic.partitions {
        let stored = client
            .get_consumer_offset(&group_consumer(), &orders(), &placed(), Some(partition.id))
            .await
            .expect("an answer")
            .expect("the poll has stored it");
        assert_eq!(stored.stored_offset, partition.current_offset);
    }
}

fn group_consumer() -> Consumer {
    Consumer::group(workers())
}

/// The ids of messages of one poll of the group.
async fn poll(client: &IggyClient) -> Vec<u128> {
    let strategy = PollingStrategy::next();
    let polled = client
        .poll_messages(
            &orders(),
            &placed(),
            None,
            &group_consumer(),
            &strategy,
            100,
            true,
        )
        .await
        .expect("polls");
    let is_whole = |message: &IggyMessage| message.user_headers_map().is_ok();
    assert!(polled.messages.iter().all(is_whole));
    polled.messages.iter().map(|it| it.header.id).collect()
}

/// Each partition has one owner at a time; who leaves, or goes without a word, gives its ones up.
async fn two_members(client: &IggyClient, address: SocketAddr) {
    let other = client::connect(address).await;
    other
        .join_consumer_group(&orders(), &placed(), &workers())
        .await
        .expect("joins");
    let group = until("partitions are shared", REBALANCE_LIMIT, async || {
        // Owners give partitions up when they ask what they own.
        let _ = poll(client).await;
        let _ = poll(&other).await;
        let group = details(client).await;
        let shared = group
            .members
            .iter()
            .all(|member| member.partitions_count >= 1);
        (group.members_count == 2 && shared).then_some(group)
    })
    .await;
    let owned: Vec<u32> = group
        .members
        .iter()
        .flat_map(|member| member.partitions.clone())
        .collect();
    assert_eq!(owned.len(), 3, "every partition has one owner: {group:?}");
    assert_eq!(BTreeSet::from_iter(owned).len(), 3);

    other.logout_user().await.expect("logs out");
    until("the other is gone", REBALANCE_LIMIT, async || {
        let group = details(client).await;
        (group.members_count == 1 && group.members[0].partitions_count == 3).then_some(())
    })
    .await;
}
