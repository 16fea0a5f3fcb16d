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

mod file;
mod names;
mod trouble;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use base::{Bytes, Domain, Prng};
use platform::{DiskDone, DiskError, DiskRequest, DiskResult, FileId, OpenMode, Path, Token};

use self::{
    file::{Change, File},
    names::{Entry, NameChange, Names},
    trouble::Trouble,
};

pub(crate) use trouble::Operation;

/// The smallest part of a write that a device does or does not do.
pub(crate) const SECTOR: u64 = 512;

/// Mean latencies in microseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Crash {
    /// The process dies; the kernel lives on.
    Process,
    /// The machine loses power.
    Power,
}

/// Where in the life of a request a process may be made to die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Point {
    /// Any request is submitted, and in flight.
    Submit,
    /// Any request has completed, and nobody has been told.
    Complete,
    /// A sync of a file or a directory has.
    Sync,
    /// A rename has.
    Rename,
}

struct InFlight {
    shard: u16,
    token: Token,
    request: DiskRequest,
    /// The file as it was known when the request was submitted.
    file: Option<usize>,
    /// What a sync covers.
    covers: u64,
}

/// See the module.
pub(crate) struct Disk {
    files: BTreeMap<usize, File>,
    file_next: usize,
    names: Names,
    handles: BTreeMap<(u16, FileId), usize>,
    in_flight: Vec<Option<InFlight>>,
    free: Vec<usize>,
    sequence: u64,
    prng: Prng,
    speed: DiskSpeed,
    trouble: Trouble,
    /// How often each point has been passed.
    points: [u64; 4],
}

impl Disk {
    pub(crate) fn new(seed: u64, node: u64, speed: DiskSpeed) -> Self {
        Self {
            files: BTreeMap::new(),
            file_next: 0,
            names: Names::default(),
            handles: BTreeMap::new(),
            in_flight: Vec::new(),
            free: Vec::new(),
            sequence: 0,
            prng: Prng::new(seed, Domain::Disk, node),
            speed,
            trouble: Trouble::default(),
            points: [0; 4],
        }
    }

    /// How often a point has been passed so far.
    pub(crate) const fn passed(&self, point: Point) -> u64 {
        self.points[point as usize]
    }

    /// As before, for every point.
    pub(crate) const fn points(&self) -> [u64; 4] {
        self.points
    }

    /// Takes a request; its effect happens when [`Self::complete`] is called with the slot, which
    /// should be after the returned microseconds.
    pub(crate) fn submit(
        &mut self,
        shard: u16,
        token: Token,
        request: DiskRequest,
    ) -> (usize, u64) {
        self.points[Point::Submit as usize] += 1;
        let latency = self.latency(&request);
        let file = file_of(&request)
            .and_then(|file| self.handles.get(&(shard, file)))
            .copied();
        let covers = self.sequence;
        let in_flight = InFlight {
            shard,
            token,
            request,
            file,
            covers,
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.in_flight.push(None);
            self.in_flight.len() - 1
        });
        self.in_flight[slot] = Some(in_flight);
        (slot, latency)
    }

    fn latency(&mut self, request: &DiskRequest) -> u64 {
        let mean = match request {
            DiskRequest::Read { .. } | DiskRequest::List { .. } => self.speed.read,
            DiskRequest::SyncData { .. } | DiskRequest::SyncDir { .. } => self.speed.sync,
            _ => self.speed.write,
        };
        let stalls = self.speed.stall_one_in > 0 && self.prng.chance(1, self.speed.stall_one_in);
        let mean = if stalls { mean * 50 } else { mean } * self.trouble.slowness;
        1 + mean / 4 + self.prng.below(mean * 2 + 1)
    }

    /// Requests in flight.
    pub(crate) fn slots_in_flight(&self) -> Vec<usize> {
        let slots = self.in_flight.iter().enumerate();
        slots
            .filter(|(_, in_flight)| in_flight.is_some())
            .map(|(slot, _)| slot)
            .collect()
    }

    /// Whether anything but reads is in flight: a scrubber always reads.
    pub(crate) fn is_changing(&self) -> bool {
        let reads = |it: &InFlight| matches!(it.request, DiskRequest::Read { .. });
        self.in_flight.iter().flatten().any(|it| !reads(it))
    }

    /// How many.
    pub(crate) fn requests(&self) -> usize {
        self.in_flight.len() - self.free.len()
    }

    /// Shard and path of each open file; no path if nothing names it any more.
    pub(crate) fn open_files(&self) -> Vec<(u16, Option<String>)> {
        let path = |file: usize| self.names.name_of(file).map(String::from);
        let handles = self.handles.iter();
        handles
            .map(|(&(shard, _), &file)| (shard, path(file)))
            .collect()
    }

    /// The request in `slot` happens now; which shard is to be told what. None if a crash has
    /// taken it.
    pub(crate) fn complete(&mut self, slot: usize) -> Option<(u16, DiskDone)> {
        let InFlight {
            shard,
            token,
            request,
            file,
            covers,
        } = self.in_flight[slot].take()?;
        self.free.push(slot);
        self.points[Point::Complete as usize] += 1;
        match &request {
            DiskRequest::SyncData { .. } | DiskRequest::SyncDir { .. } => {
                self.points[Point::Sync as usize] += 1;
            }
            DiskRequest::Rename { .. } => self.points[Point::Rename as usize] += 1,
            _ => {}
        }
        let result = self.execute(shard, request, file, covers);
        Some((shard, DiskDone { token, result }))
    }

    fn execute(
        &mut self,
        shard: u16,
        request: DiskRequest,
        file: Option<usize>,
        covers: u64,
    ) -> Result<DiskResult, DiskError> {
        match request {
            DiskRequest::Open { file, path, mode } => self.open(shard, file, &path, mode),
            DiskRequest::Read {
                offset, mut buffer, ..
            } => {
                if self.trouble.strikes(Operation::Read) {
                    base::sometimes!("fault: a read failed");
                    return Err(DiskError::Io);
                }
                self.file(file).read(offset, &mut buffer)?;
                Ok(DiskResult::Read { buffer })
            }
            DiskRequest::Write { offset, data, .. } => self.write(file, offset, data),
            DiskRequest::Truncate { size, .. } => {
                self.change(file, Change::Truncate { size });
                Ok(DiskResult::Done)
            }
            DiskRequest::SyncData { .. } => self.sync(file, covers),
            DiskRequest::Evict { .. } => {
                let other = self.file_mut(file).evict();
                base::sometimes!(other, "fault: a page showed that its sync had failed");
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

    fn write(
        &mut self,
        file: Option<usize>,
        offset: u64,
        data: Vec<Bytes>,
    ) -> Result<DiskResult, DiskError> {
        let size: usize = data.iter().map(|piece| piece.len()).sum();
        let (kept, error) = if self.trouble.strikes(Operation::Write) {
            base::sometimes!("fault: a write failed");
            (self.prng.index(size + 1), DiskError::Io)
        } else if let Some(room) = self.lacks_room(self.file(file), offset, size as u64) {
            base::sometimes!("fault: no space for a write");
            (self.prng.index(usize_of(room) + 1), DiskError::Full)
        } else {
            self.change(file, Change::Write { offset, data });
            return Ok(DiskResult::Written);
        };
        if kept > 0 {
            let data = prefix(data, kept);
            self.change(file, Change::Write { offset, data });
        }
        Err(error)
    }

    fn sync(&mut self, file: Option<usize>, covers: u64) -> Result<DiskResult, DiskError> {
        let fails = self.trouble.strikes(Operation::Sync);
        let file = file.expect("a request names a file that is not open");
        let file = self.files.get_mut(&file).expect("open files stay");
        if fails {
            base::sometimes!("fault: a sync failed");
            file.fail_sync(covers, &mut self.prng);
            return Err(DiskError::Io);
        }
        file.sync(covers);
        Ok(DiskResult::Done)
    }

    fn execute_name(&mut self, request: DiskRequest, covers: u64) -> Result<DiskResult, DiskError> {
        match request {
            DiskRequest::SyncDir { path } => {
                if !self.names.is_dir(&path) {
                    return Err(DiskError::NotFound);
                }
                self.names.sync(&path.0, covers);
                Ok(DiskResult::Done)
            }
            DiskRequest::Rename { from, to } => {
                if self.names.get(&from.0).is_none() || !self.names.is_dir(&to.split().0) {
                    return Err(DiskError::NotFound);
                }
                let (from, to) = (from.0, to.0);
                self.change_name(NameChange::Rename { from, to });
                Ok(DiskResult::Done)
            }
            DiskRequest::RemoveFile { path } | DiskRequest::RemoveDir { path } => {
                if self.names.get(&path.0).is_some() {
                    assert!(self.names.is_empty_dir(&path), "{path} is not empty");
                    self.change_name(NameChange::Remove { path: path.0 });
                }
                Ok(DiskResult::Done)
            }
            DiskRequest::CreateDir { path } => {
                if !self.names.is_dir(&path.split().0) {
                    return Err(DiskError::NotFound);
                }
                if self.names.get(&path.0).is_none() && !path.0.is_empty() {
                    self.room_for_a_name()?;
                    let (path, entry) = (path.0, Entry::Dir);
                    self.change_name(NameChange::Set { path, entry });
                }
                Ok(DiskResult::Done)
            }
            DiskRequest::List { path } if !self.names.is_dir(&path) => Err(DiskError::NotFound),
            DiskRequest::List { path } => Ok(DiskResult::Names(self.names.list(&path))),
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
            Some(Entry::File(found)) => Some(found),
            Some(Entry::Dir) => return Err(DiskError::Io),
            None => None,
        };
        let opened = match (found, mode) {
            (None, OpenMode::Existing) => return Err(DiskError::NotFound),
            (None, _) if !self.names.is_dir(&path.split().0) => return Err(DiskError::NotFound),
            (None, _) => {
                self.room_for_a_name()?;
                let created = self.file_next;
                self.file_next += 1;
                self.files.insert(created, File::default());
                let (path, entry) = (path.0.clone(), Entry::File(created));
                self.change_name(NameChange::Set { path, entry });
                created
            }
            (Some(found), OpenMode::CreateEmpty) => {
                self.change(Some(found), Change::Truncate { size: 0 });
                found
            }
            (Some(found), _) => found,
        };
        let fresh = self.handles.insert((shard, file), opened).is_none();
        assert!(fresh, "{file:?} is used twice");
        Ok(DiskResult::Opened {
            size: self.files[&opened].content.len() as u64,
        })
    }

    fn file(&self, file: Option<usize>) -> &File {
        let file = file.expect("a request names a file that is not open");
        self.files.get(&file).expect("open files stay")
    }

    fn change(&mut self, file: Option<usize>, change: Change) {
        let sequence = self.sequence;
        self.sequence += 1;
        self.file_mut(file).change(sequence, change);
    }

    fn file_mut(&mut self, file: Option<usize>) -> &mut File {
        let file = file.expect("a request names a file that is not open");
        self.files.get_mut(&file).expect("open files stay")
    }

    fn change_name(&mut self, change: NameChange) {
        self.names.change(self.sequence, change);
        self.sequence += 1;
    }

    /// The process dies, and the machine with it if `crash` says so.
    pub(crate) fn crash(&mut self, crash: Crash) {
        for in_flight in std::mem::take(&mut self.in_flight).into_iter().flatten() {
            self.interrupt(in_flight);
        }
        self.free.clear();
        self.handles.clear();
        self.trouble.failed = false;
        if crash == Crash::Power {
            for file in self.files.values_mut() {
                file.lose_power(&mut self.prng);
            }
            self.names.lose_power(&mut self.prng);
        }
        let reachable = self.names.reachable();
        self.files.retain(|file, _| reachable.contains(file));
    }

    /// A request in flight has happened, partly or not.
    fn interrupt(&mut self, in_flight: InFlight) {
        let InFlight {
            shard,
            request,
            file,
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
            if kept > 0 && file.is_some_and(|file| self.files.contains_key(&file)) {
                let data = prefix(data, kept);
                self.change(file, Change::Write { offset, data });
            }
            return;
        }
        let harmless = matches!(
            request,
            DiskRequest::Read { .. } | DiskRequest::Close { .. }
        );
        if !harmless && self.prng.chance(1, 2) {
            let _ = self.execute(shard, request, file, covers);
        }
    }

    fn files_named(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files_with(Path::from(""))
    }

    fn files_with(&self, prefix: Path) -> impl Iterator<Item = (&str, &File)> {
        let names = self.names.below(prefix);
        names.filter_map(|(name, entry)| match entry {
            Entry::File(file) => Some((name, &self.files[&file])),
            Entry::Dir => None,
        })
    }

    /// Files below `directory` and what they hold now, for checkers.
    pub(crate) fn files_below(&self, directory: &str) -> Vec<(&str, &[u8])> {
        let files = self.files_with(Path::from(directory).join(""));
        files
            .map(|(name, file)| (name, file.content.as_slice()))
            .collect()
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
        | DiskRequest::Evict { file }
        | DiskRequest::Truncate { file, .. } => Some(*file),
        _ => None,
    }
}

fn usize_of(offset: u64) -> usize {
    usize::try_from(offset).expect("simulated files are small")
}

#[cfg(test)]
mod tests;
