//! What a journal is told, and what it tells its owner.

use alloc::vec::Vec;

use base::{Bytes, GroupId, Op};
use platform::{DiskError, Path};
use wire::replica::Invalid;

/// What a journal is for and how it behaves.
#[derive(Clone, Debug)]
pub struct JournalConfig {
    /// The group whose log it is.
    pub group: GroupId,
    /// The cluster; records of another are refused.
    pub cluster: u128,
    /// Where the segments are; missing directories are created.
    pub directory: Path,
    /// A segment of at least this size is full; the record that crosses it lands whole.
    pub segment_size: u64,
    /// Whether every write is synced at once; otherwise the caller asks for syncs.
    pub persisted: bool,
    /// Whether pages that were never acknowledged may be missing from the middle of the last
    /// segment: the machine has lost power, or only what is synced counts. Otherwise the last
    /// process has left all it wrote, and what is missing was lost by the disk.
    pub loses_pages: bool,
    /// Owner in the tokens of all its requests.
    pub owner: u64,
    /// Bytes read at a time, unless a record is larger.
    pub read_chunk: usize,
    /// Bytes between two entries of the index.
    pub index_interval: u64,
    /// Bytes of the newest records kept in memory.
    pub tail_cache: usize,
}

/// What a journal tells its owner.
#[derive(Debug)]
pub enum JournalEvent {
    /// During recovery: the next record of the log, verified and chained to the one before.
    Record {
        /// The sealed frame.
        prepare: Bytes,
    },
    /// During recovery: the log may have held more than what follows `after` and is not told.
    /// What stands there is neither a record nor torn by a crash. The journal waits for
    /// [`Journal::cut_damaged`].
    TailDamaged {
        /// The last op that will be left.
        after: Op,
    },
    /// Recovery has ended: everything up to `head` but the gaps is durable, anything after it is
    /// gone. `head` itself is never missing.
    Recovered {
        /// The last op.
        head: Op,
        /// The op before the first, and its identity; 0 if there is none, or if damage hides it.
        base: (Op, u128),
        /// Bytes cut from the last segment.
        cut_bytes: u64,
        /// What is missing in between, lowest first.
        gaps: Vec<Gap>,
    },
    /// Everything up to `op` is in the page cache.
    Written {
        /// The last such op.
        op: Op,
    },
    /// Everything up to `op` survives a power loss.
    Synced {
        /// The last such op.
        op: Op,
    },
    /// Nothing above `op` is left on disk, durably. A truncation that a deeper one has overtaken
    /// is not told.
    Truncated {
        /// The op asked for.
        op: Op,
    },
    /// A read has ended well.
    Read {
        /// As given.
        id: u64,
        /// Sealed frames in op order, verified; none if there was nothing in the range, or a
        /// truncation took it away.
        prepares: Vec<Bytes>,
    },
    /// Damage was found in a log that runs: these ops are missing from now on.
    Gap(Gap),
    /// A missing op is in its place again, durably.
    Repaired {
        /// The op.
        op: Op,
    },
    /// The log is empty and begins after the op asked for, durably.
    Reset,
    /// The disk is full: nothing is written until [`Journal::retry`].
    Full,
    /// What did not fit has been written after all.
    Space,
    /// All files and the directory are gone, durably.
    Removed,
    /// The disk failed: the journal does nothing any more.
    Failed(DiskError),
    /// A record that must be there is not; ends the read or the log it was found by.
    Damaged(Damage),
}

/// Ops that were in the log and are damaged on this disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first.
    pub from: Op,
    /// The last.
    pub to: Op,
    /// Identity of the last, as the op after it names it: the hash chain tells what is missing.
    pub checksum: u128,
}

/// What was found in a record's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The read that found it; recovery or a truncation if none.
    pub read: Option<u64>,
    /// The op that must be there.
    pub op: Op,
    /// First op of the segment.
    pub segment: Op,
    /// Where in the segment.
    pub position: u64,
    /// What is wrong.
    pub reason: Invalid,
}
