//! Streams: created, found by name and number, renamed, purged, deleted.

use iggy::prelude::{IggyClient, StreamClient, StreamUpdateOptions};
use interop::client;

use super::{error, number, orders, refused};

pub(crate) async fn run(client: &IggyClient) {
    let created = client.create_stream("drafts").await.expect("creates");
    assert_eq!((created.id, created.name.as_str()), (0, "drafts"));
    assert_eq!((created.topics_count, created.messages_count), (0, 0));
    assert_eq!(created.size.as_bytes_u64(), 0);
    assert!(created.created_at.as_micros() > 1_700_000_000_000_000);
    refused(client.create_stream("drafts").await, error::STREAM_EXISTS);

    let other = client.create_stream("other").await.expect("creates");
    assert_eq!(other.id, 1);
    let update = StreamUpdateOptions::default();
    let taken = client.update_stream(&number(0), "other", &update).await;
    refused(taken, error::STREAM_EXISTS);
    let mut odd = StreamUpdateOptions::default();
    odd.raw.insert("colour".into(), "red".into());
    let odd = client.update_stream(&number(0), "orders", &odd).await;
    refused(odd, error::OPTION_UNKNOWN);
    client
        .update_stream(&number(0), "orders", &update)
        .await
        .expect("renames");

    let by_name = client.get_stream(&orders()).await.expect("an answer");
    let by_name = by_name.expect("the stream has its new name");
    assert_eq!((by_name.id, by_name.created_at), (0, created.created_at));
    let former = client.get_stream(&client::named("drafts")).await;
    assert!(former.expect("an answer").is_none());

    let listed = client.get_streams().await.expect("all streams");
    let listed: Vec<(u32, &str)> = listed.iter().map(|it| (it.id, it.name.as_str())).collect();
    assert_eq!(listed, [(0, "orders"), (1, "other")]);

    client.delete_stream(&number(1)).await.expect("deletes");
    refused(
        client.delete_stream(&number(1)).await,
        error::STREAM_NOT_FOUND,
    );
    refused(
        client.purge_stream(&number(1)).await,
        error::STREAM_NOT_FOUND,
    );
    let renamed = client.update_stream(&number(1), "again", &update).await;
    refused(renamed, error::STREAM_NOT_FOUND);
}

/// After everything else: purge, then delete.
pub(crate) async fn end(client: &IggyClient) {
    client.purge_stream(&orders()).await.expect("purges");
    let purged = client.get_stream(&orders()).await.expect("an answer");
    let purged = purged.expect("the stream is still there");
    assert_eq!((purged.messages_count, purged.size.as_bytes_u64()), (0, 0));
    assert_eq!(purged.topics.len(), 1);
    client.delete_stream(&orders()).await.expect("deletes");
    assert!(client.get_streams().await.expect("an answer").is_empty());
}
