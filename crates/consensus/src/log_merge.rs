//! Picks the log of a new view: a pure function of the votes.

use alloc::vec::Vec;

use base::{Op, View};
use wire::replica::{PrepareHeader, Trust};

use crate::quorum::Quorums;

/// A replica's log, as its do_view_change tells it.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Last op.
    pub(crate) op: Op,
    /// Its identity.
    pub(crate) checksum: u128,
    /// What it knows to be committed.
    pub(crate) commit: Op,
    /// The view the log belongs to.
    pub(crate) log_view: View,
    /// Whether it holds all that its replica may have acknowledged.
    pub(crate) trust: Trust,
    /// The newest headers, ascending; those of damaged ops are left out.
    pub(crate) headers: Vec<PrepareHeader>,
    /// The ops whose bodies are damaged, ascending.
    pub(crate) faulty: Vec<Op>,
    /// Names the process of a blank replica.
    pub(crate) nonce: u128,
}

impl Candidate {
    /// Whether it counts as a witness.
    pub(crate) const fn is_trusted(&self) -> bool {
        matches!(self.trust, Trust::Trusted)
    }

    pub(crate) const fn is_blank(&self) -> bool {
        matches!(self.trust, Trust::Blank)
    }

    /// The identity of the log's op at `op`, as far as it is told.
    fn identity(&self, op: Op) -> Option<u128> {
        identity((self.op, self.checksum), &self.headers, op)
    }

    /// Whether the log holds the body of the op at `op` with this identity.
    fn has(&self, op: Op, checksum: Option<u128>) -> bool {
        let same = match (self.identity(op), checksum) {
            (Some(own), Some(checksum)) => own == checksum,
            // A committed op has one identity.
            _ => op <= self.commit,
        };
        op <= self.op && same && self.faulty.binary_search(&op).is_err()
    }

    /// Whether the replica has certainly never acknowledged the op at `op` with this identity,
    /// if that was ever committed: see [`decide`].
    fn never_held(&self, op: Op, checksum: Option<u128>) -> bool {
        if base::planted::bug(11) && self.faulty.contains(&op) {
            // Planted: a body that is missing counts as one that never was.
            return true;
        }
        let other = match (self.identity(op), checksum) {
            (Some(own), Some(checksum)) => own != checksum,
            _ => false,
        };
        self.is_trusted() && (op > self.op || other)
    }
}

/// The identity of the op at `op` in the log that ends with `head`, as far as its headers tell.
pub(crate) fn identity(head: (Op, u128), headers: &[PrepareHeader], op: Op) -> Option<u128> {
    if op == head.0 {
        return Some(head.1);
    }
    if op == Op(0) {
        return Some(0);
    }
    match headers.binary_search_by_key(&op, |header| header.op) {
        Ok(index) => Some(headers[index].checksum),
        Err(index) => {
            let successor = headers.get(index)?;
            (successor.op == op.next()).then_some(successor.parent)
        }
    }
}

/// The log of a new view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewLog {
    /// The replica that has it.
    pub(crate) source: usize,
    /// Its last op.
    pub(crate) op: Op,
    /// The identity of that.
    pub(crate) checksum: u128,
    /// All headers of it that any vote tells, ascending.
    pub(crate) headers: Vec<PrepareHeader>,
    /// The ops whose bodies the source lacks and somebody else has.
    pub(crate) faulty: Vec<Op>,
}

impl NewLog {
    /// The identity of the op at `op`, as far as it is known.
    pub(crate) fn identity(&self, op: Op) -> Option<u128> {
        identity((self.op, self.checksum), &self.headers, op)
    }
}

/// The index of the log that the new view takes over: of the highest `log_view` the longest.
///
/// Why that is safe: an op is committed in view v once a quorum whose logs durably belong to v
/// holds it. Any quorum of votes meets that one, so the highest `log_view` among the votes is at
/// least v; a log of a later view holds it by induction; and logs of one view are prefixes of
/// one another, so the longest of them holds it. A log that has lost the body of an op holds it
/// in this sense: the op keeps its place.
fn choose<'a>(
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

/// The log of the new view, given the votes of which those in `eligible` may be taken over; or
/// the first op about which more votes are needed.
///
/// # Bodies that are missing
///
/// Let x be an op of the chosen log whose body its source has lost. It is fetched from whoever
/// has it. If no voter has it, it is cut, with all after it, only if it was certainly never
/// committed; a missing body itself says nothing about that, either way.
///
/// **The cut rule.** x is cut if more than `n - replication quorum` trusted votes *never held* it:
/// their log ends before it, or has another op in its place.
///
/// *Why that is safe.* Suppose x was committed, in view u: a replication quorum Q of replicas
/// whose logs durably belonged to u held it and acknowledged it. No replica of Q casts a trusted
/// vote that never held x. For a log loses an op only in these ways:
/// - It is cut for the log of a view w > u, where that conflicts with it or ends before it. But
///   the log of w holds x, by induction over the views: it was chosen from a quorum of trusted
///   votes by [`choose`], and the cut rule did not remove x, since of the voters not in Q there
///   are at most `n - |Q|`, which is at most `n - replication quorum`.
/// - It is cut where its own identity is unknown, because damage has swallowed it; or the disk
///   lost its end, or all of it. Then it is in doubt first, and its votes are not trusted until
///   it holds the log of a view after u again, which holds x.
///
/// And a replica that voted here acknowledges nothing in earlier views any more, so x cannot be
/// committed later. An op in the place of x is no weaker evidence than the end of the log: logs
/// are chains that are only ever cut at the end, so where another op stands, x does not, and had
/// it stood there before, it was cut, as above.
///
/// What follows x in its log was not committed either, for a log is committed in order.
pub(crate) fn decide(
    votes: &[Option<Candidate>],
    eligible: impl Fn(&Candidate) -> bool,
    quorums: Quorums,
) -> Result<NewLog, Op> {
    let heard = || votes.iter().flatten();
    let commit = heard().map(|vote| vote.commit).max().unwrap_or_default();
    let present = votes.iter().enumerate();
    let present = present.filter_map(|(index, vote)| Some((index, vote.as_ref()?)));
    let (source, best) = choose(present.filter(|(_, vote)| eligible(vote)))
        .expect("the quorum, or whoever applied the most");
    let headers = all_headers(best, votes);
    let mut log = NewLog {
        source,
        op: best.op,
        checksum: best.checksum,
        headers,
        faulty: Vec::new(),
    };
    let spare = votes.len() - usize::from(quorums.replication);
    for &op in &best.faulty {
        let checksum = log.identity(op);
        if heard().any(|vote| vote.has(op, checksum)) {
            log.faulty.push(op);
            continue;
        }
        let nacks = heard().filter(|vote| vote.never_held(op, checksum)).count();
        let enough = nacks > spare || (base::planted::bug(12) && nacks > 0);
        if op <= commit || !enough || base::planted::bug(13) {
            return Err(op);
        }
        let end = Op(op.0 - 1);
        let Some(checksum) = log.identity(end) else {
            // Nobody can name the op that would be the last one.
            return Err(op);
        };
        base::sometimes!("consensus: an op that no quorum can have held is cut");
        log.op = end;
        log.checksum = checksum;
        log.headers.retain(|header| header.op <= end);
        break;
    }
    Ok(log)
}

/// The headers of the log that `best` tells of, ascending; those that its disk has damaged are
/// filled in from other votes, where the chain, or a log of the same view, says what they are.
fn all_headers(best: &Candidate, votes: &[Option<Candidate>]) -> Vec<PrepareHeader> {
    let Some(first) = best.headers.first().map(|header| header.op) else {
        return Vec::new();
    };
    let first = first.min(best.faulty.first().copied().unwrap_or(first));
    let mut headers: Vec<PrepareHeader> = Vec::new();
    let mut own = best.headers.iter().rev().peekable();
    let mut op = best.op;
    // The identity of `op`, once something above names it.
    let mut wanted = Some(best.checksum);
    while op >= first && op > Op(0) {
        let header = match own.next_if(|header| header.op == op) {
            Some(header) => Some(header),
            None => find_header(best, votes, op, wanted),
        };
        if let Some(header) = header {
            headers.push(*header);
        }
        wanted = header.map(|header| header.parent);
        op = Op(op.0 - 1);
    }
    headers.reverse();
    headers
}

fn find_header<'a>(
    best: &Candidate,
    votes: &'a [Option<Candidate>],
    op: Op,
    wanted: Option<u128>,
) -> Option<&'a PrepareHeader> {
    let mut told = votes.iter().flatten().filter_map(|vote| {
        let index = vote
            .headers
            .binary_search_by_key(&op, |header| header.op)
            .ok()?;
        Some((vote, &vote.headers[index]))
    });
    let found = told.find(|(vote, header)| match wanted {
        Some(wanted) => header.checksum == wanted,
        // Logs of one view are prefixes of one another.
        None => vote.is_trusted() && best.is_trusted() && vote.log_view == best.log_view,
    });
    found.map(|(_, header)| header)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the ops up to `op` all are `own`'s, who made the log; `faulty` have no body.
    fn vote(log_view: u32, op: u64, own: u128, faulty: &[u64]) -> Candidate {
        let name = |op: u64| {
            if op == 0 {
                0
            } else {
                own << 64 | u128::from(op)
            }
        };
        let header = |op: u64| {
            let mut frame = base::Buffer::zeroed(wire::HEADER_SIZE);
            let blank = PrepareHeader {
                checksum: 0,
                checksum_body: 0,
                cluster: 0,
                size: 0,
                view: View(log_view),
                replica: base::ReplicaIndex(0),
                parent: 0,
                client: base::ClientId(0),
                group: base::GroupId(1),
                op: Op(op),
                commit: Op(0),
                timestamp: base::Timestamp(0),
                request: 0,
                session: 0,
                request_checksum: 0,
                user: 0,
                operation: wire::Operation::Noop,
                encryption: None,
            };
            blank.seal_into(frame.as_mut_slice());
            PrepareHeader {
                checksum: name(op),
                parent: name(op - 1),
                ..blank
            }
        };
        Candidate {
            op: Op(op),
            checksum: name(op),
            commit: Op(0),
            log_view: View(log_view),
            trust: Trust::Trusted,
            headers: (1..=op)
                .filter(|op| !faulty.contains(op))
                .map(header)
                .collect(),
            faulty: faulty.iter().copied().map(Op).collect(),
            nonce: 0,
        }
    }

    fn decided(votes: &[Option<Candidate>]) -> Result<(usize, u64, Vec<Op>), Op> {
        let count = u8::try_from(votes.len()).expect("small");
        let log = decide(votes, Candidate::is_trusted, Quorums::new(count))?;
        Ok((log.source, log.op.0, log.faulty))
    }

    #[test]
    fn later_log_view_wins_over_longer_log() {
        let votes = [vote(1, 9, 1, &[]), vote(3, 2, 3, &[]), vote(2, 5, 2, &[])];
        assert_eq!(decided(&votes.map(Some)), Ok((1, 2, Vec::new())));
    }

    #[test]
    fn of_one_log_view_the_longest_wins_and_of_equals_the_first() {
        let votes = [vote(3, 1, 1, &[]), vote(3, 4, 1, &[]), vote(3, 4, 1, &[])];
        assert_eq!(decided(&votes.map(Some)), Ok((1, 4, Vec::new())));
    }

    #[test]
    fn a_body_that_any_vote_has_keeps_its_op() {
        let votes = [
            vote(1, 4, 1, &[2, 3]),
            vote(1, 3, 1, &[]),
            vote(0, 1, 1, &[]),
        ];
        assert_eq!(decided(&votes.map(Some)), Ok((0, 4, [Op(2), Op(3)].into())));
    }

    #[test]
    fn an_op_is_cut_by_more_votes_than_a_quorum_can_spare_and_by_no_fewer() {
        let log = || Some(vote(1, 4, 1, &[3]));
        let short = || Some(vote(1, 2, 1, &[]));
        let other = || Some(vote(0, 3, 9, &[]));
        let lost = || Some(vote(1, 4, 1, &[3]));
        let mut doubted = vote(1, 2, 1, &[]);
        doubted.trust = Trust::Doubt;
        assert_eq!(decided(&[log(), short(), None]), Err(Op(3)));
        assert_eq!(decided(&[log(), other(), None]), Err(Op(3)));
        assert_eq!(decided(&[log(), short(), lost()]), Err(Op(3)));
        assert_eq!(decided(&[log(), short(), Some(doubted)]), Err(Op(3)));
        assert_eq!(decided(&[log(), short(), short()]), Ok((0, 2, Vec::new())));
        assert_eq!(decided(&[log(), short(), other()]), Ok((0, 2, Vec::new())));
    }

    #[test]
    fn what_is_known_to_be_committed_is_never_cut() {
        let mut votes = [vote(1, 4, 1, &[3]), vote(1, 2, 1, &[]), vote(1, 2, 1, &[])];
        votes[0].commit = Op(3);
        assert_eq!(decided(&votes.map(Some)), Err(Op(3)));
    }

    /// Goal: the cut rule against what it stands for. Every assignment of one op to five logs
    /// (held, damaged, never held), seen through every set of votes: what a replication quorum
    /// has acknowledged is never cut.
    #[test]
    fn no_quorum_that_held_an_op_can_be_outvoted() {
        for count in 1..=5u32 {
            let quorums = Quorums::new(u8::try_from(count).expect("small"));
            for code in 0..3u32.pow(count) * 2u32.pow(count) {
                let (states, heard) = (code / 2u32.pow(count), code % 2u32.pow(count));
                let state = |place: u32| states / 3u32.pow(place) % 3;
                let votes: Vec<Option<Candidate>> = (0..count)
                    .map(|place| {
                        let vote = match state(place) {
                            0 => vote(1, 1, 1, &[]),
                            1 => vote(1, 3, 1, &[2]),
                            _ => vote(1, 3, 1, &[]),
                        };
                        (heard >> place & 1 == 1).then_some(vote)
                    })
                    .collect();
                let holders = (0..count).filter(|place| state(*place) > 0).count();
                let heard = heard.count_ones();
                if heard < u32::from(quorums.view_change) {
                    continue;
                }
                if holders >= usize::from(quorums.replication)
                    && let Ok((_, op, _)) = decided(&votes)
                {
                    assert!(op >= 2, "{count} replicas, states {states}: an op is lost");
                }
            }
        }
    }
}
