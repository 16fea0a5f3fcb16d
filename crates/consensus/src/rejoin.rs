//! Replicas whose disks are new or were replaced (VSR Revisited §4.3, with the corrections of
//! Michael et al., "Recovering Shared Objects Without Stable Storage").
//!
//! A *blank* replica knows nothing of what it has promised: which views it has left, and which
//! ops it has acknowledged. It takes no part until what it does cannot break such a promise:
//!
//! ```text
//!   all are blank ─▶ founding: the primary of the first view hears all votes, and begins it
//!   others are not ─▶ a replication quorum of them says in which views they are; m is the
//!                     latest. The blank one waits for a view from m + 2 on to begin, and asks
//!                     primaries to make way until then.
//! ```
//!
//! **Why m + 2.** Views are entered by a view-change quorum of wishes for them, from replicas that
//! are not blank and in which the view before is durable; or on word of somebody who has entered
//! them. Let v be a view that the lost disk had promised. The quorum that wished for v was
//! durable in v - 1 before the disk was lost; a replication quorum of others meets it in one that
//! said where it is after the loss, and durable views do not step back; one that lost its own
//! disk in between is past m' + 2, where m' is at least v - 1 by the same argument. So m is at
//! least v - 1, and a view from m + 2 on is later than all that was promised: a vote or an
//! acknowledgement of the lost incarnation that is still under way contradicts nothing that the
//! new one does.
//!
//! **Why the log is complete.** What it had acknowledged and was committed, with it in the quorum,
//! is in every later view's log: a quorum of trusted votes does not include the blank replica,
//! and so meets the other members of that quorum.
//!
//! **Founding.** A group in which all are blank has never done anything, or everybody has lost
//! everything. Blank replicas vote with a number that names their process; the start_view of a
//! founding names the vote that it rests on, so that a replica that is blank for another reason
//! later takes no old view for its founding.

use alloc::vec::Vec;

use base::{Instant, Op, ReplicaIndex, View};
use wire::replica::{GroupStatus, StatusRole, Trust};

use crate::{
    group::{Effect, Group, REPLICAS_MAX, Status},
    log_merge::Candidate,
};

/// What a blank replica has heard, and what the primary of a founding has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rejoin {
    /// Names this process while it is blank; 0 otherwise.
    pub(crate) nonce: u128,
    /// The views of the others, as those that are not blank have told this process.
    heard: [Option<View>; REPLICAS_MAX],
    /// Whether one of them has an op: then nothing is to be founded.
    at_work: bool,
    /// The first view in which it may take part.
    from: Option<View>,
    /// Primary of a founding: the nonces of the votes that it rests on.
    founders: [u128; REPLICAS_MAX],
    /// Primary of a founding: it waits until so many are not blank any more that the others can
    /// rejoin.
    founding: bool,
    /// Who is known not to be blank.
    settled: [bool; REPLICAS_MAX],
    /// Whether this process was there when the group was founded.
    founder: bool,
}

impl Group {
    pub(crate) const fn is_blank(&self) -> bool {
        matches!(self.trust, Trust::Blank)
    }

    /// Whether this replica may begin or join the current view.
    pub(crate) fn may_join(&self) -> bool {
        !self.is_blank() || self.rejoin.from.is_some_and(|from| self.view >= from)
    }

    /// Whether this replica votes: to join a view, or as long as it may turn out that the group
    /// is to be founded.
    pub(crate) fn may_vote(&self) -> bool {
        self.may_join() || !self.rejoin.at_work
    }

    /// Whether a wish of this replica counts. Of two replicas it must, or the other could never
    /// move on.
    pub(crate) fn may_wish(&self) -> bool {
        let blank = self.is_blank() || self.trust_durable == Trust::Blank;
        !blank || (self.config.replica_count == 2 && self.rejoin.from.is_some())
    }

    /// What a blank replica tells about itself.
    pub(crate) fn blank_role(&self) -> StatusRole {
        match self.rejoin.from {
            None => StatusRole::Doubt,
            Some(from) if self.view < from => StatusRole::Rejoining,
            Some(_) => StatusRole::ViewChange,
        }
    }

    /// Somebody says where it is.
    pub(crate) fn hear(
        &mut self,
        now: Instant,
        from: ReplicaIndex,
        peer: &GroupStatus,
        out: &mut Vec<Effect>,
    ) {
        let blank = matches!(peer.role, StatusRole::Doubt | StatusRole::Rejoining);
        if blank {
            if !self.is_blank() {
                // It may have begun after everybody had said where they are.
                self.touch();
            }
            return;
        }
        let still = matches!(peer.role, StatusRole::Normal | StatusRole::Abdicated);
        if peer.view == self.view && still && peer.op == Op(0) {
            self.rejoin.settled[usize::from(from.0)] = true;
            self.check_founded(out);
        }
        self.rejoin.at_work |= peer.op > Op(0);
        if !self.is_blank() || self.rejoin.from.is_some() {
            return;
        }
        let heard = &mut self.rejoin.heard[usize::from(from.0)];
        *heard = Some(heard.unwrap_or_default().max(peer.view));
        let told = || self.rejoin.heard.iter().flatten();
        if told().count() >= usize::from(self.quorums.replication) {
            let latest = told().max().copied().unwrap_or_default();
            let ahead = match self.config.replica_count {
                // The other one of two has taken part in every view that has begun.
                2 => u32::from(latest.primary(2) == self.config.replica),
                _ => 2,
            };
            self.rejoin.from = Some(View(latest.0 + ahead));
            base::sometimes!("consensus: a blank replica knows which view to wait for");
            self.touch();
            if self.status == Status::ViewChange {
                self.send_do_view_change(now, out);
            }
        }
    }

    /// A primary makes way for a blank replica that waits for a later view.
    pub(crate) fn make_way(&mut self, now: Instant, out: &mut Vec<Effect>) {
        base::sometimes!(
            !self.suspicious,
            "consensus: a primary makes way for a blank replica"
        );
        self.suspect(now, out);
    }

    /// Whether the votes are those of a group that has never done anything.
    pub(crate) fn is_founding(votes: &[Option<Candidate>]) -> bool {
        votes.iter().all(|vote| {
            vote.as_ref()
                .is_some_and(|vote| vote.is_blank() && vote.op == Op(0))
        })
    }

    /// The view begins with the blank votes of these.
    pub(crate) fn note_founders(&mut self) {
        base::sometimes!("consensus: a group is founded");
        for (founder, vote) in self.rejoin.founders.iter_mut().zip(&self.votes) {
            *founder = vote.as_ref().map_or(0, |vote| vote.nonce);
        }
        self.rejoin.founding = true;
        self.rejoin.founder = true;
        for (settled, vote) in self.rejoin.settled.iter_mut().zip(&self.votes) {
            *settled &= vote.is_none();
        }
        self.rejoin.settled[usize::from(self.config.replica.0)] = true;
    }

    /// The nonce of the vote of `to` that this view rests on, if it founded the group.
    pub(crate) fn founder(&self, to: ReplicaIndex) -> u128 {
        self.rejoin.founders[usize::from(to.0)]
    }

    /// Whether this primary waits for its founding to be known.
    pub(crate) const fn is_being_founded(&self) -> bool {
        self.rejoin.founding
    }

    /// A founding is over once so many know of it that the others can rejoin.
    fn check_founded(&mut self, out: &mut Vec<Effect>) {
        let settled = self.rejoin.settled.iter().filter(|settled| **settled);
        if self.rejoin.founding && settled.count() >= usize::from(self.quorums.view_change) {
            self.rejoin.founding = false;
            out.push(Effect::RoleChanged);
            self.touch();
        }
    }

    /// A start_view may be taken over by a blank replica if its view is late enough, or if it
    /// founds the group on this process's vote.
    pub(crate) fn accepts_view(&mut self, nonce: u128) -> bool {
        let founds = nonce != 0 && nonce == self.rejoin.nonce;
        self.rejoin.founder |= founds;
        self.may_join() || founds
    }

    /// Up to which op the log may hold what this disk was once part of and has forgotten: nothing
    /// at all, if this process was there when the group was founded.
    #[must_use]
    pub const fn forgotten_to(&self) -> Op {
        if self.rejoin.founder {
            Op(0)
        } else {
            self.op()
        }
    }

    /// A view has been left: what was known about its founding goes with it.
    pub(crate) fn leave_founding(&mut self) {
        self.rejoin.founders = [0; REPLICAS_MAX];
        self.rejoin.founding = false;
        self.rejoin.settled = [false; REPLICAS_MAX];
    }

    /// A blank replica votes to a primary that has founded the group, lost its process, and
    /// prepared nothing. If so many are blank that no quorum can have been at work, and nobody
    /// has an op, the founding goes on.
    ///
    /// No more than `n - view-change quorum` replicas may be blank in a group that works: this
    /// many more cannot have lost their disks without the group stopping for good anyway.
    pub(crate) fn found_again(
        &mut self,
        from: ReplicaIndex,
        vote: Candidate,
        out: &mut Vec<Effect>,
    ) {
        let fresh = self.log.op() == Op(0) && vote.op == Op(0) && vote.is_blank();
        if !self.is_primary() || !fresh || self.log_view_durable < self.view {
            return;
        }
        if self.leads() && self.founder(from) == vote.nonce {
            // The founding has not reached it.
            return self.send_start_view(from, out);
        }
        self.votes[usize::from(from.0)] = Some(vote);
        let count = usize::from(self.config.replica_count);
        let spare = count - usize::from(self.quorums.view_change);
        let blank = self.votes.iter().flatten().count();
        let own = usize::from(self.config.replica.0);
        let heard = |index: &usize| {
            *index == own || self.votes[*index].is_some() || self.rejoin.settled[*index]
        };
        if blank <= spare || !(0..count).all(|index| heard(&index)) {
            return;
        }
        base::sometimes!("consensus: a founding goes on after a crash");
        self.note_founders();
        if self.abdicated {
            self.abdicated = false;
            self.trust_primary();
        }
        self.announce_view(out);
    }
}
