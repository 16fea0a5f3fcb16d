//! Reads of groups: for clients, for the fence in front of polls, and for whoever audits.

use alloc::vec::Vec;

use base::{ClientId, GroupId, PartitionIds};
use wire::{
    Codec, Counted, ErrorCode, Identifier, Name, Sink,
    reply::{Assignment, ClientGroup, GroupRecord, MemberRecord},
    request::{GroupTarget, TopicTarget},
};

use super::{ConsumerGroup, GroupIds, Revocation, ops::partitions_count};
use crate::Metadata;

/// A group with what its topic says about it.
#[derive(Clone, Copy, Debug)]
pub struct GroupInfo<'a> {
    /// Its place.
    pub ids: GroupIds,
    /// The group.
    pub group: &'a ConsumerGroup,
    /// How many partitions its topic has.
    pub partitions_count: u32,
}

/// A revocation that waits for its end.
#[derive(Clone, Copy, Debug)]
pub struct PendingRevocation {
    /// The group.
    pub ids: GroupIds,
    /// Whose session gives the partition away.
    pub source: ClientId,
    /// Which, to whom and since when.
    pub revocation: Revocation,
    /// The partition's replication group.
    pub partition: GroupId,
}

impl Metadata {
    /// A group.
    ///
    /// # Errors
    /// 1009, 2010 or 5000 if there is none.
    pub fn resolve_group(&self, target: &GroupTarget<'_>) -> Result<GroupInfo<'_>, ErrorCode> {
        let ids = self.state.find_group(target)?;
        Ok(self.group_info(ids).expect("just found"))
    }

    /// The group at a place.
    #[must_use]
    pub fn group_info(&self, ids: GroupIds) -> Option<GroupInfo<'_>> {
        let stream = &self.state.streams.get(ids.stream)?.value;
        let topic = &stream.topics.get(ids.topic)?.value;
        Some(GroupInfo {
            ids,
            group: topic.groups.get(ids.group)?,
            partitions_count: partitions_count(topic),
        })
    }

    /// The group that a consumer of this partition stands for, named or numbered.
    #[must_use]
    pub fn group_of_partition(
        &self,
        partition: PartitionIds,
        group: Identifier<'_>,
    ) -> Option<GroupInfo<'_>> {
        let stream = &self.state.streams.get(partition.stream)?.value;
        let topic = &stream.topics.get(partition.topic)?.value;
        self.group_info(GroupIds {
            stream: partition.stream,
            topic: partition.topic,
            group: topic.groups.find(group)?,
        })
    }

    /// Whether the offsets stored under this number are of a group that has been deleted. A
    /// number that no group has had yet may be one of which word has not come here.
    #[must_use]
    pub fn is_dead_group(&self, partition: PartitionIds, group: u32) -> bool {
        let stream = self.state.streams.get(partition.stream);
        let topic = stream.and_then(|stream| stream.value.topics.get(partition.topic));
        topic.is_some_and(|topic| {
            let groups = &topic.value.groups;
            group < groups.next && groups.get(group).is_none()
        })
    }

    /// All groups, by place: what an auditor compares with its model.
    pub fn consumer_groups(&self) -> impl Iterator<Item = GroupInfo<'_>> {
        let streams = self.state.streams.iter();
        streams.flat_map(|(stream, entry)| {
            entry.value.topics.iter().flat_map(move |(topic, entry)| {
                entry
                    .value
                    .groups
                    .iter()
                    .map(move |(group, found)| GroupInfo {
                        ids: GroupIds {
                            stream,
                            topic,
                            group,
                        },
                        group: found,
                        partitions_count: partitions_count(&entry.value),
                    })
            })
        })
    }

    /// How many groups there are.
    #[must_use]
    pub const fn consumer_groups_count(&self) -> usize {
        self.state.memberships.groups_count()
    }

    /// The groups that a client's session is a member of: what `me` and `get_client` list.
    pub fn memberships(&self, client: ClientId) -> impl Iterator<Item = ClientGroup> + '_ {
        let groups = self.state.memberships.groups_of(client);
        groups.map(|ids| ClientGroup {
            stream_id: ids.stream,
            topic_id: ids.topic,
            group_id: ids.group,
        })
    }

    /// Whether a client's session is a member of any group.
    #[must_use]
    pub fn is_member(&self, client: ClientId) -> bool {
        self.state.memberships.groups_of(client).next().is_some()
    }

    /// All clients that are members of a group, each with where it is connected.
    pub fn members(&self) -> impl Iterator<Item = (ClientId, super::Home)> + '_ {
        let members = self.state.memberships.members();
        members.filter_map(|client| {
            let ids = self.state.memberships.groups_of(client).next()?;
            let member = self.group_info(ids)?.group.member(client)?;
            Some((client, member.home))
        })
    }

    /// Whether any group has a member.
    #[must_use]
    pub fn has_members(&self) -> bool {
        self.state.memberships.members().next().is_some()
    }

    /// Whether any revocation waits for its end.
    #[must_use]
    pub fn is_revoking(&self) -> bool {
        !self.state.memberships.revoking().is_empty()
    }

    /// All revocations that wait for their end.
    pub fn pending_revocations(&self) -> impl Iterator<Item = PendingRevocation> + '_ {
        let groups = self.state.memberships.revoking().iter();
        groups.flat_map(move |&ids| {
            let group = self.group_info(ids).expect("the index says so").group;
            group.revocations().map(move |(slot, revocation)| {
                let ids_of = PartitionIds {
                    stream: ids.stream,
                    topic: ids.topic,
                    partition: revocation.partition,
                };
                let partition = self.state.partition(ids_of);
                PendingRevocation {
                    ids,
                    source: group.members[&slot].client,
                    revocation,
                    partition: partition.expect("owned, so there").group,
                }
            })
        })
    }

    /// Body of get_consumer_group (600): the group and its members, or nothing.
    #[must_use]
    pub fn get_consumer_group(&self, target: &GroupTarget<'_>) -> Vec<u8> {
        let mut body = Vec::new();
        if let Ok(info) = self.resolve_group(target) {
            write_details(&info, &mut body);
        }
        body
    }

    /// Body of get_consumer_groups (601): nothing if there is no such topic.
    #[must_use]
    pub fn get_consumer_groups(&self, target: &TopicTarget<'_>) -> Vec<u8> {
        let mut body = Vec::new();
        if let Ok((stream, topic)) = self.state.find_topic(target.stream, target.topic) {
            let topic = &self.state.topic(stream, topic).value;
            for (id, group) in topic.groups.iter() {
                write_record(id, group, partitions_count(topic), &mut body);
            }
        }
        body
    }

    /// Body of sync_consumer_group (606): what the member may poll, or nothing if the client is
    /// no member.
    #[must_use]
    pub fn sync_consumer_group(&self, target: &GroupTarget<'_>, client: ClientId) -> Vec<u8> {
        let Ok(info) = self.resolve_group(target) else {
            return Vec::new();
        };
        let Some(member) = info.group.member(client) else {
            return Vec::new();
        };
        Assignment {
            generation: info.group.generation,
            partitions: Counted(member.assigned().collect()),
        }
        .encode()
    }

    /// Payload of the reply to a creation.
    pub(crate) fn created_group(&self, ids: GroupIds) -> Vec<u8> {
        let mut payload = Vec::new();
        let info = self.group_info(ids).expect("just created");
        write_details(&info, &mut payload);
        payload
    }
}

fn write_record(id: u32, group: &ConsumerGroup, partitions_count: u32, out: &mut impl Sink) {
    let record = GroupRecord {
        id,
        partitions_count,
        members_count: u32::try_from(group.members.len()).expect("members have slots"),
        name: Name::new(&group.name).expect("it was a name when the group was made"),
    };
    record.write(out);
}

fn write_details(info: &GroupInfo<'_>, out: &mut impl Sink) {
    write_record(info.ids.group, info.group, info.partitions_count, out);
    for (&id, member) in &info.group.members {
        let record = MemberRecord {
            id,
            partitions: Counted(member.partitions.clone()),
        };
        record.write(out);
    }
}
