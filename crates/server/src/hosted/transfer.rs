//! State transfer: a replica that misses ops which its peers' logs no longer hold takes over a
//! peer's checkpoint, part by part, and goes on from there.
//!
//! ```text
//!   asked for ops before its log ─▶ a peer answers with the start of its newest checkpoint
//!   fetching: part after part, from whoever has the same one ─▶ whole, verified
//!   saving:   durable here ─▶ the log is reset to its op ─▶ the state machine is replaced
//! ```
//!
//! The log of a partition is what consumers are served from, so it is not empty afterwards: it
//! begins where the source's log does, and is filled by repair. What comes up to the checkpoint's
//! op is in the state already.
//!
//! Until the checkpoint is durable nothing has changed: a crash begins again. Once it is, a start
//! finds a log that ends before its checkpoint, and does the rest.
//!
//! **Invariant:** a log is given up only for a checkpoint of a later op, or of one where it holds
//! another prepare: what it then loses was committed and is covered, or never was.

use alloc::{boxed::Box, vec::Vec};

use base::{Bytes, Instant, Op, ReplicaIndex, View, checksum::xxh3_128};
use consensus::Held;
use platform::Level;
use storage::Checkpoint;
use wire::{
    ErrorCode,
    replica::{CheckpointMark, Message, PrepareHeader},
};

use super::{
    Hosted, State, Waiter,
    checkpoint::{Restored, restore},
};
use crate::{Observation, core::Core};

/// A checkpoint on its way into this replica.
pub(super) struct Transfer {
    stage: Stage,
    /// Whom the last request went to.
    source: ReplicaIndex,
    /// When to ask again, perhaps somebody else.
    retry_at: Instant,
}

enum Stage {
    /// Nobody has told of a checkpoint yet.
    Seeking,
    /// Parts up to the length of `body` have come.
    Fetching { mark: CheckpointMark, body: Vec<u8> },
    /// Whole; becoming durable.
    Saving(Box<Saving>),
}

struct Saving {
    header: PrepareHeader,
    restored: Restored,
    /// After which op the log is to begin, and its identity: the checkpoint's own, but that
    /// consumers read the log of a partition, which therefore begins where the source's does.
    base: (Op, u128),
}

impl Transfer {
    pub(super) const fn is_saving(&self) -> bool {
        matches!(self.stage, Stage::Saving(_))
    }

    pub(super) const fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Saving(_) => None,
            Stage::Seeking | Stage::Fetching { .. } => Some(self.retry_at),
        }
    }
}

impl Hosted {
    /// This replica cannot go on from what its disk holds: it asks around for a checkpoint.
    pub(super) fn seek_checkpoint(&mut self, core: &mut Core) {
        self.keeping.transfer = Some(Transfer {
            stage: Stage::Seeking,
            source: core.config.replica,
            retry_at: core.now.monotonic,
        });
        core.timed.insert(self.id);
        self.ask_for_part(core);
    }

    /// A part of a checkpoint has come, asked for or as the answer to a request for ops.
    pub(super) fn on_chunk(
        &mut self,
        from: ReplicaIndex,
        (mark, offset): (CheckpointMark, u64),
        bytes: &Bytes,
        core: &mut Core,
    ) {
        if mark.base > mark.op {
            // Its source has trimmed its log beyond it meanwhile: there would be ops between the
            // state and the log that neither has.
            return;
        }
        if self.is_ahead_of(&mark) {
            return self.rewind((mark.base, mark.base_identity), core);
        }
        if !self.is_of_use(&mark, core) {
            self.drop_what_nobody_repairs(&mark, core);
            return;
        }
        match &mut self.keeping.transfer {
            Some(Transfer {
                stage: Stage::Saving(_),
                ..
            }) => return,
            Some(Transfer {
                stage: Stage::Fetching { mark: known, body },
                source,
                ..
            }) => {
                if known.is_same(&mark) {
                    // Its source may have trimmed its log meanwhile.
                    if known.base < mark.base {
                        (known.base, known.base_identity) = (mark.base, mark.base_identity);
                    }
                    if offset != body.len() as u64 {
                        return;
                    }
                    body.extend_from_slice(bytes);
                    *source = from;
                } else if from == *source && known.op < mark.op && offset == 0 {
                    base::sometimes!("transfer: the target has moved");
                    self.begin_fetching(from, mark, bytes, core);
                } else {
                    return;
                }
            }
            Some(Transfer {
                stage: Stage::Seeking,
                ..
            })
            | None => {
                if offset != 0 {
                    return;
                }
                base::sometimes!("transfer: begins");
                self.begin_fetching(from, mark, bytes, core);
            }
        }
        self.continue_fetching(core);
    }

    /// Whether this replica would go on from a checkpoint, and from nothing less.
    fn is_of_use(&mut self, mark: &CheckpointMark, core: &mut Core) -> bool {
        let now = core.now.monotonic;
        let known_base = mark.base == Op(0) || mark.base_identity != 0;
        if self.partition.is_some() && !known_base {
            return false;
        }
        match &self.state {
            State::Stranded(recovery) => mark.op >= recovery.base(),
            State::Running(group) => match group.holds(mark.op, mark.identity) {
                Held::Applied => false,
                Held::Appended => {
                    base::sometimes!("transfer: the log has it all, and now knows it");
                    let (op, checksum) = (mark.op, mark.identity);
                    self.drive(core, |group, out| {
                        group.on_certified(now, op, checksum, out)
                    });
                    false
                }
                // Which one it is will be known once more of the damage is repaired.
                Held::Unknown => false,
                // A peer whose log goes back far enough repairs this one op by op.
                Held::Not if self.partition.is_some() => mark.base > group.commit(),
                Held::Not | Held::Damaged => {
                    self.keeping.transfer.is_some() || mark.base > group.commit()
                }
            },
            _ => false,
        }
    }

    /// A peer no longer has the ops that are damaged here, and this replica's own newest
    /// checkpoint covers them: they need no repair, they may go, as they went there.
    fn drop_what_nobody_repairs(&mut self, mark: &CheckpointMark, core: &mut Core) {
        if self.partition.is_some() || self.group().is_none() {
            return;
        }
        let newest = self.keeping.newest_op();
        let gaps = self.journal.gaps();
        let covered = |gap: &&storage::Gap| gap.to <= newest.min(mark.base);
        let Some(lowest) = gaps.first().filter(covered) else {
            return;
        };
        base::sometimes!("server: damage that no peer can repair is behind the checkpoint");
        let (id, from, to) = (self.id, lowest.from, lowest.to);
        let line = alloc::format!("group {id}: ops {from} to {to} go, a checkpoint covers them");
        core.log(Level::Info, line);
        self.journal
            .drop_before(newest, &mut core.files, &mut core.out);
    }

    fn begin_fetching(
        &mut self,
        from: ReplicaIndex,
        mark: CheckpointMark,
        bytes: &Bytes,
        core: &mut Core,
    ) {
        let (id, op) = (self.id, mark.op);
        let line = alloc::format!("group {id}: takes over the checkpoint of op {op}");
        core.log(Level::Info, line);
        let now = core.now.monotonic;
        // Elected, it would hold the group up for as long as this takes.
        self.drive(core, |group, out| group.forfeit(now, out));
        let body = bytes.to_vec();
        self.keeping.transfer = Some(Transfer {
            stage: Stage::Fetching { mark, body },
            source: from,
            retry_at: core.now.monotonic,
        });
        core.timed.insert(self.id);
    }

    /// Asks for the next part, or verifies and saves the whole.
    fn continue_fetching(&mut self, core: &mut Core) {
        let Some(transfer) = &mut self.keeping.transfer else {
            return;
        };
        let Stage::Fetching { mark, body } = &mut transfer.stage else {
            return;
        };
        if (body.len() as u64) < mark.size {
            let to = transfer.source;
            return self.ask_part_of(to, core);
        }
        let mark = *mark;
        let body = Bytes::copy_of(body);
        let whole = body.len() as u64 == mark.size && xxh3_128(&body) == mark.digest;
        let mut checkpoint = Checkpoint {
            mark,
            body,
            replaces: Some(self.journal.head().0),
        };
        let restored = whole
            .then(|| restore(self.id, self.partition.as_deref(), &checkpoint, core))
            .flatten();
        let Some((header, restored)) = restored else {
            base::sometimes!("transfer: what has come is not whole");
            let (id, op) = (self.id, mark.op);
            let line = alloc::format!("group {id}: the checkpoint of op {op} came damaged");
            core.log(Level::Warn, line);
            return self.seek_checkpoint(core);
        };
        // The log will begin after it, unless it is one that consumers read.
        let mut base = (mark.op, mark.identity);
        if self.partition.is_some() {
            base = (mark.base, mark.base_identity);
        }
        (checkpoint.mark.base, checkpoint.mark.base_identity) = base;
        let saving = Saving {
            header,
            restored,
            base,
        };
        transfer.stage = Stage::Saving(Box::new(saving));
        self.keeping.save(checkpoint, core);
    }

    /// The timer of a transfer: whoever was asked may be dead, slow, or no longer have it.
    pub(super) fn on_transfer_timer(&mut self, core: &mut Core) {
        let now = core.now.monotonic;
        let due = |transfer: &Transfer| transfer.deadline().is_some_and(|at| at <= now);
        if !self.keeping.transfer.as_ref().is_some_and(due) {
            return;
        }
        if self.is_overtaken() {
            base::sometimes!("transfer: repaired op by op meanwhile");
            self.keeping.transfer = None;
            return;
        }
        base::sometimes!("transfer: asks another replica for the rest");
        self.ask_for_part(core);
    }

    /// Whether this replica has applied what the checkpoint being fetched would bring.
    fn is_overtaken(&self) -> bool {
        let Some(Transfer { stage, .. }) = &self.keeping.transfer else {
            return false;
        };
        let commit = self.group().map(consensus::Group::commit);
        match (stage, commit) {
            (Stage::Fetching { mark, .. }, Some(commit)) => mark.op <= commit,
            // It ran all the time: its own requests for ops will tell again.
            (Stage::Seeking, Some(_)) => true,
            _ => false,
        }
    }

    /// Asks any replica for the next part.
    fn ask_for_part(&mut self, core: &mut Core) {
        let up = core.links.up();
        let to = if up.is_empty() {
            core.config.replica
        } else {
            up[core.prng.index(up.len())]
        };
        self.ask_part_of(to, core);
    }

    fn ask_part_of(&mut self, to: ReplicaIndex, core: &mut Core) {
        let view = self.group().map_or(View(0), consensus::Group::view);
        let Some(transfer) = &mut self.keeping.transfer else {
            return;
        };
        let (op, offset) = match &transfer.stage {
            Stage::Fetching { mark, body } => (mark.op, body.len() as u64),
            Stage::Seeking => (Op(0), 0),
            Stage::Saving(_) => return,
        };
        let retry = core.config.timing.repair_retry * 2;
        transfer.source = to;
        transfer.retry_at = core.now.monotonic + core.prng.duration(retry, retry * 2);
        if to == core.config.replica {
            return; // Nobody is there.
        }
        let group = self.id;
        let message = Message::RequestCheckpoint { group, op, offset };
        let frame = message.encode(core.config.cluster, view, core.config.replica);
        core.links.send(to, frame, &mut core.out);
    }

    /// There was no space for the checkpoint: later, from the start.
    pub(super) fn on_transfer_unsaved(&mut self, op: Op, core: &mut Core) {
        let saving = |transfer: &Transfer| match &transfer.stage {
            Stage::Saving(saving) => saving.header.op == op,
            _ => false,
        };
        if self.keeping.transfer.as_ref().is_some_and(saving) {
            base::sometimes!("transfer: no space for the checkpoint");
            self.seek_checkpoint(core);
        }
    }

    /// A checkpoint is durable; true if it is the one being taken over, which is then installed.
    pub(super) fn on_transfer_saved(&mut self, op: Op, core: &mut Core) -> bool {
        let saving = |transfer: &mut Transfer| match &transfer.stage {
            Stage::Saving(saving) => saving.header.op == op,
            _ => false,
        };
        let Some(transfer) = self.keeping.transfer.take_if(saving) else {
            return false;
        };
        let Stage::Saving(saving) = transfer.stage else {
            unreachable!("just looked at")
        };
        let Saving {
            header,
            restored,
            base,
        } = *saving;
        match &self.state {
            State::Running(group) => match group.holds(op, header.checksum) {
                // Repaired so far meanwhile that the peers have the rest.
                Held::Not if self.partition.is_some() && base.0 <= group.commit() => {}
                held @ (Held::Not | Held::Damaged) => {
                    self.install(held, (header, restored), base, core);
                }
                // Repaired op by op while it became durable.
                Held::Applied | Held::Appended | Held::Unknown => return false,
            },
            State::Stranded(_) => self.rescue((header, restored), base, core),
            _ => return false,
        }
        true
    }

    /// A running group goes on from a checkpoint: its log is given up for it, or what is damaged
    /// of it.
    fn install(
        &mut self,
        held: Held,
        (header, restored): (PrepareHeader, Restored),
        base: (Op, u128),
        core: &mut Core,
    ) {
        base::sometimes!("transfer: a running replica goes on from a checkpoint");
        let now = core.now.monotonic;
        let op = header.op;
        if held == Held::Not {
            self.journal
                .reset(base.0, base.1, &mut core.files, &mut core.out);
            self.pending.clear();
            self.bodies.clear();
            self.behind_gap = false;
        }
        let later = |frame: &Bytes| PrepareHeader::decode(frame).is_ok_and(|it| it.op > op);
        self.pending.retain(later);
        self.refuse_waiters(core);
        self.begin_from(header, restored, core);
        self.reset_appended();
        if held == Held::Not && self.partition.is_some() {
            self.rewind_group(base, core);
        } else {
            self.drive(core, |group, out| {
                group.install_checkpoint(now, &header, out)
            });
            self.mend_pending();
        }
        core.urgent = true;
    }

    fn refuse_waiters(&mut self, core: &mut Core) {
        for (_, waiter) in ::core::mem::take(&mut self.waiters) {
            let (Waiter::Client(ask) | Waiter::Poll(ask, _)) = waiter;
            core.answers
                .push(ask.refuse(ErrorCode::TRANSIENT_NOT_COMMITTED));
        }
    }

    /// Whether the state has all that a peer's checkpoint would bring, and the log ends before the
    /// peer's begins: it was being filled, and the others have trimmed theirs meanwhile.
    fn is_ahead_of(&self, mark: &CheckpointMark) -> bool {
        let transferring = self.keeping.transfer.is_some();
        let behind = |group: &consensus::Group| group.op() < mark.base;
        self.is_in_state(mark.op)
            && mark.base_identity != 0
            && !transferring
            && self.group().is_some_and(behind)
    }

    /// The log is filled from where the others' begin.
    fn rewind(&mut self, base: (Op, u128), core: &mut Core) {
        base::sometimes!("transfer: others have trimmed what a log is being filled with");
        self.journal
            .reset(base.0, base.1, &mut core.files, &mut core.out);
        self.pending.clear();
        self.bodies.clear();
        self.behind_gap = false;
        self.refuse_waiters(core);
        self.reset_appended();
        self.rewind_group(base, core);
        core.urgent = true;
    }

    fn rewind_group(&mut self, base: (Op, u128), core: &mut Core) {
        let (now, group) = (core.now.monotonic, self.id);
        self.drive(core, |group, out| group.rewind(now, base, out));
        if self.group().is_some_and(|group| !group.is_trusted()) {
            core.observe(|| Observation::Doubt { group, op: base.0 });
        }
    }
}
