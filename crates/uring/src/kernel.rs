//! The kernel's half of the ring: requests go in with everything they point to, and come out with
//! their result. The only file of the workspace with `unsafe`.
//!
//! **Invariant:** from submission to final completion the table owns the request: its buffers,
//! iovecs, paths and file handles. Nobody outside can touch, free or close them, and every pointer
//! given to the kernel points into a heap block of the request, so the table may move it.

#![allow(
    unsafe_code,
    reason = "the border to the kernel; each block says why it is sound"
)]

use std::{
    collections::VecDeque,
    ffi::CString,
    fs::File,
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    rc::Rc,
    time::Duration,
};

use base::{Buffer, Bytes};
use io_uring::{
    IoUring, opcode, squeue,
    types::{Fd, FsyncFlags, SubmitArgs, Timespec},
};

/// Slices in one vectored request; the kernel refuses more.
pub(crate) const SLICES_MAX: usize = libc::UIO_MAXIOV as usize;
/// Bytes asked for in one request; the kernel cuts at 2 GiB anyway.
const SIZE_MAX: usize = 1 << 30;
/// User data of requests whose completion nobody waits for. No key has it: keys stay below 2^62.
const NOBODY: u64 = u64::MAX;

/// A request with everything it points to.
pub(crate) enum Request {
    /// Wait until an eventfd is written to.
    Wake { eventfd: Rc<File>, value: Vec<u64> },
    /// Accept connections until it fails.
    Accept { listener: Rc<TcpListener> },
    /// Connect a socket.
    Connect {
        socket: Rc<TcpStream>,
        address: SocketName,
    },
    /// Receive at least one byte into the room of a buffer.
    Receive {
        socket: Rc<TcpStream>,
        buffer: Buffer,
    },
    /// Send slices, without the first `skip` bytes.
    Send {
        socket: Rc<TcpStream>,
        bytes: Vec<Bytes>,
        skip: usize,
        scratch: Scratch,
    },
    /// Open a file or directory.
    Open {
        directory: Rc<File>,
        path: CString,
        flags: i32,
    },
    /// Read into the room of a buffer.
    Read {
        file: Rc<File>,
        offset: u64,
        buffer: Buffer,
    },
    /// Write slices, without the first `skip` bytes, at `offset`.
    Write {
        file: Rc<File>,
        offset: u64,
        data: VecDeque<Bytes>,
        skip: usize,
        scratch: Scratch,
    },
    /// Make a file's data and size durable.
    SyncData { file: Rc<File> },
    /// Drop a file's clean pages from the page cache.
    Evict { file: Rc<File> },
    /// Make a directory durable.
    SyncAll { file: Rc<File> },
    /// Rename.
    Rename {
        directory: Rc<File>,
        from: CString,
        to: CString,
    },
    /// Remove a name.
    Unlink {
        directory: Rc<File>,
        path: CString,
        flags: i32,
    },
    /// Make a directory.
    MakeDirectory { directory: Rc<File>, path: CString },
}

/// Room for what a vectored request points to; filled when the request is submitted.
#[derive(Default)]
pub(crate) struct Scratch {
    slices: Vec<libc::iovec>,
    // A `Vec` of one, not a `Box`: moving a box claims that nobody else points into it.
    header: Vec<libc::msghdr>,
}

/// An address as the kernel wants it, on the heap.
pub(crate) enum SocketName {
    V4(Vec<libc::sockaddr_in>),
    V6(Vec<libc::sockaddr_in6>),
}

impl From<SocketAddr> for SocketName {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::V4(vec![libc::sockaddr_in {
                sin_family: family(libc::AF_INET),
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from(*address.ip()).to_be(),
                },
                sin_zero: [0; 8],
            }]),
            SocketAddr::V6(address) => Self::V6(vec![libc::sockaddr_in6 {
                sin6_family: family(libc::AF_INET6),
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: address.ip().octets(),
                },
                sin6_scope_id: address.scope_id(),
            }]),
        }
    }
}

fn family(family: i32) -> libc::sa_family_t {
    libc::sa_family_t::try_from(family).expect("address families are small")
}

impl Scratch {
    /// Points at `bytes`, without the first `skip`; as many slices as one request may have.
    fn point_at<'a>(&mut self, bytes: impl Iterator<Item = &'a Bytes>, mut skip: usize) {
        self.slices.clear();
        for bytes in bytes.take(SLICES_MAX) {
            let bytes = &bytes[skip..];
            skip = 0;
            // The kernel only reads; `iovec` has no const form.
            self.slices.push(libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            });
        }
    }

    fn message(&mut self) -> *const libc::msghdr {
        // SAFETY: all fields of `msghdr` are integers or raw pointers, for which zero is valid.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = self.slices.as_mut_ptr();
        header.msg_iovlen = self.slices.len();
        self.header.clear();
        self.header.push(header);
        self.header.as_ptr()
    }
}

impl Request {
    /// The submission entry. Its pointers lead into heap blocks that `self` owns.
    fn entry(&mut self) -> squeue::Entry {
        match self {
            Self::Wake { eventfd, value } => {
                let size = u32::try_from(size_of::<u64>()).expect("8");
                opcode::Read::new(fd(eventfd), value.as_mut_ptr().cast(), size).build()
            }
            Self::Accept { listener } => opcode::AcceptMulti::new(fd(listener))
                .flags(libc::SOCK_CLOEXEC)
                .build(),
            Self::Connect { socket, address } => {
                let (name, size) = match address {
                    SocketName::V4(name) => (name.as_ptr().cast(), size_of::<libc::sockaddr_in>()),
                    SocketName::V6(name) => (name.as_ptr().cast(), size_of::<libc::sockaddr_in6>()),
                };
                let size = u32::try_from(size).expect("socket addresses are small");
                opcode::Connect::new(fd(socket), name, size).build()
            }
            Self::Receive { socket, buffer } => {
                let (room, size) = room(buffer);
                opcode::Recv::new(fd(socket), room, size).build()
            }
            Self::Send {
                socket,
                bytes,
                skip,
                scratch,
            } => {
                scratch.point_at(bytes.iter(), *skip);
                let flags = u32::try_from(libc::MSG_NOSIGNAL).expect("a flag");
                opcode::SendMsg::new(fd(socket), scratch.message())
                    .flags(flags)
                    .build()
            }
            file => file.file_entry(),
        }
    }

    /// The same for what is about files.
    fn file_entry(&mut self) -> squeue::Entry {
        match self {
            Self::Open {
                directory,
                path,
                flags,
            } => {
                let flags = *flags | libc::O_CLOEXEC;
                opcode::OpenAt::new(fd(directory), path.as_ptr())
                    .flags(flags)
                    .mode(0o600)
                    .build()
            }
            Self::Read {
                file,
                offset,
                buffer,
            } => {
                let (room, size) = room(buffer);
                opcode::Read::new(fd(file), room, size)
                    .offset(*offset)
                    .build()
            }
            Self::Write {
                file,
                offset,
                data,
                skip,
                scratch,
            } => {
                scratch.point_at(data.iter(), *skip);
                let count = u32::try_from(scratch.slices.len()).expect("at most SLICES_MAX");
                let slices = scratch.slices.as_ptr();
                opcode::Writev::new(fd(file), slices, count)
                    .offset(*offset)
                    .build()
            }
            Self::SyncData { file } => opcode::Fsync::new(fd(file))
                .flags(FsyncFlags::DATASYNC)
                .build(),
            Self::Evict { file } => {
                // Length 0 is to the end of the file.
                opcode::Fadvise::new(fd(file), 0, libc::POSIX_FADV_DONTNEED).build()
            }
            Self::SyncAll { file } => opcode::Fsync::new(fd(file)).build(),
            Self::Rename {
                directory,
                from,
                to,
            } => {
                let (from, to) = (from.as_ptr(), to.as_ptr());
                opcode::RenameAt::new(fd(directory), from, fd(directory), to).build()
            }
            Self::Unlink {
                directory,
                path,
                flags,
            } => opcode::UnlinkAt::new(fd(directory), path.as_ptr())
                .flags(*flags)
                .build(),
            Self::MakeDirectory { directory, path } => {
                opcode::MkDirAt::new(fd(directory), path.as_ptr())
                    .mode(0o700)
                    .build()
            }
            Self::Wake { .. }
            | Self::Accept { .. }
            | Self::Connect { .. }
            | Self::Receive { .. }
            | Self::Send { .. } => unreachable!("not about files"),
        }
    }
}

fn fd(file: &Rc<impl AsRawFd>) -> Fd {
    Fd(file.as_raw_fd())
}

fn room(buffer: &mut Buffer) -> (*mut u8, u32) {
    let room = buffer.spare_mut();
    let size = u32::try_from(room.len().min(SIZE_MAX)).expect("SIZE_MAX fits");
    (room.as_mut_ptr(), size)
}

/// Names a submitted request, for [`Kernel::cancel`] and [`Kernel::take`]; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    slot: u32,
    generation: u32,
}

impl Key {
    const fn user_data(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }
}

/// A request has come to an end, or (accept) to a step.
pub(crate) struct Completion {
    pub(crate) key: Key,
    /// What the kernel said: a count, or an error number.
    pub(crate) result: Result<u32, i32>,
    /// What an accept or an open has made.
    pub(crate) opened: Option<OwnedFd>,
    /// Whether the request goes on and more completions follow.
    pub(crate) more: bool,
}

struct Slot<P> {
    generation: u32,
    work: Option<(Request, P)>,
}

/// A ring and the table of what is in flight on it, each with a purpose of the caller's.
pub(crate) struct Kernel<P> {
    ring: IoUring,
    slots: Vec<Slot<P>>,
    free: Vec<u32>,
    in_flight: usize,
    reaped: VecDeque<Completion>,
}

impl<P> Kernel<P> {
    /// A ring with room for `entries` submissions at once, for the calling thread only.
    pub(crate) fn new(entries: u32) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_clamp()
            .setup_cqsize(entries * 4)
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_coop_taskrun()
            .build(entries)
            // Kernels before 6.1 know neither of the first two, before 5.19 none.
            .or_else(|_| {
                IoUring::builder()
                    .setup_clamp()
                    .setup_coop_taskrun()
                    .build(entries)
            })
            .or_else(|_| IoUring::builder().setup_clamp().build(entries))?;
        let features = ring.params();
        if !features.is_feature_ext_arg() || !features.is_feature_nodrop() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "io_uring of this kernel is too old: Linux 5.19 or later is needed",
            ));
        }
        Ok(Self {
            ring,
            slots: vec![],
            free: vec![],
            in_flight: 0,
            reaped: VecDeque::new(),
        })
    }

    /// Puts a request into the submission queue; the kernel sees it at the next [`Self::wait`].
    pub(crate) fn submit(&mut self, mut request: Request, purpose: P) -> io::Result<Key> {
        let entry = request.entry();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                work: None,
            });
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 requests in flight")
        });
        let place = &mut self.slots[slot as usize];
        assert!(place.work.is_none());
        place.work = Some((request, purpose));
        let key = Key {
            slot,
            generation: place.generation,
        };
        self.in_flight += 1;
        self.push(entry.user_data(key.user_data()))?;
        Ok(key)
    }

    /// Asks the kernel to end a request early; it still completes.
    pub(crate) fn cancel(&mut self, key: Key) -> io::Result<()> {
        self.push(
            opcode::AsyncCancel::new(key.user_data())
                .build()
                .user_data(NOBODY),
        )
    }

    fn push(&mut self, entry: squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: what the entry points to is owned by its slot in the table, on the heap and
            // untouched until the final completion (see the invariant above and `Drop`); the
            // descriptors it names stay open as long as the slot holds their handles.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return Ok(());
            }
            self.enter(Some(Duration::ZERO))?;
        }
    }

    /// Submits what was queued, then waits for a completion, at most `timeout`.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.reap();
        if self.reaped.is_empty() {
            self.enter(timeout)
        } else {
            self.enter(Some(Duration::ZERO))
        }
    }

    fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let entered = match timeout {
            None => self.ring.submit_and_wait(1),
            Some(Duration::ZERO) => self.ring.submit(),
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                self.ring
                    .submitter()
                    .submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
        };
        self.reap();
        match entered {
            Ok(_) => Ok(()),
            // Nothing came in time; a signal; too much at once, where reaping has made room.
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    fn reap(&mut self) {
        for entry in self.ring.completion() {
            if entry.user_data() == NOBODY {
                continue;
            }
            let [slot, generation] = [entry.user_data(), entry.user_data() >> 32]
                .map(|half| u32::try_from(half & u64::from(u32::MAX)).expect("32 bits"));
            let key = Key { slot, generation };
            let more = io_uring::cqueue::more(entry.flags());
            let result = u32::try_from(entry.result()).map_err(|_| -entry.result());
            let place = &self.slots[slot as usize];
            assert_eq!(place.generation, generation);
            let (request, _) = place.work.as_ref().expect("a request completes once");
            let opens = matches!(request, Request::Accept { .. } | Request::Open { .. });
            let opened = (opens && result.is_ok()).then(|| {
                // SAFETY: the kernel has made this descriptor for this completion; nobody else
                // has it.
                unsafe { OwnedFd::from_raw_fd(entry.result()) }
            });
            self.reaped.push_back(Completion {
                key,
                result,
                opened,
                more,
            });
        }
    }

    /// The next completion that has come in.
    pub(crate) fn completed(&mut self) -> Option<Completion> {
        self.reaped.pop_front()
    }

    /// What a request that goes on is for.
    pub(crate) fn purpose(&self, key: Key) -> &P {
        let (_, purpose) = self.slots[key.slot as usize]
            .work
            .as_ref()
            .expect("it goes on");
        purpose
    }

    /// Takes a request out whose final completion has come.
    ///
    /// The caller must not call this for a completion with `more`; a handle for a request that is
    /// not in flight any more is a bug and panics.
    pub(crate) fn take(&mut self, completion: &Completion) -> (Request, P) {
        assert!(!completion.more, "the kernel still works on it");
        let slot = &mut self.slots[completion.key.slot as usize];
        assert_eq!(slot.generation, completion.key.generation);
        let work = slot.work.take().expect("a request completes once");
        // 30 bits, so that no key looks like `NOBODY`.
        slot.generation = (slot.generation + 1) & ((1 << 30) - 1);
        self.free.push(completion.key.slot);
        self.in_flight -= 1;
        work
    }
}

impl<P> Drop for Kernel<P> {
    fn drop(&mut self) {
        let keys: Vec<Key> = (0..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.work.is_some())
            .map(|(slot, at)| Key {
                slot,
                generation: at.generation,
            })
            .collect();
        for key in keys {
            let _ = self.cancel(key);
        }
        // A request that the kernel won't let go of within this time (a device that hangs) keeps
        // its memory for ever: a leak at exit, where freeing would hand it to the kernel.
        let patience = std::time::Instant::now() + Duration::from_secs(2);
        while self.in_flight > 0 && std::time::Instant::now() < patience {
            if self.enter(Some(Duration::from_millis(20))).is_err() {
                break;
            }
            while let Some(completion) = self.completed() {
                if !completion.more {
                    drop(self.take(&completion));
                }
            }
        }
        if self.in_flight > 0 {
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}

/// A new eventfd: a counter that readers wait for.
pub(crate) fn eventfd() -> io::Result<File> {
    // SAFETY: no memory is involved.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, nobody else has it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(descriptor) }))
}

/// A new TCP socket that is not connected yet.
pub(crate) fn socket(address: &SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    // SAFETY: no memory is involved.
    let descriptor = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, nobody else has it.
    Ok(TcpStream::from(unsafe { OwnedFd::from_raw_fd(descriptor) }))
}

/// Has the kernel ask an idle peer for signs of life: after 15 s, then every 5 s, and give the
/// connection up after six questions without an answer. A machine that lost power, or a middlebox
/// that forgot the connection, would otherwise hold it open for ever.
pub(crate) fn keep_alive(socket: &TcpStream) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 15)?;
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 5)?;
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 6)
}

fn set_option(socket: &TcpStream, level: i32, name: i32, value: i32) -> io::Result<()> {
    let size = libc::socklen_t::try_from(size_of::<i32>()).expect("four");
    let pointer = (&raw const value).cast();
    // SAFETY: the kernel reads an integer on our stack, of the size that we say.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, pointer, size) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Lets this process have as many descriptors as it may: the soft limit becomes the hard one.
/// Files and connections share them, and the usual soft limit is 1,024.
///
/// # Errors
/// If the kernel refuses.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel fills a structure on our stack.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the kernel reads a structure on our stack.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Bytes free for this process and bytes in all, on the disk that holds `path`.
///
/// # Errors
/// If the kernel cannot say.
pub fn disk_space(path: &Path) -> io::Result<(u64, u64)> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: all zero is a value of this structure of integers.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads a string that ends with 0 and fills a structure on our stack.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut found) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let block = found.f_frsize;
    Ok((found.f_bavail * block, found.f_blocks * block))
}
