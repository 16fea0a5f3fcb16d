//! The view store: (view, log_view) of every group of a shard, in one small file.
//!
//! A replica says nothing in a view before that view is durable here. All groups share the file,
//! so a node that loses a thousand primaries at once pays one write and one sync for all of them.
//!
//! ```text
//!   recover ─▶ idle ─submit─▶ writing ─▶ syncing ─▶ idle
//!                  └─ file too large ─▶ compacting: write views.tmp, sync, rename, sync names
//! ```
//!
//! It also knows whether the machine lost power since the logs were last trusted: the file names
//! the boot in which they were. A different boot is forgiven only if a clean stop is the last
//! thing recorded. Until [`ViewStore::trust_logs`] the old boot stays on record, so a restart
//! amid catching up does not forget the loss.
//!
//! A log may also be in doubt alone: damage has taken acknowledged ops from its end. And a store
//! that is new does not know whether the groups it hears of are new too, or its disk is: until it
//! is *founded*, whoever owns it must take every group for one in doubt.
//!
//! **Invariant:** at most one request is in flight.

mod compaction;
mod record;
mod recovery;

pub use record::{Views, ViewsIdentity};

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

use base::{Buffer, GroupId, Op};
use platform::{DiskDone, DiskError, DiskRequest, DiskResult, Effect, FileId, Outbox, Path, Token};

use self::{
    record::{Entry, RECORD_SIZE, Record},
    recovery::Recovery,
};
use crate::FileIds;

const NAME: &str = "views.log";
const NAME_TEMPORARY: &str = "views.tmp";

/// A file is compacted once it is so many times as large as what lives in it.
const COMPACTION_RATIO: u64 = 4;

/// What a view store is for.
#[derive(Clone, Debug)]
pub struct ViewStoreConfig {
    /// Where its file is: `shard-<i>`; created if missing.
    pub directory: Path,
    /// Owner in the tokens of all its requests.
    pub owner: u64,
    /// Whose views these are; a file of somebody else is refused.
    pub identity: ViewsIdentity,
    /// This boot of the machine: it changes exactly when what was not synced may be lost.
    pub boot_id: u128,
    /// The file is compacted beyond this size, if it is also four times as large as what lives
    /// in it.
    pub compaction_size_min: u64,
}

/// What a view store tells its owner.
#[derive(Debug, PartialEq, Eq)]
pub enum ViewStoreEvent {
    /// The file is read.
    Recovered {
        /// What is known of each group; all durable.
        groups: Vec<(GroupId, Views)>,
        /// Whether logs may lack writes that were never synced.
        power_lost: bool,
        /// Whether the store has been in use by a cluster: [`ViewStore::found`].
        founded: bool,
    },
    /// These views of a group are durable; a newer put may be on its way.
    Durable {
        /// The group.
        group: GroupId,
        /// As put.
        views: Views,
    },
    /// The disk is full: nothing becomes durable until [`ViewStore::retry`].
    Full,
    /// What did not fit has been written after all.
    Space,
    /// The mark of [`ViewStore::mark_clean`] is durable.
    Clean,
    /// The file is of another cluster, replica or shape; nothing was changed.
    IdentityMismatch {
        /// Whose it is.
        found: ViewsIdentity,
    },
    /// A record that was durable is not whole; nothing was changed.
    Damaged {
        /// Where it is.
        position: u64,
    },
    /// The disk failed: the store does nothing any more.
    Failed(DiskError),
}

/// What the store waits for.
#[derive(Debug)]
enum Stage {
    Idle,
    Recovering(Recovery),
    /// The records of `batch` are being written; then synced.
    Writing,
    Syncing,
    Compacting(compaction::Step),
    Ended,
}

/// Views of the groups of one shard.
#[derive(Debug)]
pub struct ViewStore {
    config: ViewStoreConfig,
    stage: Stage,
    step: Option<u64>,
    requests: u64,
    file: Option<FileId>,
    groups: BTreeMap<GroupId, Views>,
    /// The op of the metadata at which the shard was founded, if it has been.
    founded: Option<Op>,
    /// The request in flight, if it can be made once more; and whether it has to be, for want of
    /// space.
    again: Option<DiskRequest>,
    full: bool,
    /// The boot in which the logs were last trusted; `None` in a new file.
    trusted_boot: Option<u128>,
    /// Not written yet, in order.
    queue: VecDeque<Entry>,
    /// Whether a clean stop is the last thing said: it must stay so.
    is_clean: bool,
    /// How much of the queue may be written.
    submitted: usize,
    /// Being written.
    batch: Vec<Entry>,
    /// Records in the file, and how many of them are durable.
    count: u32,
    durable: u32,
}

impl ViewStore {
    /// Starts recovery: [`ViewStoreEvent::Recovered`].
    #[must_use]
    pub fn open(config: ViewStoreConfig, out: &mut Outbox) -> Self {
        let mut store = Self {
            config,
            stage: Stage::Idle,
            step: None,
            requests: 0,
            file: None,
            groups: BTreeMap::new(),
            founded: None,
            again: None,
            full: false,
            trusted_boot: None,
            queue: VecDeque::new(),
            is_clean: false,
            submitted: 0,
            batch: Vec::new(),
            count: 0,
            durable: 0,
        };
        store.start_recovery(out);
        store
    }

    /// A disk request of this store has ended.
    ///
    /// # Panics
    /// If the body answered with the wrong kind of result.
    pub fn on_disk(
        &mut self,
        done: DiskDone,
        files: &mut FileIds,
        out: &mut Outbox,
        events: &mut Vec<ViewStoreEvent>,
    ) {
        base::invariant!(done.token.owner == self.config.owner);
        if self.step != Some(done.token.request) {
            return; // a file was closed
        }
        self.step = None;
        let result = match done.result {
            Ok(result) => result,
            Err(DiskError::Full) if self.again.is_some() => {
                if !core::mem::replace(&mut self.full, true) {
                    base::sometimes!("storage: the view store finds the disk full");
                    events.push(ViewStoreEvent::Full);
                }
                return;
            }
            Err(error) => {
                self.stage = Stage::Ended;
                events.push(ViewStoreEvent::Failed(error));
                return;
            }
        };
        if core::mem::take(&mut self.full) {
            events.push(ViewStoreEvent::Space);
        }
        match (core::mem::replace(&mut self.stage, Stage::Idle), result) {
            (Stage::Recovering(recovery), result) => {
                self.on_recovery(recovery, result, files, out, events);
            }
            (Stage::Writing, DiskResult::Written) => {
                self.stage = Stage::Syncing;
                let file = self.file.expect("the file is open");
                self.start_step(DiskRequest::SyncData { file }, out);
            }
            (Stage::Syncing, DiskResult::Done) => self.on_durable(events),
            (Stage::Compacting(step), result) => self.on_compaction(step, &result, out, events),
            (stage, result) => panic!("{result:?} is no answer in {stage:?}"),
        }
        if matches!(self.stage, Stage::Idle) && self.is_too_large() && !self.is_clean {
            self.start_compaction(files, out);
        }
        self.advance(out);
        self.assert_invariants();
    }

    /// After [`ViewStoreEvent::Full`]: tries once more.
    pub fn retry(&mut self, out: &mut Outbox) {
        if self.full
            && self.step.is_none()
            && let Some(request) = self.again.take()
        {
            self.start_step(request, out);
        }
    }

    /// Whether the disk is full.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.full
    }

    /// Records the views of a group; durable after [`Self::submit`] and
    /// [`ViewStoreEvent::Durable`].
    ///
    /// # Panics
    /// If a view steps back, or `log_view` is above `view`.
    pub fn put(&mut self, group: GroupId, views: Views) {
        self.assert_usable();
        base::invariant!(views.log_view <= views.view);
        if let Some(old) = self.groups.insert(group, views) {
            base::invariant!(old.view <= views.view);
            base::invariant!(old.log_view <= views.log_view);
        }
        self.say(Entry::View(group, views));
    }

    /// Records that this shard has been part of the cluster when the metadata stood at `op`, and
    /// knows every group it had until then: one that it does not know from now on is new.
    /// Durable some time after [`Self::submit`].
    pub fn found(&mut self, op: Op) {
        self.assert_usable();
        if self.founded.is_none() {
            self.founded = Some(op);
            self.say(Entry::Founded(op));
        }
    }

    /// Whether [`Self::found`] has been called, in this life or an earlier one.
    #[must_use]
    pub const fn is_founded(&self) -> bool {
        self.founded.is_some()
    }

    /// Forgets a group that no longer exists, some time after [`Self::submit`].
    pub fn forget(&mut self, group: GroupId) {
        self.assert_usable();
        if self.groups.remove(&group).is_some() {
            self.say(Entry::Forget(group));
        }
    }

    fn say(&mut self, entry: Entry) {
        self.is_clean = matches!(entry, Entry::Clean(_));
        self.queue.push_back(entry);
    }

    /// Lets everything put so far be written, once what is in flight is durable.
    pub fn submit(&mut self, out: &mut Outbox) {
        self.assert_usable();
        self.submitted = self.queue.len();
        self.advance(out);
        self.assert_invariants();
    }

    /// Records that the logs hold all they ever promised: after a power loss, once every group
    /// has caught up. Until then every restart answers `power_lost` again.
    pub fn trust_logs(&mut self, out: &mut Outbox) {
        self.assert_usable();
        if self.trusted_boot != Some(self.config.boot_id) {
            self.trusted_boot = Some(self.config.boot_id);
            self.say(Entry::Boot(self.config.boot_id));
        }
        self.submit(out);
    }

    /// Records a clean stop, after which a new boot is no power loss: [`ViewStoreEvent::Clean`].
    /// To be called once all logs are synced; nothing may be written to them afterwards. Logs
    /// that are not trusted do not become so.
    pub fn mark_clean(&mut self, out: &mut Outbox) {
        self.assert_usable();
        self.say(Entry::Clean(self.config.boot_id));
        self.submit(out);
    }

    /// Closes the file; nothing may be put any more.
    ///
    /// # Panics
    /// If something is in flight.
    pub fn close(&mut self, out: &mut Outbox) {
        base::invariant!(self.is_quiet());
        self.stage = Stage::Ended;
        if let Some(file) = self.file.take() {
            self.request(DiskRequest::Close { file }, out);
        }
    }

    /// The views of a group as last put.
    #[must_use]
    pub fn get(&self, group: GroupId) -> Option<Views> {
        self.groups.get(&group).copied()
    }

    /// Whether everything put is durable and nothing is in flight.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.queue.is_empty() && matches!(self.stage, Stage::Idle | Stage::Ended)
    }

    fn assert_usable(&self) {
        base::invariant!(
            !matches!(self.stage, Stage::Recovering(_)),
            "recovery comes first"
        );
    }

    fn assert_invariants(&self) {
        base::invariant!(self.durable <= self.count);
        base::invariant!(self.submitted <= self.queue.len());
        if matches!(self.stage, Stage::Idle | Stage::Ended) {
            base::invariant!(self.step.is_none());
            base::invariant!(!self.full);
        }
    }

    /// Starts the next write, if nothing is in flight.
    fn advance(&mut self, out: &mut Outbox) {
        if !matches!(self.stage, Stage::Idle) || self.submitted == 0 {
            return;
        }
        base::invariant!(self.batch.is_empty());
        self.batch = self.queue.drain(..self.submitted).collect();
        self.submitted = 0;
        let file = self.file.expect("the file is open");
        let offset = u64::from(self.count) * RECORD_SIZE as u64;
        let data = encode(&self.batch, self.count, self.durable).freeze();
        self.count += u32::try_from(self.batch.len()).expect("compaction keeps the file small");
        self.stage = Stage::Writing;
        self.start_step(
            DiskRequest::Write {
                file,
                offset,
                data: [data].into(),
            },
            out,
        );
    }

    /// Everything written is durable.
    fn on_durable(&mut self, events: &mut Vec<ViewStoreEvent>) {
        self.durable = self.count;
        for entry in core::mem::take(&mut self.batch) {
            match entry {
                Entry::View(group, views) => {
                    events.push(ViewStoreEvent::Durable { group, views });
                }
                Entry::Clean(_) => events.push(ViewStoreEvent::Clean),
                Entry::Identity(_) | Entry::Boot(_) | Entry::Forget(_) | Entry::Founded(_) => {}
            }
        }
    }

    fn start_step(&mut self, request: DiskRequest, out: &mut Outbox) {
        base::invariant!(self.step.is_none());
        self.again = repeatable(&request);
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

/// The same request once more, if it is one that a full disk can refuse and that may be repeated.
fn repeatable(request: &DiskRequest) -> Option<DiskRequest> {
    match request {
        DiskRequest::Open { file, path, mode } => Some(DiskRequest::Open {
            file: *file,
            path: path.clone(),
            mode: *mode,
        }),
        DiskRequest::Write { file, offset, data } => Some(DiskRequest::Write {
            file: *file,
            offset: *offset,
            data: data.clone(),
        }),
        DiskRequest::Rename { from, to } => Some(DiskRequest::Rename {
            from: from.clone(),
            to: to.clone(),
        }),
        DiskRequest::CreateDir { path } => Some(DiskRequest::CreateDir { path: path.clone() }),
        _ => None,
    }
}

/// Records of `entries`, the first of which has sequence `first`.
fn encode(entries: &[Entry], first: u32, durable: u32) -> Buffer {
    let mut buffer = Buffer::with_capacity(entries.len() * RECORD_SIZE);
    for (sequence, &entry) in (first..).zip(entries) {
        buffer.extend(&Record::new(sequence, durable, entry).encode());
    }
    buffer
}
