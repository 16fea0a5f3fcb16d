//! Connections between processes: two byte streams each, delayed, cut into pieces, stalled by
//! partitions, reset, or left half-open by a machine that lost power.
//!
//! ```text
//!   send ─▶ queued ─▶ in flight ─(delay, unless cut)─▶ arrived ─▶ receive
//!            │            └── bounded: Sent is withheld while it is full ──┘
//! ```
//!
//! The network knows hosts by number and nothing of what runs there. It tells what happens as
//! [`Output`]s: events for a process, and timers that the world hands back at their time.
//!
//! **Invariant:** bytes of one direction arrive in order, once, or not at all from some point on.

mod faults;
mod path;
mod stream;

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

use base::{Buffer, Bytes, Domain, Prng};
pub(crate) use path::{Damage, Slowness};
use platform::{Address, ConnectionId, Event, ListenerId, NetworkEvent};

/// A machine: a node of the cluster or a client.
pub(crate) type Host = u16;

/// What the kernel of a host answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostState {
    /// The machine runs; whether a process listens is another matter.
    Up,
    /// No power: nothing is answered.
    Off,
}

/// Means and bounds of a run's network.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct NetworkSpeed {
    /// Least one-way delay in microseconds.
    pub(crate) delay_min: u64,
    /// Mean of what is added to it.
    pub(crate) delay_mean: u64,
    /// One delivery of this many comes in pieces; 0 is never.
    pub(crate) fragment_one_in: u64,
    /// Bytes on their way or unread in one direction.
    pub(crate) window: usize,
}

impl Default for NetworkSpeed {
    fn default() -> Self {
        Self {
            delay_min: 100,
            delay_mean: 400,
            fragment_one_in: 8,
            window: 256 << 10,
        }
    }
}

/// A timer of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetworkTimer {
    /// The next bytes towards a side arrive.
    Arrive { connection: u32, side: u8 },
    /// A dial is answered, refused or tried again.
    Dial { connection: u32, attempt: u8 },
    /// A side learns that the connection is gone.
    Gone { connection: u32, side: u8 },
}

/// What comes out of a call.
#[derive(Debug)]
pub(crate) enum Output {
    /// Hand the timer back at this time.
    Timer { at: u64, timer: NetworkTimer },
    /// Tell a shard of a host.
    Event {
        host: Host,
        shard: u16,
        event: NetworkEvent,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SideState {
    /// Dialed and not answered.
    Dialing,
    /// The other side of a dial that has not been accepted.
    Unborn,
    Open,
    /// Closed by this side, or told that it is gone.
    Closed,
    /// The process died; nobody is there to be told.
    Dead,
}

#[derive(Debug)]
enum Piece {
    Data(Bytes),
    Fin,
}

#[derive(Debug)]
struct Side {
    host: Host,
    shard: u16,
    id: ConnectionId,
    state: SideState,
    receive: Option<Buffer>,
    arrived: VecDeque<Bytes>,
    arrived_size: usize,
    fin_arrived: bool,
    /// Read here, but the sender could not be told because its direction is cut.
    unacknowledged: usize,
    queued: VecDeque<Bytes>,
    fin_queued: bool,
    in_flight: VecDeque<(u64, Piece)>,
    in_flight_size: usize,
    arrival_last: u64,
    arrival_scheduled: bool,
}

impl Side {
    const fn new(host: Host, shard: u16, id: ConnectionId, state: SideState) -> Self {
        Self {
            host,
            shard,
            id,
            state,
            receive: None,
            arrived: VecDeque::new(),
            arrived_size: 0,
            fin_arrived: false,
            unacknowledged: 0,
            queued: VecDeque::new(),
            fin_queued: false,
            in_flight: VecDeque::new(),
            in_flight_size: 0,
            arrival_last: 0,
            arrival_scheduled: false,
        }
    }

    /// Nothing more is read or written here.
    fn end(&mut self, state: SideState) {
        self.state = state;
        self.receive = None;
        self.arrived = VecDeque::new();
        self.arrived_size = 0;
    }
}

struct Connection {
    sides: [Side; 2],
    address: Address,
    listener: ListenerId,
    dial_started: u64,
    /// Something between the hosts has forgotten it: whoever is left hears nothing more.
    forgotten: bool,
    /// Bytes of it have been damaged on their way.
    damaged: bool,
}

struct Listening {
    host: Host,
    shard: u16,
    listener: ListenerId,
}

/// See the module.
pub(crate) struct Network {
    connections: BTreeMap<u32, Connection>,
    connection_next: u32,
    by_id: BTreeMap<(Host, ConnectionId), (u32, u8)>,
    listeners: BTreeMap<Address, Listening>,
    hosts: Vec<HostState>,
    accepted: Vec<u64>,
    /// The way from each host to each other, row by row.
    paths: Vec<path::Path>,
    speed: NetworkSpeed,
    prng: Prng,
    resets: u64,
}

/// Most bytes that go missing at a time: fewer than a header, so that a stream always shows it.
const HOLE_MAX: usize = wire::HEADER_SIZE - 1;

/// The first port that a listener without one is given.
const PORT_CHOSEN_MIN: u16 = 32_768;

/// How long a dial is tried, in microseconds.
const DIAL_TIMEOUT: u64 = 6_000_000;

impl Network {
    pub(crate) fn new(seed: u64, hosts: usize, speed: NetworkSpeed) -> Self {
        assert!(hosts <= 64);
        Self {
            connections: BTreeMap::new(),
            connection_next: 0,
            by_id: BTreeMap::new(),
            listeners: BTreeMap::new(),
            hosts: vec![HostState::Up; hosts],
            accepted: vec![0; hosts],
            paths: vec![path::Path::default(); hosts * hosts],
            speed,
            prng: Prng::new(seed, Domain::Network, 0),
            resets: 0,
        }
    }

    pub(crate) const fn resets(&self) -> u64 {
        self.resets
    }

    fn path(&mut self, from: Host, to: Host) -> &mut path::Path {
        &mut self.paths[usize::from(from) * self.hosts.len() + usize::from(to)]
    }

    /// Connections that carried damaged bytes and that nobody has closed.
    pub(crate) fn damaged_and_open(&self) -> usize {
        let open = |side: &Side| side.state == SideState::Open;
        let kept =
            |connection: &&Connection| connection.damaged && connection.sides.iter().all(open);
        self.connections.values().filter(kept).count()
    }

    /// Connections that a host knows of and has not closed.
    pub(crate) fn connections_of(&self, host: Host) -> usize {
        self.by_id.keys().filter(|(at, _)| *at == host).count()
    }

    pub(crate) fn listen(
        &mut self,
        host: Host,
        shard: u16,
        listener: ListenerId,
        mut address: Address,
        out: &mut Vec<Output>,
    ) {
        if address.port() == 0 {
            let taken = |port| {
                self.listeners
                    .contains_key(&Address::new(address.ip(), port))
            };
            let port = (PORT_CHOSEN_MIN..=u16::MAX).find(|&port| !taken(port));
            address.set_port(port.expect("few listeners"));
        }
        self.listeners.insert(
            address,
            Listening {
                host,
                shard,
                listener,
            },
        );
        let event = NetworkEvent::Listening { listener, address };
        out.push(Output::Event { host, shard, event });
    }

    pub(crate) fn connect(
        &mut self,
        now: u64,
        host: Host,
        shard: u16,
        id: ConnectionId,
        address: Address,
        out: &mut Vec<Output>,
    ) {
        let connection = self.connection_next;
        self.connection_next += 1;
        let dialer = Side::new(host, shard, id, SideState::Dialing);
        let acceptor = Side::new(host, 0, ConnectionId(0), SideState::Unborn);
        let sides = [dialer, acceptor];
        let listener = ListenerId::CLIENT;
        let entry = Connection {
            sides,
            address,
            listener,
            dial_started: now,
            forgotten: false,
            damaged: false,
        };
        self.connections.insert(connection, entry);
        let fresh = self.by_id.insert((host, id), (connection, 0)).is_none();
        assert!(fresh, "{id:?} is used twice");
        let at = now + self.delay() * 2;
        out.push(Output::Timer {
            at,
            timer: NetworkTimer::Dial {
                connection,
                attempt: 0,
            },
        });
    }

    /// Asks for more bytes.
    ///
    /// # Panics
    /// If a buffer is already there: a shard may ask once at a time.
    pub(crate) fn receive(
        &mut self,
        now: u64,
        host: Host,
        id: ConnectionId,
        buffer: Buffer,
        out: &mut Vec<Output>,
    ) {
        let Some(&(connection, side)) = self.by_id.get(&(host, id)) else {
            return;
        };
        assert!(buffer.capacity() > buffer.len(), "a receive needs room");
        let entry = self.connections.get_mut(&connection).expect("indexed");
        let side_state = &mut entry.sides[usize::from(side)];
        if side_state.state != SideState::Open {
            return;
        }
        assert!(side_state.receive.is_none(), "{id:?} asks twice");
        side_state.receive = Some(buffer);
        self.deliver(now, connection, side, out);
    }

    pub(crate) fn send(
        &mut self,
        now: u64,
        host: Host,
        id: ConnectionId,
        bytes: Bytes,
        out: &mut Vec<Output>,
    ) {
        let Some(&(connection, side)) = self.by_id.get(&(host, id)) else {
            return;
        };
        let entry = self.connections.get_mut(&connection).expect("indexed");
        let sender = &mut entry.sides[usize::from(side)];
        match sender.state {
            SideState::Open => {
                sender.queued.push_back(bytes);
                self.pump(now, connection, side, out);
            }
            // It leaves once the dial is answered.
            SideState::Dialing => sender.queued.push_back(bytes),
            SideState::Unborn | SideState::Closed | SideState::Dead => {}
        }
    }

    pub(crate) fn close(&mut self, now: u64, host: Host, id: ConnectionId, out: &mut Vec<Output>) {
        let Some((connection, side)) = self.by_id.remove(&(host, id)) else {
            return;
        };
        let entry = self.connections.get_mut(&connection).expect("indexed");
        let closer = &mut entry.sides[usize::from(side)];
        let dialing = closer.state == SideState::Dialing;
        closer.end(SideState::Closed);
        if dialing {
            self.connections.remove(&connection);
            return;
        }
        closer.fin_queued = true;
        self.pump(now, connection, side, out);
        self.collect(connection);
    }

    /// Another shard of the host has the connection from now on; the peer's address and the bytes
    /// it has not read stay with it.
    pub(crate) fn hand_over(&mut self, host: Host, id: ConnectionId, to: u16) -> Option<Address> {
        let &(connection, side) = self.by_id.get(&(host, id))?;
        let entry = self.connections.get_mut(&connection).expect("indexed");
        let given = &mut entry.sides[usize::from(side)];
        assert!(
            given.receive.is_none(),
            "{id:?} is handed over while it receives"
        );
        if given.state != SideState::Open {
            return None;
        }
        given.shard = to;
        let peer = entry.sides[usize::from(1 - side)].host;
        Some(address_of(peer, 40_000))
    }

    pub(crate) fn on_timer(&mut self, now: u64, timer: NetworkTimer, out: &mut Vec<Output>) {
        match timer {
            NetworkTimer::Arrive { connection, side } => self.arrive(now, connection, side, out),
            NetworkTimer::Dial {
                connection,
                attempt,
            } => {
                self.dial(now, connection, attempt, out);
            }
            NetworkTimer::Gone { connection, side } => self.gone(connection, side, out),
        }
    }

    fn dial(&mut self, now: u64, connection: u32, attempt: u8, out: &mut Vec<Output>) {
        let delay = self.delay();
        let Some(entry) = self.connections.get(&connection) else {
            return;
        };
        if entry.sides[0].state != SideState::Dialing {
            return;
        }
        let from = entry.sides[0].host;
        let host = host_of(entry.address);
        let silent = usize::from(host) >= self.hosts.len()
            || self.hosts[usize::from(host)] == HostState::Off
            || self.path(from, host).cut
            || self.path(host, from).cut;
        let entry = self.connections.get_mut(&connection).expect("just seen");
        if silent {
            if now - entry.dial_started > DIAL_TIMEOUT {
                self.gone(connection, 0, out);
                return;
            }
            let at = now + (1_000_000 << attempt.min(2)) + delay;
            let timer = NetworkTimer::Dial {
                connection,
                attempt: attempt.saturating_add(1),
            };
            out.push(Output::Timer { at, timer });
            return;
        }
        let Some(listening) = self.listeners.get(&entry.address) else {
            self.gone(connection, 0, out);
            return;
        };
        let accepted = &mut self.accepted[usize::from(listening.host)];
        *accepted += 1;
        let id = ConnectionId(*accepted);
        entry.listener = listening.listener;
        entry.sides[0].state = SideState::Open;
        entry.sides[1] = Side::new(listening.host, listening.shard, id, SideState::Open);
        self.by_id.insert((listening.host, id), (connection, 1));
        let dialer = &entry.sides[0];
        let event = NetworkEvent::Connected {
            connection: dialer.id,
        };
        out.push(Output::Event {
            host: dialer.host,
            shard: dialer.shard,
            event,
        });
        let (listener, peer) = (listening.listener, address_of(from, 40_000));
        let event = NetworkEvent::Accepted {
            listener,
            connection: id,
            peer,
        };
        out.push(Output::Event {
            host: listening.host,
            shard: listening.shard,
            event,
        });
        self.pump(now, connection, 0, out);
    }
}

/// Whether an event is about a connection: nothing may follow its close, not even what happened
/// before.
pub(crate) fn concerns(event: &Event, id: ConnectionId) -> bool {
    let Event::Network(event) = event else {
        return false;
    };
    match event {
        NetworkEvent::Listening { .. } => false,
        NetworkEvent::Accepted { connection, .. }
        | NetworkEvent::Adopted { connection, .. }
        | NetworkEvent::Connected { connection }
        | NetworkEvent::Received { connection, .. }
        | NetworkEvent::Sent { connection, .. }
        | NetworkEvent::Closed { connection } => *connection == id,
    }
}

/// The address of a port of a host: `10.0.0.(host + 1)`.
pub(crate) fn address_of(host: Host, port: u16) -> Address {
    let last = u8::try_from(host + 1).expect("at most 64 hosts");
    Address::from(([10, 0, 0, last], port))
}

/// The host of an address made by [`address_of`]; a host that does not exist for any other.
pub(crate) fn host_of(address: Address) -> Host {
    match address.ip() {
        core::net::IpAddr::V4(ip) => Host::from(ip.octets()[3]).wrapping_sub(1),
        core::net::IpAddr::V6(_) => Host::MAX,
    }
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("delays are short")
}

#[cfg(test)]
mod tests;
