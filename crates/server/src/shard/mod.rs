//! One shard: what happens, to whom it goes, and what is done at the end of each turn.

mod answers;
mod client;
mod credentials;
mod fence;
mod gather;
mod groups;
mod logins;
mod metadata_plane;
mod peers;
pub(crate) mod pending;
mod purges;
mod reads;
mod routing;
mod startup;
mod system;
mod upkeep;

use alloc::{collections::BTreeMap, vec::Vec};

use base::{GroupId, Instant, Prng, Timestamp, View};
use metadata::Metadata;
use platform::{
    DiskDone, Effect, Event, Letter, ListenerId, NetworkEvent, Now, Outbox, Outcome, Token,
};

use self::{
    answers::{Held, Passed, Tickets},
    gather::Gathers,
    groups::GroupWork,
    pending::Pending,
    purges::Purges,
    startup::Phase,
    system::Archives,
    upkeep::Upkeep,
};
use crate::{
    Gauges, Observation, ShardConfig,
    ask::Ask,
    connections::Connections,
    core::{Core, Notice},
    hosted::{Hosted, OWNER_CHECKPOINTS},
};

/// Owners of disk requests that are no group's journal.
const OWNER_VIEWS: u64 = u64::MAX;
const OWNER_SHARD: u64 = u64::MAX - 1;

/// One shard of a node.
pub struct Shard {
    core: Core,
    phase: Phase,
    metadata: Metadata,
    metadata_view: View,
    groups: BTreeMap<GroupId, Hosted>,
    connections: Connections,
    tickets: Tickets,
    /// Answers that must not overtake a metadata op.
    held: Held,
    /// Requests of this node that another node was asked to answer.
    passed: Passed,
    /// Requests that wait for their group, with the time at which they give up.
    parked: Vec<(Instant, Ask)>,
    /// Requests that wait for a computation or for newer metadata, by ticket.
    pending: BTreeMap<u64, Pending>,
    gathers: Gathers,
    archives: Archives,
    /// When this shard began to recover.
    started: Timestamp,
    purges: Purges,
    /// Letters that came before this shard could take them, with their writers.
    early: Vec<(base::ShardIndex, Letter)>,
    /// Whether the operator asked for a stop before this shard could take it.
    stop_asked: bool,
    next_shard: u16,
    /// Round robin of sends that leave the partition to the server.
    turn: u32,
    flush_at: Option<Instant>,
    upkeep: Upkeep,
    group_work: GroupWork,
    /// Whether a parked request waits for the metadata only.
    behind: bool,
    client_port: u16,
    /// Whether leftovers have been looked for.
    swept: bool,
}

impl Shard {
    /// Tells the shard what has happened; what it wants done is appended to `out`.
    pub fn on_event(&mut self, now: Now, event: Event, out: &mut Outbox) {
        if self.core.halted {
            return;
        }
        self.enter(now, out);
        if self.phase == Phase::Serving && self.core.links.is_overdue(now.monotonic) {
            // Before a client is answered by a primary that no longer is one.
            self.fire_link_timers();
            self.settle();
        }
        match event {
            Event::Network(event) => self.on_network(event),
            Event::Disk(done) => self.on_disk(done),
            Event::Letter { from, letter } => self.on_letter(from, letter),
            Event::Computed { token, outcome } => self.on_computed(token, outcome),
            Event::Stop => self.stop(),
        }
        self.settle();
        self.leave(out);
    }

    /// Ends a turn, and lets due timers fire: call once after the events of each turn.
    pub fn on_timers(&mut self, now: Now, out: &mut Outbox) {
        if self.core.halted {
            return;
        }
        self.enter(now, out);
        self.fire_timers();
        self.settle();
        self.submit();
        self.settle();
        self.leave(out);
    }

    /// When [`Self::on_timers`] must be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if self.phase == Phase::Stopped {
            return None;
        }
        let links = match self.phase {
            Phase::Serving => self.core.links.deadline(),
            _ => None,
        };
        let groups = self
            .core
            .timed
            .iter()
            .filter_map(|id| self.groups.get(id)?.deadline());
        let parked = self.parked.iter().map(|(until, _)| *until).min();
        let tickets = self.tickets.deadline();
        groups
            .chain(links)
            .chain(parked)
            .chain(tickets)
            .chain(self.gathers.deadline())
            .chain(self.flush_at)
            .chain(self.upkeep.deadline())
            .chain(self.group_work.deadline())
            .min()
    }

    /// How full its queues are.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        Gauges {
            parked: self.parked.len(),
            tickets: self.tickets.len(),
            connections: self.connections.len(),
            client_queue_bytes_max: self.connections.queued_bytes_max(),
            replica_queue_bytes_max: self.core.links.queued_bytes_max(),
        }
    }

    /// The metadata as this shard knows it.
    #[must_use]
    pub const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// What white-box checkers may see since the last call; empty unless asked for.
    pub fn take_observations(&mut self) -> Vec<Observation> {
        ::core::mem::take(&mut self.core.observations)
    }

    fn enter(&mut self, now: Now, out: &mut Outbox) {
        self.core.now = now;
        ::core::mem::swap(&mut self.core.out, out);
    }

    fn leave(&mut self, out: &mut Outbox) {
        ::core::mem::swap(&mut self.core.out, out);
    }

    fn on_network(&mut self, event: NetworkEvent) {
        let now = self.core.now.monotonic;
        let arrived = match event {
            NetworkEvent::Accepted { connection, .. }
            | NetworkEvent::Adopted { connection, .. } => Some(connection),
            _ => None,
        };
        if let Some(connection) = arrived
            && self.is_stopping()
        {
            return self.core.out.push(Effect::Close { connection });
        }
        match event {
            NetworkEvent::Listening { listener, address } => self.on_listening(listener, address),
            NetworkEvent::Accepted {
                listener: ListenerId::REPLICA,
                connection,
                ..
            } => {
                self.core
                    .links
                    .on_accepted(now, connection, &mut self.core.out);
            }
            NetworkEvent::Accepted {
                connection, peer, ..
            } => self.on_accepted(connection, peer),
            NetworkEvent::Adopted {
                listener,
                connection,
                peer,
                received,
            } => {
                if listener == ListenerId::REPLICA {
                    let mut events = Vec::new();
                    let links = &mut self.core.links;
                    links.on_adopted(now, connection, received, &mut self.core.out, &mut events);
                    self.on_link_events(events);
                } else {
                    self.connections.open(connection, peer, &mut self.core.out);
                }
            }
            NetworkEvent::Connected { connection } => {
                self.core.links.on_connected(connection, &mut self.core.out);
            }
            NetworkEvent::Received { connection, buffer } => {
                if self.core.links.owns(connection) {
                    let mut events = Vec::new();
                    let links = &mut self.core.links;
                    links.on_received(now, connection, buffer, &mut self.core.out, &mut events);
                    self.on_link_events(events);
                } else {
                    self.connections.on_received(connection, buffer);
                    self.serve(connection);
                }
            }
            NetworkEvent::Sent { connection, size } => {
                if self.core.links.owns(connection) {
                    self.core.links.on_sent(connection, size);
                } else {
                    self.connections.on_sent(connection, size);
                    self.serve(connection);
                }
            }
            NetworkEvent::Closed { connection } => {
                self.core.links.on_closed(now, connection);
                self.on_client_closed(connection);
            }
        }
    }

    fn on_disk(&mut self, done: DiskDone) {
        match done.token.owner {
            OWNER_VIEWS => self.on_views_disk(done),
            OWNER_SHARD => self.on_shard_disk(done),
            owner if owner & OWNER_CHECKPOINTS != 0 => {
                let id = GroupId(owner & !OWNER_CHECKPOINTS);
                if let Some(hosted) = self.groups.get_mut(&id) {
                    hosted.on_checkpoint_disk(done, &mut self.core);
                }
            }
            id => {
                let id = GroupId(id);
                if let Some(hosted) = self.groups.get_mut(&id) {
                    hosted.on_disk(done, &mut self.core);
                }
            }
        }
    }

    fn on_letter(&mut self, from: base::ShardIndex, letter: Letter) {
        if matches!(self.phase, Phase::Views) {
            return self.early.push((from, letter));
        }
        if self.is_stopping() {
            // Nothing may enter a log any more; who asks is stopping too.
            return;
        }
        match letter {
            Letter::Request {
                ticket,
                group,
                user,
                consumer,
                floor,
                frame,
            } => {
                let Ok(header) = wire::RequestHeader::decode(&frame) else {
                    return;
                };
                self.ask_local_group(Ask {
                    ticket,
                    group,
                    user,
                    consumer,
                    floor,
                    hops: 0,
                    patience: None,
                    header,
                    frame,
                });
            }
            Letter::Reply {
                ticket,
                metadata_op,
                frame,
            } => {
                self.core.answers.push(crate::ask::Answer {
                    ticket,
                    metadata_op,
                    frame,
                });
            }
            Letter::MetadataCommitted { prepare } => self.apply_metadata(prepare, None),
            Letter::MetadataSnapshot { snapshot } => self.install_metadata(&snapshot),
            Letter::MetadataView { view } => self.on_metadata_view(view),
            Letter::Founded { op } => self.core.founded_at = Some(op),
            Letter::ClientPort(port) => self.client_port = port,
            Letter::PurgeWatch { number, groups } => self.on_purge_watch(from, number, groups),
            Letter::PurgeDone { number } => self.on_purge_done(from, number),
            Letter::StatsRequest { number, groups } => self.on_stats_request(from, number, groups),
            Letter::StatsReply { number, stats } => self.on_stats_reply(from, number, &stats),
            Letter::ClientsRequest { number } => self.on_clients_request(from, number),
            Letter::ClientsReply { number, clients } => {
                self.on_clients_reply(from, number, clients);
            }
        }
    }

    fn on_computed(&mut self, token: Token, outcome: Outcome) {
        if self.is_stopping() {
            return;
        }
        match outcome {
            Outcome::Measured(facts) => self.on_measured(token.request, facts),
            Outcome::Archived(archive) => self.on_archived(token.request, archive.as_deref()),
            outcome => self.on_request_computed(token.request, outcome),
        }
    }

    /// Carries word between the parts until there is none left.
    fn settle(&mut self) {
        loop {
            for down in self.core.links.take_down() {
                self.on_link_down(down);
            }
            let notices = ::core::mem::take(&mut self.core.notices);
            let answers = ::core::mem::take(&mut self.core.answers);
            if notices.is_empty() && answers.is_empty() {
                return;
            }
            for notice in notices {
                self.on_notice(notice);
            }
            for answer in answers {
                self.on_answer(answer);
            }
        }
    }

    fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::MetadataCommitted { prepare, asker } => {
                self.post_to_others(|| Letter::MetadataCommitted {
                    prepare: prepare.clone(),
                });
                self.apply_metadata(prepare, asker);
            }
            Notice::MetadataRestored(snapshot) => {
                self.post_to_others(|| Letter::MetadataSnapshot {
                    snapshot: snapshot.clone(),
                });
                self.install_metadata(&snapshot);
            }
            Notice::MetadataRole => self.on_metadata_role(),
            Notice::Settled(group) => {
                if group == GroupId::METADATA {
                    self.on_metadata_recovered();
                }
                self.unpark(group);
            }
            Notice::Deferred(ask) => self.on_deferred(ask),
            Notice::Upkeep(group) => self.trim_partition(group),
            Notice::Purged => self.check_purges(),
            Notice::Judge(ask) => self.on_metadata_ask(ask),
            Notice::Removed(group) => {
                self.groups.remove(&group);
                self.core.forget(group);
            }
        }
    }

    fn post_to_others(&mut self, letter: impl Fn() -> Letter) {
        for to in 0..self.core.config.shard_count {
            let to = base::ShardIndex(to);
            if to != self.core.config.shard {
                self.core.out.push(Effect::Post {
                    to,
                    letter: letter(),
                });
            }
        }
    }

    fn fire_timers(&mut self) {
        let now = self.core.now.monotonic;
        let due = |hosted: &&mut Hosted| hosted.deadline().is_some_and(|at| at <= now);
        let timed: Vec<GroupId> = self.core.timed.iter().copied().collect();
        for id in timed {
            if let Some(hosted) = self.groups.get_mut(&id).filter(due) {
                hosted.on_timers(&mut self.core);
            }
        }
        if matches!(self.phase, Phase::Serving) {
            self.fire_link_timers();
        }
        self.expire_parked();
        self.expire_tickets();
        self.expire_gathers();
        self.fire_upkeep();
        self.fire_group_work();
        if self.flush_at.is_some_and(|at| at <= now) {
            self.flush_at = None;
            for id in ::core::mem::take(&mut self.core.unsynced) {
                if let Some(hosted) = self.groups.get_mut(&id) {
                    hosted.sync(&mut self.core);
                }
            }
        }
    }

    fn fire_link_timers(&mut self) {
        let now = self.core.now.monotonic;
        let mut events = Vec::new();
        let Core { links, out, .. } = &mut self.core;
        let beat = links.on_timers(now, out, &mut events);
        self.on_link_events(events);
        if beat {
            self.expire_passed();
            self.send_heartbeats();
        }
    }

    /// The end of a turn: one write per journal, one for the views, urgent news to the peers.
    fn submit(&mut self) {
        if self.phase == Phase::Views {
            // The disk may be too full for the first file.
            return self.arm_upkeep();
        }
        for id in ::core::mem::take(&mut self.core.unsubmitted) {
            if let Some(hosted) = self.groups.get_mut(&id) {
                hosted.submit(&mut self.core);
            }
        }
        self.answer_asked();
        self.check_founded();
        self.check_trust();
        self.core.views.submit(&mut self.core.out);
        if self.core.urgent && matches!(self.phase, Phase::Serving) {
            self.core.urgent = false;
            self.send_news();
        }
        if !self.core.unsynced.is_empty() && self.flush_at.is_none() {
            self.flush_at = Some(self.core.now.monotonic + self.core.config.timing.flush);
        }
        self.arm_upkeep();
        self.arm_group_work();
        self.check_stopped();
    }

    /// Creates a shard; it begins to recover.
    #[must_use]
    pub fn new(config: ShardConfig, seed: u64, now: Now, out: &mut Outbox) -> Self {
        let stream = |entity| Prng::new(seed, base::Domain::Replica, entity);
        let entity = u64::from(config.shard.0);
        let prngs = (stream(entity), stream(1 << 32 | entity));
        startup::begin(config, prngs, now, out)
    }
}
