//! The connections of one shard.
//!
//! ```text
//!  connecting ──▶ open ──▶ draining ──▶ lingering ──▶ gone
//!       │          │   what is queued    until the       ▲  removed when nothing is in flight
//!       └──────────┴── is sent           peer closes ────┘  and the shard knows
//! ```
//!
//! A shard's `Close`, or the peer's end of stream, drains: what was queued is still sent, then the
//! write side is shut down and what the peer still sends is thrown away until it closes too.
//! Without that, closing a socket with unread bytes would reset the connection and take the last
//! reply with it. All of this ends after the grace period. An error ends it at once.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    net::{Shutdown, TcpListener, TcpStream},
    os::fd::OwnedFd,
    rc::Rc,
    time::Duration,
};

use base::{Buffer, Bytes, Instant, ShardIndex};
use platform::{Address, ConnectionId, Event, ListenerId, NetworkEvent};

use crate::{
    kernel::{Completion, Kernel, Key, Request, SLICES_MAX, Scratch, keep_alive, socket},
    mail::Passage,
    ring::Purpose,
};

/// How long a listener rests after it could not accept (no descriptors left).
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// Bytes thrown away at once from a connection that lingers.
const LINGER_SIZE: usize = 16 << 10;

/// A connection's stage; see the module's picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    Open,
    Draining,
    Lingering,
    Gone,
}

struct Connection {
    socket: Rc<TcpStream>,
    /// The listener that accepted it; none if dialed.
    listener: Option<ListenerId>,
    peer: Address,
    stage: Stage,
    connecting: Option<Key>,
    receiving: Option<Key>,
    sending: Option<Key>,
    /// What the shard gave and the kernel has not taken, without the first `skip` bytes.
    queue: VecDeque<Bytes>,
    skip: usize,
    /// In the list of connections with something to send.
    dirty: bool,
    /// The shard has closed it or was told that it is closed: no further event.
    settled: bool,
}

impl Connection {
    fn new(socket: TcpStream, listener: Option<ListenerId>, peer: Address, stage: Stage) -> Self {
        Self {
            socket: Rc::new(socket),
            listener,
            peer,
            stage,
            connecting: None,
            receiving: None,
            sending: None,
            queue: VecDeque::new(),
            skip: 0,
            dirty: false,
            settled: false,
        }
    }

    fn idle(&self) -> bool {
        self.connecting.is_none() && self.receiving.is_none() && self.sending.is_none()
    }
}

struct Listener {
    socket: Rc<TcpListener>,
    /// When to try again to accept.
    rests_until: Option<Instant>,
}

/// The listeners and connections of one shard.
pub(crate) struct Network {
    shard: ShardIndex,
    accepted: u64,
    grace: Duration,
    listeners: BTreeMap<ListenerId, Listener>,
    connections: BTreeMap<ConnectionId, Connection>,
    /// Connections with something to send that is not in flight.
    dirty: Vec<ConnectionId>,
    /// Connections that drain or linger and when that ends, in order of time.
    closing: VecDeque<(Instant, ConnectionId)>,
    /// Receives that wait until letters flow again.
    deferred: Vec<(ConnectionId, Buffer)>,
}

impl Network {
    pub(crate) fn new(shard: ShardIndex, grace: Duration) -> Self {
        Self {
            shard,
            accepted: 0,
            grace,
            listeners: BTreeMap::new(),
            connections: BTreeMap::new(),
            dirty: vec![],
            closing: VecDeque::new(),
            deferred: vec![],
        }
    }

    /// Binds a listener and accepts from now on; the bound address.
    pub(crate) fn listen(
        &mut self,
        kernel: &mut Kernel<Purpose>,
        listener: ListenerId,
        address: Address,
    ) -> io::Result<Address> {
        // The standard library sets SO_REUSEADDR, so a restart need not wait for TIME_WAIT.
        let socket = Rc::new(TcpListener::bind(address)?);
        let bound = socket.local_addr()?;
        kernel.submit(
            Request::Accept {
                listener: socket.clone(),
            },
            Purpose::Accept(listener),
        )?;
        self.listeners.insert(
            listener,
            Listener {
                socket,
                rests_until: None,
            },
        );
        Ok(bound)
    }

    pub(crate) fn on_accept(
        &mut self,
        kernel: &mut Kernel<Purpose>,
        now: Instant,
        listener: ListenerId,
        mut completion: Completion,
        inbox: &mut VecDeque<Event>,
    ) -> io::Result<()> {
        if let Some(descriptor) = completion.opened.take() {
            self.accept(listener, descriptor, inbox);
        }
        if completion.more {
            return Ok(());
        }
        let at = self.listeners.get_mut(&listener).expect("listeners stay");
        match completion.result {
            Err(libc::ECANCELED) => {}
            // A peer that gave up before it was accepted is no reason to rest.
            Ok(_) | Err(libc::ECONNABORTED) => {
                let request = Request::Accept {
                    listener: at.socket.clone(),
                };
                kernel.submit(request, Purpose::Accept(listener))?;
            }
            Err(error) => {
                let error = io::Error::from_raw_os_error(error);
                tracing::warn!("cannot accept a connection, resting: {error}");
                at.rests_until = Some(now + ACCEPT_REST);
            }
        }
        Ok(())
    }

    fn accept(&mut self, listener: ListenerId, descriptor: OwnedFd, inbox: &mut VecDeque<Event>) {
        let socket = TcpStream::from(descriptor);
        let prepared = socket.set_nodelay(true).and_then(|()| keep_alive(&socket));
        // Both fail only if the peer is gone already.
        let (Ok(peer), Ok(())) = (socket.peer_addr(), prepared) else {
            return;
        };
        self.accepted += 1;
        assert!(self.accepted < 1 << 48);
        let connection = ConnectionId(u64::from(self.shard.0) << 48 | self.accepted);
        assert!(connection.0 & ConnectionId::DIALED == 0);
        let entry = Connection::new(socket, Some(listener), peer, Stage::Open);
        self.connections.insert(connection, entry);
        inbox.push_back(Event::Network(NetworkEvent::Accepted {
            listener,
            connection,
            peer,
        }));
    }

    /// Dials.
    pub(crate) fn connect(
        &mut self,
        kernel: &mut Kernel<Purpose>,
        connection: ConnectionId,
        address: Address,
        inbox: &mut VecDeque<Event>,
    ) -> io::Result<()> {
        assert!(connection.0 & ConnectionId::DIALED != 0);
        let made = socket(&address).and_then(|socket| {
            socket.set_nodelay(true)?;
            keep_alive(&socket)?;
            Ok(socket)
        });
        let socket = match made {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!("cannot make a socket: {error}");
                inbox.push_back(Event::Network(NetworkEvent::Closed { connection }));
                return Ok(());
            }
        };
        let mut entry = Connection::new(socket, None, address, Stage::Connecting);
        let request = Request::Connect {
            socket: entry.socket.clone(),
            address: address.into(),
        };
        entry.connecting = Some(kernel.submit(request, Purpose::Connect(connection))?);
        let known = self.connections.insert(connection, entry);
        assert!(known.is_none(), "ids of dialed connections are fresh");
        Ok(())
    }

    pub(crate) fn on_connect(
        &mut self,
        kernel: &mut Kernel<Purpose>,
        id: ConnectionId,
        result: Result<u32, i32>,
        inbox: &mut VecDeque<Event>,
    ) -> io::Result<()> {
        let connection = self.connections.get_mut(&id).expect("in flight, so known");
        connection.connecting = None;
        if connection.stage == Stage::Gone {
            self.finish(id);
            return Ok(());
        }
        // A socket that dials a free port of its own host may get that very port as its own and
        // connect to itself.
        let itself = connection.socket.local_addr().ok() == connection.socket.peer_addr().ok();
        if result.is_err() || itself {
            return self.broken(kernel, id, inbox);
        }
        connection.stage = Stage::Open;
        inbox.push_back(Event::Network(NetworkEvent::Connected { connection: id }));
        self.mark_dirty(id);
        Ok(())
    }

    /// Asks for more bytes, later if clients must wait.
    pub(crate) fn receive(
        &mut self,
        kernel: &mut Kernel<Purpose>,
        id: ConnectionId,
        buffer: Buffer,
        congested: bool,
    ) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Ok(());
        };
        if connection.stage != Stage::Open {
            return Ok(());
        }
        assert!(connection.receiving.is_none(), "one receive at a time");
        assert!(
            buffer.capacity() > buffer.len(),
            "room for at least one byte"
        );
        if congested && connection.listener == Some(ListenerId::CLIENT) {
            self.deferred.push((id, buffer));
            return Ok(());
        }
        let request = Request::Receive {
            socket: connection.socket.clone(),
            buffer,
        };
        connection.receiving = Some(kernel.submit(request, Purpose::Receive(id))?);
        Ok(())
    }

    /// Starts the receives that had to wait.
    pub(crate) fn resume(&mut self, kernel: &mut Kernel<Purpose>) -> io::Result<()> {
        for (id, buffer) in std::mem::take(&mut self.deferred) {
            self.receive(kernel, id, buffer, false)?;
        }
        Ok(())
    }

    pub(crate) fn on_receive(
        &mut self,
        kernel: &mut Kernel<Purpose>,
        now: Instant,
        id: ConnectionId,
        mut buffer: Buffer,
        result: Result<u32, i32>,
        inbox: &mut VecDeque<Event>,
    ) -> io::Result<()> {
        let connection = self.connections.get_mut(&id).expect("in flight, so known");
        connection.receiving = None;
        match (connection.stage, result) {
            (Stage::Connecting, _) => unreachable!("nothing is received before it stands"),
            (Stage::Open, Ok(0)) => {
                inbox.push_back(Event::Network(NetworkEvent::Closed { connection: id }));
                self.drain(kernel, now, id)
            }
            (Stage::Open, Ok(count)) => {
                buffer.advance(count as usize);
                let event = NetworkEvent::Received {
                    connection: id,
                    buffer,
                };
                inbox.push_back(Event::Network(event));
                Ok(())
            }
            (Stage::Open, Err(libc::EINTR | libc::EAGAIN)) => {
                self.receive(kernel, id, buffer, false)
            }
            (Stage::Open, Err(_)) => self.broken(kernel, id, inbox),
            (Stage::Draining, _) => self.advance_close(kernel, id),
            (Stage::Lingering, Ok(1..) | Err(libc::ECANCELED)) => self.advance_close(kernel, id),
            (Stage::Lingering, _) => {
                connection.stage = Stage::Gone;
                self.finish(id);
                Ok(())
            }
            (Stage::Gone, _) => {
                self.finish(id);
                Ok(())
            }
        }
    }

    /// Queues bytes; they leave with the next [`Self::flush`].
    pub(crate) fn send(&mut self, id: ConnectionId, bytes: Bytes) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if matches!(connection.stage, Stage::Connecting | Stage::Open) {
            connection.queue.push_back(bytes);
            self.mark_dirty(id);
        }
    }

    fn mark_dirty(&mut self, id: ConnectionId) {
        let connection = self
            .connections
            .get_mut(&id)
            .expect("the caller has looked");
        if !connection.dirty && !connection.queue.is_empty() {
            connection.dirty = true;
            self.dirty.push(id);
        }
    }

    /// Submits one vectored send for every connection that has something to send and none in
    /// flight; once a turn.
    pub(crate) fn flush(
        &mut self,
        kernel: &mut Kernel<Purpose>,
        inbox: &mut VecDeque<Event>,
    ) -> io::Result<()> {
        for id in std::mem::take(&mut self.dirty) {
            let Some(connection) = self.connections.get_mut(&id) else {
                continue;
            };
            connection.dirty = false;
            let sends = matches!(connection.stage, Stage::Open | Stage::Draining);
            if !sends || connection.sending.is_some() {
                continue;
            }
            while connection
                .queue
                .pop_front_if(|bytes| bytes.is_empty())
                .is_some()
            {
                let event = NetworkEvent::Sent {
                    connection: id,
                    size: 0,
                };
                inbox.push_back(Event::Network(event));
            }
            if connection.queue.is_empty() {
                self.advance_close(kernel, id)?;
                continue;
            }
            let count = connection.queue.len().min(SLICES_MAX);
            let request = Request::Send {
                socket: connection.socket.clone(),
                bytes: connection.queue.drain(..count).collect(),
                skip: std::mem::take(&mut connection.skip),
                scratch: Scratch::default(),
            };
            connection.sending = Some(kernel.submit(request, Purpose::Send(id))?);
        }
        Ok(())
    }

    pub(crate) fn on_send(
        &mut self,
        kernel: &mut Kernel<Purpose>,
        id: ConnectionId,
        bytes: Vec<Bytes>,
        skip: usize,
        result: Result<u32, i32>,
        inbox: &mut VecDeque<Event>,
    ) -> io::Result<()> {
        let connection = self.connections.get_mut(&id).expect("in flight, so known");
        connection.sending = None;
        if connection.stage == Stage::Gone {
            self.finish(id);
            return Ok(());
        }
        let sent = match result {
            Ok(count) => count as usize,
            Err(libc::EINTR | libc::EAGAIN) => 0,
            Err(_) => return self.broken(kernel, id, inbox),
        };
        let mut taken = skip + sent;
        let mut rest = VecDeque::from(bytes);
        while let Some(bytes) = rest.pop_front_if(|bytes| bytes.len() <= taken) {
            taken -= bytes.len();
            let event = NetworkEvent::Sent {
                connection: id,
                size: bytes.len(),
            };
            inbox.push_back(Event::Network(event));
        }
        while let Some(bytes) = rest.pop_back() {
            connection.queue.push_front(bytes);
        }
        connection.skip = taken;
        self.mark_dirty(id);
        self.advance_close(kernel, id)
    }

    /// The shard closes a connection.
    pub(crate) fn close(
        &mut self,
        kernel: &mut Kernel<Purpose>,
        now: Instant,
        id: ConnectionId,
    ) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Ok(());
        };
        connection.settled = true;
        self.deferred.retain(|(deferred, _)| *deferred != id);
        match connection.stage {
            Stage::Open => self.drain(kernel, now, id),
            Stage::Connecting => self.abandon(kernel, id),
            Stage::Draining | Stage::Lingering => Ok(()),
            Stage::Gone => {
                self.finish(id);
                Ok(())
            }
        }
    }

    /// Begins to close an open connection.
    fn drain(
        &mut self,
        kernel: &mut Kernel<Purpose>,
        now: Instant,
        id: ConnectionId,
    ) -> io::Result<()> {
        let connection = self
            .connections
            .get_mut(&id)
            .expect("the caller has looked");
        assert!(connection.stage == Stage::Open);
        connection.stage = Stage::Draining;
        self.closing.push_back((now + self.grace, id));
        if let Some(receiving) = connection.receiving {
            kernel.cancel(receiving)?;
        }
        self.advance_close(kernel, id)
    }

    /// Goes on with a close as far as possible.
    fn advance_close(&mut self, kernel: &mut Kernel<Purpose>, id: ConnectionId) -> io::Result<()> {
        let connection = self
            .connections
            .get_mut(&id)
            .expect("the caller has looked");
        if connection.stage == Stage::Draining
            && connection.queue.is_empty()
            && connection.sending.is_none()
        {
            // Fails if the peer has reset the connection; the receive below will say so.
            let _ = connection.socket.shutdown(Shutdown::Write);
            connection.stage = Stage::Lingering;
        }
        if connection.stage == Stage::Lingering && connection.receiving.is_none() {
            let buffer = Buffer::with_capacity(LINGER_SIZE);
            let request = Request::Receive {
                socket: connection.socket.clone(),
                buffer,
            };
            connection.receiving = Some(kernel.submit(request, Purpose::Receive(id))?);
        }
        Ok(())
    }

    /// A connection has failed: the shard is told, if it does not know.
    fn broken(
        &mut self,
        kernel: &mut Kernel<Purpose>,
        id: ConnectionId,
        inbox: &mut VecDeque<Event>,
    ) -> io::Result<()> {
        let connection = self
            .connections
            .get_mut(&id)
            .expect("the caller has looked");
        if matches!(connection.stage, Stage::Open | Stage::Connecting) {
            inbox.push_back(Event::Network(NetworkEvent::Closed { connection: id }));
        }
        self.abandon(kernel, id)
    }

    /// Ends a connection now; it goes when nothing is in flight.
    fn abandon(&mut self, kernel: &mut Kernel<Purpose>, id: ConnectionId) -> io::Result<()> {
        let connection = self
            .connections
            .get_mut(&id)
            .expect("the caller has looked");
        connection.stage = Stage::Gone;
        connection.queue.clear();
        let _ = connection.socket.shutdown(Shutdown::Both);
        let in_flight = [
            connection.connecting,
            connection.receiving,
            connection.sending,
        ];
        for key in in_flight.into_iter().flatten() {
            kernel.cancel(key)?;
        }
        self.finish(id);
        Ok(())
    }

    fn finish(&mut self, id: ConnectionId) {
        let connection = self.connections.get(&id).expect("the caller has looked");
        if connection.stage == Stage::Gone && connection.settled && connection.idle() {
            self.connections.remove(&id);
        }
    }

    /// Takes a connection out, to give it to another shard; none if it is closing.
    pub(crate) fn hand_over(
        &mut self,
        id: ConnectionId,
        listener: ListenerId,
        received: Bytes,
    ) -> Option<Passage> {
        if self.connections.get(&id)?.stage != Stage::Open {
            return None;
        }
        let connection = self.connections.remove(&id).expect("looked up above");
        assert!(
            connection.idle() && connection.queue.is_empty(),
            "nothing is in flight"
        );
        assert!(self.deferred.iter().all(|(deferred, _)| *deferred != id));
        let socket = Rc::into_inner(connection.socket).expect("nothing is in flight");
        Some(Passage {
            connection: id,
            listener,
            peer: connection.peer,
            received,
            socket,
        })
    }

    /// Takes a connection in that another shard has handed over.
    pub(crate) fn adopt(&mut self, passage: Passage) -> Event {
        let Passage {
            connection,
            listener,
            peer,
            received,
            socket,
        } = passage;
        let entry = Connection::new(socket, Some(listener), peer, Stage::Open);
        let known = self.connections.insert(connection, entry);
        assert!(known.is_none(), "a connection is with one shard at a time");
        Event::Network(NetworkEvent::Adopted {
            listener,
            connection,
            peer,
            received,
        })
    }

    /// Whether the shard may still be told this: nothing follows a `Close` or a `Closed`.
    pub(crate) fn may_tell(&mut self, event: &NetworkEvent) -> bool {
        let id = match event {
            NetworkEvent::Listening { .. } => return true,
            NetworkEvent::Accepted { connection, .. }
            | NetworkEvent::Adopted { connection, .. }
            | NetworkEvent::Connected { connection }
            | NetworkEvent::Received { connection, .. }
            | NetworkEvent::Sent { connection, .. }
            | NetworkEvent::Closed { connection } => *connection,
        };
        let closed = matches!(event, NetworkEvent::Closed { .. });
        // A dial that failed before there was a socket is closed without ever being known.
        let Some(connection) = self.connections.get_mut(&id) else {
            return closed;
        };
        if connection.settled {
            return false;
        }
        if closed {
            connection.settled = true;
            self.finish(id);
        }
        true
    }

    /// Does what is due.
    pub(crate) fn on_timers(
        &mut self,
        kernel: &mut Kernel<Purpose>,
        now: Instant,
    ) -> io::Result<()> {
        while let Some((_, id)) = self.closing.pop_front_if(|(until, _)| *until <= now) {
            if self.connections.contains_key(&id) {
                self.abandon(kernel, id)?;
            }
        }
        for (id, listener) in &mut self.listeners {
            if listener
                .rests_until
                .take_if(|until| *until <= now)
                .is_some()
            {
                let request = Request::Accept {
                    listener: listener.socket.clone(),
                };
                kernel.submit(request, Purpose::Accept(*id))?;
            }
        }
        Ok(())
    }

    /// When [`Self::on_timers`] must be called next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let closing = self.closing.front().map(|(until, _)| *until);
        self.listeners
            .values()
            .filter_map(|listener| listener.rests_until)
            .chain(closing)
            .min()
    }

    /// Whether bytes given by the shard are still on their way to the kernel.
    pub(crate) fn sending(&self) -> bool {
        self.connections.values().any(|connection| {
            matches!(connection.stage, Stage::Open | Stage::Draining)
                && (connection.sending.is_some() || !connection.queue.is_empty())
        })
    }
}
