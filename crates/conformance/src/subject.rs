//! What behaviours are written with: effects in, events out, waiting for the one that matters.

use std::collections::VecDeque;

use base::{Buffer, Bytes, ShardIndex};
use platform::{
    Address, ConnectionId, DiskDone, DiskError, DiskRequest, DiskResult, Effect, Event, FileId,
    ListenerId, NetworkEvent, OpenMode, Token,
};

use crate::{Body, Place};

/// The owner in all tokens; a body must echo it.
const OWNER: u64 = 7;

/// A body under test, and the events that the test has not looked at yet.
pub struct Subject {
    body: Box<dyn Body>,
    seen: VecDeque<(Place, Event)>,
    requests: u64,
    dialed: u64,
    /// Ends of requests that nobody has asked for; a second end of the same is found at once.
    ended: Vec<(u64, Result<DiskResult, DiskError>)>,
    /// Requests that have ended.
    told: Vec<u64>,
}

impl Subject {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(body: impl Body + 'static) -> Self {
        Self {
            body: Box::new(body),
            seen: VecDeque::new(),
            requests: 0,
            dialed: 0,
            ended: vec![],
            told: vec![],
        }
    }

    /// Executes an effect.
    pub fn execute(&mut self, place: Place, effect: Effect) {
        self.body.execute(place, effect);
    }

    /// The first event at `place` in which `pick` finds something, waiting for it.
    pub fn until<T>(&mut self, place: Place, pick: impl Fn(&NetworkEvent) -> Option<T>) -> T {
        let found = |(at, event): &(Place, Event)| match event {
            Event::Network(event) if *at == place => pick(event),
            _ => None,
        };
        for index in 0..self.seen.len() {
            if let Some(picked) = found(&self.seen[index]) {
                self.seen.remove(index);
                return picked;
            }
        }
        loop {
            let next = self.body.next();
            if let Some(picked) = found(&next) {
                return picked;
            }
            self.seen.push_back(next);
        }
    }

    /// How many events at the node's first shard wait to be looked at.
    #[must_use]
    pub fn seen(&self) -> usize {
        let first = |(place, _): &&(Place, Event)| *place == Place::First;
        self.seen.iter().filter(first).count()
    }

    /// Everything that was not looked at, and what still comes by itself.
    pub fn rest(&mut self) -> Vec<(Place, Event)> {
        while let Some(next) = self.body.next_if_any() {
            self.seen.push_back(next);
        }
        self.seen.drain(..).collect()
    }
}

/// The disk, of the node's first shard.
impl Subject {
    /// Starts a request; its number.
    pub fn start(&mut self, request: DiskRequest) -> u64 {
        self.requests += 1;
        let token = Token {
            owner: OWNER,
            request: self.requests,
        };
        self.execute(Place::First, Effect::Disk { token, request });
        self.requests
    }

    /// How a request has ended, waiting for it.
    ///
    /// # Panics
    /// If any request ends twice, or one that was never made.
    pub fn end(&mut self, request: u64) -> Result<DiskResult, DiskError> {
        loop {
            if let Some(index) = self.ended.iter().position(|(ended, _)| *ended == request) {
                return self.ended.swap_remove(index).1;
            }
            match self.body.next() {
                (Place::First, Event::Disk(DiskDone { token, result })) => {
                    assert_eq!(token.owner, OWNER);
                    assert!((1..=self.requests).contains(&token.request));
                    assert!(!self.told.contains(&token.request), "{token:?} ends twice");
                    self.told.push(token.request);
                    self.ended.push((token.request, result));
                }
                other => self.seen.push_back(other),
            }
        }
    }

    /// Does a request.
    ///
    /// # Errors
    /// As the body says.
    pub fn disk(&mut self, request: DiskRequest) -> Result<DiskResult, DiskError> {
        let request = self.start(request);
        self.end(request)
    }

    /// Does a request that answers `Done`.
    ///
    /// # Panics
    /// If it fails, or answers anything else.
    pub fn done(&mut self, request: DiskRequest) {
        let result = self.disk(request);
        assert!(matches!(result, Ok(DiskResult::Done)), "{result:?}");
    }

    /// Opens a file; its size.
    ///
    /// # Errors
    /// As the body says.
    ///
    /// # Panics
    /// If the answer is none to an open.
    pub fn open(&mut self, file: u64, path: &str, mode: OpenMode) -> Result<u64, DiskError> {
        let request = DiskRequest::Open {
            file: FileId(file),
            path: path.into(),
            mode,
        };
        self.disk(request).map(|result| match result {
            DiskResult::Opened { size } => size,
            other => panic!("{other:?}"),
        })
    }

    /// Makes a file with this content.
    ///
    /// # Panics
    /// If it exists or cannot be made.
    pub fn create(&mut self, file: u64, path: &str, content: &[u8]) {
        assert_eq!(self.open(file, path, OpenMode::CreateIfMissing), Ok(0));
        self.write(file, 0, &[content]);
    }

    /// Writes all pieces, one after the other.
    ///
    /// # Panics
    /// If that fails.
    pub fn write(&mut self, file: u64, offset: u64, pieces: &[&[u8]]) {
        let result = self.disk(write_request(file, offset, pieces));
        assert!(matches!(result, Ok(DiskResult::Written)), "{result:?}");
    }

    /// Reads into a buffer that holds `kept` and has room for `room` more; what was appended.
    ///
    /// # Panics
    /// If that fails, or `kept` is not kept.
    pub fn read(&mut self, file: u64, offset: u64, room: usize) -> Vec<u8> {
        let (buffer, kept) = buffer_with_room(room);
        let result = self.disk(DiskRequest::Read {
            file: FileId(file),
            offset,
            buffer,
        });
        match result {
            Ok(DiskResult::Read { buffer }) => appended(&buffer, kept),
            other => panic!("{other:?}"),
        }
    }

    /// The names in a directory.
    ///
    /// # Panics
    /// If that fails.
    pub fn names(&mut self, path: &str) -> Vec<String> {
        match self.disk(DiskRequest::List { path: path.into() }) {
            Ok(DiskResult::Names(names)) => names,
            other => panic!("{other:?}"),
        }
    }
}

/// A request to write all pieces.
#[must_use]
pub fn write_request(file: u64, offset: u64, pieces: &[&[u8]]) -> DiskRequest {
    DiskRequest::Write {
        file: FileId(file),
        offset,
        data: pieces.iter().map(|piece| Bytes::copy_of(piece)).collect(),
    }
}

/// The network.
impl Subject {
    /// Listens on a free port; where.
    pub fn listen(&mut self, place: Place, listener: ListenerId) -> Address {
        let address = self.body.address(place);
        self.execute(place, Effect::Listen { listener, address });
        self.until(place, |event| match event {
            NetworkEvent::Listening {
                listener: told,
                address,
            } if *told == listener => Some(*address),
            _ => None,
        })
    }

    /// Where nobody listens.
    #[must_use]
    pub fn nowhere(&self) -> Address {
        self.body.nowhere()
    }

    /// Dials from the peer.
    pub fn dial(&mut self, address: Address) -> ConnectionId {
        self.dialed += 1;
        let connection = ConnectionId::dialed(ShardIndex(0), self.dialed);
        let effect = Effect::Connect {
            connection,
            address,
        };
        self.execute(Place::Peer, effect);
        connection
    }

    /// Waits until a dial of the peer is answered.
    pub fn connected(&mut self, id: ConnectionId) {
        self.until(Place::Peer, |event| match event {
            NetworkEvent::Connected { connection } => (*connection == id).then_some(()),
            _ => None,
        });
    }

    /// Waits for a connection to the node's first shard: through what, its name, from where.
    pub fn accepted(&mut self) -> (ListenerId, ConnectionId, Address) {
        self.until(Place::First, |event| match event {
            NetworkEvent::Accepted {
                listener,
                connection,
                peer,
            } => Some((*listener, *connection, *peer)),
            _ => None,
        })
    }

    /// A connection from the peer to the node, as each side names it: peer, node.
    pub fn pair(&mut self) -> (ConnectionId, ConnectionId) {
        let address = self.listen(Place::First, ListenerId::CLIENT);
        self.another(address)
    }

    /// One more, to an address.
    pub fn another(&mut self, address: Address) -> (ConnectionId, ConnectionId) {
        let dialed = self.dial(address);
        self.connected(dialed);
        (dialed, self.accepted().1)
    }

    /// Asks for at most `room` bytes.
    pub fn ask(&mut self, place: Place, connection: ConnectionId, room: usize) {
        let buffer = buffer_with_room(room).0;
        self.execute(place, Effect::Receive { connection, buffer });
    }

    /// The bytes that came for an [`Self::ask`] with the same room; none if it is closed.
    ///
    /// # Panics
    /// If an empty or a changed buffer comes back.
    pub fn answer(&mut self, place: Place, id: ConnectionId, room: usize) -> Option<Vec<u8>> {
        let kept = buffer_with_room(room).1;
        self.until(place, |event| match event {
            NetworkEvent::Received { connection, buffer } if *connection == id => {
                let bytes = appended(buffer, kept);
                assert!(!bytes.is_empty(), "a receive brings at least a byte");
                Some(Some(bytes))
            }
            NetworkEvent::Closed { connection } if *connection == id => Some(None),
            _ => None,
        })
    }

    /// Receives exactly `size` bytes, at most `room` at once.
    ///
    /// # Panics
    /// If the connection is closed before.
    pub fn receive(
        &mut self,
        place: Place,
        connection: ConnectionId,
        (size, room): (usize, usize),
    ) -> Vec<u8> {
        let mut bytes = vec![];
        while bytes.len() < size {
            let room = room.min(size - bytes.len());
            self.ask(place, connection, room);
            let more = self.answer(place, connection, room);
            bytes.extend(more.expect("not all has come"));
        }
        bytes
    }

    /// Receives until the connection is closed, at most `room` bytes at once.
    pub fn receive_all(&mut self, place: Place, id: ConnectionId, room: usize) -> Vec<u8> {
        let mut bytes = vec![];
        loop {
            self.ask(place, id, room);
            let Some(more) = self.answer(place, id, room) else {
                return bytes;
            };
            bytes.extend(more);
        }
    }

    /// Sends.
    pub fn send(&mut self, place: Place, connection: ConnectionId, bytes: &[u8]) {
        let bytes = Bytes::copy_of(bytes);
        self.execute(place, Effect::Send { connection, bytes });
    }

    /// The sizes of the next `count` sends that are done.
    pub fn sent(&mut self, place: Place, id: ConnectionId, count: usize) -> Vec<usize> {
        let sent = |event: &NetworkEvent| match event {
            NetworkEvent::Sent { connection, size } if *connection == id => Some(*size),
            _ => None,
        };
        (0..count).map(|_| self.until(place, sent)).collect()
    }

    /// Closes.
    pub fn close(&mut self, place: Place, connection: ConnectionId) {
        self.execute(place, Effect::Close { connection });
    }

    /// Gives a connection from the node's first shard to its second.
    pub fn hand_over(&mut self, connection: ConnectionId, received: &[u8]) {
        let effect = Effect::HandOver {
            connection,
            to: ShardIndex(1),
            received: Bytes::copy_of(received),
            listener: ListenerId::CLIENT,
        };
        self.execute(Place::First, effect);
    }

    /// Waits for a connection that is handed to the second shard: from where it is, and the
    /// bytes that come with it.
    pub fn adopted(&mut self, id: ConnectionId) -> (Address, Vec<u8>) {
        self.until(Place::Second, |event| match event {
            NetworkEvent::Adopted {
                listener: ListenerId::CLIENT,
                connection,
                peer,
                received,
            } if *connection == id => Some((*peer, received.to_vec())),
            _ => None,
        })
    }
}

/// A buffer with room for exactly `room` bytes, and how many it holds before them.
fn buffer_with_room(room: usize) -> (Buffer, usize) {
    let capacity = Buffer::with_capacity(room).capacity();
    let kept = capacity - room;
    let mut buffer = Buffer::with_capacity(capacity);
    buffer.extend(&vec![0xa5; kept]);
    assert_eq!(buffer.capacity(), capacity);
    (buffer, kept)
}

/// What a body has put behind the first `kept` bytes, which must be as they were.
fn appended(buffer: &Buffer, kept: usize) -> Vec<u8> {
    let (before, after) = buffer.as_slice().split_at(kept);
    assert!(before.iter().all(|&byte| byte == 0xa5), "kept as it was");
    after.to_vec()
}

/// Bytes without a pattern that a shift or a swap would keep.
#[must_use]
pub fn noise(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()[0]
    };
    (0..size).map(|_| byte()).collect()
}
