//! The io_uring body: runs a shard's logic on a thread of its own, with real files, sockets,
//! clocks and threads.
//!
//! ```text
//!   main thread                 shard threads                          compute threads
//!   mesh() ── Port ──▶ spawn ─▶ run: wait ─ on_event ─ on_timers ─ execute ──job──▶ Argon2id
//!      ▲                          ▲        │  letters, connections               │
//!      └──── Report ◀─────────────┼────────┘  ◀────── one bounded queue ──────▶  │
//!   Stopper ──── Stop ───────────▶│           per ordered pair of shards         │
//!                                 └───────────────── outcome ────────────────────┘
//! ```
//!
//! **Invariants:** nothing here decides anything about the protocol; it depends on the ports and
//! not on the server. Only `kernel.rs` has `unsafe`. No shard ever blocks on another.

mod compute;
mod disk;
mod kernel;
mod mail;
mod network;
mod ring;
mod run;

pub use compute::{Inspector, hash_password, verify_password};
pub use kernel::{disk_space, raise_descriptor_limit};
pub use mail::{Port, Stopper, mesh};
pub use ring::{Exit, Options, Ring};
pub use run::{Logic, Report, run, spawn};
