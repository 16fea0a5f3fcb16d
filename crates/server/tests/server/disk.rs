//! A disk in memory that does what it is told at once. It keeps all that was written over a crash
//! of the process, and knows what a power loss would not have taken.

use std::collections::{BTreeMap, BTreeSet};

use platform::{DiskError, DiskRequest, DiskResult, FileId, OpenMode};

/// Files by inode, so that a removed file lives on for whoever has it open.
#[derive(Default)]
pub(crate) struct Disk {
    inodes: Vec<Vec<u8>>,
    unsynced: BTreeSet<usize>,
    files: BTreeMap<String, usize>,
    directories: BTreeSet<String>,
    open: BTreeMap<(usize, FileId), usize>,
    /// Whether nothing more fits.
    pub(crate) full: bool,
}

impl Disk {
    /// The process is gone, and with it what it had open.
    pub(crate) fn crash(&mut self) {
        self.open.clear();
    }

    /// Names of all files below a directory.
    pub(crate) fn files_below(&self, directory: &str) -> Vec<&str> {
        let below = |name: &&String| name.starts_with(directory);
        self.files
            .keys()
            .filter(below)
            .map(String::as_str)
            .collect()
    }

    /// Names of all directories below a directory.
    pub(crate) fn directories_below(&self, directory: &str) -> Vec<&str> {
        let below = |name: &&String| name.starts_with(directory);
        self.directories
            .iter()
            .filter(below)
            .map(String::as_str)
            .collect()
    }

    /// Flips a bit of a file.
    pub(crate) fn damage(&mut self, name: &str, at: usize) {
        self.inodes[self.files[name]][at] ^= 1;
    }

    /// Whether these bytes have been written anywhere, also to files that are gone.
    pub(crate) fn holds(&self, bytes: &[u8]) -> bool {
        let within = |inode: &Vec<u8>| inode.windows(bytes.len()).any(|window| window == bytes);
        self.inodes.iter().any(within)
    }

    /// The content of a file.
    pub(crate) fn content(&self, name: &str) -> &[u8] {
        &self.inodes[self.files[name]]
    }

    /// The content of a file, to be damaged.
    pub(crate) fn content_mut(&mut self, name: &str) -> &mut [u8] {
        &mut self.inodes[self.files[name]]
    }

    /// Files that are still there with bytes that no sync has covered.
    pub(crate) fn unsynced(&self) -> Vec<&str> {
        let files = self.files.iter();
        let unsynced = files.filter(|(_, inode)| self.unsynced.contains(inode));
        unsynced.map(|(name, _)| name.as_str()).collect()
    }

    pub(crate) fn execute(
        &mut self,
        shard: usize,
        request: DiskRequest,
    ) -> Result<DiskResult, DiskError> {
        let grows = matches!(
            request,
            DiskRequest::Write { .. } | DiskRequest::CreateDir { .. }
        );
        if self.full && grows {
            return Err(DiskError::Full);
        }
        match request {
            DiskRequest::Open { file, path, mode } => self.open(shard, file, path.0, mode),
            DiskRequest::Read {
                file,
                offset,
                mut buffer,
            } => {
                let bytes = &self.inodes[self.open[&(shard, file)]];
                let start = bytes.len().min(usize::try_from(offset).expect("small"));
                let spare = buffer.spare_mut();
                let count = spare.len().min(bytes.len() - start);
                spare[..count].copy_from_slice(&bytes[start..start + count]);
                buffer.advance(count);
                Ok(DiskResult::Read { buffer })
            }
            DiskRequest::Write { file, offset, data } => {
                let inode = self.open[&(shard, file)];
                let bytes = &mut self.inodes[inode];
                let mut at = usize::try_from(offset).expect("small");
                for piece in data {
                    bytes.resize(bytes.len().max(at + piece.len()), 0);
                    bytes[at..at + piece.len()].copy_from_slice(&piece);
                    at += piece.len();
                }
                self.unsynced.insert(inode);
                Ok(DiskResult::Written)
            }
            DiskRequest::SyncData { file } => {
                self.unsynced.remove(&self.open[&(shard, file)]);
                Ok(DiskResult::Done)
            }
            DiskRequest::Evict { file } => {
                assert!(self.open.contains_key(&(shard, file)));
                Ok(DiskResult::Done)
            }
            DiskRequest::Truncate { file, size } => {
                let inode = self.open[&(shard, file)];
                self.inodes[inode].resize(usize::try_from(size).expect("small"), 0);
                self.unsynced.insert(inode);
                Ok(DiskResult::Done)
            }
            DiskRequest::Close { file } => {
                self.open.remove(&(shard, file)).expect("it was open");
                Ok(DiskResult::Done)
            }
            request => Ok(self.execute_on_names(request)),
        }
    }

    fn open(
        &mut self,
        shard: usize,
        file: FileId,
        path: String,
        mode: OpenMode,
    ) -> Result<DiskResult, DiskError> {
        let inode = match (self.files.get(&path).copied(), mode) {
            (None, OpenMode::Existing) => return Err(DiskError::NotFound),
            (Some(inode), OpenMode::Existing | OpenMode::CreateIfMissing) => inode,
            (Some(inode), OpenMode::CreateEmpty) => {
                self.inodes[inode].clear();
                inode
            }
            (None, _) => {
                let (parent, _) = path.rsplit_once('/').expect("files are in directories");
                assert!(self.directories.contains(parent), "no directory {parent}");
                self.inodes.push(Vec::new());
                self.files.insert(path, self.inodes.len() - 1);
                self.inodes.len() - 1
            }
        };
        let old = self.open.insert((shard, file), inode);
        assert!(old.is_none(), "a file id is used once");
        let size = self.inodes[inode].len() as u64;
        Ok(DiskResult::Opened { size })
    }

    fn execute_on_names(&mut self, request: DiskRequest) -> DiskResult {
        match request {
            DiskRequest::Rename { from, to } => {
                let inode = self.files.remove(&from.0).expect("it is there");
                self.files.insert(to.0, inode);
            }
            DiskRequest::RemoveFile { path } => drop(self.files.remove(&path.0)),
            DiskRequest::RemoveDir { path } => {
                let inside = self.files_below(&format!("{path}/"));
                assert!(inside.is_empty(), "{path} still holds {inside:?}");
                self.directories.remove(&path.0);
            }
            DiskRequest::CreateDir { path } => drop(self.directories.insert(path.0)),
            DiskRequest::List { path } => {
                let prefix = format!("{path}/");
                let all = self.files.keys().chain(&self.directories);
                let names = all.filter_map(|name| name.strip_prefix(&prefix));
                let names = names.filter(|name| !name.contains('/'));
                let mut names: Vec<String> = names.map(String::from).collect();
                names.sort_unstable();
                return DiskResult::Names(names);
            }
            DiskRequest::SyncDir { .. } => {}
            request => panic!("{request:?} is about a file"),
        }
        DiskResult::Done
    }
}
