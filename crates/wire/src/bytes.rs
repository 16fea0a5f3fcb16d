//! Little-endian fields at fixed places of a frame.

/// Size of every frame's header.
pub const HEADER_SIZE: usize = 256;

/// The input ended before the field did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut;

/// The `N` bytes at `at`.
///
/// # Errors
/// [`Cut`] if `bytes` ends before them.
pub fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Cut> {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .ok_or(Cut)
}

/// Writes `value` at `at`.
///
/// # Panics
/// If it does not fit.
pub fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}
