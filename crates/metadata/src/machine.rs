//! The state machine: one committed prepare in, a reply and a list of changes out.

use alloc::{string::String, vec::Vec};

use base::{ClientId, Digest, GroupId, Op};
use wire::{
    Codec, ErrorCode, Identifier, Operation, Request, SnapshotError,
    replica::PrepareHeader,
    request::{CreateStream, CreateTopic, PartitionsCount, TopicTarget, UpdateStream, UpdateTopic},
};

use crate::{
    Limits,
    clients::{ClientTable, Decision, Registered, Reply, RequestKey, Session},
    register::{Register, Registration},
    snapshot,
    state::{Change, State},
    users::Users,
};

/// What applying a prepare gave.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The answer, for the client if it still waits.
    pub reply: Reply,
    /// What the rest of the server must do about it, in order.
    pub changes: Vec<Change>,
}

/// The metadata plane at an op of its log.
///
/// **Invariant:** equal logs give equal states, replies and changes, on every replica and shard.
#[derive(Clone, Debug)]
pub struct Metadata {
    pub(crate) limits: Limits,
    pub(crate) root_username: String,
    /// The last op applied.
    op: Op,
    pub(crate) state: State,
    pub(crate) users: Users,
    pub(crate) clients: ClientTable,
}

impl Metadata {
    /// The state before the first op. `root_username` is not part of the state: what enters the
    /// log names root by its number.
    ///
    /// # Panics
    /// If the limits make no sense.
    #[must_use]
    pub fn new(limits: Limits, root_username: &str) -> Self {
        limits.assert_valid();
        Self {
            limits,
            root_username: root_username.into(),
            op: Op(0),
            state: State::default(),
            users: Users::default(),
            clients: ClientTable::default(),
        }
    }

    /// The last op applied.
    #[must_use]
    pub const fn op(&self) -> Op {
        self.op
    }

    /// The session of a client.
    #[must_use]
    pub fn session(&self, client: ClientId) -> Option<Session> {
        self.clients.session(client)
    }

    /// All sessions, by client.
    pub fn sessions(&self) -> impl Iterator<Item = (ClientId, Session)> + '_ {
        self.clients.sessions()
    }

    /// Judges a request before it is proposed. It is judged again when its op is applied, for
    /// the same request may have entered the log twice. A Logout needs no judgement: it is
    /// harmless twice.
    #[must_use]
    pub fn check_request(&self, key: &RequestKey) -> Decision {
        self.clients.check(key)
    }

    /// Applies the next committed op.
    ///
    /// # Panics
    /// If it is not the next op of the metadata group.
    pub fn apply(&mut self, prepare: &PrepareHeader, body: &[u8]) -> Applied {
        base::invariant!(prepare.group == GroupId::METADATA);
        base::invariant!(
            prepare.op == self.op.next(),
            "ops are applied in order, each once"
        );
        if self.op == Op(0) {
            self.users.found(prepare.timestamp);
        }
        self.op = prepare.op;
        let mut changes = Vec::new();
        let result = match prepare.operation {
            Operation::Noop => Ok(Vec::new()),
            Operation::Register => self.register(prepare, body, &mut changes),
            Operation::Logout => {
                self.logout(prepare, &mut changes);
                Ok(Vec::new())
            }
            _ => {
                return Applied {
                    reply: self.apply_request(prepare, body, &mut changes),
                    changes,
                };
            }
        };
        Applied {
            reply: reply(prepare, result),
            changes,
        }
    }

    fn register(
        &mut self,
        prepare: &PrepareHeader,
        body: &[u8],
        changes: &mut Vec<Change>,
    ) -> Result<Vec<u8>, ErrorCode> {
        let Register {
            user, credential, ..
        } = decode(body)?;
        if prepare.client.0 == 0 {
            return Err(ErrorCode::INVALID_COMMAND);
        }
        self.users.admit(user, credential, prepare.timestamp)?;
        let client = prepare.client;
        let closed = |client, session| Change::SessionClosed { client, session };
        match self
            .clients
            .register(client, user, prepare.op, self.limits.clients_max)
        {
            Registered::Refused => return Err(ErrorCode::UNAUTHORIZED),
            Registered::Rebound { fenced } => {
                self.state.leave_all(client, prepare.into());
                changes.push(closed(client, fenced));
            }
            Registered::Opened { evicted } => {
                if let Some((evicted, _)) = evicted {
                    self.state.leave_all(evicted, prepare.into());
                }
                changes.extend(evicted.map(|(client, session)| closed(client, session)));
            }
        }
        let session = prepare.op.0;
        changes.push(Change::SessionOpened {
            client,
            session,
            user,
        });
        Ok(Registration { user, session }.encode())
    }

    /// Ends the session named in the header. One that is over already is left alone.
    fn logout(&mut self, prepare: &PrepareHeader, changes: &mut Vec<Change>) {
        let (client, session) = (prepare.client, prepare.session);
        if self.clients.logout(client, session).is_some() {
            self.state.leave_all(client, prepare.into());
            changes.push(Change::SessionClosed { client, session });
        }
    }

    /// An op that a client numbered: executed once, answered as often as it comes. The server's
    /// own ops (client 0) are not numbered.
    fn apply_request(
        &mut self,
        prepare: &PrepareHeader,
        body: &[u8],
        changes: &mut Vec<Change>,
    ) -> Reply {
        if prepare.client.0 == 0 {
            return reply(prepare, self.execute(prepare, body, changes));
        }
        let refusal = match self.clients.check(&RequestKey::from(prepare)) {
            Decision::New => {
                let reply = reply(prepare, self.execute(prepare, body, changes));
                self.clients
                    .record(prepare.client, reply.clone(), self.limits.replies_max);
                return reply;
            }
            Decision::Replay(reply) => return reply,
            Decision::AlreadyApplied => ErrorCode::REQUEST_ALREADY_APPLIED,
            // The session ended between proposal and commit: nothing was done, and the client
            // may log in and ask again.
            Decision::NoSession | Decision::Fenced => ErrorCode::UNAUTHENTICATED,
            Decision::Mismatch => ErrorCode::INVALID_FORMAT,
        };
        reply(prepare, Err(refusal))
    }

    /// Does what an op asks for: all of it, or nothing and a code.
    fn execute(
        &mut self,
        prepare: &PrepareHeader,
        body: &[u8],
        changes: &mut Vec<Change>,
    ) -> Result<Vec<u8>, ErrorCode> {
        match prepare.operation {
            Operation::CreateStream
            | Operation::UpdateStream
            | Operation::DeleteStream
            | Operation::PurgeStream => {
                self.permit(prepare, body)?;
                self.execute_on_streams(prepare, body, changes)
            }
            Operation::CreateTopic
            | Operation::UpdateTopic
            | Operation::DeleteTopic
            | Operation::PurgeTopic
            | Operation::CreatePartitions
            | Operation::DeletePartitions => {
                self.permit(prepare, body)?;
                self.execute_on_topics(prepare, body, changes)
            }
            Operation::CreateUser
            | Operation::UpdateUser
            | Operation::DeleteUser
            | Operation::ChangePassword
            | Operation::UpdatePermissions
            | Operation::CreatePersonalAccessToken
            | Operation::DeletePersonalAccessToken => self.execute_on_users(prepare, body, changes),
            Operation::RemoveExpiredTokens => {
                self.users.remove_expired(prepare.timestamp);
                Ok(Vec::new())
            }
            Operation::CreateConsumerGroup
            | Operation::DeleteConsumerGroup
            | Operation::JoinConsumerGroup
            | Operation::LeaveConsumerGroup
            | Operation::RemoveConsumerGroupMember
            | Operation::CompleteConsumerGroupRevocation => {
                self.execute_on_groups(prepare, body, changes)
            }
            _ => Err(ErrorCode::FEATURE_UNAVAILABLE),
        }
    }

    /// Whether the user that an op carries may do what it asks for, at this op: the same verdict
    /// on every replica, and on replay.
    pub(crate) fn permit(&self, prepare: &PrepareHeader, body: &[u8]) -> Result<(), ErrorCode> {
        let request = Request::decode(prepare.operation, 0, body).map_err(|error| error.code())?;
        self.authorize_request(prepare.user, &request)
    }

    fn execute_on_streams(
        &mut self,
        prepare: &PrepareHeader,
        body: &[u8],
        changes: &mut Vec<Change>,
    ) -> Result<Vec<u8>, ErrorCode> {
        match prepare.operation {
            Operation::CreateStream => {
                let CreateStream { name, options } = decode(body)?;
                let id = self
                    .state
                    .create_stream(name, options, prepare, &self.limits)?;
                return Ok(self.created_stream(id));
            }
            Operation::UpdateStream => {
                let UpdateStream {
                    stream,
                    name,
                    options,
                } = decode(body)?;
                self.state.update_stream(stream, name, options)?;
            }
            Operation::PurgeStream => {
                let stream: Identifier<'_> = decode(body)?;
                self.state.purge_stream(stream, changes)?;
            }
            _ => {
                let stream: Identifier<'_> = decode(body)?;
                let id = self.state.delete_stream(stream, changes)?;
                self.users.forget_scope(id, None);
            }
        }
        Ok(Vec::new())
    }

    fn execute_on_topics(
        &mut self,
        prepare: &PrepareHeader,
        body: &[u8],
        changes: &mut Vec<Change>,
    ) -> Result<Vec<u8>, ErrorCode> {
        let limits = &self.limits;
        match prepare.operation {
            Operation::CreateTopic => {
                let topic: CreateTopic<'_> = decode(body)?;
                let (stream, id) = self.state.create_topic(&topic, prepare, limits, changes)?;
                return Ok(self.created_topic(stream, id));
            }
            Operation::UpdateTopic => {
                let update: UpdateTopic<'_> = decode(body)?;
                self.state.update_topic(&update, limits, changes)?;
            }
            Operation::DeleteTopic => {
                let topic: TopicTarget<'_> = decode(body)?;
                let (stream, topic) = self.state.delete_topic(&topic, changes)?;
                self.users.forget_scope(stream, Some(topic));
            }
            Operation::PurgeTopic => {
                let topic: TopicTarget<'_> = decode(body)?;
                self.state.purge_topic(&topic, changes)?;
            }
            Operation::CreatePartitions => {
                let request: PartitionsCount<'_> = decode(body)?;
                self.state
                    .create_partitions(&request, prepare, limits, changes)?;
            }
            _ => {
                let request: PartitionsCount<'_> = decode(body)?;
                self.state
                    .delete_partitions(&request, prepare, limits, changes)?;
            }
        }
        Ok(Vec::new())
    }

    /// The whole state in bytes, the same on every replica at equal ops.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        let parts = (&self.state, &self.clients, &self.users);
        snapshot::write(self.op, self.digest(), parts)
    }

    /// The state that a snapshot was taken of.
    ///
    /// # Errors
    /// [`SnapshotError`] if it is damaged or of another version.
    ///
    /// # Panics
    /// If the limits make no sense.
    pub fn restore(
        limits: Limits,
        root_username: &str,
        bytes: &[u8],
    ) -> Result<Self, SnapshotError> {
        let restored = snapshot::read(bytes, &limits)?;
        let mut metadata = Self {
            op: restored.op,
            state: restored.state,
            clients: restored.clients,
            users: restored.users,
            ..Self::new(limits, root_username)
        };
        if metadata.digest() != restored.digest {
            return Err(SnapshotError::Digest);
        }
        let homeless = |client: &ClientId| metadata.session(*client).is_none();
        if metadata
            .state
            .memberships
            .members()
            .any(|client| homeless(&client))
        {
            return Err(SnapshotError::Contradiction);
        }
        if base::planted::bug(21) {
            metadata.clients = ClientTable::default();
        }
        Ok(metadata)
    }

    /// A hash of the whole state: equal on all replicas at equal ops.
    #[must_use]
    pub fn digest(&self) -> u128 {
        let mut digest = Digest::default();
        digest.u64(self.op.0);
        self.state.digest_into(&mut digest);
        self.clients.digest_into(&mut digest);
        self.users.digest_into(&mut digest);
        digest.finish()
    }
}

pub(crate) fn decode<'a, T: Codec<'a>>(body: &'a [u8]) -> Result<T, ErrorCode> {
    T::decode(body).map_err(|error| error.code())
}

fn reply(prepare: &PrepareHeader, result: Result<Vec<u8>, ErrorCode>) -> Reply {
    Reply {
        op: prepare.op,
        timestamp: prepare.timestamp,
        operation: prepare.operation,
        request: prepare.request,
        request_checksum: prepare.request_checksum,
        result: result.map(Into::into),
    }
}

impl From<&PrepareHeader> for RequestKey {
    fn from(prepare: &PrepareHeader) -> Self {
        Self {
            client: prepare.client,
            session: prepare.session,
            request: prepare.request,
            request_checksum: prepare.request_checksum,
        }
    }
}
