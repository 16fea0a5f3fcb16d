//! How a shard comes up and goes down.
//!
//! ```text
//!   views ─▶ metadata (shard 0 only) ─▶ serving ─▶ stopping
//!   read the view store   recover the metadata log   listen, dial     sync all, mark clean
//! ```
//!
//! The other shards serve as soon as their views are read; what partitions there are they learn
//! from shard 0, commit by commit.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use base::{GroupId, Prng, ShardIndex, View};
use consensus::Group;
use metadata::Metadata;
use platform::{
    Address, DiskDone, DiskRequest, DiskResult, Effect, Fatal, Letter, Level, ListenerId, Now,
    Outbox, Token,
};
use storage::{FileIds, ViewStore, ViewStoreConfig, ViewStoreEvent, Views, ViewsIdentity};

use super::{
    OWNER_SHARD, OWNER_VIEWS, Shard, answers::Tickets, gather::Gathers, groups::GroupWork,
    system::Archives, upkeep::Upkeep,
};
use crate::{
    Observation, ShardConfig,
    clock::ClusterClock,
    connections::Connections,
    core::{Core, DELETED, Notice},
    hosted::Hosted,
    lease::Lease,
    links::Links,
    paths,
};

/// How far a shard has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Reading the view store.
    Views,
    /// Reading the metadata log.
    Metadata,
    /// Serving.
    Serving,
    /// Syncing everything.
    Stopping,
    /// Done.
    Stopped,
}

pub(super) fn begin(
    config: ShardConfig,
    (mut prng, salts): (Prng, Prng),
    now: Now,
    out: &mut Outbox,
) -> Shard {
    base::invariant!(config.shard.0 < config.shard_count);
    base::invariant!((1..=7).contains(&config.nodes.len()));
    let replica_count = u8::try_from(config.nodes.len()).expect("at most seven");
    let views = ViewStore::open(
        ViewStoreConfig {
            directory: paths::shard(config.shard),
            owner: OWNER_VIEWS,
            identity: ViewsIdentity {
                cluster: config.cluster,
                replica: config.replica,
                replica_count,
                shard: config.shard,
                shard_count: config.shard_count,
            },
            boot_id: config.boot_id,
            compaction_size_min: config.limits.views_size,
        },
        out,
    );
    let limits = &config.limits;
    let metadata = Metadata::new(config.metadata_limits(), &config.root.username);
    let boot = prng.next_u64();
    let tickets = Tickets::new(prng.next_u64());
    let links = Links::new(&config, boot, now.monotonic, prng.clone());
    let per_shard = limits
        .connections_max
        .div_ceil(usize::from(config.shard_count));
    let connections = Connections::new(
        limits.frame_size_max,
        limits.client_queue_bytes_max,
        per_shard,
    );
    let lease = Lease::new(replica_count, config.timing.suspect);
    let core = Core {
        files: FileIds(u64::from(config.shard.0) << 48),
        config,
        now,
        out: Vec::new(),
        prng,
        salts,
        views,
        durable_views: BTreeMap::new(),
        power_lost: false,
        links,
        lease,
        clock: ClusterClock::new(replica_count),
        answers: Vec::new(),
        notices: Vec::new(),
        unsubmitted: BTreeSet::new(),
        active: BTreeSet::new(),
        untold: BTreeSet::new(),
        leaving: BTreeSet::new(),
        urgent: false,
        awaited: BTreeSet::new(),
        timed: BTreeSet::new(),
        unsynced: BTreeSet::new(),
        doubtful: false,
        founded_at: None,
        gapped: BTreeSet::new(),
        orphaned: BTreeSet::new(),
        sealed: BTreeSet::new(),
        aging: BTreeSet::new(),
        owing: BTreeSet::new(),
        full: BTreeSet::new(),
        observations: Vec::new(),
        halted: false,
        marked_clean: false,
    };
    Shard {
        core,
        phase: Phase::Views,
        metadata,
        metadata_view: View(0),
        groups: BTreeMap::new(),
        connections,
        tickets,
        held: BTreeMap::new(),
        passed: BTreeMap::new(),
        parked: Vec::new(),
        pending: BTreeMap::new(),
        gathers: Gathers::default(),
        archives: Archives::new(),
        started: now.realtime,
        purges: super::purges::Purges::default(),
        early: Vec::new(),
        stop_asked: false,
        next_shard: 0,
        turn: u32::MAX,
        flush_at: None,
        upkeep: Upkeep::default(),
        group_work: GroupWork::new(boot),
        behind: false,
        client_port: 0,
        swept: false,
    }
}

impl Shard {
    pub(super) fn on_views_disk(&mut self, done: DiskDone) {
        let mut events = Vec::new();
        let Core {
            views, files, out, ..
        } = &mut self.core;
        views.on_disk(done, files, out, &mut events);
        for event in events {
            match event {
                ViewStoreEvent::Recovered {
                    groups,
                    power_lost,
                    founded,
                } => {
                    self.core.doubtful = power_lost || !founded;
                    self.on_views_recovered(groups, power_lost);
                }
                ViewStoreEvent::Full => self.core.on_full(OWNER_VIEWS),
                ViewStoreEvent::Space => self.core.on_space(OWNER_VIEWS),
                ViewStoreEvent::Durable { group, views } => {
                    // A group may have been removed while its view was on its way.
                    if let Some(hosted) = self.groups.get_mut(&group) {
                        self.core.durable_views.insert(group, views);
                        hosted.on_view_durable(views, &mut self.core);
                    }
                }
                ViewStoreEvent::Clean => self.end_stop(),
                ViewStoreEvent::IdentityMismatch { found } => {
                    let line = alloc::format!("the data directory belongs to {found:?}");
                    self.core.halt(Fatal::Identity, line);
                }
                ViewStoreEvent::Damaged { position } => {
                    let line = alloc::format!("the view store is damaged at byte {position}");
                    self.core.halt(Fatal::Damage, line);
                }
                ViewStoreEvent::Failed(error) => {
                    let line = alloc::format!("the view store failed: {error:?}");
                    self.core.halt(Fatal::Disk, line);
                }
            }
        }
    }

    fn on_views_recovered(&mut self, groups: Vec<(GroupId, Views)>, power_lost: bool) {
        self.core.durable_views = groups.into_iter().collect();
        let durable = self.core.durable_views.iter();
        let live = durable.filter(|(_, views)| **views != DELETED);
        self.core.leaving = live.map(|(id, _)| *id).collect();
        self.core.power_lost = power_lost;
        if power_lost && self.core.config.nodes.len() == 1 {
            let line = "the machine has restarted without a clean stop: replicated topics may \
                        have lost what was written in the last moments";
            self.core.log(Level::Warn, line.into());
        }
        if self.core.config.shard == ShardIndex(0) {
            self.phase = Phase::Metadata;
            let hosted = Hosted::open(GroupId::METADATA, None, &mut self.core);
            self.groups.insert(GroupId::METADATA, hosted);
        } else {
            self.phase = Phase::Serving;
            self.core.out.push(Effect::Ready);
        }
        for (from, letter) in ::core::mem::take(&mut self.early) {
            self.on_letter(from, letter);
        }
        if self.stop_asked {
            self.stop();
        }
    }

    /// Shard 0: the metadata log has been read.
    pub(super) fn on_metadata_recovered(&mut self) {
        if self.phase != Phase::Metadata {
            return;
        }
        self.phase = Phase::Serving;
        let (listener, address) = (ListenerId::CLIENT, self.core.config.client_listen);
        self.core.out.push(Effect::Listen { listener, address });
        if let Some(address) = self.core.config.replica_listen {
            self.core.out.push(Effect::Listen {
                listener: ListenerId::REPLICA,
                address,
            });
        }
    }

    pub(super) fn on_listening(&mut self, listener: ListenerId, address: Address) {
        if listener == ListenerId::CLIENT {
            self.client_port = address.port();
            let port = address.port();
            self.post_to_others(|| Letter::ClientPort(port));
            self.core.out.push(Effect::Ready);
        }
    }

    /// Looks for what is left of groups that no longer exist, once after a start: what is known
    /// to be deleted now will be known at every later start.
    pub(super) fn sweep(&mut self) {
        if ::core::mem::replace(&mut self.swept, true) {
            return;
        }
        let groups = self.groups.keys().copied();
        self.core.notices.extend(groups.map(Notice::Upkeep));
        let known: Vec<GroupId> = self.core.durable_views.keys().copied().collect();
        for id in known {
            if self.is_gone(id) {
                self.core.views.forget(id);
                self.core.durable_views.remove(&id);
                self.core.leaving.remove(&id);
            }
        }
        self.look_for_leftovers();
    }

    /// Directories of groups that are gone are removed, once it is known which there are.
    pub(super) fn look_for_leftovers(&mut self) {
        let token = Token {
            owner: OWNER_SHARD,
            request: 0,
        };
        let request = DiskRequest::List {
            path: paths::PARTITIONS.path(),
        };
        self.core.out.push(Effect::Disk { token, request });
    }

    pub(super) fn on_shard_disk(&mut self, done: DiskDone) {
        let Ok(DiskResult::Names(names)) = done.result else {
            return;
        };
        let ids = names
            .iter()
            .filter_map(|name| u64::from_str_radix(name, 16).ok());
        for id in ids.map(GroupId).collect::<Vec<_>>() {
            if self.is_gone(id) && !self.groups.contains_key(&id) {
                let hosted = Hosted::remove_leftover(id, &mut self.core);
                self.groups.insert(id, hosted);
            }
        }
    }

    /// Whether a group of this shard has certainly been deleted: the op that created it has been
    /// applied here, and yet there is no such group.
    pub(super) fn is_gone(&self, id: GroupId) -> bool {
        id != GroupId::METADATA
            && id.shard(self.core.config.shard_count) == self.core.config.shard
            && id.create_op() <= self.metadata.op()
            && self.metadata.partition(id).is_none()
    }

    /// Once the metadata group is trusted here, this node is part of the cluster. A shard that
    /// has all groups there were at that time on record is founded: whatever it does not know
    /// from then on is new.
    pub(super) fn check_founded(&mut self) {
        let metadata = self.groups.get(&GroupId::METADATA).and_then(Hosted::group);
        if self.core.founded_at.is_none()
            && let Some(op) = metadata
                .filter(|group| group.is_trusted())
                .map(Group::forgotten_to)
        {
            self.core.founded_at = Some(op);
            self.post_to_others(|| Letter::Founded { op });
        }
        let Some(op) = self.core.founded_at else {
            return;
        };
        if self.core.views.is_founded() || self.metadata.op() < op {
            return;
        }
        let recorded = |id: &GroupId| self.core.views.get(*id).is_some();
        let mut groups = self
            .groups
            .iter()
            .filter(|(_, hosted)| !hosted.is_removing());
        // What was created after it is new here, on record or not.
        let forgotten = |id: &GroupId| id.create_op() <= op && !recorded(id);
        if !groups.any(|(id, _)| forgotten(id)) {
            base::sometimes!(
                self.core.config.nodes.len() > 1,
                "server: a shard is founded"
            );
            self.core.views.found(op);
        }
    }

    /// Once every log here holds again what it may have acknowledged, a later crash of the
    /// process alone need not doubt them again.
    pub(super) fn check_trust(&mut self) {
        let serving = self.phase == Phase::Serving && self.core.views.is_founded();
        if !self.core.doubtful || !serving {
            return;
        }
        let mut hosted = self.groups.values().filter(|hosted| !hosted.is_removing());
        let trusted = |hosted: &Hosted| hosted.group().is_some_and(Group::is_trusted);
        if !hosted.all(trusted) {
            return;
        }
        let mut live = self
            .core
            .durable_views
            .iter()
            .filter(|(_, views)| **views != DELETED);
        if !live.all(|(id, _)| self.groups.contains_key(id)) {
            return;
        }
        if ::core::mem::take(&mut self.core.power_lost) {
            self.core.views.trust_logs(&mut self.core.out);
        }
        // Until it is durable, a restart would doubt again.
        if self.core.views.is_quiet() {
            self.core.doubtful = false;
            self.core.observe(|| Observation::Trusted);
        }
    }

    pub(super) const fn is_stopping(&self) -> bool {
        matches!(self.phase, Phase::Stopping | Phase::Stopped)
    }

    pub(super) fn stop(&mut self) {
        match self.phase {
            Phase::Views => self.stop_asked = true,
            Phase::Stopping | Phase::Stopped => {}
            Phase::Metadata | Phase::Serving => self.begin_stop(),
        }
    }

    fn begin_stop(&mut self) {
        self.phase = Phase::Stopping;
        self.parked.clear();
        self.core.awaited.clear();
        self.connections.close_all(&mut self.core.out);
        self.core.links.stop(&mut self.core.out);
    }

    pub(super) fn check_stopped(&mut self) {
        if self.phase != Phase::Stopping {
            return;
        }
        for hosted in self.groups.values_mut() {
            hosted.sync(&mut self.core);
        }
        let rest = self.groups.values().all(Hosted::is_at_rest) && self.core.views.is_quiet();
        if !rest || self.core.marked_clean {
            return;
        }
        // A log that has not been read since the last crash may hold what was never synced: with
        // one of those, the stop is no clean one.
        let mut live = self
            .core
            .durable_views
            .iter()
            .filter(|(_, views)| **views != DELETED);
        if live.all(|(id, _)| self.groups.contains_key(id)) {
            self.core.marked_clean = true;
            self.core.views.mark_clean(&mut self.core.out);
        } else {
            self.end_stop();
        }
    }

    fn end_stop(&mut self) {
        self.phase = Phase::Stopped;
        self.core.out.push(Effect::Stopped);
    }
}
