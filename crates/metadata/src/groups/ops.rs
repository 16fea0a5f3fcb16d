//! The ops that change groups, and the index of who is a member where.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use base::ClientId;
use wire::{
    ErrorCode,
    request::{CreateConsumerGroup, GroupTarget},
};

use super::{At, CompleteRevocation, ConsumerGroup, GroupIds, Join};
use crate::{
    Limits,
    state::{Change, State, Topic},
};

/// What follows from the groups, kept so that nothing has to be searched for.
///
/// **Invariant:** exactly what the groups say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memberships {
    groups_of: BTreeMap<ClientId, BTreeSet<GroupIds>>,
    /// Groups with a pending revocation.
    revoking: BTreeSet<GroupIds>,
    groups_count: usize,
}

impl Memberships {
    pub(crate) fn groups_of(&self, client: ClientId) -> impl Iterator<Item = GroupIds> + '_ {
        self.groups_of.get(&client).into_iter().flatten().copied()
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.groups_of.keys().copied()
    }

    pub(crate) const fn revoking(&self) -> &BTreeSet<GroupIds> {
        &self.revoking
    }

    pub(crate) const fn groups_count(&self) -> usize {
        self.groups_count
    }

    /// A group is there that was not.
    pub(crate) fn add(&mut self, ids: GroupIds, group: &ConsumerGroup) {
        self.groups_count += 1;
        for member in group.members.values() {
            self.groups_of.entry(member.client).or_default().insert(ids);
        }
        self.note(ids, group.is_revoking());
    }

    fn remove(&mut self, ids: GroupIds, group: &ConsumerGroup) {
        self.groups_count -= 1;
        for member in group.members.values() {
            self.forget(member.client, ids);
        }
        self.revoking.remove(&ids);
    }

    fn forget(&mut self, client: ClientId, ids: GroupIds) {
        if let Some(groups) = self.groups_of.get_mut(&client) {
            groups.remove(&ids);
            if groups.is_empty() {
                self.groups_of.remove(&client);
            }
        }
    }

    /// The revocations of a group may have changed.
    fn note(&mut self, ids: GroupIds, revoking: bool) {
        if revoking {
            self.revoking.insert(ids);
        } else {
            self.revoking.remove(&ids);
        }
    }
}

impl State {
    pub(crate) fn find_group(&self, target: &GroupTarget<'_>) -> Result<GroupIds, ErrorCode> {
        let (stream, topic) = self.find_topic(target.stream, target.topic)?;
        let groups = &self.topic(stream, topic).value.groups;
        let group = groups.find(target.group);
        Ok(GroupIds {
            stream,
            topic,
            group: group.ok_or(ErrorCode::CONSUMER_GROUP_ID_NOT_FOUND)?,
        })
    }

    /// A group that was found, and how many partitions its topic has.
    fn group_mut(&mut self, ids: GroupIds) -> (&mut ConsumerGroup, u32) {
        let topic = self.topic_mut(ids.stream, ids.topic);
        let count = partitions_count(topic);
        let group = topic.groups.get_mut(ids.group);
        (group.expect("the id was found"), count)
    }

    fn note_group(&mut self, ids: GroupIds) {
        let groups = &self.topic(ids.stream, ids.topic).value.groups;
        let group = groups.get(ids.group).expect("the id was found");
        let revoking = group.is_revoking();
        self.memberships.note(ids, revoking);
    }

    pub(crate) fn create_group(
        &mut self,
        request: &CreateConsumerGroup<'_>,
        limits: &Limits,
        at: At,
    ) -> Result<GroupIds, ErrorCode> {
        let (stream, topic) = self.find_topic(request.stream, request.topic)?;
        let groups = &mut self.topic_mut(stream, topic).groups;
        let group = groups.create(request.name, limits.groups_max, at)?;
        let ids = GroupIds {
            stream,
            topic,
            group,
        };
        let (created, _) = self.group_mut(ids);
        let created = created.clone();
        self.memberships.add(ids, &created);
        Ok(ids)
    }

    pub(crate) fn delete_group(
        &mut self,
        target: &GroupTarget<'_>,
        changes: &mut Vec<Change>,
    ) -> Result<(), ErrorCode> {
        let ids = self.find_group(target)?;
        let topic = self.topic_mut(ids.stream, ids.topic);
        let removed = topic.groups.remove(ids.group);
        let partitions = topic.partitions.iter();
        changes.extend(partitions.map(|partition| Change::OffsetsOrphaned {
            group: partition.group,
        }));
        self.memberships.remove(ids, &removed);
        Ok(())
    }

    pub(crate) fn join_group(
        &mut self,
        join: &Join<'_>,
        client: ClientId,
        at: At,
    ) -> Result<(), ErrorCode> {
        let ids = self.find_group(&join.target)?;
        let (group, count) = self.group_mut(ids);
        // What was found out about an assignment that is no more says nothing.
        let drained = if join.generation == group.generation {
            join.drained.0.iter().copied().collect()
        } else {
            BTreeSet::new()
        };
        if group.join((client, join.home), count, &drained, at) {
            let groups = self.memberships.groups_of.entry(client).or_default();
            groups.insert(ids);
            self.note_group(ids);
        }
        Ok(())
    }

    pub(crate) fn leave_group(
        &mut self,
        target: &GroupTarget<'_>,
        client: ClientId,
        at: At,
    ) -> Result<(), ErrorCode> {
        let ids = self.find_group(target)?;
        self.leave(ids, client, at)
    }

    fn leave(&mut self, ids: GroupIds, client: ClientId, at: At) -> Result<(), ErrorCode> {
        let (group, count) = self.group_mut(ids);
        group.leave(client, count, at)?;
        if group.member(client).is_none() {
            self.memberships.forget(client, ids);
        }
        self.note_group(ids);
        Ok(())
    }

    /// A session is over, or cannot consume any more: it leaves all its groups.
    pub(crate) fn leave_all(&mut self, client: ClientId, at: At) {
        let groups: Vec<GroupIds> = self.memberships.groups_of(client).collect();
        for ids in groups {
            self.leave(ids, client, at).expect("the index says so");
        }
    }

    pub(crate) fn complete_revocation(&mut self, body: &CompleteRevocation, at: At) {
        let ids = body.group;
        let topic = self.streams.get(ids.stream).and_then(|stream| {
            let topic = stream.value.topics.get(ids.topic)?;
            topic.value.groups.get(ids.group).map(|_| ())
        });
        if topic.is_none() {
            return;
        }
        let (group, count) = self.group_mut(ids);
        if group.complete(body.source, (body.partition, body.began), count, at) {
            self.note_group(ids);
        }
    }

    /// A topic has more partitions, or fewer: each of its groups deals them anew.
    pub(crate) fn deal_topic_anew(&mut self, stream: u32, topic: u32, at: At) {
        let entry = self.topic_mut(stream, topic);
        let count = partitions_count(entry);
        let mut ids = Vec::new();
        for (id, group) in entry.groups.iter_mut() {
            if !group.members.is_empty() {
                group.deal_anew(count, at);
                ids.push(id);
            }
        }
        for group in ids {
            self.note_group(GroupIds {
                stream,
                topic,
                group,
            });
        }
    }

    /// The groups of a topic that is gone.
    pub(crate) fn forget_groups(&mut self, stream: u32, topic: u32, removed: &Topic) {
        for (group, entry) in removed.groups.iter() {
            let ids = GroupIds {
                stream,
                topic,
                group,
            };
            self.memberships.remove(ids, entry);
        }
    }
}

pub(crate) fn partitions_count(topic: &Topic) -> u32 {
    u32::try_from(topic.partitions.len()).expect("limited per topic")
}
