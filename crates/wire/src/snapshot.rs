//! What the snapshots of state machines have in common: the reasons to refuse one, and how a
//! numbered outcome stands in them.

use core::fmt;

use crate::{Codec, DecodeError, ErrorCode, Reader, Sink};

/// Why bytes are no snapshot that a state machine could go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// It does not begin as this version's snapshots do: written by another version, or no
    /// snapshot at all.
    Version,
    /// A field is cut or has no meaning: damaged.
    Body(DecodeError),
    /// Fields contradict each other, or are not this machine's: damaged, or of another group.
    Contradiction,
    /// The state in it is not the one it was taken of: damaged, or restored by a version that
    /// understands it differently.
    Digest,
}

impl From<DecodeError> for SnapshotError {
    fn from(error: DecodeError) -> Self {
        Self::Body(error)
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => f.write_str("not a snapshot of this version"),
            Self::Body(error) => write!(f, "a field of the snapshot: {error}"),
            Self::Contradiction => f.write_str("the snapshot contradicts itself"),
            Self::Digest => f.write_str("the snapshot's state has another digest"),
        }
    }
}

impl core::error::Error for SnapshotError {}

/// Writes success as code 0, a refusal as its code.
pub fn write_outcome(result: Result<(), ErrorCode>, out: &mut impl Sink) {
    result.err().unwrap_or(ErrorCode::OK).0.write(out);
}

/// Reads what [`write_outcome`] wrote.
///
/// # Errors
/// [`DecodeError`] if it is cut.
pub fn read_outcome(reader: &mut Reader<'_>) -> Result<Result<(), ErrorCode>, DecodeError> {
    let code = ErrorCode(reader.read()?);
    Ok(if code == ErrorCode::OK {
        Ok(())
    } else {
        Err(code)
    })
}
