//! Files: what the kernel promises of them and nothing more.
//!
//! A completed write is in the page cache: it survives a crash of the process, not of the power.
//! It survives the latter once a later `SyncData` of the file has completed. A created, renamed
//! or removed name survives once a later `SyncDir` of its directory has completed. Requests on
//! one file are executed in the order given only if the caller waits for each; a write and a sync
//! in flight together have no order.

use alloc::{string::String, vec::Vec};
use core::fmt;

use base::{Buffer, Bytes};

use crate::Token;

/// An open file, named by the shard that opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// A path relative to the node's data directory, with `/` between names; empty is the directory
/// itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(pub String);

impl Path {
    /// The path of `name` in this directory.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        if self.0.is_empty() {
            return Self(name.into());
        }
        let mut path = String::with_capacity(self.0.len() + 1 + name.len());
        path.push_str(&self.0);
        path.push('/');
        path.push_str(name);
        Self(path)
    }

    /// The directory this name is in, and the name.
    #[must_use]
    pub fn split(&self) -> (Self, &str) {
        match self.0.rsplit_once('/') {
            Some((parent, name)) => (Self(parent.into()), name),
            None => (Self(String::new()), &self.0),
        }
    }
}

impl From<&str> for Path {
    fn from(path: &str) -> Self {
        Self(path.into())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How to open a file; always for reading and writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// It must exist.
    Existing,
    /// It is created if missing; its content is kept if not.
    CreateIfMissing,
    /// It is created, or emptied if it exists.
    CreateEmpty,
}

/// What to do.
#[derive(Debug)]
pub enum DiskRequest {
    /// Open a file under an id chosen by the caller, unused so far; `Opened { size }`.
    Open {
        /// The id it will have.
        file: FileId,
        /// Where it is.
        path: Path,
        /// How.
        mode: OpenMode,
    },
    /// Read from `offset` into the room after the buffer's length, as much as fits; `Read`. Fewer
    /// bytes mean the end of the file.
    Read {
        /// Which.
        file: FileId,
        /// Where from.
        offset: u64,
        /// Where to.
        buffer: Buffer,
    },
    /// Write all of `data`, one after the other, at `offset`; `Written`.
    Write {
        /// Which.
        file: FileId,
        /// Where to; may be beyond the end.
        offset: u64,
        /// What.
        data: Vec<Bytes>,
    },
    /// Make all completed writes to the file, and its size, survive a power loss; `Done`.
    SyncData {
        /// Which.
        file: FileId,
    },
    /// Drop what memory holds of the file and is durable, so that the next read asks the device:
    /// after a failed sync the page cache may hold what the device never took. What is written
    /// and not synced stays; `Done`.
    Evict {
        /// Which.
        file: FileId,
    },
    /// Make the names in a directory survive a power loss; `Done`.
    SyncDir {
        /// Which.
        path: Path,
    },
    /// Cut or extend the file; `Done`.
    Truncate {
        /// Which.
        file: FileId,
        /// To how many bytes.
        size: u64,
    },
    /// Close the file; `Done`. The id may not be used again.
    Close {
        /// Which.
        file: FileId,
    },
    /// Replace `to` by `from`; `Done`.
    Rename {
        /// The name now.
        from: Path,
        /// The name afterwards.
        to: Path,
    },
    /// Remove a file; `Done`, also if there is none.
    RemoveFile {
        /// Which.
        path: Path,
    },
    /// Remove an empty directory; `Done`, also if there is none.
    RemoveDir {
        /// Which.
        path: Path,
    },
    /// Create a directory; `Done`, also if it exists. Its parent must exist.
    CreateDir {
        /// Which.
        path: Path,
    },
    /// The names in a directory, sorted; `Names`, or `NotFound` if there is no such directory.
    List {
        /// Which.
        path: Path,
    },
}

/// A request has ended.
#[derive(Debug)]
pub struct DiskDone {
    /// As given with the request.
    pub token: Token,
    /// How it ended.
    pub result: Result<DiskResult, DiskError>,
}

/// What came out of a request that went well.
#[derive(Debug)]
pub enum DiskResult {
    /// Nothing to tell.
    Done,
    /// The file is open and has this many bytes.
    Opened {
        /// Bytes.
        size: u64,
    },
    /// The buffer, with what was read appended.
    Read {
        /// As given, longer unless the end was reached.
        buffer: Buffer,
    },
    /// All bytes are in the page cache.
    Written,
    /// Names in the directory, sorted.
    Names(Vec<String>),
}

/// Why a request failed. The body has already retried what may be retried (interrupted calls,
/// short writes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskError {
    /// No such file or directory, where one must exist.
    NotFound,
    /// No space left.
    Full,
    /// The device failed; after a failed sync the written pages must be taken for lost.
    Io,
}
