//! What shards of one node write to each other. A frame's buffer moves by pointer.

use alloc::vec::Vec;

use base::{Bytes, ClientId, GroupId, Op, ShardIndex, View};

use crate::{Address, ConnectionId};

/// A client request that waits for its answer at the shard that holds the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The node that holds the connection.
    pub replica: base::ReplicaIndex,
    /// The shard that holds it.
    pub shard: ShardIndex,
    /// Unique there for the life of the process.
    pub number: u64,
}

/// A message between two shards of a node.
#[derive(Debug)]
pub enum Letter {
    /// A client request for a group that the receiver hosts.
    Request {
        /// Where the answer goes.
        ticket: Ticket,
        /// The group it is for.
        group: GroupId,
        /// The user who asks; already authenticated.
        user: u32,
        /// Whose memberships of consumer groups count.
        consumer: ClientId,
        /// The metadata op that whoever answers must have applied.
        floor: Op,
        /// The request frame.
        frame: Bytes,
    },
    /// The answer to a request.
    Reply {
        /// Whose.
        ticket: Ticket,
        /// The metadata op it must not overtake at the origin.
        metadata_op: Op,
        /// The reply frame, possibly in pieces.
        frame: Vec<Bytes>,
    },
    /// A metadata prepare has committed (shard 0 to all others, in op order).
    MetadataCommitted {
        /// The prepare frame.
        prepare: Bytes,
    },
    /// The metadata state has been taken over from a checkpoint (shard 0 to all others); commits
    /// go on after it.
    MetadataSnapshot {
        /// As the state machine writes it.
        snapshot: Bytes,
    },
    /// The view of the metadata group, for cluster metadata and routing, once its log has been
    /// recovered (shard 0 to all others).
    MetadataView {
        /// The view.
        view: View,
    },
    /// The node is part of the cluster, and was so when the metadata stood at this op: groups
    /// created later are new on this node too (shard 0 to all others).
    Founded {
        /// The op.
        op: Op,
    },
    /// The port that clients reach this node by, once it is bound (shard 0 to all others).
    ClientPort(u16),
    /// Tell when these partitions have been purged.
    PurgeWatch {
        /// Unique at the asking shard.
        number: u64,
        /// Groups that the receiver hosts, and how often each must have been purged.
        groups: Vec<(GroupId, u64)>,
    },
    /// All of them have been, or are gone.
    PurgeDone {
        /// As asked.
        number: u64,
    },
    /// What do these partitions hold?
    StatsRequest {
        /// Unique at the asking shard.
        number: u64,
        /// Groups that the receiver hosts.
        groups: Vec<GroupId>,
    },
    /// The answer.
    StatsReply {
        /// As asked.
        number: u64,
        /// Groups that the receiver does host, and what they hold.
        stats: Vec<(GroupId, GroupStats)>,
    },
    /// Who is connected?
    ClientsRequest {
        /// Unique at the asking shard.
        number: u64,
    },
    /// The answer.
    ClientsReply {
        /// As asked.
        number: u64,
        /// The clients whose connections the writer holds.
        clients: Vec<ClientFacts>,
    },
}

/// A client as the shard that holds its connection knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientFacts {
    /// Its connection.
    pub connection: ConnectionId,
    /// Where it is connected from.
    pub address: Address,
    /// Its identity and its user, if it is logged in.
    pub session: Option<(ClientId, u32)>,
}

/// What a partition holds, as far as it is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupStats {
    /// Offset of the last message, 0 if there is none.
    pub current_offset: u64,
    /// Bytes of batches.
    pub size_bytes: u64,
    /// Messages.
    pub messages_count: u64,
    /// Segment files.
    pub segments_count: u32,
}
