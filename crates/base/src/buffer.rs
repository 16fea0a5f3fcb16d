//! Aligned buffers: [`Buffer`] is owned and writable, [`Bytes`] is a shared, immutable slice of
//! one.
//!
//! A buffer is made of 256-byte blocks aligned to 256 bytes: the kernel copies into it without
//! the small-misalignment trap of `rep movsb` (an offset between source and destination pages is
//! either 0 or at least 64). While the kernel works on a buffer, the effect owns it.

use alloc::{sync::Arc, vec::Vec};
use core::{fmt, ops::Deref};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Size and alignment of the blocks a buffer is made of.
pub const BLOCK_SIZE: usize = 256;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(256))]
struct Block([u8; BLOCK_SIZE]);

/// An owned, growable-within-capacity byte buffer, aligned to [`BLOCK_SIZE`].
#[derive(Clone, Default)]
pub struct Buffer {
    blocks: Vec<Block>,
    len: usize,
}

impl Buffer {
    /// An empty buffer that holds at least `capacity` bytes; bytes beyond its length are zero or
    /// left over from an earlier use.
    ///
    /// # Panics
    /// If memory is exhausted.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let blocks = Block::new_vec_zeroed(capacity.div_ceil(BLOCK_SIZE))
            .expect("memory for a buffer; limits are checked before");
        Self { blocks, len: 0 }
    }

    /// A buffer of `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let mut buffer = Self::with_capacity(len);
        buffer.len = len;
        buffer
    }

    /// A buffer with a copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::with_capacity(bytes.len());
        buffer.extend(bytes);
        buffer
    }

    /// Bytes in use.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether no byte is in use.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes it can hold without growing.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.blocks.len() * BLOCK_SIZE
    }

    /// The bytes in use.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.blocks.as_bytes()[..self.len]
    }

    /// The bytes in use, writable.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.blocks.as_mut_bytes()[..self.len]
    }

    /// The room after the bytes in use; [`Self::advance`] makes what was written there count.
    pub fn spare_mut(&mut self) -> &mut [u8] {
        &mut self.blocks.as_mut_bytes()[self.len..]
    }

    /// Counts `count` bytes of [`Self::spare_mut`] as in use.
    ///
    /// # Panics
    /// If there is no such room.
    pub fn advance(&mut self, count: usize) {
        assert!(self.len + count <= self.capacity());
        self.len += count;
    }

    /// Appends `bytes`, growing if it must.
    ///
    /// # Panics
    /// If memory is exhausted.
    pub fn extend(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if end > self.capacity() {
            let mut larger = Self::with_capacity(end.max(self.capacity() * 2));
            larger.len = self.len;
            larger.as_mut_slice().copy_from_slice(self.as_slice());
            *self = larger;
        }
        self.spare_mut()[..bytes.len()].copy_from_slice(bytes);
        self.len = end;
    }

    /// Keeps the first `len` bytes.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn truncate(&mut self, len: usize) {
        assert!(len <= self.len);
        self.len = len;
    }

    /// Shares the buffer; no copy.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        let end = self.len;
        Bytes {
            buffer: Arc::new(self),
            start: 0,
            end,
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} of {})", self.len, self.capacity())
    }
}

/// A shared, immutable slice of a [`Buffer`]; cloning and slicing copy no bytes.
#[derive(Clone, Default)]
pub struct Bytes {
    buffer: Arc<Buffer>,
    start: usize,
    end: usize,
}

impl Bytes {
    /// A shared copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        Buffer::copy_of(bytes).freeze()
    }

    /// Bytes `start .. end` of this slice, sharing the buffer.
    ///
    /// # Panics
    /// If the range does not lie within the slice.
    #[must_use]
    pub fn slice(&self, start: usize, end: usize) -> Self {
        assert!(start <= end && end <= self.len());
        Self {
            buffer: self.buffer.clone(),
            start: self.start + start,
            end: self.start + end,
        }
    }

    /// The bytes, writable, if nobody else shares the buffer.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        let (start, end) = (self.start, self.end);
        Some(&mut Arc::get_mut(&mut self.buffer)?.as_mut_slice()[start..end])
    }

    /// Capacity of the buffer behind this slice: what keeping it costs.
    #[must_use]
    pub fn footprint(&self) -> usize {
        self.buffer.capacity()
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer.as_slice()[self.start..self.end]
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({})", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_shared_without_copy() {
        let mut buffer = Buffer::with_capacity(300);
        assert_eq!(buffer.capacity(), 512);
        buffer.extend(&[7; 300]);
        let address = buffer.as_slice().as_ptr();
        assert_eq!(address.align_offset(BLOCK_SIZE), 0);
        let mut bytes = buffer.freeze();
        assert_eq!(bytes.slice(10, 20).as_ptr(), address.wrapping_add(10));
        assert!(bytes.get_mut().is_some());
        let other = bytes.clone();
        assert!(bytes.get_mut().is_none());
        assert_eq!(other, bytes);
    }

    #[test]
    fn extend_grows_and_keeps_what_was_there() {
        let mut buffer = Buffer::copy_of(&[1; 256]);
        buffer.extend(&[2; 1]);
        assert_eq!(buffer.len(), 257);
        assert_eq!(buffer.as_slice()[255..], [1, 2]);
    }
}
