//! The ports between logic and the world, as plain data: a shard is told [`Event`]s and answers
//! with [`Effect`]s; a body (io_uring, or the simulator) executes them in order.
//!
//! ```text
//!            Event                          Effect
//!   body ───────────▶ shard.on_event(now) ───────────▶ body
//!     ▲   accepted, received, sent, closed   listen, connect, receive, send, close
//!     │   disk completion                    disk request
//!     │   letter from another shard          post a letter, hand a connection over
//!     └─  computed                           compute (off the turn)
//! ```
//!
//! Rules of the border:
//! - Effects are unconditional and executed in order. Completions come back as events that echo
//!   the caller's [`Token`]; they may come in any order between different requests.
//! - A buffer moves out in the effect and back in the completion, so the kernel never sees memory
//!   that logic can touch.
//! - The clock is read once per turn and handed in as [`Now`].
//!
//! **Invariant:** nothing here has behaviour; there is no trait to implement and no type
//! parameter to carry.

#![no_std]

extern crate alloc;

mod disk;
mod facts;
mod letter;
mod network;

pub use disk::{DiskDone, DiskError, DiskRequest, DiskResult, FileId, OpenMode, Path};
pub use facts::Facts;
pub use letter::{ClientFacts, GroupStats, Letter, Ticket};
pub use network::{Address, ConnectionId, ListenerId, NetworkEvent};

use alloc::{boxed::Box, string::String, vec::Vec};
use core::fmt;

use base::{Bytes, Instant, ShardIndex, Timestamp};
use wire::{ArchiveCompression, ArchiveContent};

/// The time of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For timeouts.
    pub monotonic: Instant,
    /// For stamps that people see.
    pub realtime: Timestamp,
}

/// Echoed by a completion, so that its owner finds the stage that waits for it. Its meaning is
/// the caller's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token {
    /// Which machine of the shard asked: the storage of one group, the view store, a connection.
    pub owner: u64,
    /// What it asked for.
    pub request: u64,
}

/// What a shard is told.
#[derive(Debug)]
pub enum Event {
    /// Something happened on the network.
    Network(NetworkEvent),
    /// A disk request ended.
    Disk(DiskDone),
    /// Another shard of this node wrote.
    Letter {
        /// The writer.
        from: ShardIndex,
        /// What it wrote.
        letter: Letter,
    },
    /// A computation ended.
    Computed {
        /// The request's token.
        token: Token,
        /// What came out.
        outcome: Outcome,
    },
    /// The operator asked the server to stop.
    Stop,
}

/// What a shard asks of its body.
#[derive(Debug)]
pub enum Effect {
    /// Accept connections at `address`; answered by [`NetworkEvent::Listening`].
    Listen {
        /// Chosen by the caller.
        listener: ListenerId,
        /// Where; port 0 lets the body choose.
        address: Address,
    },
    /// Open a connection; answered by [`NetworkEvent::Connected`] or [`NetworkEvent::Closed`].
    Connect {
        /// Chosen by the caller, with [`ConnectionId::DIALED`] set.
        connection: ConnectionId,
        /// Where to.
        address: Address,
    },
    /// Read more bytes into the room after `buffer`'s length; answered by
    /// [`NetworkEvent::Received`] or [`NetworkEvent::Closed`]. At most one at a time per
    /// connection: not asking for more is how a shard pushes back.
    Receive {
        /// From where.
        connection: ConnectionId,
        /// Where to; has room for at least one byte.
        buffer: base::Buffer,
    },
    /// Append `bytes` to the connection's outgoing stream; answered by [`NetworkEvent::Sent`]
    /// once the body has handed them to the transport.
    Send {
        /// Where to.
        connection: ConnectionId,
        /// What.
        bytes: Bytes,
    },
    /// Close once everything queued has been handed to the transport (within the body's grace
    /// period); no further event follows for this connection.
    Close {
        /// Which.
        connection: ConnectionId,
    },
    /// Give a connection to another shard of this node, which is told
    /// [`NetworkEvent::Adopted`]. No `Receive` or `Send` may be in flight.
    HandOver {
        /// Which.
        connection: ConnectionId,
        /// To whom.
        to: ShardIndex,
        /// Bytes already received and not yet consumed.
        received: Bytes,
        /// Where the connection came from: the listener that accepted it.
        listener: ListenerId,
    },
    /// A disk request.
    Disk {
        /// Echoed by the completion.
        token: Token,
        /// What to do.
        request: DiskRequest,
    },
    /// Put a letter into another shard's bounded queue.
    Post {
        /// To whom.
        to: ShardIndex,
        /// What.
        letter: Letter,
    },
    /// Run a computation off the turn.
    Compute {
        /// Echoed by the completion.
        token: Token,
        /// What.
        work: Work,
    },
    /// The shard can serve: told once, after recovery.
    Ready,
    /// The shard has stopped in good order after [`Event::Stop`].
    Stopped,
    /// The node cannot go on: stop the whole process with the cause's exit code.
    Halt {
        /// Why.
        fatal: Fatal,
    },
    /// A line for the operator's log; never per message.
    Log {
        /// How much it matters.
        level: Level,
        /// The line.
        line: String,
    },
}

/// What a shard appends its effects to; owned by the body and drained after every event.
pub type Outbox = Vec<Effect>;

/// A computation too long for a turn.
#[derive(Debug)]
pub enum Work {
    /// Does `password` match the Argon2id hash?
    VerifyPassword {
        /// As the client sent it.
        password: SecretText,
        /// A PHC string.
        hash: SecretText,
    },
    /// What does the process use, and what machine is it on?
    Measure,
    /// A diagnostic archive.
    Archive {
        /// How its files are compressed.
        compression: ArchiveCompression,
        /// What it is to hold; may repeat.
        contents: Vec<ArchiveContent>,
    },
    /// The Argon2id hash of a password, with fresh salt.
    HashPassword(SecretText),
    /// A new personal access token.
    MintToken,
    /// The digest of a token.
    DigestToken(SecretText),
}

/// What must not show in a log.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText")
    }
}

/// What came out of a [`Work`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Whether the password matched.
    PasswordVerified(bool),
    /// Found out.
    Measured(Box<Facts>),
    /// The bytes of a ZIP archive; none if it could not be made.
    Archived(Option<Vec<u8>>),
    /// A PHC string of at most 255 bytes; none if there was no salt to be had.
    PasswordHashed(Option<SecretText>),
    /// A token of at most 100 printable characters, not to be guessed, and its digest; none if
    /// there was no randomness to be had.
    TokenMinted(Option<(SecretText, [u8; 32])>),
    /// The digest of the token.
    TokenDigested([u8; 32]),
}

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Normal operation, rare: a view change, a start.
    Info,
    /// Something an operator should look at.
    Warn,
    /// Something is lost or refused.
    Error,
}

/// Why a node cannot go on; each has its own exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fatal {
    /// A disk request failed where going on could lose what was promised. Remedy: look at the
    /// device, then start again; the node rejoins through recovery.
    Disk,
    /// The data directory belongs to another cluster, replica or shape. Remedy: start with the
    /// roster and replica id that it was made with.
    Identity,
    /// A file that must be whole is damaged. Remedy: restore it, or wipe this node's directory
    /// and let it rejoin.
    Damage,
    /// An address could not be bound. Remedy: free it or choose another.
    Bind,
}

impl Fatal {
    /// The process exit code.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Disk => 10,
            Self::Identity => 11,
            Self::Damage => 12,
            Self::Bind => 13,
        }
    }
}
