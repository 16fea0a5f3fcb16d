//! The consumer groups of a topic: who is a member, and which partitions each may poll.
//!
//! ```text
//!   join ─▶ cooperative: only what exceeds a fair share moves, to members that own nothing;
//!           what may have been polled and not committed is revoked first, and moves when drained
//!   leave, partitions added or removed ─▶ eager: everything is dealt anew, in order
//! ```
//!
//! **Invariants:** a partition belongs to one member at most, and to one if there is any; a pending
//! revocation is of a partition its source owns; the generation grows with every change of an
//! assignment.

mod apply;
mod bodies;
mod ops;
mod query;
#[cfg(test)]
mod tests;

use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};

use base::{ClientId, Digest, Timestamp};
use wire::{ErrorCode, Identifier, Name, replica::PrepareHeader};

pub use bodies::{CompleteRevocation, Join, RemoveMember};
pub(crate) use ops::Memberships;
pub use query::{GroupInfo, PendingRevocation};

/// A consumer group's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupIds {
    /// The stream of its topic.
    pub stream: u32,
    /// Its topic.
    pub topic: u32,
    /// Its number there.
    pub group: u32,
}

/// Where a member is connected. If that process is gone, so is the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The node.
    pub replica: u8,
    /// Its shard.
    pub shard: u16,
    /// Drawn by the shard when it starts.
    pub life: u64,
}

impl Home {
    const NOWHERE: Self = Self {
        replica: 0,
        shard: 0,
        life: 0,
    };
}

/// When something happens to a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) op: u64,
    pub(crate) time: Timestamp,
}

impl From<&PrepareHeader> for At {
    fn from(prepare: &PrepareHeader) -> Self {
        Self {
            op: prepare.op.0,
            time: prepare.timestamp,
        }
    }
}

/// A partition on its way from the member that owns it to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// Which partition.
    pub partition: u32,
    /// The slot of the member that gets it.
    pub target: u32,
    /// When it began: after the rebalancing timeout it ends in any case.
    pub since: Timestamp,
    /// The op with which it began.
    pub began: u64,
}

/// A session that consumes as part of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Whose session.
    pub client: ClientId,
    /// Where it is connected.
    pub home: Home,
    /// What it owns, in the order in which it came.
    pub partitions: Vec<u32>,
    /// What it owns and may not poll any more.
    pub pending: Vec<Revocation>,
}

impl Member {
    const fn new(client: ClientId, home: Home) -> Self {
        Self {
            client,
            home,
            partitions: Vec::new(),
            pending: Vec::new(),
        }
    }

    /// Whether it must give this partition away.
    #[must_use]
    pub fn is_revoked(&self, partition: u32) -> bool {
        let of = |revocation: &Revocation| revocation.partition == partition;
        self.pending.iter().any(of)
    }

    /// What it may poll.
    pub fn assigned(&self) -> impl Iterator<Item = u32> + '_ {
        let owned = self.partitions.iter().copied();
        owned.filter(|partition| !self.is_revoked(*partition))
    }
}

/// A consumer group of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerGroup {
    /// Its name.
    pub name: Arc<str>,
    /// When it was created.
    pub created_at: Timestamp,
    /// The op that last changed a member's assignment; at first, the op that created it.
    pub generation: u64,
    /// By slot; a new member takes the lowest free one.
    pub members: BTreeMap<u32, Member>,
}

impl ConsumerGroup {
    fn new(name: Name<'_>, at: At) -> Self {
        Self {
            name: name.as_str().into(),
            created_at: at.time,
            generation: at.op,
            members: BTreeMap::new(),
        }
    }

    /// The slot of a client's session, if it is a member.
    #[must_use]
    pub fn slot_of(&self, client: ClientId) -> Option<u32> {
        let mut members = self.members.iter();
        let found = members.find(|(_, member)| member.client == client);
        found.map(|(&slot, _)| slot)
    }

    /// The member that a client's session is.
    #[must_use]
    pub fn member(&self, client: ClientId) -> Option<&Member> {
        self.slot_of(client).map(|slot| &self.members[&slot])
    }

    /// Whether a member may poll a partition: it owns it, and need not give it away.
    #[must_use]
    pub fn may_poll(&self, client: ClientId, partition: u32) -> bool {
        let may = |member: &Member| member.assigned().any(|one| one == partition);
        self.member(client).is_some_and(may)
    }

    /// Whether a member may commit offsets of a partition: it owns it, revoked or not.
    #[must_use]
    pub fn may_commit(&self, client: ClientId, partition: u32) -> bool {
        let owns = |member: &Member| member.partitions.contains(&partition);
        self.member(client).is_some_and(owns)
    }

    /// All revocations under way, with the slot of their source.
    pub fn revocations(&self) -> impl Iterator<Item = (u32, Revocation)> + '_ {
        let members = self.members.iter();
        members.flat_map(|(&slot, member)| member.pending.iter().map(move |one| (slot, *one)))
    }

    /// Whether any revocation is under way.
    #[must_use]
    pub fn is_revoking(&self) -> bool {
        self.members
            .values()
            .any(|member| !member.pending.is_empty())
    }

    /// The partitions that would move if one more session joined now: of them it matters whether
    /// they are drained.
    #[must_use]
    pub fn moved_by_join(&self, partitions_count: u32) -> Vec<u32> {
        let mut then = self.clone();
        let nobody = (ClientId(0), Home::NOWHERE);
        let at = At {
            op: self.generation + 1,
            time: Timestamp(0),
        };
        then.join(nobody, partitions_count, &BTreeSet::new(), at);
        let moved = then.revocations().filter(|(_, one)| one.began == at.op);
        moved.map(|(_, one)| one.partition).collect()
    }

    /// A session joins; one that is a member already stays as it is. `drained` are the
    /// partitions of which nothing is polled and not committed. Whether it is new.
    pub(crate) fn join(
        &mut self,
        (client, home): (ClientId, Home),
        partitions_count: u32,
        drained: &BTreeSet<u32>,
        at: At,
    ) -> bool {
        if self.slot_of(client).is_some() {
            return false;
        }
        let slot = (0..).find(|slot| !self.members.contains_key(slot));
        let slot = slot.expect("fewer members than numbers");
        self.members.insert(slot, Member::new(client, home));
        self.deal_unassigned(partitions_count);
        self.move_excess(partitions_count, drained, at);
        self.generation = at.op;
        self.assert_invariants(partitions_count);
        true
    }

    /// Partitions that belong to nobody go round to the members that own nothing.
    fn deal_unassigned(&mut self, partitions_count: u32) {
        let owned: BTreeSet<u32> = self.owned().collect();
        let free = (0..partitions_count).filter(|partition| !owned.contains(partition));
        let idle = self.idle_slots();
        for (partition, &slot) in free.zip(idle.iter().cycle()) {
            let member = self.members.get_mut(&slot).expect("an idle member");
            member.partitions.push(partition);
        }
    }

    /// What members own beyond a fair share goes round to the members that own nothing and that
    /// nothing is on its way to.
    fn move_excess(&mut self, partitions_count: u32, drained: &BTreeSet<u32>, at: At) {
        let targets = self.idle_slots();
        if targets.is_empty() {
            return;
        }
        let excess = self.excess(partitions_count);
        for ((source, partition), &target) in excess.into_iter().zip(targets.iter().cycle()) {
            if drained.contains(&partition) || base::planted::bug(48) {
                self.hand_over(source, target, partition);
                continue;
            }
            let revocation = Revocation {
                partition,
                target,
                since: at.time,
                began: at.op,
            };
            let member = self.members.get_mut(&source).expect("a source is a member");
            member.pending.push(revocation);
        }
    }

    /// What each member owns beyond its share, from the end of its list; with the slot it is
    /// taken from.
    fn excess(&self, partitions_count: u32) -> Vec<(u32, u32)> {
        let members = u32::try_from(self.members.len()).expect("members have slots");
        let fair = (partitions_count / members) as usize;
        let mut extra = partitions_count % members;
        let mut excess = Vec::new();
        for (&slot, member) in &self.members {
            let mut kept: Vec<u32> = member.assigned().collect();
            let mut share = fair;
            if kept.len() > fair && extra > 0 {
                share += 1;
                extra -= 1;
            }
            while kept.len() > share {
                excess.extend(kept.pop().map(|partition| (slot, partition)));
            }
        }
        excess
    }

    /// Members that own nothing and that nothing is on its way to.
    fn idle_slots(&self) -> Vec<u32> {
        let awaited: BTreeSet<u32> = self.revocations().map(|(_, one)| one.target).collect();
        let idle = self
            .members
            .iter()
            .filter(|(slot, member)| member.partitions.is_empty() && !awaited.contains(*slot));
        idle.map(|(&slot, _)| slot).collect()
    }

    fn owned(&self) -> impl Iterator<Item = u32> + '_ {
        let members = self.members.values();
        members.flat_map(|member| member.partitions.iter().copied())
    }

    fn hand_over(&mut self, source: u32, target: u32, partition: u32) {
        let from = self.members.get_mut(&source).expect("a source is a member");
        from.partitions.retain(|owned| *owned != partition);
        from.pending.retain(|one| one.partition != partition);
        let to = self.members.get_mut(&target).expect("a target is a member");
        to.partitions.push(partition);
    }

    /// A revoked partition has been drained, or its time is up: it moves. If its target has left
    /// meanwhile, everything is dealt anew. Whether there was such a revocation.
    pub(crate) fn complete(
        &mut self,
        source: ClientId,
        (partition, began): (u32, u64),
        partitions_count: u32,
        at: At,
    ) -> bool {
        let Some(slot) = self.slot_of(source) else {
            return false;
        };
        let of = |one: &&Revocation| (one.partition, one.began) == (partition, began);
        let Some(&revocation) = self.members[&slot].pending.iter().find(of) else {
            return false;
        };
        if self.members.contains_key(&revocation.target) {
            self.hand_over(slot, revocation.target, partition);
            self.generation = at.op;
            self.assert_invariants(partitions_count);
        } else {
            self.deal_anew(partitions_count, at);
        }
        true
    }

    /// A session leaves, or is over.
    pub(crate) fn leave(
        &mut self,
        client: ClientId,
        partitions_count: u32,
        at: At,
    ) -> Result<(), ErrorCode> {
        let slot = self.slot_of(client);
        let slot = slot.ok_or(ErrorCode::CONSUMER_GROUP_MEMBER_NOT_FOUND)?;
        if base::planted::bug(49) {
            // Planted: told that it has left, and keeps what it owns.
            return Ok(());
        }
        self.members.remove(&slot);
        if base::planted::bug(50) && self.revocations().any(|(_, one)| one.target == slot) {
            // Planted: what was on its way to it waits for whoever takes its slot next.
            self.generation = at.op;
            return Ok(());
        }
        self.deal_anew(partitions_count, at);
        Ok(())
    }

    /// Everything is dealt round over the members, in order; revocations are forgotten.
    pub(crate) fn deal_anew(&mut self, partitions_count: u32, at: At) {
        for member in self.members.values_mut() {
            member.partitions.clear();
            member.pending.clear();
        }
        self.deal_unassigned(partitions_count);
        self.generation = at.op;
        self.assert_invariants(partitions_count);
    }

    /// Whether every partition has its one owner and every revocation both its ends.
    pub(crate) fn is_consistent(&self, partitions_count: u32) -> bool {
        let mut owned: Vec<u32> = self.owned().collect();
        owned.sort_unstable();
        let all = self.members.is_empty() || owned.iter().copied().eq(0..partitions_count);
        let both_ends = |member: &Member| {
            let partitions: BTreeSet<u32> =
                member.pending.iter().map(|one| one.partition).collect();
            let whole = |one: &Revocation| {
                member.partitions.contains(&one.partition)
                    && self.members.contains_key(&one.target)
                    && one.began <= self.generation
            };
            partitions.len() == member.pending.len() && member.pending.iter().all(whole)
        };
        let clients: BTreeSet<ClientId> = self.members.values().map(|one| one.client).collect();
        all && clients.len() == self.members.len() && self.members.values().all(both_ends)
    }

    fn assert_invariants(&self, partitions_count: u32) {
        let planted = base::planted::bug(50);
        base::invariant!(
            planted || self.is_consistent(partitions_count),
            "one owner for each partition"
        );
    }

    pub(crate) fn digest_into(&self, digest: &mut Digest) {
        digest.bytes(self.name.as_bytes());
        digest.u64(self.created_at.0);
        digest.u64(self.generation);
        digest.u64(self.members.len() as u64);
        for (&slot, member) in &self.members {
            digest.u32(slot);
            digest.u128(member.client.0);
            digest.u32(u32::from(member.home.replica));
            digest.u32(u32::from(member.home.shard));
            digest.u64(member.home.life);
            digest.u64(member.partitions.len() as u64);
            member.partitions.iter().for_each(|one| digest.u32(*one));
            digest.u64(member.pending.len() as u64);
            for revocation in &member.pending {
                digest.u32(revocation.partition);
                digest.u32(revocation.target);
                digest.u64(revocation.since.0);
                digest.u64(revocation.began);
            }
        }
    }
}

/// The consumer groups of one topic. Ids only grow: a group never inherits what was stored under
/// the number of another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConsumerGroups {
    pub(crate) next: u32,
    names: BTreeMap<Arc<str>, u32>,
    groups: BTreeMap<u32, ConsumerGroup>,
}

impl ConsumerGroups {
    /// Exactly these groups; `None` if a name or an id comes twice, or ids do not ascend.
    pub(crate) fn restore(next: u32, restored: Vec<(u32, ConsumerGroup)>) -> Option<Self> {
        let names: BTreeMap<_, _> = restored
            .iter()
            .map(|(id, group)| (group.name.clone(), *id))
            .collect();
        let ascending = restored.is_sorted_by(|a, b| a.0 < b.0);
        let below = restored.last().is_none_or(|(id, _)| *id < next);
        (ascending && below && names.len() == restored.len()).then(|| Self {
            next,
            names,
            groups: restored.into_iter().collect(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &ConsumerGroup)> {
        self.groups.iter().map(|(&id, group)| (id, group))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut ConsumerGroup)> {
        self.groups.iter_mut().map(|(&id, group)| (id, group))
    }

    pub(crate) fn get(&self, id: u32) -> Option<&ConsumerGroup> {
        self.groups.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut ConsumerGroup> {
        self.groups.get_mut(&id)
    }

    pub(crate) fn find(&self, group: Identifier<'_>) -> Option<u32> {
        match group {
            Identifier::Numeric(id) => self.groups.contains_key(&id).then_some(id),
            Identifier::Named(name) => self.names.get(name.as_str()).copied(),
        }
    }

    pub(crate) fn create(
        &mut self,
        name: Name<'_>,
        groups_max: u32,
        at: At,
    ) -> Result<u32, ErrorCode> {
        if self.names.contains_key(name.as_str()) {
            return Err(ErrorCode::CONSUMER_GROUP_NAME_ALREADY_EXISTS);
        }
        let full = self.groups.len() >= groups_max as usize;
        if full || self.next == u32::MAX {
            return Err(ErrorCode::CANNOT_CREATE_CONSUMER_GROUP_INFO);
        }
        let id = self.next;
        self.next += 1;
        let group = ConsumerGroup::new(name, at);
        self.names.insert(group.name.clone(), id);
        self.groups.insert(id, group);
        Ok(id)
    }

    /// Removes a group that exists.
    pub(crate) fn remove(&mut self, id: u32) -> ConsumerGroup {
        let group = self.groups.remove(&id).expect("removed groups exist");
        self.names.remove(&group.name);
        group
    }

    pub(crate) fn digest_into(&self, digest: &mut Digest) {
        digest.u32(self.next);
        digest.u64(self.groups.len() as u64);
        for (&id, group) in &self.groups {
            digest.u32(id);
            group.digest_into(digest);
        }
    }
}
