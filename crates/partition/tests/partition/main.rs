//! Tests of a partition from outside: sealed prepares in, replies and polls out.

mod offsets;
mod polls;
mod producers;
mod replicas;
mod snapshots;
mod support;
mod trims;
