//! Parts of a checkpoint for a peer: each read opens the file for itself, so that one that is
//! removed meanwhile is just not there.

use alloc::vec::Vec;

use base::{Buffer, Op};
use platform::{DiskError, DiskRequest, DiskResult, FileId, OpenMode, Outbox};
use wire::replica::CheckpointMark;

use super::{CHECKPOINT_HEADER_SIZE, Checkpoints, CheckpointsEvent, checkpoint_name};
use crate::FileIds;

/// A part to read.
#[derive(Clone, Copy, Debug)]
pub struct ReadChunk {
    /// Which checkpoint: its op, or 0 for the newest.
    pub op: Op,
    /// Where in its body.
    pub offset: u64,
    /// How many bytes at most.
    pub bytes_max: usize,
}

/// A read under way.
#[derive(Debug)]
pub(super) struct Serving {
    id: u64,
    mark: CheckpointMark,
    offset: u64,
    size: usize,
    file: FileId,
    is_open: bool,
}

impl Checkpoints {
    /// Reads a part of a checkpoint: [`CheckpointsEvent::Chunk`] or, if it went away meanwhile,
    /// [`CheckpointsEvent::Unread`]. One that is gone is answered by the start of the newest.
    /// Answers whether there is anything to read.
    pub fn read(
        &mut self,
        id: u64,
        chunk: ReadChunk,
        files: &mut FileIds,
        out: &mut Outbox,
    ) -> bool {
        if self.is_ending {
            return false;
        }
        let asked = self.kept.iter().find(|kept| kept.op == chunk.op);
        let (mark, offset) = match (asked.and_then(|kept| kept.mark), self.newest()) {
            (Some(mark), _) if chunk.offset <= mark.size => (mark, chunk.offset),
            (_, Some(newest)) => (newest, 0),
            (_, None) => return false,
        };
        let left = usize::try_from(mark.size - offset).unwrap_or(usize::MAX);
        let file = files.next();
        let path = self.config.directory.join(&checkpoint_name(mark.op));
        let mode = OpenMode::Existing;
        let request = self.request(DiskRequest::Open { file, path, mode }, out);
        let serving = Serving {
            id,
            mark,
            offset,
            size: left.min(chunk.bytes_max),
            file,
            is_open: false,
        };
        self.serving.insert(request, serving);
        true
    }

    pub(super) fn on_serving(
        &mut self,
        mut serving: Serving,
        result: Result<DiskResult, DiskError>,
        out: &mut Outbox,
        events: &mut Vec<CheckpointsEvent>,
    ) {
        let Serving { id, file, .. } = serving;
        match result {
            Ok(DiskResult::Opened { .. }) => {
                serving.is_open = true;
                let offset = CHECKPOINT_HEADER_SIZE as u64 + serving.offset;
                let buffer = Buffer::with_capacity(serving.size);
                let read = DiskRequest::Read {
                    file,
                    offset,
                    buffer,
                };
                let request = self.request(read, out);
                self.serving.insert(request, serving);
            }
            Ok(DiskResult::Read { mut buffer }) => {
                buffer.truncate(serving.size.min(buffer.as_slice().len()));
                self.request(DiskRequest::Close { file }, out);
                if buffer.as_slice().len() < serving.size {
                    return events.push(CheckpointsEvent::Unread { id });
                }
                events.push(CheckpointsEvent::Chunk {
                    id,
                    mark: serving.mark,
                    offset: serving.offset,
                    bytes: buffer.freeze(),
                });
            }
            Err(_) => {
                base::sometimes!("checkpoint: one being served has gone");
                if serving.is_open {
                    self.request(DiskRequest::Close { file }, out);
                }
                events.push(CheckpointsEvent::Unread { id });
            }
            Ok(result) => panic!("{result:?} is no answer to a read"),
        }
    }
}
