//! Byte 60 of every header: what kind of frame it is.

macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        /// Kind of a frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Command {
            $($(#[$doc])* $name = $value,)*
        }

        impl Command {
            /// The command with this number, if there is one.
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

commands! {
    /// Client to server.
    Request = 5,
    /// Primary to backups: an op of the log. Also how a record stands on disk.
    Prepare = 6,
    /// Backup to primary: the log up to an op is as durable here as the group's mode asks.
    PrepareOk = 7,
    /// Server to client.
    Reply = 8,
    /// Replica to all: vote for a view.
    StartViewChange = 10,
    /// Replica to the new primary: its log for a view.
    DoViewChange = 11,
    /// New primary to all: the log of a view.
    StartView = 12,
    /// Server to client: the session is over.
    Eviction = 13,
    /// First frame on a replica link, from the side that dialed.
    ReplicaHello = 14,
    /// The answer to it.
    ReplicaWelcome = 15,
    /// Replica to the primary of a view it has heard of.
    RequestStartView = 17,
    /// Replica to replica: send me these prepares.
    RequestPrepares = 18,
    /// The answer: one prepare in an envelope that names the view which vouches for it.
    RepairPrepare = 19,
    /// Replica to replica: send me the prepare with this identity.
    RequestBody = 20,
    /// Replica to replica: send me a part of your checkpoint.
    RequestCheckpoint = 22,
    /// The answer, also to a request for prepares that the sender's log no longer begins with.
    CheckpointChunk = 23,
    /// A client request passed on to the primary's node.
    Forward = 26,
    /// The answer to it.
    ForwardReply = 27,
    /// Shard to shard between nodes: alive, and the state of groups that changed.
    Heartbeat = 64,
}

impl Command {
    /// Whether a client or a server sends this to the other; all others pass between replicas.
    #[must_use]
    pub const fn faces_clients(self) -> bool {
        matches!(self, Self::Request | Self::Reply | Self::Eviction)
    }
}
