//! Checkpoints on their way between replicas: the name of one, and the frame that brings a part.

use base::{Buffer, Bytes, GroupId, Op, ReplicaIndex, View};

use super::{CHECKSUM, CHECKSUM_BODY, Envelope, Invalid, SIZE};
use crate::{Command, HEADER_SIZE, array, put};

/// Which checkpoint: the state of a group at an op. Two with the same op, identity and digest
/// hold the same bytes, wherever they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointMark {
    /// The last op applied.
    pub op: Op,
    /// Identity of `op`: the checksum of its prepare.
    pub identity: u128,
    /// The op before the first of the log that goes with it, when it was taken; it differs from
    /// replica to replica.
    pub base: Op,
    /// Identity of `base`, 0 if it is 0.
    pub base_identity: u128,
    /// Bytes of the body.
    pub size: u64,
    /// XXH3-128 of the body.
    pub digest: u128,
}

impl CheckpointMark {
    /// Whether `other` has the same body.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let content = |mark: &Self| (mark.op, mark.identity, mark.size, mark.digest);
        content(self) == content(other)
    }

    pub(super) fn decode(frame: &[u8]) -> Result<Self, Invalid> {
        let u64_at = |at| array(frame, at).map(u64::from_le_bytes);
        let u128_at = |at| array(frame, at).map(u128::from_le_bytes);
        Ok(Self {
            op: Op(u64_at(136)?),
            identity: u128_at(144)?,
            base: Op(u64_at(160)?),
            size: u64_at(168)?,
            base_identity: u128_at(176)?,
            digest: u128_at(192)?,
        })
    }
}

/// The header of a CheckpointChunk whose body is `bytes`, to be sent right before them: the part of
/// the body of checkpoint `mark` that starts at `offset`.
///
/// ```text
/// 128 group u64   136 op u64   144 identity u128   160 base u64   168 size u64
/// 176 base identity u128   192 digest u128   208 offset u64   216 zero
/// ```
///
/// # Panics
/// If both together exceed 4 GiB.
#[must_use]
pub fn chunk_header(
    envelope: (u128, View, ReplicaIndex),
    group: GroupId,
    mark: &CheckpointMark,
    offset: u64,
    bytes: &[u8],
) -> Bytes {
    let (cluster, view, replica) = envelope;
    let mut buffer = Buffer::zeroed(HEADER_SIZE);
    let frame = buffer.as_mut_slice();
    Envelope {
        cluster,
        view,
        command: Command::CheckpointChunk,
        replica,
    }
    .encode(frame);
    put(frame, 128, group.0.to_le_bytes());
    put(frame, 136, mark.op.0.to_le_bytes());
    put(frame, 144, mark.identity.to_le_bytes());
    put(frame, 160, mark.base.0.to_le_bytes());
    put(frame, 168, mark.size.to_le_bytes());
    put(frame, 176, mark.base_identity.to_le_bytes());
    put(frame, 192, mark.digest.to_le_bytes());
    put(frame, 208, offset.to_le_bytes());
    let size = u32::try_from(HEADER_SIZE + bytes.len()).expect("frames are far below 4 GiB");
    put(frame, SIZE, size.to_le_bytes());
    let body = base::checksum::xxh3_128(bytes);
    put(frame, CHECKSUM_BODY, body.to_le_bytes());
    let header = base::checksum::xxh3_128(&frame[CHECKSUM_BODY..]);
    put(frame, CHECKSUM, header.to_le_bytes());
    buffer.freeze()
}
