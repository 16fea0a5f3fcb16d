//! Requests of clients, in the order of `wire.md` 3.9: framing, identity, session, then what is
//! asked for.

use alloc::{string::String, vec::Vec};

use base::{Bytes, GroupId, Op};
use metadata::{Register, Registration};
use platform::{Address, ConnectionId, Effect, ListenerId, Ticket, Token, Work};
use wire::{
    Codec, Credentials, ErrorCode, EvictionHeader, EvictionReason, HEADER_SIZE, Login, LoginPrefix,
    Name, Operation, PROTOCOL_VERSION, Plane, ReplyHeader, Request, RequestHeader,
    accepts_protocol_version,
    header::{denial, eviction, reply},
    reply::LoginRecord,
    result::{decode_result, encode_result},
};

use super::{OWNER_SHARD, Shard, answers::Waiting, reads::Question};
use crate::{
    ask::{Answer, Ask},
    connections::Bound,
};

/// What this server calls itself to clients: the version of the protocol's server it stands for.
pub(super) const SERVER_VERSION: &str = "0.11.0";

/// Codes of logins that older clients send as plain commands.
const LEGACY_LOGINS: [u32; 2] = [38, 44];

impl Shard {
    /// A client has connected to this node: its connections are spread over the shards.
    pub(super) fn on_accepted(&mut self, connection: ConnectionId, peer: Address) {
        let to = base::ShardIndex(self.next_shard);
        self.next_shard = (self.next_shard + 1) % self.core.config.shard_count;
        if to == self.core.config.shard {
            return self.connections.open(connection, peer, &mut self.core.out);
        }
        let (received, listener) = (Bytes::default(), ListenerId::CLIENT);
        self.core.out.push(Effect::HandOver {
            connection,
            to,
            received,
            listener,
        });
    }

    /// Serves what a connection has sent, one request at a time.
    pub(super) fn serve(&mut self, connection: ConnectionId) {
        while let Some(frame) = self
            .connections
            .next_request(connection, &mut self.core.out)
        {
            self.on_request(connection, frame);
        }
    }

    fn on_request(&mut self, connection: ConnectionId, frame: Bytes) {
        let Ok(header) = RequestHeader::decode(&frame) else {
            // Whoever breaks the framing or the numbering cannot be answered in a way that it
            // would understand.
            return self.connections.close(connection, &mut self.core.out);
        };
        if !header.matches_body(&frame[HEADER_SIZE..]) {
            return self.deny(connection, &header, ErrorCode::INVALID_FORMAT);
        }
        let bound = self
            .connections
            .get_mut(connection)
            .and_then(|connection| connection.bound);
        match (header.operation.plane(), bound) {
            (Plane::NonReplicated, _) => self.on_command(connection, header, frame, bound),
            (Plane::Session, _) if header.operation == Operation::Register => {
                self.on_login(connection, header, &frame);
            }
            (Plane::Session, None) => self.acknowledge(connection, &header),
            (Plane::Internal, _) => self.deny(connection, &header, ErrorCode::INVALID_COMMAND),
            (_, None) => self.evict(connection, &header, EvictionReason::NoSession),
            (_, Some(bound)) if !fits(&bound, &header) => {
                self.evict(connection, &header, EvictionReason::SessionTooLow);
            }
            (_, Some(bound)) => self.on_write(connection, header, frame, bound),
        }
    }

    /// A request that enters a log.
    fn on_write(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        frame: Bytes,
        bound: Bound,
    ) {
        // A send is decoded where its batch is looked at.
        if header.operation != Operation::SendMessages
            && let Err(error) = Request::decode(header.operation, 0, &frame[HEADER_SIZE..])
        {
            return self.deny(connection, &header, error.code());
        }
        let supported = matches!(
            header.operation,
            Operation::Logout
                | Operation::CreateStream
                | Operation::UpdateStream
                | Operation::DeleteStream
                | Operation::CreateTopic
                | Operation::UpdateTopic
                | Operation::DeleteTopic
                | Operation::PurgeStream
                | Operation::PurgeTopic
                | Operation::DeleteSegments
                | Operation::CreatePartitions
                | Operation::DeletePartitions
                | Operation::SendMessages
                | Operation::StoreConsumerOffset
                | Operation::DeleteConsumerOffset
        );
        if !supported {
            return self.deny(connection, &header, ErrorCode::FEATURE_UNAVAILABLE);
        }
        let ask = self.ask(connection, header, frame, bound.user);
        self.route(ask);
    }

    /// A request that enters no log.
    fn on_command(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        frame: Bytes,
        bound: Option<Bound>,
    ) {
        const PING: u32 = 1;
        if header.code == PING && frame.len() > HEADER_SIZE {
            return self.deny(connection, &header, ErrorCode::INVALID_COMMAND);
        }
        if header.code == PING {
            return self.acknowledge(connection, &header);
        }
        let Some(bound) = bound else {
            if LEGACY_LOGINS.contains(&header.code) {
                return self.evict(connection, &header, EvictionReason::MalformedLogin);
            }
            return self.deny(connection, &header, ErrorCode::UNAUTHENTICATED);
        };
        let body = &frame[HEADER_SIZE..];
        let request = match Request::decode(header.operation, header.code, body) {
            Ok(request) => request,
            Err(error) => return self.deny(connection, &header, error.code()),
        };
        match request {
            Request::GetClusterMetadata => {
                let body = self.cluster_metadata();
                self.reply(connection, &header, &body);
            }
            Request::DescribeOptions(scope) => {
                let body = self.metadata.describe_options(scope);
                self.reply(connection, &header, &body);
            }
            Request::GetMe => {
                let body = self.me(connection);
                self.reply(connection, &header, &body);
            }
            Request::GetSnapshot(snapshot) => {
                self.on_snapshot(connection, header, snapshot, &bound);
            }
            Request::GetStats | Request::GetClient(_) | Request::GetClients => {
                let question = match request {
                    Request::GetClient(id) => Question::Client(id),
                    Request::GetClients => Question::Clients,
                    _ => Question::Stats,
                };
                drop(request);
                let ask = self.ask(connection, header, frame, bound.user);
                self.on_system_read(ask, question);
            }
            Request::AttachConsumerSession(attach) => {
                let session = self.metadata.session(base::ClientId(attach.client_id));
                let known = session.is_some_and(|session| {
                    session.session == attach.session && session.user == bound.user
                });
                if attach.metadata_watermark > self.metadata.op().0 {
                    return self.deny(connection, &header, ErrorCode::TRANSIENT_NOT_ACCEPTED);
                }
                if !known {
                    return self.deny(connection, &header, ErrorCode::UNAUTHENTICATED);
                }
                if let Some(connection) = self.connections.get_mut(connection) {
                    connection.attached = Some(attach);
                }
                self.acknowledge(connection, &header);
            }
            Request::PollRouting(_) | Request::ConsumerOffsetRouting(_) => {
                let body = self.routing_reply(&bound);
                self.reply(connection, &header, &body);
            }
            Request::PollMessages(_)
            | Request::PollOnPrimary(_)
            | Request::GetConsumerOffset(_) => {
                drop(request);
                let ask = self.ask(connection, header, frame, bound.user);
                self.route(ask);
            }
            Request::GetStream(_)
            | Request::GetStreams
            | Request::GetTopic(_)
            | Request::GetTopics(_) => {
                drop(request);
                let ask = self.ask(connection, header, frame, bound.user);
                self.on_metadata_read(ask);
            }
            _ => self.deny(connection, &header, ErrorCode::FEATURE_UNAVAILABLE),
        }
    }

    fn on_login(&mut self, connection: ConnectionId, header: RequestHeader, frame: &Bytes) {
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
        let Credentials::Password { username, password } = login.credentials else {
            return self.evict(connection, &header, EvictionReason::InvalidToken);
        };
        // An unknown user costs as much time as a wrong password.
        let known = self.metadata.user_named(username.as_str());
        let register = Register {
            user: known.unwrap_or(u32::MAX),
            sdk_name: login.prefix.sdk_name,
            sdk_version: login.prefix.sdk_version,
        };
        let inner = RequestHeader {
            request_checksum: 0,
            ..header
        };
        let ask_frame = wire::header::request(&inner, &register.encode());
        let ask = self.ask(connection, header, ask_frame, register.user);
        let token = Token {
            owner: OWNER_SHARD,
            request: ask.ticket.number,
        };
        self.logins.insert(ask.ticket.number, ask);
        let password = String::from(password.0);
        let hash = self.core.config.root.hash.clone();
        self.core.out.push(Effect::Compute {
            token,
            work: Work::VerifyPassword { password, hash },
        });
    }

    pub(super) fn on_password_verified(&mut self, number: u64, verified: bool) {
        let Some(ask) = self.logins.remove(&number) else {
            return;
        };
        if verified && ask.user != u32::MAX {
            return match self.bound_answer(&ask) {
                Some(answer) => self.core.answers.push(answer),
                None => self.route(ask),
            };
        }
        let header = EvictionHeader::new(ask.header.client, EvictionReason::InvalidCredentials);
        let frame = alloc::vec![eviction(&header)];
        self.core.answers.push(ask.answer(frame));
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
                    let reason = EvictionReason::SessionError;
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

    pub(super) fn finish_logout(&mut self, waiting: &Waiting, frame: Vec<Bytes>) -> Vec<Bytes> {
        let done = frame
            .first()
            .and_then(|whole| ReplyHeader::decode(whole).ok());
        let done = done.is_some_and(|header| header.status == ErrorCode(0));
        if done && let Some(connection) = self.connections.get_mut(waiting.connection) {
            connection.bound = None;
            connection.attached = None;
        }
        frame
    }

    /// Takes a request on: its connection waits from here on.
    pub(super) fn ask(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        frame: Bytes,
        user: u32,
    ) -> Ask {
        let until = self.core.now.monotonic + self.core.config.timing.request;
        let number = self.tickets.issue(connection, header, until);
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.busy = Some(number);
        }
        let (replica, shard) = (self.core.config.replica, self.core.config.shard);
        let ticket = Ticket {
            replica,
            shard,
            number,
        };
        Ask {
            ticket,
            group: GroupId::METADATA,
            user,
            hops: 0,
            patience: None,
            header,
            frame,
        }
    }

    fn reply(&mut self, connection: ConnectionId, header: &RequestHeader, body: &[u8]) {
        let op = self.metadata.op().0;
        let header = ReplyHeader {
            commit: op,
            ..ReplyHeader::to(header)
        };
        let frame = alloc::vec![reply(&header, body)];
        self.connections.send(connection, frame, &mut self.core.out);
    }

    fn acknowledge(&mut self, connection: ConnectionId, header: &RequestHeader) {
        self.reply(connection, header, &[]);
    }

    pub(super) fn deny(
        &mut self,
        connection: ConnectionId,
        header: &RequestHeader,
        code: ErrorCode,
    ) {
        let frame = alloc::vec![denial(header, code)];
        self.connections.send(connection, frame, &mut self.core.out);
    }

    fn evict(&mut self, connection: ConnectionId, header: &RequestHeader, reason: EvictionReason) {
        let frame = alloc::vec![eviction(&EvictionHeader::new(header.client, reason))];
        self.connections.send(connection, frame, &mut self.core.out);
    }
}

/// Whether a request belongs to the session its connection is bound to.
fn fits(bound: &Bound, header: &RequestHeader) -> bool {
    bound.session == header.session && bound.client == header.client
}
