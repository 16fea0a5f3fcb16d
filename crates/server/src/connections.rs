//! Client connections of one shard: framing, who is logged in, one request at a time.
//!
//! A connection is read only while it waits for nothing: a client that does not read its answers,
//! or sends faster than it is served, holds up nobody but itself.

use alloc::{collections::BTreeMap, vec::Vec};

use base::{Buffer, Bytes, ClientId, Instant};
use platform::{Address, ClientFacts, ConnectionId, Effect, Outbox};
use transport::{FrameReader, Outgoing};
use wire::AttachSession;

use crate::shard::pending::Minted;

/// Who is logged in on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) client: ClientId,
    pub(crate) session: u64,
    pub(crate) user: u32,
}

/// One client connection.
pub(crate) struct Connection {
    reader: FrameReader,
    outgoing: Outgoing,
    peer: Address,
    pub(crate) bound: Option<Bound>,
    /// The session it acts for, after code 14.
    pub(crate) attached: Option<AttachSession>,
    /// When it last sent a request.
    pub(crate) heard: Instant,
    /// Whether its session was ended for its silence, and it has not been told.
    pub(crate) stale: bool,
    /// The request that is being answered.
    pub(crate) busy: Option<u64>,
    /// A token that has been made for the request before the next write.
    pub(crate) minted: Option<Minted>,
}

/// The client connections of one shard.
pub(crate) struct Connections {
    connections: BTreeMap<ConnectionId, Connection>,
    frame_limit: usize,
    queue_limit: usize,
    count_max: usize,
}

/// Bytes that may be unsent on a connection whose next request is served.
const UNSENT_MAX: usize = 1 << 20;

impl Connections {
    pub(crate) const fn new(frame_limit: usize, queue_limit: usize, count_max: usize) -> Self {
        Self {
            connections: BTreeMap::new(),
            frame_limit,
            queue_limit,
            count_max,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Most bytes unsent on any connection.
    pub(crate) fn queued_bytes_max(&self) -> usize {
        let connections = self.connections.values();
        let queued = connections.map(|connection| connection.outgoing.queued_bytes());
        queued.max().unwrap_or(0)
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(&id)
    }

    /// Who is connected, by connection.
    pub(crate) fn facts(&self) -> impl Iterator<Item = ClientFacts> + '_ {
        self.connections.iter().map(|(&id, it)| ClientFacts {
            connection: id,
            address: it.peer,
            session: it.bound.map(|bound| (bound.client, bound.user)),
        })
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.connections.values_mut()
    }

    /// A new connection; one too many is closed at once.
    pub(crate) fn open(&mut self, id: ConnectionId, peer: Address, out: &mut Outbox) {
        if self.connections.len() >= self.count_max {
            return out.push(Effect::Close { connection: id });
        }
        let connection = Connection {
            reader: FrameReader::new(self.frame_limit),
            outgoing: Outgoing::new(self.queue_limit),
            peer,
            bound: None,
            attached: None,
            heard: Instant(0),
            stale: false,
            busy: None,
            minted: None,
        };
        self.connections.insert(id, connection);
        self.receive(id, out);
    }

    pub(crate) fn on_received(&mut self, id: ConnectionId, buffer: Buffer) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.reader.on_received(buffer);
        }
    }

    /// The next request of a connection that may be served now. A stream that has lost its way
    /// is closed.
    pub(crate) fn next_request(&mut self, id: ConnectionId, out: &mut Outbox) -> Option<Bytes> {
        let connection = self.connections.get_mut(&id)?;
        let ready = connection.busy.is_none() && connection.outgoing.queued_bytes() <= UNSENT_MAX;
        if !ready || connection.reader.is_receiving() {
            return None;
        }
        match connection.reader.next_frame() {
            Ok(Some(frame)) => Some(frame),
            Ok(None) => {
                self.receive(id, out);
                None
            }
            Err(_) => {
                self.close(id, out);
                None
            }
        }
    }

    fn receive(&mut self, id: ConnectionId, out: &mut Outbox) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let buffer = connection.reader.buffer_to_receive();
            out.push(Effect::Receive {
                connection: id,
                buffer,
            });
        }
    }

    /// Sends a reply; a client that lets too much pile up is cut off.
    pub(crate) fn send(&mut self, id: ConnectionId, frame: Vec<Bytes>, out: &mut Outbox) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if connection.outgoing.send_pieces(id, frame, out).is_err() {
            self.close(id, out);
        }
    }

    pub(crate) fn on_sent(&mut self, id: ConnectionId, size: usize) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.outgoing.on_sent(size);
        }
    }

    pub(crate) fn close(&mut self, id: ConnectionId, out: &mut Outbox) {
        if self.connections.remove(&id).is_some() {
            out.push(Effect::Close { connection: id });
        }
    }

    /// The ticket of the request that was being answered, if there was one.
    pub(crate) fn on_closed(&mut self, id: ConnectionId) -> Option<u64> {
        self.connections.remove(&id)?.busy
    }

    pub(crate) fn close_all(&mut self, out: &mut Outbox) {
        for id in ::core::mem::take(&mut self.connections).into_keys() {
            out.push(Effect::Close { connection: id });
        }
    }
}
