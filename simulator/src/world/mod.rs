//! The world: nodes, clients, disks and a network in one thread, under one heap of due events.
//!
//! ```text
//!   heap (time, sequence) ─▶ due ─▶ turn of a shard or client ─▶ effects ─▶ disk, network, heap
//!                                        └─ observations ─▶ checkers
//! ```
//!
//! Time jumps from one due event to the next; nothing ticks when nothing happens. All randomness
//! comes from streams of the seed, so a seed is one history: the running digest over everything
//! delivered says whether two runs were the same.
//!
//! **Invariant:** no wall clock, no thread, no unordered collection.

mod clients;
mod clock;
mod core;
mod damage;
mod digest;
mod excuses;
mod faults;
mod finish;
mod logins;
mod nodes;
mod observe;
mod scripted;
mod stop;
mod strain;
mod trace;
mod watch;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque},
};

use base::{Domain, GroupId, Prng};
use platform::{Outbox, Token};

pub(crate) use clock::ClockShape;
pub(crate) use digest::{CHECKPOINT, Digest};
pub(crate) use nodes::USERNAME;
pub(crate) use scripted::{Bytes as Damaged, Wait};
pub(crate) use watch::{Seen, Watch};

use crate::{
    atlas::Atlas,
    check::{
        Failure,
        clock::Clocks,
        committed::Committed,
        digests::Digests,
        durability::Durability,
        groups::ConsumerGroups,
        linear::{Linear, Target},
        liveness::Standing,
        metadata::Auditor,
        offsets::Offsets,
        quorum::Quorum,
        views::Views,
    },
    disk::Point,
    network::{Network, NetworkTimer, Output},
    profile::Shape,
    schedule::Schedule,
    workload::Workload,
};
use clients::SimulatedClient;
use nodes::Node;

/// Realtime at virtual time 0, in microseconds since the Unix epoch.
pub(crate) const EPOCH: u64 = 1_700_000_000_000_000;

/// What happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// A shard takes what is in its inbox.
    Turn {
        node: u8,
        shard: u16,
        incarnation: u32,
    },
    /// A shard's deadline.
    Deadline {
        node: u8,
        shard: u16,
        incarnation: u32,
    },
    /// A client takes what is in its inbox.
    ClientTurn { client: u8 },
    /// A client's deadline.
    ClientDeadline { client: u8 },
    /// A client makes its next call.
    Think { client: u8 },
    /// The network's own.
    Network(DueNetwork),
    /// A disk request ends.
    Disk {
        node: u8,
        incarnation: u32,
        slot: u32,
    },
    /// A computation ends.
    Computed {
        node: u8,
        shard: u16,
        incarnation: u32,
        token: Token,
        number: u64,
    },
    /// The n-th fault of the schedule.
    Fault { index: u32 },
    /// A node that died at a disk request starts again.
    Restart { node: u8, incarnation: u32 },
    /// The faults are over.
    Calm,
    /// Is everyone where it must be?
    Inspect,
}

/// [`NetworkTimer`], ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DueNetwork {
    kind: u8,
    connection: u32,
    detail: u8,
}

impl From<NetworkTimer> for DueNetwork {
    fn from(timer: NetworkTimer) -> Self {
        let (kind, connection, detail) = match timer {
            NetworkTimer::Arrive { connection, side } => (0, connection, side),
            NetworkTimer::Dial {
                connection,
                attempt,
            } => (1, connection, attempt),
            NetworkTimer::Gone { connection, side } => (2, connection, side),
        };
        Self {
            kind,
            connection,
            detail,
        }
    }
}

impl From<DueNetwork> for NetworkTimer {
    fn from(
        DueNetwork {
            kind,
            connection,
            detail,
        }: DueNetwork,
    ) -> Self {
        match kind {
            0 => Self::Arrive {
                connection,
                side: detail,
            },
            1 => Self::Dial {
                connection,
                attempt: detail,
            },
            _ => Self::Gone {
                connection,
                side: detail,
            },
        }
    }
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Clients work, faults happen.
    Faults,
    /// A core of the nodes is healed, the rest is down; outstanding calls must end.
    Core,
    /// Calls that the core must answer.
    CoreCalls,
    /// Everything is healed; outstanding calls must end and replicas converge.
    Healing,
    /// The last calls, which must succeed.
    LastCalls,
    /// Replicas converge once more.
    Settling,
    /// Nobody asks for anything; what is still on its way to a disk arrives.
    Quiet,
    /// Every node stops, cleanly.
    Stopping,
    /// Every node has started again.
    Risen,
    /// The final checks have passed.
    Done,
}

/// All checkers that listen during a run.
#[derive(Default)]
struct Checkers {
    committed: Committed,
    durability: Durability,
    offsets: Offsets,
    linear: Linear,
    digests: Digests,
    views: Views,
    quorum: Quorum,
    clocks: Clocks,
    groups: ConsumerGroups,
}

/// What happened, in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) events: u64,
    pub(crate) crashes: u64,
    pub(crate) restarts: u64,
    pub(crate) power_losses: u64,
    pub(crate) wipes: u64,
    pub(crate) damages: u64,
    pub(crate) pauses: u64,
    pub(crate) cuts: u64,
    pub(crate) resets: u64,
    pub(crate) committed_ops: u64,
    pub(crate) view_changes: u64,
    pub(crate) calls: u64,
    pub(crate) calls_done: u64,
    pub(crate) calls_unknown: u64,
    pub(crate) calls_refused: u64,
    pub(crate) virtual_micros: u64,
    /// Objects whose client history was searched for an order, and searches given up.
    pub(crate) objects_searched: u64,
    pub(crate) objects_undecided: u64,
}

/// How a run ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) failure: Option<Failure>,
    pub(crate) digest: u64,
    pub(crate) statistics: Statistics,
}

/// See the module.
pub(crate) struct World {
    shape: Shape,
    schedule: Schedule,
    time: u64,
    sequence: u64,
    heap: BinaryHeap<Reverse<(u64, u64, Due)>>,
    /// What is due at once, in the order of its planning.
    ready: VecDeque<Due>,
    nodes: Vec<Node>,
    clients: Vec<SimulatedClient>,
    network: Network,
    network_out: Vec<Output>,
    outbox: Outbox,
    workload: Workload,
    checkers: Checkers,
    auditor: Auditor,
    phase: Phase,
    phase_started: u64,
    /// When something last happened to a node, a clock or the network.
    disturbed_at: u64,
    /// Prng of small delays inside a node.
    delays: Prng,
    atlas: Atlas,
    /// Damage done, until it is repaired or no longer matters.
    wounds: Vec<damage::Wound>,
    excuses: excuses::Excuses,
    digest: Digest,
    /// What every disk had been asked for when the faults ended.
    points_at_calm: Vec<[u64; 4]>,
    watch: Watch,
    #[cfg(test)]
    disturbed_from: Option<u64>,
    failure: Option<Failure>,
    statistics: Statistics,
    trace: bool,
    root_hash: String,
    passwords: Vec<(String, bool)>,
    /// Salts of the encrypted batches in the history.
    salts: BTreeSet<[u8; 10]>,
    /// What computations under way will say, by number, and how many there were.
    computed: (u64, BTreeMap<u64, platform::Outcome>),
    last_calls: Vec<crate::workload::FinalCall>,
    /// Partitions that clients could write to at the end.
    must_hold: Vec<Target>,
    /// What replicas say of themselves.
    standings: BTreeMap<(u8, GroupId), Standing>,
    /// What a script hears of, if one runs.
    tale: Option<scripted::Tale>,
}

/// In microseconds: when the last node starts.
const NODE_STARTS_WITHIN: u64 = 1_000_000;

/// Runs are ended after so many events: a livelock in zero time.
const EVENTS_MAX: u64 = 30_000_000;

impl World {
    /// A world in which these faults happen.
    pub(crate) fn with(shape: Shape, schedule: Schedule, trace: bool) -> Self {
        let seed = shape.seed;
        let hosts = usize::from(shape.replicas) + usize::from(shape.clients);
        let workload = Workload::new(&shape);
        let network = Network::new(seed, hosts, shape.network);
        Self {
            nodes: (0..shape.replicas)
                .map(|node| Node::new(&shape, node))
                .collect(),
            clients: Vec::new(),
            network,
            network_out: Vec::new(),
            outbox: Outbox::new(),
            workload,
            checkers: Checkers::default(),
            auditor: Auditor::new(nodes::setting(&shape)),
            phase: Phase::Faults,
            phase_started: 0,
            disturbed_at: 0,
            delays: Prng::new(seed, Domain::Process, 0),
            atlas: Atlas::new(shape.promise()),
            wounds: Vec::new(),
            excuses: excuses::Excuses::default(),
            digest: Digest::new(seed),
            points_at_calm: Vec::new(),
            watch: Watch::default(),
            #[cfg(test)]
            disturbed_from: None,
            failure: None,
            statistics: Statistics::default(),
            trace,
            root_hash: nodes::root_hash(),
            passwords: Vec::new(),
            salts: BTreeSet::new(),
            computed: Default::default(),
            last_calls: Vec::new(),
            must_hold: Vec::new(),
            standings: BTreeMap::new(),
            tale: None,
            time: 0,
            sequence: 0,
            heap: BinaryHeap::new(),
            ready: VecDeque::new(),
            shape,
            schedule,
        }
    }

    /// Runs to the end.
    pub(crate) fn run(&mut self) -> Outcome {
        self.begin();
        self.run_on()
    }

    fn run_on(&mut self) -> Outcome {
        while self.failure.is_none() && self.phase != Phase::Done {
            let Some(due) = self.next_due() else {
                self.fail("world", "nothing is due any more".into());
                break;
            };
            self.statistics.events += 1;
            #[cfg(test)]
            if self
                .disturbed_from
                .is_some_and(|from| from <= self.digest.events())
            {
                self.disturbed_from = None;
                self.delays.next_u64();
            }
            if self.statistics.events > EVENTS_MAX {
                self.fail("world", format!("{EVENTS_MAX} events and no end"));
            }
            self.on_due(due);
        }
        self.outcome()
    }

    /// What is known of the run; also after a panic in the middle of it.
    pub(crate) fn outcome(&self) -> Outcome {
        let committed = self.checkers.committed.groups.values().flatten();
        let client_ops = committed.filter(|op| op.client.0 != 0).count() as u64;
        let statistics = Statistics {
            committed_ops: client_ops,
            view_changes: self.checkers.views.view_changes(),
            resets: self.network.resets(),
            calls: self.workload.calls,
            calls_done: self.workload.done,
            calls_unknown: self.workload.unknown,
            calls_refused: self.workload.refused,
            virtual_micros: self.time,
            ..self.statistics
        };
        Outcome {
            failure: self.failure.clone(),
            digest: self.digest.value(),
            statistics,
        }
    }

    /// How often the disk of a node had passed a point when the faults ended.
    pub(crate) fn passed(&self, node: u8, point: Point) -> u64 {
        self.points_at_calm[usize::from(node)][point as usize]
    }

    /// Keeps the events of a stretch of the run.
    pub(crate) fn watch(&mut self, watch: Watch) {
        self.watch = watch;
    }

    /// What was kept.
    pub(crate) fn watched(self) -> Vec<Seen> {
        self.watch.seen
    }

    pub(crate) fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Makes the run depend on something that is no part of its seed, from some event on.
    #[cfg(test)]
    pub(crate) const fn disturb(&mut self, from: u64) {
        self.disturbed_from = Some(from);
    }

    pub(crate) const fn time(&self) -> u64 {
        self.time
    }

    fn begin(&mut self) {
        for node in 0..self.shape.replicas {
            // Nobody's timers run in step.
            let at = self.delays.below(NODE_STARTS_WITHIN);
            let incarnation = 0;
            self.push(at, Due::Restart { node, incarnation });
        }
        self.start_clients();
        for (index, (at, _)) in self.schedule.faults.clone().into_iter().enumerate() {
            let index = u32::try_from(index).expect("few faults");
            self.push(at, Due::Fault { index });
        }
        self.push(self.shape.busy_end() + 2_000_000, Due::Calm);
    }

    fn push(&mut self, at: u64, due: Due) {
        if at <= self.time {
            return self.ready.push_back(due);
        }
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, due)));
    }

    fn next_due(&mut self) -> Option<Due> {
        if let Some(due) = self.ready.pop_front() {
            return Some(due);
        }
        let Reverse((time, _, due)) = self.heap.pop()?;
        assert!(time >= self.time, "time does not run backwards");
        self.time = time;
        Some(due)
    }

    fn on_due(&mut self, due: Due) {
        match due {
            Due::Turn {
                node,
                shard,
                incarnation,
            } => self.on_turn_due(node, shard, incarnation),
            Due::Deadline {
                node,
                shard,
                incarnation,
            } => {
                self.on_deadline_due(node, shard, incarnation);
            }
            Due::ClientTurn { client } => self.on_client_turn_due(client),
            Due::ClientDeadline { client } => self.on_client_deadline_due(client),
            Due::Think { client } => self.on_think_due(client),
            Due::Network(timer) => {
                let mut out = std::mem::take(&mut self.network_out);
                self.network.on_timer(self.time, timer.into(), &mut out);
                self.take_network(&mut out);
                self.network_out = out;
            }
            Due::Disk {
                node,
                incarnation,
                slot,
            } => self.on_disk_due(node, incarnation, slot),
            Due::Computed {
                node,
                shard,
                incarnation,
                token,
                number,
            } => {
                self.on_computed_due((node, shard, incarnation), token, number);
            }
            Due::Fault { index } => self.on_fault_due(index),
            Due::Restart { node, incarnation } => self.on_restart_due(node, incarnation),
            Due::Calm => self.on_calm(),
            Due::Inspect => self.on_inspect(),
        }
    }

    /// Hands on what the network says.
    fn take_network(&mut self, out: &mut Vec<Output>) {
        for output in out.drain(..) {
            match output {
                Output::Timer { at, timer } => self.push(at, Due::Network(timer.into())),
                Output::Event { host, shard, event } => {
                    let nodes = u16::from(self.shape.replicas);
                    if host < nodes {
                        let node = u8::try_from(host).expect("few nodes");
                        let soon = matches!(event, platform::NetworkEvent::Sent { .. });
                        let delay = if soon { 20 } else { 0 };
                        self.tell(node, shard, platform::Event::Network(event), delay);
                    } else {
                        let client = u8::try_from(host - nodes).expect("few clients");
                        self.tell_client(client, event);
                    }
                }
            }
        }
    }

    /// Calls the network and hands on what it says.
    fn with_network(&mut self, call: impl FnOnce(&mut Network, u64, &mut Vec<Output>)) {
        let mut out = std::mem::take(&mut self.network_out);
        call(&mut self.network, self.time, &mut out);
        self.take_network(&mut out);
        self.network_out = out;
    }

    fn fail(&mut self, check: &'static str, message: String) {
        let time = self.time;
        self.failure.get_or_insert(Failure {
            check,
            time,
            message,
        });
    }

    fn check(&mut self, verdict: crate::check::Verdict) {
        if let Err(failure) = verdict {
            self.failure.get_or_insert(failure);
        }
    }
}
