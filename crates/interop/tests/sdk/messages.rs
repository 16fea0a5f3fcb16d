//! Sends by every partitioning, polls by every strategy, and what is refused.

use std::collections::BTreeMap;

use iggy::prelude::{
    Consumer, HeaderKey, HeaderValue, IggyClient, IggyMessage, IggyTimestamp, MessageClient,
    Partitioning, PollingStrategy, SystemClient, TopicClient,
};
use interop::load;

use super::{error, number, numbers, orders, placed, poll, refused};

/// Messages 0 to 9 are in partition 0, 10 to 12 and one with every kind of header in 1.
pub(crate) async fn run(client: &IggyClient) {
    assert_eq!(
        send(client, &Partitioning::partition_id(0), 0..10).await,
        (0, 0)
    );
    assert_eq!(
        send(client, &Partitioning::partition_id(1), 10..13).await,
        (1, 0)
    );
    strategies(client).await;
    headers_of_every_kind(client).await;
    keys_and_turns(client).await;
    refusals(client).await;
    counted(client).await;
}

/// Sends the messages of these numbers and returns partition and first offset.
pub(crate) async fn send(
    client: &IggyClient,
    partitioning: &Partitioning,
    which: std::ops::Range<u64>,
) -> (u32, u64) {
    let mut batch: Vec<IggyMessage> = which.map(load::message).collect();
    let answer = client
        .send_messages(&orders(), &placed(), partitioning, &mut batch)
        .await
        .expect("acknowledged");
    let [confirmation] = &answer.confirmations[..] else {
        panic!("one partition was written: {answer:?}");
    };
    assert_eq!((confirmation.stream_id, confirmation.topic_id), (0, 0));
    (confirmation.partition_id, confirmation.base_offset)
}

async fn strategies(client: &IggyClient) {
    let all = poll(client, 0, PollingStrategy::offset(0), 100).await;
    assert_eq!(numbers(&all), Vec::from_iter(0..10));
    let offsets: Vec<u64> = all.iter().map(|message| message.header.offset).collect();
    assert_eq!(offsets, Vec::from_iter(0..10));
    let time = IggyTimestamp::from(all[0].header.timestamp);
    let late = IggyTimestamp::from(all[9].header.timestamp + 1);
    for (strategy, count, expected) in [
        (PollingStrategy::first(), 3, 0..3),
        (PollingStrategy::last(), 3, 7..10),
        (PollingStrategy::offset(4), 2, 4..6),
        (PollingStrategy::offset(10), 2, 0..0),
        (PollingStrategy::timestamp(time), 100, 0..10),
        (PollingStrategy::timestamp(late), 100, 0..0),
    ] {
        let found = poll(client, 0, strategy, count).await;
        assert_eq!(numbers(&found), Vec::from_iter(expected), "{strategy:?}");
    }
}

async fn headers_of_every_kind(client: &IggyClient) {
    let key = |name: &str| HeaderKey::try_from(name).expect("a valid key");
    let text = HeaderValue::try_from("a text").expect("a valid value");
    let bytes = HeaderValue::try_from([0_u8, 255, 7].as_slice()).expect("a valid value");
    let headers = BTreeMap::from([
        (key("raw"), bytes),
        (key("string"), text),
        (key("bool"), HeaderValue::from(true)),
        (key("int8"), HeaderValue::from(i8::MIN)),
        (key("int16"), HeaderValue::from(i16::MIN)),
        (key("int32"), HeaderValue::from(i32::MIN)),
        (key("int64"), HeaderValue::from(i64::MIN)),
        (key("int128"), HeaderValue::from(i128::MIN)),
        (key("uint8"), HeaderValue::from(u8::MAX)),
        (key("uint16"), HeaderValue::from(u16::MAX)),
        (key("uint32"), HeaderValue::from(u32::MAX)),
        (key("uint64"), HeaderValue::from(u64::MAX)),
        (key("uint128"), HeaderValue::from(u128::MAX)),
        (key("float32"), HeaderValue::from(1.5_f32)),
        (key("float64"), HeaderValue::from(-2.25_f64)),
    ]);
    let message = IggyMessage::builder()
        .payload("with headers".into())
        .user_headers(headers.clone())
        .build()
        .expect("a valid message");
    client
        .send_messages(
            &orders(),
            &placed(),
            &Partitioning::partition_id(1),
            &mut [message],
        )
        .await
        .expect("acknowledged");
    let found = poll(client, 1, PollingStrategy::last(), 1).await;
    assert_eq!(found[0].payload, "with headers");
    assert_ne!(found[0].header.id, 0, "the client has given it an id");
    let kept = found[0].user_headers_map().expect("headers that parse");
    assert_eq!(kept.expect("headers"), headers);
}

async fn keys_and_turns(client: &IggyClient) {
    let key = Partitioning::messages_key_str("customer").expect("a valid key");
    let (home, _) = send(client, &key, 20..21).await;
    for n in 21..24 {
        assert_eq!(send(client, &key, n..n + 1).await.0, home);
    }
    let mut seen = Vec::new();
    for n in 30..36 {
        seen.push(send(client, &Partitioning::balanced(), n..n + 1).await.0);
    }
    for partition in 0..3 {
        let turns = seen.iter().filter(|&&it| it == partition).count();
        assert_eq!(turns, 2, "partitions take turns: {seen:?}");
    }
}

async fn refusals(client: &IggyClient) {
    let consumer = Consumer::new(number(1));
    let strategy = PollingStrategy::first();
    let mut message = [load::message(1)];
    let zero = Partitioning::partition_id(0);
    let sent = client
        .send_messages(&number(77), &placed(), &zero, &mut message)
        .await;
    assert!(sent.is_err(), "no such stream");
    let beyond = Partitioning::partition_id(77);
    let sent = client
        .send_messages(&orders(), &placed(), &beyond, &mut message)
        .await;
    assert!(sent.is_err(), "no such partition");
    let polled = client
        .poll_messages(
            &orders(),
            &placed(),
            Some(77),
            &consumer,
            &strategy,
            1,
            false,
        )
        .await;
    assert!(polled.is_err(), "no such partition");
    // Every acknowledged message is saved as its topic asks for; there is no buffer to flush.
    let flushed = client
        .flush_unsaved_buffer(&orders(), &placed(), 0, true)
        .await;
    refused(flushed, error::FEATURE_UNAVAILABLE);
}

/// The sums are those of the parts.
async fn counted(client: &IggyClient) {
    let topic = client.get_topic(&orders(), &placed()).await;
    let topic = topic.expect("an answer").expect("the topic");
    let sum: u64 = topic.partitions.iter().map(|it| it.messages_count).sum();
    assert_eq!((sum, topic.messages_count), (24, 24));
    for partition in &topic.partitions {
        assert_eq!(partition.current_offset + 1, partition.messages_count);
        assert!(partition.size.as_bytes_u64() > 0);
    }
    let stats = client.get_stats().await.expect("statistics");
    assert_eq!((stats.messages_count, stats.topics_count), (24, 1));
    assert_eq!((stats.partitions_count, stats.segments_count), (3, 3));
    assert_eq!(stats.messages_size_bytes, topic.size);
}
