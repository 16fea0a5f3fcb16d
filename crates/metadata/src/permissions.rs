//! Who may do what. Today there is one user, root, who may do everything; the calls stand where
//! the rights of other users will be looked up.

use wire::ErrorCode;

/// The root user: always there, always allowed.
pub const ROOT: u32 = 0;

/// A right, named after what it lets a user do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// See streams, topics and partitions.
    ReadMetadata,
    /// Create, change and delete streams.
    ManageStreams,
    /// Create, change and delete topics and their partitions.
    ManageTopics,
    /// Poll messages; get, store and delete offsets.
    Poll,
    /// Send messages.
    Send,
}

/// Whether `user` has `right`.
///
/// # Errors
/// 41 if not.
pub const fn authorize(user: u32, right: Right) -> Result<(), ErrorCode> {
    match (user, right) {
        (ROOT, _) => Ok(()),
        _ => Err(ErrorCode::UNAUTHORIZED),
    }
}
