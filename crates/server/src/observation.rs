//! What a shard tells white-box checkers, if asked to. Costs nothing otherwise.

use base::{Bytes, ClientId, GroupId, Op, View};

/// A replica's part in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It prepares and commits.
    Primary,
    /// It follows.
    Backup,
    /// It is between two views.
    ViewChange,
}

/// A step of one group at one replica.
#[derive(Clone, Debug)]
pub enum Observation {
    /// The group has been recovered from this replica's disk.
    Recovered {
        /// Which.
        group: GroupId,
        /// Last op in the log.
        op: Op,
        /// Its identity, 0 for op 0.
        checksum: u128,
        /// What is known to be committed.
        commit: Op,
        /// Whether the log holds all it may have acknowledged.
        trusted: bool,
    },
    /// The state machine has been restored from a checkpoint, at a start or by a transfer: what
    /// is committed from here on comes after `op`.
    /// Op 0 if the log did not reach the checkpoint and is read anew from its beginning.
    Restored {
        /// Which.
        group: GroupId,
        /// The last op in it.
        op: Op,
        /// Its identity.
        identity: u128,
        /// Digest of the group's state machine.
        digest: u128,
    },
    /// The role or the view has changed.
    View {
        /// Which.
        group: GroupId,
        /// The view it is in.
        view: View,
        /// The view of its log.
        log_view: View,
        /// Its part.
        role: Role,
    },
    /// This replica has learnt that `prepare` is committed and applied it; in op order.
    Committed {
        /// Which.
        group: GroupId,
        /// The whole frame.
        prepare: Bytes,
        /// Digest of the group's state machine after it.
        digest: u128,
    },
    /// A client is being told that its request has been done (status and result are success).
    Acknowledged {
        /// Which.
        group: GroupId,
        /// Whose.
        client: ClientId,
        /// Which of its requests.
        request: u64,
        /// Where it stands in the log.
        op: Op,
    },
    /// Ops after `op` have been cut off this replica's log.
    Truncated {
        /// Which.
        group: GroupId,
        /// The last op kept.
        op: Op,
    },
    /// After any doubt: all logs of this shard hold again what it may have acknowledged.
    Trusted,
    /// This node's clock has left the window that a majority of clocks agrees on, or is back.
    Clock {
        /// How far ahead of the window it is, in microseconds; negative if behind, 0 if inside.
        ahead: i64,
    },
    /// Bodies of ops are missing on this replica's disk, for damage has taken them.
    Gap {
        /// Which.
        group: GroupId,
        /// The first.
        from: Op,
        /// The last.
        to: Op,
    },
    /// A missing op is in its place again.
    Repaired {
        /// Which.
        group: GroupId,
        /// Which op.
        op: Op,
    },
    /// Damage may have taken acknowledged ops from the end of this replica's log, after `op`.
    Doubt {
        /// Which.
        group: GroupId,
        /// The last op left.
        op: Op,
    },
    /// The primary of `view` cannot tell whether an op was committed, and waits.
    Undecidable {
        /// Which.
        group: GroupId,
        /// The view that cannot begin.
        view: View,
        /// The op.
        op: Op,
    },
    /// A partition without other replicas is closed, for its state needs what damage has taken.
    Closed {
        /// Which.
        group: GroupId,
    },
    /// The disk is full and writes are refused, or there is space again.
    DiskFull {
        /// Which of the two.
        full: bool,
    },
    /// A view began without a quorum of trusted logs, with all replicas heard: acknowledged ops
    /// may be gone.
    LossPossible {
        /// Which.
        group: GroupId,
        /// The view that began.
        view: View,
    },
}
