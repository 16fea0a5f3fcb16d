//! One hash over ordered state, for checkers that compare replicas.

use alloc::vec::Vec;

/// Collects a canonical encoding: fixed-size numbers, and byte strings after their length.
#[derive(Default)]
pub struct Digest(Vec<u8>);

impl Digest {
    /// Appends a number.
    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a number.
    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a number.
    pub fn u128(&mut self, value: u128) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a byte string, after its length.
    pub fn bytes(&mut self, value: &[u8]) {
        self.u64(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// The hash of all that was appended.
    #[must_use]
    pub fn finish(&self) -> u128 {
        crate::checksum::xxh3_128(&self.0)
    }
}
