//! Checkpoints (VR Revisited §5.1): a replica may learn that an op is committed, or take over a
//! whole state, from what another replica's checkpoint says.
//!
//! What a checkpoint covers is committed, whatever the view: it needs nobody to vouch for it. A
//! log that holds another prepare at its op, or ends before it, gives way to it; what is lost with
//! that is covered by the checkpoint or was never committed, since the chain is broken.

use alloc::vec::Vec;

use base::{Instant, Op};
use wire::replica::{PrepareHeader, Trust};

use crate::group::{Effect, Group, Status};

/// What a log has of an op that is known to be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It is applied here.
    Applied,
    /// It is in the log, and so is everything before it.
    Appended,
    /// It is in the log, but bodies before it, or its own, are missing.
    Damaged,
    /// The log ends before it, or has another one there.
    Not,
    /// The log reaches so far, and damage hides what it has there.
    Unknown,
}

impl Group {
    /// What this log has of a committed op with this identity.
    #[must_use]
    pub fn holds(&self, op: Op, checksum: u128) -> Held {
        if op <= self.log.commit() {
            return Held::Applied;
        }
        if op > self.log.op() {
            return Held::Not;
        }
        match self.log.identity(op) {
            None => Held::Unknown,
            Some(own) if own != checksum => Held::Not,
            Some(_) if op <= self.log.complete() => Held::Appended,
            Some(_) => Held::Damaged,
        }
    }

    /// An op that this log holds is certainly committed, and with it all before it.
    pub fn on_certified(&mut self, now: Instant, op: Op, checksum: u128, out: &mut Vec<Effect>) {
        if self.holds(op, checksum) != Held::Appended {
            return;
        }
        self.commit_max = self.commit_max.max(op);
        if let Some(install) = &mut self.install {
            install.vetted = install.vetted.max(op.min(install.log.op));
        }
        self.advance_commit(out);
        self.continue_install(now, out);
        self.invariants();
    }

    /// A checkpoint whose last op is that of `header` is durable and applied here. If the log did
    /// not hold that op, the journal is empty after it; else it keeps what comes after.
    ///
    /// # Panics
    /// If nothing is gained by it, or it cannot be told.
    pub fn install_checkpoint(
        &mut self,
        now: Instant,
        header: &PrepareHeader,
        out: &mut Vec<Effect>,
    ) {
        let op = header.op;
        let held = self.holds(op, header.checksum);
        base::invariant!(matches!(held, Held::Not | Held::Damaged));
        if held == Held::Damaged {
            return self.skip_to_checkpoint(now, header, out);
        }
        self.log.reset(header);
        self.begin_after((op, header.checksum), now, out);
    }

    /// The state is that of a checkpoint, and the log is given up for one that begins after `base`
    /// and is to be filled from the others': the journal is empty after it. `base` is committed,
    /// and the checkpoint covers all this replica may have acknowledged.
    ///
    /// If the log reached further than `base`, it is no witness of that any more: until it holds
    /// again what its primary holds, it is in doubt.
    ///
    /// # Panics
    /// If nothing is gained by it.
    pub fn rewind(&mut self, now: Instant, base: (Op, u128), out: &mut Vec<Effect>) {
        base::invariant!(base.0 > self.log.commit());
        base::sometimes!("transfer: a log is filled from where the others' begin");
        // A log that ends before has acknowledged nothing that it will not hold or the base covers.
        let loses = self.log.op() > base.0;
        self.log.rewind(base.0, base.1);
        if loses && self.config.replica_count > 1 && self.trust == Trust::Trusted {
            self.trust = Trust::Doubt;
            self.trusted_from = None;
            self.persist(out);
        }
        self.begin_after(base, now, out);
    }

    /// The log is empty after a committed op.
    fn begin_after(&mut self, (op, checksum): (Op, u128), now: Instant, out: &mut Vec<Effect>) {
        self.commit_max = self.commit_max.max(op);
        self.written = op;
        self.truncating = None;
        self.touch();
        match (self.status, &mut self.install) {
            (Status::Normal, _) => {
                self.send_prepare_ok(out);
                self.request_missing(now, out);
            }
            (Status::ViewChange, Some(install)) => {
                // The view's log may have grown, or been overtaken: what is committed is in any
                // log from here on.
                install.vetted = op;
                install.cut = None;
                if install.log.op < op {
                    install.log.op = op;
                    install.log.checksum = checksum;
                    install.log.headers.clear();
                }
                self.continue_install(now, out);
            }
            (Status::ViewChange, None) => {
                // What this replica has told of its log is no longer so.
                if self.view_durable == self.view {
                    self.send_do_view_change(now, out);
                }
            }
        }
        self.invariants();
    }

    /// What is missing of this log up to the op of `header` is not needed any more.
    fn skip_to_checkpoint(&mut self, now: Instant, header: &PrepareHeader, out: &mut Vec<Effect>) {
        base::sometimes!("transfer: damage is covered by a checkpoint, and the log after it kept");
        self.log.skip_to(header);
        self.commit_max = self.commit_max.max(header.op);
        if let Some(install) = &mut self.install {
            install.vetted = install.vetted.max(header.op.min(install.log.op));
        }
        self.touch();
        self.advance_commit(out);
        match (self.status, &self.install) {
            (Status::Normal, _) => {
                self.send_prepare_ok(out);
                self.request_missing(now, out);
            }
            (Status::ViewChange, Some(_)) => self.continue_install(now, out),
            (Status::ViewChange, None) => {
                if self.view_durable == self.view {
                    self.send_do_view_change(now, out);
                }
            }
        }
        self.invariants();
    }
}
