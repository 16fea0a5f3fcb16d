//! The committed state of a partition in bytes: what a checkpoint of its log holds.
//!
//! ```text
//!   0 magic "viewstamp part 2"   16 group u64   24 stream u32   28 topic u32   32 partition u32
//!  36 op u64   44 next offset u64   52 timestamp u64   60 purges u64
//!  68 digest of the state u128
//!  84 first op served u64   92 first offset served u64
//! 100 segments u32, each: first op u64, size u64, bytes of batches u64, end offset u64,
//!       newest timestamp u64
//!     single consumers u32, each: id u32, offset u64;  consumer groups, likewise
//!     producers u32, each: client u128, request u64, op u64, and
//!       1 u8, base offset u64, message count u32   or   2 u8, code u32
//! ```
//!
//! A snapshot of an earlier version is not read: the log of its time is whole, and says more.
//!
//! **Invariant:** what is in flight beyond the commit is not in it, so that all replicas take the
//! same bytes at the same op.

use alloc::vec::Vec;

use base::{GroupId, Offset, Op, PartitionIds, Timestamp};
use wire::{Codec, Reader, SnapshotError};

use crate::{Frontier, consumers::Consumers, producers::Producers, segments::Segments};

const MAGIC: [u8; 16] = *b"viewstamp part 2";

/// What a snapshot says.
pub(crate) struct Restored {
    pub(crate) group: GroupId,
    pub(crate) ids: PartitionIds,
    pub(crate) committed: Frontier,
    pub(crate) segments: Segments,
    pub(crate) digest: u128,
    pub(crate) consumers: Consumers,
    pub(crate) producers: Producers,
}

/// A count as snapshots have it.
pub(crate) fn count(length: usize) -> u32 {
    u32::try_from(length).expect("limited far below 2^32")
}

/// Everything of fixed size, in front of the tables.
pub(crate) fn write_head(
    (group, ids): (GroupId, PartitionIds),
    committed: &Frontier,
    digest: u128,
) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(MAGIC);
    group.0.write(&mut out);
    ids.stream.write(&mut out);
    ids.topic.write(&mut out);
    ids.partition.write(&mut out);
    committed.op.0.write(&mut out);
    committed.next_offset.0.write(&mut out);
    committed.timestamp.0.write(&mut out);
    committed.purges.write(&mut out);
    digest.write(&mut out);
    out
}

pub(crate) fn read(bytes: &[u8], segment_size: u64) -> Result<Restored, SnapshotError> {
    let rest = bytes.strip_prefix(&MAGIC).ok_or(SnapshotError::Version)?;
    let mut reader = Reader::new(rest);
    let group = GroupId(reader.read()?);
    let ids = PartitionIds {
        stream: reader.read()?,
        topic: reader.read()?,
        partition: reader.read()?,
    };
    let committed = Frontier {
        op: Op(reader.read()?),
        next_offset: Offset(reader.read()?),
        timestamp: Timestamp(reader.read()?),
        purges: reader.read()?,
    };
    let digest = reader.read()?;
    let segments = Segments::read(&mut reader, committed.op, segment_size)?;
    let consumers = Consumers::read(&mut reader)?;
    let producers = Producers::read(&mut reader, committed.op)?;
    reader.finish()?;
    Ok(Restored {
        group,
        ids,
        committed,
        segments,
        digest,
        consumers,
        producers,
    })
}
