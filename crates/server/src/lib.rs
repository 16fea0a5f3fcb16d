//! One shard of a node: the composition of all core machines.
//!
//! A body creates a [`Shard`] per core, tells it events and executes its effects:
//!
//! ```text
//! loop {
//!     for event in body.wait(shard.deadline()) { shard.on_event(now, event, &mut out); }
//!     shard.on_timers(now, &mut out);
//!     for effect in out.drain(..) { body.execute(effect); }
//! }
//! ```
//!
//! **Invariant:** no clock, no file, no socket and no thread exists here; the simulator and the
//! io_uring body run the same compiled code.

#![no_std]

extern crate alloc;

mod ask;
mod clock;
mod config;
mod connections;
mod core;
mod encryption;
mod gauges;
mod hosted;
mod lease;
mod links;
mod observation;
mod paths;
mod shard;

pub use config::{Limits, NodeAddress, RootCredential, ShardConfig, Timing};
pub use encryption::{CannotDecrypt, EncryptionKey};
pub use gauges::Gauges;
pub use observation::{Observation, Role};
pub use shard::Shard;
