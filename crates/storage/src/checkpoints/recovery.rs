//! Finding the newest whole checkpoint: from the newest name back, until one is what it says.
//!
//! A name that is found may not be durable, so names are synced before anything is told: what
//! the log drops afterwards relies on it.

use alloc::vec::Vec;

use base::{Buffer, Op, checksum::xxh3_128};
use platform::{DiskError, DiskRequest, DiskResult, FileId, OpenMode, Outbox};

use super::{
    CHECKPOINT_HEADER_SIZE, Checkpoint, CheckpointHeader, Checkpoints, CheckpointsEvent, Kept,
    Stage, checkpoint_name, file::parse_name,
};
use crate::FileIds;

/// What recovery waits for.
#[derive(Clone, Copy, Debug)]
enum Waits {
    Names,
    Opened,
    Header { size: u64 },
    Body { header: CheckpointHeader },
    NamesSynced,
}

/// Recovery under way.
#[derive(Debug)]
pub(super) struct Recovery {
    waits: Waits,
    /// Names not looked at, ascending.
    candidates: Vec<Op>,
    /// The one being read.
    candidate: Option<(Op, FileId)>,
    found: Option<Checkpoint>,
}

impl Checkpoints {
    pub(super) fn start_recovery(&mut self, out: &mut Outbox) {
        let path = self.config.directory.clone();
        self.start_step(DiskRequest::List { path }, out);
        self.stage = Stage::Recovering(Recovery {
            waits: Waits::Names,
            candidates: Vec::new(),
            candidate: None,
            found: None,
        });
    }

    pub(super) fn on_recovery(
        &mut self,
        mut recovery: Recovery,
        result: Result<DiskResult, DiskError>,
        files: &mut FileIds,
        out: &mut Outbox,
        events: &mut Vec<CheckpointsEvent>,
    ) {
        if self.is_ending {
            if matches!(recovery.waits, Waits::Opened) && result.is_err() {
                recovery.candidate = None;
            }
            self.close_candidate(&mut recovery, out);
            return;
        }
        match (recovery.waits, result) {
            (Waits::Names, Err(DiskError::NotFound)) => {
                return events.push(CheckpointsEvent::Recovered(None));
            }
            (Waits::Names, Ok(DiskResult::Names(names))) => {
                recovery.candidates = names.iter().filter_map(|name| parse_name(name)).collect();
                recovery.candidates.sort_unstable();
                recovery.waits = Waits::NamesSynced;
                if recovery.candidates.is_empty() {
                    // Nothing to rely on.
                    return events.push(CheckpointsEvent::Recovered(None));
                }
                return self.try_next(recovery, files, out);
            }
            (Waits::NamesSynced, Ok(DiskResult::Done)) => {
                return self.end_recovery(recovery, events);
            }
            (Waits::Opened, Ok(DiskResult::Opened { size })) => {
                recovery.waits = Waits::Header { size };
                return self.read_part(recovery, 0, CHECKPOINT_HEADER_SIZE, out);
            }
            (Waits::Header { size }, Ok(DiskResult::Read { buffer })) => {
                if let Some(header) = self.check_header(&recovery, buffer.as_slice(), size) {
                    recovery.waits = Waits::Body { header };
                    let body = usize::try_from(header.mark.size).expect("as large as the file");
                    return self.read_part(recovery, CHECKPOINT_HEADER_SIZE as u64, body, out);
                }
            }
            (Waits::Body { header }, Ok(DiskResult::Read { buffer })) => {
                let CheckpointHeader { mark, replaces, .. } = header;
                let body = buffer.freeze();
                if body.len() as u64 == mark.size && xxh3_128(&body) == mark.digest {
                    self.close_candidate(&mut recovery, out);
                    recovery.found = Some(Checkpoint {
                        mark,
                        body,
                        replaces,
                    });
                    recovery.waits = Waits::NamesSynced;
                    return self.sync_names(recovery, out);
                }
            }
            (Waits::Names | Waits::NamesSynced, Err(error)) => {
                self.stage = Stage::Ended;
                return events.push(CheckpointsEvent::Failed(error));
            }
            // A file that cannot be opened or read is as good as a damaged one.
            (waits, Err(_)) => {
                if matches!(waits, Waits::Opened) {
                    let unopened = recovery.candidate.take();
                    self.stale.extend(unopened.map(|(op, _)| op));
                }
            }
            (waits, Ok(result)) => panic!("{result:?} is no answer to {waits:?}"),
        }
        if let Some(op) = self.close_candidate(&mut recovery, out) {
            base::sometimes!("checkpoint: a damaged one is passed over");
            self.stale.push(op);
            events.push(CheckpointsEvent::Damaged { op });
        }
        self.try_next(recovery, files, out);
    }

    /// Opens the newest that has not been looked at.
    fn try_next(&mut self, mut recovery: Recovery, files: &mut FileIds, out: &mut Outbox) {
        let Some(op) = recovery.candidates.pop() else {
            recovery.waits = Waits::NamesSynced;
            return self.sync_names(recovery, out);
        };
        let file = files.next();
        recovery.candidate = Some((op, file));
        recovery.waits = Waits::Opened;
        let path = self.config.directory.join(&checkpoint_name(op));
        let mode = OpenMode::Existing;
        self.start_step(DiskRequest::Open { file, path, mode }, out);
        self.stage = Stage::Recovering(recovery);
    }

    fn read_part(&mut self, recovery: Recovery, offset: u64, size: usize, out: &mut Outbox) {
        let (_, file) = recovery.candidate.expect("it is open");
        let buffer = Buffer::with_capacity(size);
        self.start_step(
            DiskRequest::Read {
                file,
                offset,
                buffer,
            },
            out,
        );
        self.stage = Stage::Recovering(recovery);
    }

    /// A header, if the file of `size` bytes can be the checkpoint of its name.
    fn check_header(
        &self,
        recovery: &Recovery,
        bytes: &[u8],
        size: u64,
    ) -> Option<CheckpointHeader> {
        let header = CheckpointHeader::decode(bytes)?;
        let mark = header.mark;
        let (op, _) = recovery.candidate.expect("it is open");
        let belongs = header == self.header(mark, header.replaces) && mark.op == op;
        let whole = mark.size.checked_add(CHECKPOINT_HEADER_SIZE as u64) == Some(size);
        (belongs && whole).then_some(header)
    }

    /// Closes the file being read, if one is; answers its op.
    fn close_candidate(&mut self, recovery: &mut Recovery, out: &mut Outbox) -> Option<Op> {
        let (op, file) = recovery.candidate.take()?;
        self.request(DiskRequest::Close { file }, out);
        Some(op)
    }

    fn sync_names(&mut self, recovery: Recovery, out: &mut Outbox) {
        let path = self.config.directory.clone();
        self.start_step(DiskRequest::SyncDir { path }, out);
        self.stage = Stage::Recovering(recovery);
    }

    fn end_recovery(&mut self, mut recovery: Recovery, events: &mut Vec<CheckpointsEvent>) {
        // A removal that was not durable has been undone by a power loss.
        let older = recovery.candidates.pop();
        self.stale.append(&mut recovery.candidates);
        self.kept = older
            .map(|op| Kept {
                op,
                mark: None,
                replaces: None,
            })
            .into_iter()
            .collect();
        if let Some(Checkpoint { mark, replaces, .. }) = &recovery.found {
            self.kept.push(Kept {
                op: mark.op,
                mark: Some(*mark),
                replaces: *replaces,
            });
        }
        events.push(CheckpointsEvent::Recovered(recovery.found));
    }
}
