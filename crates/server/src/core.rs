//! What every part of a shard needs at hand: time, the outbox, the links, the view store, and the
//! lists in which parts leave word for one another within a turn.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use base::{Bytes, GroupId, Op, Prng, ReplicaIndex, Timestamp, View};
use metadata::Metadata;
use platform::{Effect, Fatal, Level, Now, Outbox};
use storage::{FileIds, ViewStore, Views};
use wire::replica::Trust;

use crate::{
    Observation, ShardConfig,
    ask::{Answer, Ask},
    clock::ClusterClock,
    lease::Lease,
    links::Links,
};

/// Word that a part leaves for the shard.
#[derive(Debug)]
pub(crate) enum Notice {
    /// A metadata prepare has committed; whoever asked for it waits.
    MetadataCommitted { prepare: Bytes, asker: Option<Ask> },
    /// The metadata state is to be this one from now on.
    MetadataRestored(Bytes),
    /// The metadata group has a new view or role.
    MetadataRole,
    /// A group has been recovered, or has found a primary: what waited for it may go on.
    Settled(GroupId),
    /// A request that this replica's group cannot take now: to be parked, or passed on.
    Deferred(Ask),
    /// A request for the metadata, to be judged once all that has committed is applied.
    Judge(Ask),
    /// All files of a group are gone.
    Removed(GroupId),
    /// A partition may have to trim or purge its log.
    Upkeep(GroupId),
    /// A partition has been purged.
    Purged,
}

/// What the view store holds of a group that has been deleted: it must not begin anew when a
/// restart finds its creation in the metadata log before its deletion is known to be committed.
pub(crate) const DELETED: Views = Views {
    view: View(u32::MAX),
    log_view: View(u32::MAX),
    trust: Trust::Trusted,
};

/// Shared by the parts of a shard.
pub(crate) struct Core {
    pub(crate) config: ShardConfig,
    pub(crate) now: Now,
    pub(crate) out: Outbox,
    pub(crate) prng: Prng,
    /// Salts of encrypted bodies; a stream of its own, so that encryption changes no timing.
    pub(crate) salts: Prng,
    pub(crate) files: FileIds,
    pub(crate) views: ViewStore,
    /// What the view store holds durably.
    pub(crate) durable_views: BTreeMap<GroupId, Views>,
    /// Whether the machine may have lost what was not synced before this start.
    pub(crate) power_lost: bool,
    pub(crate) links: Links,
    pub(crate) lease: Lease,
    pub(crate) clock: ClusterClock,
    pub(crate) answers: Vec<Answer>,
    pub(crate) notices: Vec<Notice>,
    /// Groups whose journal has something to write at the end of the turn.
    pub(crate) unsubmitted: BTreeSet<GroupId>,
    /// Groups whose status may have changed since the last heartbeat.
    pub(crate) active: BTreeSet<GroupId>,
    /// Groups whose status did not reach every peer, for want of room in a link's queue.
    pub(crate) untold: BTreeSet<GroupId>,
    /// Groups that have left a view and have not made that durable, or have not been read since
    /// the start: meanwhile no heartbeat of a peer is echoed, for it could be taken for the word
    /// to stay in a view that is over here.
    pub(crate) leaving: BTreeSet<GroupId>,
    /// Whether the statuses of active groups should go out at the end of this turn.
    pub(crate) urgent: bool,
    /// Groups that a parked request waits for.
    pub(crate) awaited: BTreeSet<GroupId>,
    /// Groups that have a timer running.
    pub(crate) timed: BTreeSet<GroupId>,
    /// `replicated` groups with something written and not synced.
    pub(crate) unsynced: BTreeSet<GroupId>,
    /// Whether a log here may not be trusted.
    pub(crate) doubtful: bool,
    /// The op of the metadata at which this node was known to be part of the cluster, once that
    /// is known in this life: whatever is created after it is new here too.
    pub(crate) founded_at: Option<Op>,
    /// Groups that lack bodies which a peer may have.
    pub(crate) gapped: BTreeSet<GroupId>,
    /// Partitions that may have offsets stored for consumer groups that are gone.
    pub(crate) orphaned: BTreeSet<GroupId>,
    /// Groups that have sealed segments.
    pub(crate) sealed: BTreeSet<GroupId>,
    /// Partitions led here whose sealed segments will be too old one day.
    pub(crate) aging: BTreeSet<GroupId>,
    /// Partitions led here whose log lacks a purge that could not enter it yet.
    pub(crate) owing: BTreeSet<GroupId>,
    /// Owners of disk requests that a full disk has refused.
    pub(crate) full: BTreeSet<u64>,
    pub(crate) observations: Vec<Observation>,
    pub(crate) halted: bool,
    /// Whether the view store has been told that the stop is a clean one.
    pub(crate) marked_clean: bool,
}

impl Core {
    /// A stream of randomness of a group's own.
    pub(crate) fn fork(&mut self, entity: u64) -> Prng {
        Prng::new(self.prng.next_u64(), base::Domain::Replica, entity)
    }

    /// The metadata state that a snapshot was taken of, if it is one of this version.
    pub(crate) fn restore_metadata(&self, snapshot: &[u8]) -> Option<Metadata> {
        let limits = self.config.metadata_limits();
        Metadata::restore(limits, &self.config.root.username, snapshot).ok()
    }

    pub(crate) fn observe(&mut self, observation: impl FnOnce() -> Observation) {
        if self.config.observe {
            self.observations.push(observation());
        }
    }

    pub(crate) fn log(&mut self, level: Level, line: alloc::string::String) {
        self.out.push(Effect::Log { level, line });
    }

    /// What the log of a group is worth that the view store does not know.
    pub(crate) fn trust_of_new(&self, group: GroupId) -> Trust {
        let later = self.founded_at.is_some_and(|op| group.create_op() > op);
        let alone = self.config.nodes.len() == 1;
        if alone || self.views.is_founded() || (later && group != GroupId::METADATA) {
            Trust::Trusted
        } else {
            Trust::Blank
        }
    }

    /// Whether a primary here may answer from its state.
    pub(crate) fn has_lease(&self) -> bool {
        self.lease.holds(self.now.monotonic) || base::planted::bug(17)
    }

    /// What a primary stamps with.
    pub(crate) fn stamp(&self) -> Timestamp {
        self.clock.realtime(self.now)
    }

    /// Nothing is left of a group; its number never comes back. The view store keeps that it is
    /// [`DELETED`] until a restart finds the deletion committed.
    pub(crate) fn forget(&mut self, group: GroupId) {
        for groups in [
            &mut self.unsubmitted,
            &mut self.active,
            &mut self.untold,
            &mut self.leaving,
            &mut self.awaited,
            &mut self.timed,
            &mut self.unsynced,
            &mut self.sealed,
            &mut self.gapped,
            &mut self.aging,
            &mut self.owing,
            &mut self.orphaned,
        ] {
            groups.remove(&group);
        }
        self.on_space(group.0);
    }

    /// The node cannot go on; nothing it does from here on counts.
    pub(crate) fn halt(&mut self, fatal: Fatal, line: alloc::string::String) {
        self.log(Level::Error, line);
        if !self.halted {
            self.halted = true;
            self.out.push(Effect::Halt { fatal });
        }
    }

    /// Passes an ask on to another node; false if there is no way.
    pub(crate) fn pass_on(&mut self, to: ReplicaIndex, ask: &Ask) -> bool {
        if !self.links.is_up(to) {
            return false;
        }
        let frame = ask.forward(self.config.cluster, self.config.replica);
        self.links.send(to, frame, &mut self.out)
    }
}
