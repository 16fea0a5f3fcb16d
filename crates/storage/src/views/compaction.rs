//! Writing the living records into a new file that takes the old one's name.
//!
//! What is queued goes into the new file too and is durable with it. Until the rename is durable
//! either file may be the one that is found after a power loss, and both hold everything that
//! was ever told to be durable.

use alloc::vec::Vec;

use base::planted;
use platform::{DiskRequest, DiskResult, FileId, OpenMode, Outbox};

use super::{
    COMPACTION_RATIO, NAME, NAME_TEMPORARY, Stage, ViewStore, ViewStoreEvent, encode,
    record::{Entry, RECORD_SIZE},
};
use crate::FileIds;

/// What compaction waits for; the file is the new one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Opening(FileId),
    Writing(FileId),
    Syncing(FileId),
    Renaming(FileId),
    SyncingNames(FileId),
}

impl ViewStore {
    pub(super) fn is_too_large(&self) -> bool {
        let live = (self.groups.len() as u64 + 3) * RECORD_SIZE as u64;
        let size = u64::from(self.count) * RECORD_SIZE as u64;
        size > self.config.compaction_size_min && size > COMPACTION_RATIO * live
    }

    pub(super) fn start_compaction(&mut self, files: &mut FileIds, out: &mut Outbox) {
        let file = files.next();
        let path = self.config.directory.join(NAME_TEMPORARY);
        self.stage = Stage::Compacting(Step::Opening(file));
        self.start_step(
            DiskRequest::Open {
                file,
                path,
                mode: OpenMode::CreateEmpty,
            },
            out,
        );
    }

    pub(super) fn on_compaction(
        &mut self,
        step: Step,
        result: &DiskResult,
        out: &mut Outbox,
        events: &mut Vec<ViewStoreEvent>,
    ) {
        let directory = self.config.directory.clone();
        let (next, request) = match (step, result) {
            (Step::Opening(file), DiskResult::Opened { .. }) => {
                (Step::Writing(file), self.write_living(file))
            }
            (Step::Writing(file), DiskResult::Written) if !planted::bug(27) => {
                (Step::Syncing(file), DiskRequest::SyncData { file })
            }
            (Step::Writing(file), DiskResult::Written)
            | (Step::Syncing(file), DiskResult::Done) => {
                let (from, to) = (directory.join(NAME_TEMPORARY), directory.join(NAME));
                (Step::Renaming(file), DiskRequest::Rename { from, to })
            }
            (Step::Renaming(file), DiskResult::Done) => (
                Step::SyncingNames(file),
                DiskRequest::SyncDir { path: directory },
            ),
            (Step::SyncingNames(file), DiskResult::Done) => {
                let old = self.file.replace(file).expect("the old file is open");
                self.request(DiskRequest::Close { file: old }, out);
                self.on_durable(events);
                return;
            }
            (step, result) => panic!("{result:?} is no answer in {step:?}"),
        };
        self.stage = Stage::Compacting(next);
        self.start_step(request, out);
    }

    /// One write of all that lives, with what is queued.
    fn write_living(&mut self, file: FileId) -> DiskRequest {
        base::invariant!(self.batch.is_empty());
        self.batch = self.queue.drain(..).collect();
        self.submitted = 0;
        let boot_id = self.trusted_boot.expect("recovery has set it");
        let mut living = Vec::with_capacity(self.groups.len() + 4);
        living.push(Entry::Identity(self.config.identity));
        living.push(Entry::Boot(boot_id));
        living.extend(self.founded.map(Entry::Founded));
        living.extend(
            self.groups
                .iter()
                .map(|(group, views)| Entry::View(*group, *views)),
        );
        // A clean stop stays the last thing said.
        living.extend(
            self.batch
                .last()
                .filter(|entry| matches!(entry, Entry::Clean(_))),
        );
        self.count = u32::try_from(living.len()).expect("groups of a shard");
        self.durable = 0;
        let data = encode(&living, 0, 0).freeze();
        DiskRequest::Write {
            file,
            offset: 0,
            data: [data].into(),
        }
    }
}
