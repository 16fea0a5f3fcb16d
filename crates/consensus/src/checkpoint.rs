//! Checkpoints (VR Revisited §5.1): a replica may learn that an op is committed, or take over a
//! whole state, from what another replica's checkpoint says.
//!
//! What a checkpoint covers is committed, whatever the view: it needs nobody to vouch for it. A
//! log that holds another prepare at its op, or ends before it, gives way to it; what is lost with
//! that is covered by the checkpoint or was never committed, since the chain is broken.

use alloc::vec::Vec;

use base::{Instant, Op};
use wire::replica::PrepareHeader;

use crate::group::{Effect, Group, Status};

/// What a log has of an op that is known to be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It is applied here.
    Applied,
    /// It is in the log, and so is everything before it.
    Appended,
    /// The log ends before it, or has another one there.
    Not,
}

impl Group {
    /// What this log has of a committed op with this identity.
    #[must_use]
    pub fn holds(&self, op: Op, checksum: u128) -> Held {
        let own = self.log.identity(op);
        if op <= self.log.commit() {
            Held::Applied
        } else if own == Some(checksum) {
            Held::Appended
        } else {
            Held::Not
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

    /// A checkpoint whose last op is that of `header` is durable and applied here, and the
    /// journal is empty after it.
    ///
    /// # Panics
    /// If the log holds it already.
    pub fn install_checkpoint(
        &mut self,
        now: Instant,
        header: &PrepareHeader,
        out: &mut Vec<Effect>,
    ) {
        let op = header.op;
        base::invariant!(self.holds(op, header.checksum) == Held::Not);
        self.log.reset(header);
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
                    install.log.checksum = header.checksum;
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
}
