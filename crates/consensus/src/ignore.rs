//! Every reason to drop a message of the protocol: counter, log line and coverage mark in one.

/// Why a message changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ignore {
    /// It belongs to a view that this replica has left.
    OlderView,
    /// It is for the primary, and this replica is not.
    NotPrimary,
    /// It is from the primary of a view, and the sender is not.
    NotFromPrimary,
    /// It is for a status that this replica is not in.
    WrongStatus,
    /// The op is in the log already.
    Duplicate,
    /// An op before it is missing; repair is under way.
    Gap,
    /// It names an op with an identity that this log does not have.
    OtherIdentity,
    /// The sender is not in the roster, or is this replica itself.
    Stranger,
    /// The log here does not (yet) belong to the view, so it can vouch for nothing.
    CannotVouch,
    /// This replica's disk is new or was replaced, and it may not join the view.
    Blank,
}

impl Ignore {
    /// How many reasons there are.
    pub const COUNT: usize = 10;
}

/// How often each reason came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored([u32; Ignore::COUNT]);

impl Ignored {
    /// How often `reason` came up.
    #[must_use]
    pub const fn count(&self, reason: Ignore) -> u32 {
        self.0[reason as usize]
    }

    pub(crate) const fn add(&mut self, reason: Ignore) {
        self.0[reason as usize] = self.0[reason as usize].wrapping_add(1);
    }
}
