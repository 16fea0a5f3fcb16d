//! Snapshots of both planes, as a disk or another replica may hold them: no bytes panic, and what
//! is accepted is written again to the same bytes.
//!
//! A digest of the state hides most of a decoder behind it, so both are also given what a real
//! machine wrote, with some of its bytes replaced.

#![no_main]

use base::{GroupId, PartitionIds};
use libfuzzer_sys::fuzz_target;

const ROOT: &str = "iggy";
const GROUP: GroupId = GroupId(7 << 10 | 3);

fn ids() -> PartitionIds {
    PartitionIds {
        stream: 1,
        topic: 2,
        partition: 3,
    }
}

fn check_metadata(bytes: &[u8]) {
    let limits = metadata::Limits::default();
    if let Ok(state) = metadata::Metadata::restore(limits, ROOT, bytes) {
        assert_eq!(state.snapshot(), bytes);
    }
}

fn check_partition(bytes: &[u8]) {
    let limits = partition::Limits::default();
    if let Ok(state) = partition::PartitionState::restore(GROUP, ids(), limits, bytes) {
        assert_eq!(state.snapshot(), bytes);
    }
}

/// Replaces bytes: each edit is a place (two bytes) and a value.
fn edited(whole: &[u8], edits: &[u8]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    let (edits, tail) = edits.as_chunks::<3>();
    for &[low, high, value] in edits {
        let at = usize::from(u16::from_le_bytes([low, high])) % bytes.len();
        bytes[at] = value;
    }
    bytes.extend_from_slice(tail);
    bytes
}

fuzz_target!(|data: &[u8]| {
    check_metadata(data);
    check_partition(data);
    let empty = metadata::Metadata::new(metadata::Limits::default(), ROOT).snapshot();
    check_metadata(&edited(&empty, data));
    let empty = partition::PartitionState::new(GROUP, ids(), partition::Limits::default());
    check_partition(&edited(&empty.snapshot(), data));
});
