//! Cutting the log's end, after recovery and for a truncation, and removing it altogether.
//!
//! Later segments go first, the newest of them before the others, each durably before the next:
//! whatever instant the power fails, what is left is a prefix of the old log without a gap.

use alloc::{
    collections::VecDeque,
    string::{String, ToString},
    vec::Vec,
};

use base::Op;
use platform::{DiskRequest, Outbox, Path};

use super::{Context, Ending, Journal, JournalEvent, Stage};
use crate::{
    segment::{SegmentFile, parse_name},
    tail::HEADERS_MIN,
};

/// What to cut off.
#[derive(Debug)]
pub(super) struct Cut {
    /// Segments to remove, by first op, newest first.
    pub(super) doomed: Vec<Op>,
    /// Size to cut the last remaining segment to; `None` leaves it as it is.
    pub(super) end: Option<u64>,
    /// Directories to create for a log that has none.
    pub(super) create: Vec<DiskRequest>,
    pub(super) then: Then,
}

/// What a sequence of requests was for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    Recovered { cut_bytes: u64 },
    Truncated { op: Op },
    Removed,
}

impl Journal {
    /// Everything up to `op` is written: finds out where it ends and cuts there.
    pub(super) fn start_truncation(&mut self, op: Op, context: &mut Context<'_>) {
        base::invariant!(self.written == op);
        let reachable = op.0 + 1 - self.first_op().0.min(op.0 + 1);
        let wanted = usize::try_from(reachable)
            .unwrap_or(usize::MAX)
            .min(HEADERS_MIN);
        if wanted > 0 && (self.tail.get(op).is_none() || self.tail.len() < wanted) {
            self.stage = Stage::Refilling;
            self.start_refill(op, context);
            return;
        }
        let mut doomed = Vec::new();
        while let Some(segment) = self.segments.pop_if(|segment| segment.first > op) {
            doomed.push(segment.first);
            if let Some(file) = segment.open() {
                self.retire(file);
            }
        }
        self.close_retired(context.out);
        let mut end = None;
        if let Some(target) = self.segments.last_mut() {
            let last = self.tail.get(op).expect("at least one op is in the tail");
            let (segment, position) = last.place.expect("it is written");
            base::invariant!(segment == target.first);
            target.size = position + u64::from(last.header.size);
            end = Some(target.size);
        }
        let then = Then::Truncated { op };
        self.start_cut(
            Cut {
                doomed,
                end,
                create: Vec::new(),
                then,
            },
            context,
        );
    }

    pub(super) fn start_cut(&mut self, cut: Cut, context: &mut Context<'_>) {
        self.stage = Stage::OpeningTarget(cut);
        self.continue_cut(context);
    }

    /// Once the file that the log will end in is open, the rest follows without a choice.
    /// Answers whether it is.
    pub(super) fn continue_cut(&mut self, context: &mut Context<'_>) -> bool {
        let target = self
            .segments
            .last()
            .map(|segment| (segment.first, segment.file));
        let file = match target {
            None => None,
            Some((_, SegmentFile::Open(file))) => Some(file),
            Some((first, SegmentFile::Closed)) => {
                self.open_segment(first, context);
                return false;
            }
            Some((_, SegmentFile::Opening(_))) => return false,
        };
        let stage = core::mem::replace(&mut self.stage, Stage::Idle);
        let Stage::OpeningTarget(cut) = stage else {
            panic!("no cut in {stage:?}")
        };
        let directory = self.config.directory.clone();
        let mut requests: VecDeque<_> = cut.create.into();
        for first in cut.doomed {
            let path = self.segment_path(first);
            requests.push_back(DiskRequest::RemoveFile { path });
            requests.push_back(DiskRequest::SyncDir {
                path: directory.clone(),
            });
        }
        if let Some(file) = file {
            if let Some(size) = cut.end {
                requests.push_back(DiskRequest::Truncate { file, size });
            }
            requests.push_back(DiskRequest::SyncData { file });
        }
        requests.push_back(DiskRequest::SyncDir { path: directory });
        self.continue_sequence(requests, cut.then, context);
        true
    }

    /// Starts the next request of a sequence, or ends it.
    pub(super) fn continue_sequence(
        &mut self,
        mut requests: VecDeque<DiskRequest>,
        then: Then,
        context: &mut Context<'_>,
    ) {
        if let Some(request) = requests.pop_front() {
            self.stage = Stage::Sequence { requests, then };
            self.start_step(request, context.out);
            return;
        }
        match then {
            Then::Recovered { cut_bytes } => {
                self.name_durable = true;
                context.events.push(JournalEvent::Recovered {
                    head: self.head,
                    base: self.base(),
                    cut_bytes,
                    gaps: self.gaps(),
                });
            }
            Then::Truncated { op } => {
                self.name_durable = true;
                self.on_truncated(op, context.events);
            }
            Then::Removed => {
                self.stage = Stage::Ended;
                context.events.push(JournalEvent::Removed);
            }
        }
    }

    fn on_truncated(&mut self, op: Op, events: &mut Vec<JournalEvent>) {
        // A deeper truncation may have been asked for meanwhile; then this one is not told.
        if self
            .truncations
            .pop_front_if(|pending| *pending == op)
            .is_none()
        {
            return;
        }
        base::invariant!(self.written == op);
        self.on_synced(op, events);
        events.push(JournalEvent::Truncated { op });
    }

    pub(super) fn start_removal(&mut self, out: &mut Outbox) {
        base::invariant!(self.ending == Some(Ending::Remove));
        self.readers.clear();
        self.close_all(out);
        self.segments.clear();
        self.stage = Stage::ListingToRemove;
        let path = self.config.directory.clone();
        self.start_step(DiskRequest::List { path }, out);
    }

    /// Removes the files, segments newest first, then the directory.
    pub(super) fn remove_names(&mut self, names: &[String], context: &mut Context<'_>) {
        let mut names: Vec<_> = names.iter().map(|name| (parse_name(name), name)).collect();
        names.sort_unstable();
        let directory = self.config.directory.clone();
        let mut requests: VecDeque<_> = names
            .iter()
            .rev()
            .map(|(_, name)| DiskRequest::RemoveFile {
                path: directory.join(name),
            })
            .collect();
        let (parent, _) = directory.split();
        requests.push_back(DiskRequest::RemoveDir {
            path: directory.clone(),
        });
        requests.push_back(DiskRequest::SyncDir { path: parent });
        self.continue_sequence(requests, Then::Removed, context);
    }

    /// Requests that create the log's directory and make its name durable: one pair for each
    /// directory on the way.
    pub(super) fn create_directories(&self) -> Vec<DiskRequest> {
        let mut requests = Vec::new();
        let mut path = Path(String::new());
        for name in self.config.directory.to_string().split('/') {
            let parent = path.clone();
            path = path.join(name);
            requests.push(DiskRequest::CreateDir { path: path.clone() });
            requests.push(DiskRequest::SyncDir { path: parent });
        }
        requests
    }
}
