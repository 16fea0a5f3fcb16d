//! Looks at this process and its machine for people: the numbers of code 10 and the diagnostic
//! archive of code 11. Runs on a thread of its own; nothing here has a say in the protocol.
//!
//! **Invariant:** no credential goes into an archive: the effective configuration has none, and
//! what tells one to the operator does not go through the log.

mod archive;
mod facts;
mod log_tail;

use std::path::PathBuf;

use platform::Facts;
use uring::Inspector;
use wire::{ArchiveCompression, ArchiveContent};

pub(crate) use log_tail::LogTail;

/// Looks at one node.
pub(crate) struct Inspection {
    /// The data directory.
    data: PathBuf,
    log: LogTail,
    meter: facts::Meter,
}

impl Inspection {
    pub(crate) fn new(data: PathBuf, log: LogTail) -> Self {
        let meter = facts::Meter::default();
        Self { data, log, meter }
    }
}

impl Inspector for Inspection {
    fn measure(&mut self) -> Facts {
        self.meter.measure(&self.data)
    }

    fn archive(
        &mut self,
        compression: ArchiveCompression,
        contents: &[ArchiveContent],
    ) -> Option<Vec<u8>> {
        let sources = archive::Sources {
            data: &self.data,
            log: &self.log,
            facts: self.meter.measure(&self.data),
        };
        match archive::make(compression, contents, &sources) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                tracing::warn!("a diagnostic archive could not be made: {error}");
                None
            }
        }
    }
}
