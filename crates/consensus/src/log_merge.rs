//! Picks the log of a new view: a pure function of the votes.

use alloc::vec::Vec;

use base::{Op, View};
use wire::replica::PrepareHeader;

/// A replica's log, as its do_view_change tells it.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Last op.
    pub(crate) op: Op,
    /// What it knows to be committed.
    pub(crate) commit: Op,
    /// The view the log belongs to.
    pub(crate) log_view: View,
    /// Whether it holds all that its replica may have acknowledged.
    pub(crate) trusted: bool,
    /// The newest headers, ascending, up to `op`.
    pub(crate) headers: Vec<PrepareHeader>,
}

/// The index of the log that the new view takes over: of the highest `log_view` the longest.
///
/// Why that is safe: an op is committed in view v once a quorum whose logs durably belong to v
/// holds it. Any quorum of votes meets that one, so the highest `log_view` among the votes is at
/// least v; a log of a later view holds it by induction; and logs of one view are prefixes of
/// one another, so the longest of them holds it.
pub(crate) fn choose<'a>(
    votes: impl Iterator<Item = (usize, &'a Candidate)>,
) -> Option<(usize, &'a Candidate)> {
    votes.max_by_key(|(index, vote)| {
        let log_view = if base::planted::bug(10) {
            View(0)
        } else {
            vote.log_view
        };
        // Of equals the lowest index, so that all derive the same.
        (log_view, vote.op, core::cmp::Reverse(*index))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vote(log_view: u32, op: u64) -> Candidate {
        Candidate {
            op: Op(op),
            commit: Op(0),
            log_view: View(log_view),
            trusted: true,
            headers: Vec::new(),
        }
    }

    #[test]
    fn later_log_view_wins_over_longer_log() {
        let votes = [vote(1, 9), vote(3, 2), vote(2, 5)];
        assert_eq!(choose(votes.iter().enumerate()).expect("votes").0, 1);
    }

    #[test]
    fn of_one_log_view_the_longest_wins_and_of_equals_the_first() {
        let votes = [vote(3, 1), vote(3, 4), vote(3, 4)];
        assert_eq!(choose(votes.iter().enumerate()).expect("votes").0, 1);
    }
}
