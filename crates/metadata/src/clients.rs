//! The client table: who has a session, and what their last requests were answered.
//!
//! It is part of replicated state, so a retry after a view change still finds its answer. The
//! rules are `wire.md` 3.3: a request number above the watermark is new, one at or below it is
//! answered from here or refused, and never executed again.

use alloc::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    vec::Vec,
};

use base::{ClientId, Op, Timestamp};
use wire::{
    Blob, Codec, DecodeError, ErrorCode, Operation, Reader, SnapshotError,
    result::encode_result,
    snapshot::{read_outcome, write_outcome},
};

use base::Digest;

use crate::snapshot::count;

/// The answer to a committed request; the server frames it, the same way each time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The op that was answered. A replayed reply names the op of the first execution.
    pub op: Op,
    /// When it was prepared.
    pub timestamp: Timestamp,
    /// What was asked.
    pub operation: Operation,
    /// The client's number for it.
    pub request: u64,
    /// The client's checksum of it, 0 if it gave none.
    pub request_checksum: u128,
    /// The payload that follows an empty result section, or the code that stands in it.
    pub result: Result<Arc<[u8]>, ErrorCode>,
}

impl Reply {
    /// The body of the reply frame: the same bytes each time it is asked for.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let result = self.result.as_deref().map_err(|&code| code);
        if self.operation.is_result_framed() {
            return encode_result(result);
        }
        result
            .expect("a Logout always succeeds; all else is framed")
            .to_vec()
    }
}

impl Reply {
    fn write(&self, out: &mut Vec<u8>) {
        self.op.0.write(out);
        self.timestamp.0.write(out);
        (self.operation as u8).write(out);
        self.request.write(out);
        self.request_checksum.write(out);
        write_outcome(self.result.as_ref().map(|_| ()).map_err(|&code| code), out);
        if let Ok(payload) = &self.result {
            Blob(payload).write(out);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, SnapshotError> {
        let (op, timestamp) = (Op(reader.read()?), Timestamp(reader.read()?));
        let operation = Operation::from_byte(reader.read()?).ok_or(DecodeError::Operation)?;
        let (request, request_checksum) = (reader.read()?, reader.read()?);
        let result = match read_outcome(reader)? {
            Ok(()) => Ok(reader.read::<Blob<'_>>()?.0.into()),
            // Only what can carry a code can have been refused.
            Err(_) if !operation.is_result_framed() => return Err(SnapshotError::Contradiction),
            Err(code) => Err(code),
        };
        Ok(Self {
            op,
            timestamp,
            operation,
            request,
            request_checksum,
            result,
        })
    }
}

/// What to do with a request, judged by its client, session and number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Execute it.
    New,
    /// It was executed: send this again.
    Replay(Reply),
    /// It was executed and its reply is gone (code 59). Never execute it again.
    AlreadyApplied,
    /// This client has no session (eviction 1).
    NoSession,
    /// The session has been replaced by a newer one of the same client (eviction 7).
    Fenced,
    /// The client breaks the protocol: a number used twice for different requests, or a session
    /// that was never given out.
    Mismatch,
}

/// A client's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its number: the op of the Register that opened it.
    pub session: u64,
    /// Who logged in.
    pub user: u32,
    /// Highest request number executed.
    pub watermark: u64,
}

/// A request as far as the client table judges it.
#[derive(Clone, Copy, Debug)]
pub struct RequestKey {
    /// Who asks.
    pub client: ClientId,
    /// In which session.
    pub session: u64,
    /// The client's number for it.
    pub request: u64,
    /// The client's checksum of it, 0 if it gave none.
    pub request_checksum: u128,
}

/// What registering a client did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registered {
    /// A client that was not there; `evicted` made room for it.
    Opened { evicted: Option<(ClientId, u64)> },
    /// The same user again: the session in `fenced` is over, the watermark stays.
    Rebound { fenced: u64 },
    /// The client belongs to another user.
    Refused,
}

#[derive(Clone, Debug)]
struct Client {
    session: Session,
    /// The last op this client committed: its place in `by_age`.
    newest: Op,
    /// Oldest first, ascending request numbers.
    replies: VecDeque<Reply>,
}

/// Sessions by client, bounded.
///
/// **Invariant:** `by_age` holds exactly the clients of `clients`, each under its `newest`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientTable {
    clients: BTreeMap<ClientId, Client>,
    by_age: BTreeMap<Op, ClientId>,
}

impl ClientTable {
    pub(crate) fn session(&self, client: ClientId) -> Option<Session> {
        self.clients.get(&client).map(|entry| entry.session)
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = (ClientId, Session)> + '_ {
        self.clients
            .iter()
            .map(|(&client, entry)| (client, entry.session))
    }

    /// Judges a request; changes nothing.
    pub(crate) fn check(&self, key: &RequestKey) -> Decision {
        let Some(entry) = self.clients.get(&key.client) else {
            return Decision::NoSession;
        };
        if key.session < entry.session.session {
            return Decision::Fenced;
        }
        if key.session > entry.session.session {
            return Decision::Mismatch;
        }
        if key.request > entry.session.watermark {
            return Decision::New;
        }
        let Some(reply) = entry
            .replies
            .iter()
            .find(|reply| reply.request == key.request)
        else {
            return Decision::AlreadyApplied;
        };
        let both_stamped = key.request_checksum != 0 && reply.request_checksum != 0;
        if both_stamped && key.request_checksum != reply.request_checksum {
            return Decision::Mismatch;
        }
        Decision::Replay(reply.clone())
    }

    /// Opens a session whose number is `op`.
    pub(crate) fn register(
        &mut self,
        client: ClientId,
        user: u32,
        op: Op,
        clients_max: usize,
    ) -> Registered {
        if let Some(entry) = self.clients.get_mut(&client) {
            if entry.session.user != user {
                return Registered::Refused;
            }
            let fenced = entry.session.session;
            base::invariant!(fenced < op.0, "sessions are ops, and ops only grow");
            entry.session.session = op.0;
            self.touch(client, op);
            return Registered::Rebound { fenced };
        }
        let evicted = (self.clients.len() >= clients_max).then(|| self.evict());
        let session = Session {
            session: op.0,
            user,
            watermark: 0,
        };
        let entry = Client {
            session,
            newest: op,
            replies: VecDeque::new(),
        };
        self.clients.insert(client, entry);
        self.by_age.insert(op, client);
        self.assert_invariants();
        Registered::Opened { evicted }
    }

    /// Removes the client that committed least recently. The op it last committed is the same
    /// on every replica, so is the choice.
    fn evict(&mut self) -> (ClientId, u64) {
        let least = if base::planted::bug(58) {
            self.by_age.pop_last()
        } else {
            self.by_age.pop_first()
        };
        let (_, client) = least.expect("a full table is not empty");
        let entry = self
            .clients
            .remove(&client)
            .expect("by_age holds clients only");
        (client, entry.session.session)
    }

    /// Ends `session`, if the client still is in it.
    pub(crate) fn logout(&mut self, client: ClientId, session: u64) -> Option<Session> {
        let entry = self.clients.get(&client)?;
        if entry.session.session != session {
            return None;
        }
        self.by_age.remove(&entry.newest);
        let entry = self.clients.remove(&client)?;
        self.assert_invariants();
        Some(entry.session)
    }

    /// Ends all sessions of a user; which they were.
    pub(crate) fn close_user(&mut self, user: u32) -> Vec<(ClientId, u64)> {
        let of_user = |(&client, entry): (&ClientId, &Client)| {
            (entry.session.user == user).then_some((client, entry.session.session))
        };
        let closed: Vec<_> = self.clients.iter().filter_map(of_user).collect();
        for &(client, session) in &closed {
            let ended = self.logout(client, session);
            base::invariant!(ended.is_some(), "the session was just found");
        }
        closed
    }

    /// Notes what a request that [`Self::check`] found new was answered.
    pub(crate) fn record(&mut self, client: ClientId, reply: Reply, replies_max: usize) {
        let op = reply.op;
        let Some(entry) = self.clients.get_mut(&client) else {
            // The request has ended its own session: nobody can ask for its reply again.
            return;
        };
        base::invariant!(
            reply.request > entry.session.watermark,
            "checked: the request is new"
        );
        entry.session.watermark = reply.request;
        if entry.replies.len() >= replies_max {
            entry.replies.pop_front();
        }
        entry.replies.push_back(reply);
        self.touch(client, op);
    }

    fn touch(&mut self, client: ClientId, op: Op) {
        let entry = self
            .clients
            .get_mut(&client)
            .expect("touched clients exist");
        base::invariant!(entry.newest < op);
        let moved = self.by_age.remove(&entry.newest);
        base::invariant!(moved == Some(client));
        entry.newest = op;
        self.by_age.insert(op, client);
        self.assert_invariants();
    }

    fn assert_invariants(&self) {
        base::invariant!(self.clients.len() == self.by_age.len());
    }

    /// Appends the whole table to a snapshot.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        count(self.clients.len()).write(out);
        for (client, entry) in &self.clients {
            client.0.write(out);
            entry.session.session.write(out);
            entry.session.user.write(out);
            entry.session.watermark.write(out);
            entry.newest.0.write(out);
            count(entry.replies.len()).write(out);
            for reply in &entry.replies {
                reply.write(out);
            }
        }
    }

    /// Reads what [`Self::write`] wrote after op `op`.
    pub(crate) fn read(reader: &mut Reader<'_>, op: Op) -> Result<Self, SnapshotError> {
        let mut table = Self::default();
        let mut last = None;
        for _ in 0..reader.read::<u32>()? {
            let client = ClientId(reader.read()?);
            let session = Session {
                session: reader.read()?,
                user: reader.read()?,
                watermark: reader.read()?,
            };
            let newest = Op(reader.read()?);
            let mut replies = VecDeque::new();
            for _ in 0..reader.read::<u32>()? {
                replies.push_back(Reply::read(reader)?);
            }
            let ascending = replies
                .iter()
                .zip(replies.iter().skip(1))
                .all(|(a, b): (&Reply, &Reply)| a.request < b.request && a.op < b.op);
            let agrees = replies.back().is_none_or(|reply: &Reply| {
                reply.request == session.watermark && reply.op <= newest
            });
            let in_time = session.session <= newest.0 && newest <= op;
            let in_order = last.replace(client) < Some(client);
            let is_new = table.by_age.insert(newest, client).is_none();
            if !(ascending && agrees && in_time && in_order && is_new) {
                return Err(SnapshotError::Contradiction);
            }
            table.clients.insert(
                client,
                Client {
                    session,
                    newest,
                    replies,
                },
            );
        }
        Ok(table)
    }

    pub(crate) fn digest_into(&self, digest: &mut Digest) {
        digest.u64(self.clients.len() as u64);
        for (client, entry) in &self.clients {
            digest.u128(client.0);
            digest.u64(entry.session.session);
            digest.u32(entry.session.user);
            digest.u64(entry.session.watermark);
            digest.u64(entry.newest.0);
            digest.u64(entry.replies.len() as u64);
            for reply in &entry.replies {
                digest.u64(reply.op.0);
                digest.u64(reply.timestamp.0);
                digest.u32(u32::from(reply.operation as u8));
                digest.u64(reply.request);
                digest.u128(reply.request_checksum);
                match &reply.result {
                    Ok(payload) => {
                        digest.u32(ErrorCode::OK.0);
                        digest.bytes(payload);
                    }
                    Err(code) => digest.u32(code.0),
                }
            }
        }
    }
}
