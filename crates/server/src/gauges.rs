//! How full a shard's queues are, for checkers that hold them against the configured limits.

/// What could grow and must not; see [`crate::Limits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Requests that wait for their group.
    pub parked: usize,
    /// Requests of clients that are being answered here or elsewhere.
    pub tickets: usize,
    /// Client connections.
    pub connections: usize,
    /// Most bytes unsent on any of them.
    pub client_queue_bytes_max: usize,
    /// Most bytes unsent on any replica link.
    pub replica_queue_bytes_max: usize,
}
