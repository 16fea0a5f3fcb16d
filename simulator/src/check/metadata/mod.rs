//! The auditor: every reply about the metadata, held against a model that follows the same log.
//!
//! ```text
//!   committed ops ──▶ model ──▶ what each op comes to ◀── replies of nodes, every attempt
//!                       └─────▶ versions, by op       ◀── reads of clients
//! ```
//!
//! The model is written from the protocol, not from the state machine: only the codecs of the wire
//! are common to both. What consumer groups do is another checker's (`groups`).
//!
//! Source: `wire.md` 3.2, 4.7 to 5.6; `features.md` §1.1, §1.6.

mod options;
mod reads;
mod rights;
mod state;

use std::{collections::BTreeMap, sync::Arc};

use base::ClientId;
use platform::ConnectionId;
use wire::{
    Codec, ErrorCode, Operation, Plane, Reader, ReplyHeader, Request, UserStatus,
    replica::PrepareHeader, reply::LoginRecord, result::decode_result,
};

use super::{
    Failure, Verdict, ensure,
    sessions::{Asked, Decision, Sessions},
};

pub(crate) use options::Segments;
pub(crate) use reads::{Answered, Read};
use state::{At, Credential, Outcome, State, Told};

const CHECK: &str = "metadata";

/// Codes that say that a request has not been admitted, or that nobody knows.
const TRANSIENT: [ErrorCode; 2] = [
    ErrorCode::TRANSIENT_NOT_ACCEPTED,
    ErrorCode::TRANSIENT_NOT_COMMITTED,
];

/// What the auditor is told of the cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) root: &'static str,
    pub(crate) segments: Segments,
    pub(crate) clients_max: usize,
    pub(crate) nodes: usize,
    /// A full disk may refuse what is written.
    pub(crate) disks_fill: bool,
}

/// What an op came to.
#[derive(Clone, Debug)]
struct Judged {
    client: ClientId,
    request: u64,
    outcome: Outcome,
    /// Things as they were after it.
    state: Arc<State>,
}

/// See the module.
pub(crate) struct Auditor {
    setting: Setting,
    op: u64,
    state: Arc<State>,
    versions: BTreeMap<u64, Arc<State>>,
    judged: BTreeMap<u64, Judged>,
    pub(crate) sessions: Sessions,
    /// The newest op that anybody was told of.
    told: u64,
    /// Nothing is judged any more: the cluster has said that it may have lost something.
    ended: bool,
}

impl Auditor {
    pub(crate) fn new(setting: Setting) -> Self {
        let state = Arc::new(State::new(setting.root, setting.segments));
        Self {
            setting,
            op: 0,
            versions: BTreeMap::from([(0, Arc::clone(&state))]),
            state,
            judged: BTreeMap::new(),
            sessions: Sessions::new(setting.clients_max),
            told: 0,
            ended: false,
        }
    }

    /// The log of the metadata may have lost ops: what is told from here on is not judged.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    pub(crate) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// What the log has had as the password of a user since an op; none while it could not log
    /// in.
    pub(crate) fn passwords_since(&self, op: u64, name: &str) -> Vec<Option<String>> {
        let versions = self.versions_since(op);
        versions.map(|state| state.password_of(name)).collect()
    }

    /// Whether a token has opened anything since an op, and whether it may have been shut. What
    /// has an end may have ended by a node's clock; the op of a login says by whose.
    pub(crate) fn token_since(&self, op: u64, digest: &[u8]) -> (bool, bool) {
        let ends = self.versions_since(op).map(|state| state.end_of(digest));
        let ends: Vec<Option<Option<u64>>> = ends.collect();
        let open = ends.iter().any(Option::is_some);
        let shut = ends.iter().any(|end| !matches!(end, Some(None)));
        (open, shut)
    }

    /// The newest op that anybody was told of: a read that begins now must show it.
    pub(crate) const fn told(&self) -> u64 {
        self.told
    }

    /// The next op of the log has committed.
    pub(crate) fn on_committed(
        &mut self,
        time: u64,
        header: &PrepareHeader,
        body: &[u8],
    ) -> Verdict {
        if self.ended {
            return Ok(());
        }
        let op = header.op.0;
        let last = self.op;
        ensure(op == last + 1, CHECK, time, || {
            format!("op {op} commits after op {last}")
        })?;
        self.op = op;
        if op == 1 {
            Arc::make_mut(&mut self.state).begin(header.timestamp.0);
            self.versions.insert(0, Arc::clone(&self.state));
        }
        let outcome = match header.operation {
            Operation::Noop => return Ok(()),
            Operation::Register => self.register(header, body),
            Operation::Logout => {
                self.sessions.close(header.client, header.session);
                Outcome::Done(Told::Nothing)
            }
            _ => self.on_request(header, body),
        };
        let judged = Judged {
            client: header.client,
            request: header.request,
            outcome,
            state: Arc::clone(&self.state),
        };
        self.judged.insert(op, judged);
        Ok(())
    }

    fn register(&mut self, header: &PrepareHeader, body: &[u8]) -> Outcome {
        let Some((user, credential)) = login_of(body) else {
            return Outcome::Refused(vec![ErrorCode::INVALID_COMMAND]);
        };
        if let Err(code) = self.state.admit(user, &credential, header.timestamp.0) {
            return Outcome::Refused(vec![code]);
        }
        if self.sessions.open(header.client, user, header.op.0) {
            return Outcome::Done(Told::Nothing);
        }
        Outcome::Refused(vec![ErrorCode::UNAUTHORIZED])
    }

    fn on_request(&mut self, header: &PrepareHeader, body: &[u8]) -> Outcome {
        let asked = Asked {
            client: header.client,
            session: header.session,
            request: header.request,
            checksum: header.request_checksum,
        };
        let own = header.client.0 == 0;
        if !own {
            match self.sessions.decide(&asked) {
                Decision::Do => {}
                Decision::Done(op) => {
                    base::sometimes!("audit: the log holds a request twice");
                    return self.judged[&op].outcome.clone();
                }
                Decision::Forgotten => {
                    return Outcome::Refused(vec![ErrorCode::REQUEST_ALREADY_APPLIED]);
                }
                Decision::Homeless => return Outcome::Refused(vec![ErrorCode::UNAUTHENTICATED]),
                Decision::Reused => return Outcome::Refused(vec![ErrorCode::INVALID_FORMAT]),
            }
        }
        let closes = self.shut_out(header.operation, body);
        let at = At {
            op: header.op.0,
            operation: header.operation,
            user: header.user,
            timestamp: header.timestamp.0,
            body,
        };
        let outcome = Arc::make_mut(&mut self.state).apply(at);
        if let Outcome::Done(_) = outcome {
            self.versions.insert(header.op.0, Arc::clone(&self.state));
            if let Some(user) = closes {
                self.sessions.close_user(user);
            }
        }
        if !own {
            self.sessions.on_done(&asked, header.op.0);
        }
        outcome
    }

    /// Whose sessions end if this op is done.
    fn shut_out(&self, operation: Operation, body: &[u8]) -> Option<u32> {
        match Request::decode(operation, 0, body).ok()? {
            Request::DeleteUser(user) => self.state.find_user(user),
            Request::UpdateUser(of) if of.status == Some(UserStatus::Inactive) => {
                self.state.find_user(of.user)
            }
            _ => None,
        }
    }

    /// A node answers a request that is no read.
    pub(crate) fn on_reply(
        &mut self,
        time: u64,
        place: (u8, ConnectionId),
        header: &ReplyHeader,
        body: &[u8],
    ) -> Verdict {
        mark_refusal(header, body);
        if self.ended {
            return Ok(());
        }
        let plane = header.operation.plane();
        if !matches!(plane, Plane::Metadata | Plane::Session) {
            return Ok(());
        }
        let told = said(header, body);
        let (client, request) = (header.client, header.request);
        let verdict = match (header.operation, told) {
            (_, Err(code)) if header.op == 0 => self.check_unlogged(header.operation, client, code),
            (Operation::Register, Ok(payload)) => {
                let Ok(record) = LoginRecord::decode(payload) else {
                    return self.fail(time, "a login has no record".into());
                };
                let session = (record.session, record.user_id);
                return self.sessions.on_login(time, place, client, session);
            }
            (Operation::Logout | Operation::Register, _) => Ok(()),
            (_, told) => {
                // A token is told once; whoever asks again is told that it was.
                if header.operation != Operation::CreatePersonalAccessToken {
                    let key = (client, request, header.op);
                    self.sessions.on_answer(time, key, body)?;
                }
                self.told = self.told.max(header.op);
                self.check_logged(header, told)
            }
        };
        verdict.or_else(|message| {
            let operation = header.operation;
            let text = format!("{operation:?}, request {request} of {client:?}: {message}");
            self.fail(time, text)
        })
    }
}

impl Auditor {
    /// A refusal that no op stands for.
    fn check_unlogged(
        &self,
        operation: Operation,
        client: ClientId,
        code: ErrorCode,
    ) -> Result<(), String> {
        let rooted = self.sessions.user_of(client) == Some(0);
        let full = [
            ErrorCode::CANNOT_APPEND_MESSAGE,
            ErrorCode::CANNOT_WRITE_TO_FILE,
        ];
        // Frames are damaged on their way; whether this client's was, the workload judges.
        let damaged = [ErrorCode::INVALID_COMMAND, ErrorCode::INVALID_FORMAT];
        let may = TRANSIENT.contains(&code)
            || damaged.contains(&code)
            || self.setting.disks_fill && full.contains(&code)
            || code == ErrorCode::REQUEST_ALREADY_APPLIED
            || !rooted && [ErrorCode::UNAUTHENTICATED, ErrorCode::UNAUTHORIZED].contains(&code)
            || match operation {
                Operation::CreateUser => {
                    [ErrorCode::INVALID_PASSWORD, ErrorCode::USER_ALREADY_EXISTS].contains(&code)
                }
                Operation::UpdateUser => code == ErrorCode::USER_ALREADY_EXISTS,
                Operation::ChangePassword => [
                    ErrorCode::INVALID_PASSWORD,
                    ErrorCode::INVALID_CREDENTIALS,
                    ErrorCode::RESOURCE_NOT_FOUND,
                ]
                .contains(&code),
                Operation::CreateConsumerGroup
                | Operation::DeleteConsumerGroup
                | Operation::JoinConsumerGroup
                | Operation::LeaveConsumerGroup => true,
                _ => false,
            };
        if may {
            return Ok(());
        }
        Err(format!("refused with {code} without a place in the log"))
    }

    /// A reply that names an op: what the op came to is what it must say.
    fn check_logged(
        &self,
        header: &ReplyHeader,
        told: Result<&[u8], ErrorCode>,
    ) -> Result<(), String> {
        let op = header.op;
        let judged = self.judged.get(&op);
        let Some(judged) = judged
            .filter(|judged| judged.client == header.client && judged.request == header.request)
        else {
            return Err(format!(
                "answered with op {op}, which is another's: {judged:?}"
            ));
        };
        match (&judged.outcome, told) {
            (Outcome::Unjudged, _) => Ok(()),
            (Outcome::Refused(reasons), Err(code)) if reasons.contains(&code) => {
                base::sometimes!("audit: a refusal is one of those that the model expects");
                Ok(())
            }
            (Outcome::Done(Told::Token), Ok(token)) if token.len() > 1 => Ok(()),
            (Outcome::Done(Told::Token), Err(ErrorCode::REQUEST_ALREADY_APPLIED)) => Ok(()),
            (Outcome::Done(what), Ok(payload)) => {
                base::sometimes!("audit: a reply is what the model expects");
                judged.state.check_payload(what, payload)
            }
            (expected, told) => Err(format!("op {op} says {told:?}, and must say {expected:?}")),
        }
    }

    /// Things as they were at an op.
    fn version(&self, op: u64) -> &Arc<State> {
        let mut versions = self.versions.range(..=op);
        versions.next_back().expect("the first is that of op 0").1
    }

    /// All that held at some time from an op on.
    fn versions_since(&self, op: u64) -> impl Iterator<Item = &Arc<State>> {
        let later = self.versions.range(op + 1..).map(|(_, state)| state);
        std::iter::once(self.version(op)).chain(later)
    }

    fn fail(&self, time: u64, message: String) -> Verdict {
        Err(Failure {
            check: CHECK,
            time,
            message,
        })
    }
}

/// What a Register in the log says: who logs in, and what lets it in.
fn login_of(body: &[u8]) -> Option<(u32, Credential)> {
    let mut reader = Reader::new(body);
    let user = reader.read().ok()?;
    for _ in 0..2 {
        let length: u8 = reader.read().ok()?;
        reader.take(usize::from(length)).ok()?;
    }
    let credential = match reader.read::<u8>().ok()? {
        0 => Credential::Password {
            since: reader.read().ok()?,
        },
        1 => Credential::Token(reader.take_rest().to_vec()),
        _ => return None,
    };
    Some((user, credential))
}

/// What a reply says: a payload, or a code.
fn said<'a>(header: &ReplyHeader, body: &'a [u8]) -> Result<&'a [u8], ErrorCode> {
    if header.status != ErrorCode::OK {
        return Err(header.status);
    }
    if !header.operation.is_result_framed() {
        return Ok(body);
    }
    decode_result(body).unwrap_or(Err(ErrorCode::INVALID_FORMAT))
}

/// Notes which code a client is told, if it is told one.
fn mark_refusal(header: &ReplyHeader, body: &[u8]) {
    let code = match header.status {
        ErrorCode::OK if header.operation.is_result_framed() => match decode_result(body) {
            Ok(Err(code)) => code,
            _ => return,
        },
        code => code,
    };
    crate::marks::reach_code(code);
}

#[cfg(test)]
mod tests;
