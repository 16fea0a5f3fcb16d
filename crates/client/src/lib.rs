//! The client as a machine, under the same rules as the server: events in, effects out, no clock.
//! The simulator runs it as it is; the driver (feature `driver`) runs it over tokio.
//!
//! **Invariant:** the client keeps its identity, and a request keeps its number and its bytes,
//! over everything that can happen to a connection. That is what makes a send exactly-once.

#![cfg_attr(not(feature = "driver"), no_std)]

extern crate alloc;

mod batcher;
mod config;
#[cfg(feature = "driver")]
pub mod driver;
mod link;
mod login;
mod machine;
mod polled;
mod reply;
mod request;

pub use batcher::{Batch, Batcher, BatcherConfig, PartitionTarget, PushError};
pub use config::{ClientConfig, ClientError, ClientLimits, ClientTiming, StopReason};
pub use machine::{Client, Completion, Counters, SubmitError};
pub use polled::{PayloadError, Polled, PolledMessage};
pub use reply::Reply;
pub use request::{RequestFrame, Ticket};
