//! Personal access tokens: made, listed, used, expired, deleted.

use std::{net::SocketAddr, time::Duration};

use iggy::prelude::{
    IggyClient, IggyDuration, PersonalAccessTokenClient, PersonalAccessTokenExpiry, SystemClient,
    UserClient,
};
use interop::{client, until};

use super::{error, refused};

const EXPIRY_LIMIT: Duration = Duration::from_secs(20);

pub(crate) async fn run(client: &IggyClient, address: SocketAddr) {
    let hour = PersonalAccessTokenExpiry::ExpireDuration(IggyDuration::new_from_secs(3600));
    let laptop = client.create_personal_access_token("laptop", hour).await;
    let laptop = laptop.expect("creates").token;
    assert!((20..=100).contains(&laptop.len()), "{}", laptop.len());
    let again = client.create_personal_access_token("laptop", hour).await;
    refused(again, error::TOKEN_EXISTS);
    let never = PersonalAccessTokenExpiry::NeverExpire;
    let server = client.create_personal_access_token("server", never).await;
    assert_ne!(server.expect("creates").token, laptop);

    let mut listed = client.get_personal_access_tokens().await.expect("all");
    listed.sort_by(|one, other| one.name.cmp(&other.name));
    let names: Vec<&str> = listed.iter().map(|token| token.name.as_str()).collect();
    assert_eq!(names, ["laptop", "server"]);
    assert!(listed[0].expiry_at.is_some() && listed[1].expiry_at.is_none());

    let holder = client::connect_anonymous(address).await;
    let identity = holder.login_with_personal_access_token(&laptop).await;
    assert_eq!(identity.expect("logs in").user_id, 0);
    assert_eq!(holder.get_me().await.expect("its record").user_id, Some(0));
    holder.logout_user().await.expect("logs out");

    for name in ["laptop", "server"] {
        let deleted = client.delete_personal_access_token(name).await;
        deleted.expect("deletes");
    }
    assert!(client.delete_personal_access_token("laptop").await.is_err());
    let none = client.get_personal_access_tokens().await.expect("all");
    assert!(none.is_empty());
    let stranger = client::connect_anonymous(address).await;
    let deleted = stranger.login_with_personal_access_token(&laptop).await;
    refused(deleted, error::TOKEN_INVALID);
    expires(client, address).await;
}

async fn expires(client: &IggyClient, address: SocketAddr) {
    let soon = IggyDuration::from(1_000_000_u64);
    let soon = PersonalAccessTokenExpiry::ExpireDuration(soon);
    let token = client.create_personal_access_token("brief", soon).await;
    let token = token.expect("creates").token;
    until("the token has expired", EXPIRY_LIMIT, async || {
        let holder = client::connect_anonymous(address).await;
        let answer = holder.login_with_personal_access_token(&token).await;
        answer
            .err()
            .map(|error| assert_eq!(error.as_code(), error::TOKEN_INVALID))
    })
    .await;
    let _ = client.delete_personal_access_token("brief").await;
}
