//! A group that this shard hosts: its journal, its consensus and its state machine, and the
//! effects that pass between them.
//!
//! ```text
//!   recovering ─▶ founding (its view becomes durable) ─▶ running ─▶ removing
//! ```

mod checkpoint;
mod gaps;
mod marks;
mod poll;
mod propose;
mod recover;
mod transfer;
mod trim;

use alloc::{
    boxed::Box,
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

use base::{Bytes, GroupId, Op, Timestamp, View};
use consensus::{Effect, Group, Stand, Trust};
use metadata::{Durability, PartitionInfo};
use partition::PartitionState;
use platform::{DiskDone, Fatal, Level};
use storage::{Journal, JournalConfig, JournalEvent, ReadOps, Views};
use wire::{
    Command, ErrorCode, HEADER_SIZE, Operation,
    replica::{Envelope, GroupStatus, Message, PrepareHeader, envelope_repair},
};

use self::{
    checkpoint::Keeping, marks::Marks, poll::Polling, recover::Recovery, transfer::Transfer,
    trim::Trimming,
};
pub(crate) use self::{
    checkpoint::OWNER_CHECKPOINTS,
    marks::{PROBE, Probe},
    propose::choose_partition,
};
use crate::{
    Observation, Role,
    ask::Ask,
    core::{Core, DELETED, Notice},
};

/// Who waits for an op to commit.
#[derive(Debug)]
enum Waiter {
    /// A client asked for it.
    Client(Ask),
    /// A poll whose auto-commit it is: the finished reply.
    Poll(Ask, Vec<Bytes>),
}

/// What a read of the journal is for.
enum Read {
    /// Repair for a peer.
    Serve { to: base::ReplicaIndex, view: View },
    /// One op for a peer, by its identity.
    Body {
        to: base::ReplicaIndex,
        checksum: u128,
    },
    /// A client's poll.
    Poll(Box<Polling>),
}

enum State {
    Recovering(Recovery),
    /// Recovered; waits for its view to be durable before it speaks.
    Founding(Recovery),
    /// The log has been given up for a checkpoint; waits for an empty one after it.
    Resetting(Recovery),
    /// The log begins after what any checkpoint here covers: waits for one from a peer.
    Stranded(Recovery),
    Running(Box<Group>),
    /// Alone, and without an op that its state needs.
    Closed,
    Removing,
}

/// A group on this shard.
pub(crate) struct Hosted {
    id: GroupId,
    journal: Journal,
    keeping: Keeping,
    state: State,
    /// The state machine of a partition; the metadata state machine belongs to the shard.
    partition: Option<Box<PartitionState>>,
    persisted: bool,
    waiters: BTreeMap<Op, Waiter>,
    reads: BTreeMap<u64, Read>,
    reads_made: u64,
    /// Appended and not applied, in order.
    pending: VecDeque<Bytes>,
    /// Whether ops are missing after what is applied: `pending` ends before them.
    behind_gap: bool,
    /// Bodies that are on their way back into the log and that the state waits for.
    bodies: BTreeMap<Op, Bytes>,
    trimming: Trimming,
    /// What consumer groups have polled, while this replica is the primary.
    marks: Marks,
    /// Of the newest prepare: timestamps never step back along the log.
    timestamp: Timestamp,
}

impl Hosted {
    /// Opens the journal of a group; recovery begins.
    pub(crate) fn open(id: GroupId, info: Option<&PartitionInfo>, core: &mut Core) -> Self {
        // One log holds messages and offsets: the stricter of the two promises is kept for both.
        let persisted = info.is_none_or(|info| {
            let options = &info.options;
            let promised = [options.durability, options.consumer_offset_durability];
            promised.contains(&Durability::Persisted) || options.enforce_fsync
        });
        let segment_size = info.map_or(core.config.limits.metadata_segment_size, |info| {
            info.options.segment_size
        });
        let config = journal_config(id, segment_size, persisted, core);
        let directory = config.directory.clone();
        let mut held = Vec::new();
        let journal = Journal::open(config, &mut held);
        let keeping = Keeping::open(id, directory, held, core);
        let limits = partition::Limits {
            producers_max: core.config.limits.producers_max,
            consumers_max: core.config.limits.consumers_max,
            segment_size,
        };
        let partition = info.map(|info| Box::new(PartitionState::new(id, info.ids, limits)));
        Self {
            id,
            journal,
            keeping,
            state: State::Recovering(Recovery::new(info.map_or(View(0), |info| info.view))),
            partition,
            persisted,
            waiters: BTreeMap::new(),
            reads: BTreeMap::new(),
            reads_made: 0,
            pending: VecDeque::new(),
            behind_gap: false,
            bodies: BTreeMap::new(),
            trimming: Trimming::new(info),
            marks: Marks::default(),
            timestamp: Timestamp(0),
        }
    }

    /// Removes the files of a group that no longer exists.
    pub(crate) fn remove_leftover(id: GroupId, core: &mut Core) -> Self {
        let segment_size = core.config.limits.segment_size;
        let config = journal_config(id, segment_size, false, core);
        let keeping = Keeping::none(id, config.directory.clone(), core);
        Self {
            id,
            journal: Journal::remove_leftover(config, &mut core.out),
            keeping,
            state: State::Removing,
            partition: None,
            persisted: false,
            waiters: BTreeMap::new(),
            reads: BTreeMap::new(),
            reads_made: 0,
            pending: VecDeque::new(),
            behind_gap: false,
            bodies: BTreeMap::new(),
            trimming: Trimming::default(),
            marks: Marks::default(),
            timestamp: Timestamp(0),
        }
    }

    /// The group, once it runs.
    pub(crate) fn group(&self) -> Option<&Group> {
        match &self.state {
            State::Running(group) => Some(group),
            _ => None,
        }
    }

    /// Whether its state is not yet what its log makes of it.
    pub(crate) const fn is_recovering(&self) -> bool {
        matches!(
            self.state,
            State::Recovering(_) | State::Founding(_) | State::Resetting(_)
        )
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.group().is_some_and(Group::is_serving)
    }

    pub(crate) fn partition(&self) -> Option<&PartitionState> {
        self.partition.as_deref()
    }

    /// Verifies the next piece of what is sealed.
    pub(crate) fn scrub(&mut self, core: &mut Core) {
        self.journal.scrub(&mut core.files, &mut core.out);
    }

    /// Tries again what a full disk refused.
    pub(crate) fn retry(&mut self, core: &mut Core) {
        self.journal.retry(&mut core.files, &mut core.out);
    }

    /// Whether everything is as durable as it will get.
    pub(crate) fn is_at_rest(&self) -> bool {
        match self.state {
            State::Running(_) => {
                let synced = self.journal.synced_op() == self.journal.written_op();
                self.journal.is_quiet() && synced && self.keeping.is_quiet()
            }
            State::Stranded(_) => self.journal.is_quiet(),
            State::Recovering(_) | State::Founding(_) | State::Resetting(_) => false,
            State::Removing | State::Closed => true,
        }
    }

    /// Lets the group speak, if it runs: `act` adds to the effects, which are then carried out.
    fn drive(&mut self, core: &mut Core, act: impl FnOnce(&mut Group, &mut Vec<Effect>)) {
        let State::Running(group) = &mut self.state else {
            return;
        };
        let mut effects = Vec::new();
        act(group, &mut effects);
        core.active.insert(self.id);
        if group.deadline().is_some() || self.keeping.transfer.is_some() {
            core.timed.insert(self.id);
        } else {
            core.timed.remove(&self.id);
        }
        self.carry_out(effects, core);
    }

    fn carry_out(&mut self, effects: Vec<Effect>, core: &mut Core) {
        for effect in effects {
            match effect {
                Effect::Send { to, frame } => {
                    core.links.send(to, frame, &mut core.out);
                }
                Effect::Append { prepare } => self.append(prepare, core),
                Effect::TruncateAfter { op } => {
                    self.journal
                        .truncate_after(op, &mut core.files, &mut core.out);
                    core.observe(|| Observation::Truncated { group: self.id, op });
                    self.on_cut(op);
                }
                Effect::PersistView(stand) => {
                    let Stand {
                        view,
                        log_view,
                        trust,
                    } = stand;
                    let views = Views {
                        view,
                        log_view,
                        trust,
                    };
                    core.views.put(self.id, views);
                    core.doubtful |= trust != Trust::Trusted;
                    let durable = core.durable_views.get(&self.id);
                    if durable.is_none_or(|durable| durable.view < view) {
                        core.leaving.insert(self.id);
                    }
                }
                Effect::Commit { prepare } => self.commit(prepare, core),
                Effect::ServePrepares { to, from, .. } if from < self.journal.first_op() => {
                    base::sometimes!("transfer: asked for ops that are no longer in the log");
                    self.serve_checkpoint(to, (Op(0), 0), core);
                }
                Effect::ServePrepares {
                    to,
                    view,
                    from,
                    until,
                } => {
                    let range = ReadOps {
                        from,
                        to: until,
                        bytes_max: 4 << 20,
                    };
                    self.read(
                        Read::Serve { to, view },
                        core,
                        |journal, id, core, events| {
                            journal.read(id, range, &mut core.files, &mut core.out, events);
                        },
                    );
                }
                Effect::ServeBody { to, op, .. } if op < self.journal.first_op() => {
                    base::sometimes!("transfer: asked for a body that is no longer in the log");
                    self.serve_checkpoint(to, (Op(0), 0), core);
                }
                Effect::ServeBody { to, op, checksum } => {
                    let range = ReadOps {
                        from: op,
                        to: op,
                        bytes_max: 4 << 20,
                    };
                    let read = Read::Body { to, checksum };
                    self.read(read, core, |journal, id, core, events| {
                        journal.read(id, range, &mut core.files, &mut core.out, events);
                    });
                }
                Effect::RoleChanged => self.on_role(core),
                Effect::Trusted => {
                    base::sometimes!("server: a log in doubt is trusted again");
                }
                Effect::Undecidable { op } => {
                    let view = self.group().map_or(View(0), Group::view);
                    core.observe(|| Observation::Undecidable {
                        group: self.id,
                        view,
                        op,
                    });
                    let line = alloc::format!(
                        "group {}: nobody can tell whether op {op} was committed; it waits for a \
                         replica that has it",
                        self.id
                    );
                    core.log(Level::Error, line);
                }
                Effect::LossPossible => {
                    let view = self.group().map_or(View(0), Group::view);
                    core.observe(|| Observation::LossPossible {
                        group: self.id,
                        view,
                    });
                    let id = self.id;
                    let line = alloc::format!(
                        "group {id} view {view}: no quorum of trusted logs; what was \
                         acknowledged before the power loss may be gone"
                    );
                    core.log(Level::Error, line);
                }
            }
        }
    }

    /// A prepare enters this replica's log.
    fn append(&mut self, prepare: Bytes, core: &mut Core) {
        let header = PrepareHeader::decode(&prepare).expect("consensus appends prepares");
        self.timestamp = self.timestamp.max(header.timestamp);
        self.journal.append(prepare.clone());
        core.unsubmitted.insert(self.id);
        if self.behind_gap {
            // The state machine cannot know what comes before it.
            base::sometimes!("server: a prepare is appended behind a gap");
            return;
        }
        if self.is_in_state(header.op) {
            return;
        }
        if let Some(partition) = &mut self.partition {
            let body = &prepare[HEADER_SIZE..];
            if let Err(divergence) = partition.verify(&header, body) {
                let line = alloc::format!("group {} op {}: {divergence:?}", self.id, header.op);
                return core.halt(Fatal::Damage, line);
            }
            partition.on_append(&header, body);
        }
        self.pending.push_back(prepare);
    }

    /// The journal has been cut after `op`.
    fn on_cut(&mut self, op: Op) {
        let header = |frame: &Bytes| PrepareHeader::decode(frame).expect("pending prepares");
        while self
            .pending
            .back()
            .is_some_and(|frame| header(frame).op > op)
        {
            self.pending.pop_back();
        }
        self.bodies.split_off(&op.next());
        self.reset_appended();
    }

    /// The state machine is to know `pending` as what is appended and not applied.
    fn reset_appended(&mut self) {
        let header = |frame: &Bytes| PrepareHeader::decode(frame).expect("pending prepares");
        if let Some(partition) = &mut self.partition {
            let pending = self.pending.iter();
            partition.reset_appended(pending.map(|frame| (header(frame), &frame[HEADER_SIZE..])));
        }
    }

    /// A prepare is committed: apply it, tell who waits.
    fn commit(&mut self, prepare: Bytes, core: &mut Core) {
        let header = PrepareHeader::decode(&prepare).expect("consensus commits prepares");
        if self.is_in_state(header.op) {
            base::sometimes!("transfer: an op comes that the state has from a checkpoint");
            return;
        }
        let waiter = self.waiters.remove(&header.op);
        if self.pending.pop_front().is_none()
            && let Some(partition) = &mut self.partition
        {
            // It stood behind a gap.
            partition.on_append(&header, &prepare[HEADER_SIZE..]);
        }
        if core.awaited.remove(&self.id) {
            // There may be room in the pipeline again, or the primary may serve now.
            core.notices.push(Notice::Settled(self.id));
        }
        let Some(partition) = &mut self.partition else {
            let asker = match waiter {
                Some(Waiter::Client(ask)) => Some(ask),
                _ => None,
            };
            core.urgent = true;
            return core
                .notices
                .push(Notice::MetadataCommitted { prepare, asker });
        };
        let segments = partition.segments_count();
        let reply = partition.apply(&header, &prepare[HEADER_SIZE..]);
        if header.operation == Operation::PurgePartition {
            self.marks.on_purge();
        }
        let group = self.id;
        let rolled = partition.segments_count() > segments;
        let digest = core.config.observe.then(|| partition.digest());
        self.trimming.applied = Some(header);
        let due = self.calls_for_checkpoint(header.operation, core)
            || self.wants_own_checkpoint()
            || header
                .op
                .0
                .is_multiple_of(core.config.limits.partition_checkpoint_ops);
        let due = (due && matches!(self.state, State::Running(_)))
            .then(|| Some((prepare.clone(), self.partition.as_ref()?.snapshot())))
            .flatten();
        core.observe(|| Observation::Committed {
            group,
            prepare,
            digest: digest.expect("taken if it is observed"),
        });
        if header.operation == Operation::PurgePartition {
            core.notices.push(Notice::Purged);
        }
        let read = [
            Operation::StoreConsumerOffset,
            Operation::DeleteConsumerOffset,
        ];
        let released = self.trimming.is_held && read.contains(&header.operation);
        let trimmed = header.operation == Operation::TrimLog;
        if rolled || released || trimmed || self.owes_purge() {
            core.notices.push(Notice::Upkeep(group));
        }
        if let Some((prepare, snapshot)) = due {
            self.take_checkpoint(&prepare, &snapshot, core);
        }
        match waiter {
            Some(Waiter::Client(ask)) => {
                if reply.result.is_ok() {
                    let (client, request, op) = (header.client, header.request, header.op);
                    core.observe(|| Observation::Acknowledged {
                        group,
                        client,
                        request,
                        op,
                    });
                }
                core.answers.push(propose::frame_reply(&ask, &reply));
            }
            Some(Waiter::Poll(ask, pieces)) => core.answers.push(match reply.result {
                Ok(_) => ask.answer(pieces),
                // Nothing is told to be committed that is not.
                Err(code) => ask.refuse(code),
            }),
            None => {}
        }
    }

    /// View, role or status have changed: whoever waits for what this replica prepared as a
    /// primary no longer can.
    fn on_role(&mut self, core: &mut Core) {
        let State::Running(group) = &self.state else {
            return;
        };
        let role = match (group.is_normal(), group.is_primary()) {
            (false, _) => Role::ViewChange,
            (true, true) => Role::Primary,
            (true, false) => Role::Backup,
        };
        let (id, view, log_view) = (self.id, group.view(), group.log_view());
        core.observe(|| Observation::View {
            group: id,
            view,
            log_view,
            role,
        });
        self.marks = Marks::default();
        if role != Role::Primary {
            for (_, waiter) in ::core::mem::take(&mut self.waiters) {
                let (Waiter::Client(ask) | Waiter::Poll(ask, _)) = waiter;
                core.answers
                    .push(ask.refuse(ErrorCode::TRANSIENT_NOT_COMMITTED));
            }
        }
        if id == GroupId::METADATA {
            core.notices.push(Notice::MetadataRole);
        }
        if role != Role::ViewChange {
            core.notices.push(Notice::Settled(id));
        }
        if role == Role::Primary && self.partition.is_some() {
            self.trim_as_primary(core);
        }
        core.urgent = true;
    }

    /// A frame of this group from a peer; verified.
    pub(crate) fn on_frame(
        &mut self,
        from: base::ReplicaIndex,
        envelope: &Envelope,
        frame: Bytes,
        core: &mut Core,
    ) {
        let now = core.now.monotonic;
        let carries = [Command::Prepare, Command::RepairPrepare].contains(&envelope.command);
        if carries && self.journal.is_full() {
            // It would pile up in memory; it is repaired once there is space.
            base::sometimes!("server: a full backup lets prepares go by");
            return;
        }
        if envelope.command == Command::Prepare {
            if let Ok(header) = PrepareHeader::decode(&frame) {
                self.drive(core, |group, out| {
                    group.on_prepare(now, from, &header, frame, out)
                });
            }
            return;
        }
        let Ok((envelope, message)) = Message::decode(&frame) else {
            return;
        };
        match message {
            Message::RequestCheckpoint { op, offset, .. } => {
                return self.serve_checkpoint(from, (op, offset), core);
            }
            Message::CheckpointChunk { mark, offset, .. } => {
                let bytes = frame.slice(HEADER_SIZE, frame.len());
                return self.on_chunk(from, (mark, offset), &bytes, core);
            }
            _ => {}
        }
        if let Message::RepairPrepare { .. } = message {
            let prepare = frame.slice(HEADER_SIZE, frame.len());
            let Ok(header) = PrepareHeader::decode(&prepare) else {
                return;
            };
            if header.group != self.id {
                return;
            }
            let view = envelope.view;
            let kept = compact(prepare);
            if self.take_body(kept.clone(), core) {
                // The next one below is known now.
                return self.ask_for_bodies(core);
            }
            return self.drive(core, |group, out| {
                group.on_repair(now, from, view, &header, kept, out)
            });
        }
        self.drive(core, |group, out| {
            group.on_message(now, &envelope, message, out)
        });
    }

    pub(crate) fn on_status(
        &mut self,
        from: base::ReplicaIndex,
        status: &GroupStatus,
        core: &mut Core,
    ) {
        let now = core.now.monotonic;
        let behind = self.group().is_some_and(|group| status.op < group.op());
        self.drive(core, |group, out| group.on_status(now, from, status, out));
        if behind {
            core.urgent = true;
        }
    }

    /// A peer is taken for dead.
    pub(crate) fn on_silent(&mut self, peer: base::ReplicaIndex, core: &mut Core) {
        let now = core.now.monotonic;
        let quorum = core.config.nodes.len() / 2 + 1;
        let alone = core.links.reachable() < quorum;
        self.drive(core, |group, out| {
            if group.primary() == peer {
                group.suspect(now, out);
            } else if alone {
                group.abdicate(now, out);
            }
        });
    }

    pub(crate) fn on_view_durable(&mut self, views: Views, core: &mut Core) {
        let Views {
            view,
            log_view,
            trust,
        } = views;
        if views == DELETED {
            return self.remove_files(core);
        }
        match self.state {
            State::Founding(_) => return self.found(core),
            // It is durable that the log is in doubt.
            State::Recovering(_) => return self.on_recovering_durable(core),
            _ => {}
        }
        let now = core.now.monotonic;
        let stand = Stand {
            view,
            log_view,
            trust,
        };
        let promised = core.links.promised();
        if self.group().is_some_and(|group| group.view() == view) {
            core.leaving.remove(&self.id);
        }
        self.drive(core, |group, out| {
            group.promise(&promised, view);
            group.on_view_durable(now, stand, out);
        });
    }

    pub(crate) fn on_timers(&mut self, core: &mut Core) {
        let now = core.now.monotonic;
        self.drive(core, |group, out| group.on_timers(now, out));
        self.on_transfer_timer(core);
    }

    pub(crate) fn deadline(&self) -> Option<base::Instant> {
        let transfer = self.keeping.transfer.as_ref();
        let group = self.group().and_then(Group::deadline);
        let transfer = transfer.and_then(Transfer::deadline);
        group.into_iter().chain(transfer).min()
    }

    /// Where this replica stands, if there is news since the last call.
    pub(crate) fn take_status(&mut self) -> Option<GroupStatus> {
        let State::Running(group) = &mut self.state else {
            return None;
        };
        if group.take_status_changed() {
            group.status()
        } else {
            None
        }
    }

    /// Where this replica stands.
    pub(crate) fn status(&self) -> Option<GroupStatus> {
        self.group().and_then(Group::status)
    }

    pub(crate) fn submit(&mut self, core: &mut Core) {
        self.journal.submit(&mut core.files, &mut core.out);
    }

    pub(crate) fn sync(&mut self, core: &mut Core) {
        self.journal.sync(&mut core.out);
    }

    /// The group has been deleted.
    pub(crate) fn remove(&mut self, core: &mut Core) {
        if self.is_removing() {
            return;
        }
        for (_, waiter) in ::core::mem::take(&mut self.waiters) {
            let (Waiter::Client(ask) | Waiter::Poll(ask, _)) = waiter;
            core.answers
                .push(ask.refuse(ErrorCode::PARTITION_NOT_FOUND));
        }
        for (_, read) in ::core::mem::take(&mut self.reads) {
            if let Read::Poll(polling) = read {
                core.answers
                    .push(polling.ask.refuse(ErrorCode::PARTITION_NOT_FOUND));
            }
        }
        self.state = State::Removing;
        self.partition = None;
        core.leaving.remove(&self.id);
        if base::planted::bug(41) {
            // Planted: nothing is left that says so.
            core.views.forget(self.id);
            core.durable_views.remove(&self.id);
            return self.journal.remove(&mut core.out);
        }
        // The files go once it is durable that the group has.
        core.views.put(self.id, DELETED);
    }

    pub(crate) fn is_removing(&self) -> bool {
        matches!(self.state, State::Removing)
    }

    pub(crate) fn on_disk(&mut self, done: DiskDone, core: &mut Core) {
        let mut events = Vec::new();
        self.journal
            .on_disk(done, &mut core.files, &mut core.out, &mut events);
        self.on_journal(events, core);
    }

    fn read(
        &mut self,
        read: Read,
        core: &mut Core,
        start: impl FnOnce(&mut Journal, u64, &mut Core, &mut Vec<JournalEvent>),
    ) {
        self.reads_made += 1;
        let id = self.reads_made;
        self.reads.insert(id, read);
        let mut events = Vec::new();
        start(&mut self.journal, id, core, &mut events);
        self.on_journal(events, core);
    }

    fn on_journal(&mut self, events: Vec<JournalEvent>, core: &mut Core) {
        let now = core.now.monotonic;
        for event in events {
            if self.is_removing() && !matches!(event, JournalEvent::Removed) {
                // Deleted while it was being read.
                continue;
            }
            match event {
                JournalEvent::Record { prepare } => self.on_record(prepare, core),
                JournalEvent::Recovered {
                    head,
                    base,
                    cut_bytes,
                    gaps,
                } => {
                    for gap in gaps {
                        base::sometimes!("server: a gap is found at a start");
                        self.on_gap(gap, core);
                    }
                    self.on_recovered((head, base), cut_bytes, core);
                }
                JournalEvent::TailDamaged { after } => self.on_tail_damaged(after, core),
                JournalEvent::Gap(gap) => {
                    base::sometimes!("server: a gap is found in a log that runs");
                    self.on_gap(gap, core);
                }
                JournalEvent::Reset => self.on_reset(core),
                JournalEvent::Repaired { op } => self.on_repaired(op, core),
                JournalEvent::Full => core.on_full(self.id.0),
                JournalEvent::Space => core.on_space(self.id.0),
                JournalEvent::Written { op } => {
                    if !self.persisted {
                        core.unsynced.insert(self.id);
                        self.drive(core, |group, out| group.on_durable(now, op, out));
                    }
                }
                JournalEvent::Synced { op } => {
                    self.save_taken(core);
                    if self.persisted {
                        self.drive(core, |group, out| group.on_durable(now, op, out));
                    }
                }
                JournalEvent::Truncated { op } => {
                    self.drive(core, |group, out| group.on_truncated(now, op, out));
                }
                JournalEvent::Read { id, prepares } => self.on_read(id, prepares, core),
                JournalEvent::Removed => core.notices.push(Notice::Removed(self.id)),
                JournalEvent::Failed(error) => {
                    let line = alloc::format!("journal of group {}: {error:?}", self.id);
                    core.halt(Fatal::Disk, line);
                }
                JournalEvent::Damaged(damage) => self.on_damage(&damage, core),
            }
        }
        if matches!(self.state, State::Running(_)) && self.journal.segments() > 1 {
            core.sealed.insert(self.id);
        } else {
            core.sealed.remove(&self.id);
        }
    }

    fn on_damage(&mut self, damage: &storage::Damage, core: &mut Core) {
        let line = alloc::format!("journal of group {}: {damage:?}", self.id);
        match damage.read.and_then(|id| self.reads.remove(&id)) {
            Some(Read::Poll(polling)) => {
                core.log(Level::Error, line);
                core.answers
                    .push(polling.ask.refuse(ErrorCode::CANNOT_READ_MESSAGE));
            }
            Some(Read::Serve { .. } | Read::Body { .. }) => core.log(Level::Error, line),
            None if damage.read.is_some() => {}
            None => core.halt(Fatal::Damage, line),
        }
    }

    fn on_read(&mut self, id: u64, prepares: Vec<Bytes>, core: &mut Core) {
        match self.reads.remove(&id) {
            Some(Read::Serve { to, view }) => {
                if !self.group().is_some_and(|group| group.vouches(view)) {
                    return;
                }
                self.send_repairs(to, view, prepares, core);
            }
            Some(Read::Body { to, checksum }) => {
                let same = |prepare: &Bytes| {
                    PrepareHeader::decode(prepare).is_ok_and(|header| header.checksum == checksum)
                };
                let view = self.group().map_or(View(0), Group::view);
                let prepares: Vec<Bytes> = prepares.into_iter().filter(same).collect();
                self.send_repairs(to, view, prepares, core);
            }
            Some(Read::Poll(polling)) => self.continue_poll(polling, &prepares, core),
            None => {}
        }
    }
}

impl Hosted {
    fn send_repairs(
        &self,
        to: base::ReplicaIndex,
        view: View,
        prepares: Vec<Bytes>,
        core: &mut Core,
    ) {
        for prepare in prepares {
            let (cluster, replica) = (core.config.cluster, core.config.replica);
            let head = envelope_repair(cluster, view, replica, self.id, &prepare);
            let pieces = alloc::vec![head, prepare];
            if !core.links.send_pieces(to, pieces, &mut core.out) {
                break;
            }
        }
    }
}

/// A small record in a large buffer is copied, so that keeping it does not keep the buffer.
fn compact(prepare: Bytes) -> Bytes {
    if prepare.len() < prepare.footprint() / 4 {
        Bytes::copy_of(&prepare)
    } else {
        prepare
    }
}

fn journal_config(id: GroupId, segment_size: u64, persisted: bool, core: &Core) -> JournalConfig {
    let limits = &core.config.limits;
    let directory = if id == GroupId::METADATA {
        "metadata".into()
    } else {
        crate::paths::PARTITIONS.join(&alloc::format!("{:016x}", id.0))
    };
    JournalConfig {
        group: id,
        cluster: core.config.cluster,
        directory,
        segment_size,
        persisted,
        // A group of one has nobody to ask: what is left is its log.
        loses_pages: persisted || core.power_lost || core.config.nodes.len() == 1,
        owner: id.0,
        read_chunk: limits.read_chunk,
        index_interval: limits.index_interval,
        tail_cache: limits.tail_cache,
    }
}
