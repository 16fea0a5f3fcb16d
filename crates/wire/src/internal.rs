//! Bodies of ops that no client sends: what a partition's primary puts into its log by itself.

use crate::codec::layout;

layout! {
    /// Body of TrimLog (68): the oldest segments go.
    #[derive(Copy)]
    TrimLog {
        /// Segments of which all ops are below this one go; never the active one.
        before: u64,
        /// Whether they go although a consumer has not read them.
        past_consumers: bool,
    }
}

layout! {
    /// Body of PurgePartition (69): all messages and stored offsets go.
    #[derive(Copy)]
    PurgePartition {
        /// Which purge of this partition it is; one that is done is not done again.
        generation: u64,
    }
}
