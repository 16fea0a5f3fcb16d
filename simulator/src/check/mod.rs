//! Checkers: one file per property, each with a history that passes and one that fails.
//!
//! White-box checkers listen to what shards tell of themselves; black-box checkers see only what
//! clients asked and were told. None of them knows how the server works.

pub(crate) mod bounds;
pub(crate) mod bytes;
pub(crate) mod clock;
pub(crate) mod committed;
pub(crate) mod digests;
pub(crate) mod durability;
pub(crate) mod groups;
pub(crate) mod history;
pub(crate) mod leaks;
pub(crate) mod linear;
pub(crate) mod liveness;
pub(crate) mod metadata;
pub(crate) mod offsets;
pub(crate) mod quorum;
pub(crate) mod recoverable;
pub(crate) mod sessions;
pub(crate) mod trims;
pub(crate) mod views;

/// A property was violated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Which checker saw it.
    pub(crate) check: &'static str,
    /// When, in virtual microseconds.
    pub(crate) time: u64,
    /// What it saw.
    pub(crate) message: String,
}

/// Whether the property held so far.
pub(crate) type Verdict = Result<(), Failure>;

/// Fails with what `message` says unless `holds`.
pub(crate) fn ensure(
    holds: bool,
    check: &'static str,
    time: u64,
    message: impl FnOnce() -> String,
) -> Verdict {
    crate::marks::reach_checker(check);
    if holds {
        return Ok(());
    }
    Err(Failure {
        check,
        time,
        message: message(),
    })
}
