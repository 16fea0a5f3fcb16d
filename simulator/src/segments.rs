//! Segment files as the fault injector reads them: where which record is, and whether it is
//! whole. It shares no code with the server that wrote them.

use std::ops::Range;

use base::{GroupId, Op, checksum::xxh3_128};
use wire::{
    HEADER_SIZE,
    replica::{PrepareHeader, frame_size, verify_header},
};

/// The smallest part of a write that a device does or does not do.
pub(crate) const SECTOR: usize = 512;

/// A record of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) op: Op,
    /// Its identity.
    pub(crate) checksum: u128,
    /// What was committed when it was made.
    pub(crate) commit: Op,
    pub(crate) range: Range<usize>,
    /// Its body too is as it was.
    pub(crate) whole: bool,
}

/// The records of a segment file, up to the first whose header is not whole.
pub(crate) fn records(bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    let mut at = HEADER_SIZE;
    while let Some(rest) = bytes.get(at..) {
        let header = verify_header(rest).and_then(|()| PrepareHeader::decode(rest));
        let (Ok(header), Ok(size)) = (header, frame_size(rest)) else {
            break;
        };
        let body = rest.get(HEADER_SIZE..size);
        records.push(Record {
            op: header.op,
            checksum: header.checksum,
            commit: header.commit,
            range: at..at + size,
            whole: body.is_some_and(|body| xxh3_128(body) == header.checksum_body),
        });
        at += size;
    }
    records
}

/// Where a node keeps the segments of a group.
pub(crate) fn directory(group: GroupId) -> String {
    if group == GroupId::METADATA {
        return "metadata".into();
    }
    format!("partitions/{:016x}", group.0)
}

/// Whose segment a path is, and the op it begins with; none if it is no segment.
pub(crate) fn segment_of(path: &str) -> Option<(GroupId, Op)> {
    let (directory, name) = path.rsplit_once('/')?;
    let first = Op(name.strip_suffix(".log")?.parse().ok()?);
    if directory == "metadata" {
        return Some((GroupId::METADATA, first));
    }
    let group = directory.strip_prefix("partitions/")?;
    Some((GroupId(u64::from_str_radix(group, 16).ok()?), first))
}

/// Whether a record that stands at `range` of a file now reads like one that a power loss tore
/// before it was acknowledged: some sector has nothing of it.
pub(crate) fn looks_torn(bytes: &[u8], range: &Range<usize>) -> bool {
    let mut start = range.start;
    while start < range.end {
        let end = (start / SECTOR * SECTOR + SECTOR).min(range.end);
        let nothing = bytes
            .get(start..end)
            .is_none_or(|portion| portion.iter().all(|&byte| byte == 0));
        if nothing {
            return true;
        }
        start = end;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::committed::tests::prepare;

    fn segment() -> Vec<u8> {
        let mut bytes = vec![0; HEADER_SIZE];
        for op in 1..=3 {
            bytes.extend_from_slice(&prepare(op, 0, 7, op));
        }
        bytes
    }

    #[test]
    fn records_are_found_up_to_a_damaged_header() {
        let mut bytes = segment();
        let all = records(&bytes);
        assert_eq!(
            all.iter().map(|record| record.op.0).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        assert!(all.iter().all(|record| record.whole));
        bytes[all[1].range.start + 200] ^= 1;
        assert_eq!(records(&bytes), all[..1]);
        assert_eq!(records(&bytes[..100]), []);
    }

    #[test]
    fn paths_name_groups_and_first_ops() {
        let group = GroupId(0x1234);
        let path = format!("{}/00000000000000000042.log", directory(group));
        assert_eq!(segment_of(&path), Some((group, Op(42))));
        let metadata = "metadata/00000000000000000001.log";
        assert_eq!(segment_of(metadata), Some((GroupId::METADATA, Op(1))));
        assert_eq!(segment_of("shard-0/views.log"), None);
        assert_eq!(segment_of("metadata/00000000000000000001.checkpoint"), None);
    }

    #[test]
    fn a_sector_without_a_byte_of_it_looks_torn() {
        let mut bytes = vec![1; 2048];
        assert!(!looks_torn(&bytes, &(100..1500)));
        bytes[512..1024].fill(0);
        assert!(looks_torn(&bytes, &(100..1500)));
        assert!(looks_torn(&bytes, &(500..520)));
        assert!(!looks_torn(&bytes, &(1024..1500)));
        assert!(looks_torn(&bytes, &(1500..2500)), "the file ends inside it");
    }
}
