//! Topics with their options, partitions and segments.

use iggy::prelude::{
    CompressionAlgorithm, Durability, HeaderKey, IggyByteSize, IggyClient, IggyDuration,
    IggyExpiry, MaxTopicSize, PartitionClient, PollingStrategy, SegmentClient, TopicClient,
    TopicCreateOptions, TopicUpdateOptions,
};
use interop::client;

use super::{error, number, orders, placed, poll, refused};

pub(crate) const PARTITIONS: u32 = 3;

pub(crate) async fn run(client: &IggyClient) {
    create(client).await;
    every_option(client).await;
    bad_options(client).await;
    partitions(client).await;
}

fn partitioned(count: u32) -> TopicCreateOptions {
    TopicCreateOptions {
        partitions_count: Some(count),
        ..TopicCreateOptions::default()
    }
}

async fn create(client: &IggyClient) {
    let options = partitioned(PARTITIONS);
    let created = client.create_topic(&orders(), "placed", &options).await;
    let created = created.expect("creates");
    assert_eq!((created.id, created.name.as_str()), (0, "placed"));
    assert_eq!((created.partitions_count, created.messages_count), (3, 0));
    assert_eq!(created.message_expiry, IggyExpiry::NeverExpire);
    assert_eq!(created.max_topic_size, MaxTopicSize::Unlimited);
    assert_eq!(created.compression_algorithm, CompressionAlgorithm::None);
    let ids: Vec<u32> = created.partitions.iter().map(|it| it.id).collect();
    assert_eq!(ids, [0, 1, 2]);
    for partition in &created.partitions {
        assert_eq!((partition.segments_count, partition.messages_count), (1, 0));
        assert_eq!(partition.current_offset, 0);
    }
    let again = client.create_topic(&orders(), "placed", &options).await;
    refused(again, error::TOPIC_EXISTS);
    let nowhere = client.create_topic(&number(77), "placed", &options).await;
    refused(nowhere, error::STREAM_NOT_FOUND);
    let many = client
        .create_topic(&orders(), "many", &partitioned(1001))
        .await;
    refused(many, error::TOO_MANY_PARTITIONS);
}

async fn every_option(client: &IggyClient) {
    let hour = IggyDuration::new_from_secs(3600);
    let options = TopicCreateOptions {
        partitions_count: Some(0),
        compression_algorithm: Some(CompressionAlgorithm::Gzip),
        message_expiry: Some(IggyExpiry::ExpireDuration(hour)),
        max_topic_size: Some(MaxTopicSize::Custom(IggyByteSize::from(2_u64 << 30))),
        segment_size: Some(IggyByteSize::from(1_u64 << 20)),
        durability: Durability::Persisted,
        consumer_offset_durability: Durability::Persisted,
        messages_required_to_save: Some(100),
        size_of_messages_required_to_save: Some(IggyByteSize::from(1_u64 << 16)),
        preallocate_segments: Some(false),
        ..TopicCreateOptions::default()
    };
    client
        .create_topic(&orders(), "options", &options)
        .await
        .expect("creates a topic without partitions");
    let topic = client::named("options");
    let found = client
        .get_topic(&orders(), &topic)
        .await
        .expect("an answer");
    let found = found.expect("the topic");
    assert_eq!((found.id, found.partitions_count), (1, 0));
    assert_eq!(found.message_expiry, IggyExpiry::ExpireDuration(hour));
    assert_eq!(found.compression_algorithm, CompressionAlgorithm::Gzip);
    let expected = MaxTopicSize::Custom(IggyByteSize::from(2_u64 << 30));
    assert_eq!(found.max_topic_size, expected);
    for key in ["segment_size", "durability", "messages_required_to_save"] {
        let key = HeaderKey::try_from(key).expect("a valid key");
        assert!(found.options.contains_key(&key), "{key:?} is not told");
    }

    let update = TopicUpdateOptions {
        compression_algorithm: Some(CompressionAlgorithm::None),
        message_expiry: Some(IggyExpiry::NeverExpire),
        max_topic_size: Some(MaxTopicSize::Unlimited),
        ..TopicUpdateOptions::default()
    };
    client
        .update_topic(&orders(), &topic, "renamed", &update)
        .await
        .expect("updates");
    let topic = client::named("renamed");
    let found = client
        .get_topic(&orders(), &topic)
        .await
        .expect("an answer");
    let found = found.expect("the topic has its new name");
    assert_eq!(found.message_expiry, IggyExpiry::NeverExpire);
    assert_eq!(found.max_topic_size, MaxTopicSize::Unlimited);
    assert_eq!(found.compression_algorithm, CompressionAlgorithm::None);
    let taken = client
        .update_topic(&orders(), &topic, "placed", &update)
        .await;
    refused(taken, error::TOPIC_EXISTS);

    let listed = client.get_topics(&orders()).await.expect("all topics");
    let listed: Vec<(u32, &str)> = listed.iter().map(|it| (it.id, it.name.as_str())).collect();
    assert_eq!(listed, [(0, "placed"), (1, "renamed")]);
    client
        .delete_topic(&orders(), &topic)
        .await
        .expect("deletes");
    let gone = client
        .get_topic(&orders(), &topic)
        .await
        .expect("an answer");
    assert!(gone.is_none());
    let again = client.delete_topic(&orders(), &topic).await;
    refused(again, error::TOPIC_NOT_FOUND);
}

async fn bad_options(client: &IggyClient) {
    let mut unknown = partitioned(1);
    unknown.raw.insert("colour".into(), "red".into());
    let answer = client.create_topic(&orders(), "odd", &unknown).await;
    refused(answer, error::OPTION_UNKNOWN);
    let mut bad = partitioned(1);
    bad.raw.insert("segment_size".into(), "1000".into());
    let answer = client.create_topic(&orders(), "odd", &bad).await;
    refused(answer, error::OPTION_INVALID);
    let mut fixed = TopicUpdateOptions::default();
    fixed.raw.insert("segment_size".into(), "1048576".into());
    let answer = client
        .update_topic(&orders(), &placed(), "placed", &fixed)
        .await;
    assert!(answer.is_err(), "a segment size is for ever");
}

async fn partitions(client: &IggyClient) {
    client
        .create_partitions(&orders(), &placed(), 2)
        .await
        .expect("adds two");
    assert_eq!(count(client).await, PARTITIONS + 2);
    client
        .delete_partitions(&orders(), &placed(), 2)
        .await
        .expect("removes two");
    assert_eq!(count(client).await, PARTITIONS);
    let many = client.create_partitions(&orders(), &placed(), 1001).await;
    refused(many, error::TOO_MANY_PARTITIONS);
    let nowhere = client.create_partitions(&orders(), &number(77), 1).await;
    refused(nowhere, error::TOPIC_NOT_FOUND);
}

async fn count(client: &IggyClient) -> u32 {
    let topic = client.get_topic(&orders(), &placed()).await;
    let topic = topic.expect("an answer").expect("the topic");
    assert_eq!(topic.partitions.len(), topic.partitions_count as usize);
    topic.partitions_count
}

/// After everything else: segments, then purge.
pub(crate) async fn end(client: &IggyClient) {
    let before = poll(client, 0, PollingStrategy::first(), 1).await;
    assert_eq!(before.len(), 1);
    // The one segment that there is is being written and stays.
    client
        .delete_segments(&orders(), &placed(), 0, 1)
        .await
        .expect("there is none to delete");
    let after = poll(client, 0, PollingStrategy::first(), 1).await;
    assert_eq!(after[0].header.offset, before[0].header.offset);
    let nowhere = client.delete_segments(&orders(), &placed(), 77, 1).await;
    assert!(nowhere.is_err(), "no such partition");

    client
        .purge_topic(&orders(), &placed())
        .await
        .expect("purges");
    let topic = client.get_topic(&orders(), &placed()).await;
    let topic = topic.expect("an answer").expect("the topic");
    assert_eq!((topic.messages_count, topic.size.as_bytes_u64()), (0, 0));
    for partition in 0..PARTITIONS {
        let left = poll(client, partition, PollingStrategy::first(), 10).await;
        assert!(left.is_empty(), "partition {partition} is empty");
    }
    let nowhere = client.purge_topic(&orders(), &number(77)).await;
    refused(nowhere, error::TOPIC_NOT_FOUND);
}
