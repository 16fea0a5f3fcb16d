//! What a poll brought, message by message.

use alloc::vec::Vec;

use base::{Offset, Timestamp};
use wire::{
    BatchError, Counted, DecodeError, Reader,
    batch::{Frame, frames, split},
    reply::{Confirmation, PollHead},
};

use crate::Reply;

/// A reply's payload is not what its command answers with. The server's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadError {
    /// A record.
    Record(DecodeError),
    /// A batch.
    Batch(BatchError),
    /// The head counts other messages than there are.
    Count,
    /// Offsets do not go up by one, or beyond the last committed one.
    Offset,
}

impl From<DecodeError> for PayloadError {
    fn from(error: DecodeError) -> Self {
        Self::Record(error)
    }
}

impl From<BatchError> for PayloadError {
    fn from(error: BatchError) -> Self {
        Self::Batch(error)
    }
}

impl core::fmt::Display for PayloadError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Record(error) => error.fmt(f),
            Self::Batch(error) => error.fmt(f),
            Self::Count => f.write_str("the reply counts other messages than it has"),
            Self::Offset => f.write_str("offsets are not dense, or beyond the committed"),
        }
    }
}

impl core::error::Error for PayloadError {}

/// A message as a consumer gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolledMessage<'a> {
    /// Its offset in the partition.
    pub offset: Offset,
    /// When it was appended.
    pub timestamp: Timestamp,
    /// The producer's own time.
    pub origin_timestamp: Timestamp,
    /// Id, payload and user headers.
    pub frame: Frame<'a>,
}

/// What a poll brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Polled<'a> {
    /// Partition, last committed offset and count.
    pub head: PollHead,
    /// The messages, by offset.
    pub messages: Vec<PolledMessage<'a>>,
}

impl<'a> Polled<'a> {
    /// Reads and checks the payload of a poll's reply: checksums of all messages, dense offsets,
    /// the count. A consumer that is given damage must know.
    ///
    /// # Errors
    /// [`PayloadError`] if something is wrong.
    pub fn read(reply: &'a Reply) -> Result<Self, PayloadError> {
        let mut reader = Reader::new(reply.payload());
        let head: PollHead = reader.read()?;
        let mut messages: Vec<PolledMessage<'a>> = Vec::new();
        for batch in split(reader.take_rest()) {
            let (header, frames) = frames(batch?)?;
            for frame in frames {
                let frame = frame?;
                if !frame.is_intact() {
                    return Err(BatchError::FrameChecksum.into());
                }
                let delta = u64::from(frame.offset_delta);
                let offset = header
                    .base_offset
                    .checked_add(delta)
                    .ok_or(PayloadError::Offset)?;
                let expected = messages.last().map(|last| last.offset.0 + 1);
                if expected.is_some_and(|expected| expected != offset)
                    || offset > head.current_offset
                {
                    return Err(PayloadError::Offset);
                }
                let origin = header
                    .origin_timestamp
                    .saturating_add(u64::from(frame.timestamp_delta));
                messages.push(PolledMessage {
                    offset: Offset(offset),
                    timestamp: Timestamp(header.base_timestamp),
                    origin_timestamp: Timestamp(origin),
                    frame,
                });
            }
        }
        if messages.len() != head.count as usize {
            return Err(PayloadError::Count);
        }
        Ok(Self { head, messages })
    }
}

impl Reply {
    /// Where the batch of a send was written; nothing if the server does not know any more.
    ///
    /// # Errors
    /// [`PayloadError`] if the payload is no list of confirmations.
    pub fn confirmations(&self) -> Result<Vec<Confirmation>, PayloadError> {
        let confirmations: Option<Counted<Confirmation>> = self.decode_optional()?;
        Ok(confirmations.map(|counted| counted.0).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use wire::{
        BatchBuilder, Code, Codec, ReplyHeader, RequestHeader,
        batch::{Message, stamp},
        header,
    };

    use super::*;

    fn stored(payloads: &[&[u8]], base_offset: u64) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for payload in payloads {
            let message = Message {
                id: 1,
                origin_timestamp: 7,
                payload,
                user_headers: &[],
            };
            builder.push(message).unwrap();
        }
        let mut bytes = builder.finish().unwrap();
        stamp(&mut bytes, 2, base_offset, 99).unwrap();
        bytes
    }

    fn reply(count: u32, current_offset: u64, batches: &[Vec<u8>]) -> Reply {
        let head = PollHead {
            partition_id: 2,
            current_offset,
            count,
        };
        let body = [&head.encode()[..], &batches.concat()].concat();
        let request = RequestHeader::new(base::ClientId(1), 1, 1, Code::PollMessages);
        Reply::read(header::reply(&ReplyHeader::to(&request), &body)).unwrap()
    }

    #[test]
    fn messages_come_with_their_offsets_and_times() {
        let reply = reply(3, 12, &[stored(&[b"a", b"b"], 10), stored(&[b"c"], 12)]);
        let polled = Polled::read(&reply).unwrap();
        let seen: Vec<(u64, u64, u64, &[u8])> = polled
            .messages
            .iter()
            .map(|m| {
                (
                    m.offset.0,
                    m.timestamp.0,
                    m.origin_timestamp.0,
                    m.frame.payload(),
                )
            })
            .collect();
        let expected: [(u64, u64, u64, &[u8]); 3] =
            [(10, 99, 7, b"a"), (11, 99, 7, b"b"), (12, 99, 7, b"c")];
        assert_eq!(seen, expected);
    }

    #[test]
    fn gaps_damage_and_wrong_counts_are_noticed() {
        let whole = || stored(&[b"a", b"b"], 10);
        let error = |reply: Reply| Polled::read(&reply).unwrap_err();
        assert_eq!(error(reply(3, 11, &[whole()])), PayloadError::Count);
        assert_eq!(error(reply(2, 10, &[whole()])), PayloadError::Offset);
        let gap = [whole(), stored(&[b"c"], 13)];
        assert_eq!(error(reply(3, 13, &gap)), PayloadError::Offset);
        let again = [whole(), stored(&[b"c"], 11)];
        assert_eq!(error(reply(3, 13, &again)), PayloadError::Offset);
        let mut damaged = whole();
        *damaged.last_mut().unwrap() ^= 1;
        let checksum = PayloadError::Batch(BatchError::FrameChecksum);
        assert_eq!(error(reply(2, 11, &[damaged])), checksum);
    }

    #[test]
    fn empty_confirmation_is_no_confirmation() {
        let request = RequestHeader::new(base::ClientId(1), 1, 1, Code::SendMessages);
        let reply =
            |body: &[u8]| Reply::read(header::reply(&ReplyHeader::to(&request), body)).unwrap();
        assert_eq!(reply(&[]).confirmations(), Ok(Vec::new()));
        assert_eq!(reply(&[0; 4]).confirmations(), Ok(Vec::new()));
        assert!(reply(&[1, 0, 0, 0]).confirmations().is_err());
    }
}
