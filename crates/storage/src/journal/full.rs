//! A full disk: nothing counts as written, and the same bytes are tried again when the owner says
//! so. Reads go on, and what is in the page cache can still be synced.

use alloc::{collections::VecDeque, vec::Vec};

use platform::{DiskRequest, OpenMode, Outbox};

use super::{Context, Journal, JournalEvent, Stage, cut::Then};
use crate::FileIds;

impl Journal {
    /// After [`JournalEvent::Full`]: tries again. [`JournalEvent::Space`] if it works,
    /// [`JournalEvent::Full`] if not.
    pub fn retry(&mut self, files: &mut FileIds, out: &mut Outbox) {
        if !self.full {
            return;
        }
        self.full = false;
        self.hopes = true;
        let mut events = Vec::new();
        let context = &mut Context {
            files,
            out,
            events: &mut events,
        };
        if let Stage::Sequence { current, .. } = &self.stage {
            let again = copy(current);
            self.start_step(again, context.out);
        } else {
            self.advance(context);
            if self.step.is_none() && matches!(self.stage, Stage::Idle) {
                // Nothing is left to write; whether there is space shows at the next write.
                let path = self.config.directory.clone();
                let requests = VecDeque::from([DiskRequest::SyncDir { path }]);
                self.continue_sequence(requests, Then::Probed, context);
            }
        }
        base::invariant!(events.is_empty(), "starting work tells nothing");
        self.assert_invariants();
    }

    /// Whether the journal waits for [`Self::retry`].
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.full
    }

    /// The step has found no space. Answers whether that can be waited for.
    pub(super) fn on_full(&mut self, events: &mut Vec<JournalEvent>) -> bool {
        match &self.stage {
            Stage::Writing { offset, .. } => {
                base::sometimes!("storage: a write found the disk full");
                let active = self.segments.last_mut().expect("it was written to");
                active.size = *offset;
                let written = self.written;
                for segment in &mut self.segments {
                    segment.index.cut(written);
                }
                self.stage = Stage::Idle;
            }
            Stage::Creating => {
                base::sometimes!("storage: a new segment found the disk full");
                self.segments.pop();
                self.name_durable = true;
                self.stage = Stage::Idle;
            }
            // A sync that fails has lost what it was for, whatever it calls the reason.
            Stage::Sequence {
                current: DiskRequest::SyncData { .. },
                ..
            } => return false,
            Stage::Sequence { .. } => {
                base::sometimes!("storage: a repair or a reset found the disk full");
            }
            _ => return false,
        }
        self.full = true;
        self.hopes = false;
        events.push(JournalEvent::Full);
        true
    }

    /// A step has ended well: if it was the one that did not fit, there is space again.
    pub(super) fn on_space(&mut self, events: &mut Vec<JournalEvent>) {
        let wrote = matches!(
            self.stage,
            Stage::Writing { .. } | Stage::Creating | Stage::Sequence { .. }
        );
        if self.hopes && wrote {
            base::sometimes!("storage: a full disk had space again");
            self.hopes = false;
            events.push(JournalEvent::Space);
        }
    }
}

/// The same request once more.
pub(super) fn copy(request: &DiskRequest) -> DiskRequest {
    match request {
        DiskRequest::Open { file, path, mode } => {
            // What failed was not opened; what a crash of the request has created is reused.
            let mode: OpenMode = *mode;
            DiskRequest::Open {
                file: *file,
                path: path.clone(),
                mode,
            }
        }
        DiskRequest::Write { file, offset, data } => DiskRequest::Write {
            file: *file,
            offset: *offset,
            data: data.clone(),
        },
        DiskRequest::SyncData { file } => DiskRequest::SyncData { file: *file },
        DiskRequest::Evict { file } => DiskRequest::Evict { file: *file },
        DiskRequest::SyncDir { path } => DiskRequest::SyncDir { path: path.clone() },
        DiskRequest::Truncate { file, size } => DiskRequest::Truncate {
            file: *file,
            size: *size,
        },
        DiskRequest::Close { file } => DiskRequest::Close { file: *file },
        DiskRequest::RemoveFile { path } => DiskRequest::RemoveFile { path: path.clone() },
        DiskRequest::RemoveDir { path } => DiskRequest::RemoveDir { path: path.clone() },
        DiskRequest::CreateDir { path } => DiskRequest::CreateDir { path: path.clone() },
        DiskRequest::Rename { from, to } => DiskRequest::Rename {
            from: from.clone(),
            to: to.clone(),
        },
        DiskRequest::List { path } => DiskRequest::List { path: path.clone() },
        DiskRequest::Read { .. } => unreachable!("reads are in no sequence"),
    }
}
