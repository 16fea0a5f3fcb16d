//! The metadata plane as a pure, deterministic state machine: streams, topics, partitions, consumer
//! groups, users and sessions.
//!
//! ```text
//!             PrepareHeader, body                       Reply (answers the client)
//!   log  ───────────────────────────▶  Metadata::apply ──▶
//!                                                         Change (groups to build, to remove;
//!                                                                 sessions opened and closed)
//! ```
//!
//! Shard 0 of every node applies the committed log of the metadata group and passes each prepare
//! on; every shard keeps a copy and answers reads from it. Replicas compare digests.
//!
//! **Invariant:** the state after an op depends on the ops up to it and the [`Limits`] only: no
//! clock, no randomness, no order of arrival, nothing a replica has for itself.

#![no_std]

extern crate alloc;

mod catalog;
mod clients;
mod groups;
mod id_set;
mod limits;
mod machine;
mod options;
mod permissions;
mod query;
mod register;
mod rights;
mod snapshot;
mod state;
mod text;
mod user_ops;
mod user_reads;
mod users;

pub use base::PartitionIds;
pub use clients::{Decision, Reply, RequestKey, Session};
pub use groups::{
    CompleteRevocation, ConsumerGroup, GroupIds, GroupInfo, Home, Join, Member, PendingRevocation,
    RemoveMember, Revocation,
};
pub use limits::Limits;
pub use machine::{Applied, Metadata};
pub use options::{Durability, TopicOptions, UNLIMITED};
pub use permissions::{ROOT, Right, Scope, grants};
pub use query::{Counts, EMPTY_PARTITION, PartitionStats, StatsLookup, TopicInfo};
pub use register::{CreateToken, Credential, Register, Registration};
pub use rights::{Need, need};
pub use state::{Change, PartitionInfo};
pub use user_reads::Login;
pub use users::{Token, TokenHash};
