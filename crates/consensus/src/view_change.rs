//! View changes (VSR Revisited §4.2): wish, vote, install the log, begin.
//!
//! ```text
//!  suspect ─▶ start_view_change to all (a wish, nothing durable)
//!     quorum of wishes ─▶ view, persisted ─▶ do_view_change to the new primary (a promise)
//!        quorum of votes ─▶ best log installed, log_view persisted ─▶ start_view to all
//!           backup: log installed, log_view persisted ─▶ prepare_ok
//! ```

use alloc::vec::Vec;

use base::{Instant, Op, ReplicaIndex, View};
use wire::replica::{Message, PrepareHeader};

use crate::{
    group::{Effect, Group, Install, REPLICAS_MAX, Status},
    ignore::Ignore,
    log_merge::{Candidate, choose},
    timeouts::Timeout,
};

/// The log of a view, as its start_view tells it.
pub(crate) struct Begun {
    /// Last op.
    pub(crate) op: Op,
    /// What is known to be committed.
    pub(crate) commit: Op,
    /// The newest headers, ascending, up to `op`.
    pub(crate) headers: Vec<PrepareHeader>,
}

impl Group {
    /// The primary of the view is silent, or says that it does not serve: wish for the next
    /// view.
    pub fn suspect(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if self.config.replica_count == 1 || self.suspicious {
            return;
        }
        self.suspicious = true;
        self.touch();
        self.wish(now, out);
    }

    /// This replica hears no quorum of its group: a primary stops preparing and serving, and
    /// wishes for another view.
    pub fn abdicate(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if self.config.replica_count == 1 || self.abdicated || !self.is_primary() {
            return;
        }
        self.abdicated = true;
        out.push(Effect::RoleChanged);
        self.suspect(now, out);
    }

    /// The wish is withdrawn: the view has moved on or its primary is well.
    pub(crate) fn trust_primary(&mut self) {
        if self.suspicious {
            self.suspicious = false;
            self.touch();
            self.wishes[usize::from(self.config.replica.0)] = View(0);
            self.timeouts.clear(Timeout::StartViewChange);
        }
    }

    fn wish(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let own = usize::from(self.config.replica.0);
        self.wishes[own] = self.view.next();
        // The envelope carries the view wished for.
        let message = Message::StartViewChange {
            group: self.config.group,
        };
        let wished = self.view.next();
        let frame = message.encode(self.config.cluster, wished, self.config.replica);
        for to in self.others() {
            out.push(Effect::Send {
                to,
                frame: frame.clone(),
            });
        }
        let retry = self.config.timing.view_change_retry;
        let jittered = self.prng.duration(retry, retry * 3 / 2);
        self.timeouts.set(Timeout::StartViewChange, now, jittered);
        self.check_wishes(now, out);
    }

    pub(crate) fn on_wish_timeout(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if self.suspicious {
            self.wish(now, out);
        }
    }

    pub(crate) fn on_start_view_change(
        &mut self,
        now: Instant,
        from: ReplicaIndex,
        view: View,
        out: &mut Vec<Effect>,
    ) {
        if view <= self.view {
            self.touch();
            return self.ignore(Ignore::OlderView);
        }
        self.wishes[usize::from(from.0)] = view;
        self.check_wishes(now, out);
    }

    /// Enters the highest view that a quorum wishes for.
    fn check_wishes(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let mut wishes = self.wishes;
        let wishes = &mut wishes[..usize::from(self.config.replica_count)];
        wishes.sort_unstable_by(|a, b| b.cmp(a));
        let wished = wishes[usize::from(self.quorums.view_change) - 1];
        if wished > self.view {
            self.enter_view_change(now, wished, out);
        }
    }

    /// Leaves all views before `view`.
    pub(crate) fn enter_view_change(&mut self, now: Instant, view: View, out: &mut Vec<Effect>) {
        base::invariant!(view > self.view);
        self.view = view;
        self.status = Status::ViewChange;
        self.install = None;
        self.trust_primary();
        self.abdicated = false;
        self.target = Op(0);
        self.requested = Op(0);
        self.trusted_from = None;
        self.votes = [const { None }; REPLICAS_MAX];
        self.acked = [Op(0); REPLICAS_MAX];
        self.timeouts.clear(Timeout::Repair);
        self.touch();
        out.push(Effect::RoleChanged);
        if base::planted::bug(19) && self.log.op() > self.log.commit() {
            let commit = self.log.commit();
            self.truncate_after(commit, out);
        }
        self.arm_view_change(now);
        if base::planted::bug(7) {
            // Planted: votes without the view being durable.
            self.view_durable = view;
            return self.send_do_view_change(now, out);
        }
        self.persist(out);
    }

    pub(crate) fn arm_view_change(&mut self, now: Instant) {
        let timing = self.config.timing;
        let patience = self
            .prng
            .duration(timing.view_change, timing.view_change * 2);
        self.timeouts.set(Timeout::ViewChange, now, patience);
    }

    pub(crate) fn on_view_change_timeout(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if self.status == Status::ViewChange {
            self.arm_view_change(now);
            self.suspicious = true;
            self.wish(now, out);
        }
    }

    /// Tells the new primary this replica's log, once the view is durable here.
    pub(crate) fn send_do_view_change(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let votes_from = self.votes_from();
        if votes_from > now {
            base::sometimes!("consensus: a vote waits for a read lease to run out");
            return self
                .timeouts
                .set(Timeout::DoViewChange, now, votes_from.since(now));
        }
        self.vote(now, out);
    }

    /// Votes, or asks a view that has begun already for its log.
    pub(crate) fn vote(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let settled = self.status == Status::Normal || self.install.is_some();
        if settled || self.view_durable < self.view {
            return;
        }
        let retry = self.config.timing.view_change_retry;
        let jittered = self.prng.duration(retry, retry * 3 / 2);
        self.timeouts.set(Timeout::DoViewChange, now, jittered);
        let vote = Candidate {
            op: self.log.op(),
            commit: self.log.commit(),
            log_view: if base::planted::bug(9) {
                self.view
            } else {
                self.log_view
            },
            trusted: self.trusted,
            headers: self.log.newest(),
        };
        if self.is_primary() {
            self.votes[usize::from(self.config.replica.0)] = Some(vote);
            return self.check_votes(now, out);
        }
        let message = Message::DoViewChange {
            group: self.config.group,
            op: vote.op,
            commit: vote.commit,
            log_view: vote.log_view,
            trusted: vote.trusted,
            headers: vote.headers,
        };
        self.send(self.primary(), &message, out);
    }

    pub(crate) fn on_do_view_change(
        &mut self,
        now: Instant,
        from: ReplicaIndex,
        view: View,
        vote: Candidate,
        out: &mut Vec<Effect>,
    ) {
        if view < self.view {
            self.touch();
            return self.ignore(Ignore::OlderView);
        }
        if view.primary(self.config.replica_count) != self.config.replica {
            return self.ignore(Ignore::NotPrimary);
        }
        if view > self.view {
            self.enter_view_change(now, view, out);
        }
        if self.status == Status::Normal {
            // The view has begun; the voter has missed it.
            if self.leads() {
                self.send_start_view(from, out);
            }
            return;
        }
        self.votes[usize::from(from.0)] = Some(vote);
        self.check_votes(now, out);
    }

    /// Begins to install the best log once a quorum of trusted logs is known, or all logs are.
    fn check_votes(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let own = usize::from(self.config.replica.0);
        if self.install.is_some() || self.votes[own].is_none() {
            return;
        }
        let votes = || self.votes.iter().flatten();
        let mut trusted = votes().filter(|vote| vote.trusted).count();
        if base::planted::bug(5) {
            // Planted: this replica's own vote counts twice.
            trusted += 1;
        }
        let quorum = trusted >= usize::from(self.quorums.view_change);
        let all = votes().count() == usize::from(self.config.replica_count);
        if !quorum && !all {
            return;
        }
        if !quorum {
            out.push(Effect::LossPossible);
        }
        let commit = votes().map(|vote| vote.commit).max().unwrap_or_default();
        self.commit_max = self.commit_max.max(commit);
        // A quorum of trusted logs holds all that was committed; a log in doubt may have a later
        // log_view and lack it. Without one, no replica may lose what it has applied.
        let eligible = |vote: &Candidate| {
            if quorum {
                vote.trusted || base::planted::bug(38)
            } else {
                vote.op >= commit
            }
        };
        let indexed = self.votes.iter().enumerate();
        let present = indexed.filter_map(|(index, vote)| Some((index, vote.as_ref()?)));
        let present = present.filter(|(_, vote)| eligible(vote));
        let (index, best) = choose(present).expect("the quorum, or whoever applied the most");
        let source = ReplicaIndex(u8::try_from(index).expect("at most seven replicas"));
        let (op, headers) = (best.op, best.headers.clone());
        self.begin_install(now, source, op, &headers, out);
    }

    pub(crate) fn on_start_view(
        &mut self,
        now: Instant,
        from: ReplicaIndex,
        view: View,
        begun: &Begun,
        out: &mut Vec<Effect>,
    ) {
        let (op, commit) = (begun.op, begun.commit);
        if view < self.view {
            return self.ignore(Ignore::OlderView);
        }
        if from != view.primary(self.config.replica_count) {
            return self.ignore(Ignore::NotFromPrimary);
        }
        if view > self.view {
            self.enter_view_change(now, view, out);
        }
        self.commit_max = self.commit_max.max(commit);
        self.target = self.target.max(op);
        if self.status == Status::Normal {
            // A repeated start_view; the log belongs to the view already.
            self.trust_primary();
            self.advance_commit(out);
            self.request_missing(now, out);
            return self.ignore(Ignore::Duplicate);
        }
        if self.install.is_none() {
            self.begin_install(now, from, op, &begun.headers, out);
        }
    }

    /// Takes over the log of `source` that ends at `op`: finds where this log agrees with it,
    /// cuts what provably conflicts, and fetches the rest.
    fn begin_install(
        &mut self,
        now: Instant,
        source: ReplicaIndex,
        op: Op,
        headers: &[PrepareHeader],
        out: &mut Vec<Effect>,
    ) {
        let commit = self.log.commit();
        let mut vetted = commit.min(op);
        if source == self.config.replica {
            vetted = op;
        } else {
            let agrees = |header: &&PrepareHeader| match self.log.header(header.op) {
                Some(own) => {
                    let equal = own.checksum == header.checksum;
                    base::invariant!(
                        equal || header.op > commit,
                        "a committed op has one identity"
                    );
                    equal
                }
                None => header.op <= commit,
            };
            if let Some(common) = headers.iter().rev().find(agrees) {
                vetted = vetted.max(common.op);
                self.cut_after(common.op, out);
            } else if let Some(first) = headers.first() {
                if first.op <= self.log.op() {
                    self.cut_after(Op(first.op.0 - 1), out);
                }
            } else {
                self.cut_after(op, out);
            }
        }
        base::invariant!(vetted >= commit, "a view's log holds all that is committed");
        // Only after a loss can more have been committed than this log holds.
        self.commit_max = self.commit_max.min(op);
        self.install = Some(Install { source, op, vetted });
        self.timeouts.clear(Timeout::DoViewChange);
        self.advance_commit(out);
        self.continue_install(now, out);
    }

    fn cut_after(&mut self, op: Op, out: &mut Vec<Effect>) {
        if op < self.log.op() {
            self.truncate_after(op, out);
        }
    }

    /// Cuts entries that conflict with the log of the view.
    pub(crate) fn truncate_after(&mut self, op: Op, out: &mut Vec<Effect>) {
        self.log.truncate_after(op);
        self.durable = self.durable.min(op);
        self.truncating = Some(op);
        out.push(Effect::TruncateAfter { op });
    }

    /// The truncation after `op` is durable; earlier ones that it has overtaken are not told.
    pub fn on_truncated(&mut self, now: Instant, op: Op, out: &mut Vec<Effect>) {
        if self.truncating == Some(op) {
            self.truncating = None;
            self.finish_install(now, out);
        }
        self.invariants();
    }

    /// Asks for what is missing; begins the view once nothing is.
    pub(crate) fn continue_install(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let Some(install) = self.install else { return };
        if install.vetted < install.op {
            return self.request_prepares(now, install.vetted.next(), install.op, out);
        }
        self.finish_install(now, out);
    }

    /// Begins the view here once its log is complete and durable: with a durable `log_view` but a
    /// shorter log, this replica would outrank after a crash those that hold the rest.
    pub(crate) fn finish_install(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let Some(install) = self.install else { return };
        if install.vetted < install.op {
            return;
        }
        base::invariant_eq!(self.log.op(), install.op);
        let durable = self.durable >= install.op || base::planted::bug(37);
        if self.truncating.is_some() || !durable {
            return;
        }
        self.install = None;
        self.status = Status::Normal;
        self.log_view = self.view;
        self.trusted = true;
        for timeout in [Timeout::DoViewChange, Timeout::ViewChange, Timeout::Repair] {
            self.timeouts.clear(timeout);
        }
        if (self.is_primary() && !self.abdicated) || base::planted::bug(44) {
            self.trust_primary();
        }
        // Otherwise a wish stands until the primary is heard: it may have died meanwhile.
        self.barrier = self.log.op();
        self.votes = [const { None }; REPLICAS_MAX];
        self.touch();
        out.push(Effect::RoleChanged);
        if base::planted::bug(8) && !self.is_primary() {
            // Planted: acknowledges before log_view is durable, which it never becomes.
            self.send_prepare_ok(out);
        } else {
            self.persist(out);
        }
        self.advance_commit(out);
        self.request_missing(now, out);
    }

    /// The primary's view is durable: it begins.
    pub(crate) fn announce_view(&mut self, out: &mut Vec<Effect>) {
        self.touch();
        if !self.leads() {
            // It has abdicated meanwhile: the view begins nowhere.
            return;
        }
        for to in self.others() {
            self.send_start_view(to, out);
        }
        self.acked[usize::from(self.config.replica.0)] = self.durable;
        self.try_commit(out);
        out.push(Effect::RoleChanged);
    }

    pub(crate) fn send_start_view(&self, to: ReplicaIndex, out: &mut Vec<Effect>) {
        base::invariant!(self.leads());
        let message = Message::StartView {
            group: self.config.group,
            op: self.log.op(),
            commit: self.log.commit(),
            headers: self.log.newest(),
        };
        self.send(to, &message, out);
    }
}
