//! A node: its shards, and everything a body does for them, one turn after the other.

use core::time::Duration;
use std::{
    collections::{BTreeMap, VecDeque},
    net::{Ipv4Addr, SocketAddr},
};

use base::{Buffer, Bytes, Instant, ReplicaIndex, ShardIndex, Timestamp};
use platform::{
    Address, ConnectionId, DiskDone, DiskRequest, Effect, Event, Facts, Fatal, ListenerId,
    NetworkEvent, Now, Outbox, Outcome, SecretText, Token, Work,
};
use server::{
    EncryptionKey, Limits, NodeAddress, Observation, RootCredential, Shard, ShardConfig, Timing,
};
use wire::ArchiveContent;

use crate::{disk::Disk, meter};

pub(crate) const CLUSTER: u128 = 0xC1;
pub(crate) const USERNAME: &str = "iggy";
pub(crate) const PASSWORD: &str = "secret";
pub(crate) const CLIENT_PORT: u16 = 8090;

/// Where the realtime clock starts, in microseconds.
const EPOCH: u64 = 1_700_000_000_000_000;

/// A client connection as the body sees it.
#[derive(Default)]
struct Socket {
    shard: usize,
    /// Sent by the client, not yet received by the shard.
    arriving: VecDeque<u8>,
    receive: Option<Buffer>,
    /// Sent by the shard.
    sent: Vec<u8>,
    /// Whether the client takes what it is sent off the wire.
    stalled: bool,
    /// Sizes of sends that have not been told to be sent.
    unsent: Vec<usize>,
    closed: bool,
    /// Closed by the other side; the shard may not have been told yet.
    gone: bool,
}

/// A connection that a shard wants to another node.
pub(crate) struct Dial {
    pub(crate) connection: ConnectionId,
    pub(crate) address: Address,
}

/// What a test may choose.
#[derive(Clone, Default)]
pub(crate) struct Options {
    pub(crate) shards: usize,
    /// Other nodes of the roster.
    pub(crate) peers: u8,
    /// This node's number; the last, unless it is said.
    pub(crate) replica: Option<u8>,
    pub(crate) encryption: Option<EncryptionKey>,
    pub(crate) limits: Limits,
    pub(crate) timing: Timing,
}

pub(crate) struct Node {
    pub(crate) options: Options,
    pub(crate) shards: Vec<Shard>,
    pub(crate) disk: Disk,
    pub(crate) time: u64,
    /// What the realtime clock is off, in microseconds.
    pub(crate) clock: i64,
    boot: u128,
    starts: u64,
    events: Vec<VecDeque<Event>>,
    sockets: BTreeMap<ConnectionId, Socket>,
    connections_made: u64,
    /// Disk requests of these owners are executed only when they are let go.
    pub(crate) hold: Option<fn(&DiskRequest) -> bool>,
    held: Vec<(usize, Token, DiskRequest)>,
    /// Passwords are verified only when this is off.
    pub(crate) hold_logins: bool,
    /// Archives are made only when this is off.
    pub(crate) hold_archives: bool,
    archives: Vec<(usize, Event)>,
    logins: Vec<(usize, Token, bool)>,
    minted: u64,
    pub(crate) ready: usize,
    pub(crate) stopped: usize,
    pub(crate) halted: Option<Fatal>,
    pub(crate) log: Vec<String>,
    pub(crate) observations: Vec<Observation>,
    pub(crate) dials: Vec<Dial>,
}

impl Node {
    pub(crate) fn new(shards: usize) -> Self {
        Self::with(Options {
            shards,
            ..Options::default()
        })
    }

    pub(crate) fn with(options: Options) -> Self {
        let mut node = Self {
            options,
            shards: Vec::new(),
            disk: Disk::default(),
            time: 0,
            clock: 0,
            boot: 1,
            starts: 0,
            events: Vec::new(),
            sockets: BTreeMap::new(),
            connections_made: 0,
            hold: None,
            held: Vec::new(),
            hold_logins: false,
            hold_archives: false,
            archives: Vec::new(),
            logins: Vec::new(),
            minted: 0,
            ready: 0,
            stopped: 0,
            halted: None,
            log: Vec::new(),
            observations: Vec::new(),
            dials: Vec::new(),
        };
        node.start();
        node
    }

    pub(crate) fn start(&mut self) {
        self.starts += 1;
        (self.ready, self.stopped) = (0, 0);
        self.shards.clear();
        let count = self.options.shards;
        self.events = (0..count).map(|_| VecDeque::new()).collect();
        for shard in 0..count {
            let config = self.config(shard);
            let mut out = Outbox::new();
            let seed = self.starts;
            let machine = Shard::new(config, seed, self.now(), &mut out);
            self.shards.push(machine);
            self.execute(shard, out);
        }
        self.run();
    }

    fn config(&self, shard: usize) -> ShardConfig {
        let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        ShardConfig {
            cluster: CLUSTER,
            cluster_name: "single-node".into(),
            replica: ReplicaIndex(self.options.replica.unwrap_or(self.options.peers)),
            shard: ShardIndex(u16::try_from(shard).expect("few shards")),
            shard_count: u16::try_from(self.options.shards).expect("few shards"),
            nodes: (0..=self.options.peers)
                .map(|index| NodeAddress {
                    name: format!("node-{index}"),
                    client_host: "127.0.0.1".into(),
                    client_port: 0,
                    replica: address(9090 + u16::from(index)),
                })
                .collect(),
            client_listen: address(0),
            replica_listen: (self.options.peers > 0).then(|| address(9090)),
            boot_id: self.boot,
            root: RootCredential {
                username: USERNAME.into(),
                hash: hash_of(PASSWORD),
            },
            encryption: self.options.encryption.clone(),
            limits: self.options.limits.clone(),
            timing: self.options.timing.clone(),
            observe: true,
        }
    }

    /// The process dies and starts again; what was written stays.
    pub(crate) fn crash(&mut self) {
        self.kill();
        self.start();
    }

    /// The process dies.
    pub(crate) fn kill(&mut self) {
        self.shards.clear();
        self.events.clear();
        self.sockets.clear();
        self.dials.clear();
        self.held.clear();
        self.logins.clear();
        self.disk.crash();
    }

    /// As [`Self::crash`], on another boot of the machine (which has lost nothing).
    pub(crate) fn reboot(&mut self) {
        self.boot += 1;
        self.crash();
    }

    /// The disk of a dead node is replaced by an empty one.
    pub(crate) fn wipe(&mut self) {
        assert!(self.shards.is_empty(), "a dead node");
        self.disk = Disk::default();
        self.boot += 1;
    }

    pub(crate) fn stop(&mut self) {
        for events in &mut self.events {
            events.push_back(Event::Stop);
        }
        self.run();
    }

    pub(crate) fn now(&self) -> Now {
        Now {
            monotonic: Instant(self.time),
            realtime: Timestamp((EPOCH + self.time).saturating_add_signed(self.clock)),
        }
    }

    /// Turns until there is nothing left to tell the shards.
    pub(crate) fn run(&mut self) {
        let mut turns = 0;
        loop {
            for shard in 0..self.shards.len() {
                self.turn(shard);
            }
            if self.events.iter().all(VecDeque::is_empty) {
                return;
            }
            turns += 1;
            assert!(turns < 100_000, "the shards do not come to rest");
        }
    }

    fn turn(&mut self, shard: usize) {
        let now = self.now();
        let mut out = Outbox::new();
        for event in std::mem::take(&mut self.events[shard]) {
            let machine = &mut self.shards[shard];
            meter::inside(|| machine.on_event(now, event, &mut out));
        }
        let machine = &mut self.shards[shard];
        meter::inside(|| machine.on_timers(now, &mut out));
        let seen = self.shards[shard].take_observations();
        self.observations.extend(seen);
        self.execute(shard, out);
    }

    /// When the next timer is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.shards.iter().filter_map(Shard::deadline).min()
    }

    /// Lets time pass, timer by timer.
    pub(crate) fn pass(&mut self, duration: Duration) {
        let until = Instant(self.time) + duration;
        while let Some(at) = self.deadline().filter(|at| *at <= until) {
            self.time = self.time.max(at.0);
            self.run();
        }
        self.time = until.0;
        self.run();
    }

    /// Lets everything that has a timer happen.
    pub(crate) fn settle(&mut self) {
        self.pass(Duration::from_secs(60));
    }

    /// Executes what was held back.
    pub(crate) fn let_go(&mut self) {
        self.hold = None;
        for (shard, token, request) in std::mem::take(&mut self.held) {
            self.execute_disk(shard, token, request);
        }
        self.hold_archives = false;
        for (shard, event) in std::mem::take(&mut self.archives) {
            self.events[shard].push_back(event);
        }
        self.hold_logins = false;
        for (shard, token, verified) in std::mem::take(&mut self.logins) {
            self.tell_verified(shard, token, verified);
        }
        self.run();
    }

    /// Executes the first request that was held back; others go on being held.
    pub(crate) fn let_one_go(&mut self) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let (shard, token, request) = self.held.remove(0);
        self.execute_disk(shard, token, request);
        self.run();
        true
    }

    pub(crate) fn held_count(&self) -> usize {
        self.held.len()
    }

    fn execute(&mut self, shard: usize, out: Outbox) {
        for effect in out {
            match effect {
                Effect::Disk { token, request } => {
                    if self.hold.is_some_and(|hold| hold(&request)) {
                        self.held.push((shard, token, request));
                    } else {
                        self.execute_disk(shard, token, request);
                    }
                }
                Effect::Post { to, letter } => {
                    let from = ShardIndex(u16::try_from(shard).expect("few shards"));
                    assert!(from != to, "a shard writes to others only");
                    self.events[usize::from(to.0)].push_back(Event::Letter { from, letter });
                }
                Effect::Compute { token, work } => self.compute(shard, token, work),
                Effect::Ready => self.ready += 1,
                Effect::Stopped => self.stopped += 1,
                Effect::Halt { fatal } => self.halted = Some(fatal),
                Effect::Log { line, .. } => self.log.push(line),
                effect => self.execute_network(shard, effect),
            }
        }
    }

    fn compute(&mut self, shard: usize, token: Token, work: Work) {
        let outcome = match work {
            Work::VerifyPassword { password, hash } => {
                let verified = hash.0 == hash_of(&password.0);
                if self.hold_logins {
                    return self.logins.push((shard, token, verified));
                }
                return self.tell_verified(shard, token, verified);
            }
            Work::HashPassword(password) => {
                Outcome::PasswordHashed(Some(SecretText(hash_of(&password.0))))
            }
            Work::MintToken => {
                self.minted += 1;
                let token = format!("token number {}", self.minted);
                let digest = digest_of(&token);
                Outcome::TokenMinted(Some((SecretText(token), digest)))
            }
            Work::DigestToken(token) => Outcome::TokenDigested(digest_of(&token.0)),
            Work::Measure => Outcome::Measured(Box::new(Facts {
                process_id: 77,
                hostname: "here".into(),
                ..Facts::default()
            })),
            Work::Archive {
                compression,
                contents,
            } => {
                let test = contents == [ArchiveContent::Test];
                let outcome = Outcome::Archived(test.then(|| vec![compression as u8]));
                if self.hold_archives {
                    let event = Event::Computed { token, outcome };
                    return self.archives.push((shard, event));
                }
                outcome
            }
        };
        self.events[shard].push_back(Event::Computed { token, outcome });
    }

    fn tell_verified(&mut self, shard: usize, token: Token, verified: bool) {
        let outcome = Outcome::PasswordVerified(verified);
        self.events[shard].push_back(Event::Computed { token, outcome });
    }

    fn execute_disk(&mut self, shard: usize, token: Token, request: DiskRequest) {
        let result = self.disk.execute(shard, request);
        let done = DiskDone { token, result };
        self.events[shard].push_back(Event::Disk(done));
    }

    fn execute_network(&mut self, shard: usize, effect: Effect) {
        let event = match effect {
            Effect::Listen { listener, .. } => {
                let address = Address::from((Ipv4Addr::LOCALHOST, CLIENT_PORT));
                NetworkEvent::Listening { listener, address }
            }
            Effect::Connect {
                connection,
                address,
            } => {
                let socket = Socket {
                    shard,
                    ..Socket::default()
                };
                self.sockets.insert(connection, socket);
                let dial = Dial {
                    connection,
                    address,
                };
                return self.dials.push(dial);
            }
            Effect::HandOver {
                connection,
                to,
                received,
                listener,
            } => {
                let to = usize::from(to.0);
                self.sockets.get_mut(&connection).expect("known").shard = to;
                let adopted = NetworkEvent::Adopted {
                    listener,
                    connection,
                    peer: peer(),
                    received,
                };
                return self.events[to].push_back(Event::Network(adopted));
            }
            Effect::Receive { connection, buffer } => {
                let socket = self.socket(shard, connection);
                assert!(socket.receive.is_none(), "one receive at a time");
                socket.receive = Some(buffer);
                return self.deliver(connection);
            }
            Effect::Send { connection, bytes } => {
                let socket = self.socket(shard, connection);
                socket.sent.extend_from_slice(&bytes);
                let size = bytes.len();
                if socket.stalled {
                    return socket.unsent.push(size);
                }
                NetworkEvent::Sent { connection, size }
            }
            Effect::Close { connection } => {
                let socket = self.socket(shard, connection);
                socket.closed = true;
                let about = |event: &Event| {
                    matches!(event, Event::Network(
                        NetworkEvent::Received { connection: id, .. }
                        | NetworkEvent::Sent { connection: id, .. }
                    ) if *id == connection)
                };
                return self.events[shard].retain(|event| !about(event));
            }
            effect => panic!("{effect:?} is not for one node"),
        };
        self.events[shard].push_back(Event::Network(event));
    }

    fn socket(&mut self, shard: usize, connection: ConnectionId) -> &mut Socket {
        let socket = self.sockets.get_mut(&connection).expect("known");
        assert_eq!(socket.shard, shard, "only its owner may name a connection");
        assert!(!socket.closed, "a closed connection is not named again");
        socket
    }

    /// Hands over bytes that have arrived, if the shard asked for them.
    fn deliver(&mut self, connection: ConnectionId) {
        let socket = self.sockets.get_mut(&connection).expect("known");
        if socket.arriving.is_empty() {
            return;
        }
        let Some(mut buffer) = socket.receive.take() else {
            return;
        };
        let count = buffer.spare_mut().len().min(socket.arriving.len());
        let bytes: Vec<u8> = socket.arriving.drain(..count).collect();
        buffer.spare_mut()[..count].copy_from_slice(&bytes);
        buffer.advance(count);
        let received = NetworkEvent::Received { connection, buffer };
        self.events[socket.shard].push_back(Event::Network(received));
    }

    /// A client connects.
    pub(crate) fn connect(&mut self) -> ConnectionId {
        self.connect_to(ListenerId::CLIENT)
    }

    /// Somebody connects.
    pub(crate) fn connect_to(&mut self, listener: ListenerId) -> ConnectionId {
        let connection = self.accept(listener);
        self.run();
        connection
    }

    /// Somebody connects; to be told at the next turn.
    pub(crate) fn accept(&mut self, listener: ListenerId) -> ConnectionId {
        self.connections_made += 1;
        let connection = ConnectionId(self.connections_made);
        self.sockets.insert(connection, Socket::default());
        let accepted = NetworkEvent::Accepted {
            listener,
            connection,
            peer: peer(),
        };
        self.events[0].push_back(Event::Network(accepted));
        connection
    }

    /// A client sends bytes.
    pub(crate) fn send(&mut self, connection: ConnectionId, bytes: &[u8]) {
        let socket = self.sockets.get_mut(&connection).expect("known");
        if socket.closed {
            return;
        }
        socket.arriving.extend(bytes);
        self.deliver(connection);
        self.run();
    }

    /// Something happens to a connection; to be told at the next turn.
    pub(crate) fn tell(&mut self, connection: ConnectionId, event: NetworkEvent) {
        let socket = self.sockets.get_mut(&connection).expect("known");
        if matches!(event, NetworkEvent::Closed { .. }) {
            socket.gone = true;
        }
        self.events[socket.shard].push_back(Event::Network(event));
    }

    /// Bytes that a shard has sent; none if it has closed the connection.
    pub(crate) fn take_sent(&mut self, connection: ConnectionId) -> Option<Vec<u8>> {
        let socket = self.sockets.get_mut(&connection)?;
        let sent = std::mem::take(&mut socket.sent);
        (!socket.closed && !socket.gone).then_some(sent)
    }

    /// Bytes arrive; to be told at the next turn.
    pub(crate) fn arrive(&mut self, connection: ConnectionId, bytes: &[u8]) {
        let socket = self.sockets.get_mut(&connection).expect("known");
        socket.arriving.extend(bytes);
        self.deliver(connection);
    }

    /// Whether the shards have something to be told.
    pub(crate) fn is_busy(&self) -> bool {
        self.events.iter().any(|events| !events.is_empty()) || !self.dials.is_empty()
    }

    /// A client goes away.
    pub(crate) fn disconnect(&mut self, connection: ConnectionId) {
        let socket = self.sockets.get_mut(&connection).expect("known");
        if !std::mem::replace(&mut socket.closed, true) {
            let closed = NetworkEvent::Closed { connection };
            self.events[socket.shard].push_back(Event::Network(closed));
        }
        self.run();
    }

    /// A client stops reading, or goes on.
    pub(crate) fn stall(&mut self, connection: ConnectionId, stalled: bool) {
        let socket = self.sockets.get_mut(&connection).expect("known");
        socket.stalled = stalled;
        if !stalled && !socket.closed {
            for size in std::mem::take(&mut socket.unsent) {
                let sent = NetworkEvent::Sent { connection, size };
                self.events[socket.shard].push_back(Event::Network(sent));
            }
        }
        self.run();
    }

    pub(crate) fn is_closed(&self, connection: ConnectionId) -> bool {
        self.sockets[&connection].closed
    }

    /// Whether the shard waits for bytes of this connection.
    pub(crate) fn is_read(&self, connection: ConnectionId) -> bool {
        self.sockets[&connection].receive.is_some()
    }

    pub(crate) fn shard_of(&self, connection: ConnectionId) -> usize {
        self.sockets[&connection].shard
    }

    /// The whole frames sent to a client since the last call.
    pub(crate) fn frames(&mut self, connection: ConnectionId) -> Vec<Bytes> {
        let socket = self.sockets.get_mut(&connection).expect("known");
        let bytes = Bytes::copy_of(&std::mem::take(&mut socket.sent));
        let mut frames = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let size = wire::array(&bytes[at..], 48).map(u32::from_le_bytes);
            let end = at + size.expect("a whole header") as usize;
            frames.push(bytes.slice(at, end));
            at = end;
        }
        frames
    }
}

fn peer() -> Address {
    Address::from((Ipv4Addr::LOCALHOST, 50_000))
}

/// Stands for the hash of a password.
fn hash_of(password: &str) -> String {
    let digest = base::checksum::xxh3_128(password.as_bytes());
    format!("$argon2id$test${digest:032x}")
}

/// Stands for the digest of a token.
fn digest_of(token: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    let digest = base::checksum::xxh3_128(token.as_bytes());
    bytes[..16].copy_from_slice(&digest.to_le_bytes());
    bytes
}
