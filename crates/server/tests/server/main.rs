//! One node against its clients, frame by frame: real shards over a disk in memory, with the
//! connections plumbed by hand. Every test says what `wire.md` asks of the server and looks at
//! the bytes that come back.

mod client;
mod cluster;
mod disk;
mod meter;
mod node;

mod acceptance;
mod bad_input;
mod blank;
mod checkpoints;
mod connections;
mod consumers;
mod damage;
mod encryption;
mod freshness;
mod groups;
mod leases;
mod lifecycle;
mod messages;
mod metadata;
mod peers;
mod pressure;
mod refills;
mod retries;
mod sessions;
mod system;
mod torture;
mod transfers;
mod trims;
mod users;
