//! Message batches: one layout in sends, in the log, on disk and in poll replies (`wire.md` 6).
//!
//! ```text
//! batch  =  0 partition_id u64   8 base_offset u64   16 base_timestamp u64
//!          24 origin_timestamp u64   32 batch_length u64   40 batch_checksum u64
//!          48 message_count u32   52 zero   256 frames, back to back
//! frame  =  0 checksum u64, of the rest   8 id u128   24 offset_delta u32
//!          28 timestamp_delta u32   32 user_headers_length u32   36 payload_length u32
//!          40 zero   48 payload, then user headers
//! ```
//!
//! The batch checksum covers the header's fields and the frames' checksums, so a frame's bytes
//! are hashed once. The server rewrites the first 24 bytes of the header, never a frame.
//!
//! **Invariant:** [`verify`] is the only gate for a producer's bytes; all else here may rely on
//! a batch that passed it, but none of it panics on one that did not.

mod builder;

use alloc::vec::Vec;
use core::fmt;

use base::checksum::{Xxh3, xxh3_64};

use crate::{Cut, ErrorCode, array, put};

pub use builder::{BatchBuilder, Message};

/// Size of a batch's header.
pub const BATCH_HEADER_SIZE: usize = 256;
/// Size of a frame's header.
pub const FRAME_HEADER_SIZE: usize = 48;
/// Most bytes in a message's payload.
pub const PAYLOAD_SIZE_MAX: usize = 64_000_000;
/// Most bytes in a message's user headers.
pub const USER_HEADERS_SIZE_MAX: usize = 100_000;

const CHECKSUM: usize = 40;
const MESSAGE_COUNT: usize = 48;

/// Why a batch was refused, or could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchError {
    /// It ends before its header or a frame does.
    Truncated,
    /// Its length field is not its length.
    Length,
    /// Bytes that must be zero are not.
    Reserved,
    /// It counts no message, or not those it has.
    Count,
    /// A frame's offset delta is not its place in the batch.
    OffsetDelta,
    /// A frame's checksum does not match.
    FrameChecksum,
    /// The batch's checksum does not match.
    Checksum,
    /// A payload is empty.
    PayloadEmpty,
    /// A payload is larger than [`PAYLOAD_SIZE_MAX`].
    PayloadSize,
    /// User headers are larger than [`USER_HEADERS_SIZE_MAX`].
    UserHeadersSize,
    /// Two messages are more than `u32::MAX` microseconds apart.
    TimestampDelta,
}

impl BatchError {
    /// The code a client is told.
    #[must_use]
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Truncated | Self::Length => ErrorCode::INVALID_MESSAGES_SIZE,
            Self::Reserved => ErrorCode::INVALID_RESERVED_FIELD,
            Self::Count => ErrorCode::INVALID_MESSAGES_COUNT,
            Self::OffsetDelta => ErrorCode::INVALID_OFFSET,
            Self::FrameChecksum => ErrorCode::INVALID_MESSAGE_CHECKSUM,
            Self::Checksum => ErrorCode::INVALID_BATCH_CHECKSUM,
            Self::PayloadEmpty => ErrorCode::EMPTY_MESSAGE_PAYLOAD,
            Self::PayloadSize => ErrorCode::TOO_BIG_MESSAGE_PAYLOAD,
            Self::UserHeadersSize => ErrorCode::TOO_BIG_USER_HEADERS,
            Self::TimestampDelta => ErrorCode::INVALID_MESSAGE_TIMESTAMP_DELTA,
        }
    }
}

impl From<Cut> for BatchError {
    fn from(_: Cut) -> Self {
        Self::Truncated
    }
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the batch ends too early",
            Self::Length => "the batch's length field is wrong",
            Self::Reserved => "reserved bytes are not zero",
            Self::Count => "the message count is wrong",
            Self::OffsetDelta => "an offset delta is not the message's place",
            Self::FrameChecksum => "a message's checksum does not match",
            Self::Checksum => "the batch's checksum does not match",
            Self::PayloadEmpty => "a payload is empty",
            Self::PayloadSize => "a payload is too large",
            Self::UserHeadersSize => "user headers are too large",
            Self::TimestampDelta => "messages are too far apart in time",
        })
    }
}

impl core::error::Error for BatchError {}

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// The partition; 0 from a producer.
    pub partition_id: u64,
    /// Offset of the record's first message; 0 from a producer.
    pub base_offset: u64,
    /// When the batch was appended, in microseconds since the epoch; 0 from a producer.
    pub base_timestamp: u64,
    /// The smallest of the producer's timestamps, in microseconds since the epoch.
    pub origin_timestamp: u64,
    /// Header and frames, in bytes.
    pub batch_length: u64,
    /// Of the fields above and below, and of the frames' checksums.
    pub batch_checksum: u64,
    /// How many frames follow; at least 1.
    pub message_count: u32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`, which may go on after the batch.
    ///
    /// # Errors
    /// [`BatchError`] if the batch is longer than `bytes`, or a field is out of range.
    pub fn decode(bytes: &[u8]) -> Result<Self, BatchError> {
        let u64_at = |at| array(bytes, at).map(u64::from_le_bytes);
        let reserved: [u8; BATCH_HEADER_SIZE - 52] = array(bytes, 52)?;
        if reserved.iter().any(|&byte| byte != 0) {
            return Err(BatchError::Reserved);
        }
        let header = Self {
            partition_id: u64_at(0)?,
            base_offset: u64_at(8)?,
            base_timestamp: u64_at(16)?,
            origin_timestamp: u64_at(24)?,
            batch_length: u64_at(32)?,
            batch_checksum: u64_at(CHECKSUM)?,
            message_count: u32::from_le_bytes(array(bytes, MESSAGE_COUNT)?),
        };
        if header.batch_length < BATCH_HEADER_SIZE as u64 {
            return Err(BatchError::Length);
        }
        if header.batch_length > bytes.len() as u64 {
            return Err(BatchError::Truncated);
        }
        if header.message_count == 0 {
            return Err(BatchError::Count);
        }
        Ok(header)
    }

    /// Writes the header over the first 256 bytes of `bytes`.
    ///
    /// # Panics
    /// If `bytes` is shorter.
    pub fn encode_into(&self, bytes: &mut [u8]) {
        let bytes = &mut bytes[..BATCH_HEADER_SIZE];
        bytes.fill(0);
        put(bytes, 0, self.partition_id.to_le_bytes());
        put(bytes, 8, self.base_offset.to_le_bytes());
        put(bytes, 16, self.base_timestamp.to_le_bytes());
        put(bytes, 24, self.origin_timestamp.to_le_bytes());
        put(bytes, 32, self.batch_length.to_le_bytes());
        put(bytes, CHECKSUM, self.batch_checksum.to_le_bytes());
        put(bytes, MESSAGE_COUNT, self.message_count.to_le_bytes());
    }

    /// A hash of the fields that the batch checksum covers; the frames' checksums come next.
    fn start_checksum(&self) -> Xxh3 {
        let mut header = [0; BATCH_HEADER_SIZE];
        self.encode_into(&mut header);
        let mut hash = Xxh3::new();
        hash.update(&header[..CHECKSUM]);
        hash.update(&header[MESSAGE_COUNT..MESSAGE_COUNT + 4]);
        hash
    }
}

/// One message within a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    bytes: &'a [u8],
    payload_end: usize,
    /// Chosen by the producer.
    pub id: u128,
    /// Its offset after the record's first.
    pub offset_delta: u32,
    /// Microseconds after the batch's origin timestamp.
    pub timestamp_delta: u32,
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Frame({:032x} +{}, {} bytes)",
            self.id,
            self.offset_delta,
            self.bytes.len()
        )
    }
}

impl<'a> Frame<'a> {
    /// Reads the frame at the start of `bytes`, layout only.
    fn decode(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let u32_at = |at| array(bytes, at).map(u32::from_le_bytes);
        let payload_end = FRAME_HEADER_SIZE
            .checked_add(u32_at(36)? as usize)
            .ok_or(BatchError::Truncated)?;
        let end = payload_end
            .checked_add(u32_at(32)? as usize)
            .ok_or(BatchError::Truncated)?;
        if array(bytes, 40)? != [0; 8] {
            return Err(BatchError::Reserved);
        }
        Ok(Self {
            bytes: bytes.get(..end).ok_or(BatchError::Truncated)?,
            payload_end,
            id: u128::from_le_bytes(array(bytes, 8)?),
            offset_delta: u32_at(24)?,
            timestamp_delta: u32_at(28)?,
        })
    }

    /// The whole frame.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The message itself.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[FRAME_HEADER_SIZE..self.payload_end]
    }

    /// A TLV block, or what an encrypting producer made of it.
    #[must_use]
    pub fn user_headers(&self) -> &'a [u8] {
        &self.bytes[self.payload_end..]
    }

    /// The checksum the producer gave it.
    #[must_use]
    pub fn checksum(&self) -> u64 {
        u64::from_le_bytes(self.checksum_bytes())
    }

    fn checksum_bytes(&self) -> [u8; 8] {
        *self
            .bytes
            .first_chunk()
            .expect("a decoded frame is longer than its header")
    }

    /// Whether the checksum is that of the frame.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.checksum() == xxh3_64(&self.bytes[8..])
    }

    fn check_sizes(&self) -> Result<(), BatchError> {
        if self.payload().is_empty() {
            return Err(BatchError::PayloadEmpty);
        }
        if self.payload().len() > PAYLOAD_SIZE_MAX {
            return Err(BatchError::PayloadSize);
        }
        if self.user_headers().len() > USER_HEADERS_SIZE_MAX {
            return Err(BatchError::UserHeadersSize);
        }
        Ok(())
    }
}

/// The frames of a batch, in order; layout is checked, checksums are not.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let frame = Frame::decode(self.rest);
        self.rest = match &frame {
            Ok(frame) => &self.rest[frame.bytes.len()..],
            Err(_) => &[],
        };
        Some(frame)
    }
}

/// The frames of the batch that starts at the start of `bytes`, and its header.
///
/// # Errors
/// [`BatchError`] if the header is not one.
pub fn frames(bytes: &[u8]) -> Result<(BatchHeader, Frames<'_>), BatchError> {
    let header = BatchHeader::decode(bytes)?;
    let length = usize::try_from(header.batch_length).map_err(|_| BatchError::Length)?;
    let rest = bytes
        .get(BATCH_HEADER_SIZE..length)
        .ok_or(BatchError::Truncated)?;
    Ok((header, Frames { rest }))
}

/// The batches of a poll reply after its head, back to back.
///
/// # Errors
/// [`BatchError`] if they are not; nothing is yielded after an error.
pub fn split(mut bytes: &[u8]) -> impl Iterator<Item = Result<&[u8], BatchError>> {
    core::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let length = BatchHeader::decode(bytes).and_then(|header| {
            usize::try_from(header.batch_length).map_err(|_| BatchError::Length)
        });
        Some(match length {
            Ok(length) => {
                let (batch, rest) = bytes.split_at(length);
                bytes = rest;
                Ok(batch)
            }
            Err(error) => {
                bytes = &[];
                Err(error)
            }
        })
    })
}

/// Checks a whole batch, as a producer sends it or as the log holds it: frames tile it, offset
/// deltas count from 0, sizes are in range and all checksums match.
///
/// # Errors
/// The first thing wrong, in that order per frame.
pub fn verify(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let (header, frames) = frames(bytes)?;
    if header.batch_length != bytes.len() as u64 {
        return Err(BatchError::Length);
    }
    let mut hash = header.start_checksum();
    let mut count: u32 = 0;
    for frame in frames {
        let frame = frame?;
        if count == header.message_count {
            return Err(BatchError::Count);
        }
        if frame.offset_delta != count {
            return Err(BatchError::OffsetDelta);
        }
        frame.check_sizes()?;
        if !frame.is_intact() {
            return Err(BatchError::FrameChecksum);
        }
        hash.update(&frame.checksum_bytes());
        count += 1;
    }
    if count != header.message_count {
        return Err(BatchError::Count);
    }
    if hash.finish() != header.batch_checksum {
        return Err(BatchError::Checksum);
    }
    Ok(header)
}

/// Gives a verified batch its place: writes partition, base offset and append time over the
/// producer's, in place, and the batch checksum over these.
///
/// # Errors
/// [`BatchError`] if `bytes` is not a batch; `bytes` is untouched then.
pub fn stamp(
    bytes: &mut [u8],
    partition_id: u32,
    base_offset: u64,
    base_timestamp: u64,
) -> Result<BatchHeader, BatchError> {
    let (header, frames) = frames(bytes)?;
    let mut header = BatchHeader {
        partition_id: u64::from(partition_id),
        base_offset,
        base_timestamp,
        ..header
    };
    header.batch_checksum = checksum(&header, frames)?;
    header.encode_into(bytes);
    Ok(header)
}

fn checksum(header: &BatchHeader, frames: Frames<'_>) -> Result<u64, BatchError> {
    let mut hash = header.start_checksum();
    for frame in frames {
        hash.update(&frame?.checksum_bytes());
    }
    Ok(hash.finish())
}

/// Computes the batch checksum over a header and frames that stand, and writes it.
///
/// # Errors
/// [`BatchError`] if `bytes` is not a batch; `bytes` is untouched then.
pub fn restore_checksum(bytes: &mut [u8]) -> Result<BatchHeader, BatchError> {
    let (mut header, frames) = frames(bytes)?;
    header.batch_checksum = checksum(&header, frames)?;
    header.encode_into(bytes);
    Ok(header)
}

/// Some consecutive frames of a stored batch, to be served as a batch of their own: `header`,
/// then bytes `start .. end` of the stored batch. Nothing is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Describes these frames only. `base_offset` is the stored batch's: frames keep their
    /// offset deltas.
    pub header: BatchHeader,
    /// Where the first frame starts in the stored batch.
    pub start: usize,
    /// Where the last frame ends in the stored batch.
    pub end: usize,
    /// Offset of the last message.
    pub last_offset: u64,
}

impl Slice {
    /// The header's bytes.
    #[must_use]
    pub fn header_bytes(&self) -> [u8; BATCH_HEADER_SIZE] {
        let mut bytes = [0; BATCH_HEADER_SIZE];
        self.header.encode_into(&mut bytes);
        bytes
    }

    /// Whether these are all frames: the stored batch can be served as it stands.
    #[must_use]
    pub const fn is_whole(&self, batch: &[u8]) -> bool {
        self.start == BATCH_HEADER_SIZE && self.end == batch.len()
    }
}

/// The messages of a stored batch from offset `from` on, at most `count_max` of them; `None` if
/// there is none.
///
/// # Errors
/// [`BatchError`] if `batch` is not a batch.
pub fn slice(batch: &[u8], from: u64, count_max: u32) -> Result<Option<Slice>, BatchError> {
    let (stored, frames) = frames(batch)?;
    let mut at = BATCH_HEADER_SIZE;
    let mut found: Option<Slice> = None;
    let mut checksums = Vec::new();
    for frame in frames {
        let frame = frame?;
        let offset = stored
            .base_offset
            .saturating_add(u64::from(frame.offset_delta));
        let start = at;
        at += frame.bytes.len();
        if offset < from {
            continue;
        }
        let slice = found.get_or_insert(Slice {
            header: BatchHeader {
                message_count: 0,
                ..stored
            },
            start,
            end: start,
            last_offset: offset,
        });
        if slice.header.message_count == count_max {
            break;
        }
        slice.header.message_count += 1;
        slice.end = at;
        slice.last_offset = offset;
        checksums.extend_from_slice(&frame.checksum_bytes());
    }
    let Some(mut slice) = found.filter(|slice| slice.header.message_count > 0) else {
        return Ok(None);
    };
    slice.header.batch_length = (BATCH_HEADER_SIZE + slice.end - slice.start) as u64;
    let mut hash = slice.header.start_checksum();
    hash.update(&checksums);
    slice.header.batch_checksum = hash.finish();
    Ok(Some(slice))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(payloads: &[&[u8]]) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for (index, payload) in payloads.iter().enumerate() {
            let index = index as u64;
            let message = Message {
                id: u128::from(index) + 1,
                origin_timestamp: 1_000 - index,
                payload,
                user_headers: b"headers",
            };
            builder.push(message).expect("a valid message");
        }
        builder.finish().expect("at least one message")
    }

    fn stored(payloads: &[&[u8]], base_offset: u64) -> Vec<u8> {
        let mut bytes = batch(payloads);
        stamp(&mut bytes, 3, base_offset, 77).expect("a valid batch");
        bytes
    }

    #[test]
    fn a_built_batch_verifies_and_reads_back() {
        let bytes = batch(&[b"one", b"three"]);
        let header = verify(&bytes).expect("valid");
        assert_eq!((header.message_count, header.origin_timestamp), (2, 999));
        let frames: Vec<_> = frames(&bytes)
            .expect("valid")
            .1
            .map(|f| f.expect("valid"))
            .collect();
        assert_eq!(frames[0].payload(), b"one");
        assert_eq!(frames[1].user_headers(), b"headers");
        assert_eq!(
            (frames[0].timestamp_delta, frames[1].timestamp_delta),
            (1, 0)
        );
        assert_eq!((frames[1].id, frames[1].offset_delta), (2, 1));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = batch(&[b"one", b"two"]);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(verify(&damaged).is_err(), "byte {at} bit {bit}");
            }
        }
        for len in 0..bytes.len() {
            assert!(verify(&bytes[..len]).is_err(), "cut to {len}");
        }
    }

    #[test]
    fn damage_has_the_code_of_its_place() {
        let bytes = batch(&[b"one", b"two"]);
        let code = |at: usize, value: u8| {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            verify(&damaged).expect_err("damaged").code()
        };
        let last = bytes.len() - 1;
        assert_eq!(code(last, 0), ErrorCode::INVALID_MESSAGE_CHECKSUM);
        assert_eq!(
            code(CHECKSUM, bytes[CHECKSUM] ^ 1),
            ErrorCode::INVALID_BATCH_CHECKSUM
        );
        assert_eq!(code(MESSAGE_COUNT, 0), ErrorCode::INVALID_MESSAGES_COUNT);
        assert_eq!(code(MESSAGE_COUNT, 1), ErrorCode::INVALID_MESSAGES_COUNT);
        assert_eq!(code(MESSAGE_COUNT, 3), ErrorCode::INVALID_MESSAGES_COUNT);
        assert_eq!(code(200, 1), ErrorCode::INVALID_RESERVED_FIELD);
    }

    #[test]
    fn a_stamp_changes_the_header_only() {
        let sent = batch(&[b"one", b"two"]);
        let stored = stored(&[b"one", b"two"], 40);
        let header = verify(&stored).expect("valid");
        assert_eq!(
            (
                header.partition_id,
                header.base_offset,
                header.base_timestamp
            ),
            (3, 40, 77)
        );
        assert_eq!(sent[BATCH_HEADER_SIZE..], stored[BATCH_HEADER_SIZE..]);
    }

    #[test]
    fn a_slice_is_a_batch_of_the_messages_asked_for() {
        let bytes = stored(&[b"a", b"bb", b"ccc", b"dddd"], 10);
        let cut = slice(&bytes, 11, 2).expect("valid").expect("two messages");
        assert_eq!((cut.header.message_count, cut.last_offset), (2, 12));
        assert!(!cut.is_whole(&bytes));
        let served = [&cut.header_bytes(), &bytes[cut.start..cut.end]].concat();
        let (header, frames) = frames(&served).expect("valid");
        let mut hash = header.start_checksum();
        let mut payloads = Vec::new();
        for frame in frames {
            let frame = frame.expect("valid");
            hash.update(&frame.checksum_bytes());
            payloads.push((
                header.base_offset + u64::from(frame.offset_delta),
                frame.payload(),
            ));
        }
        assert_eq!(payloads, [(11, b"bb".as_slice()), (12, b"ccc")]);
        assert_eq!(hash.finish(), header.batch_checksum);
    }

    #[test]
    fn a_slice_knows_all_and_nothing() {
        let bytes = stored(&[b"a", b"bb"], 10);
        let whole = slice(&bytes, 0, u32::MAX).expect("valid").expect("all");
        assert!(whole.is_whole(&bytes));
        assert_eq!(whole.header_bytes(), bytes[..BATCH_HEADER_SIZE]);
        assert_eq!(slice(&bytes, 12, 1), Ok(None));
        assert_eq!(slice(&bytes, 10, 0), Ok(None));
    }

    #[test]
    fn records_back_to_back_are_split() {
        let first = stored(&[b"a"], 0);
        let second = stored(&[b"b", b"c"], 1);
        let mut both = [first.clone(), second.clone()].concat();
        let parts: Vec<_> = split(&both).collect();
        assert_eq!(parts, [Ok(first.as_slice()), Ok(second.as_slice())]);
        both.pop();
        assert_eq!(split(&both).last(), Some(Err(BatchError::Truncated)));
    }
}
