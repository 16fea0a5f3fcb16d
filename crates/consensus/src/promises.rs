//! Read leases, as far as a group takes part: what this replica has promised to the primaries
//! of earlier views, and when it may vote in spite of it.
//!
//! A primary answers reads from its state while a quorum has lately told it that it was heard
//! (the caller measures this; one measurement serves all groups between two nodes). Whoever said
//! so votes for no later view until the lease that the primary may have made of it has run out:
//!
//! ```text
//!   primary   sends ────────────── serves reads ──────────────┤ sent + term
//!                 ╲              ╱ "heard"
//!   backup         heard ───────┴──────── no vote ─────────────────┤ heard + term + margin
//! ```
//!
//! Any set of replicas large enough for a lease meets any view-change quorum, so no view begins
//! while an earlier primary serves reads. A primary that is suspected because it was silent has
//! no lease left by then; one that says that it has abdicated or left the view needs none.

use alloc::vec::Vec;

use base::{Instant, ReplicaIndex, View};
use wire::replica::{GroupStatus, StatusRole};

use crate::group::{Effect, Group, REPLICAS_MAX, Status};

/// What was promised to one replica.
#[derive(Clone, Copy, Debug, Default)]
struct Promise {
    /// No vote before, for a view after `view`.
    until: Instant,
    /// The last view of which it may be the serving primary.
    view: View,
    /// It serves no view before this one any more.
    left: View,
}

/// What this replica has promised to each other one.
#[derive(Debug, Default)]
pub(crate) struct Promises([Promise; REPLICAS_MAX]);

impl Promises {
    /// When the last promise runs out that still binds.
    fn until(&self) -> Instant {
        let binding = self.0.iter().filter(|promise| promise.left <= promise.view);
        binding
            .map(|promise| promise.until)
            .max()
            .unwrap_or_default()
    }
}

impl Group {
    /// Tells until when each replica may hold a lease that rests on this one's word, before
    /// [`Self::on_view_durable`] tells that a view has been left for good. The caller gives its
    /// word to nobody between [`Effect::PersistView`] and the day the new status is told.
    pub fn promise(&mut self, until: &[Instant; REPLICAS_MAX], entered: View) {
        let count = self.config.replica_count;
        // Every replica is the primary of one of so many views.
        let first = self
            .view_durable
            .0
            .max(entered.0.saturating_sub(u32::from(count)));
        for view in (first..entered.0).map(View) {
            let primary = view.primary(count);
            if primary != self.config.replica {
                let promise = &mut self.promises.0[usize::from(primary.0)];
                promise.until = until[usize::from(primary.0)];
                promise.view = view;
            }
        }
    }

    /// After a restart nothing is known of what was promised before.
    pub(crate) fn promise_all(&mut self, until: Instant) {
        let count = self.config.replica_count;
        // It may have voted for its view already, but for none after it.
        let end = if self.log_view < self.view {
            self.view
        } else {
            self.view.next()
        };
        let first = end.0.saturating_sub(u32::from(count));
        for view in (first..end.0).map(View) {
            let primary = view.primary(count);
            if primary != self.config.replica {
                let promise = &mut self.promises.0[usize::from(primary.0)];
                (promise.until, promise.view) = (until, view);
            }
        }
    }

    /// When this replica may vote.
    pub(crate) fn votes_from(&self) -> Instant {
        self.promises.until()
    }

    /// A replica says where it stands: what it has left it no longer serves.
    pub(crate) fn release(
        &mut self,
        now: Instant,
        from: ReplicaIndex,
        peer: &GroupStatus,
        out: &mut Vec<Effect>,
    ) {
        let held = self.votes_from() > now;
        let left = match peer.role {
            // Never to serve it again.
            StatusRole::Abdicated => peer.view.next(),
            _ => peer.view,
        };
        let promise = &mut self.promises.0[usize::from(from.0)];
        promise.left = promise.left.max(left);
        if held && self.votes_from() <= now && self.status == Status::ViewChange {
            base::sometimes!("consensus: a vote waited until the old primary had left its view");
            self.send_do_view_change(now, out);
        }
    }
}
