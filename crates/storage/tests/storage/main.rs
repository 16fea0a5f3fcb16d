//! The crate against a test disk: claims about the journal and the view store, and both against
//! a model under crashes and power losses.

mod checkpoints;
mod damage;
mod disk;
mod format;
mod harness;
mod journal;
mod mending;
mod model;
mod views;
