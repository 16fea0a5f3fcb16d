//! Makes the batches that producers send: frames as messages are pushed, checksums at the end.

use alloc::{vec, vec::Vec};

use base::checksum::xxh3_64;

use super::{BATCH_HEADER_SIZE, BatchError, BatchHeader, FRAME_HEADER_SIZE, Frame};
use crate::put;

/// A message for a [`BatchBuilder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Chosen by the producer; servers never change it.
    pub id: u128,
    /// The producer's time, in microseconds since the epoch.
    pub origin_timestamp: u64,
    /// The message itself.
    pub payload: &'a [u8],
    /// A TLV block, or empty.
    pub user_headers: &'a [u8],
}

/// Makes a producer's batch.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    bytes: Vec<u8>,
    timestamps: Vec<u64>,
    oldest: u64,
    newest: u64,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchBuilder {
    /// A batch without messages yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            bytes: vec![0; BATCH_HEADER_SIZE],
            timestamps: Vec::new(),
            oldest: u64::MAX,
            newest: 0,
        }
    }

    /// How many messages it has.
    ///
    /// # Panics
    /// Never: a batch is far smaller than 4 GiB.
    #[must_use]
    pub fn message_count(&self) -> u32 {
        crate::codec::length_u32(self.timestamps.len())
    }

    /// Size of the batch so far, header and frames.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a message.
    ///
    /// # Errors
    /// [`BatchError`] if it is too large, empty, or too far in time from the others; the batch
    /// is as before then.
    pub fn push(&mut self, message: Message<'_>) -> Result<(), BatchError> {
        let oldest = self.oldest.min(message.origin_timestamp);
        let newest = self.newest.max(message.origin_timestamp);
        if newest - oldest > u64::from(u32::MAX) {
            return Err(BatchError::TimestampDelta);
        }
        let start = self.bytes.len();
        let mut header = [0; FRAME_HEADER_SIZE];
        let size = |bytes: &[u8], error| u32::try_from(bytes.len()).map_err(|_| error);
        let user_headers_size = size(message.user_headers, BatchError::UserHeadersSize)?;
        let payload_size = size(message.payload, BatchError::PayloadSize)?;
        put(&mut header, 8, message.id.to_le_bytes());
        put(&mut header, 24, self.message_count().to_le_bytes());
        put(&mut header, 32, user_headers_size.to_le_bytes());
        put(&mut header, 36, payload_size.to_le_bytes());
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(message.payload);
        self.bytes.extend_from_slice(message.user_headers);
        if let Err(error) = Frame::decode(&self.bytes[start..]).and_then(|f| f.check_sizes()) {
            self.bytes.truncate(start);
            return Err(error);
        }
        self.timestamps.push(message.origin_timestamp);
        (self.oldest, self.newest) = (oldest, newest);
        Ok(())
    }

    /// The batch, with all checksums.
    ///
    /// # Errors
    /// [`BatchError::Count`] if there is no message.
    ///
    /// # Panics
    /// Never: every message was checked when it was pushed.
    pub fn finish(mut self) -> Result<Vec<u8>, BatchError> {
        let mut header = BatchHeader {
            partition_id: 0,
            base_offset: 0,
            base_timestamp: 0,
            origin_timestamp: self.oldest,
            batch_length: self.bytes.len() as u64,
            batch_checksum: 0,
            message_count: self.message_count(),
        };
        if header.message_count == 0 {
            return Err(BatchError::Count);
        }
        let mut hash = header.start_checksum();
        let mut start = BATCH_HEADER_SIZE;
        for timestamp in &self.timestamps {
            let end = start + Frame::decode(&self.bytes[start..])?.bytes.len();
            let frame = &mut self.bytes[start..end];
            let delta = u32::try_from(timestamp - self.oldest).expect("checked by push");
            put(frame, 28, delta.to_le_bytes());
            let checksum = xxh3_64(&frame[8..]).to_le_bytes();
            put(frame, 0, checksum);
            hash.update(&checksum);
            start = end;
        }
        header.batch_checksum = hash.finish();
        header.encode_into(&mut self.bytes);
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{PAYLOAD_SIZE_MAX, USER_HEADERS_SIZE_MAX, verify};

    #[test]
    fn the_builder_refuses_what_servers_refuse() {
        let message = Message {
            id: 1,
            origin_timestamp: 0,
            payload: b"x",
            user_headers: &[],
        };
        let mut builder = BatchBuilder::new();
        builder.push(message).expect("valid");
        let empty = builder.push(Message {
            payload: &[],
            ..message
        });
        assert_eq!(empty, Err(BatchError::PayloadEmpty));
        let late = builder.push(Message {
            origin_timestamp: 1 << 32,
            ..message
        });
        assert_eq!(late, Err(BatchError::TimestampDelta));
        let headers = vec![0; USER_HEADERS_SIZE_MAX + 1];
        let large = builder.push(Message {
            user_headers: &headers,
            ..message
        });
        assert_eq!(large, Err(BatchError::UserHeadersSize));
        assert_eq!(builder.message_count(), 1);
        assert!(verify(&builder.finish().expect("one message")).is_ok());
        assert_eq!(BatchBuilder::new().finish(), Err(BatchError::Count));
    }

    #[test]
    fn payloads_and_headers_at_their_limit_and_one_byte_beyond() {
        let large = vec![0; PAYLOAD_SIZE_MAX + 1];
        let check = |payload: usize, headers: usize| {
            let mut builder = BatchBuilder::new();
            let pushed = builder.push(Message {
                id: 1,
                origin_timestamp: 0,
                payload: &large[..payload],
                user_headers: &large[..headers],
            });
            pushed.and_then(|()| verify(&builder.finish()?).map(|_| ()))
        };
        assert_eq!(check(PAYLOAD_SIZE_MAX, 0), Ok(()));
        assert_eq!(check(PAYLOAD_SIZE_MAX + 1, 0), Err(BatchError::PayloadSize));
        assert_eq!(check(1, USER_HEADERS_SIZE_MAX), Ok(()));
        let headers = check(1, USER_HEADERS_SIZE_MAX + 1);
        assert_eq!(headers, Err(BatchError::UserHeadersSize));
        assert_eq!(check(0, 0), Err(BatchError::PayloadEmpty));
    }
}
