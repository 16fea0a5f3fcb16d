//! The machine over tokio: a socket, a clock and nothing that decides.
//!
//! A [`Connection`] is driven by whoever waits for an answer; there is no task behind it. Dropping
//! the future of a call leaves its request with the machine, which finishes it during the next.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use client::{ClientConfig, Polled, driver::{Connection, random_id}};
//! use wire::{Identifier, Name, Options, Partitioning, batch::Message, request::TopicTarget};
//!
//! let nodes = vec!["127.0.0.1:8090".parse()?];
//! let config = ClientConfig::new(random_id()?, nodes, ("iggy", "iggy"));
//! let mut connection = Connection::connect(config).await?;
//! connection.create_stream("shop").await?;
//! let stream = Identifier::Named(Name::new("shop").ok_or("a name")?);
//! connection.create_topic(stream, "orders", 1, Options::default()).await?;
//! let topic = Identifier::Named(Name::new("orders").ok_or("a name")?);
//! let topic = TopicTarget { stream, topic };
//! let message = Message { id: 1, origin_timestamp: 0, payload: b"tea", user_headers: &[] };
//! connection.send(topic, Partitioning::PartitionId(0), &[message]).await?;
//! let reply = connection.poll_from(topic, 0, 0, 10).await?;
//! for message in Polled::read(&reply)?.messages {
//!     println!("{}: {:?}", message.offset, message.frame.payload());
//! }
//! # Ok(())
//! # }
//! ```

use std::{
    collections::VecDeque,
    fmt, io,
    pin::Pin,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base::{Buffer, Bytes, ClientId, Instant, Timestamp};
use platform::{ConnectionId, Effect, Event, NetworkEvent, Now, Outbox};
use tokio::{
    io::Interest,
    net::TcpStream,
    time::{Instant as Clock, sleep_until},
};
use wire::{
    AckLevel, BatchBuilder, BatchError, Consumer, ErrorCode, Identifier, Name, OptionalPartition,
    Options, Partitioning, PollingStrategy, Request,
    batch::Message,
    reply::{Confirmation, ConsumerOffset},
    request::{
        CreateStream, CreateTopic, DeleteConsumerOffset, OffsetTarget, PollMessages, SendMessages,
        SendTarget, StoreConsumerOffset, TopicTarget,
    },
};

use crate::{
    Client, ClientConfig, ClientError, Completion, PayloadError, Reply, StopReason, SubmitError,
    Ticket,
};

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The request came to a bad end.
    Client(ClientError),
    /// The request was not taken.
    Submit(SubmitError),
    /// The reply makes no sense.
    Payload(PayloadError),
    /// The messages make no batch.
    Batch(BatchError),
    /// A name is not 1 to 255 bytes long.
    Name,
}

impl Error {
    /// The server's code, if it refused.
    #[must_use]
    pub const fn code(self) -> Option<ErrorCode> {
        match self {
            Self::Client(ClientError::Refused { code, .. }) => Some(code),
            _ => None,
        }
    }
}

impl From<ClientError> for Error {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<PayloadError> for Error {
    fn from(error: PayloadError) -> Self {
        Self::Payload(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::Submit(error) => write!(f, "not taken: {error:?}"),
            Self::Payload(error) => error.fmt(f),
            Self::Batch(error) => error.fmt(f),
            Self::Name => f.write_str("a name must be 1 to 255 bytes long"),
        }
    }
}

impl std::error::Error for Error {}

/// A random identity, from the kernel.
///
/// # Errors
/// If the kernel's source of randomness cannot be read.
pub fn random_id() -> io::Result<ClientId> {
    use io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(ClientId(u128::from_le_bytes(bytes) | 1))
}

/// A logged-in client.
pub struct Connection {
    client: Client,
    started: Clock,
    socket: Socket,
    out: Outbox,
    /// What ended and nobody has asked for yet.
    ended: Vec<Completion>,
}

impl Connection {
    /// Connects to the first node that answers, and logs in.
    ///
    /// # Errors
    /// If no node has let the client in within the request timeout, or one has refused it.
    pub async fn connect(config: ClientConfig) -> Result<Self, Error> {
        let started = Clock::now();
        let mut out = Outbox::new();
        let seed = u64::try_from(config.id.0 >> 64).expect("the upper half");
        let limit = started + config.timing.request_timeout;
        let client = Client::new(config, seed, now_since(started), &mut out);
        let ended = Vec::new();
        let mut connection = Self {
            client,
            started,
            socket: Socket::Closed,
            out,
            ended,
        };
        while !connection.client.is_ready() {
            if let Some(reason) = connection.client.stopped() {
                return Err(ClientError::Stopped {
                    reason,
                    maybe_applied: false,
                }
                .into());
            }
            if Clock::now() >= limit {
                return Err(ClientError::Timeout {
                    maybe_applied: false,
                }
                .into());
            }
            connection.turn(Some(limit)).await;
        }
        Ok(connection)
    }

    /// Sends a request and waits for its end.
    ///
    /// # Errors
    /// If it was not taken or came to a bad end.
    pub async fn request(&mut self, request: &Request<'_>) -> Result<Reply, Error> {
        let now = now_since(self.started);
        let ticket = self
            .client
            .submit(now, request, &mut self.out)
            .map_err(Error::Submit)?;
        // Ends of calls that were dropped: nobody waits for them.
        self.ended.clear();
        loop {
            if let Some(completion) = self.take_ended(ticket) {
                return completion.outcome.map_err(Error::Client);
            }
            self.turn(None).await;
        }
    }

    fn take_ended(&mut self, ticket: Ticket) -> Option<Completion> {
        let at = self
            .ended
            .iter()
            .position(|completion| completion.ticket == ticket)?;
        Some(self.ended.remove(at))
    }

    /// One event or timer, and what follows from it.
    async fn turn(&mut self, limit: Option<Clock>) {
        self.execute();
        let deadline = self.client.deadline().map(|at| self.clock(at));
        let until = [deadline, limit].into_iter().flatten().min();
        let event = self.socket.next_event(until).await;
        let now = now_since(self.started);
        if let Some(event) = event {
            self.client
                .on_event(now, Event::Network(event), &mut self.out);
        }
        self.client.on_timers(now, &mut self.out);
        self.execute();
        self.ended.extend(self.client.take_completions());
    }

    fn clock(&self, at: Instant) -> Clock {
        self.started + Duration::from_micros(at.0)
    }

    fn execute(&mut self) {
        for effect in self.out.drain(..) {
            self.socket.execute(effect);
        }
    }

    /// Ends the session: the server sees the connection close.
    pub fn close(mut self) {
        self.client.close(&mut self.out);
        self.execute();
    }

    /// Why the client gave up, if it did.
    #[must_use]
    pub const fn stopped(&self) -> Option<StopReason> {
        self.client.stopped()
    }

    /// Asks for nothing but an answer.
    ///
    /// # Errors
    /// See [`Self::request`].
    pub async fn ping(&mut self) -> Result<(), Error> {
        self.request(&Request::Ping).await.map(drop)
    }

    /// The nodes; decode the reply as [`wire::reply::ClusterMetadata`].
    ///
    /// # Errors
    /// See [`Self::request`].
    pub async fn cluster_metadata(&mut self) -> Result<Reply, Error> {
        self.request(&Request::GetClusterMetadata).await
    }

    /// Creates a stream; decode the reply as [`wire::reply::StreamDetails`].
    ///
    /// # Errors
    /// See [`Self::request`].
    pub async fn create_stream(&mut self, name: &str) -> Result<Reply, Error> {
        let name = Name::new(name).ok_or(Error::Name)?;
        self.request(&Request::CreateStream(CreateStream {
            name,
            options: Options::default(),
        }))
        .await
    }

    /// Deletes a stream.
    ///
    /// # Errors
    /// See [`Self::request`].
    pub async fn delete_stream(&mut self, stream: Identifier<'_>) -> Result<(), Error> {
        self.request(&Request::DeleteStream(stream)).await.map(drop)
    }

    /// Creates a topic; decode the reply as [`wire::reply::TopicDetails`].
    ///
    /// # Errors
    /// See [`Self::request`].
    pub async fn create_topic(
        &mut self,
        stream: Identifier<'_>,
        name: &str,
        partitions_count: u32,
        options: Options<'_>,
    ) -> Result<Reply, Error> {
        let name = Name::new(name).ok_or(Error::Name)?;
        let topic = CreateTopic {
            stream,
            partitions_count,
            name,
            options,
        };
        self.request(&Request::CreateTopic(topic)).await
    }

    /// Deletes a topic.
    ///
    /// # Errors
    /// See [`Self::request`].
    pub async fn delete_topic(&mut self, topic: TopicTarget<'_>) -> Result<(), Error> {
        self.request(&Request::DeleteTopic(topic)).await.map(drop)
    }

    /// Appends messages; tells where, if the server still knows.
    ///
    /// # Errors
    /// If the messages make no batch; else see [`Self::request`].
    pub async fn send(
        &mut self,
        topic: TopicTarget<'_>,
        partitioning: Partitioning<'_>,
        messages: &[Message<'_>],
    ) -> Result<Option<Confirmation>, Error> {
        let mut builder = BatchBuilder::new();
        for message in messages {
            builder.push(*message).map_err(Error::Batch)?;
        }
        let messages_count = builder.message_count();
        let batch = builder.finish().map_err(Error::Batch)?;
        let TopicTarget { stream, topic } = topic;
        let target = SendTarget {
            stream,
            topic,
            partitioning,
            messages_count,
        };
        let send = SendMessages {
            target,
            batch: &batch,
        };
        let reply = self.request(&Request::SendMessages(send)).await?;
        Ok(reply.confirmations()?.first().copied())
    }

    /// Reads messages; read the reply with [`crate::Polled::read`].
    ///
    /// # Errors
    /// See [`Self::request`].
    pub async fn poll(&mut self, poll: PollMessages<'_>) -> Result<Reply, Error> {
        self.request(&Request::PollMessages(poll)).await
    }

    /// Reads up to `count` messages of a partition from an offset on, for no consumer's account.
    ///
    /// # Errors
    /// See [`Self::request`].
    pub async fn poll_from(
        &mut self,
        topic: TopicTarget<'_>,
        partition: u32,
        offset: u64,
        count: u32,
    ) -> Result<Reply, Error> {
        let consumer = Consumer {
            kind: wire::ConsumerKind::Single,
            id: Identifier::Numeric(0),
        };
        self.poll(PollMessages {
            consumer,
            stream: topic.stream,
            topic: topic.topic,
            partition: OptionalPartition(Some(partition)),
            strategy: PollingStrategy::Offset(offset),
            count,
            auto_commit: false,
        })
        .await
    }

    /// A consumer's stored offset, if there is one.
    ///
    /// # Errors
    /// See [`Self::request`].
    pub async fn get_offset(
        &mut self,
        target: OffsetTarget<'_>,
    ) -> Result<Option<ConsumerOffset>, Error> {
        let reply = self.request(&Request::GetConsumerOffset(target)).await?;
        Ok(reply.decode_optional().map_err(PayloadError::Record)?)
    }

    /// Stores a consumer's offset.
    ///
    /// # Errors
    /// See [`Self::request`].
    pub async fn store_offset(
        &mut self,
        target: OffsetTarget<'_>,
        offset: u64,
    ) -> Result<(), Error> {
        let store = StoreConsumerOffset {
            target,
            offset,
            ack: AckLevel::Quorum,
        };
        self.request(&Request::StoreConsumerOffset(store))
            .await
            .map(drop)
    }

    /// Forgets a consumer's offset.
    ///
    /// # Errors
    /// See [`Self::request`].
    pub async fn delete_offset(&mut self, target: OffsetTarget<'_>) -> Result<(), Error> {
        let delete = DeleteConsumerOffset {
            target,
            ack: AckLevel::Quorum,
        };
        self.request(&Request::DeleteConsumerOffset(delete))
            .await
            .map(drop)
    }
}

fn now_since(started: Clock) -> Now {
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let realtime = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Now {
        monotonic: Instant(micros(started.elapsed())),
        realtime: Timestamp(micros(realtime)),
    }
}

type Dial = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// The one socket that a client has at a time.
enum Socket {
    Closed,
    Dialing {
        connection: ConnectionId,
        dial: Dial,
    },
    Open {
        connection: ConnectionId,
        stream: TcpStream,
        receive: Option<Buffer>,
        sends: VecDeque<Bytes>,
        /// Bytes of the first of `sends` that are written.
        written: usize,
    },
}

impl Socket {
    fn execute(&mut self, effect: Effect) {
        match (effect, self) {
            (
                Effect::Connect {
                    connection,
                    address,
                },
                socket,
            ) => {
                *socket = Self::Dialing {
                    connection,
                    dial: Box::pin(dial(address)),
                };
            }
            (Effect::Close { .. }, socket) => *socket = Self::Closed,
            (Effect::Receive { buffer, .. }, Self::Open { receive, .. }) => {
                *receive = Some(buffer);
            }
            (Effect::Send { bytes, .. }, Self::Open { sends, .. }) => sends.push_back(bytes),
            // The machine asks for nothing else, and asks a socket that is gone for nothing.
            _ => {}
        }
    }

    /// The next thing that happens on the socket; nothing once it is `until`.
    async fn next_event(&mut self, until: Option<Clock>) -> Option<NetworkEvent> {
        let timer = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = self.wait() => Some(event),
            () = timer => None,
        }
    }

    async fn wait(&mut self) -> NetworkEvent {
        match self {
            Self::Closed => std::future::pending().await,
            Self::Dialing { connection, dial } => {
                let connection = *connection;
                let Ok(stream) = dial.await else {
                    *self = Self::Closed;
                    return NetworkEvent::Closed { connection };
                };
                let sends = VecDeque::new();
                *self = Self::Open {
                    connection,
                    stream,
                    receive: None,
                    sends,
                    written: 0,
                };
                NetworkEvent::Connected { connection }
            }
            Self::Open { .. } => match self.transfer().await {
                Ok(event) => event,
                Err(connection) => {
                    *self = Self::Closed;
                    NetworkEvent::Closed { connection }
                }
            },
        }
    }

    /// Reads or writes what can be; the error is the connection that is gone.
    async fn transfer(&mut self) -> Result<NetworkEvent, ConnectionId> {
        let Self::Open {
            connection,
            stream,
            receive,
            sends,
            written,
        } = self
        else {
            return std::future::pending().await;
        };
        let connection = *connection;
        loop {
            let interest = match (receive.is_some(), sends.is_empty()) {
                (true, true) => Interest::READABLE,
                (true, false) => Interest::READABLE | Interest::WRITABLE,
                (false, false) => Interest::WRITABLE,
                (false, true) => return std::future::pending().await,
            };
            stream.ready(interest).await.map_err(|_| connection)?;
            if let Some(bytes) = sends.front() {
                match stream.try_write(&bytes[*written..]) {
                    Ok(count) => *written += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return Err(connection),
                }
                if *written == bytes.len() {
                    let size = core::mem::take(written);
                    sends.pop_front();
                    return Ok(NetworkEvent::Sent { connection, size });
                }
            }
            if let Some(mut buffer) = receive.take() {
                match stream.try_read(buffer.spare_mut()) {
                    Ok(0) => return Err(connection),
                    Ok(count) => {
                        buffer.advance(count);
                        return Ok(NetworkEvent::Received { connection, buffer });
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        *receive = Some(buffer);
                    }
                    Err(_) => return Err(connection),
                }
            }
        }
    }
}

async fn dial(address: platform::Address) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
