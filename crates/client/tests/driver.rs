//! The driver over real sockets, against a small responder in the same process.
#![cfg(feature = "driver")]
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::net::SocketAddr;

use base::{Bytes, ClientId, Offset};
use client::{
    ClientConfig, ClientError, Polled, StopReason,
    driver::{Connection, Error, random_id},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use transport::FrameReader;
use wire::{
    Codec, Counted, ErrorCode, EvictionHeader, EvictionReason, Identifier, Name, Operation,
    Partitioning, ReplyHeader, Request, RequestHeader,
    batch::{self, Message},
    header,
    reply::{Confirmation, LoginRecord, PollHead},
    request::TopicTarget,
    result,
};

const TOPIC: TopicTarget<'_> = TopicTarget {
    stream: Identifier::Numeric(1),
    topic: Identifier::Numeric(2),
};

/// A server of one partition, just good enough for one client at a time.
struct Responder {
    listener: TcpListener,
    /// The partition: batches as stored.
    log: Vec<Vec<u8>>,
    next_offset: u64,
    /// The last write's number and answer.
    last: (u64, Vec<u8>),
    /// Connections to cut, after the first write was carried out and before it is answered.
    cuts: u32,
    password: &'static str,
}

impl Responder {
    async fn bind() -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let last = (0, Vec::new());
        let password = "secret";
        (
            Self {
                listener,
                log: Vec::new(),
                next_offset: 0,
                last,
                cuts: 0,
                password,
            },
            address,
        )
    }

    /// Serves connection after connection until `count` have come and gone.
    async fn serve(mut self, count: usize) -> Self {
        for _ in 0..count {
            let (stream, _) = self.listener.accept().await.unwrap();
            self.serve_one(stream).await;
        }
        self
    }

    async fn serve_one(&mut self, mut stream: TcpStream) {
        let mut reader = FrameReader::new(1 << 20);
        loop {
            let mut buffer = reader.buffer_to_receive();
            let count = stream.read(buffer.spare_mut()).await.unwrap_or(0);
            if count == 0 {
                return;
            }
            buffer.advance(count);
            reader.on_received(buffer);
            while let Some(frame) = reader.next_frame().unwrap() {
                let header = RequestHeader::decode(&frame).unwrap();
                let answer = self.answer(&header, &frame[256..]);
                if header.operation == Operation::SendMessages && self.cuts > 0 {
                    self.cuts -= 1;
                    return;
                }
                stream.write_all(&answer).await.unwrap();
            }
        }
    }

    fn answer(&mut self, header: &RequestHeader, body: &[u8]) -> Bytes {
        let to = ReplyHeader::to(header);
        match Request::decode(header.operation, header.code, body).unwrap() {
            Request::Register(login) => {
                let is_right = format!("{login:?}").contains("iggy")
                    && body
                        .windows(6)
                        .any(|window| window == self.password.as_bytes());
                if !is_right {
                    let reason = EvictionReason::InvalidCredentials;
                    return header::eviction(&EvictionHeader::new(header.client, reason));
                }
                let record = LoginRecord {
                    user_id: 0,
                    session: 5,
                    server_protocol_version: wire::PROTOCOL_VERSION,
                    server_version: Name::new("1").unwrap(),
                };
                header::reply(&to, &result::encode_result(Ok(&record.encode())))
            }
            Request::Ping => header::reply(&to, &[]),
            Request::SendMessages(send) => {
                if self.last.0 != header.request {
                    self.last = (header.request, self.append(send.batch));
                }
                header::reply(&to, &self.last.1)
            }
            Request::PollMessages(_) => {
                let head = PollHead {
                    partition_id: 0,
                    current_offset: self.next_offset.saturating_sub(1),
                    count: u32::try_from(self.next_offset).unwrap(),
                };
                header::reply(&to, &[&head.to_bytes()[..], &self.log.concat()].concat())
            }
            _ => header::denial(header, ErrorCode::FEATURE_UNAVAILABLE),
        }
    }

    fn append(&mut self, sent: &[u8]) -> Vec<u8> {
        batch::verify(sent).unwrap();
        let mut stored = sent.to_vec();
        let header = batch::stamp(&mut stored, 0, self.next_offset, 1_000).unwrap();
        let base_offset = self.next_offset;
        self.next_offset += u64::from(header.message_count);
        self.log.push(stored);
        let confirmation = Confirmation {
            stream_id: 1,
            topic_id: 2,
            partition_id: 0,
            base_offset,
        };
        Counted(vec![confirmation]).encode()
    }
}

fn config(address: SocketAddr) -> ClientConfig {
    ClientConfig::new(ClientId(77), vec![address], ("iggy", "secret"))
}

fn message(payload: &[u8]) -> Message<'_> {
    Message {
        id: 9,
        origin_timestamp: 3,
        payload,
        user_headers: &[],
    }
}

#[tokio::test]
async fn connects_pings_sends_and_polls() {
    let (responder, address) = Responder::bind().await;
    let server = tokio::spawn(responder.serve(1));
    let mut connection = Connection::connect(config(address)).await.unwrap();
    connection.ping().await.unwrap();
    let to = Partitioning::PartitionId(0);
    let large = vec![7; 300_000];
    for (payload, base_offset) in [(&b"one"[..], 0), (&large, 1)] {
        let sent = connection
            .send(TOPIC, to, &[message(payload)])
            .await
            .unwrap();
        assert_eq!(sent.unwrap().base_offset, base_offset);
    }
    let reply = connection.poll_from(TOPIC, 0, 0, 10).await.unwrap();
    let polled = Polled::read(&reply).unwrap();
    let seen: Vec<_> = polled
        .messages
        .iter()
        .map(|message| (message.offset, message.frame.payload()))
        .collect();
    assert_eq!(seen, [(Offset(0), &b"one"[..]), (Offset(1), &large)]);
    let refused = connection.create_stream("orders").await.unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::FEATURE_UNAVAILABLE));
    connection.close();
    server.await.unwrap();
}

/// The server carries a send out and dies before it answers. The client comes back and repeats
/// it; the server knows it again, and it is there once.
#[tokio::test]
async fn send_whose_answer_was_cut_off_is_there_once() {
    let (mut responder, address) = Responder::bind().await;
    responder.cuts = 2;
    let server = tokio::spawn(responder.serve(3));
    let mut connection = Connection::connect(config(address)).await.unwrap();
    let to = Partitioning::PartitionId(0);
    let sent = connection
        .send(TOPIC, to, &[message(b"once")])
        .await
        .unwrap();
    assert_eq!(sent.unwrap().base_offset, 0);
    connection.close();
    assert_eq!(server.await.unwrap().log.len(), 1);
}

#[tokio::test]
async fn wrong_password_is_told() {
    let (mut responder, address) = Responder::bind().await;
    responder.password = "SECRET";
    let server = tokio::spawn(responder.serve(1));
    let outcome = Connection::connect(config(address)).await;
    let reason = StopReason::Evicted(EvictionReason::InvalidCredentials);
    let stopped = ClientError::Stopped {
        reason,
        maybe_applied: false,
    };
    assert_eq!(outcome.err(), Some(Error::Client(stopped)));
    server.await.unwrap();
}

#[test]
fn random_identities_differ() {
    assert_ne!(random_id().unwrap(), random_id().unwrap());
}
