//! The log of a view on its way into a replica: a new primary's from the best vote, a backup's
//! from the start_view. What conflicts is cut, what is missing fetched; then the view begins here.

use alloc::vec::Vec;

use base::{Bytes, Instant, Op, ReplicaIndex};
use wire::replica::{PrepareHeader, Trust};

use crate::{
    group::{Effect, Group, REPLICAS_MAX, Status},
    ignore::Ignore,
    log_merge::NewLog,
    timeouts::Timeout,
};

/// How many times more than one request for prepares asks for an elected primary may lack: if it
/// is more, somebody else leads sooner.
const LAG_FACTOR: u64 = 16;

/// The log of a view on its way into this replica.
#[derive(Clone, Debug)]
pub(crate) struct Install {
    /// The log.
    pub(crate) log: NewLog,
    /// Up to where this replica's log is known to agree with it.
    pub(crate) vetted: Op,
    /// A cut that waits for the doubt about what is left to be durable.
    pub(crate) cut: Option<Op>,
}

impl Install {
    /// The replica that has the log.
    pub(crate) fn source(&self) -> ReplicaIndex {
        ReplicaIndex(u8::try_from(self.log.source).expect("at most seven replicas"))
    }

    /// Whether the log is in doubt for a cut that has not happened.
    pub(crate) const fn only_plans_a_cut(&self) -> bool {
        self.cut.is_some()
    }
}

impl Group {
    /// Takes over a log: finds where this one agrees with it, cuts what provably conflicts or
    /// lies beyond it, and fetches the rest.
    pub(crate) fn begin_install(&mut self, now: Instant, new: NewLog, out: &mut Vec<Effect>) {
        let committed = self.log.committed();
        let mut vetted = committed.min(new.op);
        let same = match (self.log.identity(vetted), new.identity(vetted)) {
            (Some(own), Some(theirs)) => own == theirs,
            _ => true,
        };
        base::invariant!(same, "a committed op has one identity");
        let mut keep = self.log.op().min(new.op);
        let mut op = keep;
        while op > vetted {
            match (self.log.identity(op), new.identity(op)) {
                (Some(own), Some(theirs)) if own == theirs => vetted = op,
                (Some(_), Some(_)) => keep = Op(op.0 - 1),
                _ => {}
            }
            op = Op(op.0 - 1);
        }
        base::invariant!(
            vetted >= committed,
            "a view's log holds all that is committed"
        );
        for header in &new.headers {
            if header.op <= vetted && self.log.identity(header.op) == Some(header.checksum) {
                self.log.note(*header);
            }
        }
        // Only after a loss can more have been committed than this log holds.
        self.commit_max = self.commit_max.min(new.op);
        let lag = new.op.0 - vetted.0;
        let hopeless = self.is_primary() && lag > LAG_FACTOR * self.config.repair_max;
        self.install = Some(Install {
            log: new,
            vetted,
            cut: None,
        });
        self.timeouts.clear(Timeout::DoViewChange);
        self.cut_after(keep, out);
        self.advance_commit(out);
        self.continue_install(now, out);
        if hopeless {
            self.forfeit(now, out);
        }
    }

    /// Cuts this log after `keep`, for the log that is on its way in. The new head must be
    /// present, so that the journal ends with a whole record.
    ///
    /// Ops that are missing, and that nothing proves to conflict, would be lost with it; this
    /// replica may have acknowledged them. The log is then put in doubt first: a vote of what is
    /// left must not count as that of a log that never held them.
    fn cut_after(&mut self, keep: Op, out: &mut Vec<Effect>) {
        if keep >= self.log.op() {
            return;
        }
        let mut end = keep;
        while end > self.log.commit() && self.log.is_missing(end) {
            end = Op(end.0 - 1);
        }
        let install = self.install.as_mut().expect("cut for a view's log");
        install.vetted = install.vetted.min(end);
        if end == keep || self.trust_durable != Trust::Trusted {
            return self.truncate_after(end, out);
        }
        base::sometimes!("consensus: a log is put in doubt before it is cut through damage");
        install.cut = Some(end);
        if self.trust == Trust::Trusted {
            self.trust = Trust::Doubt;
            self.persist(out);
        }
    }

    /// The doubt is durable that a cut has waited for.
    pub(crate) fn cut_in_doubt(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let Some(install) = &mut self.install else {
            return;
        };
        if self.trust_durable != Trust::Trusted
            && let Some(end) = install.cut.take()
        {
            self.truncate_after(end, out);
            self.continue_install(now, out);
        }
    }

    /// Cuts entries that conflict with the log of the view.
    pub(crate) fn truncate_after(&mut self, op: Op, out: &mut Vec<Effect>) {
        self.log.truncate_after(op);
        self.written = self.written.min(op);
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
        let Some(install) = &self.install else { return };
        if install.cut.is_some() {
            return;
        }
        if install.vetted == install.log.op {
            return self.finish_install(now, out);
        }
        let next = install.vetted.next();
        let last = install.log.op;
        match install.log.faulty.iter().find(|op| **op >= next) {
            Some(&op) if op == next && install.log.identity(op).is_some() => {
                let checksum = install.log.identity(op).expect("just looked");
                self.request_body(now, op, checksum, out);
            }
            Some(&op) if op > next => self.request_prepares(now, next, Op(op.0 - 1), out),
            _ => self.request_prepares(now, next, last, out),
        }
    }

    /// Begins the view here once its log is complete and durable: with a durable `log_view` but a
    /// shorter log, this replica would outrank after a crash those that hold the rest.
    pub(crate) fn finish_install(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let Some(install) = &self.install else { return };
        let end = install.log.op;
        if install.vetted < end || install.cut.is_some() {
            return;
        }
        base::invariant_eq!(self.log.op(), end);
        let durable = self.durable() >= end || base::planted::bug(37);
        if self.truncating.is_some() || !durable {
            return;
        }
        self.install = None;
        self.status = Status::Normal;
        self.log_view = self.view;
        base::sometimes!(
            self.trust == Trust::Blank,
            "consensus: a blank replica holds the log of a view"
        );
        base::sometimes!(
            self.trust == Trust::Doubt,
            "consensus: a log in doubt is replaced by that of a view"
        );
        self.trust = Trust::Trusted;
        self.undecidable = None;
        for timeout in [Timeout::DoViewChange, Timeout::ViewChange, Timeout::Repair] {
            self.timeouts.clear(timeout);
        }
        if (self.is_primary() && !self.abdicated) || base::planted::bug(44) {
            self.trust_primary();
        }
        // Otherwise a wish stands until the primary is heard: it may have died meanwhile.
        self.barrier = self.log.op();
        if base::planted::bug(6) {
            // Planted: what a vote of an earlier view holds counts as acknowledged in this one.
            for (acked, vote) in self.acked.iter_mut().zip(&self.votes) {
                *acked = vote
                    .as_ref()
                    .map_or(Op(0), |vote| vote.op.min(self.log.op()));
            }
        }
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

    /// A prepare arrives while the log of a view is on its way in. Its identity vouches for it if
    /// the view's log is known to hold it; else its sender does.
    pub(crate) fn repair_install(
        &mut self,
        now: Instant,
        from: ReplicaIndex,
        vouched: bool,
        header: &PrepareHeader,
        frame: Bytes,
        out: &mut Vec<Effect>,
    ) {
        let Some(install) = &self.install else {
            return self.ignore(Ignore::WrongStatus);
        };
        let next = install.vetted.next();
        if header.op != next || header.op > install.log.op || install.cut.is_some() {
            return self.ignore(Ignore::Duplicate);
        }
        match install.log.identity(header.op) {
            Some(known) if known != header.checksum && !base::planted::bug(39) => {
                return self.ignore(Ignore::OtherIdentity);
            }
            Some(_) => {}
            // The logs of voters differ; an earlier incarnation may have asked another one.
            None => {
                let foreign = self.is_primary() && from != install.source();
                if !vouched || (foreign && !base::planted::bug(39)) {
                    return self.ignore(Ignore::CannotVouch);
                }
            }
        }
        let own = self.log.identity(header.op);
        if header.op > self.log.op() || own != Some(header.checksum) {
            self.cut_after(Op(header.op.0 - 1), out);
            let install = self.install.as_ref().expect("still there");
            if install.cut.is_some() || install.vetted.next() != header.op {
                // It will be asked for again.
                return self.ignore(Ignore::Gap);
            }
            if header.parent != self.log.checksum() {
                return self.ignore(Ignore::OtherIdentity);
            }
            self.append(*header, frame, out);
        }
        let install = self.install.as_mut().expect("still there");
        install.vetted = header.op;
        let done = install.vetted >= self.requested || install.vetted == install.log.op;
        self.advance_commit(out);
        if done {
            self.timeouts.clear(Timeout::Repair);
            self.continue_install(now, out);
        }
    }
}
