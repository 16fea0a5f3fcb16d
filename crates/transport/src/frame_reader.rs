//! Cuts a byte stream into frames, mostly without copying them.
//!
//! The reader owns the buffer that the next bytes go to. Three cases, by where a frame lies:
//!
//! ```text
//!  buffer  │ frame A │ frame B │ start of C ·····│ spare      │
//!            shared    shared    C fits: go on receiving behind it
//!                                C does not fit: moved to a buffer of C's size, the rest of C
//!                                is received straight into that and C comes out alone
//! ```
//!
//! - A frame smaller than a quarter of its buffer is copied out: it must not pin the buffer.
//! - Any other frame shares the buffer. Alone in it, it is its unique owner, so it can be
//!   stamped in place.
//! - Receive buffers follow the traffic: as large as the largest recent frame, twice as large
//!   after a receive that filled one, smaller again when they stay empty; always between
//!   [`RECEIVE_SIZE_MIN`] and [`RECEIVE_SIZE_MAX`]. A lock-step sender of large frames is
//!   therefore read without a copy.
//!
//! **Invariant:** the only field it looks at is the size.

use core::mem;

use base::{Buffer, Bytes};
use wire::HEADER_SIZE;

/// Where every header has its frame's size.
const SIZE_AT: usize = 48;

/// Smallest receive buffer.
pub const RECEIVE_SIZE_MIN: usize = 4 << 10;

/// Largest receive buffer; a larger frame gets a buffer of its own once its header is known.
pub const RECEIVE_SIZE_MAX: usize = 1 << 20;

const _: () = assert!(RECEIVE_SIZE_MIN >= HEADER_SIZE && RECEIVE_SIZE_MAX >= RECEIVE_SIZE_MIN);

/// The stream holds no frame here; its connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The size in the header is smaller than a header. The peer's fault.
    Size(u32),
    /// The size in the header is above the limit. The peer's fault, or it has another limit.
    TooLarge {
        /// As in the header.
        size: u32,
        /// What is allowed.
        limit: u32,
    },
}

/// Received bytes, not yet cut.
#[derive(Debug)]
enum Pending {
    /// No frame shares the buffer. Bytes before `start` have been cut.
    Owned { buffer: Buffer, start: usize },
    /// Frames that were cut share the buffer with these bytes.
    Shared(Bytes),
    /// The buffer is with the body; bytes before `start` have been cut.
    Receiving { start: usize },
}

/// The receiving half of a connection.
#[derive(Debug)]
pub struct FrameReader {
    limit: u32,
    /// Size of the next receive buffer.
    receive_size: usize,
    /// Bytes in the buffer when it was last handed out.
    handed_out: usize,
    pending: Pending,
}

impl FrameReader {
    /// A reader that refuses frames above `limit` bytes.
    ///
    /// # Panics
    /// If `limit` is smaller than a header or above 4 GiB.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        assert!(limit >= HEADER_SIZE);
        let limit = u32::try_from(limit).expect("sizes are 32 bits on the wire");
        Self {
            limit,
            receive_size: RECEIVE_SIZE_MIN,
            handed_out: 0,
            pending: Pending::Owned {
                buffer: Buffer::default(),
                start: 0,
            },
        }
    }

    /// A reader that begins with bytes somebody else has received.
    #[must_use]
    pub fn with_received(limit: usize, received: Bytes) -> Self {
        let mut reader = Self::new(limit);
        reader.pending = Pending::Shared(received);
        reader
    }

    /// The buffer for the next `Receive`; comes back through [`Self::on_received`]. Cut all
    /// frames first: bytes that wait here are copied if the buffer has to grow.
    ///
    /// # Panics
    /// If the buffer is already out.
    #[must_use]
    pub fn buffer_to_receive(&mut self) -> Buffer {
        let wanted = self.wanted();
        let pending = mem::replace(&mut self.pending, Pending::Receiving { start: 0 });
        let buffer = match pending {
            Pending::Receiving { .. } => panic!("one receive at a time per connection"),
            Pending::Shared(bytes) => self.moved(&bytes, wanted),
            Pending::Owned { mut buffer, start } => {
                if start == buffer.len() {
                    self.fresh(buffer)
                } else if start + wanted <= buffer.capacity() {
                    self.pending = Pending::Receiving { start };
                    buffer
                } else if wanted <= buffer.capacity() {
                    let len = buffer.len() - start;
                    buffer.as_mut_slice().copy_within(start.., 0);
                    buffer.truncate(len);
                    buffer
                } else {
                    self.moved(&buffer.as_slice()[start..], wanted)
                }
            }
        };
        assert!(buffer.len() < buffer.capacity());
        self.handed_out = buffer.len();
        buffer
    }

    /// Bytes the buffer must have room for, so that it holds the pending frame.
    fn wanted(&self) -> usize {
        let bytes = self.bytes();
        let frame = match self.frame_size(bytes) {
            Ok(Some(size)) => size,
            Ok(None) | Err(_) => HEADER_SIZE,
        };
        frame.max(bytes.len() + 1)
    }

    /// An empty buffer of the size that the traffic asks for; `old` itself if it fits.
    fn fresh(&self, mut old: Buffer) -> Buffer {
        if old.capacity() >= self.receive_size && old.capacity() / 2 <= self.receive_size {
            old.truncate(0);
            return old;
        }
        Buffer::with_capacity(self.receive_size)
    }

    /// The pending bytes at the start of a new buffer. A large frame gets exactly its own size, so
    /// that it comes out alone; a small one will be copied out, so what follows it may come along.
    fn moved(&self, bytes: &[u8], wanted: usize) -> Buffer {
        let is_large = wanted >= self.receive_size / 4 && bytes.len() >= HEADER_SIZE;
        let capacity = if is_large {
            wanted
        } else {
            wanted.max(self.receive_size)
        };
        let mut buffer = Buffer::with_capacity(capacity);
        buffer.extend(bytes);
        buffer
    }

    /// The buffer is back, with at least one byte more.
    ///
    /// # Panics
    /// If none was out, or it came back without a new byte.
    pub fn on_received(&mut self, buffer: Buffer) {
        let Pending::Receiving { start } = self.pending else {
            panic!("a buffer must be out to come back");
        };
        assert!(buffer.len() > self.handed_out);
        let received = buffer.len() - self.handed_out;
        if self.handed_out == 0 && buffer.len() == buffer.capacity() {
            self.receive_size = (self.receive_size * 2).min(RECEIVE_SIZE_MAX);
        } else if received < self.receive_size / 4 {
            self.receive_size = (self.receive_size - self.receive_size / 16).max(RECEIVE_SIZE_MIN);
        }
        self.pending = Pending::Owned { buffer, start };
    }

    /// Cuts the next frame, or tells that more bytes are needed. After an error every further
    /// call gives the same.
    ///
    /// # Errors
    /// [`FrameError`] if the bytes are no frame; close the connection.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        let bytes = self.bytes();
        let Some(size) = self.frame_size(bytes)? else {
            return Ok(None);
        };
        if bytes.len() < size {
            return Ok(None);
        }
        self.receive_size = self.receive_size.max(size.min(RECEIVE_SIZE_MAX));
        Ok(Some(self.cut(size)))
    }

    fn bytes(&self) -> &[u8] {
        match &self.pending {
            Pending::Owned { buffer, start } => &buffer.as_slice()[*start..],
            Pending::Shared(bytes) => bytes,
            Pending::Receiving { .. } => &[],
        }
    }

    /// Size of the frame that `bytes` begin with, if they hold its header.
    fn frame_size(&self, bytes: &[u8]) -> Result<Option<usize>, FrameError> {
        if bytes.len() < HEADER_SIZE {
            return Ok(None);
        }
        let field = wire::array(bytes, SIZE_AT).expect("a whole header");
        let size = u32::from_le_bytes(field);
        if (size as usize) < HEADER_SIZE {
            return Err(FrameError::Size(size));
        }
        if size > self.limit {
            return Err(FrameError::TooLarge {
                size,
                limit: self.limit,
            });
        }
        Ok(Some(size as usize))
    }

    /// Takes the first `size` pending bytes, all of which are there.
    fn cut(&mut self, size: usize) -> Bytes {
        let empty = Pending::Owned {
            buffer: Buffer::default(),
            start: 0,
        };
        match mem::replace(&mut self.pending, empty) {
            Pending::Receiving { .. } => unreachable!("no bytes are pending"),
            Pending::Owned { buffer, start } if size < buffer.capacity() / 4 => {
                let frame = Bytes::copy_of(&buffer.as_slice()[start..start + size]);
                self.pending = Pending::Owned {
                    buffer,
                    start: start + size,
                };
                frame
            }
            Pending::Owned { buffer, start } => {
                let len = buffer.len();
                self.cut_shared(buffer.freeze().slice(start, len), size)
            }
            Pending::Shared(bytes) if size < bytes.footprint() / 4 => {
                let frame = Bytes::copy_of(&bytes[..size]);
                self.keep_shared(bytes.slice(size, bytes.len()));
                frame
            }
            Pending::Shared(bytes) => self.cut_shared(bytes, size),
        }
    }

    fn cut_shared(&mut self, bytes: Bytes, size: usize) -> Bytes {
        if bytes.len() == size {
            return bytes;
        }
        self.keep_shared(bytes.slice(size, bytes.len()));
        bytes.slice(0, size)
    }

    fn keep_shared(&mut self, rest: Bytes) {
        if !rest.is_empty() {
            self.pending = Pending::Shared(rest);
        }
    }

    /// The header of the next frame, once it is there; for whoever can judge it before the rest
    /// has come, and must not wait for the size that a damaged one names.
    #[must_use]
    pub fn header(&self) -> Option<&[u8]> {
        self.bytes().get(..HEADER_SIZE)
    }

    /// Whether the buffer is out with a `Receive`.
    #[must_use]
    pub const fn is_receiving(&self) -> bool {
        matches!(self.pending, Pending::Receiving { .. })
    }

    /// The bytes received and not yet cut, for whoever takes the connection over.
    ///
    /// # Panics
    /// If a receive is in flight: what it brings would be lost.
    #[must_use]
    pub fn take_rest(self) -> Bytes {
        match self.pending {
            Pending::Receiving { .. } => panic!("no hand-over while a receive is in flight"),
            Pending::Shared(bytes) => bytes,
            Pending::Owned { buffer, start } => {
                let len = buffer.len();
                if len - start < buffer.capacity() / 4 {
                    return Bytes::copy_of(&buffer.as_slice()[start..]);
                }
                buffer.freeze().slice(start, len)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 8 << 20;

    fn frame(size: usize, fill: u8) -> Vec<u8> {
        let mut frame = vec![fill; size];
        wire::put(
            &mut frame,
            SIZE_AT,
            u32::try_from(size).unwrap().to_le_bytes(),
        );
        frame
    }

    /// Plays the body: fills the reader's buffer with at most `most` bytes of `stream`.
    fn receive(reader: &mut FrameReader, stream: &mut &[u8], most: usize) {
        let mut buffer = reader.buffer_to_receive();
        let count = buffer.spare_mut().len().min(most).min(stream.len());
        buffer.spare_mut()[..count].copy_from_slice(&stream[..count]);
        buffer.advance(count);
        *stream = &stream[count..];
        reader.on_received(buffer);
    }

    fn read_all(reader: &mut FrameReader, mut stream: &[u8], chunks: &[usize]) -> Vec<Bytes> {
        let mut frames = Vec::new();
        let mut turns = chunks.iter().cycle();
        while !stream.is_empty() {
            receive(reader, &mut stream, *turns.next().unwrap());
            while let Some(frame) = reader.next_frame().unwrap() {
                frames.push(frame);
            }
        }
        frames
    }

    proptest! {
        /// However the network cuts a stream, the same frames come out, and a hand-over in the
        /// middle loses nothing.
        #[test]
        fn every_fragmentation_gives_the_same_frames(
            sizes in prop::collection::vec(
                prop_oneof![256_usize..300, 256_usize..20_000, 200_000_usize..260_000], 1..12),
            chunks in prop::collection::vec(
                prop_oneof![1_usize..4, 1_usize..600, 1_usize..70_000], 1..20),
            hand_over in any::<prop::sample::Index>(),
        ) {
            let frames: Vec<Vec<u8>> =
                sizes.iter().zip(1..).map(|(&size, fill)| frame(size, fill)).collect();
            let stream = frames.concat();
            // Bytewise reading of half a megabyte is slow and shows nothing more.
            let chunks: Vec<usize> =
                chunks.iter().map(|&chunk| chunk.max(stream.len() / 2_000)).collect();
            let (head, tail) = stream.split_at(hand_over.index(stream.len()));
            let mut reader = FrameReader::new(LIMIT);
            let mut read = read_all(&mut reader, head, &chunks);
            let mut reader = FrameReader::with_received(LIMIT, reader.take_rest());
            read.extend(read_all(&mut reader, tail, &chunks));
            prop_assert_eq!(read.len(), frames.len());
            for (read, sent) in read.iter().zip(&frames) {
                prop_assert!(**read == sent[..]);
            }
            prop_assert!(reader.take_rest().is_empty());
        }

        /// Garbage is refused or waits for more; it never panics.
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 1..2_000)) {
            let mut reader = FrameReader::new(LIMIT);
            let mut stream = &bytes[..];
            while !stream.is_empty() {
                receive(&mut reader, &mut stream, 100);
                let outcome = reader.next_frame();
                prop_assert_eq!(outcome.is_err(), reader.next_frame().is_err());
            }
        }
    }

    #[test]
    fn limit_is_allowed_and_one_more_is_not() {
        let limit = 1_000;
        let mut reader = FrameReader::new(limit);
        let frames = read_all(&mut reader, &frame(1_000, 1), &[usize::MAX]);
        assert_eq!(frames.len(), 1);
        let larger = frame(1_001, 1);
        receive(&mut reader, &mut &larger[..HEADER_SIZE], usize::MAX);
        let refused = Err(FrameError::TooLarge {
            size: 1_001,
            limit: 1_000,
        });
        assert_eq!(reader.next_frame(), refused);
        assert_eq!(reader.next_frame(), refused);
    }

    #[test]
    fn size_below_a_header_is_refused() {
        let mut reader = FrameReader::new(LIMIT);
        let mut bytes = frame(HEADER_SIZE, 0);
        wire::put(&mut bytes, SIZE_AT, 255_u32.to_le_bytes());
        receive(&mut reader, &mut &bytes[..], usize::MAX);
        assert_eq!(reader.next_frame(), Err(FrameError::Size(255)));
    }

    #[test]
    fn half_a_frame_waits_and_travels_on_in_a_hand_over() {
        let mut reader = FrameReader::new(LIMIT);
        let bytes = frame(10_000, 9);
        receive(&mut reader, &mut &bytes[..3_000], usize::MAX);
        assert_eq!(reader.next_frame(), Ok(None));
        let rest = reader.take_rest();
        assert_eq!(rest[..], bytes[..3_000]);
        let mut reader = FrameReader::with_received(LIMIT, rest);
        assert_eq!(reader.next_frame(), Ok(None));
        let frames = read_all(&mut reader, &bytes[3_000..], &[usize::MAX]);
        assert_eq!(frames[0][..], bytes[..]);
    }

    /// A large frame is received straight into a buffer of its size and owns it alone; once the
    /// receive buffers have grown, it is not even moved.
    #[test]
    fn large_frame_is_alone_in_its_buffer() {
        let mut reader = FrameReader::new(LIMIT);
        let bytes = frame(300_000, 5);
        let mut first = read_all(&mut reader, &bytes, &[usize::MAX]).remove(0);
        assert!(first.get_mut().is_some());
        assert!(first.footprint() < 300_000 + HEADER_SIZE);
        let mut buffer = reader.buffer_to_receive();
        let address = buffer.as_slice().as_ptr();
        assert!(buffer.capacity() >= bytes.len());
        for part in bytes.chunks(100_000) {
            buffer.spare_mut()[..part.len()].copy_from_slice(part);
            buffer.advance(part.len());
            reader.on_received(buffer);
            if reader.bytes().len() == bytes.len() {
                break;
            }
            assert_eq!(reader.next_frame(), Ok(None));
            buffer = reader.buffer_to_receive();
        }
        let mut second = reader.next_frame().unwrap().unwrap();
        assert_eq!(second.as_ptr(), address);
        assert!(second.get_mut().is_some());
    }

    #[test]
    fn small_frame_does_not_pin_its_buffer() {
        let mut reader = FrameReader::new(LIMIT);
        drop(read_all(&mut reader, &frame(900_000, 1), &[usize::MAX]));
        let mut small = read_all(&mut reader, &frame(300, 2), &[usize::MAX]).remove(0);
        assert!(small.footprint() <= 512);
        assert!(small.get_mut().is_some());
    }

    #[test]
    fn receive_buffers_shrink_when_the_traffic_does() {
        let mut reader = FrameReader::new(LIMIT);
        drop(read_all(&mut reader, &frame(1 << 20, 1), &[usize::MAX]));
        assert_eq!(reader.receive_size, RECEIVE_SIZE_MAX);
        for _ in 0..200 {
            drop(read_all(&mut reader, &frame(256, 1), &[usize::MAX]));
        }
        assert_eq!(reader.receive_size, RECEIVE_SIZE_MIN);
        assert!(reader.buffer_to_receive().capacity() <= 2 * RECEIVE_SIZE_MIN);
    }

    #[test]
    #[should_panic(expected = "one receive at a time")]
    fn second_receive_is_a_bug() {
        let mut reader = FrameReader::new(LIMIT);
        let _first = reader.buffer_to_receive();
        let _second = reader.buffer_to_receive();
    }
}
