//! The state of one partition as a pure, deterministic state machine: offsets of messages and of
//! consumers, duplicates of producers, and polls.
//!
//! ```text
//!            primary: check_request, stamp ┐
//!   request ───────────────────────────────┴▶ prepare ─▶ on_append ─▶ apply ─▶ Reply
//!            backup:  verify ─────────────────┘            │
//!                                                          └ reset_appended after a truncation
//!   poll ─▶ plan_poll ─▶ PollReply ◀─ prepares from the journal
//! ```
//!
//! The body of a SendMessages in the log is the batch alone, stamped: it starts right after the
//! prepare's header and is what consumers are served. Other bodies are the clients' own.
//!
//! **Invariant:** the state after an op depends on the ops up to it and the [`Limits`] only. What
//! this crate keeps beyond the commit (the end of the log, requests in flight) never shows in a
//! reply, a poll or the digest.

#![no_std]

extern crate alloc;

mod consumers;
mod limits;
mod poll;
mod producers;
mod segments;
mod snapshot;
mod state;
mod trim;

pub use base::PartitionIds;
pub use consumers::ConsumerKey;
pub use limits::Limits;
pub use poll::{Poll, PollPlan, PollReply, PollStart, Polled, Progress};
pub use segments::Segment;
pub use state::{Decision, Divergence, Frontier, PartitionState, Reply, Stamped, consumer_key};
pub use trim::{Patience, Retention, Trim, purge_body};
