//! A ring on the test's own thread with a directory of its own, driven effect by effect.

#![allow(dead_code, reason = "each test file uses its part")]

use std::{
    collections::VecDeque,
    fs,
    path::PathBuf,
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, channel},
    },
    time::Duration,
};

use base::{Buffer, Bytes};
use platform::{
    ConnectionId, DiskDone, DiskError, DiskRequest, DiskResult, Effect, Event, ListenerId,
    NetworkEvent, Token,
};
use uring::{Options, Report, Ring, Stopper, mesh};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A directory that goes with its owner.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("viewstamp-uring-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A shard's body and the events that a test has not looked at yet.
pub(crate) struct Body {
    pub(crate) ring: Ring,
    pub(crate) seen: VecDeque<Event>,
    requests: u64,
}

/// `count` bodies on this thread that share a directory.
pub(crate) struct Bodies {
    pub(crate) bodies: Vec<Body>,
    pub(crate) directory: Directory,
    pub(crate) stopper: Stopper,
    pub(crate) reports: Receiver<Report>,
}

pub(crate) fn bodies(count: u16, letters_max: usize, options: &Options) -> Bodies {
    let directory = Directory::new();
    let (sender, reports) = channel();
    let (ports, stopper) = mesh(count, letters_max, &sender, ()).unwrap();
    let bodies = ports
        .into_iter()
        .map(|port| Body {
            ring: Ring::new(port, &directory.0, options).unwrap(),
            seen: VecDeque::new(),
            requests: 0,
        })
        .collect();
    Bodies {
        bodies,
        directory,
        stopper,
        reports,
    }
}

/// One body with its directory.
pub(crate) fn body() -> (Body, Directory) {
    let mut all = bodies(1, 16, &Options::default());
    (all.bodies.remove(0), all.directory)
}

impl Body {
    pub(crate) fn execute(&mut self, effect: Effect) {
        self.ring.execute(effect).unwrap();
    }

    /// One turn, which ends after `patience` if nothing happens.
    pub(crate) fn turn(&mut self, patience: Duration) {
        let deadline = self.ring.now().monotonic + patience;
        self.ring.wait(Some(deadline)).unwrap();
        while let Some(event) = self.ring.next_event() {
            self.seen.push_back(event);
        }
    }

    /// The first event that `pick` takes, waiting for it as long as it takes.
    pub(crate) fn until<T>(
        &mut self,
        mut pick: impl FnMut(&Event) -> bool,
        take: fn(Event) -> T,
    ) -> T {
        loop {
            if let Some(place) = self.seen.iter().position(&mut pick) {
                return take(self.seen.remove(place).unwrap());
            }
            self.turn(Duration::from_secs(10));
        }
    }

    /// Starts a disk request; its number.
    pub(crate) fn start(&mut self, request: DiskRequest) -> u64 {
        self.requests += 1;
        let token = Token {
            owner: 7,
            request: self.requests,
        };
        self.execute(Effect::Disk { token, request });
        self.requests
    }

    /// Waits for a disk request.
    pub(crate) fn done(&mut self, request: u64) -> Result<DiskResult, DiskError> {
        let token = Token { owner: 7, request };
        let pick = |event: &Event| matches!(event, Event::Disk(done) if done.token == token);
        self.until(pick, |event| match event {
            Event::Disk(DiskDone { result, .. }) => result,
            _ => unreachable!(),
        })
    }

    /// Does a disk request.
    pub(crate) fn disk(&mut self, request: DiskRequest) -> Result<DiskResult, DiskError> {
        let request = self.start(request);
        self.done(request)
    }

    /// Listens on a free port of this host.
    pub(crate) fn listen(&mut self, listener: ListenerId) -> std::net::SocketAddr {
        let address = "127.0.0.1:0".parse().unwrap();
        self.execute(Effect::Listen { listener, address });
        self.network(|event| match event {
            NetworkEvent::Listening { address, .. } => Some(*address),
            _ => None,
        })
    }

    /// Waits for an event of the network.
    pub(crate) fn network<T>(&mut self, mut pick: impl FnMut(&NetworkEvent) -> Option<T>) -> T {
        loop {
            for place in 0..self.seen.len() {
                if let Event::Network(event) = &self.seen[place]
                    && let Some(picked) = pick(event)
                {
                    self.seen.remove(place);
                    return picked;
                }
            }
            self.turn(Duration::from_secs(10));
        }
    }

    pub(crate) fn accepted(&mut self) -> ConnectionId {
        self.network(|event| match event {
            NetworkEvent::Accepted { connection, .. } => Some(*connection),
            _ => None,
        })
    }

    pub(crate) fn closed(&mut self, id: ConnectionId) {
        self.network(|event| match event {
            NetworkEvent::Closed { connection } if *connection == id => Some(()),
            _ => None,
        });
    }

    pub(crate) fn receive(&mut self, connection: ConnectionId, room: usize) {
        let buffer = Buffer::with_capacity(room);
        self.execute(Effect::Receive { connection, buffer });
    }

    /// The bytes that a receive has brought.
    pub(crate) fn received(&mut self, id: ConnectionId) -> Vec<u8> {
        self.network(|event| match event {
            NetworkEvent::Received { connection, buffer } if *connection == id => {
                Some(buffer.as_slice().to_vec())
            }
            _ => None,
        })
    }

    pub(crate) fn send(&mut self, connection: ConnectionId, bytes: &[u8]) {
        self.execute(Effect::Send {
            connection,
            bytes: Bytes::copy_of(bytes),
        });
    }

    /// The sizes of the next `count` sends that were done.
    pub(crate) fn sent(&mut self, id: ConnectionId, count: usize) -> Vec<usize> {
        let sent = |event: &NetworkEvent| match event {
            NetworkEvent::Sent { connection, size } if *connection == id => Some(*size),
            _ => None,
        };
        (0..count).map(|_| self.network(sent)).collect()
    }
}

/// Bytes without a pattern that a shift or a swap would keep.
pub(crate) fn noise(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..size)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963);
            state.to_be_bytes()[0]
        })
        .collect()
}
