//! A checkpoint file: its name and its header.
//!
//! ```text
//! <op, 20 digits>.checkpoint
//!   0 checksum u128 (of bytes 16 to 256)   16 magic "viewstamp ckpt 1"   32 cluster u128
//!  48 group u64    56 op u64    64 identity of op u128   80 base u64   88 size u64
//!  96 identity of base u128   112 digest u128 (XXH3-128 of the body)
//! 128 replaces u64: 1 + the last op of the log it replaces; 0 if it was taken here
//! 136 zero to 256
//! 256 body, `size` bytes
//! ```

use alloc::{format, string::String};

use base::{Bytes, GroupId, Op, checksum::xxh3_128};
use wire::{HEADER_SIZE, array, put, replica::CheckpointMark};

const MAGIC: [u8; 16] = *b"viewstamp ckpt 1";
const NAME_DIGITS: usize = 20;
const NAME_SUFFIX: &str = ".checkpoint";

/// Bytes before the body.
pub const CHECKPOINT_HEADER_SIZE: usize = HEADER_SIZE;

/// The first bytes of a checkpoint file: whose state it is, and at which op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointHeader {
    /// The cluster.
    pub cluster: u128,
    /// The group whose state it is.
    pub group: GroupId,
    /// Which checkpoint.
    pub mark: CheckpointMark,
    /// If it came from a peer: the last op of the log that it is to replace.
    pub replaces: Option<Op>,
}

impl CheckpointHeader {
    /// The header as it stands on disk.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut header = [0; HEADER_SIZE];
        let mark = &self.mark;
        put(&mut header, 16, MAGIC);
        put(&mut header, 32, self.cluster.to_le_bytes());
        put(&mut header, 48, self.group.0.to_le_bytes());
        put(&mut header, 56, mark.op.0.to_le_bytes());
        put(&mut header, 64, mark.identity.to_le_bytes());
        put(&mut header, 80, mark.base.0.to_le_bytes());
        put(&mut header, 88, mark.size.to_le_bytes());
        put(&mut header, 96, mark.base_identity.to_le_bytes());
        put(&mut header, 112, mark.digest.to_le_bytes());
        let replaces = self.replaces.map_or(0, |op| op.next().0);
        put(&mut header, 128, replaces.to_le_bytes());
        let checksum = xxh3_128(&header[16..]);
        put(&mut header, 0, checksum.to_le_bytes());
        Bytes::copy_of(&header)
    }

    /// Reads a header; `None` if it is cut, damaged or of another format.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..HEADER_SIZE)?;
        let u128_at = |at| array(header, at).map(u128::from_le_bytes);
        let u64_at = |at| array(header, at).map(u64::from_le_bytes);
        if xxh3_128(&header[16..]) != u128_at(0).ok()? || header[16..32] != MAGIC {
            return None;
        }
        Some(Self {
            cluster: u128_at(32).ok()?,
            group: GroupId(u64_at(48).ok()?),
            mark: CheckpointMark {
                op: Op(u64_at(56).ok()?),
                identity: u128_at(64).ok()?,
                base: Op(u64_at(80).ok()?),
                base_identity: u128_at(96).ok()?,
                size: u64_at(88).ok()?,
                digest: u128_at(112).ok()?,
            },
            replaces: u64_at(128).ok()?.checked_sub(1).map(Op),
        })
    }
}

/// The file name of the checkpoint of `op`.
#[must_use]
pub fn checkpoint_name(op: Op) -> String {
    format!("{:020}{NAME_SUFFIX}", op.0)
}

/// The op of a checkpoint, from its file name; `None` for files that are not ours.
pub(super) fn parse_name(name: &str) -> Option<Op> {
    let digits = name.strip_suffix(NAME_SUFFIX)?;
    if digits.len() != NAME_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(Op)
}
