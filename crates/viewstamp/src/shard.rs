//! The server's shard as the logic of a ring.

use base::Instant;
use platform::{Event, Now, Outbox};
use server::{Shard, ShardConfig};
use uring::Logic;

/// A shard on its thread.
pub(crate) struct ServerShard(Shard);

/// Makes a shard and its first effects.
pub(crate) fn start(config: ShardConfig, seed: u64, now: Now, out: &mut Outbox) -> ServerShard {
    ServerShard(Shard::new(config, seed, now, out))
}

impl Logic for ServerShard {
    fn on_event(&mut self, now: Now, event: Event, out: &mut Outbox) {
        self.0.on_event(now, event, out);
    }

    fn on_timers(&mut self, now: Now, out: &mut Outbox) {
        self.0.on_timers(now, out);
    }

    fn deadline(&self) -> Option<Instant> {
        self.0.deadline()
    }
}
