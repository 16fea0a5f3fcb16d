//! Who has a session: one per identity, ended only by its client, its user's end or the limit.
//!
//! The table of sessions is kept a second time, from the log alone, and what nodes tell clients
//! is held against it: a login that went well names a session that the log has opened; nobody is
//! told that a session is over that lives; and a request that is asked again is answered with the
//! same bytes, by whatever node and in whatever view.
//!
//! Source: `wire.md` 3.1 to 3.3.

use std::collections::{BTreeMap, VecDeque};

use base::ClientId;
use platform::ConnectionId;
use wire::EvictionReason;

use super::{Verdict, ensure};

const CHECK: &str = "sessions";

/// Replies kept for a session.
const REPLIES_MAX: usize = 5;

/// A request as the log names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) client: ClientId,
    pub(crate) session: u64,
    pub(crate) request: u64,
    pub(crate) checksum: u128,
}

/// What is to be done with a request that has come to its turn in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It is new.
    Do,
    /// This op has done it.
    Done(u64),
    /// It has been done, and what it was answered is not kept any more.
    Forgotten,
    /// It belongs to no session that lives.
    Homeless,
    /// Its number was another request's.
    Reused,
}

#[derive(Clone, Debug)]
struct Live {
    session: u64,
    user: u32,
    /// The highest number done.
    watermark: u64,
    /// When it was last heard of in the log.
    newest: u64,
    /// Number, checksum and op of the last requests.
    done: VecDeque<(u64, u128, u64)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    limit: usize,
    live: BTreeMap<ClientId, Live>,
    /// Whose an identity is, or was last.
    owners: BTreeMap<ClientId, u32>,
    /// Every session there ever was.
    opened: BTreeMap<u64, (ClientId, u32)>,
    /// Which session a connection was told it is in.
    bound: BTreeMap<(u8, ConnectionId), (ClientId, u64)>,
    /// What a request was answered, by client, number and op.
    answers: BTreeMap<(ClientId, u64, u64), u64>,
}

impl Sessions {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// Whose identity this is.
    pub(crate) fn user_of(&self, client: ClientId) -> Option<u32> {
        self.owners.get(&client).copied()
    }

    /// The session that a client is in.
    pub(crate) fn session_of(&self, client: ClientId) -> Option<u64> {
        self.live.get(&client).map(|live| live.session)
    }

    /// Who a session was opened for.
    pub(crate) fn opened(&self, session: u64) -> Option<(ClientId, u32)> {
        self.opened.get(&session).copied()
    }

    /// An op opens a session; not if the identity is somebody else's.
    pub(crate) fn open(&mut self, client: ClientId, user: u32, op: u64) -> bool {
        if let Some(live) = self.live.get_mut(&client) {
            if live.user != user {
                return false;
            }
            base::sometimes!("audit: an identity opens its next session");
            live.session = op;
            live.newest = op;
        } else {
            if self.live.len() >= self.limit {
                let oldest = self.live.iter().min_by_key(|(_, live)| live.newest);
                let oldest = oldest
                    .map(|(client, _)| *client)
                    .expect("the limit is not 0");
                base::sometimes!("audit: a session goes to make room");
                self.live.remove(&oldest);
            }
            let live = Live {
                session: op,
                user,
                watermark: 0,
                newest: op,
                done: VecDeque::new(),
            };
            self.live.insert(client, live);
        }
        self.owners.insert(client, user);
        self.opened.insert(op, (client, user));
        true
    }

    pub(crate) fn close(&mut self, client: ClientId, session: u64) {
        if self
            .live
            .get(&client)
            .is_some_and(|live| live.session == session)
        {
            self.live.remove(&client);
        }
    }

    /// A user is gone, or shut out.
    pub(crate) fn close_user(&mut self, user: u32) {
        let before = self.live.len();
        self.live.retain(|_, live| live.user != user);
        base::sometimes!(
            self.live.len() < before,
            "audit: a session ends with its user"
        );
    }

    /// What is to be done with a request at its turn.
    pub(crate) fn decide(&self, asked: &Asked) -> Decision {
        let live = self.live.get(&asked.client);
        let Some(live) = live.filter(|live| live.session == asked.session) else {
            return Decision::Homeless;
        };
        if asked.request > live.watermark {
            return Decision::Do;
        }
        let mut done = live.done.iter();
        match done.find(|(request, ..)| *request == asked.request) {
            None => Decision::Forgotten,
            Some(&(_, checksum, op)) => {
                let stamped = checksum != 0 && asked.checksum != 0;
                if stamped && checksum != asked.checksum {
                    return Decision::Reused;
                }
                Decision::Done(op)
            }
        }
    }

    /// A new request has been done by an op.
    pub(crate) fn on_done(&mut self, asked: &Asked, op: u64) {
        let Some(live) = self.live.get_mut(&asked.client) else {
            return;
        };
        live.watermark = asked.request;
        live.newest = op;
        live.done.push_back((asked.request, asked.checksum, op));
        if live.done.len() > REPLIES_MAX {
            live.done.pop_front();
        }
    }

    /// A node has told a client that it is logged in.
    pub(crate) fn on_login(
        &mut self,
        time: u64,
        (node, connection): (u8, ConnectionId),
        client: ClientId,
        (session, user): (u64, u32),
    ) -> Verdict {
        let opened = self.opened(session);
        ensure(opened == Some((client, user)), CHECK, time, || {
            format!(
                "node {node} gives {client:?} session {session} of user {user}; the log has \
                 opened it for {opened:?}"
            )
        })?;
        self.bound.insert((node, connection), (client, session));
        Ok(())
    }

    /// A node has told a client that its session is over, or that it may have none.
    pub(crate) fn on_eviction(
        &mut self,
        time: u64,
        (node, connection): (u8, ConnectionId),
        reason: EvictionReason,
    ) -> Verdict {
        let ends = matches!(
            reason,
            EvictionReason::NoSession
                | EvictionReason::SessionTooLow
                | EvictionReason::UserInactive
        );
        let bound = self.bound.get(&(node, connection));
        let Some(&(client, session)) = bound.filter(|_| ends) else {
            return Ok(());
        };
        base::sometimes!("audit: a client is told that its session is over");
        let live = self.live.get(&client).map(|live| live.session);
        ensure(live != Some(session), CHECK, time, || {
            format!("node {node} ends session {session} of {client:?}, which lives: {reason:?}")
        })
    }

    /// A node answers a request: always with the same bytes.
    pub(crate) fn on_answer(
        &mut self,
        time: u64,
        (client, request, op): (ClientId, u64, u64),
        body: &[u8],
    ) -> Verdict {
        let hash = base::checksum::xxh3_64(body);
        let first = self.answers.insert((client, request, op), hash);
        base::sometimes!(first.is_some(), "audit: a request is answered once more");
        ensure(first.is_none_or(|first| first == hash), CHECK, time, || {
            format!("request {request} of {client:?} at op {op} is answered with other bytes")
        })
    }

    /// A node has stopped: its connections are gone.
    pub(crate) fn on_stopped(&mut self, node: u8) {
        self.bound.retain(|(at, _), _| *at != node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(7);
    const B: ClientId = ClientId(8);

    fn asked(session: u64, request: u64) -> Asked {
        Asked {
            client: A,
            session,
            request,
            checksum: 0,
        }
    }

    #[test]
    fn a_request_is_done_once_and_remembered_for_five_more() {
        let mut sessions = Sessions::new(2);
        assert!(sessions.open(A, 0, 1));
        assert_eq!(sessions.decide(&asked(1, 1)), Decision::Do);
        for request in 1..=6 {
            sessions.on_done(&asked(1, request), 1 + request);
        }
        assert_eq!(sessions.decide(&asked(1, 6)), Decision::Done(7));
        assert_eq!(sessions.decide(&asked(1, 1)), Decision::Forgotten);
        assert_eq!(sessions.decide(&asked(1, 7)), Decision::Do);
        // The next session of the same client goes on where the last was.
        assert!(sessions.open(A, 0, 9));
        assert_eq!(sessions.decide(&asked(1, 7)), Decision::Homeless);
        assert_eq!(sessions.decide(&asked(9, 6)), Decision::Done(7));
        assert!(!sessions.open(A, 5, 10), "it is another user's");
    }

    #[test]
    fn an_eviction_needs_a_reason() {
        let mut sessions = Sessions::new(1);
        let place = (0, ConnectionId(4));
        let evict =
            |sessions: &mut Sessions| sessions.on_eviction(5, place, EvictionReason::NoSession);
        sessions.open(A, 0, 1);
        assert!(
            sessions.on_login(1, place, A, (1, 3)).is_err(),
            "not that user"
        );
        assert_eq!(sessions.on_login(1, place, A, (1, 0)), Ok(()));
        assert!(evict(&mut sessions).is_err(), "it lives");
        sessions.open(B, 0, 2);
        assert_eq!(evict(&mut sessions), Ok(()), "it went to make room");
    }

    #[test]
    fn answers_do_not_change() {
        let mut sessions = Sessions::new(1);
        assert_eq!(sessions.on_answer(1, (A, 1, 2), b"one"), Ok(()));
        assert_eq!(sessions.on_answer(2, (A, 1, 2), b"one"), Ok(()));
        assert!(sessions.on_answer(3, (A, 1, 2), b"two").is_err());
    }
}
