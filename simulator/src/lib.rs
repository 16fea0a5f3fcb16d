//! The simulator: a cluster under faults in one thread, replayed from a seed.
//!
//! ```text
//!   seed ─▶ shape, schedule ─▶ world ─▶ outcome
//!                               │ nodes × shards (server), clients (client), disks, network
//!                               └ checkers: what shards tell, what clients are told
//! ```
//!
//! It runs the same compiled server and client as production and re-implements only what a
//! kernel and a network do.
//!
//! **Invariants:** everything random comes from the seed; nothing in a world reads a clock or
//! iterates over an unordered collection; no checker knows how the server works.

mod atlas;
mod body;
mod check;
mod cli;
#[cfg(test)]
mod compatibility;
mod disk;
mod history;
mod marks;
mod mutants;
mod network;
mod nightly;
mod profile;
mod report;
mod runner;
mod scenario;
mod schedule;
mod seeds;
mod segments;
mod sweep;
mod twice;
mod wgl;
mod workload;
mod world;

pub use body::Bodies;
pub use cli::main;
pub use runner::{MemoryProbe, install_memory_probe};
pub use scenario::Scenario;
