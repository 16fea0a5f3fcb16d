//! A disk for tests, with a page cache: a write is volatile until its file is synced, a name
//! until its directory is.
//!
//! A process crash keeps what is volatile. A power loss keeps an arbitrary subset of the unsynced
//! 512-byte sectors and an arbitrary subset of the unsynced changes to names. Requests in flight
//! are executed in an order drawn from the seed; at a crash each has happened, or not, or half.

use std::collections::{BTreeMap, BTreeSet};

use base::{Buffer, Domain, Prng};
use platform::{
    DiskDone, DiskError, DiskRequest, DiskResult, Effect, FileId, OpenMode, Outbox, Path, Token,
};

const SECTOR_SIZE: usize = 512;

#[derive(Clone, Default)]
struct Inode {
    volatile: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    Directory,
    File(usize),
}

/// A change to the names in a directory that is not durable yet.
#[derive(Clone)]
enum Change {
    Insert(String, Node),
    Remove(String),
    Rename(String, String, Node),
}

/// Names of everything, by path.
type Names = BTreeMap<String, Node>;

fn apply(names: &mut Names, change: &Change) {
    match change {
        Change::Insert(path, node) => {
            names.insert(path.clone(), *node);
        }
        Change::Remove(path) => {
            names.remove(path);
        }
        Change::Rename(from, to, node) => {
            names.remove(from);
            names.insert(to.clone(), *node);
        }
    }
}

/// Chooses requests.
pub(crate) type Matches = fn(&DiskRequest) -> bool;

/// The disk.
pub(crate) struct Disk {
    inodes: Vec<Inode>,
    volatile: Names,
    durable: Names,
    /// By directory.
    changes: BTreeMap<String, Vec<Change>>,
    open: BTreeMap<FileId, (usize, Path)>,
    in_flight: Vec<(Token, DiskRequest)>,
    prng: Prng,
    /// Sectors that cannot be read until they are written to, by inode.
    unreadable: BTreeSet<(usize, usize)>,
    /// Requests that match fail, with the error.
    pub(crate) fails: Option<(Matches, DiskError)>,
    /// One line per executed request.
    pub(crate) trace: Vec<String>,
    /// Log lines of the machine under test.
    pub(crate) log: Vec<String>,
}

impl Disk {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            inodes: Vec::new(),
            volatile: Names::new(),
            durable: Names::new(),
            changes: BTreeMap::new(),
            open: BTreeMap::new(),
            in_flight: Vec::new(),
            prng: Prng::new(seed, Domain::Disk, 0),
            unreadable: BTreeSet::new(),
            fails: None,
            trace: Vec::new(),
            log: Vec::new(),
        }
    }

    /// Takes the requests out of an outbox.
    pub(crate) fn submit(&mut self, out: &mut Outbox) {
        for effect in out.drain(..) {
            match effect {
                Effect::Disk { token, request } => self.in_flight.push((token, request)),
                Effect::Log { line, .. } => self.log.push(line),
                effect => panic!("storage has no use for {effect:?}"),
            }
        }
    }

    /// Executes one of the requests in flight.
    pub(crate) fn step(&mut self) -> Option<DiskDone> {
        if self.in_flight.is_empty() {
            return None;
        }
        let index = self.prng.index(self.in_flight.len());
        let (token, request) = self.in_flight.remove(index);
        if let Some((fails, error)) = self.fails
            && fails(&request)
        {
            return Some(DiskDone {
                token,
                result: Err(error),
            });
        }
        let result = self.execute(request);
        Some(DiskDone { token, result })
    }

    /// The process dies: what is in flight may have happened; the page cache stays.
    pub(crate) fn crash(&mut self) {
        for (_, request) in std::mem::take(&mut self.in_flight) {
            match request {
                DiskRequest::Write { file, offset, data } if self.prng.chance(1, 2) => {
                    let mut bytes: Vec<u8> = data.iter().flat_map(|piece| piece.to_vec()).collect();
                    bytes.truncate(self.prng.index(bytes.len() + 1));
                    let inode = self.open[&file].0;
                    self.write(inode, offset, &bytes);
                }
                request if self.prng.chance(1, 2) => {
                    let _ = self.execute(request);
                }
                _ => {}
            }
        }
        self.open.clear();
    }

    /// The machine dies: of what is not synced, anything may be left.
    pub(crate) fn power_loss(&mut self) {
        self.crash();
        for changes in std::mem::take(&mut self.changes).into_values() {
            for change in changes {
                if self.prng.chance(1, 2) {
                    apply(&mut self.durable, &change);
                }
            }
        }
        // A name in a directory that is gone is gone.
        let names = self.durable.clone();
        self.durable.retain(|path, _| {
            let parent = Path(path.clone()).split().0;
            parent.0.is_empty() || names.contains_key(&parent.0)
        });
        self.volatile = self.durable.clone();
        for inode in &mut self.inodes {
            tear(inode, &mut self.prng);
        }
    }

    fn execute(&mut self, request: DiskRequest) -> Result<DiskResult, DiskError> {
        self.trace(&request);
        match request {
            DiskRequest::Open { file, path, mode } => return self.open(file, path, mode),
            DiskRequest::Read {
                file,
                offset,
                buffer,
            } => {
                let buffer = self.read(file, offset, buffer)?;
                return Ok(DiskResult::Read { buffer });
            }
            DiskRequest::Write { file, offset, data } => {
                let bytes: Vec<u8> = data.iter().flat_map(|piece| piece.to_vec()).collect();
                let inode = self.open[&file].0;
                self.write(inode, offset, &bytes);
                return Ok(DiskResult::Written);
            }
            DiskRequest::SyncData { file } => {
                let inode = &mut self.inodes[self.open[&file].0];
                inode.durable = inode.volatile.clone();
            }
            // The page cache of this disk never lies.
            DiskRequest::Evict { file } => assert!(self.open.contains_key(&file)),
            DiskRequest::SyncDir { path } => {
                for change in self.changes.remove(&path.0).unwrap_or_default() {
                    apply(&mut self.durable, &change);
                }
            }
            DiskRequest::Truncate { file, size } => {
                let size = usize::try_from(size).expect("a small file");
                self.inodes[self.open[&file].0].volatile.resize(size, 0);
            }
            DiskRequest::Close { file } => {
                self.open.remove(&file).expect("closed once");
                let busy = |request: &DiskRequest| {
                    matches!(request,
                    DiskRequest::Read { file: of, .. } | DiskRequest::Write { file: of, .. }
                    | DiskRequest::SyncData { file: of } if *of == file)
                };
                assert!(!self.in_flight.iter().any(|(_, request)| busy(request)));
            }
            DiskRequest::Rename { from, to } => {
                let node = *self.volatile.get(&from.0).ok_or(DiskError::NotFound)?;
                self.change(&to.clone(), Change::Rename(from.0, to.0, node));
            }
            DiskRequest::RemoveFile { path } => {
                if self.volatile.contains_key(&path.0) {
                    self.change(&path, Change::Remove(path.0.clone()));
                }
            }
            DiskRequest::RemoveDir { path } => {
                assert!(self.list(&path).is_empty(), "not empty");
                if self.volatile.contains_key(&path.0) {
                    self.change(&path, Change::Remove(path.0.clone()));
                }
            }
            DiskRequest::CreateDir { path } => {
                let parent = path.split().0.0;
                assert!(parent.is_empty() || self.volatile.contains_key(&parent));
                if !self.volatile.contains_key(&path.0) {
                    self.change(&path, Change::Insert(path.0.clone(), Node::Directory));
                }
            }
            DiskRequest::List { path } if !self.volatile.contains_key(&path.0) => {
                return Err(DiskError::NotFound);
            }
            DiskRequest::List { path } => return Ok(DiskResult::Names(self.list(&path))),
        }
        Ok(DiskResult::Done)
    }

    fn trace(&mut self, request: &DiskRequest) {
        let name = |file: &FileId| self.open[file].1.0.clone();
        let line = match request {
            DiskRequest::Open { path, mode, .. } => format!("open {path} {mode:?}"),
            DiskRequest::Read {
                file,
                offset,
                buffer,
            } => {
                format!(
                    "read {} at {offset} up to {}",
                    name(file),
                    buffer.capacity()
                )
            }
            DiskRequest::Write { file, offset, data } => {
                let size: usize = data.iter().map(|piece| piece.len()).sum();
                format!("write {} at {offset}: {size}", name(file))
            }
            DiskRequest::SyncData { file } => format!("sync {}", name(file)),
            DiskRequest::Evict { file } => format!("evict {}", name(file)),
            DiskRequest::SyncDir { path } => format!("sync directory '{path}'"),
            DiskRequest::Truncate { file, size } => format!("truncate {} to {size}", name(file)),
            DiskRequest::Close { file } => format!("close {}", name(file)),
            DiskRequest::Rename { from, to } => format!("rename {from} to {to}"),
            DiskRequest::RemoveFile { path } => format!("remove {path}"),
            DiskRequest::RemoveDir { path } => format!("remove directory {path}"),
            DiskRequest::CreateDir { path } => format!("create directory {path}"),
            DiskRequest::List { path } => format!("list {path}"),
        };
        self.trace.push(line);
    }

    fn change(&mut self, path: &Path, change: Change) {
        apply(&mut self.volatile, &change);
        self.changes
            .entry(path.split().0.0)
            .or_default()
            .push(change);
    }

    fn open(&mut self, file: FileId, path: Path, mode: OpenMode) -> Result<DiskResult, DiskError> {
        let inode = match (self.volatile.get(&path.0), mode) {
            (Some(Node::File(inode)), _) => *inode,
            (Some(Node::Directory), _) => panic!("{path} is a directory"),
            (None, OpenMode::Existing) => return Err(DiskError::NotFound),
            (None, _) => {
                assert!(
                    self.volatile.contains_key(&path.split().0.0),
                    "no directory of {path}"
                );
                self.inodes.push(Inode::default());
                let inode = self.inodes.len() - 1;
                self.change(&path, Change::Insert(path.0.clone(), Node::File(inode)));
                inode
            }
        };
        if mode == OpenMode::CreateEmpty {
            self.inodes[inode].volatile.clear();
        }
        let size = self.inodes[inode].volatile.len() as u64;
        assert!(
            self.open.insert(file, (inode, path)).is_none(),
            "ids are used once"
        );
        Ok(DiskResult::Opened { size })
    }

    fn read(&self, file: FileId, offset: u64, mut buffer: Buffer) -> Result<Buffer, DiskError> {
        let inode = self.open[&file].0;
        let content = &self.inodes[inode].volatile;
        let start = usize::try_from(offset)
            .expect("a small file")
            .min(content.len());
        let room = buffer.spare_mut().len();
        let end = content.len().min(start + room);
        buffer.spare_mut()[..end - start].copy_from_slice(&content[start..end]);
        buffer.advance(end - start);
        let sectors = (inode, start / SECTOR_SIZE)..(inode, end.div_ceil(SECTOR_SIZE));
        if start < end && self.unreadable.range(sectors).next().is_some() {
            return Err(DiskError::Io);
        }
        Ok(buffer)
    }

    fn write(&mut self, inode: usize, offset: u64, bytes: &[u8]) {
        let content = &mut self.inodes[inode].volatile;
        let start = usize::try_from(offset).expect("a small file");
        let end = start + bytes.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[start..end].copy_from_slice(bytes);
        let sectors = start / SECTOR_SIZE..end.div_ceil(SECTOR_SIZE);
        self.unreadable
            .retain(|(of, sector)| *of != inode || !sectors.contains(sector));
    }

    fn list(&self, path: &Path) -> Vec<String> {
        let inside = |name: &&String| Path((*name).clone()).split().0 == *path;
        let names = self.volatile.keys().filter(inside);
        names
            .map(|name| Path(name.clone()).split().1.to_owned())
            .collect()
    }

    /// Names in a directory.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        self.list(&Path::from(path))
    }

    /// Content of a file.
    pub(crate) fn content(&self, path: &str) -> Vec<u8> {
        let Node::File(inode) = self.volatile[path] else {
            panic!("{path} is a directory")
        };
        self.inodes[inode].volatile.clone()
    }

    /// Puts a file there, durably.
    pub(crate) fn put(&mut self, path: &str, content: &[u8]) {
        if let Some(Node::File(inode)) = self.volatile.get(path) {
            let content = content.to_vec();
            self.inodes[*inode] = Inode {
                durable: content.clone(),
                volatile: content,
            };
            return;
        }
        let content = content.to_vec();
        self.inodes.push(Inode {
            durable: content.clone(),
            volatile: content,
        });
        let node = Node::File(self.inodes.len() - 1);
        self.volatile.insert(path.to_owned(), node);
        self.durable.insert(path.to_owned(), node);
    }

    /// Puts a directory there, durably.
    pub(crate) fn put_directory(&mut self, path: &str) {
        self.volatile.insert(path.to_owned(), Node::Directory);
        self.durable.insert(path.to_owned(), Node::Directory);
    }

    fn inode_of(&self, path: &str) -> usize {
        let Node::File(inode) = self.volatile[path] else {
            panic!("{path} is a directory")
        };
        inode
    }

    /// Changes one byte, in the page cache and on the device.
    pub(crate) fn flip(&mut self, path: &str, at: usize, mask: u8) {
        let inode = self.inode_of(path);
        let same = self.inodes[inode].volatile == self.inodes[inode].durable;
        assert!(same, "{path} is not synced");
        self.inodes[inode].volatile[at] ^= mask;
        self.inodes[inode].durable[at] ^= mask;
    }

    /// A sector is lost: it cannot be read.
    pub(crate) fn spoil(&mut self, path: &str, sector: usize) {
        let inode = self.inode_of(path);
        self.unreadable.insert((inode, sector));
    }

    /// Makes a directory and those above it, durably.
    pub(crate) fn make(&mut self, path: &str) {
        let mut path = Path::from(path);
        while !path.0.is_empty() {
            for names in [&mut self.volatile, &mut self.durable] {
                names.insert(path.0.clone(), Node::Directory);
            }
            path = path.split().0;
        }
    }

    /// A file is lost, name and all.
    pub(crate) fn lose(&mut self, path: &str) {
        self.volatile.remove(path);
        self.durable.remove(path);
    }

    /// Files open now.
    pub(crate) fn open_files(&self) -> usize {
        self.open.len()
    }
}

/// Keeps an arbitrary subset of the unsynced sectors.
fn tear(inode: &mut Inode, prng: &mut Prng) {
    let (old, new) = (&inode.durable, &inode.volatile);
    let (low, high) = (old.len().min(new.len()), old.len().max(new.len()));
    let size = match prng.below(3) {
        0 => old.len(),
        1 => new.len(),
        _ => low + prng.index(high - low + 1),
    };
    let mut content = vec![0; size];
    for start in (0..size).step_by(SECTOR_SIZE) {
        let source = if prng.chance(1, 2) { old } else { new };
        let end = size.min(start + SECTOR_SIZE).min(source.len());
        if start < end {
            content[start..end].copy_from_slice(&source[start..end]);
        }
    }
    inode.durable.clone_from(&content);
    inode.volatile = content;
}
