//! The published client, as its users build it.

use std::{net::SocketAddr, sync::Arc};

use iggy::prelude::{
    Client, Identifier, IggyClient, TcpClient, TcpClientConfig, TcpClientReconnectionConfig,
    UserClient,
};

use crate::{PASSWORD, USERNAME};

/// Connects and logs in: the high-level client with its defaults, which reconnects and follows
/// the leader of a cluster.
///
/// # Panics
/// If that fails.
pub async fn connect(address: SocketAddr) -> IggyClient {
    let url = format!("iggy://{USERNAME}:{PASSWORD}@{address}");
    let client = IggyClient::from_connection_string(&url).expect("a valid connection string");
    client.connect().await.expect("connects and logs in");
    client
}

/// Connects without logging in.
///
/// # Panics
/// If that fails.
pub async fn connect_anonymous(address: SocketAddr) -> IggyClient {
    let client = IggyClient::builder()
        .with_tcp()
        .with_server_address(address.to_string())
        .build()
        .expect("a valid configuration");
    client.connect().await.expect("connects");
    client
}

/// Connects to one node, logs in and stays there; a lost connection is an error.
///
/// # Errors
/// If the node does not accept the connection or the login.
pub async fn connect_pinned(address: SocketAddr) -> Result<TcpClient, iggy::prelude::IggyError> {
    let client = TcpClient::create(Arc::new(TcpClientConfig {
        server_address: address.to_string(),
        nodelay: true,
        reconnection: TcpClientReconnectionConfig {
            enabled: false,
            ..Default::default()
        },
        ..Default::default()
    }))?;
    client.connect().await?;
    client.login_user(USERNAME, PASSWORD).await?;
    Ok(client)
}

/// A stream or topic by name.
///
/// # Panics
/// If the name is not one.
#[must_use]
pub fn named(name: &str) -> Identifier {
    Identifier::named(name).expect("a valid name")
}
