//! A cluster of groups in memory: links, journals and view stores as plain queues that only move
//! when told, and the invariants that hold after every step.
//!
//! A journal is what is written (and, up to `synced`, safe from a power loss) and a queue of what
//! is not; a crash keeps a prefix of the queue, as a real one may. A link is a FIFO that stands
//! or is cut; a cut loses what is under way, and a new link begins with both sides' statuses.

#![allow(dead_code, reason = "each test crate uses its own part of the cluster")]

mod disk;
mod words;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use base::{
    Buffer, Bytes, ClientId, Domain, GroupId, Instant, Op, Prng, ReplicaIndex, Timestamp, View,
};
use consensus::{Effect, Group, GroupConfig, Quorums, Stand, Timing, Trust};
use wire::{
    HEADER_SIZE, Operation,
    replica::{Envelope, GroupStatus, Message, PrepareHeader},
};

const CLUSTER: u128 = 7;

/// What counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Written: a crash of the process keeps it, a power loss may not.
    Replicated,
    /// Synced.
    Persisted,
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// What is written stays.
    Process,
    /// Only what is synced stays for certain.
    Power,
}

#[derive(Clone, Debug)]
enum DiskOp {
    Append(Box<PrepareHeader>, Bytes),
    Truncate(Op),
}

#[derive(Clone, Debug)]
pub(crate) enum Letter {
    Frame(Bytes),
    Repair { view: View, prepare: Bytes },
    Status(GroupStatus),
}

enum Read {
    /// A range of the log of a view.
    Prepares {
        to: usize,
        view: View,
        from: Op,
        until: Op,
    },
    /// One op by its identity.
    Body { to: usize, op: Op, checksum: u128 },
}

/// A record of a journal.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) header: PrepareHeader,
    frame: Bytes,
    /// Whether the disk has lost it; its place is taken all the same.
    pub(crate) damaged: bool,
}

/// What the view store holds of a group that it has never heard of, on a new disk.
const BLANK: Stand = Stand {
    view: View(0),
    log_view: View(0),
    trust: Trust::Blank,
};

/// One replica: its process, if it runs, and its disk.
pub(crate) struct Node {
    pub(crate) group: Option<Group>,
    pub(crate) log: Vec<Record>,
    synced: usize,
    queue: VecDeque<DiskOp>,
    views: VecDeque<Stand>,
    /// What the view store holds.
    pub(crate) stored: Stand,
    /// Bodies that have arrived for damaged records, until all of a gap have.
    fetched: BTreeMap<Op, Bytes>,
    reads: VecDeque<Read>,
    applied: Op,
}

pub(crate) struct Cluster {
    pub(crate) mode: Mode,
    pub(crate) now: Instant,
    pub(crate) nodes: Vec<Node>,
    pub(crate) prng: Prng,
    links: BTreeMap<(usize, usize), VecDeque<Letter>>,
    up: BTreeMap<(usize, usize), bool>,
    /// Identity of every op that any replica has applied.
    pub(crate) committed: BTreeMap<Op, u128>,
    commit_view: View,
    /// Whether a group has said that acknowledged ops may be gone: then they may.
    pub(crate) loss: bool,
    made: u64,
    pub(crate) pipeline_max: usize,
    repair_max: u64,
    /// Whether letters may arrive again, and late.
    pub(crate) soup: bool,
    /// Whether events are printed.
    pub(crate) loud: bool,
    /// Whether messages are left out of the trace.
    pub(crate) quiet: bool,
    /// Events in words, if wanted.
    pub(crate) trace: Option<Vec<String>>,
}

impl Cluster {
    /// A cluster of replicas that have never done anything: of which that is known, or whose disks
    /// are new.
    pub(crate) fn new(count: usize, mode: Mode, trust: Trust, seed: u64) -> Self {
        // `PLANTED=3 cargo test -p consensus --features planted-bugs` must fail.
        #[cfg(feature = "planted-bugs")]
        if let Ok(number) = std::env::var("PLANTED") {
            base::planted::activate(number.parse().expect("a number"));
        }
        let mut prng = Prng::new(seed, Domain::Process, 99);
        let repair_max = prng.between(1, 4);
        let mut cluster = Self {
            mode,
            now: Instant(1_000_000),
            nodes: Vec::new(),
            links: BTreeMap::new(),
            up: BTreeMap::new(),
            committed: BTreeMap::new(),
            commit_view: View(0),
            loss: false,
            made: 0,
            pipeline_max: 4,
            repair_max,
            soup: false,
            loud: false,
            prng,
            quiet: false,
            trace: None,
        };
        for index in 0..count {
            cluster.nodes.push(Node {
                group: None,
                log: Vec::new(),
                synced: 0,
                queue: VecDeque::new(),
                views: VecDeque::new(),
                stored: Stand { trust, ..BLANK },
                fetched: BTreeMap::new(),
                reads: VecDeque::new(),
                applied: Op(0),
            });
            for other in 0..count {
                if other != index {
                    cluster.links.insert((index, other), VecDeque::new());
                    cluster.up.insert((index, other), true);
                }
            }
        }
        for index in 0..count {
            let mut out = Vec::new();
            let config = cluster.config(index);
            let prng = cluster.fork(index);
            let group = Group::create(config, View(0), trust, cluster.now, prng, &mut out);
            cluster.nodes[index].group = Some(group);
            cluster.carry_out(index, out);
        }
        cluster
    }

    pub(crate) fn count(&self) -> usize {
        self.nodes.len()
    }

    fn fork(&mut self, index: usize) -> Prng {
        Prng::new(self.prng.next_u64(), Domain::Replica, index as u64)
    }

    fn config(&self, index: usize) -> GroupConfig {
        GroupConfig {
            group: GroupId(1024),
            cluster: CLUSTER,
            replica: replica(index),
            replica_count: u8::try_from(self.count().max(index + 1)).expect("small"),
            pipeline_max: self.pipeline_max,
            repair_max: self.repair_max,
            timing: Timing {
                view_change_retry: Duration::from_millis(200),
                view_change: Duration::from_millis(800),
                repair_retry: Duration::from_millis(100),
            },
        }
    }

    pub(crate) fn say(&mut self, line: impl FnOnce() -> String) {
        if self.loud {
            return println!("  {}", line());
        }
        if let Some(trace) = &mut self.trace {
            trace.push(format!("  {}", line()));
        }
    }

    pub(crate) fn act(&mut self, index: usize, act: impl FnOnce(&mut Group, &mut Vec<Effect>)) {
        let mut out = Vec::new();
        let Some(group) = &mut self.nodes[index].group else {
            return;
        };
        act(group, &mut out);
        self.carry_out(index, out);
    }

    fn carry_out(&mut self, index: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send { to, frame } => self.send(index, usize::from(to.0), frame),
                Effect::Append { prepare } => {
                    let header = PrepareHeader::verify(&prepare).expect("sealed");
                    self.nodes[index]
                        .queue
                        .push_back(DiskOp::Append(Box::new(header), prepare));
                }
                Effect::TruncateAfter { op } => self.truncate(index, op),
                Effect::PersistView(stand) => {
                    self.check_log_is_durable(index, stand.view, stand.log_view);
                    let doubt = match stand.trust {
                        Trust::Trusted => "",
                        Trust::Doubt => " in doubt",
                        Trust::Blank => " blank",
                    };
                    self.nodes[index].views.push_back(stand);
                    let (view, log_view) = (stand.view.0, stand.log_view.0);
                    self.say(|| format!("{index} stores view {view} log_view {log_view}{doubt}"));
                }
                Effect::Commit { prepare } => self.commit(index, &prepare),
                Effect::ServePrepares {
                    to,
                    view,
                    from,
                    until,
                } => {
                    let to = usize::from(to.0);
                    self.nodes[index].reads.push_back(Read::Prepares {
                        to,
                        view,
                        from,
                        until,
                    });
                }
                Effect::ServeBody { to, op, checksum } => {
                    let to = usize::from(to.0);
                    let read = Read::Body { to, op, checksum };
                    self.nodes[index].reads.push_back(read);
                }
                Effect::RoleChanged => {}
                Effect::Trusted => self.say(|| format!("{index} is trusted again")),
                Effect::Undecidable { op } => {
                    self.say(|| format!("{index} says that {} cannot be decided", op.0));
                }
                Effect::LossPossible => {
                    self.loss = true;
                    self.say(|| format!("{index} says that ops may be lost"));
                }
            }
        }
        self.invariants();
    }

    /// A log belongs to a view only once it is durable: else a crash leaves a log that outranks
    /// longer ones and lacks their ops.
    fn check_log_is_durable(&self, index: usize, view: View, log_view: View) {
        let node = &self.nodes[index];
        if view == log_view && node.stored.log_view < log_view {
            assert!(
                node.queue.is_empty(),
                "{index} stores log_view {log_view:?} before its log is written"
            );
            if self.mode == Mode::Persisted {
                assert_eq!(node.synced, node.log.len(), "log_view before the sync");
            }
        }
    }

    fn truncate(&mut self, index: usize, op: Op) {
        self.say(|| format!("{index} cuts its log after {}", op.0));
        let queue = &mut self.nodes[index].queue;
        queue.retain(|entry| match entry {
            DiskOp::Append(header, _) => header.op <= op,
            DiskOp::Truncate(pending) => *pending < op,
        });
        queue.push_back(DiskOp::Truncate(op));
    }

    fn commit(&mut self, index: usize, prepare: &Bytes) {
        let header = PrepareHeader::verify(prepare).expect("sealed");
        let node = &mut self.nodes[index];
        assert_eq!(header.op, node.applied.next(), "in order, each once");
        node.applied = header.op;
        let view = node.group.as_ref().map_or(View(0), Group::view);
        self.commit_view = self.commit_view.max(view);
        let known = self.committed.insert(header.op, header.checksum);
        assert!(
            self.loss || known.is_none_or(|known| known == header.checksum),
            "{index} commits another {:?}",
            header.op
        );
        self.say(|| format!("{index} commits {}", header.op.0));
    }

    fn send(&mut self, from: usize, to: usize, frame: Bytes) {
        let envelope = Envelope::decode(&frame).expect("sealed");
        let node = &self.nodes[from];
        if let Ok((_, message)) = Message::decode(&frame) {
            match &message {
                Message::PrepareOk { op, checksum, .. } => {
                    assert!(
                        op.0 <= self.durable(from),
                        "{from} acks what is not durable"
                    );
                    let held = &node.log[index_of(*op)].header;
                    assert_eq!(
                        held.checksum, *checksum,
                        "{from} acks what it does not hold"
                    );
                    assert_eq!(
                        node.stored.log_view, envelope.view,
                        "{from} acks in a volatile view"
                    );
                }
                Message::DoViewChange { log_view, .. } => {
                    assert_eq!(
                        node.stored.view, envelope.view,
                        "{from} votes in a volatile view"
                    );
                    assert!(
                        *log_view <= node.stored.log_view,
                        "{from} claims a volatile log_view"
                    );
                }
                Message::StartView { .. } => {
                    assert_eq!(
                        node.stored.log_view, envelope.view,
                        "{from} begins a volatile view"
                    );
                }
                _ => {}
            }
        }
        self.post(from, to, Letter::Frame(frame));
    }

    fn post(&mut self, from: usize, to: usize, letter: Letter) {
        if self.up[&(from, to)] {
            if !self.quiet && !matches!(letter, Letter::Status(_)) {
                self.say(|| format!("{from} > {to} {}", words::describe(&letter)));
            }
            let link = self.links.get_mut(&(from, to)).expect("all pairs");
            link.push_back(letter);
        }
    }

    /// A prepare_ok of an op that nobody has.
    pub(crate) fn forge(&mut self, from: usize, to: usize, op: u64, view: u32) {
        let (group, op) = (GroupId(1024), Op(op));
        let message = Message::PrepareOk {
            group,
            op,
            checksum: 1,
        };
        let frame = message.encode(CLUSTER, View(view), replica(from));
        self.post(from, to, Letter::Frame(frame));
    }

    /// Ops that are as durable as the mode asks.
    fn durable(&self, index: usize) -> u64 {
        let node = &self.nodes[index];
        match self.mode {
            Mode::Replicated => node.log.len() as u64,
            Mode::Persisted => node.synced as u64,
        }
    }

    /// The primary `index` prepares an op, if it may.
    pub(crate) fn prepare(&mut self, index: usize) -> bool {
        let able = |group: &Group| group.can_prepare();
        if !self.nodes[index].group.as_ref().is_some_and(able) {
            return false;
        }
        self.made += 1;
        let made = self.made;
        self.act(index, |group, out| {
            let slot = group.next_slot();
            let mut buffer = Buffer::zeroed(HEADER_SIZE);
            let header = PrepareHeader {
                checksum: 0,
                checksum_body: 0,
                cluster: CLUSTER,
                size: 0,
                view: slot.view,
                replica: group.primary(),
                parent: slot.parent,
                client: ClientId(1),
                group: group.id(),
                op: slot.op,
                commit: slot.commit,
                timestamp: Timestamp(made),
                request: made,
                session: 1,
                request_checksum: 0,
                user: 0,
                operation: Operation::Noop,
                encryption: None,
            };
            header.seal_into(buffer.as_mut_slice());
            let frame = buffer.freeze();
            let header = PrepareHeader::verify(&frame).expect("just sealed");
            group.prepare(header, frame, out);
        });
        true
    }

    /// Delivers the oldest letter of a link.
    pub(crate) fn deliver(&mut self, from: usize, to: usize) -> bool {
        let link = self.links.get_mut(&(from, to)).expect("all pairs");
        let Some(letter) = link.pop_front() else {
            return false;
        };
        if self.soup && self.prng.chance(1, 6) {
            // It arrives again, later or before what was sent before it.
            let place = self.prng.index(link.len() + 1);
            link.insert(place, letter.clone());
        }
        if self.soup && !link.is_empty() && self.prng.chance(1, 6) {
            // Another one overtakes it.
            let place = self.prng.index(link.len());
            link.insert(place + 1, letter);
            return true;
        }
        let now = self.now;
        match letter {
            Letter::Status(status) => self.act(to, |group, out| {
                group.on_status(now, replica(from), &status, out);
            }),
            Letter::Repair { view, prepare } => {
                let header = PrepareHeader::verify(&prepare).expect("sealed");
                if self.fetch(to, &header, &prepare) {
                    return true;
                }
                self.act(to, |group, out| {
                    group.on_repair(now, replica(from), view, &header, prepare, out);
                });
            }
            Letter::Frame(frame) => {
                if let Ok(header) = PrepareHeader::verify(&frame) {
                    self.act(to, |group, out| {
                        group.on_prepare(now, replica(from), &header, frame, out);
                    });
                } else {
                    let (envelope, message) = Message::decode(&frame).expect("ours");
                    self.act(to, |group, out| {
                        group.on_message(now, &envelope, message, out);
                    });
                }
            }
        }
        true
    }

    /// Loses the oldest letter of a link, as a full queue does.
    pub(crate) fn lose(&mut self, from: usize, to: usize) -> bool {
        let link = self.links.get_mut(&(from, to)).expect("all pairs");
        link.pop_front().is_some()
    }

    /// Cuts a link, one way; what is under way is lost.
    pub(crate) fn cut(&mut self, from: usize, to: usize) {
        self.up.insert((from, to), false);
        self.links.get_mut(&(from, to)).expect("all pairs").clear();
    }

    /// A new link between two replicas; both tell where they stand.
    pub(crate) fn connect(&mut self, a: usize, b: usize) {
        if self.nodes[a].group.is_none() || self.nodes[b].group.is_none() {
            return;
        }
        for (from, to) in [(a, b), (b, a)] {
            self.links.get_mut(&(from, to)).expect("all pairs").clear();
            self.up.insert((from, to), true);
            let status = self.nodes[from].group.as_ref().and_then(Group::status);
            if let Some(status) = status {
                self.post(from, to, Letter::Status(status));
            }
        }
    }

    pub(crate) fn heartbeat(&mut self, index: usize) -> bool {
        let Some(group) = &mut self.nodes[index].group else {
            return false;
        };
        let changed = group.take_status_changed();
        let Some(status) = group.status().filter(|_| changed) else {
            return false;
        };
        for to in 0..self.count() {
            if to != index {
                self.post(index, to, Letter::Status(status));
            }
        }
        true
    }

    pub(crate) fn timers(&mut self, index: usize) {
        let now = self.now;
        let due = |group: &Group| group.deadline().is_some_and(|at| at <= now);
        if self.nodes[index].group.as_ref().is_some_and(due) {
            self.act(index, |group, out| group.on_timers(now, out));
        }
    }

    /// The replica takes its primary for dead.
    pub(crate) fn suspect(&mut self, index: usize) {
        let now = self.now;
        self.act(index, |group, out| {
            if !group.is_primary() {
                group.suspect(now, out);
            }
        });
    }

    /// Moves everything that can move, with heartbeats, until nothing does or `rounds` are over.
    pub(crate) fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let mut moved = false;
            for index in 0..self.count() {
                while self.write(index) | self.sync(index) | self.store(index) | self.serve(index) {
                    moved = true;
                }
                self.heartbeat(index);
                for to in 0..self.count() {
                    while to != index && self.deliver(index, to) {
                        moved = true;
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// Lets time pass in steps of 50 ms, running after each.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + Duration::from_millis(50);
            for index in 0..self.count() {
                self.timers(index);
                let other = (index + 1 + self.prng.index(self.count().max(2) - 1)) % self.count();
                self.mend(index, other);
            }
            self.run(8);
        }
    }

    /// Everything restarts and reconnects; asserts that the cluster converges on one log with
    /// all that was committed, and commits a fresh op.
    pub(crate) fn heal(&mut self) {
        for index in 0..self.count() {
            self.restart(index);
        }
        for a in 0..self.count() {
            for b in a + 1..self.count() {
                self.connect(a, b);
            }
        }
        let committed = self.committed.last_key_value().map_or(Op(0), |(op, _)| *op);
        let mut fresh = false;
        for _ in 0..400 {
            self.pass(Duration::from_millis(50));
            let serving = |node: &Node| node.group.as_ref().is_some_and(Group::is_serving);
            let primary = self.nodes.iter().position(serving);
            if let Some(primary) = primary.filter(|_| !fresh) {
                fresh = self.prepare(primary);
            }
            if fresh && self.has_converged() {
                let head = self.nodes[0].applied;
                assert!(self.loss || head > committed, "the fresh op is new");
                for (op, checksum) in &self.committed {
                    let held = self.nodes[0].log.get(index_of(*op));
                    let same = held.is_some_and(|record| record.header.checksum == *checksum);
                    assert!(self.loss || same, "{op:?} is lost");
                }
                return;
            }
        }
        panic!("did not converge:\n{}", self.state());
    }

    fn has_converged(&self) -> bool {
        let groups = || self.nodes.iter().flat_map(|node| &node.group);
        let first = groups().next().expect("all run");
        let written = self.nodes.iter().all(|node| node.queue.is_empty());
        let whole = |node: &Node| node.log.iter().all(|record| !record.damaged);
        written
            && self.nodes.iter().all(whole)
            && groups().all(|group| {
                group.is_normal()
                    && group.view() == first.view()
                    && group.checksum() == first.checksum()
                    && group.commit() == group.op()
                    && group.op() == first.op()
            })
    }

    /// A primary that serves holds all that was ever committed.
    fn invariants(&self) {
        for index in 0..self.count() {
            let node = &self.nodes[index];
            let Some(group) = &node.group else { continue };
            if !group.is_serving() {
                continue;
            }
            let (view, applied) = (group.view(), group.commit());
            // A primary of an earlier view need not know of its end yet.
            if view < self.commit_view || self.loss {
                continue;
            }
            let highest = self.committed.last_key_value().map_or(Op(0), |(op, _)| *op);
            assert!(
                applied >= highest,
                "{index} serves view {view:?} without {highest:?}"
            );
        }
    }

    /// Whether the disk of a replica may lack what the replica has acknowledged.
    pub(crate) fn is_doubted(&self, index: usize) -> bool {
        self.nodes[index].stored.trust != Trust::Trusted
    }

    /// Whether the disk of a replica lacks what it has acknowledged, or may seem to after a
    /// restart: damage at the end of a log puts it in doubt.
    fn is_shaky(&self, index: usize) -> bool {
        let log = &self.nodes[index].log;
        let whole = log.iter().filter(|record| !record.damaged);
        let carried = whole.map(|record| record.header.commit).max();
        let end = |record: &&Record| record.header.op >= carried.unwrap_or_default();
        let damaged = log.iter().filter(end).any(|record| record.damaged);
        self.is_doubted(index) || damaged
    }

    /// Whether the group survives it if `index` loses the body of `op`, or everything: whether so
    /// few replicas are no witness of any op that all the others are a view-change quorum.
    pub(crate) fn can_spare(&self, index: usize, op: Option<Op>) -> bool {
        let bad = |node: usize, op: usize| {
            let record = self.nodes[node].log.get(op);
            node == index || self.is_shaky(node) || record.is_some_and(|record| record.damaged)
        };
        let longest = self.nodes.iter().map(|node| node.log.len()).max();
        let own = self.nodes[index].log.len();
        let ops = match op {
            Some(op) if index_of(op) + 6 < own => index_of(op)..index_of(op) + 1,
            _ => 0..longest.unwrap_or(0).max(1),
        };
        ops.into_iter().all(|op| {
            let bad = (0..self.count()).filter(|node| bad(*node, op)).count();
            bad <= self.spare()
        })
    }

    pub(crate) fn spare(&self) -> usize {
        let count = u8::try_from(self.count()).expect("small");
        self.count() - usize::from(Quorums::new(count).view_change)
    }
}

pub(crate) fn replica(index: usize) -> ReplicaIndex {
    ReplicaIndex(u8::try_from(index).expect("small"))
}

fn index_of(op: Op) -> usize {
    usize::try_from(op.0 - 1).expect("small")
}
