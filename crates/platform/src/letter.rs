//! What shards of one node write to each other. A frame's buffer moves by pointer.

use alloc::vec::Vec;

use base::{Bytes, ClientId, GroupId, Op, ShardIndex};

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
    /// The view of the metadata group, for cluster metadata and routing (shard 0 to all others).
    MetadataView {
        /// The view.
        view: base::View,
    },
    /// A session ended because its connection closed (any shard to shard 0).
    SessionClosed {
        /// Whose.
        client: ClientId,
        /// Which.
        session: u64,
    },
}
