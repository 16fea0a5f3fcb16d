//! What a partition is to its clients: a log, and an offset for each consumer.
//!
//! Linearizability is local, so the log and every consumer's offset are objects of their own; a
//! poll that stores what it has read is a look at the one and a store to the other.

use crate::wgl::Model;

/// An append-only log; its state is its length. What stands where is known before the search:
/// payloads are never used twice, so polls and confirmations say where each was put.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log;

/// A call as far as it is about the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LogCall {
    /// A batch, or what nobody has seen, was appended at this offset.
    Append { offset: u64, count: u64 },
    /// A reader was told its length.
    Look { length: u64 },
    /// A reader was shown nothing and told 0 as the last offset, as of an empty log.
    LookNothing,
    /// A reader saw so much of it, and perhaps not all.
    LookBack { length: u64 },
}

impl Model for Log {
    type State = u64;
    type Call = LogCall;

    fn initial(&self) -> u64 {
        0
    }

    fn step(&self, length: &u64, call: &LogCall) -> Option<u64> {
        let length = *length;
        match *call {
            LogCall::Append { offset, count } => (offset == length).then_some(offset + count),
            LogCall::Look { length: told } => (told == length).then_some(length),
            LogCall::LookNothing => (length <= 1).then_some(length),
            LogCall::LookBack { length: seen } => (seen <= length).then_some(length),
        }
    }

    fn is_read(&self, call: &LogCall) -> bool {
        !matches!(call, LogCall::Append { .. })
    }
}

/// The stored offset of one consumer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offset;

/// What is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stored {
    Nothing,
    At(u64),
    /// Somebody raised it to an offset that only the server knows.
    AtLeast(u64),
}

/// A call as far as it is about the stored offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OffsetCall {
    Store(u64),
    /// A poll has stored what it read: it never lowers the offset.
    Raise(u64),
    /// As before, with what the poll read unknown.
    RaiseSomewhere,
    Delete,
    /// A delete has found nothing.
    DeleteNothing,
    Get(Option<u64>),
    /// A poll of what comes next began here.
    Next(u64),
    /// A poll of what comes next found nothing after this last offset.
    NextNothing(u64),
}

impl Model for Offset {
    type State = Stored;
    type Call = OffsetCall;

    fn initial(&self) -> Stored {
        Stored::Nothing
    }

    fn step(&self, state: &Stored, call: &OffsetCall) -> Option<Stored> {
        let state = *state;
        match *call {
            OffsetCall::Store(offset) => Some(Stored::At(offset)),
            OffsetCall::Raise(offset) => Some(match state {
                Stored::Nothing => Stored::At(offset),
                Stored::At(stored) => Stored::At(stored.max(offset)),
                Stored::AtLeast(stored) => Stored::AtLeast(stored.max(offset)),
            }),
            OffsetCall::RaiseSomewhere => Some(match state {
                Stored::Nothing => Stored::AtLeast(0),
                Stored::At(stored) | Stored::AtLeast(stored) => Stored::AtLeast(stored),
            }),
            OffsetCall::Delete => (state != Stored::Nothing).then_some(Stored::Nothing),
            OffsetCall::DeleteNothing | OffsetCall::Get(None) | OffsetCall::Next(0) => {
                (state == Stored::Nothing).then_some(state)
            }
            OffsetCall::Get(Some(offset)) => state.resolve(offset),
            OffsetCall::Next(first) => state.resolve(first - 1),
            // An empty log says 0 as well, whatever is stored.
            OffsetCall::NextNothing(0) => Some(state),
            OffsetCall::NextNothing(head) => state.resolve(head),
        }
    }

    fn is_read(&self, call: &OffsetCall) -> bool {
        matches!(
            call,
            OffsetCall::DeleteNothing
                | OffsetCall::Get(_)
                | OffsetCall::Next(_)
                | OffsetCall::NextNothing(_)
        )
    }
}

impl Stored {
    /// What is known once `offset` was read.
    fn resolve(self, offset: u64) -> Option<Self> {
        let may = match self {
            Self::Nothing => false,
            Self::At(stored) => stored == offset,
            Self::AtLeast(least) => least <= offset,
        };
        may.then_some(Self::At(offset))
    }
}
