//! Tests of the metadata plane from outside: sealed prepares in, replies and changes out.

mod errors;
mod limits;
mod model;
mod queries;
mod sessions;
mod snapshots;
mod support;
