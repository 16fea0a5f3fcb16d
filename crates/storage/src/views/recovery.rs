//! Reading the view store at start-up and cutting its torn tail.

use alloc::{collections::VecDeque, vec::Vec};

use base::{Buffer, Op};
use platform::{DiskRequest, DiskResult, OpenMode, Outbox};

use super::{
    NAME, NAME_TEMPORARY, Stage, ViewStore, ViewStoreEvent, encode,
    record::{Entry, RECORD_SIZE, Record},
};
use crate::FileIds;

/// Bytes read at a time; a multiple of a record.
const CHUNK_SIZE: usize = 64 << 10;

/// Records that a new file starts with, written together.
const FIRST_COUNT: u32 = 2;

/// How far recovery has come.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// Requests to run one after the other, before the file is read or at the end.
    requests: VecDeque<DiskRequest>,
    /// Whether `requests` are the last ones.
    is_ending: bool,
    /// Whether the file is open.
    is_open: bool,
    size: u64,
    /// Bytes looked at.
    position: u64,
    /// Where the valid records end, once one was not.
    torn_at: Option<u32>,
    /// Whether a clean stop is the last thing recorded.
    is_clean: bool,
    power_lost: bool,
}

impl ViewStore {
    pub(super) fn start_recovery(&mut self, out: &mut Outbox) {
        let directory = self.config.directory.clone();
        let (parent, _) = directory.split();
        let mut recovery = Recovery::default();
        recovery
            .requests
            .push_back(DiskRequest::SyncDir { path: parent });
        let path = directory.join(NAME_TEMPORARY);
        recovery
            .requests
            .push_back(DiskRequest::RemoveFile { path });
        self.stage = Stage::Recovering(recovery);
        self.start_step(DiskRequest::CreateDir { path: directory }, out);
    }

    pub(super) fn on_recovery(
        &mut self,
        mut recovery: Recovery,
        result: DiskResult,
        files: &mut FileIds,
        out: &mut Outbox,
        events: &mut Vec<ViewStoreEvent>,
    ) {
        match result {
            DiskResult::Done | DiskResult::Written => {
                if let Some(request) = recovery.requests.pop_front() {
                    self.start_step(request, out);
                } else if recovery.is_ending {
                    self.end_recovery(&recovery, events);
                    return;
                } else if recovery.is_open {
                    self.read_on(&mut recovery, out, events);
                } else {
                    let file = files.next();
                    self.file = Some(file);
                    let path = self.config.directory.join(NAME);
                    let mode = OpenMode::CreateIfMissing;
                    self.start_step(DiskRequest::Open { file, path, mode }, out);
                }
            }
            DiskResult::Opened { size } => {
                recovery.size = size;
                // If the last process saw a sync fail, memory may hold what the device never took.
                let file = self.file.expect("just opened");
                let evict = [DiskRequest::SyncData { file }, DiskRequest::Evict { file }];
                recovery.requests.extend(evict);
                recovery.is_open = true;
                let request = recovery.requests.pop_front().expect("two of them");
                self.start_step(request, out);
            }
            DiskResult::Read { buffer } => {
                if let Some(refused) = self.on_chunk(&mut recovery, buffer.as_slice()) {
                    events.push(refused);
                    self.stage = Stage::Ended;
                    return;
                }
                self.read_on(&mut recovery, out, events);
            }
            DiskResult::Names(names) => panic!("{names:?} is no answer to recovery"),
        }
        if self.step.is_some() {
            self.stage = Stage::Recovering(recovery);
        }
    }

    /// Reads the next chunk, or mends the file and ends.
    fn read_on(
        &mut self,
        recovery: &mut Recovery,
        out: &mut Outbox,
        events: &mut Vec<ViewStoreEvent>,
    ) {
        let file = self.file.expect("just opened");
        let left = usize::try_from(recovery.size - recovery.position).unwrap_or(CHUNK_SIZE);
        if left >= RECORD_SIZE {
            let offset = recovery.position;
            let size = left.min(CHUNK_SIZE) / RECORD_SIZE * RECORD_SIZE;
            let buffer = Buffer::with_capacity(size);
            self.start_step(
                DiskRequest::Read {
                    file,
                    offset,
                    buffer,
                },
                out,
            );
            return;
        }
        if self.count == 0 && recovery.size > u64::from(FIRST_COUNT) * RECORD_SIZE as u64 {
            events.push(ViewStoreEvent::Damaged { position: 0 });
            self.stage = Stage::Ended;
            return;
        }
        self.mend(recovery);
        let request = recovery.requests.pop_front().expect("a sync at least");
        self.start_step(request, out);
    }

    /// Looks at the records of a chunk; answers why the file is refused, if it is.
    fn on_chunk(&mut self, recovery: &mut Recovery, chunk: &[u8]) -> Option<ViewStoreEvent> {
        let whole = chunk.len() / RECORD_SIZE * RECORD_SIZE;
        for bytes in chunk[..whole].chunks_exact(RECORD_SIZE) {
            let place = u32::try_from(recovery.position / RECORD_SIZE as u64).unwrap_or(u32::MAX);
            recovery.position += RECORD_SIZE as u64;
            let record = Record::decode(bytes).filter(|record| record.sequence == place);
            match (record, recovery.torn_at) {
                (Some(record), Some(torn_at)) if record.durable > torn_at => {
                    let position = u64::from(torn_at) * RECORD_SIZE as u64;
                    return Some(ViewStoreEvent::Damaged { position });
                }
                (Some(record), None) => {
                    self.count = place + 1;
                    // A stop while the logs were not trusted is not clean.
                    recovery.is_clean = matches!(record.entry, Entry::Clean(boot_id)
                        if self.trusted_boot == Some(boot_id));
                    if let Some(refused) = self.recover_entry(place, record) {
                        return Some(refused);
                    }
                }
                (None, None) => recovery.torn_at = Some(place),
                (_, Some(_)) => {}
            }
        }
        if whole == 0 {
            // The file is shorter than it was said to be.
            recovery.position = recovery.size;
        }
        None
    }

    fn recover_entry(&mut self, place: u32, record: Record) -> Option<ViewStoreEvent> {
        match record.entry {
            Entry::Identity(found) => {
                if found != self.config.identity {
                    return Some(ViewStoreEvent::IdentityMismatch { found });
                }
                if record.version == 1 {
                    // Whoever wrote it knew all its groups, without a mark to say so.
                    base::sometimes!("storage: a view store of version 1 is read");
                    self.founded = Some(Op(0));
                }
            }
            _ if place == 0 => return Some(ViewStoreEvent::Damaged { position: 0 }),
            Entry::Boot(boot_id) => self.trusted_boot = Some(boot_id),
            Entry::View(group, views) => {
                self.groups.insert(group, views);
            }
            Entry::Forget(group) => {
                self.groups.remove(&group);
            }
            Entry::Founded(op) => self.founded = Some(op),
            Entry::Clean(_) => {}
        }
        None
    }

    /// Cuts the torn tail, and records this boot if the logs may be trusted in it.
    fn mend(&mut self, recovery: &mut Recovery) {
        let file = self.file.expect("just opened");
        let boot_id = self.config.boot_id;
        let end = u64::from(self.count) * RECORD_SIZE as u64;
        if end < recovery.size {
            let cut = DiskRequest::Truncate { file, size: end };
            recovery.requests.push_back(cut);
        }
        // What is about to be written says that everything before it is durable.
        recovery.requests.push_back(DiskRequest::SyncData { file });
        let same_boot = self.trusted_boot.is_none_or(|trusted| trusted == boot_id);
        recovery.power_lost = !same_boot && !recovery.is_clean;
        let mut entries = Vec::new();
        if self.count == 0 {
            entries.push(Entry::Identity(self.config.identity));
        }
        // A clean stop is over now, whatever the boot.
        let is_recorded = self.trusted_boot == Some(boot_id) && !recovery.is_clean;
        if !recovery.power_lost && !is_recorded {
            self.trusted_boot = Some(boot_id);
            entries.push(Entry::Boot(boot_id));
        }
        if !entries.is_empty() {
            let data = [encode(&entries, self.count, self.count).freeze()].into();
            self.count += u32::try_from(entries.len()).expect("two at most");
            recovery.requests.push_back(DiskRequest::Write {
                file,
                offset: end,
                data,
            });
            recovery.requests.push_back(DiskRequest::SyncData { file });
        }
        let path = self.config.directory.clone();
        recovery.requests.push_back(DiskRequest::SyncDir { path });
        recovery.is_ending = true;
    }

    fn end_recovery(&mut self, recovery: &Recovery, events: &mut Vec<ViewStoreEvent>) {
        self.durable = self.count;
        let groups = self.groups.iter().map(|(group, views)| (*group, *views));
        events.push(ViewStoreEvent::Recovered {
            groups: groups.collect(),
            power_lost: recovery.power_lost,
            founded: self.founded.is_some(),
        });
    }
}
