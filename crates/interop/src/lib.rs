//! The real server binary, started as a user would start it, for tests with the published client.
//!
//! What the project's own client and server agree on could be wrong on both sides; these tests
//! share no code with either. [`Server`] is one process, [`Cluster`] three of them by way of
//! `ci/cluster`, [`raw`] a peer that may write any bytes, [`client`] the unmodified SDK, and
//! [`Recorder`] a witness of which commands a client has used.
//!
//! **Invariant:** no dependency on a crate of this project.

pub mod client;
mod cluster;
pub mod load;
mod process;
pub mod raw;
mod recorder;
mod scratch;
mod server;
mod wait;

pub use cluster::{Cluster, Node};
pub use process::server_binary;
pub use recorder::{Outcome, Recorder};
pub use scratch::Scratch;
pub use server::Server;
pub use wait::{until, within};

/// The root user of every server these tests start.
pub const USERNAME: &str = "iggy";
/// And its password.
pub const PASSWORD: &str = "iggy";
