//! One replication group under Viewstamped Replication Revisited: normal operation, view change,
//! repair, recovery, timeouts.
//!
//! ```text
//!   on_frame, on_status ─┐                       ┌─ Send, ServePrepares   (links)
//!   prepare              ├─▶  Group  ──effects──▶├─ Append, TruncateAfter (journal)
//!   on_durable, ...      │                       ├─ PersistView           (view store)
//!   on_timers ───────────┘                       └─ Commit, Role, Loss    (state machine)
//! ```
//!
//! Departures from the paper, each for a reason:
//! - Logs are contiguous and hash-chained; a backup appends in order only, so `prepare_ok` is
//!   cumulative ("durable up to here") and a lost one is repaired by the next.
//! - A wish to change the view (`start_view_change`) is not a promise and changes no state; only
//!   a quorum of wishes does. A replica that can send but not receive cannot disturb the others.
//! - `(view, log_view)` is durable before any `do_view_change`, `start_view` or `prepare_ok` of
//!   the view leaves.
//! - A log counts as belonging to a view (`log_view`) only once it durably holds every op of that
//!   view's `start_view`; entries are cut only where they provably conflict with it.
//! - A log may miss bodies that its disk has lost: an op is then neither acknowledged nor denied,
//!   is fetched by its identity, and cut only if no quorum can have held it.
//! - A replica whose disk was replaced takes no part until a view begins that is later than all
//!   it may have promised something about.
//! - Liveness of nodes is judged once per pair of nodes, outside; a group in normal operation has
//!   no timer at all.
//!
//! **Invariant:** consensus knows no disk, no network and no state machine; it reads no clock.

#![no_std]

extern crate alloc;

mod checkpoint;
mod group;
mod ignore;
mod install;
mod log;
mod log_merge;
mod normal;
mod promises;
mod quorum;
mod recovery;
mod rejoin;
mod repair;
mod timeouts;
mod view_change;

pub use checkpoint::Held;
pub use group::{Effect, Group, GroupConfig, PrepareSlot, REPLICAS_MAX, Stand, Timing};
pub use ignore::{Ignore, Ignored};
pub use log::Entry;
pub use quorum::Quorums;
pub use recovery::Recovered;
pub use wire::replica::Trust;
