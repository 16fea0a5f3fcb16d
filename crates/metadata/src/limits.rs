//! Bounds of everything that could grow. Part of the state machine: every replica of a cluster
//! must run with the same values, or the same log would give different states.

/// Bounds of the metadata plane.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Streams.
    pub streams_max: u32,
    /// Topics of one stream.
    pub topics_max: u32,
    /// Partitions of one topic.
    pub partitions_max: u32,
    /// Partitions created or deleted by one request; a group id has room for 1,024.
    pub partitions_per_request_max: u32,
    /// Consumer groups of one topic.
    pub groups_max: u32,
    /// Client sessions; one more evicts the one that committed least recently.
    pub clients_max: usize,
    /// Replies kept per session.
    pub replies_max: usize,
    /// Users besides root.
    pub users_max: usize,
    /// Personal access tokens of one user.
    pub tokens_max: usize,
    /// Streams and topics that one user's permissions name.
    pub grants_max: usize,
    /// Bytes of a segment, where the topic does not say.
    pub segment_size: u64,
    /// Smallest segment a topic may ask for.
    pub segment_size_min: u64,
    /// Largest segment a topic may ask for.
    pub segment_size_max: u64,
    /// Bytes that the segments preallocated for one new topic may take.
    pub preallocate_max: u64,
    /// Read by planted bug 33 only: what a replica's own history might be mistaken for.
    pub replica_salt: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            streams_max: 1 << 20,
            topics_max: 4096,
            partitions_max: 1_000_000,
            partitions_per_request_max: 1000,
            groups_max: 100_000,
            clients_max: 10_000,
            replies_max: 5,
            users_max: 16_384,
            tokens_max: 100,
            grants_max: 16_384,
            segment_size: 1 << 30,
            segment_size_min: 1 << 20,
            segment_size_max: 1 << 30,
            preallocate_max: 64 << 30,
            replica_salt: 0,
        }
    }
}

impl Limits {
    /// The state machine relies on these.
    ///
    /// # Panics
    /// If a bound is one that no log could be applied with.
    pub(crate) fn assert_valid(&self) {
        base::invariant!(
            self.partitions_per_request_max <= 1000,
            "positions in a group id are 10 bits"
        );
        base::invariant!(self.clients_max > 0);
        base::invariant!(
            self.replies_max > 0,
            "the newest reply must be there for a retry"
        );
        base::invariant!(self.segment_size_min <= self.segment_size);
        base::invariant!(self.segment_size <= self.segment_size_max);
    }
}
