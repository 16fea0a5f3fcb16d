//! What every core crate shares: time as a value, seeded randomness, aligned buffers,
//! identifiers and checksums.
//!
//! **Invariant:** nothing here reads a clock, draws unseeded randomness or touches the world.

#![no_std]

extern crate alloc;

mod buffer;
pub mod checksum;
mod digest;
mod id;
pub mod marks;
pub mod planted;
mod prng;
mod time;

pub use buffer::{BLOCK_SIZE, Buffer, Bytes};
pub use digest::Digest;
pub use id::{ClientId, GroupId, Offset, Op, PartitionIds, ReplicaIndex, ShardIndex, View};
pub use prng::{Domain, Prng};
pub use time::{Instant, Timestamp};
