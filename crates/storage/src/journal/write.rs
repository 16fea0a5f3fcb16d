//! Appending: segments are created, written and synced one step at a time.
//!
//! Group commit needs no queue of its own: what is submitted while a step is in flight is in the
//! tail and goes out with the next write.

use alloc::vec::Vec;

use base::{Op, planted};
use platform::{DiskRequest, OpenMode, Outbox};

use super::{Context, Journal, JournalEvent, Stage};
use crate::segment::{SEGMENT_HEADER_SIZE, Segment, SegmentFile};

/// Pieces of one vectored write; the kernel takes 1,024 at a time.
pub(super) const PIECES_MAX: usize = 1_000;

impl Journal {
    /// Starts the next write, or what must come before it: the active segment made durable and
    /// its successor created.
    pub(super) fn start_write(&mut self, context: &mut Context<'_>) {
        let full = |segment: &Segment| segment.size >= self.config.segment_size;
        if self.segments.last().is_some_and(|active| !full(active)) {
            self.write_records(context.out);
        } else if self.synced < self.written {
            self.sync_written(context);
        } else {
            self.create_segment(context);
        }
    }

    fn create_segment(&mut self, context: &mut Context<'_>) {
        base::invariant!(self.synced == self.written, "a sealed segment is durable");
        base::invariant!(self.name_durable);
        let first = self.written.next();
        let file = context.files.next();
        self.segments
            .push(Segment::new(first, SegmentFile::Open(file)));
        self.name_durable = false;
        self.close_sealed(context.out);
        self.stage = Stage::Creating;
        let path = self.segment_path(first);
        self.start_step(
            DiskRequest::Open {
                file,
                path,
                mode: OpenMode::CreateEmpty,
            },
            context.out,
        );
    }

    pub(super) fn on_created(&self) {
        let active = self.segments.last().expect("the segment being created");
        base::invariant!(active.size == 0);
        base::invariant!(active.open().is_some());
    }

    /// One write of all records that may be written and belong to the active segment.
    fn write_records(&mut self, out: &mut Outbox) {
        let limit = self.write_limit();
        let active = self.segments.last().expect("the caller has seen it");
        let (first, offset) = (active.first, active.size);
        let file = active.open().expect("the active segment is open");
        let mut data = Vec::new();
        let mut size = offset;
        let mut to = self.written;
        if offset == 0 {
            base::invariant!(first == to.next());
            let parent = self
                .tail
                .get(first)
                .expect("unwritten ops are here")
                .header
                .parent;
            data.push(self.segment_header(first, parent));
            size = SEGMENT_HEADER_SIZE;
            let active = self.segments.last_mut().expect("as above");
            active.parent = Some(parent);
        }
        while to < limit && size < self.config.segment_size && data.len() < PIECES_MAX {
            to = to.next();
            let item = self.tail.get_mut(to).expect("unwritten ops are here");
            item.place = Some((first, size));
            let (position, messages) = (size, item.messages);
            let record = item.record.clone().expect("unwritten records are here");
            size += record.len() as u64;
            data.push(record);
            self.note(to, position, messages);
        }
        base::invariant!(to > self.written);
        self.segments.last_mut().expect("as above").size = size;
        self.stage = Stage::Writing { to, offset };
        self.start_step(DiskRequest::Write { file, offset, data }, out);
    }

    pub(super) fn on_written(&mut self, to: Op, events: &mut Vec<JournalEvent>) {
        if self.resetting {
            return; // of the old log
        }
        // A truncation may have been asked for meanwhile.
        let to = self.truncations.front().map_or(to, |op| to.min(*op));
        if to > self.written {
            self.written = to;
            events.push(JournalEvent::Written { op: to });
        }
        self.tail.evict(self.config.tail_cache, self.written);
    }

    pub(super) fn sync_is_due(&self) -> bool {
        self.synced < self.written && (self.config.persisted || self.sync_wanted)
    }

    /// Makes everything written durable before anything else is done.
    pub(super) fn sync_written(&mut self, context: &mut Context<'_>) {
        if planted::bug(2) && self.config.persisted {
            self.name_durable = true;
            self.on_synced(self.written, context.events);
            return;
        }
        self.start_sync(context.out);
    }

    /// Starts a sync: of the data, then of the name if it is new.
    pub(super) fn start_sync(&mut self, out: &mut Outbox) {
        base::invariant!(self.synced < self.written);
        self.sync_wanted = false;
        let active = self.segments.last().expect("something is written");
        let file = active.open().expect("the active segment is open");
        self.stage = Stage::SyncingData { to: self.written };
        self.start_step(DiskRequest::SyncData { file }, out);
    }

    pub(super) fn on_data_synced(&mut self, to: Op, context: &mut Context<'_>) {
        if self.name_durable {
            self.on_synced(to, context.events);
            return;
        }
        self.stage = Stage::SyncingNames { to };
        let path = self.config.directory.clone();
        self.start_step(DiskRequest::SyncDir { path }, context.out);
    }

    pub(super) fn on_synced(&mut self, to: Op, events: &mut Vec<JournalEvent>) {
        let to = to.min(self.written);
        if to > self.synced {
            self.synced = to;
            events.push(JournalEvent::Synced { op: to });
        }
    }
}
