//! Consumer offsets: stored, read, moved by polls, deleted.

use iggy::prelude::{Consumer, ConsumerOffsetClient, IggyClient, MessageClient, PollingStrategy};
use interop::client;

use super::{error, number, numbers, orders, placed, refused};

pub(crate) async fn run(client: &IggyClient) {
    let reader = Consumer::new(client::named("reader"));
    assert_eq!(stored(client, &reader).await, None);
    // `next` goes on after the stored offset, and only with it.
    assert_eq!(next(client, &reader, false).await, [0, 1, 2, 3]);
    assert_eq!(next(client, &reader, true).await, [0, 1, 2, 3]);
    assert_eq!(stored(client, &reader).await, Some(3));
    assert_eq!(next(client, &reader, true).await, [4, 5, 6, 7]);

    store(client, &reader, 1).await;
    assert_eq!(stored(client, &reader).await, Some(1));
    assert_eq!(next(client, &reader, false).await, [2, 3, 4, 5]);
    // Another consumer, by number, is another.
    let seventh = Consumer::new(number(7));
    assert_eq!(stored(client, &seventh).await, None);
    store(client, &seventh, 0).await;

    let beyond = client
        .store_consumer_offset(&reader, &orders(), &placed(), Some(0), 10_000)
        .await;
    refused(beyond, error::OFFSET_INVALID);

    let delete = async || {
        client
            .delete_consumer_offset(&reader, &orders(), &placed(), Some(0))
            .await
    };
    delete().await.expect("deletes");
    assert_eq!(stored(client, &reader).await, None);
    refused(delete().await, error::OFFSET_NOT_FOUND);
    assert_eq!(next(client, &reader, false).await, [0, 1, 2, 3]);
    assert_eq!(stored(client, &seventh).await, Some(0));
}

async fn store(client: &IggyClient, consumer: &Consumer, offset: u64) {
    client
        .store_consumer_offset(consumer, &orders(), &placed(), Some(0), offset)
        .await
        .expect("stores");
}

async fn stored(client: &IggyClient, consumer: &Consumer) -> Option<u64> {
    let info = client
        .get_consumer_offset(consumer, &orders(), &placed(), Some(0))
        .await
        .expect("an answer")?;
    assert_eq!(info.partition_id, 0);
    assert!(info.current_offset >= 9);
    Some(info.stored_offset)
}

/// The numbers of the next four messages of partition 0.
async fn next(client: &IggyClient, consumer: &Consumer, commits: bool) -> Vec<u64> {
    let strategy = PollingStrategy::next();
    let polled = client
        .poll_messages(
            &orders(),
            &placed(),
            Some(0),
            consumer,
            &strategy,
            4,
            commits,
        )
        .await
        .expect("polls");
    numbers(&polled.messages)
}
