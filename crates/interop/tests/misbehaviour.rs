//! Wrong requests get their documented answer, wrong bytes cost their sender the connection, and
//! a healthy client on another connection notices nothing of either.
//!
//! In each test a healthy client sends and polls all the while; it has no reconnection, so any
//! trouble of its connection is an error.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use iggy::prelude::{
    Consumer, Identifier, IggyError, MessageClient, Partitioning, PollingStrategy, StreamClient,
    TopicClient, TopicCreateOptions, UserClient,
};
use interop::{PASSWORD, Scratch, Server, USERNAME, client, load, raw, raw::Connection, until};
use tokio::{io::AsyncWriteExt, task::JoinHandle};

/// No call of the healthy client takes longer, on a busy machine of two cores.
const CALL_LIMIT: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(30);

/// A client that sends and polls until told to stop.
struct Healthy {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    task: JoinHandle<Duration>,
}

impl Healthy {
    async fn start(address: SocketAddr) -> Self {
        let healthy = client::connect_pinned(address)
            .await
            .expect("connects and logs in");
        healthy
            .create_stream("healthy")
            .await
            .expect("creates a stream");
        let options = TopicCreateOptions {
            partitions_count: Some(1),
            ..TopicCreateOptions::default()
        };
        let stream = client::named("healthy");
        let topic = client::named("topic");
        healthy
            .create_topic(&stream, "topic", &options)
            .await
            .expect("creates a topic");

        let stop = Arc::new(AtomicBool::new(false));
        let rounds = Arc::new(AtomicU64::new(0));
        let task = tokio::spawn({
            let (stop, rounds) = (Arc::clone(&stop), Arc::clone(&rounds));
            async move {
                let consumer = Consumer::new(Identifier::numeric(1).expect("a valid id"));
                let partitioning = Partitioning::partition_id(0);
                let mut slowest = Duration::ZERO;
                while !stop.load(Ordering::Relaxed) {
                    let n = rounds.load(Ordering::Relaxed);
                    let begin = Instant::now();
                    healthy
                        .send_messages(&stream, &topic, &partitioning, &mut [load::message(n)])
                        .await
                        .expect("the healthy client sends");
                    let strategy = PollingStrategy::offset(n);
                    let polled = healthy
                        .poll_messages(&stream, &topic, Some(0), &consumer, &strategy, 10, false)
                        .await
                        .expect("the healthy client polls");
                    assert_eq!(polled.messages.len(), 1);
                    load::assert_message(&polled.messages[0], n);
                    slowest = slowest.max(begin.elapsed());
                    rounds.store(n + 1, Ordering::Relaxed);
                }
                slowest
            }
        });
        Self { stop, rounds, task }
    }

    /// Waits until it has served some rounds that began after now.
    async fn assert_serves(&self) {
        let target = self.rounds.load(Ordering::Relaxed) + 20;
        until("the healthy client goes on", LIMIT, async || {
            assert!(!self.task.is_finished(), "the healthy client has failed");
            (self.rounds.load(Ordering::Relaxed) >= target).then_some(())
        })
        .await;
    }

    async fn finish(self) {
        self.assert_serves().await;
        self.stop.store(true, Ordering::Relaxed);
        let slowest = self.task.await.expect("the healthy client has no errors");
        assert!(slowest < CALL_LIMIT, "a round took {slowest:?}");
    }
}

/// A server and its healthy client.
async fn world() -> (Scratch, Server, Healthy) {
    let scratch = Scratch::new("misbehaviour");
    let server = Server::start(scratch.path());
    let healthy = Healthy::start(server.address()).await;
    (scratch, server, healthy)
}

async fn end(mut server: Server, healthy: Healthy) {
    healthy.finish().await;
    server.assert_running();
    assert!(server.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_invalid_credentials_and_the_connection_stays() {
    let (_scratch, server, healthy) = world().await;

    let client = client::connect_anonymous(server.address()).await;
    for (username, password) in [(USERNAME, "wrong"), ("nobody", PASSWORD)] {
        let error = client
            .login_user(username, password)
            .await
            .expect_err("refused");
        assert_eq!(error.as_code(), IggyError::InvalidCredentials.as_code());
    }
    client
        .login_user(USERNAME, PASSWORD)
        .await
        .expect("the right password");

    let mut by_hand = Connection::open(server.address()).await;
    by_hand.write(&raw::login(USERNAME, "wrong")).await;
    let frame = by_hand.read().await.expect("an answer");
    assert_eq!((frame.command(), frame.reason()), (raw::EVICTION, 9));
    by_hand.write(&raw::ping()).await;
    let frame = by_hand.read().await.expect("the connection stays");
    assert_eq!((frame.command(), frame.status()), (raw::REPLY, 0));
    end(server, healthy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_stream_or_topic_is_a_typed_error() {
    let (_scratch, server, healthy) = world().await;
    let client = client::connect(server.address()).await;
    let (known, unknown) = (client::named("healthy"), client::named("nowhere"));

    let found = client
        .get_stream(&unknown)
        .await
        .expect("absence is no error");
    assert!(found.is_none());
    let found = client
        .get_topic(&known, &unknown)
        .await
        .expect("absence is no error");
    assert!(found.is_none());

    let options = TopicCreateOptions::default();
    let error = client
        .create_topic(&unknown, "topic", &options)
        .await
        .expect_err("no stream");
    assert_eq!(error.as_code(), 1009);
    let error = client.delete_stream(&unknown).await.expect_err("no stream");
    assert_eq!(error.as_code(), 1009);

    let consumer = Consumer::new(Identifier::numeric(1).expect("a valid id"));
    let strategy = PollingStrategy::first();
    for (stream, topic, partition, code) in [
        (&unknown, &known, 0, 1009),
        (&known, &unknown, 0, 2010),
        (&known, &topic(), 99, 3007),
    ] {
        let error = client
            .poll_messages(
                stream,
                topic,
                Some(partition),
                &consumer,
                &strategy,
                1,
                false,
            )
            .await
            .expect_err("nothing to poll");
        assert_eq!(error.as_code(), code);
        let partitioning = Partitioning::partition_id(partition);
        let error = client
            .send_messages(stream, topic, &partitioning, &mut [load::message(0)])
            .await
            .expect_err("nowhere to send");
        // The protocol allows the untyped "resource not found" for a send.
        assert!([code, 20].contains(&error.as_code()), "{error}");
    }
    end(server, healthy).await;
}

fn topic() -> Identifier {
    client::named("topic")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_oversized_frame_closes_its_connection() {
    let (_scratch, server, healthy) = world().await;
    for size in [raw::FRAME_SIZE_MAX + 1, u32::MAX] {
        let mut by_hand = Connection::open_bound(server.address()).await;
        let mut frame = by_hand.request(raw::PING, 1).frame(&[]);
        frame[48..52].copy_from_slice(&size.to_le_bytes());
        by_hand.write(&frame).await;
        assert!(by_hand.read().await.is_none(), "size {size} closes");
        healthy.assert_serves().await;
    }
    end(server, healthy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_closes_its_connection() {
    let (_scratch, server, healthy) = world().await;
    let too_small = {
        let mut frame = raw::ping();
        frame[48..52].copy_from_slice(&255_u32.to_le_bytes());
        frame
    };
    let not_a_request = {
        let mut frame = raw::ping();
        frame[60] = 200;
        frame
    };
    let http = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(20);
    for garbage in [
        vec![0; 1024],
        vec![0xff; 1024],
        noise(4096),
        http,
        too_small,
        not_a_request,
    ] {
        let mut by_hand = Connection::open(server.address()).await;
        by_hand.write(&garbage).await;
        // A denial with status 3 before the close is as good.
        while let Some(frame) = by_hand.read().await {
            assert_eq!((frame.command(), frame.status()), (raw::REPLY, 3));
            let _ = by_hand.socket.shutdown().await;
        }
        healthy.assert_serves().await;
    }
    end(server, healthy).await;
}

/// Bytes without any order, the same in every run; the size they claim is beyond the limit.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes: Vec<u8> = (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect();
    bytes[51] |= 0x80;
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_frame_waits_and_is_answered_once_whole() {
    let (_scratch, server, healthy) = world().await;
    let ping = raw::ping();
    let mut halves = Vec::new();
    for cut in [1, 48, 51, 100, 255] {
        let mut by_hand = Connection::open(server.address()).await;
        by_hand.write(&ping[..cut]).await;
        by_hand
            .socket
            .flush()
            .await
            .expect("the server keeps the connection");
        halves.push((by_hand, cut));
    }
    // One that is never completed: its end is the end of the connection.
    let mut gone = Connection::open(server.address()).await;
    gone.write(&ping[..100]).await;
    drop(gone);

    healthy.assert_serves().await;
    for (by_hand, cut) in &mut halves {
        by_hand.write(&ping[*cut..]).await;
        let frame = by_hand.read().await.expect("an answer");
        assert_eq!(
            (frame.command(), frame.status(), frame.request()),
            (raw::REPLY, 0, 1)
        );
        assert_eq!(frame.operation(), raw::NON_REPLICATED);
    }
    end(server, healthy).await;
}

/// Far more bytes than the sockets of both sides hold are asked for and not read; the server
/// waits for the reader instead of dropping or collecting answers without bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_gets_every_answer_in_order() {
    const POLLS: u64 = 64;
    let (_scratch, server, healthy) = world().await;
    until("there is something to read", LIMIT, async || {
        (healthy.rounds.load(Ordering::Relaxed) >= 10).then_some(())
    })
    .await;
    let writer = client::connect(server.address()).await;
    let payload = vec![7; 1 << 20];
    let big = iggy::prelude::IggyMessage::builder()
        .payload(payload.into())
        .build();
    let stream = client::named("big");
    writer.create_stream("big").await.expect("creates a stream");
    let options = TopicCreateOptions {
        partitions_count: Some(1),
        ..TopicCreateOptions::default()
    };
    let created = writer
        .create_topic(&stream, "topic", &options)
        .await
        .expect("a topic");
    writer
        .send_messages(
            &stream,
            &topic(),
            &Partitioning::partition_id(0),
            &mut [big.expect("a valid message")],
        )
        .await
        .expect("sends a big message");
    let details = writer
        .get_stream(&stream)
        .await
        .expect("a stream")
        .expect("a stream");

    let mut by_hand = Connection::open_bound(server.address()).await;
    let body = raw::poll_body(details.id, created.id, 1);
    let frames: Vec<u8> = (1..=POLLS)
        .flat_map(|n| by_hand.request(raw::POLL, n).frame(&body))
        .collect();
    by_hand.write(&frames).await;
    healthy.assert_serves().await;
    for n in 1..=POLLS {
        let frame = by_hand.read().await.expect("an answer");
        assert_eq!(
            (frame.command(), frame.status(), frame.request()),
            (raw::REPLY, 0, n)
        );
        assert!(frame.body.len() > 1 << 20);
        assert!(frame.body.ends_with(&[7; 1024]));
    }
    end(server, healthy).await;
}
