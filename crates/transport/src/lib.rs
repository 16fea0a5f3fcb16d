//! What lies between a byte stream and the machines that speak in frames: framing, bounded
//! sending, pauses between dials and the handshake between replicas.
//!
//! ```text
//!   Received(buffer) ──▶ FrameReader ──▶ frame: Bytes      (clients and replicas alike)
//!   Send(bytes), Sent ──▶ Outgoing ──▶ Full: push back
//!   Closed ──▶ Backoff ──▶ when to dial again
//! ```
//!
//! **Invariant:** nothing here knows what a frame means, except the two frames of the handshake.

#![no_std]

extern crate alloc;

mod backoff;
mod frame_reader;
mod hello;
mod outgoing;

pub use backoff::Backoff;
pub use frame_reader::{FrameError, FrameReader, RECEIVE_SIZE_MAX, RECEIVE_SIZE_MIN};
pub use hello::{Identity, REPLICA_PROTOCOL, Refusal, Welcome};
pub use outgoing::{Full, Outgoing};
