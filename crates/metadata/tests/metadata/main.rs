//! Tests of the metadata plane from outside: sealed prepares in, replies and changes out.

mod errors;
mod groups;
mod limits;
mod model;
mod options;
mod queries;
mod sessions;
mod snapshots;
mod support;
mod users;
mod users_model;
