//! Normal operation (VSR Revisited §4.1): prepare, prepare_ok, commit.

use alloc::vec::Vec;

use base::{Bytes, Instant, Op, ReplicaIndex, View};
use wire::replica::{GroupStatus, Message, PrepareHeader, StatusRole};

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
            commit: self.log.commit(),
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
        let stale = header.view < self.view && !base::planted::bug(18);
        if stale {
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

    /// Appends a prepare of the view's log.
    pub(crate) fn append(&mut self, header: PrepareHeader, frame: Bytes, out: &mut Vec<Effect>) {
        self.log.append(header, frame.clone());
        out.push(Effect::Append { prepare: frame });
        if base::planted::bug(1) && self.status == Status::Normal {
            // Planted: acknowledged before the write has completed.
            self.durable = self.log.op();
            self.send_prepare_ok(out);
        }
    }

    /// The journal is as durable as the mode asks up to `op`.
    pub fn on_durable(&mut self, now: Instant, op: Op, out: &mut Vec<Effect>) {
        base::invariant!(op <= self.log.op());
        self.durable = self.durable.max(op);
        self.check_trust();
        if self.status == Status::Normal && self.log_view_durable == self.view {
            if self.is_primary() {
                self.acked[usize::from(self.config.replica.0)] = self.durable;
                self.try_commit(out);
            } else {
                self.send_prepare_ok(out);
            }
        }
        self.finish_install(now, out);
        self.invariants();
    }

    /// A backup acknowledges all that is durable here, if its log belongs durably to the view.
    pub(crate) fn send_prepare_ok(&self, out: &mut Vec<Effect>) {
        let settled = self.status == Status::Normal && !self.is_primary();
        let spoken = self.log_view_durable == self.view || base::planted::bug(8);
        if !settled || !spoken {
            return;
        }
        let Some(header) = self.log.header(self.durable) else {
            return;
        };
        let group = self.config.group;
        let message = Message::PrepareOk {
            group,
            op: header.op,
            checksum: header.checksum,
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
        if view != self.view && !base::planted::bug(6) {
            return self.ignore(Ignore::OlderView);
        }
        if !self.is_primary() {
            return self.ignore(Ignore::NotPrimary);
        }
        if self.status != Status::Normal {
            return self.ignore(Ignore::WrongStatus);
        }
        let known = self
            .log
            .header(op)
            .is_some_and(|header| header.checksum == checksum);
        if !known && op > self.log.commit() && !base::planted::bug(6) {
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
    /// normal operation, up to `vetted` while the log of a view is on its way in.
    pub(crate) fn advance_commit(&mut self, out: &mut Vec<Effect>) {
        let limit = match (self.status, self.install) {
            (Status::Normal, _) => self.log.op(),
            (Status::ViewChange, Some(install)) => install.vetted,
            (Status::ViewChange, None) => return,
        };
        while self.log.commit() < limit.min(self.commit_max) {
            let prepare = self.log.commit_next();
            out.push(Effect::Commit { prepare });
            self.touch();
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
        self.target = self.target.max(primary.op);
        let committed = if base::planted::bug(15) {
            primary.op
        } else {
            primary.commit
        };
        self.commit_max = self.commit_max.max(committed);
        self.advance_commit(out);
        if !self.trusted {
            self.trusted_from.get_or_insert(primary.op);
            self.check_trust();
        }
        self.request_missing(now, out);
        if primary.commit < self.durable {
            self.send_prepare_ok(out);
        }
    }

    /// A log in doubt is trusted again once it durably holds what its primary held when it was
    /// heard: all this replica may have acknowledged in the view. Not before: the trust outlives
    /// a crash of the process, so what it rests on must too.
    fn check_trust(&mut self) {
        let held = if base::planted::bug(43) {
            self.log.op()
        } else {
            self.durable
        };
        if self.trusted_from.is_some_and(|op| held >= op) {
            self.trusted_from = None;
            self.trusted = true;
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
