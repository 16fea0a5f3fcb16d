//! The checksums in use: XXH3-64 and XXH32 as the client protocol asks, XXH3-128 for our own
//! records and hash chains. All with seed 0.

use twox_hash::{XxHash3_64, XxHash3_128, XxHash32};

/// XXH3-64 of `bytes`.
#[must_use]
pub fn xxh3_64(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// XXH3-128 of `bytes`.
#[must_use]
pub fn xxh3_128(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}

/// XXH32 of `bytes`: named consumers and message keys.
#[must_use]
pub fn xxh32(bytes: &[u8]) -> u32 {
    XxHash32::oneshot(0, bytes)
}

/// XXH3-64 over several pieces, as if they were one.
#[derive(Default)]
pub struct Xxh3(XxHash3_64);

impl Xxh3 {
    /// An empty hash.
    #[must_use]
    pub fn new() -> Self {
        Self(XxHash3_64::new())
    }

    /// Appends `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        core::hash::Hasher::write(&mut self.0, bytes);
    }

    /// The hash of all bytes so far.
    #[must_use]
    pub fn finish(&self) -> u64 {
        core::hash::Hasher::finish(&self.0)
    }
}
