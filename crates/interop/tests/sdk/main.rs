//! The published Rust client, every method of every client trait: what comes back is what was
//! asked for, and what must be refused is refused with its documented number.
//!
//! One test on purpose: its record of commands is the SDK's column of `docs/compatibility.md`.
//! The high-level producer and consumer have tests of their own.

mod groups;
mod messages;
mod offsets;
mod routing;
mod streams;
mod system;
mod tokens;
mod topics;
mod users;

use std::{fmt::Debug, net::SocketAddr, time::Duration};

use iggy::prelude::{
    Consumer, Identifier, IggyClient, IggyError, IggyMessage, MessageClient, PollingStrategy,
};
use interop::{Recorder, Scratch, Server, client, load, within};

/// Far beyond what it takes, so that a request without an answer is a failure and not a hang.
const LIMIT: Duration = Duration::from_secs(180);

/// Errors of the protocol, by their numbers.
mod error {
    pub(crate) const INVALID_COMMAND: u32 = 3;
    pub(crate) const FEATURE_UNAVAILABLE: u32 = 5;
    pub(crate) const NOT_FOUND: u32 = 20;
    pub(crate) const UNAUTHENTICATED: u32 = 40;
    pub(crate) const UNAUTHORIZED: u32 = 41;
    pub(crate) const INVALID_CREDENTIALS: u32 = 42;
    pub(crate) const USER_EXISTS: u32 = 46;
    pub(crate) const USER_KEPT: u32 = 48;
    pub(crate) const PERMISSIONS_KEPT: u32 = 49;
    pub(crate) const TOKEN_EXISTS: u32 = 51;
    pub(crate) const TOKEN_INVALID: u32 = 53;
    pub(crate) const STREAM_NOT_FOUND: u32 = 1009;
    pub(crate) const STREAM_EXISTS: u32 = 1012;
    pub(crate) const TOPIC_NOT_FOUND: u32 = 2010;
    pub(crate) const TOPIC_EXISTS: u32 = 2013;
    pub(crate) const TOO_MANY_PARTITIONS: u32 = 2015;
    pub(crate) const OFFSET_NOT_FOUND: u32 = 3021;
    pub(crate) const OPTION_UNKNOWN: u32 = 4041;
    pub(crate) const OPTION_INVALID: u32 = 4042;
    pub(crate) const OFFSET_INVALID: u32 = 4100;
    pub(crate) const GROUP_NOT_FOUND: u32 = 5000;
    pub(crate) const GROUP_EXISTS: u32 = 5004;
    pub(crate) const NOT_A_MEMBER: u32 = 5006;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_is_answered_as_the_published_client_expects() {
    within("the whole test", LIMIT, run()).await;
}

async fn run() {
    let scratch = Scratch::new("sdk");
    let mut server = Server::start(scratch.path());
    let recorder = Recorder::default();
    let address = recorder.door(server.address()).await;
    let client = client::connect(address).await;

    system::run(&client, address).await;
    streams::run(&client).await;
    topics::run(&client).await;
    messages::run(&client).await;
    offsets::run(&client).await;
    groups::run(&client, address).await;
    users::run(&client, address).await;
    tokens::run(&client, address).await;
    topics::end(&client).await;
    streams::end(&client).await;
    server.assert_running();
    routing::run(&recorder).await;
    recorder.check("sdk");
}

/// The stream and topic of most steps.
fn orders() -> Identifier {
    client::named("orders")
}

fn placed() -> Identifier {
    client::named("placed")
}

fn number(value: u32) -> Identifier {
    Identifier::numeric(value).expect("a valid number")
}

/// The request was refused with this error.
#[track_caller]
fn refused<T: Debug>(answer: Result<T, IggyError>, code: u32) {
    let error = answer.expect_err("refused");
    assert_eq!(error.as_code(), code, "{error:?}");
}

/// Logs in without following or repeating anything, so that a refusal is seen.
async fn login(address: SocketAddr, name: &str, password: &str) -> Result<IggyClient, IggyError> {
    use iggy::prelude::UserClient;

    let client = client::connect_anonymous(address).await;
    client.login_user(name, password).await?;
    Ok(client)
}

/// Polls a partition of the usual topic without storing an offset.
async fn poll(
    client: &IggyClient,
    partition: u32,
    strategy: PollingStrategy,
    count: u32,
) -> Vec<IggyMessage> {
    let consumer = Consumer::new(number(1));
    let polled = client
        .poll_messages(
            &orders(),
            &placed(),
            Some(partition),
            &consumer,
            &strategy,
            count,
            false,
        )
        .await
        .expect("polls");
    assert_eq!(polled.count as usize, polled.messages.len());
    polled.messages
}

/// The numbers of messages made by [`load::message`], checked for their contents.
fn numbers(messages: &[IggyMessage]) -> Vec<u64> {
    let check = |message: &IggyMessage| {
        let number = load::number(message);
        load::assert_message(message, number);
        number
    };
    messages.iter().map(check).collect()
}
