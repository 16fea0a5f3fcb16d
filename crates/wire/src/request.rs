//! Bodies of requests, decoded without a copy. [`Request`] is all of them.

use crate::{
    AckLevel, ArchiveCompression, ArchiveContent, Code, Codec, Consumer, Credentials, DecodeError,
    Identifier, Login, Name, Operation, OptionalPartition, Options, OptionsScope, Partitioning,
    Permissions, Plane, PollingStrategy, Prefixed, Reader, Secret, Sink, UserStatus, codec::layout,
};

layout! {
    /// A topic.
    #[derive(Copy)]
    TopicTarget<'a> {
        /// Its stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
    }
}

layout! {
    /// A consumer group.
    #[derive(Copy)]
    GroupTarget<'a> {
        /// The stream of its topic.
        stream: Identifier<'a>,
        /// Its topic.
        topic: Identifier<'a>,
        /// The group.
        group: Identifier<'a>,
    }
}

/// What a diagnostic archive is to hold: `compression:u8, count:u8, type:u8 × count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot<'a> {
    /// How its files are compressed.
    pub compression: ArchiveCompression,
    /// At most 255 bytes, each a checked [`ArchiveContent`].
    types: &'a [u8],
}

impl<'a> Snapshot<'a> {
    /// A request for these contents; `None` if a byte is no [`ArchiveContent`] or there are more
    /// than 255.
    #[must_use]
    pub fn new(compression: ArchiveCompression, types: &'a [u8]) -> Option<Self> {
        let known = |&byte: &u8| ArchiveContent::from_byte(byte).is_some();
        let valid = types.len() <= 255 && types.iter().all(known);
        valid.then_some(Self { compression, types })
    }

    /// What is asked for, in the order given; may repeat.
    pub fn contents(self) -> impl Iterator<Item = ArchiveContent> + 'a {
        let types = self.types.iter();
        types.filter_map(|&byte| ArchiveContent::from_byte(byte))
    }
}

impl<'a> Codec<'a> for Snapshot<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let compression = reader.read()?;
        let count: u8 = reader.read()?;
        let types = reader.take(usize::from(count))?;
        Self::new(compression, types).ok_or(DecodeError::Kind)
    }

    fn write(&self, out: &mut impl Sink) {
        let count = u8::try_from(self.types.len()).expect("at most 255 types");
        out.put(&[self.compression as u8, count]);
        out.put(self.types);
    }
}

layout! {
    /// The session whose group memberships and offsets this connection acts for.
    #[derive(Copy)]
    AttachSession {
        /// The client of that session.
        client_id: u128,
        /// The session.
        session: u64,
        /// How far the metadata must be committed here before the answer.
        metadata_watermark: u64,
    }
}

layout! {
    /// A new stream.
    #[derive(Copy)]
    CreateStream<'a> {
        /// Its name.
        name: Name<'a>,
        /// Its options.
        options: Options<'a>,
    }
}

layout! {
    /// A stream's new name.
    #[derive(Copy)]
    UpdateStream<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// Its new name.
        name: Name<'a>,
        /// Options to change.
        options: Options<'a>,
    }
}

layout! {
    /// A new topic.
    #[derive(Copy)]
    CreateTopic<'a> {
        /// Its stream.
        stream: Identifier<'a>,
        /// How many partitions it starts with; may be 0.
        partitions_count: u32,
        /// Its name.
        name: Name<'a>,
        /// Its options.
        options: Options<'a>,
    }
}

layout! {
    /// A topic's new name and options.
    #[derive(Copy)]
    UpdateTopic<'a> {
        /// Its stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// Its new name; the old one to keep it.
        name: Name<'a>,
        /// Options to change; what is absent stays.
        options: Options<'a>,
    }
}

layout! {
    /// How many partitions to add or remove.
    #[derive(Copy)]
    PartitionsCount<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// How many.
        count: u32,
    }
}

layout! {
    /// How many of a partition's oldest segments to delete.
    #[derive(Copy)]
    DeleteSegments<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The partition.
        partition_id: u32,
        /// How many.
        segments_count: u32,
    }
}

layout! {
    /// Which messages to read.
    #[derive(Copy)]
    PollMessages<'a> {
        /// For whom.
        consumer: Consumer<'a>,
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The partition; absent means 0 for a single consumer and is an error for a group.
        partition: OptionalPartition,
        /// Where to start.
        strategy: PollingStrategy,
        /// At most so many.
        count: u32,
        /// Whether to store the last offset read as the consumer's.
        auto_commit: bool,
    }
}

layout! {
    /// What stands before the batch of a send.
    #[derive(Copy)]
    SendTarget<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The partition, or how to choose it.
        partitioning: Partitioning<'a>,
        /// As in the batch.
        messages_count: u32,
    }
}

/// A batch for a partition: `target_size:u32, target, batch`.
///
/// The batch ends the body, so in a frame it starts at `frame.len() - batch.len()`. Its bytes
/// have not been looked at; see [`crate::batch::verify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendMessages<'a> {
    /// Where to.
    pub target: SendTarget<'a>,
    /// The batch, header and messages.
    pub batch: &'a [u8],
}

impl<'a> Codec<'a> for SendMessages<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let target = reader.read::<Prefixed<SendTarget<'a>>>()?.0;
        Ok(Self {
            target,
            batch: reader.take_rest(),
        })
    }

    fn write(&self, out: &mut impl Sink) {
        Prefixed(self.target).write(out);
        out.put(self.batch);
    }
}

layout! {
    /// Writes out what a partition has in memory; refused by servers of this protocol version.
    #[derive(Copy)]
    FlushUnsavedBuffer<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The partition.
        partition_id: u32,
        /// Whether to sync too.
        fsync: bool,
    }
}

layout! {
    /// A consumer's offset in a partition.
    #[derive(Copy)]
    OffsetTarget<'a> {
        /// Whose.
        consumer: Consumer<'a>,
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The partition; absent means 0 for a single consumer and is an error for a group.
        partition: OptionalPartition,
    }
}

layout! {
    /// An offset to store.
    #[derive(Copy)]
    StoreConsumerOffset<'a> {
        /// Where.
        target: OffsetTarget<'a>,
        /// The offset of the last message handled.
        offset: u64,
        /// What to wait for.
        ack: AckLevel,
    }
}

layout! {
    /// An offset to forget.
    #[derive(Copy)]
    DeleteConsumerOffset<'a> {
        /// Where.
        target: OffsetTarget<'a>,
        /// What to wait for.
        ack: AckLevel,
    }
}

layout! {
    /// A new consumer group.
    #[derive(Copy)]
    CreateConsumerGroup<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The group's name.
        name: Name<'a>,
    }
}

layout! {
    /// A new user.
    CreateUser<'a> {
        /// The name.
        username: Name<'a>,
        /// The password.
        password: Secret<'a>,
        /// Whether the user may log in.
        status: UserStatus,
        /// Rights; absent means none.
        permissions: Option<Prefixed<Permissions>>,
        /// Options; there are none to give.
        options: Options<'a>,
    }
}

layout! {
    /// A user's new name or status.
    #[derive(Copy)]
    UpdateUser<'a> {
        /// The user.
        user: Identifier<'a>,
        /// The new name.
        username: Option<Name<'a>>,
        /// The new status.
        status: Option<UserStatus>,
        /// Options; there are none to give.
        options: Options<'a>,
    }
}

layout! {
    /// A user's new rights.
    UpdatePermissions<'a> {
        /// The user.
        user: Identifier<'a>,
        /// The rights; absent removes all.
        permissions: Option<Prefixed<Permissions>>,
    }
}

layout! {
    /// A user's new password.
    #[derive(Copy)]
    ChangePassword<'a> {
        /// The user.
        user: Identifier<'a>,
        /// The password so far.
        current: Secret<'a>,
        /// The password from now on.
        new: Secret<'a>,
    }
}

layout! {
    /// A new token for the acting user.
    #[derive(Copy)]
    CreatePersonalAccessToken<'a> {
        /// Its name.
        name: Name<'a>,
        /// How long it is good for, in microseconds; `u64::MAX` for ever, 0 for the default.
        expiry: u64,
    }
}

macro_rules! requests {
    (
        empty { $($(#[$empty_doc:meta])* $empty:ident,)* }
        bodies { $($(#[$doc:meta])* $name:ident($body:ty),)* }
    ) => {
        /// A request's body, by command.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Request<'a> {
            /// Opens a session.
            Register(Login<'a>),
            $($(#[$empty_doc])* $empty,)*
            $($(#[$doc])* $name($body),)*
        }

        impl<'a> Request<'a> {
            fn decode_code(code: Code, body: &'a [u8]) -> Result<Self, DecodeError> {
                match code {
                    Code::LoginRegister | Code::LoginRegisterWithPersonalAccessToken => {
                        Login::decode(body).map(Self::Register)
                    }
                    Code::LoginUser | Code::LoginWithPersonalAccessToken => {
                        Err(DecodeError::Code)
                    }
                    $(Code::$empty => Reader::new(body).finish().map(|()| Self::$empty),)*
                    $(Code::$name => <$body as Codec>::decode(body).map(Self::$name),)*
                }
            }

            /// The command.
            #[must_use]
            pub const fn code(&self) -> Code {
                match self {
                    Self::Register(Login { credentials: Credentials::Password { .. }, .. }) => {
                        Code::LoginRegister
                    }
                    Self::Register(_) => Code::LoginRegisterWithPersonalAccessToken,
                    $(Self::$empty => Code::$empty,)*
                    $(Self::$name(_) => Code::$name,)*
                }
            }

            /// Writes the body.
            pub fn write(&self, out: &mut impl Sink) {
                match self {
                    Self::Register(body) => body.write(out),
                    $(Self::$empty => {})*
                    $(Self::$name(body) => body.write(out),)*
                }
            }
        }
    };
}

requests! {
    empty {
        /// Nothing; keeps the connection alive.
        Ping,
        /// Ends the session.
        Logout,
        /// Numbers about the server.
        GetStats,
        /// The nodes.
        GetClusterMetadata,
        /// The asking client's record.
        GetMe,
        /// All clients.
        GetClients,
        /// All users.
        GetUsers,
        /// The acting user's tokens.
        GetPersonalAccessTokens,
        /// All streams.
        GetStreams,
    }
    bodies {
        /// A diagnostic archive.
        GetSnapshot(Snapshot<'a>),
        /// The options there are.
        DescribeOptions(OptionsScope),
        /// Acts for another connection's session.
        AttachConsumerSession(AttachSession),
        /// One client's record.
        GetClient(u32),
        /// One user.
        GetUser(Identifier<'a>),
        /// Creates a user.
        CreateUser(CreateUser<'a>),
        /// Deletes a user.
        DeleteUser(Identifier<'a>),
        /// Changes a user's name or status.
        UpdateUser(UpdateUser<'a>),
        /// Changes a user's rights.
        UpdatePermissions(UpdatePermissions<'a>),
        /// Changes a password.
        ChangePassword(ChangePassword<'a>),
        /// Creates a token.
        CreatePersonalAccessToken(CreatePersonalAccessToken<'a>),
        /// Deletes a token.
        DeletePersonalAccessToken(Name<'a>),
        /// Reads messages.
        PollMessages(PollMessages<'a>),
        /// Appends messages.
        SendMessages(SendMessages<'a>),
        /// Writes out a partition's memory.
        FlushUnsavedBuffer(FlushUnsavedBuffer<'a>),
        /// Which node to poll with auto-commit.
        PollRouting(PollMessages<'a>),
        /// Reads messages and stores the offset through the log.
        PollOnPrimary(PollMessages<'a>),
        /// Reads a consumer's offset.
        GetConsumerOffset(OffsetTarget<'a>),
        /// Stores a consumer's offset.
        StoreConsumerOffset(StoreConsumerOffset<'a>),
        /// Deletes a consumer's offset.
        DeleteConsumerOffset(DeleteConsumerOffset<'a>),
        /// Which node to send offsets to.
        ConsumerOffsetRouting(OffsetTarget<'a>),
        /// One stream and its topics.
        GetStream(Identifier<'a>),
        /// Creates a stream.
        CreateStream(CreateStream<'a>),
        /// Deletes a stream.
        DeleteStream(Identifier<'a>),
        /// Renames a stream.
        UpdateStream(UpdateStream<'a>),
        /// Empties a stream.
        PurgeStream(Identifier<'a>),
        /// One topic and its partitions.
        GetTopic(TopicTarget<'a>),
        /// All topics of a stream.
        GetTopics(Identifier<'a>),
        /// Creates a topic.
        CreateTopic(CreateTopic<'a>),
        /// Deletes a topic.
        DeleteTopic(TopicTarget<'a>),
        /// Changes a topic's name and options.
        UpdateTopic(UpdateTopic<'a>),
        /// Empties a topic.
        PurgeTopic(TopicTarget<'a>),
        /// Adds partitions.
        CreatePartitions(PartitionsCount<'a>),
        /// Removes the newest partitions.
        DeletePartitions(PartitionsCount<'a>),
        /// Removes a partition's oldest segments.
        DeleteSegments(DeleteSegments<'a>),
        /// One consumer group and its members.
        GetConsumerGroup(GroupTarget<'a>),
        /// All consumer groups of a topic.
        GetConsumerGroups(TopicTarget<'a>),
        /// Creates a consumer group.
        CreateConsumerGroup(CreateConsumerGroup<'a>),
        /// Deletes a consumer group.
        DeleteConsumerGroup(GroupTarget<'a>),
        /// Joins a consumer group.
        JoinConsumerGroup(GroupTarget<'a>),
        /// Leaves a consumer group.
        LeaveConsumerGroup(GroupTarget<'a>),
        /// The member's partitions.
        SyncConsumerGroup(GroupTarget<'a>),
    }
}

impl<'a> Request<'a> {
    /// Decodes a body. `code` is looked at only if the operation is non-replicated.
    ///
    /// # Errors
    /// [`DecodeError`] if the command is unknown or does not travel this way, or if the body is
    /// not exactly one body of it.
    pub fn decode(operation: Operation, code: u32, body: &'a [u8]) -> Result<Self, DecodeError> {
        let code = match operation.plane() {
            Plane::Internal => return Err(DecodeError::Operation),
            Plane::NonReplicated => {
                Code::from_number(code).filter(|code| code.operation() == Operation::NonReplicated)
            }
            _ => Code::of_operation(operation),
        };
        Self::decode_code(code.ok_or(DecodeError::Code)?, body)
    }

    /// The operation it travels as.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        self.code().operation()
    }

    /// The body.
    #[must_use]
    pub fn encode(&self) -> alloc::vec::Vec<u8> {
        let mut body = alloc::vec::Vec::new();
        self.write(&mut body);
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_travels_only_as_its_own_operation() {
        let decode = |operation, code| Request::decode(operation, code, &[]);
        assert_eq!(decode(Operation::NonReplicated, 1), Ok(Request::Ping));
        assert_eq!(
            decode(Operation::NonReplicated, 202),
            Err(DecodeError::Code)
        );
        assert_eq!(
            decode(Operation::NonReplicated, 60_000),
            Err(DecodeError::Code)
        );
        assert_eq!(decode(Operation::NonReplicated, 38), Err(DecodeError::Code));
        assert_eq!(decode(Operation::TrimLog, 0), Err(DecodeError::Operation));
        assert_eq!(decode(Operation::Logout, 7), Ok(Request::Logout));
    }

    #[test]
    fn cut_and_long_bodies_are_told_apart() {
        let body = Request::GetClient(5).encode();
        let decode = |body| Request::decode(Operation::NonReplicated, 21, body);
        assert_eq!(decode(&body), Ok(Request::GetClient(5)));
        assert_eq!(decode(&body[..3]), Err(DecodeError::Truncated));
        assert_eq!(decode(&[0; 5]), Err(DecodeError::Trailing));
        let ping = Request::decode(Operation::NonReplicated, 1, &[0]);
        assert_eq!(ping, Err(DecodeError::Trailing));
    }

    #[test]
    fn the_size_before_a_batch_must_fit_what_it_counts() {
        let send = SendMessages {
            target: SendTarget {
                stream: Identifier::Numeric(1),
                topic: Identifier::Numeric(2),
                partitioning: Partitioning::PartitionId(0),
                messages_count: 1,
            },
            batch: b"batch",
        };
        let mut body = send.encode();
        assert_eq!(SendMessages::decode(&body), Ok(send));
        assert!(body.ends_with(b"batch"));
        body[0] += 1;
        assert_eq!(SendMessages::decode(&body), Err(DecodeError::Trailing));
        body[0] -= 2;
        assert_eq!(SendMessages::decode(&body), Err(DecodeError::Truncated));
    }
}
