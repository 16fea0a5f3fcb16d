//! One hash over ordered state, for checkers that compare replicas.

use alloc::vec::Vec;

/// Collects a canonical encoding: fixed-size numbers, and byte strings after their length.
#[derive(Default)]
pub(crate) struct Digest(Vec<u8>);

impl Digest {
    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u128(&mut self, value: u128) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) {
        self.u64(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    pub(crate) fn finish(&self) -> u128 {
        base::checksum::xxh3_128(&self.0)
    }
}
