//! What the server does for consumer groups by itself.
//!
//! ```text
//!   metadata primary   asks, before a join is proposed, which partitions are drained
//!                      ends revocations whose partition is drained, or whose time is up
//!                      removes members whose node has been silent for long
//!   every shard        removes members that were connected to it and are not
//!                      ends the membership of connections that are silent
//!                      forgets offsets that its partitions keep for groups that are gone
//! ```
//!
//! None of it has a timer while there is nothing to do, but for the look at silent connections,
//! which is taken while this shard has any and the cluster has members.

use ::core::time::Duration;
use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use base::{Buffer, ClientId, GroupId, Instant, Op, ReplicaIndex};
use metadata::{CompleteRevocation, GroupIds, Home, Join, PendingRevocation, RemoveMember};
use platform::{ConnectionId, Ticket};
use wire::{
    Code, Codec, Counted, ErrorCode, HEADER_SIZE, Operation, ReplyHeader, RequestHeader, header,
    request::GroupTarget,
};

use super::Shard;
use crate::{
    ask::{Answer, Ask, NOBODY},
    connections::Bound,
    hosted::{Hosted, PROBE, Probe},
};

/// Code of the wish that the metadata primary propose an op of the server's own. No client can
/// have it.
pub(super) const PROPOSE: u32 = 0xFFFF_FF02;

/// In requests of the server's own, which travel as those of clients do.
const SERVER: ClientId = ClientId(u128::MAX);

/// Between two rounds, while there is work.
const ROUND: Duration = Duration::from_millis(200);

/// After which what was asked for is asked for again.
const RETRY: Duration = Duration::from_secs(1);

/// How long a join waits to hear what is drained; what is not known then is in flight.
const GATHER: Duration = Duration::from_millis(500);

/// Revocations looked after in one round, and offsets forgotten per partition.
const ROUND_MAX: usize = 64;

/// A join that waits to hear which partitions are drained.
struct Joining {
    ask: Ask,
    generation: u64,
    waiting: usize,
    drained: Vec<u32>,
    until: Instant,
}

/// A revocation, told apart from all others.
type RevocationKey = (GroupIds, u32, u64);

/// What a probe was sent for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Join { number: u64, partition: u32 },
    Revocation(PendingRevocation),
}

/// What is under way.
pub(super) struct GroupWork {
    /// Drawn when this shard starts.
    life: u64,
    /// Whether members may have lost their connection here.
    audit: bool,
    at: Option<Instant>,
    /// When connections are next looked at for silence.
    silence_at: Option<Instant>,
    joins: BTreeMap<u64, Joining>,
    /// What each was sent for, and when nobody waits for its answer any more.
    probes: BTreeMap<u64, (Purpose, Instant)>,
    /// When each revocation was last asked about.
    asked: BTreeMap<RevocationKey, Instant>,
    /// When each member's removal was last asked for.
    removing: BTreeMap<ClientId, Instant>,
    /// Since when peers are silent.
    silent: BTreeMap<ReplicaIndex, Instant>,
}

impl GroupWork {
    pub(super) const fn new(life: u64) -> Self {
        Self {
            life,
            audit: true,
            at: None,
            silence_at: None,
            joins: BTreeMap::new(),
            probes: BTreeMap::new(),
            asked: BTreeMap::new(),
            removing: BTreeMap::new(),
            silent: BTreeMap::new(),
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let joins = self.joins.values().map(|join| join.until);
        joins.chain(self.at).chain(self.silence_at).min()
    }

    /// Members and connections are to be compared.
    pub(super) const fn audit(&mut self) {
        self.audit = true;
    }

    pub(super) fn on_metadata_op(&mut self, operation: Operation) {
        self.audit |= operation == Operation::JoinConsumerGroup;
    }
}

/// Whether an ask is a join of which nobody has asked what is drained.
pub(super) fn is_unprepared_join(ask: &Ask) -> bool {
    ask.header.operation == Operation::JoinConsumerGroup
        && Join::decode(ask.body()).is_ok_and(|join| join.generation == 0)
}

/// A frame with this request's header and another body.
fn with_body(ask: &Ask, body: &[u8]) -> base::Bytes {
    let mut buffer = Buffer::with_capacity(HEADER_SIZE + body.len());
    buffer.extend(&ask.frame[..HEADER_SIZE]);
    buffer.extend(body);
    buffer.freeze()
}

impl Shard {
    /// A client of this shard joins: the log is to say where it is connected. False if its body
    /// is none.
    pub(super) fn add_home(&self, ask: &mut Ask) -> bool {
        let Ok(target) = GroupTarget::decode(ask.body()) else {
            return false;
        };
        let home = Home {
            replica: self.core.config.replica.0,
            shard: self.core.config.shard.0,
            life: self.group_work.life,
        };
        let body = Join::new(target, home).encode();
        ask.frame = with_body(ask, &body);
        true
    }

    /// Shard 0 of the metadata primary: before a join is proposed, the primaries of the partitions
    /// that it would move say whether anything is in flight on them.
    pub(super) fn begin_join(&mut self, ask: Ask) {
        let Ok(join) = Join::decode(ask.body()) else {
            return self
                .core
                .answers
                .push(ask.refuse(ErrorCode::INVALID_COMMAND));
        };
        let Ok(info) = self.metadata.resolve_group(&join.target) else {
            return self.propose_metadata(ask);
        };
        let (ids, created_at) = (info.ids, info.group.created_at);
        let generation = info.group.generation;
        let moved = match info.group.member(ask.header.client) {
            Some(_) => Vec::new(),
            None => info.group.moved_by_join(info.partitions_count),
        };
        if self.group_work.joins.len() >= self.core.config.limits.parked_max {
            let refusal = ask.refuse(ErrorCode::TRANSIENT_NOT_ACCEPTED);
            return self.core.answers.push(refusal);
        }
        let number = self.tickets.own();
        let mut probes = Vec::new();
        for partition in moved {
            let ids = base::PartitionIds {
                stream: ids.stream,
                topic: ids.topic,
                partition,
            };
            let found = self.metadata.partition_at(ids);
            probes.extend(found.map(|info| (partition, info.group)));
        }
        let joining = Joining {
            ask,
            generation,
            waiting: probes.len(),
            drained: Vec::new(),
            until: self.core.now.monotonic + GATHER,
        };
        self.group_work.joins.insert(number, joining);
        let probe = Probe {
            group: ids.group,
            created_at,
            freeze: generation,
        };
        for (partition, group) in probes {
            self.probe(group, &probe, Purpose::Join { number, partition });
        }
        self.finish_join(number, false);
    }

    /// All have answered, or the time is up.
    fn finish_join(&mut self, number: u64, late: bool) {
        let ready = |join: &Joining| late || join.waiting == 0;
        if !self.group_work.joins.get(&number).is_some_and(ready) {
            return;
        }
        let joining = self.group_work.joins.remove(&number);
        let Joining {
            mut ask,
            generation,
            drained,
            ..
        } = joining.expect("looked at above");
        let join = Join::decode(ask.body()).expect("decoded when it began");
        let body = Join {
            generation,
            drained: Counted(drained),
            ..join
        }
        .encode();
        ask.frame = with_body(&ask, &body);
        // It is judged again: time has passed.
        self.on_metadata_ask(ask);
    }

    fn probe(&mut self, partition: GroupId, probe: &Probe, purpose: Purpose) {
        let number = self.tickets.own();
        let until = self.core.now.monotonic + self.core.config.timing.request;
        self.group_work.probes.insert(number, (purpose, until));
        let mut ask = self.own_ask(number, PROBE, &probe.encode());
        ask.group = partition;
        ask.floor = self.metadata.op();
        self.ask_group(ask);
    }

    /// A request of the server's own.
    fn own_ask(&self, number: u64, code: u32, body: &[u8]) -> Ask {
        let header = RequestHeader {
            code,
            ..RequestHeader::new(SERVER, 0, number, Code::Ping)
        };
        let frame = header::request(&header, body);
        Ask {
            ticket: Ticket {
                replica: self.core.config.replica,
                shard: self.core.config.shard,
                number,
            },
            group: GroupId::METADATA,
            user: metadata::ROOT,
            consumer: SERVER,
            floor: Op(0),
            hops: 0,
            patience: None,
            header: RequestHeader::decode(&frame).expect("just written"),
            frame,
        }
    }

    /// Asks the metadata primary to propose an op of the server's own.
    fn wish(&mut self, operation: Operation, body: &[u8]) {
        let mut wish = alloc::vec![operation as u8];
        wish.extend(body);
        let number = self.tickets.own();
        let ask = self.own_ask(number, PROPOSE, &wish);
        self.ask_group(ask);
    }

    /// Shard 0 of the metadata primary: proposes what a shard of some node wishes. If it cannot
    /// be now, it is asked for again.
    pub(super) fn propose_own(&mut self, mut ask: Ask) {
        let Some((&operation, body)) = ask.body().split_first() else {
            return;
        };
        let Some(
            operation @ (Operation::RemoveConsumerGroupMember
            | Operation::CompleteConsumerGroupRevocation),
        ) = Operation::from_byte(operation)
        else {
            return;
        };
        let group = self.groups.get(&GroupId::METADATA).and_then(Hosted::group);
        if !group.is_some_and(consensus::Group::can_prepare) {
            return;
        }
        ask.frame = with_body(&ask, body);
        ask.header.operation = operation;
        ask.header.client = NOBODY;
        self.propose_metadata(ask);
    }

    /// An answer to a request of the server's own.
    pub(super) fn on_own_answer(&mut self, answer: Answer) {
        let Some((purpose, _)) = self.group_work.probes.remove(&answer.ticket.number) else {
            return;
        };
        let whole = answer.frame.first();
        let header = whole.and_then(|whole| ReplyHeader::decode(whole).ok());
        let served = header.is_some_and(|header| header.status == ErrorCode::OK);
        let drained = served && whole.is_some_and(|whole| whole[HEADER_SIZE..] == [0]);
        match purpose {
            Purpose::Join { number, partition } => {
                let Some(joining) = self.group_work.joins.get_mut(&number) else {
                    return;
                };
                joining.waiting -= 1;
                joining.drained.extend(drained.then_some(partition));
                self.finish_join(number, false);
            }
            Purpose::Revocation(pending) if drained => {
                base::sometimes!("groups: a revoked partition is drained");
                self.complete(&pending);
            }
            Purpose::Revocation(pending) => {
                self.group_work.asked.remove(&key_of(&pending));
            }
        }
    }

    fn complete(&mut self, pending: &PendingRevocation) {
        let body = CompleteRevocation {
            group: pending.ids,
            source: pending.source,
            partition: pending.revocation.partition,
            began: pending.revocation.began,
        };
        let operation = Operation::CompleteConsumerGroupRevocation;
        self.wish(operation, &body.encode());
    }

    /// A connection is about to be forgotten.
    pub(super) fn on_member_closed(&mut self, id: ConnectionId) {
        let bound = self.connections.get_mut(id).and_then(|one| one.bound);
        if bound.is_some_and(|bound| self.metadata.is_member(bound.client)) {
            base::sometimes!("groups: a member has lost its connection");
            self.group_work.audit = true;
        }
    }

    /// At the end of a turn: sets the timers of what there is to do.
    pub(super) fn arm_group_work(&mut self) {
        let now = self.core.now.monotonic;
        let members = self.metadata.has_members();
        let work = &self.group_work;
        let audit = work.audit && members;
        let orphaned = !self.core.orphaned.is_empty();
        let first = self.core.config.shard.0 == 0;
        let primary = first && (members || !work.asked.is_empty()) && self.serves_metadata();
        let revoking = primary && self.metadata.is_revoking();
        let silent = primary && !self.core.links.silent().is_empty();
        let needed = audit || orphaned || revoking || silent;
        let watch = self.core.config.timing.client_heartbeat;
        let watched = members && !watch.is_zero() && self.connections.len() > 0;
        if self.is_stopping() {
            self.group_work.at = None;
            self.group_work.silence_at = None;
            return;
        }
        let work = &mut self.group_work;
        if needed {
            work.at.get_or_insert(now);
        } else {
            work.at = None;
        }
        if watched {
            work.silence_at.get_or_insert(now + watch / 5);
        } else {
            work.silence_at = None;
        }
    }

    pub(super) fn fire_group_work(&mut self) {
        let now = self.core.now.monotonic;
        let joins = self.group_work.joins.iter();
        let late = joins.filter(|(_, join)| join.until <= now);
        for number in late.map(|(number, _)| *number).collect::<Vec<_>>() {
            base::sometimes!("groups: a join waits no longer to hear what is drained");
            self.finish_join(number, true);
        }
        if !self.group_work.probes.is_empty() {
            self.group_work.probes.retain(|_, (_, until)| now < *until);
        }
        let due = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        if due(&mut self.group_work.silence_at) {
            self.end_silent();
        }
        if !due(&mut self.group_work.at) {
            return;
        }
        self.group_work.at = Some(now + ROUND);
        self.audit_members();
        self.forget_orphaned();
        if self.core.config.shard.0 == 0 && self.serves_metadata() {
            self.look_after_revocations();
            self.remove_members_of_dead_nodes();
        } else {
            self.group_work.asked.clear();
            self.group_work.silent.clear();
        }
    }

    /// Members that say they are connected to this shard, and are not: in this life, or with the
    /// session they have.
    fn audit_members(&mut self) {
        if !self.group_work.audit {
            return;
        }
        let (replica, shard) = (self.core.config.replica.0, self.core.config.shard.0);
        let bound: BTreeSet<(ClientId, u64)> = self
            .connections
            .iter_mut()
            .filter_map(|one| one.bound)
            .map(
                |Bound {
                     client, session, ..
                 }| (client, session),
            )
            .collect();
        let mut lost = Vec::new();
        for (client, home) in self.metadata.members() {
            let session = self.metadata.session(client).map_or(0, |live| live.session);
            let here = (home.replica, home.shard) == (replica, shard);
            let lives = home.life == self.group_work.life && bound.contains(&(client, session));
            if here && !lives {
                lost.push((client, session));
            }
        }
        self.group_work.audit = !lost.is_empty();
        self.remove_members(&lost);
    }

    fn remove_members(&mut self, lost: &[(ClientId, u64)]) {
        let now = self.core.now.monotonic;
        self.group_work
            .removing
            .retain(|_, asked| now < *asked + RETRY);
        for &(client, session) in lost {
            if self.group_work.removing.contains_key(&client) {
                continue;
            }
            self.group_work.removing.insert(client, now);
            let body = RemoveMember { client, session };
            self.wish(Operation::RemoveConsumerGroupMember, &body.encode());
        }
    }

    /// Connections that have been silent for too long: their sessions leave their groups, and
    /// they are told when they speak again.
    fn end_silent(&mut self) {
        let now = self.core.now.monotonic;
        let patience = self.core.config.timing.client_heartbeat * 6 / 5;
        let mut ended = false;
        for connection in self.connections.iter_mut() {
            let Some(bound) = connection.bound else {
                continue;
            };
            let silent = connection.busy.is_none() && connection.heard + patience < now;
            if silent && self.metadata.is_member(bound.client) {
                base::sometimes!("groups: a member is silent for too long");
                connection.bound = None;
                connection.attached = None;
                connection.stale = true;
                ended = true;
            }
        }
        self.group_work.audit |= ended;
    }

    /// Offsets that partitions of this shard keep for groups that are gone.
    fn forget_orphaned(&mut self) {
        for id in self.core.orphaned.clone() {
            let hosted = self.groups.get_mut(&id);
            let Some(hosted) = hosted.filter(|hosted| hosted.is_serving()) else {
                // Whoever serves it does this, and will look when it begins to.
                self.core.orphaned.remove(&id);
                continue;
            };
            let Some(partition) = hosted.partition() else {
                self.core.orphaned.remove(&id);
                continue;
            };
            let ids = partition.ids();
            let stored = partition.stored_groups();
            let dead = stored.filter(|group| self.metadata.is_dead_group(ids, *group));
            let dead: Vec<u32> = dead.take(ROUND_MAX).collect();
            if dead.is_empty() {
                self.core.orphaned.remove(&id);
            }
            for group in dead {
                base::sometimes!("groups: the offset of a group that is gone is forgotten");
                hosted.forget_group(group);
                if !hosted.propose_forget(group, &mut self.core) {
                    break;
                }
            }
        }
    }

    fn look_after_revocations(&mut self) {
        let now = self.core.now;
        let timeout = self.core.config.timing.rebalancing;
        let stamp = self.core.stamp();
        let pending: Vec<PendingRevocation> = self
            .metadata
            .pending_revocations()
            .take(ROUND_MAX)
            .collect();
        let asked = &mut self.group_work.asked;
        asked.retain(|_, asked| now.monotonic < *asked + RETRY);
        let fresh: Vec<PendingRevocation> = pending
            .into_iter()
            .filter(|one| !asked.contains_key(&key_of(one)))
            .collect();
        asked.extend(fresh.iter().map(|one| (key_of(one), now.monotonic)));
        for pending in fresh {
            let waited = stamp.0.saturating_sub(pending.revocation.since.0);
            if u128::from(waited) >= timeout.as_micros() {
                base::sometimes!("groups: a revocation ends for want of a commit");
                self.complete(&pending);
                continue;
            }
            let Some(info) = self.metadata.group_info(pending.ids) else {
                continue;
            };
            let probe = Probe {
                group: pending.ids.group,
                created_at: info.group.created_at,
                freeze: 0,
            };
            self.probe(pending.partition, &probe, Purpose::Revocation(pending));
        }
    }

    /// A node that nobody has heard of for as long as a client may be silent: its clients are
    /// gone too.
    fn remove_members_of_dead_nodes(&mut self) {
        let now = self.core.now.monotonic;
        let heartbeat = self.core.config.timing.client_heartbeat;
        if heartbeat.is_zero() {
            return;
        }
        let silent = self.core.links.silent();
        let since = &mut self.group_work.silent;
        since.retain(|replica, _| silent.contains(replica));
        for replica in silent {
            since.entry(replica).or_insert(now);
        }
        let dead: BTreeSet<u8> = since
            .iter()
            .filter(|(_, since)| **since + heartbeat * 6 / 5 <= now)
            .map(|(replica, _)| replica.0)
            .collect();
        if dead.is_empty() {
            return;
        }
        let members = self.metadata.members();
        let lost = members.filter(|(_, home)| dead.contains(&home.replica));
        let lost: Vec<(ClientId, u64)> = lost
            .map(|(client, _)| {
                let session = self.metadata.session(client);
                (client, session.map_or(0, |live| live.session))
            })
            .collect();
        self.remove_members(&lost);
    }
}

const fn key_of(pending: &PendingRevocation) -> RevocationKey {
    let revocation = &pending.revocation;
    (pending.ids, revocation.partition, revocation.began)
}
