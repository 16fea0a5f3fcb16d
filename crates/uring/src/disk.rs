//! The files of one shard, under the node's data directory.
//!
//! Short reads and writes are continued and interrupted calls repeated here, so a completion means
//! that all of it was done. Three requests are done by plain system calls in the turn, because
//! they are rare or cheap and the ring has no better: `Truncate` (`ftruncate`; its opcode needs
//! Linux 6.9), `List` (a directory is read at recovery only) and `Close`.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::CString,
    fs::{self, File},
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    rc::Rc,
};

use base::{Buffer, Bytes};
use platform::{
    DiskDone, DiskError, DiskRequest, DiskResult, Event, FileId, OpenMode, Path, Token,
};

use crate::{
    kernel::{Kernel, Request, Scratch},
    ring::Purpose,
};

/// What a disk request in flight is for.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    /// A file opens.
    Open(FileId),
    /// A directory opens, to be synced.
    OpenDirectory,
    /// A name goes; it may be gone already.
    Remove,
    /// A directory is made; it may exist already.
    Make,
    /// Bytes move.
    Transfer,
    /// Nothing but success or failure.
    Plain,
}

/// The open files of one shard.
pub(crate) struct Disk {
    root: PathBuf,
    directory: Rc<File>,
    files: BTreeMap<FileId, Rc<File>>,
}

impl Disk {
    /// Files under `root`, which exists.
    pub(crate) fn new(root: PathBuf) -> io::Result<Self> {
        let directory = Rc::new(File::open(&root)?);
        Ok(Self {
            root,
            directory,
            files: BTreeMap::new(),
        })
    }

    /// Starts a request; what can be done at once is done at once.
    pub(crate) fn execute(
        &mut self,
        kernel: &mut Kernel<Purpose>,
        token: Token,
        request: DiskRequest,
        inbox: &mut VecDeque<Event>,
    ) -> io::Result<()> {
        let (request, step) = match self.prepare(request) {
            Ok(in_flight) => in_flight,
            Err(result) => {
                inbox.push_back(Event::Disk(DiskDone { token, result }));
                return Ok(());
            }
        };
        kernel.submit(request, Purpose::Disk(token, step))?;
        Ok(())
    }

    /// The request for the ring, or its result.
    fn prepare(&mut self, request: DiskRequest) -> Result<(Request, Step), Finished> {
        let directory = self.directory.clone();
        Ok(match request {
            DiskRequest::SyncDir { path } => {
                let flags = libc::O_RDONLY | libc::O_DIRECTORY;
                (open(directory, &path, flags), Step::OpenDirectory)
            }
            DiskRequest::Rename { from, to } => {
                let (from, to) = (name(&from), name(&to));
                (
                    Request::Rename {
                        directory,
                        from,
                        to,
                    },
                    Step::Plain,
                )
            }
            DiskRequest::RemoveFile { path } => (unlink(directory, &path, 0), Step::Remove),
            DiskRequest::RemoveDir { path } => {
                (unlink(directory, &path, libc::AT_REMOVEDIR), Step::Remove)
            }
            DiskRequest::CreateDir { path } => {
                let path = name(&path);
                (Request::MakeDirectory { directory, path }, Step::Make)
            }
            DiskRequest::List { path } => return Err(self.list(&path)),
            request => return self.prepare_file(request),
        })
    }

    /// The same for requests about one file.
    fn prepare_file(&mut self, request: DiskRequest) -> Result<(Request, Step), Finished> {
        Ok(match request {
            DiskRequest::Open { file, path, mode } => {
                assert!(!self.files.contains_key(&file), "file ids are fresh");
                let flags = match mode {
                    OpenMode::Existing => libc::O_RDWR,
                    OpenMode::CreateIfMissing => libc::O_RDWR | libc::O_CREAT,
                    OpenMode::CreateEmpty => libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC,
                };
                (open(self.directory.clone(), &path, flags), Step::Open(file))
            }
            DiskRequest::Read {
                file,
                offset,
                buffer,
            } => {
                if buffer.len() == buffer.capacity() {
                    return Err(Ok(DiskResult::Read { buffer }));
                }
                let file = self.file(file);
                (
                    Request::Read {
                        file,
                        offset,
                        buffer,
                    },
                    Step::Transfer,
                )
            }
            DiskRequest::Write { file, offset, data } => {
                let mut data = VecDeque::from(data);
                data.retain(|bytes| !bytes.is_empty());
                if data.is_empty() {
                    return Err(Ok(DiskResult::Written));
                }
                (write(self.file(file), offset, data, 0), Step::Transfer)
            }
            DiskRequest::SyncData { file } => {
                let file = self.file(file);
                (Request::SyncData { file }, Step::Plain)
            }
            DiskRequest::Evict { file } => {
                let file = self.file(file);
                (Request::Evict { file }, Step::Plain)
            }
            DiskRequest::Truncate { file, size } => {
                return Err(done(self.file(file).set_len(size)));
            }
            DiskRequest::Close { file } => {
                self.files.remove(&file).expect("a file is closed once");
                return Err(Ok(DiskResult::Done));
            }
            request => unreachable!("{request:?} is about names"),
        })
    }

    fn file(&self, file: FileId) -> Rc<File> {
        self.files
            .get(&file)
            .expect("files are used between Opened and Close")
            .clone()
    }

    fn list(&self, path: &Path) -> Result<DiskResult, DiskError> {
        let names = fs::read_dir(self.root.join(&path.0)).and_then(|entries| {
            // What is not UTF-8 is not ours.
            let name = |entry: fs::DirEntry| entry.file_name().into_string().ok();
            entries
                .filter_map(|entry| entry.map(name).transpose())
                .collect::<io::Result<Vec<_>>>()
        });
        match names {
            Ok(mut names) => {
                names.sort_unstable();
                Ok(DiskResult::Names(names))
            }
            Err(error) => Err(failure(&error)),
        }
    }

    /// A request has come back: goes on with it, or tells its result.
    pub(crate) fn on_completion(
        &mut self,
        kernel: &mut Kernel<Purpose>,
        request: Request,
        (token, step): (Token, Step),
        (result, opened): (Result<u32, i32>, Option<OwnedFd>),
        inbox: &mut VecDeque<Event>,
    ) -> io::Result<()> {
        let again = matches!(result, Err(libc::EINTR | libc::EAGAIN));
        let result = result
            .map(|count| count as usize)
            .map_err(io::Error::from_raw_os_error);
        let result = if again {
            Err(request)
        } else {
            match (request, step) {
                (
                    Request::Read {
                        file,
                        offset,
                        buffer,
                    },
                    _,
                ) => read_on(file, offset, buffer, result),
                (
                    Request::Write {
                        file,
                        offset,
                        data,
                        skip,
                        ..
                    },
                    _,
                ) => write_on(file, offset, data, skip, result),
                (_, Step::Open(id)) => Ok(result
                    .and_then(|_| self.opened(id, opened))
                    .map_err(|error| failure(&error))),
                (_, Step::OpenDirectory) => match (result, opened) {
                    (Ok(_), Some(directory)) => {
                        let file = Rc::new(File::from(directory));
                        let key = Request::SyncAll { file };
                        kernel.submit(key, Purpose::Disk(token, Step::Plain))?;
                        return Ok(());
                    }
                    (result, _) => Ok(done(result.map(drop))),
                },
                (_, Step::Remove) => Ok(done_or(result, io::ErrorKind::NotFound)),
                (_, Step::Make) => Ok(done_or(result, io::ErrorKind::AlreadyExists)),
                (_, Step::Plain | Step::Transfer) => Ok(done(result.map(drop))),
            }
        };
        match result {
            Ok(result) => inbox.push_back(Event::Disk(DiskDone { token, result })),
            Err(request) => {
                kernel.submit(request, Purpose::Disk(token, step))?;
            }
        }
        Ok(())
    }

    fn opened(&mut self, id: FileId, descriptor: Option<OwnedFd>) -> io::Result<DiskResult> {
        let file = File::from(descriptor.expect("a successful open has one"));
        let size = file.metadata()?.len();
        self.files.insert(id, Rc::new(file));
        Ok(DiskResult::Opened { size })
    }
}

type Finished = Result<DiskResult, DiskError>;

/// Counts what was read; the result, or the request for the rest.
fn read_on(
    file: Rc<File>,
    offset: u64,
    mut buffer: Buffer,
    result: io::Result<usize>,
) -> Result<Finished, Request> {
    match result {
        Ok(count) => {
            buffer.advance(count);
            if count == 0 || buffer.len() == buffer.capacity() {
                return Ok(Ok(DiskResult::Read { buffer }));
            }
            Err(Request::Read {
                file,
                offset: offset + count as u64,
                buffer,
            })
        }
        Err(error) => Ok(Err(failure(&error))),
    }
}

/// Drops what was written; the result, or the request for the rest.
fn write_on(
    file: Rc<File>,
    offset: u64,
    mut data: VecDeque<Bytes>,
    skip: usize,
    result: io::Result<usize>,
) -> Result<Finished, Request> {
    let written = match result {
        Ok(0) => return Ok(Err(failure(&io::ErrorKind::WriteZero.into()))),
        Ok(count) => count,
        Err(error) => return Ok(Err(failure(&error))),
    };
    let mut skip = skip + written;
    while let Some(bytes) = data.pop_front_if(|bytes| bytes.len() <= skip) {
        skip -= bytes.len();
    }
    if data.is_empty() {
        return Ok(Ok(DiskResult::Written));
    }
    Err(write(file, offset + written as u64, data, skip))
}

fn open(directory: Rc<File>, path: &Path, flags: i32) -> Request {
    let path = name(path);
    Request::Open {
        directory,
        path,
        flags,
    }
}

fn unlink(directory: Rc<File>, path: &Path, flags: i32) -> Request {
    let path = name(path);
    Request::Unlink {
        directory,
        path,
        flags,
    }
}

fn write(file: Rc<File>, offset: u64, data: VecDeque<Bytes>, skip: usize) -> Request {
    Request::Write {
        file,
        offset,
        data,
        skip,
        scratch: Scratch::default(),
    }
}

fn done(result: io::Result<()>) -> Finished {
    result
        .map(|()| DiskResult::Done)
        .map_err(|error| failure(&error))
}

fn done_or(result: io::Result<usize>, fine: io::ErrorKind) -> Finished {
    match result {
        Err(error) if error.kind() == fine => Ok(DiskResult::Done),
        result => done(result.map(drop)),
    }
}

/// The class of an error; the log has the rest.
fn failure(error: &io::Error) -> DiskError {
    match error.kind() {
        io::ErrorKind::NotFound => DiskError::NotFound,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DiskError::Full,
        _ => {
            tracing::error!("a disk request failed: {error}");
            DiskError::Io
        }
    }
}

/// A path as the kernel wants it, relative to the data directory.
fn name(path: &Path) -> CString {
    let path = if path.0.is_empty() { "." } else { &path.0 };
    assert!(!path.starts_with('/') && path.split('/').all(|name| name != ".."));
    CString::new(path).expect("paths are made of names without zero bytes")
}
