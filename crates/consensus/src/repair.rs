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
        match self.install {
            Some(install) if self.is_primary() && !base::planted::bug(39) => install.source,
            _ if primary != self.config.replica && self.prng.chance(3, 4) => primary,
            _ => {
                let others: Vec<ReplicaIndex> = self.others().collect();
                others[self.prng.index(others.len())]
            }
        }
    }

    pub(crate) fn on_repair_timeout(&mut self, now: Instant, out: &mut Vec<Effect>) {
        match self.install {
            Some(install) if install.vetted < install.op => {
                self.request_prepares(now, install.vetted.next(), install.op, out);
            }
            Some(_) => {}
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
        if view != self.view {
            return self.ignore(Ignore::OlderView);
        }
        match self.status {
            Status::Normal => self.repair_normal(now, header, frame, out),
            Status::ViewChange => self.repair_install(now, from, header, frame, out),
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

    fn repair_install(
        &mut self,
        now: Instant,
        from: ReplicaIndex,
        header: &PrepareHeader,
        frame: Bytes,
        out: &mut Vec<Effect>,
    ) {
        let Some(mut install) = self.install else {
            return self.ignore(Ignore::WrongStatus);
        };
        // The logs of voters differ; an earlier incarnation may have asked another one.
        let foreign = self.is_primary() && from != install.source;
        if foreign && !base::planted::bug(39) {
            return self.ignore(Ignore::CannotVouch);
        }
        if header.op != install.vetted.next() || header.op > install.op {
            return self.ignore(Ignore::Duplicate);
        }
        let own = self.log.header(header.op).map(|own| own.checksum);
        if own != Some(header.checksum) {
            if header.op <= self.log.op() {
                self.truncate_after(Op(header.op.0 - 1), out);
            }
            if header.parent != self.log.checksum() {
                return self.ignore(Ignore::OtherIdentity);
            }
            self.append(*header, frame, out);
        }
        install.vetted = header.op;
        self.install = Some(install);
        self.advance_commit(out);
        if install.vetted >= self.requested || install.vetted == install.op {
            self.timeouts.clear(Timeout::Repair);
            self.continue_install(now, out);
        }
    }
}
