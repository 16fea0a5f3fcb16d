//! What a request or a log entry asks for; one byte in requests, replies and prepares.

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        /// An operation of the log or a session.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Operation {
            $($(#[$doc])* $name = $value,)*
        }

        impl Operation {
            /// The operation with this number, if there is one.
            #[must_use]
            pub const fn from_byte(byte: u8) -> Option<Self> {
                match byte {
                    $($value => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

operations! {
    /// Opens a session.
    Register = 1,
    /// Anything that does not enter a log; the command code stands in the header.
    NonReplicated = 2,
    /// Ends a session.
    Logout = 3,
    /// Internal: what a primary prepares first in a new view, so that the view can commit.
    Noop = 4,
    /// Internal: personal access tokens that have ended are removed.
    RemoveExpiredTokens = 63,
    /// Internal: committed form of a topic's creation.
    CreateTopicWithAssignments = 64,
    /// Internal: committed form of a creation of partitions.
    CreatePartitionsWithAssignments = 65,
    /// Internal.
    RemoveConsumerGroupMember = 66,
    /// Internal.
    CompleteConsumerGroupRevocation = 67,
    /// Internal: a partition's log lets go of its oldest segments; committed form of a deletion of
    /// segments.
    TrimLog = 68,
    /// Internal: a partition lets go of all its messages and offsets.
    PurgePartition = 69,
    /// Creates a stream.
    CreateStream = 128,
    /// Renames a stream.
    UpdateStream = 129,
    /// Deletes a stream.
    DeleteStream = 130,
    /// Empties a stream.
    PurgeStream = 131,
    /// Creates a topic.
    CreateTopic = 132,
    /// Changes a topic's name and options.
    UpdateTopic = 133,
    /// Deletes a topic.
    DeleteTopic = 134,
    /// Empties a topic.
    PurgeTopic = 135,
    /// Adds partitions.
    CreatePartitions = 136,
    /// Removes the newest partitions.
    DeletePartitions = 137,
    /// Removes the oldest segments.
    DeleteSegments = 138,
    /// Creates a consumer group.
    CreateConsumerGroup = 139,
    /// Deletes a consumer group.
    DeleteConsumerGroup = 140,
    /// Creates a user.
    CreateUser = 141,
    /// Renames a user or changes the status.
    UpdateUser = 142,
    /// Deletes a user.
    DeleteUser = 143,
    /// Changes a password.
    ChangePassword = 144,
    /// Changes permissions.
    UpdatePermissions = 145,
    /// Creates a token.
    CreatePersonalAccessToken = 146,
    /// Deletes a token.
    DeletePersonalAccessToken = 147,
    /// Joins a consumer group.
    JoinConsumerGroup = 148,
    /// Leaves a consumer group.
    LeaveConsumerGroup = 149,
    /// Appends messages.
    SendMessages = 160,
    /// Stores a consumer's offset.
    StoreConsumerOffset = 161,
    /// Deletes a consumer's offset.
    DeleteConsumerOffset = 162,
}

/// Which machine an operation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// Sessions: register, logout.
    Session,
    /// Reads, served without a log.
    NonReplicated,
    /// The metadata group.
    Metadata,
    /// A partition's group.
    Partition,
    /// Never from a client.
    Internal,
}

impl Operation {
    /// The plane this operation belongs to.
    #[must_use]
    pub const fn plane(self) -> Plane {
        match self {
            Self::Register | Self::Logout => Plane::Session,
            Self::NonReplicated => Plane::NonReplicated,
            Self::Noop
            | Self::RemoveExpiredTokens
            | Self::CreateTopicWithAssignments
            | Self::CreatePartitionsWithAssignments
            | Self::RemoveConsumerGroupMember
            | Self::CompleteConsumerGroupRevocation
            | Self::TrimLog
            | Self::PurgePartition => Plane::Internal,
            Self::SendMessages
            | Self::StoreConsumerOffset
            | Self::DeleteConsumerOffset
            | Self::DeleteSegments => Plane::Partition,
            _ => Plane::Metadata,
        }
    }

    /// Whether a client puts a checksum of the body into the request's header: what Iggy's own
    /// server has in the metadata.
    #[must_use]
    pub const fn is_stamped(self) -> bool {
        let plane = self.plane();
        matches!(plane, Plane::Session | Plane::Metadata) || matches!(self, Self::DeleteSegments)
    }

    /// Whether a successful reply's body starts with a result section (`wire.md` 2.2). Register
    /// is framed too, if its body is not empty.
    #[must_use]
    pub const fn is_result_framed(self) -> bool {
        !matches!(
            self,
            Self::NonReplicated | Self::Logout | Self::DeleteSegments | Self::SendMessages
        )
    }
}
