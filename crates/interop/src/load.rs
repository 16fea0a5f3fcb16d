//! Messages that can be told apart: everything about message `n` follows from `n`.

use std::collections::BTreeMap;

use iggy::prelude::{
    Consumer, HeaderKey, HeaderValue, Identifier, IggyError, IggyMessage, MessageClient,
    PollingStrategy,
};

/// Message `n`: its id, its payload of 1 to 400 bytes and its user headers.
///
/// # Panics
/// Never: all of them are valid.
#[must_use]
pub fn message(n: u64) -> IggyMessage {
    IggyMessage::builder()
        .id(id(n))
        .payload(payload(n).into())
        .user_headers(headers(n))
        .build()
        .expect("a valid message")
}

/// Checks that `found` is message `n`, with nothing lost and nothing added.
///
/// # Panics
/// If it is not.
pub fn assert_message(found: &IggyMessage, n: u64) {
    assert_eq!(found.header.id, id(n), "the id of message {n}");
    assert_eq!(found.payload, payload(n), "the payload of message {n}");
    let found = found
        .user_headers_map()
        .expect("headers that parse")
        .expect("headers");
    assert_eq!(found, headers(n), "the user headers of message {n}");
}

/// The number of a message, from its id.
///
/// # Panics
/// If it was not made by [`message`].
#[must_use]
pub fn number(found: &IggyMessage) -> u64 {
    let n = found.header.id & u128::from(u64::MAX);
    u64::try_from(n).expect("64 bits")
}

/// All 128 bits are used, so that a cut id is noticed.
fn id(n: u64) -> u128 {
    u128::from(!n) << 64 | u128::from(n)
}

fn payload(n: u64) -> Vec<u8> {
    let length = 1 + (n * 37) % 400;
    (0..length)
        .map(|at| (n.wrapping_mul(31).wrapping_add(at * 7) % 251) as u8)
        .collect()
}

fn headers(n: u64) -> BTreeMap<HeaderKey, HeaderValue> {
    let key = |name: &str| HeaderKey::try_from(name).expect("a valid key");
    let text = HeaderValue::try_from(format!("message {n}")).expect("a valid value");
    BTreeMap::from([
        (key("number"), HeaderValue::from(n)),
        (key("text"), text),
        (key("odd"), HeaderValue::from(n % 2 == 1)),
    ])
}

/// Reads a whole partition by offset, `count` messages at a time, and checks that its offsets
/// are dense from 0.
///
/// # Errors
/// If a poll fails.
///
/// # Panics
/// If an offset is missing or repeated.
pub async fn read_partition(
    client: &impl MessageClient,
    stream: &Identifier,
    topic: &Identifier,
    partition: u32,
    count: u32,
) -> Result<Vec<IggyMessage>, IggyError> {
    let consumer = Consumer::new(Identifier::numeric(1)?);
    let mut messages: Vec<IggyMessage> = Vec::new();
    loop {
        let next = messages.len() as u64;
        let strategy = PollingStrategy::offset(next);
        let polled = client
            .poll_messages(
                stream,
                topic,
                Some(partition),
                &consumer,
                &strategy,
                count,
                false,
            )
            .await?;
        if polled.messages.is_empty() {
            return Ok(messages);
        }
        assert_eq!(polled.partition_id, partition);
        assert!(
            polled.messages.len() <= count as usize,
            "no more than asked for"
        );
        assert_eq!(polled.messages.len(), polled.count as usize);
        for message in polled.messages {
            assert_eq!(
                message.header.offset,
                messages.len() as u64,
                "offsets are dense"
            );
            messages.push(message);
        }
    }
}
