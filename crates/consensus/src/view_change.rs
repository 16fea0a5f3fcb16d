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
use wire::replica::{Message, PrepareHeader, Trust};

use crate::{
    group::{Effect, Group, REPLICAS_MAX, Status},
    ignore::Ignore,
    log_merge::{Candidate, NewLog, decide},
    timeouts::Timeout,
};

/// The log of a view, as its start_view tells it.
pub(crate) struct Begun {
    /// Last op.
    pub(crate) op: Op,
    /// Its identity.
    pub(crate) checksum: u128,
    /// What is known to be committed.
    pub(crate) commit: Op,
    /// The newest headers, ascending; those of damaged ops are left out.
    pub(crate) headers: Vec<PrepareHeader>,
    /// The blank vote that the view rests on, if it founds the group; else 0.
    pub(crate) nonce: u128,
}

/// How often the patience with a view change doubles at most.
const PATIENCE_DOUBLINGS: u32 = 5;

impl Group {
    /// The primary of the view is silent, or says that it does not serve: wish for the next
    /// view.
    pub fn suspect(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if self.config.replica_count == 1 || self.suspicious || !self.may_wish() {
            return;
        }
        self.suspicious = true;
        self.touch();
        self.wish(now, out);
    }

    /// This replica hears no quorum of its group: a primary stops preparing and serving, and
    /// wishes for another view.
    pub fn abdicate(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let leading = self.is_primary() && !self.is_blank();
        if self.config.replica_count == 1 || self.abdicated || !leading || base::planted::bug(29) {
            return;
        }
        base::sometimes!("consensus: a primary abdicates");
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

    /// An elected primary that cannot lead soon, because it lacks too much or would have to fetch
    /// a checkpoint, gives the view up; who has voted for it joins in the wish.
    pub fn forfeit(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if self.status == Status::ViewChange && self.is_primary() && !self.suspicious {
            base::sometimes!("consensus: a lagging primary forfeits its view");
            self.suspect(now, out);
        }
    }

    /// Tells the wish for the next view, once it is durable that this one was entered: what a
    /// replica wishes for bounds what it may have promised.
    pub(crate) fn wish(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if self.view_durable < self.view {
            return;
        }
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
        let forfeited = self.status == Status::ViewChange && from == self.primary();
        if forfeited && view == self.view.next() {
            self.suspect(now, out);
        }
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
        let install = self.install.take();
        if install.is_some_and(|install| install.only_plans_a_cut()) {
            // The cut that the log was in doubt for has not happened.
            self.trust = Trust::Trusted;
        }
        self.leave_founding();
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
            let commit = self.log.committed();
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

    /// The patience with a view change: doubled each time one comes to nothing, and with jitter,
    /// so that replicas whose timers resonate drift apart, and a slow one gets its time.
    pub(crate) fn arm_view_change(&mut self, now: Instant) {
        let doublings = self.fruitless.min(PATIENCE_DOUBLINGS);
        let base = self.config.timing.view_change * (1 << doublings);
        let patience = if base::planted::bug(31) {
            self.config.timing.view_change
        } else {
            self.prng.duration(base, base * 2)
        };
        self.timeouts.set(Timeout::ViewChange, now, patience);
    }

    pub(crate) fn on_view_change_timeout(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if self.status == Status::ViewChange && self.may_wish() {
            self.fruitless = self.fruitless.saturating_add(1);
            base::sometimes!(
                self.fruitless > 1,
                "consensus: patience grows with fruitless view changes"
            );
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
        let mute = self.view_durable < self.view || !self.may_vote();
        if settled || mute {
            return;
        }
        let retry = self.config.timing.view_change_retry;
        let jittered = self.prng.duration(retry, retry * 3 / 2);
        self.timeouts.set(Timeout::DoViewChange, now, jittered);
        let vote = Candidate {
            op: self.log.op(),
            checksum: self.log.checksum(),
            commit: self.log.committed(),
            log_view: if base::planted::bug(9) {
                self.view
            } else {
                self.log_view
            },
            trust: self.trust,
            headers: self.log.newest(),
            faulty: if base::planted::bug(14) {
                Vec::new()
            } else {
                self.log.missing().collect()
            },
            nonce: self.rejoin.nonce,
        };
        base::sometimes!(
            !vote.faulty.is_empty(),
            "consensus: a vote tells of missing bodies"
        );
        if self.is_primary() {
            self.votes[usize::from(self.config.replica.0)] = Some(vote);
            return self.check_votes(now, out);
        }
        let message = Message::DoViewChange {
            group: self.config.group,
            op: vote.op,
            commit: vote.commit,
            log_view: vote.log_view,
            trust: vote.trust,
            checksum: vote.checksum,
            headers: vote.headers,
            faulty: vote.faulty,
            nonce: vote.nonce,
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
            if self.leads() && !self.is_being_founded() {
                self.send_start_view(from, out);
            } else {
                self.found_again(from, vote, out);
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
        let votes = &self.votes[..usize::from(self.config.replica_count)];
        let mut trusted = votes
            .iter()
            .flatten()
            .filter(|vote| vote.is_trusted())
            .count();
        if base::planted::bug(5) {
            // Planted: this replica's own vote counts twice.
            trusted += 1;
        }
        let quorum = trusted >= usize::from(self.quorums.view_change);
        let all = votes.iter().all(Option::is_some);
        let founding = Self::is_founding(votes);
        if (!quorum && !all) || (!founding && !self.may_join()) {
            return;
        }
        let commit = votes.iter().flatten().map(|vote| vote.commit).max();
        let commit = commit.unwrap_or_default();
        let blank = votes.iter().flatten().any(Candidate::is_blank);
        if !quorum && blank && !founding && votes.len() > 2 {
            // What the lost disks held nobody knows: too many are gone to go on.
            return self.report_undecidable(commit.next(), out);
        }
        // A quorum of trusted logs holds all that was committed; a log in doubt may have a later
        // log_view and lack it. Without one, no replica may lose what it has applied.
        let eligible = |vote: &Candidate| {
            if quorum {
                vote.is_trusted() || base::planted::bug(38)
            } else {
                vote.op >= commit
            }
        };
        match decide(votes, eligible, self.quorums) {
            Ok(log) => {
                self.commit_max = self.commit_max.max(commit);
                if founding {
                    self.note_founders();
                } else if !quorum {
                    out.push(Effect::LossPossible);
                }
                base::sometimes!(
                    !log.faulty.is_empty(),
                    "consensus: a body that the chosen log lacks is fetched elsewhere"
                );
                self.begin_install(now, log, out);
            }
            Err(op) if all => self.report_undecidable(op, out),
            Err(_) => {
                base::sometimes!("consensus: a new primary waits for more votes");
            }
        }
    }

    fn report_undecidable(&mut self, op: Op, out: &mut Vec<Effect>) {
        if self.undecidable != Some(op) {
            base::sometimes!("consensus: a group stops rather than guess");
            self.undecidable = Some(op);
            out.push(Effect::Undecidable { op });
        }
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
        if !self.accepts_view(begun.nonce) {
            return self.ignore(Ignore::Blank);
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
            let log = NewLog {
                source: usize::from(from.0),
                op,
                checksum: begun.checksum,
                headers: begun.headers.clone(),
                faulty: Vec::new(),
            };
            self.begin_install(now, log, out);
        }
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
        self.acked[usize::from(self.config.replica.0)] = self.durable();
        self.try_commit(out);
        out.push(Effect::RoleChanged);
    }

    pub(crate) fn send_start_view(&self, to: ReplicaIndex, out: &mut Vec<Effect>) {
        base::invariant!(self.leads());
        let message = Message::StartView {
            group: self.config.group,
            op: self.log.op(),
            checksum: self.log.checksum(),
            commit: self.log.committed(),
            headers: self.log.newest(),
            nonce: self.founder(to),
        };
        self.send(to, &message, out);
    }
}
