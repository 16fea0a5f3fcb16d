//! Users: created, found, renamed, given rights and passwords, disabled, deleted.

use std::{collections::BTreeMap, net::SocketAddr};

use iggy::prelude::{
    GlobalPermissions, IggyClient, MessageClient, Partitioning, Permissions, PollingStrategy,
    StreamClient, StreamPermissions, SystemClient, TopicPermissions, UserClient, UserStatus,
    UserUpdateOptions,
};
use interop::{client, load};

use super::{error, login, number, numbers, orders, placed, poll, refused};

pub(crate) async fn run(client: &IggyClient, address: SocketAddr) {
    create(client).await;
    rights(client, address).await;
    rights_on_one_topic(client, address).await;
    passwords(client, address).await;
    root_is_kept(client).await;
    end(client, address).await;
}

fn reading() -> Permissions {
    let global = GlobalPermissions {
        read_streams: true,
        ..GlobalPermissions::default()
    };
    Permissions {
        global,
        streams: None,
    }
}

async fn create(client: &IggyClient) {
    let created = client
        .create_user("reader", "secret-1", UserStatus::Active, Some(reading()))
        .await
        .expect("creates");
    assert_eq!((created.id, created.username.as_str()), (1, "reader"));
    assert_eq!(created.status, UserStatus::Active);
    assert_eq!(created.permissions, Some(reading()));
    let again = client
        .create_user("reader", "secret-1", UserStatus::Active, None)
        .await;
    refused(again, error::USER_EXISTS);
    let found = client.get_user(&number(1)).await.expect("an answer");
    let found = found.expect("the user");
    assert_eq!(found.permissions, Some(reading()));
    let listed = client.get_users().await.expect("all users");
    let names: Vec<&str> = listed.iter().map(|user| user.username.as_str()).collect();
    assert_eq!(names, ["iggy", "reader"]);
}

async fn rights(client: &IggyClient, address: SocketAddr) {
    let reader = login(address, "reader", "secret-1").await.expect("logs in");
    let found = reader.get_stream(&orders()).await.expect("may read");
    assert_eq!(found.expect("the stream").name, "orders");
    refused(reader.create_stream("forbidden").await, error::UNAUTHORIZED);
    refused(reader.get_stats().await, error::UNAUTHORIZED);
    refused(reader.get_users().await, error::UNAUTHORIZED);
    // Rights change under a session that exists.
    let mut managing = reading();
    managing.global.manage_streams = true;
    client
        .update_permissions(&client::named("reader"), Some(managing))
        .await
        .expect("updates");
    reader.create_stream("allowed").await.expect("may now");
    client
        .update_permissions(&client::named("reader"), None)
        .await
        .expect("removes all");
    refused(
        reader.delete_stream(&client::named("allowed")).await,
        error::UNAUTHORIZED,
    );
    client
        .delete_stream(&client::named("allowed"))
        .await
        .expect("deletes");
}

async fn rights_on_one_topic(client: &IggyClient, address: SocketAddr) {
    let topic = TopicPermissions {
        read_topic: true,
        poll_messages: true,
        ..TopicPermissions::default()
    };
    let stream = StreamPermissions {
        topics: Some(BTreeMap::from([(0, topic)])),
        ..StreamPermissions::default()
    };
    let narrow = Permissions {
        global: GlobalPermissions::default(),
        streams: Some(BTreeMap::from([(0, stream)])),
    };
    client
        .update_permissions(&number(1), Some(narrow.clone()))
        .await
        .expect("updates");
    let found = client.get_user(&number(1)).await.expect("an answer");
    assert_eq!(found.expect("the user").permissions, Some(narrow));

    let reader = login(address, "reader", "secret-1").await.expect("logs in");
    let polled = poll(&reader, 0, PollingStrategy::first(), 2).await;
    assert_eq!(numbers(&polled), [0, 1]);
    let sent = reader
        .send_messages(
            &orders(),
            &placed(),
            &Partitioning::partition_id(0),
            &mut [load::message(1)],
        )
        .await;
    refused(sent, error::UNAUTHORIZED);
}

async fn passwords(client: &IggyClient, address: SocketAddr) {
    let wrong = client
        .change_password(&number(1), "not-this", "secret-2")
        .await;
    refused(wrong, error::INVALID_CREDENTIALS);
    client
        .change_password(&number(1), "secret-1", "secret-2")
        .await
        .expect("changes");
    let old = login(address, "reader", "secret-1").await;
    refused(old, error::INVALID_CREDENTIALS);
    let reader = login(address, "reader", "secret-2").await.expect("logs in");
    // Its own, without any right.
    reader
        .change_password(&client::named("reader"), "secret-2", "secret-3")
        .await
        .expect("changes its own");
    login(address, "reader", "secret-3").await.expect("logs in");
}

async fn root_is_kept(client: &IggyClient) {
    let root = number(0);
    refused(client.delete_user(&root).await, error::USER_KEPT);
    let stripped = client.update_permissions(&root, None).await;
    refused(stripped, error::PERMISSIONS_KEPT);
}

async fn end(client: &IggyClient, address: SocketAddr) {
    let none = UserUpdateOptions::default();
    client
        .update_user(
            &number(1),
            Some("renamed"),
            Some(UserStatus::Inactive),
            &none,
        )
        .await
        .expect("renames and disables");
    let found = client.get_user(&client::named("renamed")).await;
    let found = found.expect("an answer").expect("the user");
    assert_eq!((found.id, found.status), (1, UserStatus::Inactive));
    let former = client.get_user(&client::named("reader")).await;
    assert!(former.expect("an answer").is_none());
    let disabled = login(address, "renamed", "secret-3").await;
    refused(disabled, error::INVALID_CREDENTIALS);
    let taken = client
        .update_user(&number(1), Some("iggy"), None, &none)
        .await;
    refused(taken, error::USER_EXISTS);
    client.delete_user(&number(1)).await.expect("deletes");
    refused(client.delete_user(&number(1)).await, error::NOT_FOUND);
    let missing = client
        .update_user(&number(1), Some("x-ray"), None, &none)
        .await;
    refused(missing, error::NOT_FOUND);
}
