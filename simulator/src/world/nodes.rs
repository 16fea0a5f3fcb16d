//! Nodes: the body of a shard in the simulator. Turns, effects, starts and stops.

use std::collections::{BTreeMap, VecDeque};

use argon2::{
    Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier, Version,
    password_hash::{PasswordHash, SaltString},
};
use base::{Bytes, Prng, ReplicaIndex, ShardIndex};
use platform::{
    ConnectionId, Effect, Event, Facts, Fatal, Level, ListenerId, NetworkEvent, Now, Outcome,
    SecretText, Work,
};
use server::{EncryptionKey, NodeAddress, RootCredential, Shard, ShardConfig};

use super::{Due, World, clock::Clock};
use crate::{
    check::{
        bounds,
        metadata::{Segments, Setting},
    },
    disk::{Crash, Disk, Point},
    network::{address_of, concerns},
    profile::Shape,
};

/// The root user of simulated clusters.
pub(crate) const USERNAME: &str = "iggy";
pub(crate) const PASSWORD: &str = "secret";

pub(crate) const CLIENT_PORT: u16 = 8090;

/// What the auditor must know of how nodes are configured.
pub(super) fn setting(shape: &Shape) -> Setting {
    let segment_size = shape.limits.segment_size;
    Setting {
        root: USERNAME,
        segments: Segments {
            usual: segment_size,
            min: shape.limits.segment_size_min,
            // The protocol's own bound.
            max: 1 << 30,
        },
        clients_max: shape.limits.clients_max,
        nodes: usize::from(shape.replicas),
        disks_fill: shape.classes.disk_full,
    }
}
const REPLICA_PORT: u16 = 9090;
const CLUSTER: u128 = 0x5eed;

/// What a turn and each event in it usually cost, in microseconds; it counts only where the
/// processor is slow.
const TURN: u64 = 40;
const EVENT: u64 = 15;

/// How often a request looks whether its disk is still stuck, in microseconds.
const STUCK_POLL: u64 = 250_000;

/// Is the process running?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Running,
    /// The process has died.
    Crashed,
    /// The machine has lost power.
    Off,
}

pub(super) struct SimulatedShard {
    pub(super) shard: Shard,
    pub(super) inbox: VecDeque<Event>,
    /// It was asked to stop, and has.
    pub(super) stopped: bool,
    /// When its next turn is due, if one is.
    turn_at: Option<u64>,
    /// When it is next woken for its deadline, if it is.
    deadline_at: Option<u64>,
    /// It computes until then.
    busy_until: u64,
}

pub(super) struct Node {
    pub(super) life: Life,
    pub(super) paused: bool,
    pub(super) incarnation: u32,
    pub(super) boot_id: u128,
    pub(super) disk: Disk,
    pub(super) shards: Vec<SimulatedShard>,
    pub(super) clock: Clock,
    /// Everything takes so many times as long.
    pub(super) slowness: u8,
    /// Where its process is to die.
    pub(super) doom: Option<Doom>,
    /// No disk request ends before.
    pub(super) stuck_until: u64,
    /// Bytes of a frame that earlier sends have left open, per connection.
    pub(super) open_frames: BTreeMap<ConnectionId, usize>,
}

/// A death at a point of a disk's work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doom {
    pub(super) point: Point,
    /// When it has been passed so often.
    pub(super) at: u64,
    pub(super) crash: Crash,
    pub(super) downtime: u64,
}

impl Node {
    pub(super) fn new(shape: &Shape, index: u8) -> Self {
        let slot = usize::from(index);
        Self {
            life: Life::Crashed,
            paused: false,
            incarnation: 0,
            boot_id: 1 + u128::from(index),
            disk: Disk::new(shape.seed, u64::from(index), shape.disks[slot]),
            shards: Vec::new(),
            clock: Clock::new(shape.clocks[slot]),
            slowness: 1,
            doom: None,
            stuck_until: 0,
            open_frames: BTreeMap::new(),
        }
    }

    pub(super) fn now(&self, time: u64) -> Now {
        self.clock.now(time)
    }
}

/// A shard's queues are looked at once in so many events.
const GAUGES_EVERY: u64 = 8;

/// The hash of the root password.
pub(super) fn root_hash() -> String {
    hash_password(PASSWORD, b"simulated salt")
}

/// Cheap parameters, since only the use of a hash is simulated.
fn hash_password(password: &str, salt: &[u8]) -> String {
    let params = Params::new(8, 1, 1, None).expect("the least there is");
    let salt = SaltString::encode_b64(salt).expect("long enough");
    let hasher = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let hash = hasher
        .hash_password(password.as_bytes(), &salt)
        .expect("a short password");
    hash.to_string()
}

/// Stands for the digest of a token.
pub(super) fn digest_token(token: &str) -> [u8; 32] {
    let digest = base::checksum::xxh3_128(token.as_bytes());
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&digest.to_le_bytes());
    bytes[16..].copy_from_slice(&digest.rotate_left(64).to_be_bytes());
    bytes
}

impl World {
    fn shard_config(&self, node: u8, shard: u16) -> ShardConfig {
        let address = |index: u8| NodeAddress {
            name: format!("node-{index}"),
            client_host: address_of(u16::from(index), CLIENT_PORT).ip().to_string(),
            client_port: CLIENT_PORT,
            replica: address_of(u16::from(index), REPLICA_PORT),
        };
        let alone = self.shape.replicas == 1;
        ShardConfig {
            cluster: CLUSTER,
            cluster_name: "simulated".into(),
            replica: ReplicaIndex(node),
            shard: ShardIndex(shard),
            shard_count: self.shape.shards,
            nodes: (0..self.shape.replicas).map(address).collect(),
            client_listen: address_of(u16::from(node), CLIENT_PORT),
            replica_listen: (!alone).then(|| address_of(u16::from(node), REPLICA_PORT)),
            boot_id: self.nodes[usize::from(node)].boot_id,
            root: RootCredential {
                username: USERNAME.into(),
                hash: self.root_hash.clone(),
            },
            encryption: self.encryption(),
            limits: self.shape.limits.clone(),
            timing: self.shape.timing.clone(),
            observe: true,
        }
    }

    /// A quarter of all runs is encrypted. It draws from nothing and changes no size, so a seed's
    /// history is the same with and without.
    pub(super) fn encryption(&self) -> Option<EncryptionKey> {
        (self.shape.seed % 4 == 3).then(|| EncryptionKey::new([0x5A; 32]))
    }

    /// Starts the process of a node.
    pub(super) fn start_node(&mut self, node: u8) {
        let slot = usize::from(node);
        assert!(self.nodes[slot].shards.is_empty());
        self.disturbed_at = self.time;
        self.network.power_on(u16::from(node));
        let time = self.time;
        let incarnation = self.nodes[slot].incarnation;
        let entity = u64::from(node) << 32 | u64::from(incarnation);
        let mut prng = Prng::new(self.shape.seed, base::Domain::Replica, entity);
        let it = &mut self.nodes[slot];
        it.life = Life::Running;
        it.paused = false;
        it.clock.reboot(prng.below(1_000_000_000));
        self.checkers.committed.on_restart(node);
        self.forget_standings(node);
        for shard in 0..self.shape.shards {
            let config = self.shard_config(node, shard);
            let now = self.nodes[slot].now(time);
            let mut out = std::mem::take(&mut self.outbox);
            let shard_state = Shard::new(config, prng.next_u64(), now, &mut out);
            self.nodes[slot].shards.push(SimulatedShard {
                shard: shard_state,
                inbox: VecDeque::new(),
                stopped: false,
                turn_at: None,
                deadline_at: None,
                busy_until: 0,
            });
            self.execute_all(node, shard, &mut out);
            self.outbox = out;
            if self.nodes[slot].incarnation != incarnation {
                return; // It has died with the first requests of this shard in flight.
            }
            self.plan_deadline(node, shard);
        }
    }

    /// Ends the process of a node, and its machine if `crash` says so.
    pub(super) fn stop_node(&mut self, node: u8, crash: Crash) {
        match crash {
            Crash::Process => self.statistics.crashes += 1,
            Crash::Power => self.statistics.power_losses += 1,
        }
        self.end_node(node, crash);
    }

    /// As before, without counting it as a fault.
    pub(super) fn end_node(&mut self, node: u8, crash: Crash) {
        self.disturbed_at = self.time;
        let slot = usize::from(node);
        let it = &mut self.nodes[slot];
        it.shards.clear();
        it.open_frames.clear();
        it.incarnation += 1;
        it.doom = None;
        it.paused = false;
        it.disk.crash(crash);
        match crash {
            Crash::Process => {
                it.life = Life::Crashed;
                self.with_network(|network, now, out| {
                    network.crash(now, u16::from(node), out);
                });
            }
            Crash::Power => {
                it.life = Life::Off;
                it.boot_id += 1 << 64;
                self.with_network(|network, now, out| {
                    network.power_off(now, u16::from(node), out);
                });
            }
        }
        self.forget_standings(node);
        self.checkers.committed.on_restart(node);
    }

    /// Puts an event into a shard's inbox; its turn comes after about `delay` microseconds.
    pub(super) fn tell(&mut self, node: u8, shard: u16, event: Event, delay: u64) {
        let it = &mut self.nodes[usize::from(node)];
        let Some(target) = it.shards.get_mut(usize::from(shard)) else {
            return;
        };
        target.inbox.push_back(event);
        let at = if delay == 0 {
            self.time
        } else {
            self.time + 1 + self.delays.below(delay)
        };
        self.wake(node, shard, at);
    }

    fn wake(&mut self, node: u8, shard: u16, at: u64) {
        let it = &mut self.nodes[usize::from(node)];
        let incarnation = it.incarnation;
        let Some(target) = it.shards.get_mut(usize::from(shard)) else {
            return;
        };
        let at = at.max(target.busy_until);
        if target.turn_at.is_none_or(|planned| planned > at) {
            target.turn_at = Some(at);
            self.push(
                at,
                Due::Turn {
                    node,
                    shard,
                    incarnation,
                },
            );
        }
    }

    /// Lets every shard of a node go on that was paused.
    pub(super) fn wake_all(&mut self, node: u8) {
        for shard in 0..self.shape.shards {
            if let Some(target) = self.nodes[usize::from(node)]
                .shards
                .get_mut(usize::from(shard))
            {
                target.turn_at = None;
            }
            self.wake(node, shard, self.time);
        }
    }

    pub(super) fn on_turn_due(&mut self, node: u8, shard: u16, incarnation: u32) {
        let time = self.time;
        let it = &mut self.nodes[usize::from(node)];
        if it.incarnation != incarnation || it.paused {
            return;
        }
        let Some(target) = it.shards.get_mut(usize::from(shard)) else {
            return;
        };
        if target.turn_at != Some(time) {
            return;
        }
        target.turn_at = None;
        self.turn(node, shard);
    }

    pub(super) fn on_deadline_due(&mut self, node: u8, shard: u16, incarnation: u32) {
        let time = self.time;
        let it = &mut self.nodes[usize::from(node)];
        if it.incarnation != incarnation {
            return;
        }
        let Some(target) = it.shards.get_mut(usize::from(shard)) else {
            return;
        };
        if target.deadline_at != Some(time) {
            return;
        }
        target.deadline_at = None;
        if it.paused {
            return;
        }
        if target.busy_until > time {
            return self.wake(node, shard, time);
        }
        let now = it.clock.now(time).monotonic;
        let due = target.shard.deadline().is_some_and(|at| at <= now);
        if due {
            self.turn(node, shard);
        } else {
            self.plan_deadline(node, shard);
        }
    }

    fn turn(&mut self, node: u8, shard: u16) {
        let time = self.time;
        let it = &mut self.nodes[usize::from(node)];
        let now = it.now(time);
        let Some(target) = it.shards.get_mut(usize::from(shard)) else {
            return;
        };
        let mut out = std::mem::take(&mut self.outbox);
        let place = u64::from(node) << 16 | u64::from(shard);
        if it.slowness > 1 {
            base::sometimes!("fault: a turn on a slow processor");
            let usual = TURN + EVENT * target.inbox.len() as u64;
            target.busy_until = time + usual * u64::from(it.slowness);
        }
        while let Some(event) = target.inbox.pop_front() {
            self.digest.add_event(time, place, &event);
            if self.trace || self.watch.is_on(&self.digest) {
                let line = super::trace::event(time, node, shard, &event);
                self.watch.take(&self.digest, self.trace, line);
            }
            target.shard.on_event(now, event, &mut out);
        }
        target.shard.on_timers(now, &mut out);
        if self.digest.events().is_multiple_of(GAUGES_EVERY) {
            let (gauges, limits) = (target.shard.gauges(), &self.shape.limits);
            let links = usize::from(self.shape.replicas) - 1;
            if let Err(failure) = bounds::check(time, node, gauges, limits, links) {
                self.failure.get_or_insert(failure);
            }
        }
        let observations = target.shard.take_observations();
        for observation in observations {
            self.observe(node, shard, observation);
        }
        let metadata = self.nodes[usize::from(node)].shards[usize::from(shard)]
            .shard
            .metadata();
        let verdict = self.checkers.groups.settle(time, metadata);
        self.check(verdict);
        self.execute_all(node, shard, &mut out);
        self.outbox = out;
        self.plan_deadline(node, shard);
    }

    fn plan_deadline(&mut self, node: u8, shard: u16) {
        let time = self.time;
        let it = &mut self.nodes[usize::from(node)];
        let incarnation = it.incarnation;
        let now = it.now(time).monotonic;
        let Some(target) = it.shards.get_mut(usize::from(shard)) else {
            return;
        };
        let Some(deadline) = target.shard.deadline() else {
            return;
        };
        // A deadline that stays in the past would stop time.
        let at = if deadline <= now {
            time + 1
        } else {
            it.clock.when(deadline)
        };
        if target.deadline_at.is_none_or(|planned| planned > at) {
            target.deadline_at = Some(at);
            self.push(
                at,
                Due::Deadline {
                    node,
                    shard,
                    incarnation,
                },
            );
        }
    }

    /// Executes the effects of a turn, unless the node dies in the middle of them.
    fn execute_all(&mut self, node: u8, shard: u16, out: &mut Vec<Effect>) {
        let incarnation = self.nodes[usize::from(node)].incarnation;
        for effect in out.drain(..) {
            if self.nodes[usize::from(node)].incarnation != incarnation {
                break;
            }
            self.execute(node, shard, effect);
        }
    }

    fn execute(&mut self, node: u8, shard: u16, effect: Effect) {
        let host = u16::from(node);
        match effect {
            Effect::Listen { listener, address } => self.with_network(|network, _, out| {
                network.listen(host, shard, listener, address, out);
            }),
            Effect::Connect {
                connection,
                address,
            } => self.with_network(|network, now, out| {
                network.connect(now, host, shard, connection, address, out);
            }),
            Effect::Receive { connection, buffer } => self.with_network(|network, now, out| {
                network.receive(now, host, connection, buffer, out);
            }),
            Effect::Send { connection, bytes } => {
                self.observe_send(node, connection, &bytes);
                self.with_network(|network, now, out| {
                    network.send(now, host, connection, bytes, out);
                });
            }
            Effect::Close { connection } => {
                let it = &mut self.nodes[usize::from(node)];
                it.open_frames.remove(&connection);
                if let Some(closer) = it.shards.get_mut(usize::from(shard)) {
                    closer.inbox.retain(|event| !concerns(event, connection));
                }
                self.with_network(|network, now, out| network.close(now, host, connection, out));
            }
            Effect::HandOver {
                connection,
                to,
                received,
                listener,
            } => {
                self.hand_over(node, connection, to, (received, listener));
            }
            Effect::Disk { token, request } => self.disk(node, shard, token, request),
            Effect::Post { to, letter } => {
                let event = Event::Letter {
                    from: ShardIndex(shard),
                    letter,
                };
                self.tell(node, to.0, event, 30);
            }
            Effect::Compute { token, work } => self.start_computing(node, shard, token, work),
            Effect::Ready => {}
            Effect::Stopped => self.on_shard_stopped(node, shard),
            Effect::Halt { fatal } => {
                self.tell_halt(node, fatal);
                let forgiven = fatal == Fatal::Disk && self.forgive_halt(node);
                if !forgiven && !self.excuse_halt(node, fatal) {
                    self.fail("halt", format!("node {node} stopped: {fatal:?}"));
                }
            }
            Effect::Log { level, line } => {
                if self.trace && level >= Level::Info {
                    super::trace::line(self.time, node, shard, &line);
                }
            }
        }
    }

    fn hand_over(
        &mut self,
        node: u8,
        connection: ConnectionId,
        to: ShardIndex,
        (received, listener): (Bytes, ListenerId),
    ) {
        let peer = self.network.hand_over(u16::from(node), connection, to.0);
        let closed = peer.is_none();
        let peer = peer.unwrap_or_else(|| address_of(0, 0));
        let event = NetworkEvent::Adopted {
            listener,
            connection,
            peer,
            received,
        };
        self.tell(node, to.0, Event::Network(event), 20);
        if closed {
            // It broke on the way: the new owner learns of it as of any other.
            let event = NetworkEvent::Closed { connection };
            self.tell(node, to.0, Event::Network(event), 20);
        }
    }

    fn disk(
        &mut self,
        node: u8,
        shard: u16,
        token: platform::Token,
        request: platform::DiskRequest,
    ) {
        if self.trace {
            super::trace::disk_request(self.time, node, shard, token, &request);
        }
        let it = &mut self.nodes[usize::from(node)];
        let incarnation = it.incarnation;
        let (slot, latency) = it.disk.submit(shard, token, request);
        let slot = u32::try_from(slot).expect("few requests in flight");
        self.push(
            self.time + latency,
            Due::Disk {
                node,
                incarnation,
                slot,
            },
        );
        self.meet_doom(node, &[Point::Submit]);
    }

    pub(super) fn on_disk_due(&mut self, node: u8, incarnation: u32, slot: u32) {
        let it = &mut self.nodes[usize::from(node)];
        if it.incarnation != incarnation {
            return;
        }
        let stuck_until = it.stuck_until;
        if stuck_until > self.time {
            let due = Due::Disk {
                node,
                incarnation,
                slot,
            };
            // Again and again, since the end of all faults sets the disk free.
            return self.push(stuck_until.min(self.time + STUCK_POLL), due);
        }
        if let Some((shard, done)) = self.nodes[usize::from(node)].disk.complete(slot as usize) {
            let after = [Point::Complete, Point::Sync, Point::Rename];
            if !self.meet_doom(node, &after) {
                self.tell(node, shard, Event::Disk(done), 0);
            }
        }
    }

    /// Ends the process if it was to die at one of these points; true if it has.
    fn meet_doom(&mut self, node: u8, points: &[Point]) -> bool {
        let it = &self.nodes[usize::from(node)];
        let doom = it
            .doom
            .filter(|doom| points.contains(&doom.point) && doom.at <= it.disk.passed(doom.point));
        if let Some(doom) = doom {
            self.die_at_disk(node, doom);
        }
        doom.is_some()
    }

    fn start_computing(&mut self, node: u8, shard: u16, token: platform::Token, work: Work) {
        let outcome = self.compute(work);
        let incarnation = self.nodes[usize::from(node)].incarnation;
        let at = self.time + self.delays.between(5_000, 60_000);
        self.computed.0 += 1;
        let number = self.computed.0;
        self.computed.1.insert(number, outcome);
        let due = Due::Computed {
            node,
            shard,
            incarnation,
            token,
            number,
        };
        self.push(at, due);
    }

    fn compute(&mut self, work: Work) -> Outcome {
        match work {
            Work::VerifyPassword { password, hash } => {
                Outcome::PasswordVerified(self.verify_password(&password.0, &hash.0))
            }
            Work::HashPassword(password) => {
                let salt = format!("salt {:012}", self.computed.0);
                let hash = hash_password(&password.0, salt.as_bytes());
                Outcome::PasswordHashed(Some(SecretText(hash)))
            }
            Work::MintToken => {
                let token = format!("token-{:016x}", self.computed.0);
                let digest = digest_token(&token);
                Outcome::TokenMinted(Some((SecretText(token), digest)))
            }
            Work::DigestToken(token) => Outcome::TokenDigested(digest_token(&token.0)),
            // What a machine is like is nobody's business here: the same numbers every time.
            Work::Measure => Outcome::Measured(Box::new(Facts {
                process_id: 1,
                hostname: "simulated".into(),
                threads_count: 1,
                ..Facts::default()
            })),
            Work::Archive { contents, .. } => Outcome::Archived(Some(
                contents.iter().map(|&content| content as u8).collect(),
            )),
        }
    }

    pub(super) fn verify_password(&mut self, password: &str, hash: &str) -> bool {
        let key = format!("{password}\0{hash}");
        if let Some((_, matches)) = self.passwords.iter().find(|(known, _)| *known == key) {
            return *matches;
        }
        let matches = PasswordHash::new(hash).is_ok_and(|parsed| {
            Argon2::default()
                .verify_password(password.as_bytes(), &parsed)
                .is_ok()
        });
        self.passwords.push((key, matches));
        matches
    }

    pub(super) fn on_computed_due(
        &mut self,
        (node, shard, incarnation): (u8, u16, u32),
        token: platform::Token,
        number: u64,
    ) {
        let outcome = self.computed.1.remove(&number).expect("computed once");
        if self.nodes[usize::from(node)].incarnation == incarnation {
            self.tell(node, shard, Event::Computed { token, outcome }, 0);
        }
    }
}
