//! Links to the same shard of the other nodes: dialing, handshake, heartbeats, liveness.
//!
//! The lower replica dials. A link that has been silent for `suspect` is closed and its peer
//! taken for dead; when a link comes up, both sides tell where all their groups stand, so what a
//! cut swallowed is repaired at once and nothing needs a timer of its own while a link stands.

use ::core::time::Duration;
use alloc::{collections::BTreeMap, vec::Vec};

use base::{Bytes, Instant, Prng, ReplicaIndex, ShardIndex};
use consensus::REPLICAS_MAX;
use platform::{ConnectionId, Effect, ListenerId, Now, Outbox};
use transport::{Backoff, FrameReader, Identity, Outgoing, REPLICA_PROTOCOL};
use wire::{
    Command, HEADER_SIZE,
    replica::{Beat, Echo, Envelope},
};

use crate::ShardConfig;

/// What a link tells its shard.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// The peer can be talked to.
    Up(ReplicaIndex),
    /// A frame that passed its checksums.
    Frame { from: ReplicaIndex, frame: Bytes },
    /// Nothing has been heard of the peer for `suspect`.
    Silent(ReplicaIndex),
}

struct Peer {
    replica: ReplicaIndex,
    connection: Option<ConnectionId>,
    up: bool,
    reader: FrameReader,
    outgoing: Outgoing,
    backoff: Backoff,
    /// When to dial, or to give a handshake up.
    redial: Option<Instant>,
    last_heard: Instant,
    silent: bool,
    /// The newest heartbeat of this link: when it was sent, by the peer's clock, and heard here.
    beat: Option<(Instant, Instant)>,
    /// Until when the peer may hold a read lease that rests on our word.
    promised: Instant,
}

/// An accepted connection that has not said who it is.
struct Stranger {
    reader: FrameReader,
    until: Instant,
}

/// All links of one shard.
pub(crate) struct Links {
    identity: Identity,
    peers: Vec<Peer>,
    strangers: BTreeMap<ConnectionId, Stranger>,
    dialed: u64,
    heartbeat_at: Instant,
    heartbeat: Duration,
    suspect: Duration,
    frame_limit: usize,
    queue_limit: usize,
    addresses: Vec<platform::Address>,
    /// Peers whose link has just gone.
    down: Vec<ReplicaIndex>,
    prng: Prng,
}

impl Links {
    pub(crate) fn new(config: &ShardConfig, boot: u64, now: Instant, prng: Prng) -> Self {
        let count = u8::try_from(config.nodes.len()).expect("at most seven nodes");
        // A forwarded frame has one more header than the frame it carries.
        let frame_limit = config.limits.frame_size_max + 2 * HEADER_SIZE;
        let queue_limit = config.limits.replica_queue_bytes_max;
        let redial = config.timing.redial;
        let peers = (0..count)
            .map(ReplicaIndex)
            .filter(|replica| *replica != config.replica);
        Self {
            identity: Identity {
                cluster: config.cluster,
                replica: config.replica,
                replica_count: count,
                shard: config.shard,
                shard_count: config.shard_count,
                boot,
                version: REPLICA_PROTOCOL,
            },
            peers: peers
                .map(|replica| Peer {
                    replica,
                    connection: None,
                    up: false,
                    reader: FrameReader::new(frame_limit),
                    outgoing: Outgoing::new(queue_limit),
                    backoff: Backoff::new(redial, redial * 8),
                    redial: (config.replica < replica).then_some(now),
                    last_heard: now,
                    silent: false,
                    beat: None,
                    // The last process may have echoed heartbeats until it ended.
                    promised: now + config.timing.suspect,
                })
                .collect(),
            strangers: BTreeMap::new(),
            dialed: 0,
            heartbeat_at: now,
            heartbeat: config.timing.heartbeat,
            suspect: config.timing.suspect,
            frame_limit,
            queue_limit,
            addresses: config.nodes.iter().map(|node| node.replica).collect(),
            down: Vec::new(),
            prng,
        }
    }

    pub(crate) fn is_up(&self, replica: ReplicaIndex) -> bool {
        self.peers
            .iter()
            .any(|peer| peer.replica == replica && peer.up)
    }

    /// Whether the peer is taken for dead.
    pub(crate) fn is_silent(&self, replica: ReplicaIndex) -> bool {
        self.peers
            .iter()
            .any(|peer| peer.replica == replica && peer.silent)
    }

    /// Peers that are taken for dead.
    pub(crate) fn silent(&self) -> Vec<ReplicaIndex> {
        let silent = self.peers.iter().filter(|peer| peer.silent);
        silent.map(|peer| peer.replica).collect()
    }

    /// Whether a peer has been silent for too long and it has not been noticed yet: this process
    /// may have been stopped, and must not act on what it believed before.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        let late = |peer: &Peer| !peer.silent && now.since(peer.last_heard) >= self.suspect;
        self.peers.iter().any(late)
    }

    /// Nodes that can be talked to, this one included.
    pub(crate) fn reachable(&self) -> usize {
        1 + self.peers.iter().filter(|peer| !peer.silent).count()
    }

    pub(crate) fn up(&self) -> Vec<ReplicaIndex> {
        self.peers
            .iter()
            .filter(|peer| peer.up)
            .map(|peer| peer.replica)
            .collect()
    }

    /// The clocks to tell a peer. With `word`, it is told too which of its heartbeats has been
    /// heard: a promise on which it may rest a lease.
    pub(crate) fn beat(&mut self, to: ReplicaIndex, now: Now, word: bool) -> Beat {
        let suspect = self.suspect;
        let peer = self.peers.iter_mut().find(|peer| peer.replica == to);
        let echo = peer.filter(|_| word).and_then(|peer| {
            let (sent, heard) = peer.beat?;
            peer.promised = peer.promised.max(heard + suspect);
            let held = now.monotonic.since(heard);
            Some(Echo { sent, held })
        });
        Beat {
            sent: now.monotonic,
            realtime: now.realtime,
            echo,
        }
    }

    /// A heartbeat has been heard.
    pub(crate) fn on_beat(&mut self, from: ReplicaIndex, now: Instant, beat: &Beat) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.replica == from) {
            peer.beat = Some((beat.sent, now));
        }
    }

    /// Until when each replica may hold a lease that rests on this node's word.
    pub(crate) fn promised(&self) -> [Instant; REPLICAS_MAX] {
        let mut promised = [Instant::ZERO; REPLICAS_MAX];
        for peer in &self.peers {
            promised[usize::from(peer.replica.0)] = peer.promised;
        }
        promised
    }

    /// Sends a frame, if the link is up and not congested; what is not sent is repaired later.
    pub(crate) fn send(&mut self, to: ReplicaIndex, frame: Bytes, out: &mut Outbox) -> bool {
        self.send_pieces(to, alloc::vec![frame], out)
    }

    pub(crate) fn send_pieces(
        &mut self,
        to: ReplicaIndex,
        pieces: Vec<Bytes>,
        out: &mut Outbox,
    ) -> bool {
        let peer = self
            .peers
            .iter_mut()
            .find(|peer| peer.replica == to && peer.up);
        let Some((peer, connection)) = peer.and_then(|peer| peer.connection.map(|id| (peer, id)))
        else {
            return false;
        };
        peer.outgoing.send_pieces(connection, pieces, out).is_ok()
    }

    /// Most bytes unsent on any link.
    pub(crate) fn queued_bytes_max(&self) -> usize {
        let queued = self.peers.iter().map(|peer| peer.outgoing.queued_bytes());
        queued.max().unwrap_or(0)
    }

    /// Whether this connection is one of ours.
    pub(crate) fn owns(&self, connection: ConnectionId) -> bool {
        self.strangers.contains_key(&connection)
            || self
                .peers
                .iter()
                .any(|peer| peer.connection == Some(connection))
    }

    pub(crate) fn on_accepted(&mut self, now: Instant, connection: ConnectionId, out: &mut Outbox) {
        self.adopt(now, connection, FrameReader::new(self.frame_limit), out);
    }

    /// Another shard has read this link's hello and found that it is for us.
    pub(crate) fn on_adopted(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        received: Bytes,
        out: &mut Outbox,
        events: &mut Vec<LinkEvent>,
    ) {
        let reader = FrameReader::with_received(self.frame_limit, received);
        let until = now + self.suspect;
        self.strangers
            .insert(connection, Stranger { reader, until });
        self.greet(now, connection, out, events);
    }

    fn adopt(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        mut reader: FrameReader,
        out: &mut Outbox,
    ) {
        out.push(Effect::Receive {
            connection,
            buffer: reader.buffer_to_receive(),
        });
        self.strangers.insert(
            connection,
            Stranger {
                reader,
                until: now + self.suspect,
            },
        );
    }

    /// Looks for the hello of an accepted connection.
    fn greet(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        out: &mut Outbox,
        events: &mut Vec<LinkEvent>,
    ) {
        let Some(mut stranger) = self.strangers.remove(&connection) else {
            return;
        };
        let hello = match stranger.reader.next_frame() {
            Ok(Some(hello)) => hello,
            Ok(None) => return self.adopt(now, connection, stranger.reader, out),
            Err(_) => return out.push(Effect::Close { connection }),
        };
        let Ok(peer) = Identity::decode_hello(&hello) else {
            return out.push(Effect::Close { connection });
        };
        let known = peer.shard.0 < self.identity.shard_count;
        if known && peer.shard != self.identity.shard && self.identity.shard == ShardIndex(0) {
            let rest = stranger.reader.take_rest();
            let mut received = base::Buffer::with_capacity(hello.len() + rest.len());
            received.extend(&hello);
            received.extend(&rest);
            let received = received.freeze();
            let (to, listener) = (peer.shard, ListenerId::REPLICA);
            return out.push(Effect::HandOver {
                connection,
                to,
                received,
                listener,
            });
        }
        let verdict = self.identity.check_hello(&peer);
        let welcome = self.identity.welcome(verdict);
        let index = self
            .peers
            .iter()
            .position(|known| known.replica == peer.replica);
        if let (Ok(()), Some(index)) = (verdict, index) {
            self.connect(now, index, connection, stranger.reader, out);
            let sent = self.peers[index].outgoing.send(connection, welcome, out);
            sent.expect("the queue of a new link is empty");
            return self.rise(now, index, out, events);
        }
        out.push(Effect::Send {
            connection,
            bytes: welcome,
        });
        out.push(Effect::Close { connection });
    }

    /// This connection is the peer's link from now on.
    fn connect(
        &mut self,
        now: Instant,
        index: usize,
        connection: ConnectionId,
        reader: FrameReader,
        out: &mut Outbox,
    ) {
        let outgoing = Outgoing::new(self.queue_limit);
        let peer = &mut self.peers[index];
        if let Some(old) = peer.connection.replace(connection) {
            out.push(Effect::Close { connection: old });
        }
        if ::core::mem::take(&mut peer.up) {
            self.down.push(peer.replica);
        }
        peer.reader = reader;
        peer.outgoing = outgoing;
        peer.redial = Some(now + self.suspect);
    }

    /// The handshake is done.
    fn rise(&mut self, now: Instant, index: usize, out: &mut Outbox, events: &mut Vec<LinkEvent>) {
        let peer = &mut self.peers[index];
        peer.up = true;
        peer.silent = false;
        peer.last_heard = now;
        peer.redial = None;
        // The peer may be another process now, with another clock.
        peer.beat = None;
        events.push(LinkEvent::Up(peer.replica));
        self.read(index, out, events);
    }

    pub(crate) fn on_connected(&mut self, connection: ConnectionId, out: &mut Outbox) {
        let hello = self.identity.hello();
        let Some(peer) = self.peer_of(connection) else {
            return;
        };
        let sent = peer.outgoing.send(connection, hello, out);
        sent.expect("the queue of a new link is empty");
        out.push(Effect::Receive {
            connection,
            buffer: peer.reader.buffer_to_receive(),
        });
    }

    pub(crate) fn on_received(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        buffer: base::Buffer,
        out: &mut Outbox,
        events: &mut Vec<LinkEvent>,
    ) {
        if let Some(stranger) = self.strangers.get_mut(&connection) {
            stranger.reader.on_received(buffer);
            return self.greet(now, connection, out, events);
        }
        let Some(index) = self.index_of(connection) else {
            return;
        };
        let peer = &mut self.peers[index];
        peer.reader.on_received(buffer);
        peer.last_heard = now;
        if peer.up {
            return self.read(index, out, events);
        }
        let replica = peer.replica;
        match peer.reader.next_frame() {
            Ok(Some(frame)) => {
                let welcome = Identity::decode_welcome(&frame);
                let verdict = welcome.map(|welcome| self.identity.check_welcome(&welcome, replica));
                match verdict {
                    Ok(Ok(())) => self.rise(now, index, out, events),
                    refused => {
                        let line = alloc::format!("replica {replica} refused: {refused:?}");
                        out.push(Effect::Log {
                            level: platform::Level::Warn,
                            line,
                        });
                        self.drop_link(now, index, out);
                    }
                }
            }
            Ok(None) => {
                let buffer = peer.reader.buffer_to_receive();
                out.push(Effect::Receive { connection, buffer });
            }
            Err(_) => self.drop_link(now, index, out),
        }
    }

    /// Hands out the frames that have arrived whole; asks for more.
    fn read(&mut self, index: usize, out: &mut Outbox, events: &mut Vec<LinkEvent>) {
        let peer = &mut self.peers[index];
        let Some(connection) = peer.connection else {
            return;
        };
        loop {
            let whole = match peer.reader.next_frame() {
                Ok(Some(frame)) => wire::replica::verify(&frame).is_ok().then_some(frame),
                // A damaged size would have the link wait, alive and deaf, for what never comes.
                Ok(None) if peer.reader.header().is_some_and(is_damaged) => None,
                Ok(None) => {
                    let buffer = peer.reader.buffer_to_receive();
                    return out.push(Effect::Receive { connection, buffer });
                }
                Err(_) => None,
            };
            let from = peer.replica;
            let sound = whole.filter(|frame| {
                Envelope::decode(frame).is_ok_and(|envelope| {
                    // A prepare keeps the name of the primary that made it.
                    let sender = envelope.replica == from || envelope.command == Command::Prepare;
                    envelope.cluster == self.identity.cluster && sender
                })
            });
            let Some(frame) = sound else {
                // A stream that has lost its way is of no further use.
                base::sometimes!("links: a damaged stream is closed");
                let heard = peer.last_heard;
                return self.drop_link(heard, index, out);
            };
            events.push(LinkEvent::Frame { from, frame });
        }
    }

    pub(crate) fn on_sent(&mut self, connection: ConnectionId, size: usize) {
        if let Some(peer) = self.peer_of(connection) {
            peer.outgoing.on_sent(size);
        }
    }

    pub(crate) fn on_closed(&mut self, now: Instant, connection: ConnectionId) {
        self.strangers.remove(&connection);
        if let Some(index) = self.index_of(connection) {
            self.forget(now, index);
        }
    }

    fn drop_link(&mut self, now: Instant, index: usize, out: &mut Outbox) {
        if let Some(connection) = self.peers[index].connection {
            out.push(Effect::Close { connection });
        }
        self.forget(now, index);
    }

    fn forget(&mut self, now: Instant, index: usize) {
        let dials = self.identity.replica < self.peers[index].replica;
        let peer = &mut self.peers[index];
        peer.connection = None;
        if ::core::mem::take(&mut peer.up) {
            self.down.push(peer.replica);
        }
        let pause = peer.backoff.pause(&mut self.prng);
        peer.redial = dials.then(|| now + pause);
    }

    /// Peers whose link has gone since the last call: what was on its way to them is lost.
    pub(crate) fn take_down(&mut self) -> Vec<ReplicaIndex> {
        ::core::mem::take(&mut self.down)
    }

    /// Dials, gives up, notices silence. True if heartbeats are due.
    pub(crate) fn on_timers(
        &mut self,
        now: Instant,
        out: &mut Outbox,
        events: &mut Vec<LinkEvent>,
    ) -> bool {
        let late = self
            .strangers
            .iter()
            .filter(|(_, stranger)| stranger.until <= now);
        for connection in late.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.strangers.remove(&connection);
            out.push(Effect::Close { connection });
        }
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            let overdue = now.since(peer.last_heard) >= self.suspect;
            if overdue && !peer.silent {
                peer.silent = true;
                events.push(LinkEvent::Silent(peer.replica));
                if peer.up {
                    self.drop_link(now, index, out);
                }
            }
            if self.peers[index].redial.is_some_and(|at| at <= now) {
                self.dial(now, index, out);
            }
        }
        let due = self.heartbeat_at <= now && !self.peers.is_empty();
        if due {
            self.heartbeat_at = now + self.heartbeat;
        }
        due
    }

    fn dial(&mut self, now: Instant, index: usize, out: &mut Outbox) {
        if self.peers[index].connection.is_some() {
            // A handshake that got nowhere.
            return self.drop_link(now, index, out);
        }
        self.dialed += 1;
        let connection = ConnectionId::dialed(self.identity.shard, self.dialed);
        let address = self.addresses[usize::from(self.peers[index].replica.0)];
        out.push(Effect::Connect {
            connection,
            address,
        });
        self.connect(
            now,
            index,
            connection,
            FrameReader::new(self.frame_limit),
            out,
        );
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let mut next = (!self.peers.is_empty()).then_some(self.heartbeat_at);
        let mut consider = |at: Instant| next = Some(next.map_or(at, |next| next.min(at)));
        for peer in &self.peers {
            peer.redial.into_iter().for_each(&mut consider);
            if !peer.silent {
                consider(peer.last_heard + self.suspect);
            }
        }
        self.strangers
            .values()
            .map(|stranger| stranger.until)
            .for_each(&mut consider);
        next
    }

    /// Closes everything.
    pub(crate) fn stop(&mut self, out: &mut Outbox) {
        for connection in ::core::mem::take(&mut self.strangers).into_keys() {
            out.push(Effect::Close { connection });
        }
        for peer in &mut self.peers {
            peer.up = false;
            peer.redial = None;
            if let Some(connection) = peer.connection.take() {
                out.push(Effect::Close { connection });
            }
        }
    }

    fn index_of(&self, connection: ConnectionId) -> Option<usize> {
        self.peers
            .iter()
            .position(|peer| peer.connection == Some(connection))
    }

    fn peer_of(&mut self, connection: ConnectionId) -> Option<&mut Peer> {
        self.peers
            .iter_mut()
            .find(|peer| peer.connection == Some(connection))
    }
}

fn is_damaged(header: &[u8]) -> bool {
    wire::replica::verify_header(header).is_err()
}
