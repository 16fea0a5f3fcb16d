//! Normal operation (VSR Revisited §4.1): prepare, prepare_ok, commit.

use alloc::vec::Vec;

use base::{Bytes, Instant, Op, ReplicaIndex, View};
use wire::replica::{GroupStatus, Message, PrepareHeader, StatusRole, Trust};

use crate::{
    group::{Effect, Group, PrepareSlot, Status},
    ignore::Ignore,
};

impl Group {
    /// Where the next prepare goes.
    ///
    /// # Panics
    /// Unless [`Self::can_prepare`].
    #[must_use]
    pub fn next_slot(&self) -> PrepareSlot {
        base::invariant!(self.can_prepare());
        PrepareSlot {
            view: self.view,
            op: self.log.op().next(),
            parent: self.log.checksum(),
            commit: self.log.committed(),
        }
    }

    /// The primary appends a prepare that it has sealed for [`Self::next_slot`].
    ///
    /// # Panics
    /// If it does not fit the slot.
    pub fn prepare(&mut self, header: PrepareHeader, frame: Bytes, out: &mut Vec<Effect>) {
        base::invariant!(self.can_prepare());
        base::invariant_eq!(header.view, self.view);
        base::invariant_eq!(header.group, self.config.group);
        self.log.append(header, frame.clone());
        out.push(Effect::Append {
            prepare: frame.clone(),
        });
        for to in self.others() {
            out.push(Effect::Send {
                to,
                frame: frame.clone(),
            });
        }
        self.invariants();
    }

    /// A backup is told a prepare by `from`; the frame is verified.
    pub fn on_prepare(
        &mut self,
        now: Instant,
        from: ReplicaIndex,
        header: &PrepareHeader,
        frame: Bytes,
        out: &mut Vec<Effect>,
    ) {
        if header.view > self.view {
            // Its view has begun without us: ask its primary for the log of the view.
            self.enter_view_change(now, header.view, out);
            self.target = header.op;
            return;
        }
        if header.view < self.view {
            if base::planted::bug(18) {
                // Planted: a view that was left is still served.
                self.append_stale(header, frame, out);
            }
            return self.ignore(Ignore::OlderView);
        }
        if from != header.view.primary(self.config.replica_count) || from == self.config.replica {
            return self.ignore(Ignore::NotFromPrimary);
        }
        self.target = self.target.max(header.op);
        if self.status != Status::Normal {
            return self.ignore(Ignore::WrongStatus);
        }
        if header.op <= self.log.op() {
            self.send_prepare_ok(out);
            return self.ignore(Ignore::Duplicate);
        }
        if header.op > self.log.op().next() {
            self.request_missing(now, out);
            return self.ignore(Ignore::Gap);
        }
        if header.parent != self.log.checksum() {
            return self.ignore(Ignore::OtherIdentity);
        }
        self.append(*header, frame, out);
        self.commit_max = self.commit_max.max(header.commit);
        self.advance_commit(out);
        self.invariants();
    }

    /// Planted bug 18: a backup that has promised a later view appends a prepare of the view that
    /// its log belongs to.
    fn append_stale(&mut self, header: &PrepareHeader, frame: Bytes, out: &mut Vec<Effect>) {
        let fits = header.op == self.log.op().next() && header.parent == self.log.checksum();
        let stale = self.status == Status::ViewChange && header.view == self.log_view;
        if fits && stale && self.install.is_none() && self.truncating.is_none() {
            self.append(*header, frame, out);
        }
    }

    /// Planted bug 18: and acknowledges it, in the view that it has left.
    fn acknowledge_stale(&self, out: &mut Vec<Effect>) {
        let op = self.durable();
        let to = self.log_view.primary(self.config.replica_count);
        if let Some(checksum) = self.log.identity(op)
            && to != self.config.replica
            && op > Op(0)
        {
            let group = self.config.group;
            let message = Message::PrepareOk {
                group,
                op,
                checksum,
            };
            let frame = message.encode(self.config.cluster, self.log_view, self.config.replica);
            out.push(Effect::Send { to, frame });
        }
    }

    /// Appends a prepare of the view's log.
    pub(crate) fn append(&mut self, header: PrepareHeader, frame: Bytes, out: &mut Vec<Effect>) {
        self.log.append(header, frame.clone());
        out.push(Effect::Append { prepare: frame });
        if base::planted::bug(1) && self.status == Status::Normal {
            // Planted: acknowledged before the write has completed.
            self.written = self.log.op();
            self.send_prepare_ok(out);
        }
    }

    /// The journal is as durable as the mode asks up to `op`; it may still miss bodies before.
    pub fn on_durable(&mut self, now: Instant, op: Op, out: &mut Vec<Effect>) {
        base::invariant!(op <= self.log.op());
        self.written = self.written.max(op);
        self.durable_grew(now, out);
        self.invariants();
    }

    /// The journal durably holds a body again that was missing. The frame is verified.
    pub fn on_repaired(
        &mut self,
        now: Instant,
        header: PrepareHeader,
        frame: Bytes,
        out: &mut Vec<Effect>,
    ) {
        if !self.log.repair(header, frame) {
            return self.ignore(Ignore::Duplicate);
        }
        base::sometimes!("consensus: a missing body is back");
        self.advance_commit(out);
        self.durable_grew(now, out);
        self.invariants();
    }

    fn durable_grew(&mut self, now: Instant, out: &mut Vec<Effect>) {
        self.check_trust(out);
        if base::planted::bug(18) && self.status == Status::ViewChange {
            self.acknowledge_stale(out);
        }
        if self.status == Status::Normal && self.is_settled() {
            if self.is_primary() {
                self.acked[usize::from(self.config.replica.0)] = self.durable();
                self.try_commit(out);
            } else {
                self.send_prepare_ok(out);
            }
        }
        self.finish_install(now, out);
    }

    /// A backup acknowledges all that is durable here, if its log belongs durably to the view.
    pub(crate) fn send_prepare_ok(&self, out: &mut Vec<Effect>) {
        let settled = self.status == Status::Normal && !self.is_primary();
        let spoken = self.is_settled() || base::planted::bug(8);
        if !settled || !spoken {
            return;
        }
        let op = self.durable();
        let checksum = self.log.identity(op);
        let Some(checksum) = checksum.filter(|_| op > Op(0)) else {
            return;
        };
        let group = self.config.group;
        let message = Message::PrepareOk {
            group,
            op,
            checksum,
        };
        self.send(self.primary(), &message, out);
    }

    pub(crate) fn on_prepare_ok(
        &mut self,
        from: ReplicaIndex,
        view: View,
        op: Op,
        checksum: u128,
        out: &mut Vec<Effect>,
    ) {
        if view != self.view {
            return self.ignore(Ignore::OlderView);
        }
        if !self.is_primary() {
            return self.ignore(Ignore::NotPrimary);
        }
        if self.status != Status::Normal {
            return self.ignore(Ignore::WrongStatus);
        }
        let known = self.log.identity(op) == Some(checksum);
        if !known && op > self.log.committed() {
            return self.ignore(Ignore::OtherIdentity);
        }
        let acked = &mut self.acked[usize::from(from.0)];
        *acked = (*acked).max(op.min(self.log.op()));
        self.try_commit(out);
    }

    /// Commits what a quorum holds.
    pub(crate) fn try_commit(&mut self, out: &mut Vec<Effect>) {
        base::invariant!(self.is_primary() && self.status == Status::Normal);
        let count = usize::from(self.config.replica_count);
        let committed = self.quorums.committed(&self.acked[..count]);
        base::invariant!(committed <= self.log.op());
        self.commit_max = self.commit_max.max(committed);
        self.advance_commit(out);
    }

    /// Hands out all that is known to be committed and known to be of this log: everything in
    /// normal operation, up to `vetted` while the log of a view is on its way in. A missing body
    /// holds it back.
    pub(crate) fn advance_commit(&mut self, out: &mut Vec<Effect>) {
        let limit = match (self.status, &self.install) {
            (Status::Normal, _) => self.log.op(),
            (Status::ViewChange, Some(install)) => install.vetted.max(self.log.committed()),
            (Status::ViewChange, None) => self.log.committed(),
        };
        self.log.commit_up_to(limit.min(self.commit_max));
        while let Some(prepare) = self.log.commit_next() {
            out.push(Effect::Commit { prepare });
            self.touch();
            if self.status == Status::Normal {
                // The view works.
                self.fruitless = 0;
            }
        }
    }

    /// A peer says where it stands in this group.
    pub fn on_status(
        &mut self,
        now: Instant,
        from: ReplicaIndex,
        peer: &GroupStatus,
        out: &mut Vec<Effect>,
    ) {
        self.release(now, from, peer, out);
        self.hear(now, from, peer, out);
        if peer.role == StatusRole::Normal {
            // Whoever still wishes repeats it.
            self.wishes[usize::from(from.0)] = View(0);
        }
        if peer.view > self.view {
            self.enter_view_change(now, peer.view, out);
        } else if peer.view < self.view {
            self.tell_view(from, out);
        } else if self.status == Status::ViewChange {
            if peer.role == StatusRole::Normal && from == self.primary() && self.install.is_none() {
                self.vote(now, out);
            }
        } else if self.is_primary() {
            match peer.role {
                StatusRole::ViewChange => self.tell_view(from, out),
                // A backup that suspects this primary is told that it is well.
                StatusRole::Abdicated => self.touch(),
                StatusRole::Rejoining => self.make_way(now, out),
                StatusRole::Doubt => {}
                StatusRole::Normal if peer.op < self.log.op() => self.touch(),
                // It may have been between views when the commit was told.
                StatusRole::Normal if peer.commit < self.log.commit() => self.touch(),
                StatusRole::Normal => {}
            }
        } else if from == self.primary() {
            match peer.role {
                StatusRole::Normal => self.on_primary_status(now, peer, out),
                _ => self.suspect(now, out),
            }
        }
        self.invariants();
    }

    /// A backup hears from the primary of its view.
    fn on_primary_status(&mut self, now: Instant, primary: &GroupStatus, out: &mut Vec<Effect>) {
        self.trust_primary();
        self.fruitless = 0;
        self.target = self.target.max(primary.op);
        let committed = if base::planted::bug(15) {
            primary.op
        } else {
            primary.commit
        };
        self.commit_max = self.commit_max.max(committed);
        self.advance_commit(out);
        if self.trust == Trust::Doubt {
            self.trusted_from.get_or_insert(primary.op);
            self.check_trust(out);
        }
        self.request_missing(now, out);
        if primary.commit < self.durable() {
            self.send_prepare_ok(out);
        }
    }

    /// A log in doubt is trusted again once it durably holds what its primary held when it was
    /// heard: all this replica may have acknowledged in the view. Not before: the trust outlives
    /// a crash of the process, so what it rests on must too.
    fn check_trust(&mut self, out: &mut Vec<Effect>) {
        let held = if base::planted::bug(43) {
            self.log.op()
        } else {
            self.durable()
        };
        if self.trusted_from.is_some_and(|op| held >= op) {
            base::sometimes!("consensus: a log in doubt has caught up with its primary");
            self.trusted_from = None;
            self.trust = Trust::Trusted;
            self.persist(out);
            self.touch();
        }
    }

    /// Tells a replica that is behind where this one is; with the log, if this is the primary.
    fn tell_view(&mut self, to: ReplicaIndex, out: &mut Vec<Effect>) {
        if self.leads() {
            self.send_start_view(to, out);
        } else {
            self.touch();
        }
    }
}
