//! Reading the whole log at start-up, a chunk at a time.
//!
//! The log ends at the first record that is not whole or not the next of the chain. In the last
//! segment that is a torn tail, as a crash leaves it; before, it is damage, and told as such:
//! a segment is durable before its successor exists. Either way everything after it is cut off
//! before recovery ends.

use alloc::{collections::VecDeque, format, string::String, vec::Vec};

use base::{Buffer, Bytes, Op};
use platform::{DiskError, DiskRequest, DiskResult, Effect, Level, OpenMode};
use wire::{
    HEADER_SIZE,
    replica::{Invalid, PrepareHeader},
};

use super::{Context, Damage, Journal, JournalEvent, cut::Cut, cut::Then};
use crate::{
    record::{Examined, examine},
    segment::{SEGMENT_HEADER_SIZE, Segment, SegmentFile, SegmentHeader, parse_name},
    tail::Item,
};

/// How far recovery has come.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// Segments that have not been opened yet, by first op.
    ahead: VecDeque<Op>,
    /// Size of the file being read.
    size: u64,
    /// Bytes of it that are part of the log.
    position: u64,
    /// Bytes to read from there at least.
    need: usize,
}

impl Journal {
    pub(super) fn on_recovery(
        &mut self,
        mut recovery: Recovery,
        result: DiskResult,
        context: &mut Context<'_>,
    ) {
        match result {
            DiskResult::Names(names) => self.on_names(recovery, &names, context),
            DiskResult::Opened { size } => {
                recovery.size = size;
                recovery.position = 0;
                recovery.need = HEADER_SIZE;
                self.read_on(recovery, context);
            }
            DiskResult::Read { buffer } => self.on_chunk(recovery, &buffer.freeze(), context),
            result => panic!("{result:?} is no answer to recovery"),
        }
    }

    fn on_names(&mut self, mut recovery: Recovery, names: &[String], context: &mut Context<'_>) {
        recovery.ahead = names.iter().filter_map(|name| parse_name(name)).collect();
        recovery.ahead.make_contiguous().sort_unstable();
        let foreign = names.len() - recovery.ahead.len();
        if foreign > 0 {
            let directory = &self.config.directory;
            let line = format!("{directory}: left alone {foreign} files that are no segments");
            context.out.push(Effect::Log {
                level: Level::Warn,
                line,
            });
        }
        match recovery.ahead.front() {
            None => {
                let create = self.create_directories();
                self.end_recovery(Vec::new(), None, create, 0, context);
            }
            Some(Op(1)) => self.open_next(recovery, context),
            Some(&first) => {
                // The beginning is missing: what is left is not ours to throw away.
                self.tell_damage(first, 0, Invalid::Field, context.events);
                self.fail(DiskError::NotFound, context.events);
            }
        }
    }

    /// Opens the next segment, or ends recovery at the clean end of the last one.
    fn open_next(&mut self, mut recovery: Recovery, context: &mut Context<'_>) {
        let Some(first) = recovery.ahead.pop_front() else {
            self.end_recovery(Vec::new(), None, Vec::new(), 0, context);
            return;
        };
        if first != self.head.next() {
            self.tell_damage(first, 0, Invalid::Field, context.events);
            recovery.ahead.push_front(first);
            self.stop(&recovery, 0, context);
            return;
        }
        let file = context.files.next();
        self.segments
            .push(Segment::new(first, SegmentFile::Open(file)));
        self.close_sealed(context.out);
        let path = self.segment_path(first);
        self.stage = super::Stage::Recovering(recovery);
        self.start_step(
            DiskRequest::Open {
                file,
                path,
                mode: OpenMode::Existing,
            },
            context.out,
        );
    }

    /// Reads the next chunk of the open segment, or goes on to the next one.
    fn read_on(&mut self, recovery: Recovery, context: &mut Context<'_>) {
        let left = recovery.size - recovery.position;
        let first = self.segments.last().expect("a segment is open").first;
        if left == 0 && first <= self.head {
            self.open_next(recovery, context);
            return;
        }
        if left < recovery.need as u64 {
            self.on_invalid(&recovery, Invalid::Size, context);
            return;
        }
        let chunk = self.config.read_chunk.max(recovery.need);
        let chunk = usize::try_from(left).map_or(chunk, |left| chunk.min(left));
        let active = self.segments.last().expect("a segment is open");
        let file = active.open().expect("recovery has opened it");
        let (offset, buffer) = (recovery.position, Buffer::with_capacity(chunk));
        self.stage = super::Stage::Recovering(recovery);
        self.start_step(
            DiskRequest::Read {
                file,
                offset,
                buffer,
            },
            context.out,
        );
    }

    fn on_chunk(&mut self, mut recovery: Recovery, chunk: &Bytes, context: &mut Context<'_>) {
        if chunk.len() < recovery.need {
            self.on_invalid(&recovery, Invalid::Size, context);
            return;
        }
        let mut at = 0;
        if recovery.position == 0 {
            if !self.accepts_header(chunk) {
                self.on_invalid(&recovery, Invalid::Checksum, context);
                return;
            }
            at = HEADER_SIZE;
            recovery.position = SEGMENT_HEADER_SIZE;
        }
        loop {
            let expected = self.expected(self.head.next(), self.head_checksum);
            match examine(&chunk[at..], &expected) {
                Examined::Record(header) => {
                    let end = at + header.size as usize;
                    self.recover_record(header, chunk.slice(at, end), recovery.position, context);
                    recovery.position += u64::from(header.size);
                    at = end;
                }
                Examined::Short(need) => {
                    recovery.need = need;
                    break;
                }
                Examined::Invalid(reason) => {
                    self.on_invalid(&recovery, reason, context);
                    return;
                }
            }
        }
        self.segments.last_mut().expect("a segment is open").size = recovery.position;
        self.read_on(recovery, context);
    }

    fn accepts_header(&self, chunk: &[u8]) -> bool {
        SegmentHeader::decode(chunk).is_some_and(|header| {
            header.cluster == self.config.cluster
                && header.group == self.config.group
                && header.first == self.head.next()
                && Some(header.parent) == self.head_checksum
        })
    }

    fn recover_record(
        &mut self,
        header: PrepareHeader,
        record: Bytes,
        position: u64,
        context: &mut Context<'_>,
    ) {
        let segment = self.segments.last().expect("a segment is open").first;
        let item = Item::new(header, record.clone(), Some((segment, position)));
        self.note(header.op, position, item.messages);
        self.tail.push(item);
        self.head = header.op;
        self.head_checksum = Some(header.checksum);
        self.submitted = header.op;
        self.written = header.op;
        self.synced = header.op;
        self.tail.evict(self.config.tail_cache, self.written);
        context
            .events
            .push(JournalEvent::Record { prepare: record });
    }

    /// The log ends in the middle of a segment: by a crash, if it is the last one.
    fn on_invalid(&mut self, recovery: &Recovery, reason: Invalid, context: &mut Context<'_>) {
        let first = self.segments.last().expect("a segment is open").first;
        if !recovery.ahead.is_empty() {
            self.tell_damage(first, recovery.position, reason, context.events);
        }
        self.stop(recovery, recovery.size - recovery.position, context);
    }

    /// Ends the log at the last valid record.
    fn stop(&mut self, recovery: &Recovery, mut cut_bytes: u64, context: &mut Context<'_>) {
        let mut doomed: Vec<_> = recovery.ahead.iter().rev().copied().collect();
        let active = self
            .segments
            .last_mut()
            .expect("the first segment has been opened");
        let mut end = None;
        if active.first > self.head {
            // Not a single record of it is whole.
            doomed.push(active.first);
            cut_bytes = recovery.size;
            let file = active.open().expect("recovery has opened it");
            self.segments.pop();
            self.retire(file);
            self.close_retired(context.out);
        } else if cut_bytes > 0 {
            active.size = recovery.position;
            end = Some(recovery.position);
        }
        self.end_recovery(doomed, end, Vec::new(), cut_bytes, context);
    }

    fn end_recovery(
        &mut self,
        doomed: Vec<Op>,
        end: Option<u64>,
        create: Vec<DiskRequest>,
        cut_bytes: u64,
        context: &mut Context<'_>,
    ) {
        let then = Then::Recovered { cut_bytes };
        self.start_cut(
            Cut {
                doomed,
                end,
                create,
                then,
            },
            context,
        );
    }

    fn tell_damage(
        &self,
        segment: Op,
        position: u64,
        reason: Invalid,
        events: &mut Vec<JournalEvent>,
    ) {
        let op = self.head.next();
        events.push(JournalEvent::Damaged(Damage {
            read: None,
            op,
            segment,
            position,
            reason,
        }));
    }
}
