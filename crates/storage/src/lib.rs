//! What a replica keeps on disk: the [`Journal`] and the [`Checkpoints`] of each group, and the
//! [`ViewStore`] of each shard.
//!
//! ```text
//!   append ─▶ tail (memory) ─submit─▶ write ─▶ page cache ─sync─▶ disk
//!             head                    written_op              synced_op
//!             └────────── reads of the newest ops            first_op ≤ reads of the rest
//! ```
//!
//! A byte of a message is written once: a segment file is a header and then the prepares exactly
//! as they travel. What a prepare_ok promises is `written_op` in a replicated group and
//! `synced_op` in a persisted one; the caller compares, this crate never sends.
//!
//! All are driven by completions: every entry point appends disk requests to the outbox and
//! returns; waiting is a stage. `docs/format.md` draws the formats to the byte.
//!
//! **Invariants**
//! - `synced_op <= written_op <= head`, and every op above `written_op` is in memory.
//! - A segment is durable, name and content, before its successor is created: only the last
//!   segment can be torn.
//! - At most one write or sync is in flight per machine; a failed one is the machine's end.
//! - Nothing here knows of views' meaning, quorums or commits.

#![no_std]

extern crate alloc;

mod checkpoints;
mod index;
mod journal;
mod record;
mod segment;
mod tail;
mod views;

pub use checkpoints::{
    CHECKPOINT_HEADER_SIZE, Checkpoint, CheckpointHeader, Checkpoints, CheckpointsConfig,
    CheckpointsEvent, ReadChunk, checkpoint_name,
};
pub use index::Start;
pub use journal::{Damage, Gap, Journal, JournalConfig, JournalEvent, ReadMessages, ReadOps};
pub use segment::{SegmentHeader, segment_name};
pub use views::{ViewStore, ViewStoreConfig, ViewStoreEvent, Views, ViewsIdentity};

use platform::FileId;

/// Hands out the ids of one shard's files; an id is never used twice.
#[derive(Debug, Default)]
pub struct FileIds(pub u64);

impl FileIds {
    /// The next unused id.
    pub const fn next(&mut self) -> FileId {
        self.0 += 1;
        FileId(self.0)
    }
}
