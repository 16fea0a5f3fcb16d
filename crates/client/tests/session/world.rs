//! A client, and the network and the server in the test's own hands.

use base::{Buffer, Bytes, ClientId, Instant};
use client::{Client, ClientConfig, ClientError, Completion, Ticket};
use platform::{Address, ConnectionId, Effect, Event, NetworkEvent, Now, Outbox};
use wire::{
    Codec, ErrorCode, EvictionHeader, EvictionReason, Name, Operation, Options, ReplyHeader,
    Request, RequestHeader, header, reply::LoginRecord, request::CreateStream, result,
};

pub(crate) const ID: ClientId = ClientId(0xc11e);

pub(crate) fn node(port: u16) -> Address {
    Address::from(([127, 0, 0, 1], port))
}

pub(crate) fn config() -> ClientConfig {
    ClientConfig::new(ID, vec![node(1), node(2)], ("iggy", "secret"))
}

pub(crate) fn create_stream() -> Request<'static> {
    let name = Name::new("orders").unwrap();
    Request::CreateStream(CreateStream {
        name,
        options: Options::default(),
    })
}

/// A client, and all it has asked of the world.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) now: Instant,
    pub(crate) out: Outbox,
    pub(crate) dialed: Vec<(ConnectionId, Address)>,
    pub(crate) closed: Vec<ConnectionId>,
    pub(crate) sent: Vec<(ConnectionId, Bytes)>,
    pub(crate) receiving: Option<(ConnectionId, Buffer)>,
    dialing: bool,
}

impl World {
    pub(crate) fn new(config: ClientConfig) -> Self {
        let mut out = Outbox::new();
        let client = Client::new(config, 7, Now::default(), &mut out);
        let mut world = Self {
            client,
            now: Instant::ZERO,
            out,
            dialed: Vec::new(),
            closed: Vec::new(),
            sent: Vec::new(),
            receiving: None,
            dialing: false,
        };
        world.execute();
        world
    }

    /// A world whose client is logged in under `session`, on node 1.
    pub(crate) fn logged_in(session: u64) -> Self {
        let mut world = Self::new(config());
        world.connect();
        world.welcome(session);
        assert!(world.client.is_ready());
        world
    }

    pub(crate) fn now(&self) -> Now {
        Now {
            monotonic: self.now,
            ..Now::default()
        }
    }

    pub(crate) fn execute(&mut self) {
        for effect in self.out.drain(..) {
            match effect {
                Effect::Connect {
                    connection,
                    address,
                } => {
                    self.dialed.push((connection, address));
                    self.dialing = true;
                }
                Effect::Receive { connection, buffer } => {
                    self.receiving = Some((connection, buffer));
                }
                Effect::Send { connection, bytes } => self.sent.push((connection, bytes)),
                Effect::Close { connection } => {
                    self.closed.push(connection);
                    self.dialing = false;
                    self.receiving = None;
                }
                other => panic!("a client has no use for {other:?}"),
            }
        }
    }

    pub(crate) fn event(&mut self, event: NetworkEvent) {
        let now = self.now();
        self.client
            .on_event(now, Event::Network(event), &mut self.out);
        self.execute();
    }

    pub(crate) fn submit(&mut self, request: &Request<'_>) -> Ticket {
        let now = self.now();
        let ticket = self.client.submit(now, request, &mut self.out).unwrap();
        self.execute();
        ticket
    }

    /// Time goes on to the client's deadline.
    pub(crate) fn wait(&mut self) {
        self.now = self.now.max(self.client.deadline().unwrap());
        self.tick();
    }

    pub(crate) fn tick(&mut self) {
        let now = self.now();
        self.client.on_timers(now, &mut self.out);
        self.execute();
    }

    /// The last dialed connection stands.
    pub(crate) fn connect(&mut self) {
        let (connection, _) = *self.dialed.last().unwrap();
        self.dialing = false;
        self.event(NetworkEvent::Connected { connection });
    }

    pub(crate) fn lose(&mut self) {
        let (connection, _) = *self.dialed.last().unwrap();
        self.receiving = None;
        self.dialing = false;
        self.event(NetworkEvent::Closed { connection });
    }

    /// Whether a connection was dialed that neither stands nor is gone.
    pub(crate) const fn is_dialing(&self) -> bool {
        self.dialing
    }

    /// Lets the client dial again, and answers.
    pub(crate) fn reconnect(&mut self) {
        let dials = self.dialed.len();
        self.wait();
        assert_eq!(self.dialed.len(), dials + 1);
        self.connect();
    }

    /// The frame the client has just sent, on the newest connection; there is exactly one.
    pub(crate) fn take_sent(&mut self) -> (RequestHeader, Bytes) {
        assert_eq!(self.sent.len(), 1, "one frame at a time");
        let (connection, bytes) = self.sent.pop().unwrap();
        assert_eq!(connection, self.dialed.last().unwrap().0);
        (RequestHeader::decode(&bytes).unwrap(), bytes)
    }

    pub(crate) fn deliver(&mut self, bytes: &[u8], chunk: usize) {
        for part in bytes.chunks(chunk) {
            let (connection, mut buffer) = self.receiving.take().expect("the client reads on");
            buffer.spare_mut()[..part.len()].copy_from_slice(part);
            buffer.advance(part.len());
            self.event(NetworkEvent::Received { connection, buffer });
        }
    }

    pub(crate) fn reply(&mut self, to: &RequestHeader, body: &[u8]) {
        self.deliver(&header::reply(&ReplyHeader::to(to), body), usize::MAX);
    }

    pub(crate) fn refuse(&mut self, to: &RequestHeader, code: ErrorCode) {
        self.deliver(&header::denial(to, code), usize::MAX);
    }

    pub(crate) fn evict(&mut self, reason: EvictionReason) {
        self.deliver(
            &header::eviction(&EvictionHeader::new(ID, reason)),
            usize::MAX,
        );
    }

    /// Answers the login that has just been sent.
    pub(crate) fn welcome(&mut self, session: u64) {
        let (login, _) = self.take_sent();
        assert_eq!(login.operation, Operation::Register);
        self.accept(&login, session);
    }

    pub(crate) fn accept(&mut self, login: &RequestHeader, session: u64) {
        let record = LoginRecord {
            user_id: 0,
            session,
            server_protocol_version: wire::PROTOCOL_VERSION,
            server_version: Name::new("1").unwrap(),
        };
        self.reply(login, &result::encode_result(Ok(&record.encode())));
    }

    /// The only request that has ended.
    pub(crate) fn take_completion(&mut self) -> Completion {
        let mut completions = self.client.take_completions();
        assert_eq!(completions.len(), 1);
        completions.pop().unwrap()
    }

    pub(crate) fn take_error(&mut self) -> ClientError {
        self.take_completion().outcome.unwrap_err()
    }
}

/// Bytes of a request without the session, the only field that may change.
pub(crate) fn without_session(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[184..192].fill(0);
    frame
}
