//! Which files are open, and when they are closed.

use alloc::vec::Vec;

use platform::{DiskRequest, FileId, Outbox};

use super::{Flight, Journal, Stage};
use crate::segment::SegmentFile;

/// Sealed segments kept open for reading.
const SEALED_OPEN_MAX: usize = 4;

impl Journal {
    /// Closes a file as soon as no read is in flight on it.
    pub(super) fn retire(&mut self, file: FileId) {
        base::invariant!(!self.retired.contains(&file));
        self.retired.push(file);
    }

    pub(super) fn is_in_flight(&self, file: FileId) -> bool {
        let reads = |flight: &Flight| match flight {
            Flight::Read { file: of, .. } | Flight::Scan { file: of } => *of == file,
            Flight::Open { .. } => false,
        };
        self.flights.values().any(reads)
    }

    pub(super) fn close_retired(&mut self, out: &mut Outbox) {
        for file in core::mem::take(&mut self.retired) {
            if self.is_in_flight(file) {
                self.retired.push(file);
            } else {
                self.request(DiskRequest::Close { file }, out);
            }
        }
    }

    /// Closes the sealed segments that were read longest ago, beyond the bound; those that are
    /// being read have to wait.
    pub(super) fn close_sealed(&mut self, out: &mut Outbox) {
        let sealed = self.segments.len().saturating_sub(1);
        let mut open: Vec<_> = self.segments[..sealed]
            .iter()
            .enumerate()
            .filter_map(|(index, segment)| Some((segment.used, index, segment.open()?)))
            .collect();
        open.sort_unstable();
        let mut excess = open.len().saturating_sub(SEALED_OPEN_MAX);
        for (_, index, file) in open {
            if excess > 0 && !self.is_in_flight(file) {
                self.segments[index].file = SegmentFile::Closed;
                self.request(DiskRequest::Close { file }, out);
                excess -= 1;
            }
        }
        self.too_many_open = excess > 0;
    }

    pub(super) fn close_all(&mut self, out: &mut Outbox) {
        self.give_up_patrol();
        for index in 0..self.segments.len() {
            if let Some(file) = self.segments[index].open() {
                self.retire(file);
            }
            // One that is being opened is closed as soon as it is open.
            self.segments[index].file = SegmentFile::Closed;
        }
        self.close_retired(out);
        self.stage = Stage::Ended;
    }
}
