//! What shards of one process pass to each other: letters and connections, through one bounded
//! queue per ordered pair, and the doorbells that wake a ring that sleeps.
//!
//! Nobody ever blocks. What a full queue does not take stays with the sender in order; while
//! anything stays, [`Mail::congested`] tells the ring to stop reading from clients. The receiver
//! that makes room rings the sender's doorbell.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Write},
    net::TcpStream,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering, fence},
        mpsc::Sender,
    },
    time::Instant,
};

use base::{Bytes, ShardIndex};
use platform::{Address, ConnectionId, Letter, ListenerId, Outcome, Token};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::{Inspector, Report, compute, kernel};

/// What passes between two shards.
pub(crate) enum Parcel {
    Letter(Letter),
    Connection(Passage),
}

/// A connection on its way to another shard.
pub(crate) struct Passage {
    pub(crate) connection: ConnectionId,
    pub(crate) listener: ListenerId,
    pub(crate) peer: Address,
    pub(crate) received: Bytes,
    pub(crate) socket: TcpStream,
}

/// How to wake one shard.
struct Door {
    bell: File,
    /// Rung, and not answered yet; saves the second ring.
    rung: AtomicBool,
    /// By sender: it found the queue full and wants to hear of room.
    wants_room: Vec<AtomicBool>,
    computed: Mutex<Vec<(Token, Outcome)>>,
}

/// What all shards of a process share.
pub(crate) struct Hub {
    doors: Vec<Door>,
    stop: AtomicBool,
    /// The start of monotonic time.
    epoch: Instant,
}

impl Hub {
    fn ring(&self, shard: usize) {
        let door = &self.doors[shard];
        if !door.rung.swap(true, Ordering::AcqRel) {
            // Cannot block: the counter would have to be rung 2^64 times.
            let _ = (&door.bell).write(&1_u64.to_ne_bytes());
        }
    }

    /// Delivers the result of a computation.
    pub(crate) fn computed(&self, shard: ShardIndex, token: Token, outcome: Outcome) {
        let shard = usize::from(shard.0);
        let mut computed = self.doors[shard]
            .computed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        computed.push((token, outcome));
        drop(computed);
        self.ring(shard);
    }
}

/// Asks all shards of a process to stop; from any thread.
#[derive(Clone)]
pub struct Stopper {
    hub: Arc<Hub>,
}

impl Stopper {
    /// Every shard is told [`platform::Event::Stop`], once.
    pub fn stop(&self) {
        self.hub.stop.store(true, Ordering::Release);
        for shard in 0..self.hub.doors.len() {
            self.hub.ring(shard);
        }
    }
}

/// One shard's end of everything that connects it to the rest of the process; goes to its thread.
pub struct Port {
    pub(crate) shard: ShardIndex,
    pub(crate) hub: Arc<Hub>,
    pub(crate) reports: Sender<Report>,
    pub(crate) work: Sender<compute::Job>,
    to: Vec<Producer<Parcel>>,
    from: Vec<Consumer<Parcel>>,
}

/// The ports of `shard_count` shards, with queues of `letters_max` between each two. What the
/// shards report goes to `reports`; `inspector` answers what people ask about the process.
///
/// # Errors
/// If the kernel gives no descriptor, or no thread for computations.
pub fn mesh(
    shard_count: u16,
    letters_max: usize,
    reports: &Sender<Report>,
    inspector: impl Inspector,
) -> io::Result<(Vec<Port>, Stopper)> {
    let count = usize::from(shard_count);
    let mut doors = Vec::with_capacity(count);
    for _ in 0..count {
        doors.push(Door {
            bell: kernel::eventfd()?,
            rung: AtomicBool::new(false),
            wants_room: (0..count).map(|_| AtomicBool::new(false)).collect(),
            computed: Mutex::new(vec![]),
        });
    }
    let hub = Arc::new(Hub {
        doors,
        stop: AtomicBool::new(false),
        epoch: Instant::now(),
    });
    let work = compute::start(hub.clone(), inspector)?;
    let mut ports: Vec<Port> = (0..shard_count)
        .map(|shard| Port {
            shard: ShardIndex(shard),
            hub: hub.clone(),
            reports: reports.clone(),
            work: work.clone(),
            to: Vec::with_capacity(count),
            from: Vec::with_capacity(count),
        })
        .collect();
    // In ascending order on both sides, so that an end's place is the other shard's index.
    for sender in 0..count {
        for receiver in 0..count {
            let (producer, consumer) = RingBuffer::new(letters_max.max(1));
            ports[sender].to.push(producer);
            ports[receiver].from.push(consumer);
        }
    }
    Ok((ports, Stopper { hub }))
}

/// The mail of one shard, on its thread.
pub(crate) struct Mail {
    shard: usize,
    hub: Arc<Hub>,
    to: Vec<Producer<Parcel>>,
    from: Vec<Consumer<Parcel>>,
    /// By receiver: what its queue did not take, oldest first.
    kept: Vec<VecDeque<Parcel>>,
    /// By receiver: whether something was put into its queue since its bell was last rung.
    posted: Vec<bool>,
    stop_told: bool,
}

impl Mail {
    pub(crate) fn new(
        shard: ShardIndex,
        hub: Arc<Hub>,
        to: Vec<Producer<Parcel>>,
        from: Vec<Consumer<Parcel>>,
    ) -> Self {
        let count = to.len();
        Self {
            shard: usize::from(shard.0),
            hub,
            to,
            from,
            kept: (0..count).map(|_| VecDeque::new()).collect(),
            posted: vec![false; count],
            stop_told: false,
        }
    }

    /// The file that wakes this shard's ring.
    pub(crate) fn bell(&self) -> io::Result<File> {
        self.hub.doors[self.shard].bell.try_clone()
    }

    /// The start of monotonic time.
    pub(crate) fn epoch(&self) -> Instant {
        self.hub.epoch
    }

    /// Sends a parcel, now or when there is room.
    pub(crate) fn post(&mut self, to: ShardIndex, parcel: Parcel) {
        let to = usize::from(to.0);
        self.kept[to].push_back(parcel);
        self.push(to);
    }

    fn push(&mut self, to: usize) {
        let mut asked = false;
        while let Some(parcel) = self.kept[to].pop_front() {
            let Err(rtrb::PushError::Full(parcel)) = self.to[to].push(parcel) else {
                self.posted[to] = true;
                continue;
            };
            self.kept[to].push_front(parcel);
            if asked {
                return;
            }
            // Ask for a ring, then look again: the receiver may have made room in between.
            self.hub.doors[to].wants_room[self.shard].store(true, Ordering::Release);
            fence(Ordering::SeqCst);
            asked = true;
        }
    }

    /// Retries what was kept and rings the bells of all shards that have something new; once a
    /// turn.
    pub(crate) fn flush(&mut self) {
        for to in 0..self.to.len() {
            if !self.kept[to].is_empty() {
                self.push(to);
            }
            if std::mem::take(&mut self.posted[to]) {
                self.hub.ring(to);
            }
        }
    }

    /// Whether anything waits for room in another shard's queue.
    pub(crate) fn congested(&self) -> bool {
        self.kept.iter().any(|kept| !kept.is_empty())
    }

    /// Takes everything that has come in. A ring of the bell after this call means something new.
    pub(crate) fn collect(&mut self, mut parcel: impl FnMut(ShardIndex, Parcel)) {
        self.hub.doors[self.shard]
            .rung
            .swap(false, Ordering::AcqRel);
        for (from, queue) in (0..).zip(&mut self.from) {
            while let Ok(arrived) = queue.pop() {
                parcel(ShardIndex(from), arrived);
            }
        }
        // Pairs with the fence in `push`: either the sender sees the room made above, or its
        // wish is seen here.
        fence(Ordering::SeqCst);
        for (sender, wants_room) in self.hub.doors[self.shard].wants_room.iter().enumerate() {
            if wants_room.swap(false, Ordering::AcqRel) {
                self.hub.ring(sender);
            }
        }
    }

    /// Takes the results of computations.
    pub(crate) fn computed(&self) -> Vec<(Token, Outcome)> {
        let computed = &self.hub.doors[self.shard].computed;
        std::mem::take(&mut *computed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the process was asked to stop; true once.
    pub(crate) fn stop_asked(&mut self) -> bool {
        let asked = !self.stop_told && self.hub.stop.load(Ordering::Acquire);
        self.stop_told |= asked;
        asked
    }
}

impl Port {
    /// This port's mail and the rest of it.
    pub(crate) fn open(self) -> (Mail, Sender<Report>, Sender<compute::Job>) {
        (
            Mail::new(self.shard, self.hub, self.to, self.from),
            self.reports,
            self.work,
        )
    }

    /// Which shard this is the port of.
    #[must_use]
    pub fn shard(&self) -> ShardIndex {
        self.shard
    }
}
