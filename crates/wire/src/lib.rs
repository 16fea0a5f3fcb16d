//! The client protocol to the byte (Iggy 0.11.0, VSR framing) and the frames between replicas.
//!
//! Every frame is a 256-byte header and a body. Decoders borrow, never panic and never copy a
//! body; what they return has been checked, so nobody checks it again.
//!
//! Client frames: [`header`] has the three headers and makes whole frames, [`Request`] is every
//! request body, [`mod@reply`] every reply body, [`batch`] the message batches within both.
//! Bodies are built from values that implement [`Codec`]: one layout, read and written.
//!
//! **Invariant:** nothing here knows a stream, a session or a log; it knows their bytes.

#![no_std]

extern crate alloc;

pub mod batch;
mod bytes;
mod code;
mod codec;
mod command;
mod error;
pub mod header;
pub mod internal;
mod login;
mod operation;
pub mod options;
mod permissions;
mod primitives;
pub mod replica;
pub mod reply;
pub mod request;
pub mod result;
pub mod snapshot;

pub use batch::{BatchBuilder, BatchError, BatchHeader, Frame};
pub use bytes::{Cut, HEADER_SIZE, array, put};
pub use code::Code;
pub use codec::{Codec, Counted, DecodeError, Prefixed, Reader, Sink};
pub use command::Command;
pub use error::ErrorCode;
pub use header::{EvictionHeader, EvictionReason, HeaderError, ReplyHeader, RequestHeader};
pub use login::{
    Credentials, Login, LoginPrefix, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN,
    accepts_protocol_version,
};
pub use operation::{Operation, Plane};
pub use options::{Options, OptionsBlock, Value};
pub use permissions::{
    GlobalPermissions, Permissions, StreamPermissions, StreamRights, TopicPermissions, TopicRights,
};
pub use primitives::{
    AckLevel, ArchiveCompression, ArchiveContent, Blob, CompressionAlgorithm, Consumer,
    ConsumerKind, Identifier, Name, NodeRole, NodeStatus, OptionalPartition, OptionsScope,
    Partitioning, PollingStrategy, Secret, ShortText, Text, TransportKind, UserStatus,
};
pub use request::{AttachSession, Request};
pub use snapshot::SnapshotError;
