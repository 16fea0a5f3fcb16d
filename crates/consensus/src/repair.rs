//! Repair (VSR Revisited §5.2): missing prepares are asked for in order, from any replica whose
//! log belongs to the view.

use alloc::vec::Vec;

use base::{Bytes, Instant, Op, ReplicaIndex, View};
use wire::replica::{Message, PrepareHeader};

use crate::{
    group::{Effect, Group, Status},
    ignore::Ignore,
    timeouts::Timeout,
};

impl Group {
    /// A backup in normal operation asks for what it misses, unless it has just done so.
    pub(crate) fn request_missing(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let missing = self.status == Status::Normal && !self.is_primary();
        if missing && self.log.op() < self.target && !self.timeouts.is_set(Timeout::Repair) {
            self.request_prepares(now, self.log.op().next(), self.target, out);
        }
    }

    pub(crate) fn request_prepares(
        &mut self,
        now: Instant,
        from: Op,
        until: Op,
        out: &mut Vec<Effect>,
    ) {
        let last = Op(from.0 + self.config.repair_max - 1).min(until);
        self.requested = last;
        let to = self.choose_source();
        let retry = self.config.timing.repair_retry;
        let jittered = self.prng.duration(retry, retry * 2);
        self.timeouts.set(Timeout::Repair, now, jittered);
        let message = Message::RequestPrepares {
            group: self.config.group,
            from,
            to: last,
        };
        self.send(to, &message, out);
    }

    /// Whom to ask: a new primary only the replica whose vote it took; a backup mostly the
    /// primary, sometimes another, so that no dead or slow one can hold it up.
    fn choose_source(&mut self) -> ReplicaIndex {
        let primary = self.primary();
        let own = primary == self.config.replica;
        match &self.install {
            Some(install) if own && !base::planted::bug(39) => install.source(),
            _ if !own && (base::planted::bug(30) || self.prng.chance(3, 4)) => primary,
            _ => self.choose_other(),
        }
    }

    fn choose_other(&mut self) -> ReplicaIndex {
        let others: Vec<ReplicaIndex> = self.others().collect();
        others[self.prng.index(others.len())]
    }

    /// A new primary asks somebody for a body that the log's source lacks; any replica may have
    /// it, and no choice repeats for ever.
    pub(crate) fn request_body(
        &mut self,
        now: Instant,
        op: Op,
        checksum: u128,
        out: &mut Vec<Effect>,
    ) {
        self.requested = op;
        let to = match &self.install {
            Some(install) if base::planted::bug(30) => install.source(),
            _ => self.choose_other(),
        };
        let retry = self.config.timing.repair_retry;
        let jittered = self.prng.duration(retry, retry * 2);
        self.timeouts.set(Timeout::Repair, now, jittered);
        let group = self.config.group;
        let message = Message::RequestBody {
            group,
            op,
            checksum,
        };
        self.send(to, &message, out);
    }

    pub(crate) fn on_repair_timeout(&mut self, now: Instant, out: &mut Vec<Effect>) {
        match &self.install {
            Some(_) => self.continue_install(now, out),
            None => self.request_missing(now, out),
        }
    }

    pub(crate) fn on_request_prepares(
        &mut self,
        from: ReplicaIndex,
        view: View,
        first: Op,
        last: Op,
        out: &mut Vec<Effect>,
    ) {
        // In a view change only the new primary may ask, and only for a log that stands still.
        let elected = self.status == Status::ViewChange && from == self.primary();
        let vouched = self.status == Status::Normal || elected;
        if !self.vouches(view) || !vouched {
            return self.ignore(Ignore::CannotVouch);
        }
        let until = last
            .min(self.log.op())
            .min(Op(first.0.saturating_add(self.config.repair_max)));
        let hole = self.log.missing().find(|op| *op >= first);
        let until = hole.map_or(until, |op| until.min(Op(op.0 - 1)));
        if first.0 == 0 || first > until {
            return self.ignore(Ignore::Gap);
        }
        out.push(Effect::ServePrepares {
            to: from,
            view,
            from: first,
            until,
        });
    }

    /// A body is asked for by its identity: whoever has it may tell it, whatever its view.
    pub(crate) fn on_request_body(
        &mut self,
        to: ReplicaIndex,
        op: Op,
        checksum: u128,
        out: &mut Vec<Effect>,
    ) {
        let other = self.log.identity(op).is_some_and(|own| own != checksum);
        if op == Op(0) || op > self.log.op() || other || self.log.is_missing(op) {
            return self.ignore(Ignore::OtherIdentity);
        }
        out.push(Effect::ServeBody { to, op, checksum });
    }

    /// A peer, `from`, whose log belongs to `view` sends one of its prepares; the frame is
    /// verified.
    pub fn on_repair(
        &mut self,
        now: Instant,
        from: ReplicaIndex,
        view: View,
        header: &PrepareHeader,
        frame: Bytes,
        out: &mut Vec<Effect>,
    ) {
        if from == self.config.replica || from.0 >= self.config.replica_count {
            return self.ignore(Ignore::Stranger);
        }
        let vouched = view == self.view;
        match self.status {
            Status::Normal if vouched => self.repair_normal(now, header, frame, out),
            Status::Normal => self.ignore(Ignore::OlderView),
            Status::ViewChange => self.repair_install(now, from, vouched, header, frame, out),
        }
        self.invariants();
    }

    fn repair_normal(
        &mut self,
        now: Instant,
        header: &PrepareHeader,
        frame: Bytes,
        out: &mut Vec<Effect>,
    ) {
        if self.is_primary() {
            return self.ignore(Ignore::WrongStatus);
        }
        if header.op <= self.log.op() {
            return self.ignore(Ignore::Duplicate);
        }
        if header.op > self.log.op().next() {
            return self.ignore(Ignore::Gap);
        }
        if header.parent != self.log.checksum() {
            return self.ignore(Ignore::OtherIdentity);
        }
        self.append(*header, frame, out);
        self.advance_commit(out);
        if header.op >= self.requested {
            // The answer is complete; before that, the timer watches over the rest of it.
            self.timeouts.clear(Timeout::Repair);
            self.request_missing(now, out);
        }
    }
}
