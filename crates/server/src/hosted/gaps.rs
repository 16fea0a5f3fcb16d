//! Bodies that damage has taken from this disk: found by recovery, by a read or by the scrubber,
//! and put back in their place from what a peer still has.
//!
//! The identity of what is missing is known, for the log is a chain; so any replica may bring it,
//! in whatever view it is. What is missing was durable here once, so nobody waits for it but who
//! reads it, and the state machine, if it had not been applied before.

use alloc::vec::Vec;

use base::{Bytes, Op, View};
use platform::{Fatal, Level};
use storage::{Gap, Views};
use wire::{
    ErrorCode, Operation,
    replica::{Message, PrepareHeader, Trust},
};

use super::{Hosted, Notice, State};
use crate::{Observation, ask::Ask, core::Core};

/// Ops of one group that one round asks for.
const ASKED_MAX: usize = 16;

impl Hosted {
    /// Ops whose bodies are missing here.
    pub(super) fn on_gap(&mut self, gap: Gap, core: &mut Core) {
        let Gap { from, to, .. } = gap;
        let id = self.id;
        let line = alloc::format!("group {id}: ops {from} to {to} are damaged on this disk");
        core.log(Level::Error, line);
        core.observe(|| Observation::Gap {
            group: id,
            from,
            to,
        });
        // Alone, nobody else has it: whoever reads it is told, and all else goes on.
        if core.config.nodes.len() > 1 {
            core.gapped.insert(id);
        }
    }

    /// Asks a peer for each body that is missing and not in memory here.
    pub(crate) fn ask_for_bodies(&mut self, core: &mut Core) {
        let wanted: Vec<(Op, u128)> = self.journal.wanted().take(ASKED_MAX).collect();
        if wanted.is_empty() && self.journal.gaps().is_empty() {
            core.gapped.remove(&self.id);
            return;
        }
        let own = self.pending.iter().filter(|frame| {
            PrepareHeader::decode(frame)
                .is_ok_and(|header| wanted.contains(&(header.op, header.checksum)))
        });
        for frame in own.cloned().collect::<Vec<Bytes>>() {
            base::sometimes!("server: damage is repaired from memory");
            self.take_body(frame, core);
        }
        let peers = core.links.up();
        if peers.is_empty() {
            return;
        }
        for (op, checksum) in wanted {
            // Whoever has it will do, and nobody knows who that is.
            let to = if base::planted::bug(30) {
                peers[0]
            } else {
                peers[core.prng.index(peers.len())]
            };
            let group = self.id;
            let message = Message::RequestBody {
                group,
                op,
                checksum,
            };
            let frame = message.encode(core.config.cluster, View(0), core.config.replica);
            core.links.send(to, frame, &mut core.out);
        }
    }

    /// A verified prepare that was perhaps asked for by its identity; whether it was wanted.
    pub(super) fn take_body(&mut self, prepare: Bytes, core: &mut Core) -> bool {
        let kept = prepare.clone();
        let taken = self.journal.repair(prepare, &mut core.files, &mut core.out);
        if !taken {
            return false;
        }
        let header = PrepareHeader::decode(&kept).expect("the journal has verified it");
        if self.group().is_none_or(|group| header.op > group.commit()) {
            // The state machine waits for it.
            self.bodies.insert(header.op, kept);
        }
        true
    }

    /// A missing op is in its place again, durably.
    pub(super) fn on_repaired(&mut self, op: Op, core: &mut Core) {
        base::sometimes!("server: a damaged op is in its place again");
        core.observe(|| Observation::Repaired { group: self.id, op });
        let now = core.now.monotonic;
        if let Some(frame) = self.bodies.remove(&op) {
            let header = PrepareHeader::decode(&frame).expect("verified when it was taken");
            self.drive(core, |group, out| {
                group.on_repaired(now, header, frame, out);
            });
        }
        if self.journal.gaps().is_empty() {
            let id = self.id;
            core.gapped.remove(&id);
            core.log(Level::Info, alloc::format!("group {id}: all is repaired"));
        }
        self.mend_pending();
    }

    /// Once nothing is missing after what is applied, the state machine knows again all that is
    /// in the log.
    pub(super) fn mend_pending(&mut self) {
        let State::Running(group) = &self.state else {
            return;
        };
        if !self.behind_gap || !group.is_whole() {
            return;
        }
        base::sometimes!("server: a state catches up with what was behind a gap");
        self.behind_gap = false;
        let applied = self
            .partition()
            .map_or(Op(0), |partition| partition.committed().op);
        let later =
            |frame: &&Bytes| PrepareHeader::decode(frame).is_ok_and(|header| header.op > applied);
        self.pending = group.uncommitted().filter(later).cloned().collect();
        self.reset_appended();
    }

    /// The end of the log is damaged: it may have held more. That must be durable before it is
    /// cut.
    pub(super) fn on_tail_damaged(&mut self, after: Op, core: &mut Core) {
        let id = self.id;
        if core.config.nodes.len() == 1 {
            return self.close_damaged(after.next(), core);
        }
        let line = alloc::format!("group {id}: the log is damaged after op {after}, and cut there");
        core.log(Level::Error, line);
        core.observe(|| Observation::Doubt {
            group: id,
            op: after,
        });
        core.doubtful = true;
        match core.durable_views.get(&id) {
            Some(Views {
                trust: Trust::Trusted,
                view,
                log_view,
            }) => {
                base::sometimes!("server: a damaged end puts a log in doubt");
                let (view, log_view) = (*view, *log_view);
                let trust = Trust::Doubt;
                let views = Views {
                    view,
                    log_view,
                    trust,
                };
                core.views.put(id, views);
            }
            // It is known to be worth nothing already, or will be.
            _ => self.cut_damaged(core),
        }
    }

    pub(super) fn cut_damaged(&mut self, core: &mut Core) {
        self.journal.cut_damaged(&mut core.files, &mut core.out);
    }

    /// A group of one lacks an op that its state needs: nobody can bring it back.
    pub(super) fn close_damaged(&mut self, missing: Op, core: &mut Core) {
        let id = self.id;
        let line = alloc::format!(
            "group {id}: op {missing} is damaged, and no other replica has it: the group is \
             closed; restore its files, or delete it"
        );
        if self.partition.is_none() {
            return core.halt(Fatal::Damage, line);
        }
        base::sometimes!("server: a partition without other replicas is closed for damage");
        core.log(Level::Error, line);
        core.observe(|| Observation::Closed { group: id });
        self.state = State::Closed;
        core.leaving.remove(&id);
        core.notices.push(Notice::Settled(id));
    }

    /// What a partition that is closed for damage answers.
    pub(super) fn refuse_closed(ask: &Ask, core: &mut Core) {
        let code = match ask.header.operation {
            Operation::NonReplicated => ErrorCode::CANNOT_READ_MESSAGE,
            _ => ErrorCode::CANNOT_APPEND_MESSAGE,
        };
        core.answers.push(ask.refuse(code));
    }
}
