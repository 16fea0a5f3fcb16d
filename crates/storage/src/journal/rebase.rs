//! Logs that do not begin at op 1: starting anew after a base, and dropping the oldest segments.
//!
//! A reset removes the old segments, newest first and each durably before the next, and then
//! creates a segment that is only a header: after a crash there is a beginning of the old log, or
//! nothing, or the new one. Dropping goes the other way round, oldest first, so that what is left
//! has no gap either.

use alloc::collections::VecDeque;

use base::Op;
use platform::{DiskRequest, OpenMode, Outbox};

use super::{Context, Journal, JournalEvent, Stage, cut::Then};
use crate::{
    FileIds,
    segment::{SEGMENT_HEADER_SIZE, Segment, SegmentFile},
    tail::Tail,
};

impl Journal {
    /// Removes all ops and starts an empty log after `base`, whose identity is `checksum`:
    /// [`JournalEvent::Reset`] once that is durable. Appending may go on at once; nothing
    /// appended is written before. A crash in between leaves a beginning of the old log, or
    /// nothing.
    pub fn reset(&mut self, base: Op, checksum: u128, files: &mut FileIds, out: &mut Outbox) {
        base::invariant!(
            !matches!(self.stage, Stage::Recovering(_)),
            "recovery comes first"
        );
        self.tail = Tail::default();
        self.holes.clear();
        self.truncations.clear();
        self.drop_to = Op(0);
        self.give_up_reads(|_| true);
        self.give_up_patrol();
        self.base = (base, checksum);
        self.head = base;
        self.head_checksum = Some(checksum);
        self.submitted = base;
        self.written = base;
        self.synced = base;
        self.resetting = true;
        self.resets += 1;
        self.advance_quietly(files, out);
    }

    pub(super) fn start_reset(&mut self, context: &mut Context<'_>) {
        let directory = self.config.directory.clone();
        let mut requests = VecDeque::new();
        while let Some(segment) = self.segments.pop() {
            if let Some(file) = segment.open() {
                self.retire(file);
            }
            let path = self.segment_path(segment.first);
            requests.push_back(DiskRequest::RemoveFile { path });
            let path = directory.clone();
            requests.push_back(DiskRequest::SyncDir { path });
        }
        self.close_retired(context.out);
        let (base, checksum) = self.base;
        let then = Then::Reset {
            number: self.resets,
            file: None,
        };
        if base == Op(0) {
            requests.push_back(DiskRequest::SyncDir { path: directory });
            return self.continue_sequence(requests, then, context);
        }
        let file = context.files.next();
        let path = self.segment_path(base.next());
        let mode = OpenMode::CreateEmpty;
        requests.push_back(DiskRequest::Open { file, path, mode });
        requests.push_back(DiskRequest::Write {
            file,
            offset: 0,
            data: [self.segment_header(base.next(), checksum)].into(),
        });
        requests.push_back(DiskRequest::SyncData { file });
        requests.push_back(DiskRequest::SyncDir { path: directory });
        let then = Then::Reset {
            number: self.resets,
            file: Some((file, base.next(), checksum)),
        };
        self.continue_sequence(requests, then, context);
    }

    /// The new log is there.
    pub(super) fn on_reset(
        &mut self,
        number: u64,
        created: Option<(platform::FileId, Op, u128)>,
        context: &mut Context<'_>,
    ) {
        self.name_durable = true;
        if let Some((file, first, parent)) = created {
            let mut segment = Segment::new(first, SegmentFile::Open(file));
            segment.size = SEGMENT_HEADER_SIZE;
            segment.parent = Some(parent);
            self.segments.push(segment);
        }
        if number == self.resets {
            self.resetting = false;
            context.events.push(JournalEvent::Reset);
        } else {
            base::sometimes!("storage: a reset was overtaken by another");
        }
    }

    /// Removes the oldest segments, whole, of which all ops are below `op`; never the active one.
    /// [`Self::first_op`] tells how far it has come.
    pub fn drop_before(&mut self, op: Op, files: &mut FileIds, out: &mut Outbox) {
        base::invariant!(
            !matches!(self.stage, Stage::Recovering(_)),
            "recovery comes first"
        );
        self.drop_to = self.drop_to.max(op);
        self.advance_quietly(files, out);
    }

    /// Whether a segment is here of which all ops are below `op`, and which is not the active one.
    #[must_use]
    pub fn holds_whole_before(&self, op: Op) -> bool {
        self.segments.get(1).is_some_and(|next| next.first <= op)
    }

    /// Whether the oldest segment may go.
    pub(super) fn may_drop(&self) -> bool {
        let [_, next, ..] = self.segments.as_slice() else {
            return false;
        };
        next.first <= self.drop_to
            && next.parent.is_some()
            && next.first <= self.synced.next()
            && self.truncations.is_empty()
    }

    pub(super) fn start_drop(&mut self, context: &mut Context<'_>) {
        let oldest = self.segments.remove(0);
        if let Some(file) = oldest.open() {
            self.retire(file);
        }
        let next = &self.segments[0];
        let first = next.first;
        self.base = (
            Op(first.0 - 1),
            next.parent.expect("the caller has seen it"),
        );
        self.holes.retain(|hole| hole.from >= first);
        self.give_up_reads(|segment| segment == oldest.first);
        self.give_up_patrol();
        self.close_retired(context.out);
        base::sometimes!("storage: the oldest segment was dropped");
        let path = self.segment_path(oldest.first);
        let directory = self.config.directory.clone();
        let requests = VecDeque::from([
            DiskRequest::RemoveFile { path },
            DiskRequest::SyncDir { path: directory },
        ]);
        self.continue_sequence(requests, Then::Dropped, context);
    }
}
