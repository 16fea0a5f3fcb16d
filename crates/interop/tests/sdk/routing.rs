//! A cluster of three: polls that commit and writes of offsets go to the partition's primary on a
//! connection of their own, attached to the session of the first.

use std::time::Duration;

use iggy::prelude::{
    ClusterClient, ClusterNodeRole, Consumer, ConsumerOffsetClient, MessageClient, Partitioning,
    PollingStrategy, StreamClient, TopicClient, TopicCreateOptions,
};
use interop::{Cluster, Recorder, Scratch, client, load, until};

use super::{number, numbers, orders, placed};

const SERVE_LIMIT: Duration = Duration::from_secs(30);

pub(crate) async fn run(recorder: &Recorder) {
    let scratch = Scratch::new("routing");
    let (cluster, doors) = Cluster::up_behind_doors(scratch.path(), recorder).await;
    assert_eq!(cluster.nodes().len(), 3);
    let client = client::connect(doors[0]).await;
    let metadata = client.get_cluster_metadata().await.expect("the cluster");
    let ports: Vec<u16> = metadata.nodes.iter().map(|it| it.endpoints.tcp).collect();
    let expected: Vec<u16> = doors.iter().map(|door| door.port()).collect();
    assert_eq!(ports, expected);
    let leaders = metadata.nodes.iter();
    let leaders = leaders.filter(|node| node.role == ClusterNodeRole::Leader);
    assert_eq!(leaders.count(), 1);

    client.create_stream("orders").await.expect("creates");
    let options = TopicCreateOptions {
        partitions_count: Some(3),
        ..TopicCreateOptions::default()
    };
    let created = client.create_topic(&orders(), "placed", &options).await;
    created.expect("creates");
    for partition in 0..3 {
        let first = u64::from(partition) * 10;
        let mut batch: Vec<_> = (first..first + 10).map(load::message).collect();
        until("the partition serves", SERVE_LIMIT, async || {
            let to = Partitioning::partition_id(partition);
            let sent = client
                .send_messages(&orders(), &placed(), &to, &mut batch)
                .await;
            sent.ok()
        })
        .await;
        offsets(&client, partition, first).await;
    }
}

async fn offsets(client: &(impl MessageClient + ConsumerOffsetClient), partition: u32, first: u64) {
    let reader = Consumer::new(number(7));
    let partition = Some(partition);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let polled = client
            .poll_messages(
                &orders(),
                &placed(),
                partition,
                &reader,
                &PollingStrategy::next(),
                4,
                true,
            )
            .await
            .expect("polls");
        seen.extend(numbers(&polled.messages));
    }
    assert_eq!(seen, Vec::from_iter(first..first + 10));
    let stored = || async {
        let info = client
            .get_consumer_offset(&reader, &orders(), &placed(), partition)
            .await;
        info.expect("an answer").map(|info| info.stored_offset)
    };
    assert_eq!(stored().await, Some(9));
    client
        .store_consumer_offset(&reader, &orders(), &placed(), partition, 4)
        .await
        .expect("stores");
    assert_eq!(stored().await, Some(4));
    client
        .delete_consumer_offset(&reader, &orders(), &placed(), partition)
        .await
        .expect("deletes");
    assert_eq!(stored().await, None);
}
