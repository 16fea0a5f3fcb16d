//! Bounds of everything that could grow. Part of the state machine: every replica of a cluster
//! must run with the same values, or the same log would give different states.

/// Bounds of one partition.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Identified clients whose newest request is remembered; one more forgets the one whose
    /// request is the oldest op. A retry that comes after that is taken for new.
    pub producers_max: usize,
    /// Stored offsets per kind of consumer; one more is refused.
    pub consumers_max: usize,
    /// Bytes at which a segment of the log is full.
    pub segment_size: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            producers_max: 4096,
            consumers_max: 100_000,
            segment_size: 1 << 30,
        }
    }
}
