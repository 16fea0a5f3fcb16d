//! A segment file: its name, its header record and what the journal knows of it.
//!
//! ```text
//! <first op, 20 digits>.log
//!   0 checksum u128 (of bytes 16 to 256)   16 magic "viewstamp log 1\0"   32 cluster u128
//!  48 group u64   56 first op u64   64 parent u128   80 zero to 256
//! 256 prepares, back to back
//! ```

use alloc::{format, string::String};

use base::{Bytes, GroupId, Op, checksum::xxh3_128};
use platform::FileId;
use wire::{HEADER_SIZE, array, put};

use crate::index::Index;

const MAGIC: [u8; 16] = *b"viewstamp log 1\0";
const NAME_DIGITS: usize = 20;
const NAME_SUFFIX: &str = ".log";

/// Size of a segment's header record.
pub(crate) const SEGMENT_HEADER_SIZE: u64 = HEADER_SIZE as u64;

/// The first record of a segment file: whose log it is part of, and which part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The cluster.
    pub cluster: u128,
    /// The group whose log this is.
    pub group: GroupId,
    /// The op of the first record.
    pub first: Op,
    /// Checksum of the op before it, 0 if there is none.
    pub parent: u128,
}

impl SegmentHeader {
    /// The header as it stands on disk.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut header = [0; HEADER_SIZE];
        put(&mut header, 16, MAGIC);
        put(&mut header, 32, self.cluster.to_le_bytes());
        put(&mut header, 48, self.group.0.to_le_bytes());
        put(&mut header, 56, self.first.0.to_le_bytes());
        put(&mut header, 64, self.parent.to_le_bytes());
        let checksum = xxh3_128(&header[16..]);
        put(&mut header, 0, checksum.to_le_bytes());
        Bytes::copy_of(&header)
    }

    /// Reads a header; `None` if it is cut, damaged or of another format.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..HEADER_SIZE)?;
        let checksum = u128::from_le_bytes(array(header, 0).ok()?);
        if xxh3_128(&header[16..]) != checksum || header[16..32] != MAGIC {
            return None;
        }
        Some(Self {
            cluster: u128::from_le_bytes(array(header, 32).ok()?),
            group: GroupId(u64::from_le_bytes(array(header, 48).ok()?)),
            first: Op(u64::from_le_bytes(array(header, 56).ok()?)),
            parent: u128::from_le_bytes(array(header, 64).ok()?),
        })
    }
}

/// The file name of the segment that starts with `first`.
#[must_use]
pub fn segment_name(first: Op) -> String {
    format!("{:020}{NAME_SUFFIX}", first.0)
}

/// The first op of a segment, from its file name; `None` for files that are not ours.
pub(crate) fn parse_name(name: &str) -> Option<Op> {
    let digits = name.strip_suffix(NAME_SUFFIX)?;
    if digits.len() != NAME_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(Op)
}

/// Whether a segment's file is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentFile {
    Closed,
    Opening(FileId),
    Open(FileId),
}

/// A segment that exists on disk.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) first: Op,
    /// Identity of the op before, if known.
    pub(crate) parent: Option<u128>,
    /// Header and all records written or being written; 0 before the first write.
    pub(crate) size: u64,
    pub(crate) index: Index,
    pub(crate) file: SegmentFile,
    /// When it was last read, in reads of this journal.
    pub(crate) used: u64,
}

impl Segment {
    pub(crate) fn new(first: Op, file: SegmentFile) -> Self {
        Self {
            first,
            parent: None,
            size: 0,
            index: Index::default(),
            file,
            used: 0,
        }
    }

    /// The open file.
    pub(crate) const fn open(&self) -> Option<FileId> {
        match self.file {
            SegmentFile::Open(file) => Some(file),
            SegmentFile::Closed | SegmentFile::Opening(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_twenty_digits_name_a_segment() {
        assert_eq!(parse_name(&segment_name(Op(7))), Some(Op(7)));
        for foreign in [
            "7.log",
            "0000000000000000000a.log",
            "00000000000000000007.tmp",
            "views",
        ] {
            assert_eq!(parse_name(foreign), None, "{foreign}");
        }
        assert_eq!(
            parse_name("99999999999999999999.log"),
            None,
            "beyond 64 bits"
        );
    }

    #[test]
    fn a_header_survives_only_whole() {
        let header = SegmentHeader {
            cluster: 3,
            group: GroupId(1 << 10),
            first: Op(9),
            parent: 77,
        };
        let bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Some(header));
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1;
            assert_eq!(SegmentHeader::decode(&damaged), None, "byte {at}");
            assert_eq!(SegmentHeader::decode(&bytes[..at]), None, "cut at {at}");
        }
    }
}
