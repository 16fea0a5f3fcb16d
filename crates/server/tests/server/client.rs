//! A client that says exactly what a test wants said.

use base::{Bytes, ClientId};
use platform::ConnectionId;
use wire::{
    BatchBuilder, Code, Codec, Command, Consumer, ConsumerKind, Counted, Credentials, ErrorCode,
    EvictionHeader, EvictionReason, HEADER_SIZE, Identifier, Login, LoginPrefix, Name, Operation,
    OptionalPartition, OptionsBlock, PROTOCOL_VERSION, Partitioning, PollingStrategy, ReplyHeader,
    Request, RequestHeader, Secret, ShortText, Text, Value,
    batch::{self, Message},
    header,
    reply::{Confirmation, LoginRecord, PollHead},
    request::{
        CreateStream, CreateTopic, OffsetTarget, PollMessages, SendMessages, SendTarget,
        StoreConsumerOffset, TopicTarget,
    },
    result::decode_result,
};

use crate::node::{Node, PASSWORD, USERNAME};

/// What came back for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Reply(ReplyHeader, Vec<u8>),
    Eviction(EvictionReason),
}

impl Answer {
    pub(crate) fn of(frame: &Bytes) -> Self {
        if frame[60] == Command::Eviction as u8 {
            let header = EvictionHeader::decode(frame).expect("an eviction");
            return Self::Eviction(header.reason);
        }
        let header = ReplyHeader::decode(frame).expect("a reply");
        assert_eq!(header.size as usize, frame.len());
        Self::Reply(header, frame[HEADER_SIZE..].to_vec())
    }

    /// As the published client takes it: the payload, or the code it fails with.
    pub(crate) fn result(&self) -> Result<Vec<u8>, ErrorCode> {
        let Self::Reply(header, body) = self else {
            panic!("{self:?} is no reply");
        };
        if header.status != ErrorCode::OK {
            assert!(body.is_empty(), "a denial has no body");
            return Err(header.status);
        }
        if header.operation.is_result_framed() {
            let result = decode_result(body).expect("a result section");
            return result.map(<[u8]>::to_vec);
        }
        Ok(body.clone())
    }

    pub(crate) fn code(&self) -> Option<ErrorCode> {
        self.result().err()
    }

    pub(crate) fn op(&self) -> u64 {
        let Self::Reply(header, _) = self else {
            panic!("{self:?} is no reply");
        };
        header.op
    }
}

/// A poll's answer, message by message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Polled {
    pub(crate) partition: u32,
    pub(crate) current_offset: u64,
    pub(crate) messages: Vec<(u64, Vec<u8>)>,
}

impl Polled {
    pub(crate) fn decode(body: &[u8]) -> Self {
        let head = PollHead::decode(&body[..PollHead::SIZE]).expect("a head");
        let mut messages = Vec::new();
        for record in batch::split(&body[PollHead::SIZE..]) {
            let (header, frames) = batch::frames(record.expect("a record")).expect("a batch");
            for frame in frames {
                let frame = frame.expect("a message");
                let offset = header.base_offset + u64::from(frame.offset_delta);
                messages.push((offset, frame.payload().to_vec()));
            }
        }
        assert_eq!(messages.len(), head.count as usize);
        Self {
            partition: head.partition_id,
            current_offset: head.current_offset,
            messages,
        }
    }

    pub(crate) fn offsets(&self) -> Vec<u64> {
        self.messages.iter().map(|(offset, _)| *offset).collect()
    }
}

/// A connection with an identity and a count of its requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) connection: ConnectionId,
    pub(crate) id: ClientId,
    pub(crate) session: u64,
    pub(crate) request: u64,
}

impl Client {
    /// Connects and says nothing.
    pub(crate) fn connect(node: &mut Node, id: u128) -> Self {
        Self {
            connection: node.connect(),
            id: ClientId(id),
            session: 0,
            request: 0,
        }
    }

    /// Connects and logs in.
    pub(crate) fn log_in(node: &mut Node, id: u128) -> Self {
        let mut client = Self::connect(node, id);
        client.log_in_again(node);
        client
    }

    pub(crate) fn log_in_again(&mut self, node: &mut Node) {
        let answer = self.ask(node, &login(USERNAME, PASSWORD));
        let payload = answer.result().expect("a login");
        let record = LoginRecord::decode(&payload).expect("a login record");
        assert_eq!(record.user_id, 0);
        assert_ne!(record.session, 0);
        self.session = record.session;
    }

    /// The frame of a request, numbered as clients number theirs.
    pub(crate) fn frame(&mut self, request: &Request<'_>) -> Bytes {
        let operation = request.operation();
        let (session, number) = match operation {
            Operation::Register => (0, 0),
            Operation::NonReplicated => (self.session, self.request + 1),
            _ => {
                self.request += 1;
                (self.session, self.request)
            }
        };
        self.numbered(request, session, number)
    }

    pub(crate) fn numbered(&self, request: &Request<'_>, session: u64, number: u64) -> Bytes {
        let header = RequestHeader::new(self.id, session, number, request.code());
        header::request(&header, &request.encode())
    }

    /// A command by its number, with any body.
    pub(crate) fn command(&self, code: u32, body: &[u8]) -> Bytes {
        let ping = RequestHeader::new(self.id, self.session, self.request + 1, Code::Ping);
        header::request(&RequestHeader { code, ..ping }, body)
    }

    pub(crate) fn ask(&mut self, node: &mut Node, request: &Request<'_>) -> Answer {
        let frame = self.frame(request);
        self.exchange(node, &frame)
    }

    /// Sends a frame and takes the one answer.
    pub(crate) fn exchange(&self, node: &mut Node, frame: &[u8]) -> Answer {
        node.send(self.connection, frame);
        self.take(node)
    }

    /// The one answer that has come.
    pub(crate) fn take(&self, node: &mut Node) -> Answer {
        let frames = node.frames(self.connection);
        let [frame] = frames.as_slice() else {
            panic!("{} frames for one request", frames.len());
        };
        Answer::of(frame)
    }

    pub(crate) fn create_topic(&mut self, node: &mut Node, partitions: u32) {
        if self.ask(node, &Request::GetStream(stream())).result() == Ok(Vec::new()) {
            self.ask(node, &create_stream("orders"))
                .result()
                .expect("created");
        }
        self.ask(node, &create_topic("paid", partitions))
            .result()
            .expect("created");
    }

    /// Sends messages to a partition; the offset of the first.
    pub(crate) fn produce(&mut self, node: &mut Node, partition: u32, payloads: &[&str]) -> u64 {
        let batch = batch_of(payloads);
        let request = send(Partitioning::PartitionId(partition), &batch, payloads.len());
        let confirmation = confirmed(&self.ask(node, &request));
        assert_eq!(confirmation.partition_id, partition);
        confirmation.base_offset
    }

    pub(crate) fn poll(
        &mut self,
        node: &mut Node,
        partition: u32,
        strategy: PollingStrategy,
        count: u32,
    ) -> Polled {
        let request = Request::PollMessages(poll(partition, strategy, count, false));
        Polled::decode(&self.ask(node, &request).result().expect("a poll"))
    }
}

pub(crate) fn name(text: &str) -> Name<'_> {
    Name::new(text).expect("short")
}

pub(crate) fn stream() -> Identifier<'static> {
    Identifier::Named(name("orders"))
}

pub(crate) fn topic() -> TopicTarget<'static> {
    TopicTarget {
        stream: stream(),
        topic: Identifier::Named(name("paid")),
    }
}

pub(crate) fn login<'a>(username: &'a str, password: &'a str) -> Request<'a> {
    let prefix = LoginPrefix {
        protocol_version: PROTOCOL_VERSION,
        sdk_name: name("rust-sdk"),
        sdk_version: ShortText("0.11.0"),
    };
    Request::Register(Login {
        prefix,
        credentials: Credentials::Password {
            username: name(username),
            password: Secret(password),
        },
        context: Text(""),
    })
}

/// No options.
pub(crate) fn no_options() -> wire::Options<'static> {
    wire::Options::decode(&[]).expect("an empty block")
}

pub(crate) fn create_stream(text: &str) -> Request<'_> {
    Request::CreateStream(CreateStream {
        name: name(text),
        options: no_options(),
    })
}

pub(crate) fn create_topic(text: &str, partitions_count: u32) -> Request<'_> {
    Request::CreateTopic(CreateTopic {
        stream: stream(),
        partitions_count,
        name: name(text),
        options: no_options(),
    })
}

/// The options block of a topic whose messages are synced before they are acknowledged.
pub(crate) fn persisted() -> OptionsBlock {
    let mut options = OptionsBlock::new();
    options.push("durability", Value::text("persisted"));
    options
}

pub(crate) fn batch_of(payloads: &[&str]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for (id, payload) in (1..).zip(payloads) {
        let message = Message {
            id,
            origin_timestamp: 5,
            payload: payload.as_bytes(),
            user_headers: &[],
        };
        builder.push(message).expect("a valid message");
    }
    builder.finish().expect("a batch")
}

pub(crate) fn send<'a>(
    partitioning: Partitioning<'a>,
    batch: &'a [u8],
    count: usize,
) -> Request<'a> {
    let TopicTarget { stream, topic } = topic();
    Request::SendMessages(SendMessages {
        target: SendTarget {
            stream,
            topic,
            partitioning,
            messages_count: u32::try_from(count).expect("few"),
        },
        batch,
    })
}

pub(crate) fn confirmed(answer: &Answer) -> Confirmation {
    let body = answer.result().expect("a confirmation");
    let Counted(confirmations) = Counted::<Confirmation>::decode(&body).expect("a list");
    assert_eq!(confirmations.len(), 1);
    confirmations[0]
}

pub(crate) fn consumer(id: u32) -> Consumer<'static> {
    Consumer {
        kind: ConsumerKind::Single,
        id: Identifier::Numeric(id),
    }
}

pub(crate) fn poll(
    partition: u32,
    strategy: PollingStrategy,
    count: u32,
    auto_commit: bool,
) -> PollMessages<'static> {
    let TopicTarget { stream, topic } = topic();
    PollMessages {
        consumer: consumer(7),
        stream,
        topic,
        partition: OptionalPartition(Some(partition)),
        strategy,
        count,
        auto_commit,
    }
}

pub(crate) fn offset_of(consumer: Consumer<'static>, partition: u32) -> OffsetTarget<'static> {
    let TopicTarget { stream, topic } = topic();
    OffsetTarget {
        consumer,
        stream,
        topic,
        partition: OptionalPartition(Some(partition)),
    }
}

pub(crate) fn store(partition: u32, offset: u64) -> Request<'static> {
    Request::StoreConsumerOffset(StoreConsumerOffset {
        target: offset_of(consumer(7), partition),
        offset,
        ack: wire::AckLevel::Quorum,
    })
}
