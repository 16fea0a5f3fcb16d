//! One record of a segment: is it whole, and is it the one that belongs here?
//!
//! A record is a prepare frame. It is never trusted by its checksum alone: a record of another
//! group, op or chain is as wrong here as a torn one.

use base::{GroupId, Op};
use wire::{
    HEADER_SIZE, Operation, array,
    replica::{Invalid, PrepareHeader, verify, verify_header},
};

/// The record that belongs at a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) cluster: u128,
    pub(crate) group: GroupId,
    pub(crate) op: Op,
    /// Checksum of the op before; unknown for the first record of a read.
    pub(crate) parent: Option<u128>,
}

/// What stands at the start of some bytes of a segment.
#[derive(Debug)]
pub(crate) enum Examined {
    /// The expected record, whole.
    Record(PrepareHeader),
    /// Not enough bytes: this many are needed from here.
    Short(usize),
    /// Not the expected record.
    Invalid(Invalid),
}

/// Examines the record at the start of `bytes`.
pub(crate) fn examine(bytes: &[u8], expected: &Expected) -> Examined {
    if bytes.len() < HEADER_SIZE {
        return Examined::Short(HEADER_SIZE);
    }
    let header = match verify_header(bytes).and_then(|()| PrepareHeader::decode(bytes)) {
        Ok(header) => header,
        Err(invalid) => return Examined::Invalid(invalid),
    };
    let belongs = header.cluster == expected.cluster
        && header.group == expected.group
        && header.op == expected.op
        && expected.parent.is_none_or(|parent| parent == header.parent);
    if !belongs && !base::planted::bug(25) {
        return Examined::Invalid(Invalid::Field);
    }
    let size = header.size as usize;
    if size < HEADER_SIZE {
        return Examined::Invalid(Invalid::Size);
    }
    if bytes.len() < size {
        return Examined::Short(size);
    }
    match verify(&bytes[..size]) {
        Ok(()) => Examined::Record(header),
        Err(invalid) => Examined::Invalid(invalid),
    }
}

/// The messages a record brings, from the batch header that its body starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Messages {
    /// Offset of the first.
    pub(crate) offset: u64,
    /// Offset after the last.
    pub(crate) end: u64,
    /// Append time of all of them.
    pub(crate) timestamp: u64,
}

impl Messages {
    /// The messages of a prepare, if it appends some.
    pub(crate) fn of(header: &PrepareHeader, frame: &[u8]) -> Option<Self> {
        const BASE_OFFSET: usize = HEADER_SIZE + 8;
        const BASE_TIMESTAMP: usize = HEADER_SIZE + 16;
        const MESSAGE_COUNT: usize = HEADER_SIZE + 48;
        if header.operation != Operation::SendMessages {
            return None;
        }
        let offset = u64::from_le_bytes(array(frame, BASE_OFFSET).ok()?);
        let timestamp = u64::from_le_bytes(array(frame, BASE_TIMESTAMP).ok()?);
        let count = u32::from_le_bytes(array(frame, MESSAGE_COUNT).ok()?);
        Some(Self {
            offset,
            end: offset.saturating_add(u64::from(count)),
            timestamp,
        })
    }
}
