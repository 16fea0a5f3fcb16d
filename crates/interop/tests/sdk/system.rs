//! Ping, statistics, clients, the cluster, options, snapshots, raw requests.

use std::{net::SocketAddr, process, time::Duration};

use bytes::Bytes;
use iggy::prelude::{
    Client, ClusterClient, ClusterNodeRole, ClusterNodeStatus, HeaderKind, IggyClient,
    OptionsScope, SnapshotCompression, SystemClient, SystemSnapshotType, UserClient,
};
use interop::{client, until};

use super::{error, refused};

const CLOSE_LIMIT: Duration = Duration::from_secs(10);

pub(crate) async fn run(client: &IggyClient, address: SocketAddr) {
    client.ping().await.expect("pings");
    statistics(client).await;
    clients(client, address).await;
    cluster(client).await;
    options(client).await;
    snapshots(client).await;
    raw(client).await;
    sessions(address).await;
}

async fn statistics(client: &IggyClient) {
    let stats = client.get_stats().await.expect("statistics");
    assert_ne!(stats.process_id, process::id());
    assert!(stats.process_id > 0 && stats.memory_usage.as_bytes_u64() > 0);
    assert!(stats.total_memory.as_bytes_u64() > stats.available_memory.as_bytes_u64());
    assert!(stats.total_disk_space.as_bytes_u64() > 0 && stats.threads_count > 0);
    assert_eq!(
        (
            stats.streams_count,
            stats.topics_count,
            stats.partitions_count
        ),
        (0, 0, 0)
    );
    assert_eq!((stats.messages_count, stats.consumer_groups_count), (0, 0));
    assert_eq!(stats.clients_count, 1);
    assert!(!stats.hostname.is_empty() && stats.os_name.contains("Linux"));
    assert_eq!(stats.iggy_server_semver, Some(11_000), "0.11.0");
}

async fn clients(client: &IggyClient, address: SocketAddr) {
    let other = client::connect(address).await;
    let me = client.get_me().await.expect("my own record");
    assert_eq!((me.user_id, me.transport.as_str()), (Some(0), "TCP"));
    assert_eq!((me.consumer_groups_count, me.consumer_groups.len()), (0, 0));
    assert!(me.address.starts_with("127.0.0.1:"), "{}", me.address);
    let its = other.get_me().await.expect("its own record");
    assert_ne!(its.client_id, me.client_id);

    let listed = client.get_clients().await.expect("the clients");
    let mut listed: Vec<u32> = listed.iter().map(|it| it.client_id).collect();
    listed.sort_unstable();
    let mut expected = vec![me.client_id, its.client_id];
    expected.sort_unstable();
    assert_eq!(listed, expected);

    let found = client.get_client(its.client_id).await.expect("a client");
    let found = found.expect("it is connected");
    assert_eq!(
        (found.client_id, found.address),
        (its.client_id, its.address)
    );
    other.logout_user().await.expect("logs out");
    let found = client.get_client(its.client_id).await.expect("an answer");
    assert_eq!(found.expect("still connected").user_id, None);
    other.shutdown().await.expect("closes");
    until("the client is gone", CLOSE_LIMIT, async || {
        let found = client.get_client(its.client_id).await;
        found.expect("an answer").is_none().then_some(())
    })
    .await;
}

async fn cluster(client: &IggyClient) {
    let metadata = client.get_cluster_metadata().await.expect("the cluster");
    let [node] = &metadata.nodes[..] else {
        panic!("a server alone is a cluster of one: {metadata:?}");
    };
    assert_eq!(node.role, ClusterNodeRole::Leader);
    assert_eq!(node.status, ClusterNodeStatus::Healthy);
    assert_ne!(node.endpoints.tcp, 0);
}

async fn options(client: &IggyClient) {
    let topic = client.describe_options(OptionsScope::Topic).await;
    let topic = topic.expect("the options of topics");
    let keys: Vec<&str> = topic.iter().map(|option| option.key.as_str()).collect();
    for key in [
        "compression_algorithm",
        "message_expiry",
        "max_topic_size",
        "segment_size",
        "durability",
        "consumer_offset_durability",
        "messages_required_to_save",
        "size_of_messages_required_to_save",
        "preallocate_segments",
    ] {
        assert!(keys.contains(&key), "{key} is missing: {keys:?}");
    }
    let size = topic.iter().find(|option| option.key == "segment_size");
    let size = size.expect("it is there");
    assert_eq!(size.kind, HeaderKind::Uint64);
    assert_eq!(size.default_value, (1_u64 << 30).to_le_bytes());
    assert!(topic.iter().all(|option| !option.description.is_empty()));
    for scope in [OptionsScope::Stream, OptionsScope::User] {
        let none = client.describe_options(scope).await.expect("an answer");
        assert!(none.is_empty(), "{scope:?} has no options: {none:?}");
    }
}

async fn snapshots(client: &IggyClient) {
    for compression in [
        SnapshotCompression::Stored,
        SnapshotCompression::Deflated,
        SnapshotCompression::Zstd,
    ] {
        let types = vec![SystemSnapshotType::Test, SystemSnapshotType::ServerConfig];
        let snapshot = client.snapshot(compression, types).await;
        let bytes = snapshot.expect("an archive").0;
        assert!(bytes.starts_with(b"PK\x03\x04"), "a ZIP archive");
    }
    let all = client
        .snapshot(SnapshotCompression::Deflated, vec![SystemSnapshotType::All])
        .await;
    assert!(all.expect("an archive").0.len() > 500);
}

async fn raw(client: &IggyClient) {
    let ask = |code, body: &'static [u8]| client.send_binary_request(code, Bytes::from(body));
    assert!(ask(1, b"").await.expect("pings").is_empty());
    assert!(ask(10, b"").await.expect("statistics").len() > 108);
    refused(ask(60_000, b"").await, error::INVALID_COMMAND);
    // A scope that nobody knows.
    refused(ask(13, b"\x09").await, error::INVALID_COMMAND);
    // The client keeps the commands of sessions to its own methods; the old ones are nobody's.
    for code in [38, 39, 40, 44, 45] {
        assert!(ask(code, b"").await.is_err());
    }
}

/// What an unauthenticated client may do, and that a connection can log in again.
async fn sessions(address: SocketAddr) {
    let anonymous = client::connect_anonymous(address).await;
    anonymous.ping().await.expect("anybody may ping");
    refused(anonymous.get_stats().await, error::UNAUTHENTICATED);
    let wrong = anonymous.login_user("iggy", "wrong").await;
    refused(wrong, error::INVALID_CREDENTIALS);
    let identity = anonymous.login_user("iggy", "iggy").await.expect("logs in");
    assert_eq!(identity.user_id, 0);
    let first = anonymous.get_me().await.expect("its record").client_id;
    anonymous
        .login_user("iggy", "iggy")
        .await
        .expect("logs in again");
    let second = anonymous.get_me().await.expect("its record").client_id;
    assert_eq!(first, second, "the number is the connection's");
    anonymous.logout_user().await.expect("logs out");
    refused(anonymous.get_me().await, error::UNAUTHENTICATED);
}
