//! Checkpoints of a group: taken every so many ops, found again at a start, served to peers that
//! have missed more than the log still holds.
//!
//! ```text
//!   start:    checkpoint ─▶ journal ─▶ records after it are applied ─▶ running
//!   running:  op n·interval applied ─▶ taken ─▶ its op is synced ─▶ saved ─▶ log prefix dropped
//! ```
//!
//! A body is the header of the prepare of its op and then a snapshot of the state machine.
//!
//! **Invariant:** a checkpoint is not saved before the log is synced up to its op: else a power
//! loss could leave a log that ends before the state it goes with.

use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};

use base::{Bytes, GroupId, Op, ReplicaIndex, checksum::xxh3_128, planted};
use metadata::Metadata;
use partition::PartitionState;
use platform::{DiskDone, Fatal, Level, Outbox};
use storage::{Checkpoint, Checkpoints, CheckpointsConfig, CheckpointsEvent, ReadChunk};
use wire::{
    HEADER_SIZE,
    replica::{CheckpointMark, PrepareHeader, chunk_header, verify_header},
};

use super::{Hosted, State, transfer::Transfer};
use crate::{
    Observation,
    core::{Core, Notice},
};

/// Set in the owner of disk requests that are for a group's checkpoints, not its journal.
pub(crate) const OWNER_CHECKPOINTS: u64 = 1 << 63;

/// Everything of a group that has to do with checkpoints.
pub(super) struct Keeping {
    machine: Checkpoints,
    /// The journal's first request, until it is known which state its records continue.
    held: Outbox,
    /// Taken; waits for its op to be synced.
    taken: Option<Checkpoint>,
    /// Parts being read, for whom.
    serves: BTreeMap<u64, ReplicaIndex>,
    serves_made: u64,
    /// The files are to go once nothing is in flight.
    remove_wanted: bool,
    pub(super) transfer: Option<Transfer>,
}

/// The state that a group begins with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Origin {
    /// The last op in it; 0 if there is none.
    pub(super) op: Op,
    /// Its header.
    pub(super) header: Option<PrepareHeader>,
}

impl Origin {
    pub(super) fn identity(&self) -> u128 {
        self.header.map_or(0, |header| header.checksum)
    }
}

/// A state machine as a checkpoint has it.
pub(super) enum Restored {
    Metadata(Box<Metadata>, Bytes),
    Partition(Box<PartitionState>),
}

impl Keeping {
    pub(super) fn open(
        group: GroupId,
        directory: platform::Path,
        held: Outbox,
        core: &mut Core,
    ) -> Self {
        let config = config(group, directory, core);
        let machine = Checkpoints::open(config, &mut core.out);
        Self {
            machine,
            held,
            taken: None,
            serves: BTreeMap::new(),
            serves_made: 0,
            remove_wanted: false,
            transfer: None,
        }
    }

    /// For a group whose files are only to be removed: does nothing at all.
    pub(super) fn none(group: GroupId, directory: platform::Path, core: &Core) -> Self {
        Self {
            machine: Checkpoints::idle(config(group, directory, core)),
            held: Outbox::new(),
            taken: None,
            serves: BTreeMap::new(),
            serves_made: 0,
            remove_wanted: false,
            transfer: None,
        }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.machine.is_quiet() && self.taken.is_none()
    }

    /// Makes a checkpoint durable.
    pub(super) fn save(&mut self, checkpoint: Checkpoint, core: &mut Core) {
        self.taken = None;
        self.machine
            .save(checkpoint, &mut core.files, &mut core.out);
    }

    /// The log does not reach its checkpoint.
    pub(super) fn forsake(&mut self) {
        self.machine.discard_all();
    }

    /// The oldest op that a checkpoint is kept of; 0 while the older of the two is not there.
    pub(super) fn oldest_op(&self) -> Op {
        let oldest = self
            .machine
            .oldest_op()
            .filter(|_| self.machine.count() > 1);
        oldest.unwrap_or_default()
    }

    /// Whether the newest checkpoint came from a peer.
    pub(super) fn is_from_peer(&self) -> bool {
        self.machine.replaces().is_some()
    }

    /// Whether it did, and a log that ends with `head` before it lacks nothing that was
    /// acknowledged: it is the one that the checkpoint replaces, or is being filled and begins
    /// after all of that one.
    pub(super) fn explains(&self, head: Op) -> bool {
        self.machine.replaces().is_some_and(|last| last <= head)
    }

    /// The newest op that a durable checkpoint is of.
    pub(super) fn newest_op(&self) -> Op {
        self.machine.newest().map_or(Op(0), |mark| mark.op)
    }
}

fn config(group: GroupId, directory: platform::Path, core: &Core) -> CheckpointsConfig {
    CheckpointsConfig {
        cluster: core.config.cluster,
        group,
        directory,
        owner: group.0 | OWNER_CHECKPOINTS,
    }
}

/// The parts of a checkpoint's body, if it is one that the state machine of this group can go on
/// from.
pub(super) fn restore(
    group: GroupId,
    partition: Option<&PartitionState>,
    checkpoint: &Checkpoint,
    core: &Core,
) -> Option<(PrepareHeader, Restored)> {
    let (mark, body) = (&checkpoint.mark, &checkpoint.body);
    let head = body.get(..HEADER_SIZE)?;
    verify_header(head).ok()?;
    let header = PrepareHeader::decode(head).ok()?;
    let found = (header.group, header.op, header.checksum);
    if found != (group, mark.op, mark.identity) {
        return None;
    }
    let snapshot = body.slice(HEADER_SIZE, body.len());
    let restored = match partition {
        None => {
            let metadata = core.restore_metadata(&snapshot)?;
            (metadata.op() == mark.op).then_some(Restored::Metadata(Box::new(metadata), snapshot))
        }
        Some(partition) => {
            let state = partition.restored(&snapshot).ok()?;
            (state.committed().op == mark.op).then(|| Restored::Partition(Box::new(state)))
        }
    };
    Some((header, restored?))
}

impl Hosted {
    /// A disk request of this group's checkpoints has ended.
    pub(crate) fn on_checkpoint_disk(&mut self, done: DiskDone, core: &mut Core) {
        let mut events = Vec::new();
        let machine = &mut self.keeping.machine;
        machine.on_disk(done, &mut core.files, &mut core.out, &mut events);
        for event in events {
            self.on_checkpoint_event(event, core);
        }
        if self.keeping.remove_wanted && self.keeping.machine.is_quiet() {
            self.keeping.remove_wanted = false;
            self.journal.remove(&mut core.out);
        }
    }

    fn on_checkpoint_event(&mut self, event: CheckpointsEvent, core: &mut Core) {
        let id = self.id;
        match event {
            CheckpointsEvent::Damaged { op } => {
                let line = alloc::format!("group {id}: the checkpoint of op {op} is damaged");
                core.log(Level::Error, line);
            }
            CheckpointsEvent::Recovered(found) => self.on_checkpoint_found(found, core),
            CheckpointsEvent::Saved { op } => self.on_checkpoint_saved(op, core),
            CheckpointsEvent::Full { op } => {
                let line = alloc::format!("group {id}: no space for the checkpoint of op {op}");
                core.log(Level::Warn, line);
                self.on_transfer_unsaved(op, core);
            }
            CheckpointsEvent::Chunk {
                id: read,
                mut mark,
                offset,
                bytes,
            } => {
                let Some(to) = self.keeping.serves.remove(&read) else {
                    return;
                };
                // What this replica's log begins after now.
                (mark.base, mark.base_identity) = self.journal.base();
                let view = self.group().map_or(base::View(0), consensus::Group::view);
                let envelope = (core.config.cluster, view, core.config.replica);
                let head = chunk_header(envelope, id, &mark, offset, &bytes);
                let pieces = alloc::vec![head, bytes];
                core.links.send_pieces(to, pieces, &mut core.out);
            }
            CheckpointsEvent::Unread { id } => {
                self.keeping.serves.remove(&id);
            }
            CheckpointsEvent::Failed(error) => {
                let line = alloc::format!("checkpoints of group {id}: {error:?}");
                core.halt(Fatal::Disk, line);
            }
        }
    }

    /// The newest whole checkpoint is known: the journal's records continue it.
    fn on_checkpoint_found(&mut self, found: Option<Checkpoint>, core: &mut Core) {
        if let Some(checkpoint) = found {
            match restore(self.id, self.partition.as_deref(), &checkpoint, core) {
                Some((header, restored)) => {
                    base::sometimes!("checkpoint: a start from one");
                    self.begin_from(header, restored, core);
                }
                None => {
                    let (id, op) = (self.id, checkpoint.mark.op);
                    let line = alloc::format!("group {id}: the checkpoint of op {op} is no use");
                    core.log(Level::Error, line);
                    self.keeping.machine.discard(op);
                }
            }
        }
        self.release_journal(core);
    }

    /// Lets the journal begin.
    fn release_journal(&mut self, core: &mut Core) {
        core.out.append(&mut self.keeping.held);
    }

    /// The state machine is now what a checkpoint has it.
    pub(super) fn begin_from(
        &mut self,
        header: PrepareHeader,
        restored: Restored,
        core: &mut Core,
    ) {
        self.timestamp = self.timestamp.max(header.timestamp);
        let origin = Origin {
            op: header.op,
            header: Some(header),
        };
        if let State::Recovering(recovery) = &mut self.state {
            recovery.begin_from(origin);
        }
        let digest = match &restored {
            Restored::Metadata(metadata, _) => metadata.digest(),
            Restored::Partition(partition) => partition.digest(),
        };
        let (group, op, identity) = (self.id, header.op, header.checksum);
        core.observe(|| Observation::Restored {
            group,
            op,
            identity,
            digest,
        });
        match restored {
            Restored::Metadata(_, snapshot) => {
                core.notices.push(Notice::MetadataRestored(snapshot));
            }
            Restored::Partition(partition) => {
                self.partition = Some(partition);
                self.note_first(op);
            }
        }
    }

    /// Whether the next op applied is to be followed by a checkpoint: as long as the newest is a
    /// peer's, a log that has lost its end cannot be told from one that does not reach it yet.
    pub(crate) fn wants_own_checkpoint(&self) -> bool {
        self.keeping.is_from_peer() && self.keeping.is_quiet()
    }

    /// An op has been applied after which a checkpoint is due, if the group runs.
    pub(crate) fn take_checkpoint(&mut self, head: &[u8], snapshot: &[u8], core: &mut Core) {
        let header = PrepareHeader::decode(head).expect("a committed prepare");
        let transferring = self.keeping.transfer.as_ref();
        let overtaken = transferring.is_some_and(|transfer| transfer.is_saving());
        if self.group().is_none() || header.op <= self.keeping.newest_op() || overtaken {
            return;
        }
        let mut body = base::Buffer::with_capacity(HEADER_SIZE + snapshot.len());
        body.extend(&head[..HEADER_SIZE]);
        body.extend(snapshot);
        let body = body.freeze();
        let (base, base_identity) = self.journal.base();
        let mark = CheckpointMark {
            op: header.op,
            identity: header.checksum,
            base,
            base_identity,
            size: body.len() as u64,
            digest: xxh3_128(&body),
        };
        if self.keeping.taken.is_some() {
            base::sometimes!("checkpoint: the next is due before one could be saved");
        }
        self.keeping.taken = Some(Checkpoint {
            mark,
            body,
            replaces: None,
        });
        self.note_first(header.op);
        if planted::bug(28) && self.id == GroupId::METADATA {
            self.journal
                .drop_before(header.op, &mut core.files, &mut core.out);
        }
        self.save_taken(core);
    }

    /// Saves what has been taken, once the log is durable so far.
    pub(super) fn save_taken(&mut self, core: &mut Core) {
        let synced = self.journal.synced_op();
        let due = |taken: &mut Checkpoint| taken.mark.op <= synced;
        if let Some(checkpoint) = self.keeping.taken.take_if(due) {
            self.keeping.save(checkpoint, core);
        }
    }

    fn on_checkpoint_saved(&mut self, op: Op, core: &mut Core) {
        base::sometimes!("checkpoint: saved");
        if self.is_removing() {
            return;
        }
        if self.on_transfer_saved(op, core) {
            if !self.journal.gaps().is_empty() {
                // Damage in what the others have trimmed: nobody can repair it, nor need they.
                self.drop_trimmed(core);
            }
            return;
        }
        if self.partition.is_some() {
            return self.drop_trimmed(core);
        }
        // What the older of the two needs stays: the newest may turn out to be damaged.
        let machine = &self.keeping.machine;
        let Some(covered) = machine.oldest_op().filter(|_| machine.count() > 1) else {
            return;
        };
        let covered = if planted::bug(35) {
            self.journal.head().0
        } else {
            covered
        };
        self.journal
            .drop_before(covered, &mut core.files, &mut core.out);
    }

    /// A peer asks for a part of a checkpoint, or for ops that this log no longer begins with.
    pub(super) fn serve_checkpoint(
        &mut self,
        to: ReplicaIndex,
        (op, offset): (Op, u64),
        core: &mut Core,
    ) {
        if self.keeping.serves.values().any(|peer| *peer == to) {
            return;
        }
        self.keeping.serves_made += 1;
        let id = self.keeping.serves_made;
        // One that the log has been trimmed beyond leads to no log: the newest does.
        let trimmed = op < self.journal.base().0;
        let (op, offset) = if trimmed { (Op(0), 0) } else { (op, offset) };
        let limits = &core.config.limits;
        let frame_max = limits.frame_size_max.saturating_sub(HEADER_SIZE);
        let chunk = ReadChunk {
            op,
            offset,
            bytes_max: limits.checkpoint_chunk.min(frame_max),
        };
        let machine = &mut self.keeping.machine;
        if machine.read(id, chunk, &mut core.files, &mut core.out) {
            base::sometimes!("checkpoint: a part is served");
            self.keeping.serves.insert(id, to);
        }
    }

    /// Removes all files of the group, once nothing is in flight.
    pub(super) fn remove_files(&mut self, core: &mut Core) {
        self.keeping.machine.end();
        self.keeping.taken = None;
        self.keeping.transfer = None;
        self.release_journal(core);
        if self.keeping.machine.is_quiet() {
            self.journal.remove(&mut core.out);
        } else {
            base::sometimes!("checkpoint: a group is removed while one is written or read");
            self.keeping.remove_wanted = true;
        }
    }
}
