//! One server, one published client: everything sent comes back intact, by every way of asking,
//! and again after SIGKILL.
//!
//! The numbers of the messages in each partition, in the order of the acknowledgements, are the
//! model that every poll is compared with.

use std::{ops::Range, time::Duration};

use iggy::prelude::{
    Consumer, ConsumerOffsetClient, Identifier, IggyClient, IggyMessage, IggyTimestamp,
    MessageClient, Partitioning, PollingStrategy, StreamClient, TopicClient, TopicCreateOptions,
};
use interop::{Scratch, Server, client, load};

const PARTITIONS: u32 = 3;
const MESSAGES: u64 = 10_000;
const BATCH: u16 = 100;
/// Far beyond what it takes, so that a request without an answer is a failure and not a hang.
const LIMIT: Duration = Duration::from_secs(120);

/// The numbers of the messages of each partition, by offset.
type Model = Vec<Vec<u64>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_messages_come_back_intact_and_survive_sigkill() {
    interop::within("the whole test", LIMIT, run()).await;
}

async fn run() {
    let scratch = Scratch::new("single-node");
    let server = Server::start(scratch.path());
    let client = client::connect(server.address()).await;
    let topic = Topic {
        stream: client::named("orders"),
        topic: client::named("placed"),
    };
    create(&client, &topic).await;

    let mut model = Model::from([Vec::new(), Vec::new(), Vec::new()]);
    send(&client, &topic, 0..MESSAGES, &mut model).await;
    assert!(
        model.iter().all(|numbers| numbers.len() > 1_000),
        "all partitions are used"
    );
    polls_agree(&client, &topic, &model).await;
    next_commits_and_stays(&client, &topic, &model[1]).await;
    store_offset(&client, &topic).await;

    drop(client);
    server.kill();
    let server = Server::start(scratch.path());
    let client = client::connect(server.address()).await;

    let details = client
        .get_topic(&topic.stream, &topic.topic)
        .await
        .expect("a topic");
    let details = details.expect("the topic is still there");
    assert_eq!(
        (details.partitions_count, details.messages_count),
        (PARTITIONS, MESSAGES)
    );
    polls_agree(&client, &topic, &model).await;
    offsets_are_kept(&client, &topic, &model[1]).await;

    // The log goes on where it ended: no offset is skipped or used twice.
    send(&client, &topic, MESSAGES..MESSAGES + 300, &mut model).await;
    polls_agree(&client, &topic, &model).await;
    drop(client);
    assert!(server.stop().success(), "SIGTERM is a stop in good order");
}

struct Topic {
    stream: Identifier,
    topic: Identifier,
}

async fn create(client: &IggyClient, topic: &Topic) {
    let stream = client
        .create_stream("orders")
        .await
        .expect("creates the stream");
    assert_eq!((stream.name.as_str(), stream.topics_count), ("orders", 0));
    let options = TopicCreateOptions {
        partitions_count: Some(PARTITIONS),
        ..TopicCreateOptions::default()
    };
    let created = client
        .create_topic(&topic.stream, "placed", &options)
        .await
        .expect("creates the topic");
    assert_eq!(
        (created.name.as_str(), created.partitions_count),
        ("placed", PARTITIONS)
    );
    assert_eq!(created.messages_count, 0);
}

/// Sends in batches, by turns balanced, to a partition, and by key.
async fn send(client: &IggyClient, topic: &Topic, numbers: Range<u64>, model: &mut Model) {
    let mut partition_of_key = [None; 5];
    for (turn, first) in numbers.clone().step_by(usize::from(BATCH)).enumerate() {
        let batch: Vec<u64> = (first..(first + u64::from(BATCH)).min(numbers.end)).collect();
        let chosen = u32::try_from(turn / 3).expect("few turns") % PARTITIONS;
        let key = (turn / 3) % partition_of_key.len();
        let partitioning = match turn % 3 {
            0 => Partitioning::balanced(),
            1 => Partitioning::partition_id(chosen),
            _ => Partitioning::messages_key_str(&format!("customer {key}")).expect("a key"),
        };
        let mut messages: Vec<IggyMessage> = batch.iter().map(|&n| load::message(n)).collect();
        let answer = client
            .send_messages(&topic.stream, &topic.topic, &partitioning, &mut messages)
            .await
            .expect("the batch is acknowledged");
        let [confirmation] = &answer.confirmations[..] else {
            panic!("one partition was written: {answer:?}");
        };
        let partition = confirmation.partition_id;
        match turn % 3 {
            0 => {}
            1 => assert_eq!(partition, chosen),
            _ => {
                let known = partition_of_key[key].get_or_insert(partition);
                assert_eq!(partition, *known, "a key keeps its partition");
            }
        }
        let log = &mut model[partition as usize];
        assert_eq!(
            confirmation.base_offset,
            log.len() as u64,
            "offsets are dense"
        );
        log.extend(batch);
    }
}

/// Every strategy that does not move an offset shows the model.
async fn polls_agree(client: &IggyClient, topic: &Topic, model: &Model) {
    for (partition, numbers) in (0..PARTITIONS).zip(model) {
        let all = load::read_partition(client, &topic.stream, &topic.topic, partition, 333)
            .await
            .expect("polls by offset");
        assert_shows(&all, 0, numbers);
        assert_eq!(all.len(), numbers.len());

        let first = topic
            .poll(client, partition, PollingStrategy::first(), 10)
            .await;
        assert_shows(&first, 0, &numbers[..10]);

        let tail = numbers.len() - 10;
        let last = topic
            .poll(client, partition, PollingStrategy::last(), 10)
            .await;
        assert_shows(&last, tail, &numbers[tail..]);

        for at in [0, all.len() / 3, all.len() - 1] {
            let time = all[at].header.timestamp;
            let start = all.partition_point(|message| message.header.timestamp < time);
            let end = (start + 7).min(all.len());
            let strategy = PollingStrategy::timestamp(IggyTimestamp::from(time));
            let found = topic.poll(client, partition, strategy, 7).await;
            assert_shows(&found, start, &numbers[start..end]);
        }
        let late = all[all.len() - 1].header.timestamp + 1;
        let strategy = PollingStrategy::timestamp(IggyTimestamp::from(late));
        assert!(topic.poll(client, partition, strategy, 7).await.is_empty());

        let beyond = PollingStrategy::offset(all.len() as u64);
        assert!(topic.poll(client, partition, beyond, 7).await.is_empty());
        assert!(all.is_sorted_by_key(|message| message.header.timestamp));
    }
}

fn reader() -> Consumer {
    Consumer::new(client::named("reader"))
}

fn seeker() -> Consumer {
    Consumer::new(Identifier::numeric(7).expect("a valid id"))
}

/// `next` with auto-commit walks the partition once, without a gap or a repetition.
async fn next_commits_and_stays(client: &IggyClient, topic: &Topic, numbers: &[u64]) {
    let before = topic.stored(client, &reader(), 1).await;
    assert_eq!(before, None, "nothing is stored at first");
    let mut seen = 0;
    loop {
        let strategy = PollingStrategy::next();
        let polled = client
            .poll_messages(
                &topic.stream,
                &topic.topic,
                Some(1),
                &reader(),
                &strategy,
                250,
                true,
            )
            .await
            .expect("polls the next messages");
        if polled.messages.is_empty() {
            break;
        }
        let end = seen + polled.messages.len();
        assert_shows(&polled.messages, seen, &numbers[seen..end]);
        seen = end;
    }
    assert_eq!(seen, numbers.len());
    assert_eq!(
        topic.stored(client, &reader(), 1).await,
        Some(seen as u64 - 1)
    );
}

async fn store_offset(client: &IggyClient, topic: &Topic) {
    client
        .store_consumer_offset(&seeker(), &topic.stream, &topic.topic, Some(2), 42)
        .await
        .expect("stores an offset");
    assert_eq!(topic.stored(client, &seeker(), 2).await, Some(42));
}

async fn offsets_are_kept(client: &IggyClient, topic: &Topic, numbers: &[u64]) {
    let end = numbers.len() as u64 - 1;
    assert_eq!(topic.stored(client, &reader(), 1).await, Some(end));
    assert_eq!(topic.stored(client, &seeker(), 2).await, Some(42));
    let strategy = PollingStrategy::next();
    let polled = client
        .poll_messages(
            &topic.stream,
            &topic.topic,
            Some(1),
            &reader(),
            &strategy,
            10,
            true,
        )
        .await
        .expect("polls the next messages");
    assert!(polled.messages.is_empty(), "the reader had read everything");
    let polled = client
        .poll_messages(
            &topic.stream,
            &topic.topic,
            Some(2),
            &seeker(),
            &strategy,
            1,
            false,
        )
        .await
        .expect("polls the next messages");
    assert_eq!(polled.messages[0].header.offset, 43);
}

fn assert_shows(found: &[IggyMessage], offset: usize, numbers: &[u64]) {
    assert_eq!(
        found.len(),
        numbers.len(),
        "as many messages as there are from {offset}"
    );
    for (at, (message, &n)) in found.iter().zip(numbers).enumerate() {
        assert_eq!(message.header.offset, (offset + at) as u64);
        load::assert_message(message, n);
    }
}

impl Topic {
    async fn poll(
        &self,
        client: &IggyClient,
        partition: u32,
        strategy: PollingStrategy,
        count: u32,
    ) -> Vec<IggyMessage> {
        let consumer = Consumer::new(Identifier::numeric(1).expect("a valid id"));
        let partition = Some(partition);
        client
            .poll_messages(
                &self.stream,
                &self.topic,
                partition,
                &consumer,
                &strategy,
                count,
                false,
            )
            .await
            .expect("polls")
            .messages
    }

    async fn stored(
        &self,
        client: &IggyClient,
        consumer: &Consumer,
        partition: u32,
    ) -> Option<u64> {
        client
            .get_consumer_offset(consumer, &self.stream, &self.topic, Some(partition))
            .await
            .expect("asks for the stored offset")
            .map(|info| info.stored_offset)
    }
}
