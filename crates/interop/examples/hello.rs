//! Talks to a running server with the published Iggy client: a stream, a topic, some messages.
//!
//! ```text
//! cargo run --release -p interop --example hello [127.0.0.1:8090]
//! ```

use std::env;

use iggy::prelude::{
    Client, Consumer, Identifier, IggyClient, IggyError, IggyMessage, MessageClient, Partitioning,
    PollingStrategy, StreamClient, TopicClient, TopicCreateOptions,
};

#[tokio::main]
async fn main() -> Result<(), IggyError> {
    let address = env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:8090".into());

    // Connects, logs in, and from now on reconnects by itself; in a cluster it finds the leader.
    let client = IggyClient::from_connection_string(&format!("iggy://iggy:iggy@{address}"))?;
    client.connect().await?;
    println!("connected to {address}");

    // Streams hold topics, topics hold partitions. Names are unique, so a second run finds them.
    let stream = Identifier::named("hello")?;
    let topic = Identifier::named("greetings")?;
    if client.get_stream(&stream).await?.is_none() {
        client.create_stream("hello").await?;
        println!("created stream hello");
    }
    if client.get_topic(&stream, &topic).await?.is_none() {
        let options = TopicCreateOptions {
            partitions_count: Some(3),
            ..TopicCreateOptions::default()
        };
        client.create_topic(&stream, "greetings", &options).await?;
        println!("created topic greetings with 3 partitions");
    }

    // One batch is one entry of one partition's log. The answer comes once it is committed, and
    // says which offset the first message got. The same key always finds the same partition.
    let mut batch = ["hello", "how are you", "goodbye"].map(IggyMessage::from);
    let key = Partitioning::messages_key_str("customer 7")?;
    let answer = client
        .send_messages(&stream, &topic, &key, &mut batch)
        .await?;
    let Some(sent) = answer.confirmations.first() else {
        println!("sent, without a confirmation");
        return Ok(());
    };
    println!(
        "sent 3 messages: partition {}, offset {}",
        sent.partition_id, sent.base_offset
    );

    // Reads on from where this consumer stopped last time, and stores how far it came.
    let consumer = Consumer::new(Identifier::named("reader")?);
    loop {
        let polled = client
            .poll_messages(
                &stream,
                &topic,
                Some(sent.partition_id),
                &consumer,
                &PollingStrategy::next(),
                10,
                true,
            )
            .await?;
        if polled.messages.is_empty() {
            break;
        }
        for message in &polled.messages {
            let text = String::from_utf8_lossy(&message.payload);
            println!("received offset {}: {text}", message.header.offset);
        }
    }
    client.shutdown().await
}
