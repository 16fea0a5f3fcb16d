//! Requests of clients, in the order of `wire.md` 3.9: framing, identity, session, then what is
//! asked for.

use alloc::vec::Vec;

use base::{Bytes, GroupId};
use platform::{Address, ConnectionId, Effect, ListenerId, Ticket};
use wire::{
    ErrorCode, EvictionHeader, EvictionReason, HEADER_SIZE, Operation, Plane, ReplyHeader, Request,
    RequestHeader,
    header::{denial, eviction, reply},
};

use super::{Shard, answers::Waiting, pending::Knowledge, reads::Question};
use crate::{ask::Ask, connections::Bound};

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
            self.on_request(connection, frame, Knowledge::Local);
        }
    }

    /// A request of a client; or the same again, after it would have been refused by metadata
    /// that may have been out of date.
    pub(super) fn on_request(
        &mut self,
        connection: ConnectionId,
        frame: Bytes,
        knowledge: Knowledge,
    ) {
        let Ok(header) = RequestHeader::decode(&frame) else {
            // Whoever breaks the framing or the numbering cannot be answered in a way that it
            // would understand.
            return self.connections.close(connection, &mut self.core.out);
        };
        if !header.matches_body(&frame[HEADER_SIZE..]) {
            return self.deny(connection, &header, ErrorCode::INVALID_FORMAT);
        }
        let now = self.core.now.monotonic;
        let Some(state) = self.connections.get_mut(connection) else {
            return;
        };
        state.heard = now;
        let bound = state.bound;
        if ::core::mem::take(&mut state.stale) && header.operation != Operation::Register {
            base::sometimes!("groups: a client that was silent is told so");
            return self.evict(connection, &header, EvictionReason::StaleClient);
        }
        match (header.operation.plane(), bound) {
            (Plane::NonReplicated, _) => {
                self.on_command(connection, header, frame, bound, knowledge);
            }
            (Plane::Session, _) if header.operation == Operation::Register => {
                self.on_login(connection, header, frame, knowledge);
            }
            (Plane::Session, None) => self.acknowledge(connection, &header),
            (Plane::Internal, _) => self.deny(connection, &header, ErrorCode::INVALID_COMMAND),
            (_, None) => self.evict(connection, &header, EvictionReason::NoSession),
            (_, Some(bound)) if !fits(&bound, &header) => {
                self.evict(connection, &header, EvictionReason::SessionTooLow);
            }
            (_, Some(bound)) => self.on_write(connection, header, frame, bound, knowledge),
        }
    }

    /// A request that enters a log.
    fn on_write(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        frame: Bytes,
        bound: Bound,
        knowledge: Knowledge,
    ) {
        // A send is decoded where its batch is looked at.
        if header.operation != Operation::SendMessages
            && let Err(error) = Request::decode(header.operation, 0, &frame[HEADER_SIZE..])
        {
            return self.deny(connection, &header, error.code());
        }
        let makes_token = header.operation == Operation::CreatePersonalAccessToken;
        if !makes_token && let Some(connection) = self.connections.get_mut(connection) {
            connection.minted = None;
        }
        if makes_token
            || matches!(
                header.operation,
                Operation::CreateUser | Operation::ChangePassword
            )
        {
            return self.on_secret_write(connection, header, frame, bound, knowledge);
        }
        // What enters the log of the metadata is judged when it is applied.
        if header.operation.plane() == Plane::Partition {
            let body = &frame[HEADER_SIZE..];
            let allowed = self.is_allowed(&header, body, &bound);
            if let Err(code) = allowed {
                return self.refuse(connection, header, frame, (code, bound.user, knowledge));
            }
        }
        let mut ask = self.ask(connection, header, frame, bound.user);
        if header.operation == Operation::JoinConsumerGroup && !self.add_home(&mut ask) {
            return self
                .core
                .answers
                .push(ask.refuse(ErrorCode::INVALID_COMMAND));
        }
        self.route(ask);
    }

    /// Whether the user may make this request, as far as is known here.
    fn is_allowed(
        &self,
        header: &RequestHeader,
        body: &[u8],
        bound: &Bound,
    ) -> Result<(), ErrorCode> {
        if bound.user == metadata::ROOT {
            return Ok(());
        }
        let request = Request::decode(header.operation, header.code, body);
        let request = request.map_err(|error| error.code())?;
        self.metadata.authorize_request(bound.user, &request)
    }

    /// Refuses a request, or finds out first whether that is still right.
    fn refuse(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        frame: Bytes,
        (code, user, knowledge): (ErrorCode, u32, Knowledge),
    ) {
        if self.knows(knowledge) {
            return self.deny(connection, &header, code);
        }
        let ask = self.ask(connection, header, frame, user);
        self.refresh(ask);
    }

    /// A request that enters no log.
    fn on_command(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        frame: Bytes,
        bound: Option<Bound>,
        knowledge: Knowledge,
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
        if let Err(code) = self.metadata.authorize_request(bound.user, &request) {
            drop(request);
            return self.refuse(connection, header, frame, (code, bound.user, knowledge));
        }
        if reads_metadata(&request) && !self.knows(knowledge) && !base::planted::bug(71) {
            drop(request);
            let ask = self.ask(connection, header, frame, bound.user);
            return self.refresh(ask);
        }
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
            request if reads_metadata(&request) => {
                drop(request);
                let ask = self.ask(connection, header, frame, bound.user);
                self.on_metadata_read(ask);
            }
            _ => self.deny(connection, &header, ErrorCode::FEATURE_UNAVAILABLE),
        }
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
        let mut consumer = header.client;
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.busy = Some(number);
            if let Some(attached) = connection.attached {
                consumer = base::ClientId(attached.client_id);
            }
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
            consumer,
            floor: base::Op(0),
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

    pub(super) fn evict(
        &mut self,
        connection: ConnectionId,
        header: &RequestHeader,
        reason: EvictionReason,
    ) {
        let frame = alloc::vec![eviction(&EvictionHeader::new(header.client, reason))];
        self.connections.send(connection, frame, &mut self.core.out);
    }
}

/// Whether a request belongs to the session its connection is bound to.
fn fits(bound: &Bound, header: &RequestHeader) -> bool {
    bound.session == header.session && bound.client == header.client
}

/// Whether a request reads what the log of the metadata says, and so must not be answered by a
/// copy that is behind.
const fn reads_metadata(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::GetStats
            | Request::GetStream(_)
            | Request::GetStreams
            | Request::GetTopic(_)
            | Request::GetTopics(_)
            | Request::GetUser(_)
            | Request::GetUsers
            | Request::GetPersonalAccessTokens
            | Request::GetConsumerGroup(_)
            | Request::GetConsumerGroups(_)
            | Request::SyncConsumerGroup(_)
    )
}
