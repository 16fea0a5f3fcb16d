//! Logins: by password or by token, checked here, entered in the log as a Register that carries
//! neither.

use alloc::vec::Vec;

use base::{Bytes, Op};
use metadata::{Credential, Register, Registration, TokenHash};
use platform::{ConnectionId, Work};
use wire::{
    Codec, Credentials, ErrorCode, EvictionHeader, EvictionReason, HEADER_SIZE, Identifier, Login,
    LoginPrefix, Name, Operation, PROTOCOL_VERSION, ReplyHeader, RequestHeader,
    accepts_protocol_version,
    header::{eviction, reply},
    reply::LoginRecord,
    result::{decode_result, encode_result},
};

use super::{
    Shard,
    answers::Waiting,
    client::SERVER_VERSION,
    pending::{Knowledge, Pending, Stage, secret},
};
use crate::{
    ask::{Answer, Ask},
    connections::Bound,
};

impl Shard {
    pub(super) fn on_login(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        frame: Bytes,
        knowledge: Knowledge,
    ) {
        let body = &frame[HEADER_SIZE..];
        let Ok(prefix) = LoginPrefix::decode_prefix(body) else {
            return self.evict(connection, &header, EvictionReason::MalformedLogin);
        };
        if !accepts_protocol_version(prefix.protocol_version) {
            return self.evict(connection, &header, EvictionReason::IncompatibleProtocol);
        }
        let Ok(login) = Login::decode(body) else {
            return self.evict(connection, &header, EvictionReason::MalformedLogin);
        };
        let (stage, work) = match login.credentials {
            Credentials::Password { username, password } => {
                let user = self.metadata.find_user(Identifier::Named(username));
                let login = user.and_then(|user| self.metadata.login(user));
                let hash = self.hash_of(login.as_ref());
                let password = secret(password.0);
                let work = Work::VerifyPassword { password, hash };
                (Stage::Password(login), work)
            }
            Credentials::Token(token) => (Stage::TokenDigest, Work::DigestToken(secret(token.0))),
        };
        let ask = self.ask(connection, header, frame, u32::MAX);
        let pending = Pending {
            ask,
            knowledge,
            stage,
        };
        self.compute(pending, work);
    }

    pub(super) fn on_login_verified(
        &mut self,
        ask: Ask,
        knowledge: Knowledge,
        login: Option<metadata::Login>,
        matches: bool,
    ) {
        match login.filter(|login| matches && login.active) {
            Some(login) => {
                let credential = Credential::Password { since: login.since };
                self.register(ask, login.user, credential);
            }
            None if self.knows(knowledge) => {
                let answer = Self::evicted(&ask, EvictionReason::InvalidCredentials);
                self.core.answers.push(answer);
            }
            None => self.refresh(ask),
        }
    }

    pub(super) fn on_login_digested(&mut self, ask: Ask, knowledge: Knowledge, digest: TokenHash) {
        match self.metadata.login_by_token(&digest, self.core.stamp()) {
            Ok(user) => self.register(ask, user, Credential::Token(digest)),
            Err(code) if self.knows(knowledge) => {
                let answer = Self::evicted(&ask, refusal_of(code));
                self.core.answers.push(answer);
            }
            Err(_) => self.refresh(ask),
        }
    }

    /// Whoever logs in is known: the session is opened through the log.
    fn register(&mut self, ask: Ask, user: u32, credential: Credential) {
        let login = Login::decode(ask.body()).expect("decoded before");
        let register = Register {
            user,
            sdk_name: login.prefix.sdk_name,
            sdk_version: login.prefix.sdk_version,
            credential,
        };
        let body = register.encode();
        let ask = Self::with_body(Ask { user, ..ask }, &body, 0);
        match self.bound_answer(&ask) {
            Some(answer) => self.core.answers.push(answer),
            None => self.route(ask),
        }
    }

    /// A client that logs in again where it is logged in keeps its session.
    fn bound_answer(&mut self, ask: &Ask) -> Option<Answer> {
        let connection = self.tickets.connection(ask.ticket.number)?;
        let bound = self.connections.get_mut(connection)?.bound?;
        if bound.client != ask.header.client || bound.user != ask.user {
            return None;
        }
        let registration = Registration {
            user: bound.user,
            session: bound.session,
        };
        let body = encode_result(Ok(&registration.encode()));
        Some(ask.reply(Op(bound.session), Operation::Register, &body))
    }

    /// The metadata has registered the client: the connection is bound, and told so in the words
    /// of the protocol. A failure passes through.
    pub(super) fn finish_login(&mut self, waiting: &Waiting, frame: Vec<Bytes>) -> Vec<Bytes> {
        let [whole] = frame.as_slice() else {
            return frame;
        };
        let Ok(header) = ReplyHeader::decode(whole) else {
            return frame;
        };
        let result = decode_result(&whole[HEADER_SIZE..]);
        let (ErrorCode(0), Ok(Ok(payload))) = (header.status, result) else {
            return match (header.status, result) {
                (ErrorCode(0), Ok(Err(code))) if !code.is_transient() => {
                    let client = waiting.header.client;
                    let reason = refusal_of(code);
                    alloc::vec![eviction(&EvictionHeader::new(client, reason))]
                }
                (status, _) if status.is_transient() => {
                    // Logins carry their refusal in the result section.
                    let header = ReplyHeader {
                        status: ErrorCode(0),
                        ..header
                    };
                    alloc::vec![reply(&header, &encode_result(Err(status)))]
                }
                _ => frame,
            };
        };
        let Ok(registration) = Registration::decode(payload) else {
            return frame;
        };
        let client = waiting.header.client;
        let live = self.metadata.session(client).map(|live| live.session);
        if live != Some(registration.session) {
            // Over before it began: the same client has logged in elsewhere since.
            let reason = EvictionReason::SessionTooLow;
            return alloc::vec![eviction(&EvictionHeader::new(client, reason))];
        }
        let record = LoginRecord {
            user_id: registration.user,
            session: registration.session,
            server_protocol_version: PROTOCOL_VERSION,
            server_version: Name::new(SERVER_VERSION).expect("a short constant"),
        };
        if let Some(connection) = self.connections.get_mut(waiting.connection) {
            connection.bound = Some(Bound {
                client,
                session: registration.session,
                user: registration.user,
            });
            connection.attached = None;
        }
        alloc::vec![reply(&header, &encode_result(Ok(&record.encode())))]
    }
}

/// How a login is told that it may not have a session.
fn refusal_of(code: ErrorCode) -> EvictionReason {
    match code {
        ErrorCode::INVALID_CREDENTIALS => EvictionReason::InvalidCredentials,
        ErrorCode::INVALID_PERSONAL_ACCESS_TOKEN | ErrorCode::PERSONAL_ACCESS_TOKEN_EXPIRED => {
            EvictionReason::InvalidToken
        }
        ErrorCode::USER_INACTIVE => EvictionReason::UserInactive,
        _ => EvictionReason::SessionError,
    }
}
