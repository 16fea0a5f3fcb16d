//! A node's disk behind a page cache, as a kernel promises it and not better.
//!
//! ```text
//!   write ──▶ content (page cache) ──sync of the file──▶ durable
//!   name  ──▶ names   (page cache) ──sync of its directory──▶ durable names
//! ```
//!
//! A crash of the process keeps the page cache; requests in flight have happened wholly, partly
//! or not at all. A power loss keeps what was synced, and of every unsynced write an arbitrary
//! part in sectors; of every unsynced name the old or the new state, independently.
//!
//! **Invariant:** a completed sync covers what had completed when it was *submitted*, no more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{Bytes, Domain, Prng};
use platform::{DiskDone, DiskError, DiskRequest, DiskResult, FileId, OpenMode, Path, Token};

/// Unit in which a power loss keeps or loses what was written.
pub(crate) const SECTOR: u64 = 512;

/// Mean latencies in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskSpeed {
    pub(crate) read: u64,
    pub(crate) write: u64,
    pub(crate) sync: u64,
    /// One request of this many takes fifty times as long; 0 is never.
    pub(crate) stall_one_in: u64,
}

impl Default for DiskSpeed {
    fn default() -> Self {
        Self {
            read: 80,
            write: 40,
            sync: 800,
            stall_one_in: 200,
        }
    }
}

/// What happens to what the page cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// The process dies; the kernel lives on.
    Process,
    /// The machine loses power.
    Power,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    File(usize),
    Dir,
}

#[derive(Debug)]
enum Change {
    Write { offset: u64, data: Vec<Bytes> },
    Truncate { size: u64 },
}

#[derive(Debug, Default)]
struct Inode {
    content: Vec<u8>,
    durable: Vec<u8>,
    /// Completed since the last sync, with the sequence in which they completed.
    unsynced: VecDeque<(u64, Change)>,
}

#[derive(Debug)]
enum NameChange {
    Set { path: String, entry: Entry },
    Remove { path: String },
    Rename { from: String, to: String },
}

struct InFlight {
    shard: u16,
    token: Token,
    request: DiskRequest,
    /// The file as it was known when the request was submitted.
    inode: Option<usize>,
    /// What a sync covers.
    covers: u64,
}

/// See the module.
pub(crate) struct Disk {
    inodes: BTreeMap<usize, Inode>,
    inode_next: usize,
    names: BTreeMap<String, Entry>,
    names_durable: BTreeMap<String, Entry>,
    names_unsynced: VecDeque<(u64, NameChange)>,
    handles: BTreeMap<(u16, FileId), usize>,
    in_flight: Vec<Option<InFlight>>,
    free: Vec<usize>,
    sequence: u64,
    prng: Prng,
    speed: DiskSpeed,
    /// Requests ever submitted; the handle for faults at the n-th request.
    submitted: u64,
}

impl Disk {
    pub(crate) fn new(seed: u64, node: u64, speed: DiskSpeed) -> Self {
        Self {
            inodes: BTreeMap::new(),
            inode_next: 0,
            names: BTreeMap::new(),
            names_durable: BTreeMap::new(),
            names_unsynced: VecDeque::new(),
            handles: BTreeMap::new(),
            in_flight: Vec::new(),
            free: Vec::new(),
            sequence: 0,
            prng: Prng::new(seed, Domain::Disk, node),
            speed,
            submitted: 0,
        }
    }

    pub(crate) const fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Takes a request; its effect happens when [`Self::complete`] is called with the slot, which
    /// should be after the returned microseconds.
    pub(crate) fn submit(
        &mut self,
        shard: u16,
        token: Token,
        request: DiskRequest,
    ) -> (usize, u64) {
        self.submitted += 1;
        let mean = match &request {
            DiskRequest::Read { .. } | DiskRequest::List { .. } => self.speed.read,
            DiskRequest::SyncData { .. } | DiskRequest::SyncDir { .. } => self.speed.sync,
            _ => self.speed.write,
        };
        let stalls = self.speed.stall_one_in > 0 && self.prng.chance(1, self.speed.stall_one_in);
        let mean = if stalls { mean * 50 } else { mean };
        let latency = 1 + mean / 4 + self.prng.below(mean * 2 + 1);
        let inode = file_of(&request)
            .and_then(|file| self.handles.get(&(shard, file)))
            .copied();
        let covers = self.sequence;
        let in_flight = InFlight {
            shard,
            token,
            request,
            inode,
            covers,
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.in_flight.push(None);
            self.in_flight.len() - 1
        });
        self.in_flight[slot] = Some(in_flight);
        (slot, latency)
    }

    /// The request in `slot` happens now; which shard is to be told what. None if a crash has
    /// taken it.
    pub(crate) fn complete(&mut self, slot: usize) -> Option<(u16, DiskDone)> {
        let InFlight {
            shard,
            token,
            request,
            inode,
            covers,
        } = self.in_flight[slot].take()?;
        self.free.push(slot);
        let result = self.execute(shard, request, inode, covers);
        Some((shard, DiskDone { token, result }))
    }

    fn execute(
        &mut self,
        shard: u16,
        request: DiskRequest,
        inode: Option<usize>,
        covers: u64,
    ) -> Result<DiskResult, DiskError> {
        match request {
            DiskRequest::Open { file, path, mode } => self.open(shard, file, &path, mode),
            DiskRequest::Read {
                offset, mut buffer, ..
            } => {
                let content = &self.inode(inode).content;
                let start = usize_of(offset).min(content.len());
                let spare = buffer.spare_mut();
                let count = spare.len().min(content.len() - start);
                spare[..count].copy_from_slice(&content[start..start + count]);
                buffer.advance(count);
                Ok(DiskResult::Read { buffer })
            }
            DiskRequest::Write { offset, data, .. } => {
                self.change(inode, Change::Write { offset, data });
                Ok(DiskResult::Written)
            }
            DiskRequest::Truncate { size, .. } => {
                self.change(inode, Change::Truncate { size });
                Ok(DiskResult::Done)
            }
            DiskRequest::SyncData { .. } => {
                let inode = self.inode(inode);
                while inode
                    .unsynced
                    .front()
                    .is_some_and(|&(sequence, _)| sequence < covers)
                {
                    let (_, change) = inode.unsynced.pop_front().expect("just seen");
                    apply(&mut inode.durable, &change);
                }
                Ok(DiskResult::Done)
            }
            DiskRequest::Close { file } => {
                assert!(
                    self.handles.remove(&(shard, file)).is_some(),
                    "{file:?} is not open"
                );
                Ok(DiskResult::Done)
            }
            other => self.execute_name(other, covers),
        }
    }

    fn execute_name(&mut self, request: DiskRequest, covers: u64) -> Result<DiskResult, DiskError> {
        match request {
            DiskRequest::SyncDir { path } => {
                if !self.is_dir(&path) {
                    return Err(DiskError::NotFound);
                }
                let mut kept = VecDeque::new();
                for (sequence, change) in std::mem::take(&mut self.names_unsynced) {
                    if sequence < covers && change.touches(&path.0) {
                        change.apply(&mut self.names_durable);
                    } else {
                        kept.push_back((sequence, change));
                    }
                }
                self.names_unsynced = kept;
                Ok(DiskResult::Done)
            }
            DiskRequest::Rename { from, to } => {
                if !self.names.contains_key(&from.0) || !self.is_dir(&to.split().0) {
                    return Err(DiskError::NotFound);
                }
                self.change_name(NameChange::Rename {
                    from: from.0,
                    to: to.0,
                });
                Ok(DiskResult::Done)
            }
            DiskRequest::RemoveFile { path } | DiskRequest::RemoveDir { path } => {
                if self.names.contains_key(&path.0) {
                    let below = path.join("");
                    let empty = self.names.range(below.0.clone()..).next();
                    let empty = empty.is_none_or(|(name, _)| !name.starts_with(&below.0));
                    assert!(empty, "{path} is not empty");
                    self.change_name(NameChange::Remove { path: path.0 });
                }
                Ok(DiskResult::Done)
            }
            DiskRequest::CreateDir { path } => {
                if !self.is_dir(&path.split().0) {
                    return Err(DiskError::NotFound);
                }
                if !self.names.contains_key(&path.0) && !path.0.is_empty() {
                    self.change_name(NameChange::Set {
                        path: path.0,
                        entry: Entry::Dir,
                    });
                }
                Ok(DiskResult::Done)
            }
            DiskRequest::List { path } => {
                let names = self.names.keys().map(|name| Path(name.clone()));
                let names = names.filter(|name| !name.0.is_empty() && name.split().0 == path);
                Ok(DiskResult::Names(
                    names.map(|name| name.split().1.into()).collect(),
                ))
            }
            other => unreachable!("{other:?} names a file"),
        }
    }

    fn open(
        &mut self,
        shard: u16,
        file: FileId,
        path: &Path,
        mode: OpenMode,
    ) -> Result<DiskResult, DiskError> {
        let found = match self.names.get(&path.0) {
            Some(Entry::File(inode)) => Some(*inode),
            Some(Entry::Dir) => return Err(DiskError::Io),
            None => None,
        };
        let inode = match (found, mode) {
            (None, OpenMode::Existing) => return Err(DiskError::NotFound),
            (None, _) if !self.is_dir(&path.split().0) => return Err(DiskError::NotFound),
            (None, _) => {
                let inode = self.inode_next;
                self.inode_next += 1;
                self.inodes.insert(inode, Inode::default());
                let entry = Entry::File(inode);
                self.change_name(NameChange::Set {
                    path: path.0.clone(),
                    entry,
                });
                inode
            }
            (Some(inode), OpenMode::CreateEmpty) => {
                self.change(Some(inode), Change::Truncate { size: 0 });
                inode
            }
            (Some(inode), _) => inode,
        };
        let fresh = self.handles.insert((shard, file), inode).is_none();
        assert!(fresh, "{file:?} is used twice");
        Ok(DiskResult::Opened {
            size: self.inodes[&inode].content.len() as u64,
        })
    }

    fn inode(&mut self, inode: Option<usize>) -> &mut Inode {
        let inode = inode.expect("a request names a file that is not open");
        self.inodes.get_mut(&inode).expect("open files stay")
    }

    fn change(&mut self, inode: Option<usize>, change: Change) {
        let sequence = self.sequence;
        self.sequence += 1;
        let inode = self.inode(inode);
        apply(&mut inode.content, &change);
        inode.unsynced.push_back((sequence, change));
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.names_unsynced.push_back((self.sequence, change));
        self.sequence += 1;
    }

    fn is_dir(&self, path: &Path) -> bool {
        path.0.is_empty() || self.names.get(&path.0) == Some(&Entry::Dir)
    }

    /// The process dies, and the machine with it if `crash` says so.
    pub(crate) fn crash(&mut self, crash: Crash) {
        for in_flight in std::mem::take(&mut self.in_flight).into_iter().flatten() {
            self.interrupt(in_flight);
        }
        self.free.clear();
        self.handles.clear();
        if crash == Crash::Power {
            self.lose_power();
        }
        self.forget_unreachable();
    }

    /// A request in flight has happened, partly or not.
    fn interrupt(&mut self, in_flight: InFlight) {
        let InFlight {
            shard,
            request,
            inode,
            covers,
            ..
        } = in_flight;
        if let DiskRequest::Write { offset, data, .. } = request {
            let size: usize = data.iter().map(|piece| piece.len()).sum();
            let kept = match self.prng.below(3) {
                0 => 0,
                1 => size,
                _ => self.prng.index(size + 1),
            };
            if kept > 0 && inode.is_some_and(|inode| self.inodes.contains_key(&inode)) {
                self.change(
                    inode,
                    Change::Write {
                        offset,
                        data: prefix(data, kept),
                    },
                );
            }
            return;
        }
        let harmless = matches!(
            request,
            DiskRequest::Read { .. } | DiskRequest::Close { .. }
        );
        if !harmless && self.prng.chance(1, 2) {
            let _ = self.execute(shard, request, inode, covers);
        }
    }

    fn lose_power(&mut self) {
        for inode in self.inodes.values_mut() {
            for (_, change) in std::mem::take(&mut inode.unsynced) {
                survive(&mut inode.durable, change, &mut self.prng);
            }
            inode.content.clone_from(&inode.durable);
        }
        for (_, change) in std::mem::take(&mut self.names_unsynced) {
            if self.prng.chance(1, 2) {
                change.apply(&mut self.names_durable);
            }
        }
        // A name below a directory that was lost is lost with it.
        let durable = &self.names_durable;
        let rooted = |name: &String| {
            let mut path = Path(name.clone()).split().0;
            while !path.0.is_empty() {
                if durable.get(&path.0) != Some(&Entry::Dir) {
                    return false;
                }
                path = path.split().0;
            }
            true
        };
        let names = durable.iter().filter(|(name, _)| rooted(name));
        let names: BTreeMap<_, _> = names.map(|(name, entry)| (name.clone(), *entry)).collect();
        self.names_durable.clone_from(&names);
        self.names = names;
    }

    fn forget_unreachable(&mut self) {
        let all = self.names.values().chain(self.names_durable.values());
        let mut reachable: BTreeSet<usize> = all
            .filter_map(|entry| match entry {
                Entry::File(inode) => Some(*inode),
                Entry::Dir => None,
            })
            .collect();
        for (_, change) in &self.names_unsynced {
            if let NameChange::Set {
                entry: Entry::File(inode),
                ..
            } = change
            {
                reachable.insert(*inode);
            }
        }
        self.inodes.retain(|inode, _| reachable.contains(inode));
    }

    /// Files below `directory` and what they hold now, for checkers.
    pub(crate) fn files_below(&self, directory: &str) -> Vec<(&str, &[u8])> {
        let prefix = format!("{directory}/");
        let names = self.names.range(prefix.clone()..);
        let names = names.take_while(|(name, _)| name.starts_with(&prefix));
        names
            .filter_map(|(name, entry)| match entry {
                Entry::File(inode) => Some((name.as_str(), self.inodes[inode].content.as_slice())),
                Entry::Dir => None,
            })
            .collect()
    }
}

impl NameChange {
    fn touches(&self, directory: &str) -> bool {
        let within = |path: &String| Path(path.clone()).split().0.0 == directory;
        match self {
            Self::Set { path, .. } | Self::Remove { path } => within(path),
            Self::Rename { from, to } => within(from) || within(to),
        }
    }

    /// A rename is atomic, and nothing without its source.
    fn apply(&self, names: &mut BTreeMap<String, Entry>) {
        match self {
            Self::Set { path, entry } => {
                names.insert(path.clone(), *entry);
            }
            Self::Remove { path } => {
                names.remove(path);
            }
            Self::Rename { from, to } => {
                if let Some(entry) = names.remove(from) {
                    names.insert(to.clone(), entry);
                }
            }
        }
    }
}

fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Truncate { size } => content.resize(usize_of(*size), 0),
        Change::Write { offset, data } => {
            let mut at = usize_of(*offset);
            for piece in data {
                write_at(content, at, piece);
                at += piece.len();
            }
        }
    }
}

fn write_at(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return; // A write of nothing does not extend a file.
    }
    if content.len() == at {
        content.extend_from_slice(bytes);
        return;
    }
    if content.len() < at + bytes.len() {
        content.resize(at + bytes.len(), 0);
    }
    content[at..at + bytes.len()].copy_from_slice(bytes);
}

/// What a power loss keeps of one unsynced change.
fn survive(durable: &mut Vec<u8>, change: Change, prng: &mut Prng) {
    let Change::Write { offset, data } = change else {
        if prng.chance(1, 2) {
            apply(durable, &change);
        }
        return;
    };
    let bytes: Vec<u8> = data
        .iter()
        .flat_map(|piece| piece.iter().copied())
        .collect();
    if bytes.is_empty() {
        return;
    }
    let first = offset / SECTOR;
    let sectors = (offset + bytes.len() as u64 - 1) / SECTOR - first + 1;
    let mode = prng.below(8);
    let (low, high) = {
        let (a, b) = (prng.below(sectors + 1), prng.below(sectors + 1));
        (a.min(b), a.max(b))
    };
    for sector in 0..sectors {
        let kept = match mode {
            0 | 1 => false,
            2 | 3 => true,
            4 => sector < low,
            5 => sector >= high,
            6 => !(low..high).contains(&sector),
            _ => prng.chance(1, 2),
        };
        if kept {
            let start = ((first + sector) * SECTOR).max(offset);
            let end = ((first + sector + 1) * SECTOR).min(offset + bytes.len() as u64);
            let piece = &bytes[usize_of(start - offset)..usize_of(end - offset)];
            write_at(durable, usize_of(start), piece);
        }
    }
    // The size may have reached the disk where the data did not.
    let end = usize_of(offset) + bytes.len();
    if mode == 1 && durable.len() < end {
        durable.resize(end, 0);
    }
}

fn prefix(data: Vec<Bytes>, mut size: usize) -> Vec<Bytes> {
    let mut kept = Vec::new();
    for piece in data {
        if size == 0 {
            break;
        }
        let take = size.min(piece.len());
        kept.push(piece.slice(0, take));
        size -= take;
    }
    kept
}

const fn file_of(request: &DiskRequest) -> Option<FileId> {
    match request {
        DiskRequest::Read { file, .. }
        | DiskRequest::Write { file, .. }
        | DiskRequest::SyncData { file }
        | DiskRequest::Truncate { file, .. } => Some(*file),
        _ => None,
    }
}

fn usize_of(offset: u64) -> usize {
    usize::try_from(offset).expect("simulated files are small")
}

#[cfg(test)]
mod tests;
