//! Checkpoints of one group: the state of its machine at an op, so that neither a restart nor a
//! replica that has slept needs the log from its first op on.
//!
//! ```text
//!   recover ─▶ idle ─save─▶ write checkpoint.tmp ─▶ sync ─▶ rename ─▶ sync names ─▶ Saved
//!               ▲                                                                    │
//!               └──────────────── remove all but the newest two ◀────────────────────┘
//! ```
//!
//! A checkpoint counts once its file and its name are durable; a crash at any step leaves the
//! ones before. Two are kept: a damaged one is answered by the one before it. What a checkpoint
//! says is not this machine's business: it verifies that it is the one asked for, and whole.
//!
//! **Invariant:** at most one step is in flight, beside reads for peers.

mod file;
mod recovery;
mod serve;

pub use file::{CHECKPOINT_HEADER_SIZE, CheckpointHeader, checkpoint_name};
pub use serve::ReadChunk;

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

use base::{Bytes, GroupId, Op, planted};
use platform::{
    DiskDone, DiskError, DiskRequest, DiskResult, Effect, FileId, OpenMode, Outbox, Path, Token,
};
use wire::replica::CheckpointMark;

use self::{recovery::Recovery, serve::Serving};
use crate::FileIds;

const NAME_TEMPORARY: &str = "checkpoint.tmp";

/// How many checkpoints are kept.
const KEPT: usize = 2;

/// What a group's checkpoints are for.
#[derive(Clone, Debug)]
pub struct CheckpointsConfig {
    /// The cluster; checkpoints of another are refused.
    pub cluster: u128,
    /// The group; checkpoints of another are refused.
    pub group: GroupId,
    /// Where they are: beside the segments of the group's log, whose journal creates it.
    pub directory: Path,
    /// Owner in the tokens of all its requests.
    pub owner: u64,
}

/// A checkpoint, whole.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Which.
    pub mark: CheckpointMark,
    /// What it says.
    pub body: Bytes,
    /// If it came from a peer: the last op of the log that it is to replace.
    pub replaces: Option<Op>,
}

/// What the machine tells its owner.
#[derive(Debug)]
pub enum CheckpointsEvent {
    /// A checkpoint that must be whole is not; an older one will do, or none.
    Damaged {
        /// Its op.
        op: Op,
    },
    /// Recovery has ended: the newest whole checkpoint, if there is one.
    Recovered(Option<Checkpoint>),
    /// The checkpoint of this op is durable.
    Saved {
        /// Which.
        op: Op,
    },
    /// There is no space for the checkpoint of this op; those before it stay.
    Full {
        /// Which.
        op: Op,
    },
    /// A read has ended well.
    Chunk {
        /// As given.
        id: u64,
        /// The checkpoint it is a part of.
        mark: CheckpointMark,
        /// Where in its body.
        offset: u64,
        /// The bytes there.
        bytes: Bytes,
    },
    /// A read has ended without an answer.
    Unread {
        /// As given.
        id: u64,
    },
    /// The disk failed: the machine does nothing any more.
    Failed(DiskError),
}

/// A file that counts. Of the older ones found at a start nothing but the name is known.
#[derive(Clone, Copy, Debug)]
struct Kept {
    op: Op,
    mark: Option<CheckpointMark>,
    replaces: Option<Op>,
}

/// A checkpoint on its way to the disk.
#[derive(Debug)]
struct Saving {
    checkpoint: Checkpoint,
    file: FileId,
    step: Step,
}

/// What a save waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Opening,
    Writing,
    Syncing,
    Renaming,
    SyncingNames,
}

#[derive(Debug)]
enum Stage {
    Idle,
    Recovering(Recovery),
    Saving(Saving),
    /// Files that are no longer needed.
    Removing(VecDeque<Op>),
    Ended,
}

/// The checkpoints of one group.
#[derive(Debug)]
pub struct Checkpoints {
    config: CheckpointsConfig,
    stage: Stage,
    step: Option<u64>,
    requests: u64,
    /// Ascending.
    kept: Vec<Kept>,
    /// Files of ours that do not count.
    stale: Vec<Op>,
    next: Option<Checkpoint>,
    serving: BTreeMap<u64, Serving>,
    is_ending: bool,
}

impl Checkpoints {
    /// Starts recovery: [`CheckpointsEvent::Recovered`].
    #[must_use]
    pub fn open(config: CheckpointsConfig, out: &mut Outbox) -> Self {
        let mut checkpoints = Self::idle(config);
        checkpoints.start_recovery(out);
        checkpoints
    }

    /// A machine that has none and looks for none: for files that are only to be removed.
    #[must_use]
    pub const fn idle(config: CheckpointsConfig) -> Self {
        Self {
            config,
            stage: Stage::Idle,
            step: None,
            requests: 0,
            kept: Vec::new(),
            stale: Vec::new(),
            next: None,
            serving: BTreeMap::new(),
            is_ending: false,
        }
    }

    /// A disk request of this machine has ended.
    ///
    /// # Panics
    /// If the body answered with the wrong kind of result.
    pub fn on_disk(
        &mut self,
        done: DiskDone,
        files: &mut FileIds,
        out: &mut Outbox,
        events: &mut Vec<CheckpointsEvent>,
    ) {
        base::invariant!(done.token.owner == self.config.owner);
        let request = done.token.request;
        if self.step == Some(request) {
            self.step = None;
            match core::mem::replace(&mut self.stage, Stage::Idle) {
                Stage::Recovering(recovery) => {
                    self.on_recovery(recovery, done.result, files, out, events);
                }
                Stage::Saving(saving) => self.on_saving(saving, done.result, out, events),
                Stage::Removing(rest) => self.remove_next(rest, out),
                stage @ (Stage::Idle | Stage::Ended) => panic!("no step in {stage:?}"),
            }
        } else if let Some(serving) = self.serving.remove(&request) {
            self.on_serving(serving, done.result, out, events);
        }
        self.advance(files, out);
        self.assert_invariants();
    }

    /// Makes a checkpoint durable: [`CheckpointsEvent::Saved`]. One that has not been begun when
    /// the next is given is dropped without a word.
    ///
    /// # Panics
    /// If it is not newer than those that are kept, or not what its mark says.
    pub fn save(&mut self, checkpoint: Checkpoint, files: &mut FileIds, out: &mut Outbox) {
        base::invariant!(
            !matches!(self.stage, Stage::Recovering(_)),
            "recovery first"
        );
        base::invariant!(self.newest_op() < checkpoint.mark.op);
        base::invariant_eq!(checkpoint.mark.size, checkpoint.body.len() as u64);
        if let Stage::Saving(saving) = &self.stage {
            base::invariant!(saving.checkpoint.mark.op < checkpoint.mark.op);
        }
        // A file of that name does not count, but is replaced.
        self.stale.retain(|op| *op != checkpoint.mark.op);
        self.next = Some(checkpoint);
        self.advance(files, out);
        self.assert_invariants();
    }

    /// The checkpoint of `op` is not one of this log after all: it does not count from now on,
    /// and its file goes when the next one is durable.
    pub fn discard(&mut self, op: Op) {
        if let Some(index) = self.kept.iter().position(|kept| kept.op == op) {
            self.kept.remove(index);
            self.stale.push(op);
        }
    }

    /// The log is shorter than it was, or another one: no checkpoint counts from now on.
    pub fn discard_all(&mut self) {
        self.stale.extend(self.kept.drain(..).map(|kept| kept.op));
    }

    /// The newest that is durable.
    #[must_use]
    pub fn newest(&self) -> Option<CheckpointMark> {
        self.kept.iter().rev().find_map(|kept| kept.mark)
    }

    /// If the newest came from a peer: the last op of the log that it was to replace.
    #[must_use]
    pub fn replaces(&self) -> Option<Op> {
        let mut newest = self.kept.iter().rev();
        newest.find(|kept| kept.mark.is_some())?.replaces
    }

    /// The op of the oldest that is kept: a log needs nothing before it once there are two.
    #[must_use]
    pub fn oldest_op(&self) -> Option<Op> {
        self.kept.first().map(|kept| kept.op)
    }

    /// How many are kept.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.kept.len()
    }

    /// Whether nothing is in flight or waits.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let at_rest = matches!(self.stage, Stage::Idle | Stage::Ended);
        at_rest && self.next.is_none() && self.serving.is_empty()
    }

    /// Does nothing new from here on; quiet once what is in flight has ended.
    pub fn end(&mut self) {
        self.is_ending = true;
        self.next = None;
    }

    fn newest_op(&self) -> Op {
        self.kept.last().map_or(Op(0), |kept| kept.op)
    }

    fn assert_invariants(&self) {
        base::invariant!(self.kept.is_sorted_by(|a, b| a.op < b.op));
        if matches!(self.stage, Stage::Idle | Stage::Ended) {
            base::invariant!(self.step.is_none());
        }
    }

    /// Begins the save that waits, if nothing is in flight.
    fn advance(&mut self, files: &mut FileIds, out: &mut Outbox) {
        if !matches!(self.stage, Stage::Idle) || self.is_ending {
            return;
        }
        let Some(checkpoint) = self.next.take() else {
            return;
        };
        let file = files.next();
        let path = self.config.directory.join(NAME_TEMPORARY);
        let mode = OpenMode::CreateEmpty;
        self.start_step(DiskRequest::Open { file, path, mode }, out);
        self.stage = Stage::Saving(Saving {
            checkpoint,
            file,
            step: Step::Opening,
        });
    }

    fn on_saving(
        &mut self,
        saving: Saving,
        result: Result<DiskResult, DiskError>,
        out: &mut Outbox,
        events: &mut Vec<CheckpointsEvent>,
    ) {
        let op = saving.checkpoint.mark.op;
        match result {
            Ok(_) if self.is_ending => {
                let is_open = matches!(saving.step, Step::Opening | Step::Writing | Step::Syncing);
                self.abandon(&saving, is_open, out);
            }
            Ok(_) => self.continue_saving(saving, out, events),
            Err(DiskError::Full) => {
                base::sometimes!("checkpoint: the disk is full, the older ones stay");
                let is_open = matches!(saving.step, Step::Writing | Step::Syncing);
                self.abandon(&saving, is_open, out);
                events.push(CheckpointsEvent::Full { op });
            }
            Err(error) => {
                // Nothing written since the last sync can be relied on.
                self.stage = Stage::Ended;
                events.push(CheckpointsEvent::Failed(error));
            }
        }
    }

    fn continue_saving(
        &mut self,
        mut saving: Saving,
        out: &mut Outbox,
        events: &mut Vec<CheckpointsEvent>,
    ) {
        let file = saving.file;
        let op = saving.checkpoint.mark.op;
        let request = match saving.step {
            Step::Opening => {
                saving.step = Step::Writing;
                let checkpoint = &saving.checkpoint;
                let header = self.header(checkpoint.mark, checkpoint.replaces).encode();
                let data = [header, checkpoint.body.clone()].into();
                let offset = 0;
                DiskRequest::Write { file, offset, data }
            }
            Step::Writing if !planted::bug(20) => {
                saving.step = Step::Syncing;
                DiskRequest::SyncData { file }
            }
            Step::Writing | Step::Syncing => {
                self.request(DiskRequest::Close { file }, out);
                saving.step = Step::Renaming;
                DiskRequest::Rename {
                    from: self.config.directory.join(NAME_TEMPORARY),
                    to: self.config.directory.join(&checkpoint_name(op)),
                }
            }
            Step::Renaming => {
                saving.step = Step::SyncingNames;
                let path = self.config.directory.clone();
                DiskRequest::SyncDir { path }
            }
            Step::SyncingNames => return self.on_saved(&saving.checkpoint, out, events),
        };
        self.stage = Stage::Saving(saving);
        self.start_step(request, out);
    }

    /// A save goes no further.
    fn abandon(&mut self, saving: &Saving, is_open: bool, out: &mut Outbox) {
        if is_open {
            let file = saving.file;
            self.request(DiskRequest::Close { file }, out);
        }
    }

    fn on_saved(
        &mut self,
        checkpoint: &Checkpoint,
        out: &mut Outbox,
        events: &mut Vec<CheckpointsEvent>,
    ) {
        let mark = checkpoint.mark;
        self.stale.retain(|op| *op != mark.op);
        self.kept.push(Kept {
            op: mark.op,
            mark: Some(mark),
            replaces: checkpoint.replaces,
        });
        events.push(CheckpointsEvent::Saved { op: mark.op });
        let excess = self.kept.len().saturating_sub(KEPT);
        let removed = self.kept.drain(..excess).map(|kept| kept.op);
        let rest = core::mem::take(&mut self.stale).into_iter();
        let rest = rest.chain(removed).collect();
        self.remove_next(rest, out);
    }

    /// Removes the next file that is no longer needed. Whether that is durable does not matter.
    fn remove_next(&mut self, mut rest: VecDeque<Op>, out: &mut Outbox) {
        if self.is_ending {
            return;
        }
        if let Some(op) = rest.pop_front() {
            let path = self.config.directory.join(&checkpoint_name(op));
            self.start_step(DiskRequest::RemoveFile { path }, out);
            self.stage = Stage::Removing(rest);
        }
    }

    const fn header(&self, mark: CheckpointMark, replaces: Option<Op>) -> CheckpointHeader {
        CheckpointHeader {
            cluster: self.config.cluster,
            group: self.config.group,
            mark,
            replaces,
        }
    }

    fn start_step(&mut self, request: DiskRequest, out: &mut Outbox) {
        base::invariant!(self.step.is_none());
        self.step = Some(self.request(request, out));
    }

    fn request(&mut self, request: DiskRequest, out: &mut Outbox) -> u64 {
        self.requests += 1;
        let token = Token {
            owner: self.config.owner,
            request: self.requests,
        };
        out.push(Effect::Disk { token, request });
        self.requests
    }
}
