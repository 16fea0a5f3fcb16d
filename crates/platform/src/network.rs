//! Connections: ordered, lossless byte streams that may be cut anywhere at any time.
//!
//! Connections, not datagrams: first in, first out per connection; reset, half-open and
//! arbitrary fragmentation are what the simulator plays with.

use core::net::SocketAddr;

use base::{Buffer, Bytes};

/// Where to listen or connect.
pub type Address = SocketAddr;

/// A connection of this node; unique for the life of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

impl ConnectionId {
    /// Set in the ids of connections this side dialed, whose ids the shard chooses; ids of
    /// accepted connections are chosen by the body and have it clear.
    pub const DIALED: u64 = 1 << 63;

    /// The id of the `count`-th connection dialed by shard `shard`.
    #[must_use]
    pub const fn dialed(shard: base::ShardIndex, count: u64) -> Self {
        Self(Self::DIALED | (shard.0 as u64) << 40 | count)
    }
}

/// A listener, chosen by the shard that asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub u8);

impl ListenerId {
    /// For Iggy clients.
    pub const CLIENT: Self = Self(0);
    /// For the other replicas.
    pub const REPLICA: Self = Self(1);
}

/// What the network tells.
#[derive(Debug)]
pub enum NetworkEvent {
    /// The listener is bound.
    Listening {
        /// Which.
        listener: ListenerId,
        /// The address with its real port.
        address: Address,
    },
    /// A peer connected. Nothing is read until the shard asks.
    Accepted {
        /// Through which listener.
        listener: ListenerId,
        /// Chosen by the body.
        connection: ConnectionId,
        /// Who.
        peer: Address,
    },
    /// Another shard handed this connection over.
    Adopted {
        /// The listener that accepted it.
        listener: ListenerId,
        /// As the other shard knew it.
        connection: ConnectionId,
        /// Who.
        peer: Address,
        /// Bytes already received and not yet consumed.
        received: Bytes,
    },
    /// A dialed connection stands.
    Connected {
        /// Which.
        connection: ConnectionId,
    },
    /// At least one byte was appended to the buffer given with `Receive`.
    Received {
        /// From where.
        connection: ConnectionId,
        /// The buffer, longer than before.
        buffer: Buffer,
    },
    /// Everything given with one `Send` effect was handed to the transport, in order.
    Sent {
        /// Where to.
        connection: ConnectionId,
        /// How many bytes that effect had.
        size: usize,
    },
    /// The connection is gone, for whatever reason; the last event about it. The shard must not
    /// name it again.
    Closed {
        /// Which.
        connection: ConnectionId,
    },
}
