//! The client protocol to the byte (Iggy 0.11.0, VSR framing) and the frames between replicas.
//!
//! Every frame is a 256-byte header and a body. Decoders borrow, never panic and never copy a
//! body; what they return has been checked, so nobody checks it again.

#![no_std]

extern crate alloc;

mod bytes;
mod command;
mod operation;
pub mod replica;

pub use bytes::{Cut, HEADER_SIZE, array, put};
pub use command::Command;
pub use operation::{Operation, Plane};
