//! Calls, as whoever judges their answers needs them.

use wire::{Code, PollingStrategy};

use crate::check::linear::{Target, Window};

/// A call, with what is needed to judge its answer.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    CreateStream {
        stream: u64,
    },
    DeleteStream {
        stream: u64,
    },
    GetStream {
        stream: u64,
    },
    GetStreams,
    CreateTopic {
        topic: u64,
        /// Its oldest segments may go.
        trims: bool,
    },
    DeleteTopic {
        topic: u64,
    },
    CreatePartitions {
        topic: u64,
        count: u32,
    },
    DeletePartitions {
        topic: u64,
        count: u32,
    },
    GetTopic {
        topic: u64,
    },
    Send {
        target: Target,
        payloads: Vec<u64>,
    },
    Poll {
        target: Target,
        strategy: PollingStrategy,
        count: u32,
        consumer: u32,
        /// It stores what it reads as the consumer's offset.
        commits: bool,
    },
    StoreOffset {
        target: Target,
        consumer: u32,
        offset: u64,
    },
    DeleteOffset {
        target: Target,
        consumer: u32,
    },
    GetOffset {
        target: Target,
        consumer: u32,
    },
    DeleteSegments {
        target: Target,
    },
    PurgeTopic {
        topic: u64,
    },
    CreateUser {
        user: u64,
    },
    DeleteUser {
        user: u64,
    },
    GetUser {
        user: u64,
    },
    GetUsers,
    /// Passwords are numbers here.
    ChangePassword {
        user: u64,
        current: u64,
        new: u64,
    },
    CreateToken {
        token: u64,
    },
    GetTokens,
    CreateGroup {
        group: u64,
    },
    DeleteGroup {
        group: u64,
    },
    JoinGroup {
        group: u64,
    },
    LeaveGroup {
        group: u64,
    },
    SyncGroup {
        group: u64,
    },
    GetGroup {
        group: u64,
    },
    GetGroups {
        topic: u64,
    },
    /// About what nobody counts on: only the auditor knows what it comes to.
    Spare {
        code: Code,
        writes: bool,
    },
    Ping,
    Metadata,
}

impl Call {
    /// It is numbered by its client, and done once however often it is sent.
    pub(super) const fn is_write(&self) -> bool {
        if let Self::Spare { writes, .. } = self {
            return *writes;
        }
        !matches!(
            self,
            Self::GetStream { .. }
                | Self::GetStreams
                | Self::GetTopic { .. }
                | Self::Poll { .. }
                | Self::GetOffset { .. }
                | Self::GetUser { .. }
                | Self::GetUsers
                | Self::GetTokens
                | Self::SyncGroup { .. }
                | Self::GetGroup { .. }
                | Self::GetGroups { .. }
                | Self::Ping
                | Self::Metadata
        )
    }

    /// The partition it writes to.
    pub(crate) const fn target(&self) -> Option<Target> {
        match self {
            Self::Send { target, .. }
            | Self::StoreOffset { target, .. }
            | Self::DeleteOffset { target, .. }
            | Self::DeleteSegments { target, .. } => Some(*target),
            _ => None,
        }
    }

    /// The partition it is about.
    pub(crate) const fn partition(&self) -> Option<Target> {
        match self {
            Self::Poll { target, .. } | Self::GetOffset { target, .. } => Some(*target),
            _ => self.target(),
        }
    }
}

/// A call that was made.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) call: Call,
    pub(crate) window: Window,
}
