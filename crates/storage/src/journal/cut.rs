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
use platform::{DiskRequest, FileId, Outbox, Path};

use super::{Context, Ending, Journal, JournalEvent, Stage, full::copy};
use crate::{
    segment::{SEGMENT_HEADER_SIZE, SegmentFile, parse_name},
    tail::HEADERS_MIN,
};

/// What to cut off.
#[derive(Debug)]
pub(super) struct Cut {
    /// Segments to remove, by first op, newest first.
    pub(super) doomed: Vec<Op>,
    /// Size to cut the last remaining segment to; `None` leaves it as it is.
    pub(super) end: Option<u64>,
    /// What comes first: directories for a log that has none, headers that were damaged.
    pub(super) before: Vec<DiskRequest>,
    pub(super) then: Then,
}

/// What a sequence of requests was for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    Recovered {
        cut_bytes: u64,
    },
    Truncated {
        op: Op,
    },
    Removed,
    /// These ops are in their places; the last ends there.
    Repaired {
        from: Op,
        to: Op,
        end: u64,
    },
    /// What has come for the hole that begins here is not as long as the room for it.
    Misfit {
        from: Op,
    },
    /// Reset of this number; the new segment with its first op and its parent.
    Reset {
        number: u64,
        file: Option<(FileId, Op, u128)>,
    },
    Dropped,
    Probed,
}

impl Journal {
    /// Whether it is known where `op` ends: not amid what is missing.
    pub(super) fn may_truncate(&self, op: Op) -> bool {
        self.hole_at(op).is_none_or(|hole| hole.to == op)
    }

    /// Everything up to `op` is written: finds out where it ends and cuts there.
    pub(super) fn start_truncation(&mut self, op: Op, context: &mut Context<'_>) {
        base::invariant!(self.written == op);
        let is_empty = op == self.base.0;
        if !is_empty && self.hole_that_ends(op).is_none() {
            let reachable = op.0 + 1 - self.reachable_from(op).0;
            let wanted = usize::try_from(reachable)
                .unwrap_or(usize::MAX)
                .min(HEADERS_MIN);
            if self.tail.get(op).is_none() || self.tail.len() < wanted {
                self.stage = Stage::Refilling;
                self.start_refill(op, context);
                return;
            }
        }
        // What was found above since the truncation was asked for goes with it.
        self.cut_holes(op);
        self.give_up_patrol();
        // A segment that is only a header says what the op before it was, where nothing else does.
        let names = |hole: &super::holes::Hole| hole.end.is_none();
        let keeps_next = is_empty && op > Op(0) || self.hole_that_ends(op).is_some_and(names);
        let last = if keeps_next { op.next() } else { op };
        let mut doomed = Vec::new();
        while let Some(segment) = self.segments.pop_if(|segment| segment.first > last) {
            doomed.push(segment.first);
            if let Some(file) = segment.open() {
                self.retire(file);
            }
        }
        self.close_retired(context.out);
        let mut end = None;
        if let Some((place, size)) = self.end_after(op, keeps_next) {
            let target = self.segments.last_mut().expect("it holds the last op");
            base::invariant!(place == target.first);
            target.size = size;
            end = Some(size);
        }
        let then = Then::Truncated { op };
        self.start_cut(
            Cut {
                doomed,
                end,
                before: Vec::new(),
                then,
            },
            context,
        );
    }

    /// The segment that the log ends in with `op`, and where; `None` if nothing is left of it.
    fn end_after(&self, op: Op, keeps_next: bool) -> Option<(Op, u64)> {
        if keeps_next {
            base::sometimes!("storage: a log was cut to a header that names what is missing");
            return Some((op.next(), SEGMENT_HEADER_SIZE));
        }
        if let Some(hole) = self.hole_that_ends(op) {
            base::sometimes!("storage: a log was cut after an op that is missing");
            return Some((
                hole.segment,
                hole.end.expect("else the next segment is kept"),
            ));
        }
        if op == self.base.0 {
            return None;
        }
        let last = self.tail.get(op).expect("at least one op is in the tail");
        let (segment, position) = last.place.expect("it is written");
        Some((segment, position + u64::from(last.header.size)))
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
        let mut requests: VecDeque<_> = cut.before.into();
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
            let current = copy(&request);
            self.stage = Stage::Sequence {
                current,
                requests,
                then,
            };
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
                self.removed = true;
            }
            Then::Repaired { from, to, end } => self.on_repaired((from, to), end, context),
            Then::Misfit { from } => self.on_misfit(from, context.events),
            Then::Reset { number, file } => self.on_reset(number, file, context),
            Then::Dropped | Then::Probed => {}
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
