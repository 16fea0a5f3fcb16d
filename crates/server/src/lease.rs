//! The read lease: whether this replica, if it is a primary, may answer from its state without
//! asking anybody.
//!
//! Every heartbeat brings back the newest one of ours that the peer has heard, and with it the
//! peer's word that it votes for no view after those it has told us of for `suspect` from when
//! it heard ours. Counted from when ours was *sent*, and less a margin for clocks that run at
//! different speeds, that is a lease on our side:
//!
//! ```text
//!   this node  sent ────────────────────────── may serve ──┤ sent + suspect - margin
//!                 ╲            ╱ echo
//!   peer           heard ─────┴───────────── votes for nothing ──┤ heard + suspect
//! ```
//!
//! As many replicas as a replication quorum has, this one included, meet every view-change
//! quorum; so while so many leases hold, no later view begins anywhere, and what is committed
//! here is all that is committed. One node alone always holds it.
//!
//! **Invariant:** only monotonic clocks are compared, each with itself.

use ::core::time::Duration;
use alloc::vec::Vec;

use base::{Instant, ReplicaIndex};
use consensus::Quorums;

/// Part of `suspect` that is given up for clocks that run at different speeds: one in eight.
const MARGIN: u32 = 8;

/// What the peers have lately echoed.
#[derive(Debug)]
pub(crate) struct Lease {
    /// Peers that must have heard us.
    needed: usize,
    term: Duration,
    /// When the newest heartbeat that each peer has echoed was sent.
    echoed: Vec<Option<Instant>>,
}

impl Lease {
    pub(crate) fn new(replica_count: u8, suspect: Duration) -> Self {
        Self {
            needed: usize::from(Quorums::new(replica_count).replication) - 1,
            term: suspect - suspect / MARGIN,
            echoed: alloc::vec![None; usize::from(replica_count)],
        }
    }

    /// `peer` says that it has heard what was sent at `sent`.
    pub(crate) fn on_echo(&mut self, now: Instant, peer: ReplicaIndex, sent: Instant) {
        if sent > now {
            return; // no heartbeat of ours
        }
        if let Some(echoed) = self.echoed.get_mut(usize::from(peer.0)) {
            *echoed = (*echoed).max(Some(sent));
        }
    }

    /// Whether the lease holds.
    pub(crate) fn holds(&self, now: Instant) -> bool {
        let live = |sent: &Instant| now < *sent + self.term;
        self.echoed
            .iter()
            .flatten()
            .filter(|sent| live(sent))
            .count()
            >= self.needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUSPECT: Duration = Duration::from_millis(800);

    const fn at(millis: u64) -> Instant {
        Instant(millis * 1_000)
    }

    #[test]
    fn one_node_always_holds_it() {
        assert!(Lease::new(1, SUSPECT).holds(at(0)));
        assert!(Lease::new(1, SUSPECT).holds(at(1_000_000)));
        // Of two, both must vote for another view.
        assert!(Lease::new(2, SUSPECT).holds(at(0)));
    }

    #[test]
    fn it_runs_out_before_the_peers_may_vote() {
        let mut lease = Lease::new(3, SUSPECT);
        assert!(!lease.holds(at(0)), "nobody has been heard");
        lease.on_echo(at(50), ReplicaIndex(1), at(10));
        assert!(lease.holds(at(50)));
        assert!(lease.holds(at(709)));
        assert!(!lease.holds(at(710)), "700 ms after it was sent");
        lease.on_echo(at(711), ReplicaIndex(1), at(5));
        assert!(!lease.holds(at(711)), "an older echo is no news");
        lease.on_echo(at(720), ReplicaIndex(1), at(9_000));
        assert!(!lease.holds(at(720)), "nor is one from the future");
        lease.on_echo(at(730), ReplicaIndex(2), at(650));
        assert!(lease.holds(at(730)), "any peer will do");
    }

    #[test]
    fn five_nodes_need_two_peers_at_once() {
        let mut lease = Lease::new(5, SUSPECT);
        lease.on_echo(at(10), ReplicaIndex(1), at(0));
        assert!(!lease.holds(at(10)));
        lease.on_echo(at(20), ReplicaIndex(1), at(10));
        assert!(!lease.holds(at(20)), "one peer counts once");
        lease.on_echo(at(30), ReplicaIndex(4), at(20));
        assert!(lease.holds(at(30)));
        assert!(!lease.holds(at(710)));
    }
}
