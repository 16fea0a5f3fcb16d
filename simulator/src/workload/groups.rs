//! Consumer groups: create, delete, read, join, leave, sync, and consume as a member.
//!
//! A client that is told what it may poll polls that and commits what it has read; now and then it
//! tries what belongs to another. Who owns what is judged op by op elsewhere (`check::groups`);
//! here is judged what clients are told of it.

use std::collections::BTreeMap;

use base::ClientId;
use client::{Reply, RequestFrame};
use wire::{
    AckLevel, Consumer, ConsumerKind, Identifier, Name, OptionalPartition, PollingStrategy,
    Request,
    reply::{Assignment, GroupDetails, GroupRecord},
    request::{
        CreateConsumerGroup, GroupTarget, OffsetTarget, PollMessages, StoreConsumerOffset,
        TopicTarget,
    },
};

use super::{Call, Sampler, Verdict, named};
use crate::check::linear::Target;

/// So many exist at a time.
const GROUPS_MAX: usize = 2;

/// Marks the numbers of groups among those of consumers.
const GROUP: u32 = 1 << 31;

/// The number under which offsets of a consumer are known here, single or group.
pub(crate) fn consumer_key(consumer: &Consumer<'_>) -> Option<u32> {
    match (consumer.kind, consumer.id) {
        (ConsumerKind::Group, Identifier::Numeric(id)) => Some(GROUP | id),
        (ConsumerKind::Group, Identifier::Named(_)) => None,
        (ConsumerKind::Single, _) => consumer.single_key(),
    }
}

/// Whether a consumer's number is a group's.
pub(crate) const fn is_group(consumer: u32) -> bool {
    consumer & GROUP != 0
}

#[derive(Debug)]
struct Group {
    topic: u64,
    /// Its number in its topic, once it is created.
    id: Option<u32>,
    /// Somebody has asked for its deletion.
    doubted: bool,
}

/// What a client knows of its membership.
#[derive(Debug, Default)]
struct Member {
    /// What it was told to poll; none if it has to ask.
    assigned: Option<Vec<u32>>,
    /// What it has read last of each partition.
    read: BTreeMap<u32, u64>,
}

/// What clients know of groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: BTreeMap<u64, Group>,
    /// By client and group.
    members: BTreeMap<(usize, u64), Member>,
    /// Who was told to poll a partition, by group and generation.
    told: BTreeMap<(u64, u64, u32), ClientId>,
    /// The op by which a client had left a group, if it has not joined since.
    left: BTreeMap<(ClientId, u64), u64>,
}

fn group_name(group: u64) -> String {
    format!("group-{group}")
}

impl Groups {
    /// A client comes back as somebody else, or has lost what it knew.
    pub(super) fn forget(&mut self, client: usize) {
        self.members.retain(|(of, _), _| *of != client);
    }
}

impl Sampler<'_> {
    pub(super) fn sample_group(&mut self) -> (Call, RequestFrame) {
        let live = self.live_groups();
        if live.is_empty() || live.len() < GROUPS_MAX && self.prng().chance(1, 20) {
            return self.create_group();
        }
        if let Some(gone) = self.gone_group() {
            return self.leave_group(gone);
        }
        let group = live[self.prng().index(live.len())];
        let client = self.client;
        let Some(member) = self.workload.groups.members.get(&(client, group)) else {
            return self.sample_stranger(group);
        };
        let Some(assigned) = member.assigned.clone() else {
            return self.sync_group(group);
        };
        match self.prng().below(100) {
            0..55 if !assigned.is_empty() => {
                let partition = assigned[self.prng().index(assigned.len())];
                self.poll_as_member(group, partition)
            }
            55..75 => self.commit_as_member(group),
            75..78 => {
                let partition = self.partition_of(group);
                self.poll_as_member(group, partition)
            }
            78..82 => self.read_offset(group),
            82..86 => self.get_group(group),
            86..88 => self.get_groups(group),
            88..93 => self.leave_group(group),
            93..94 => self.delete_group(group),
            _ => self.sync_group(group),
        }
    }

    /// Most who are no member become one; some do what only members may.
    fn sample_stranger(&mut self, group: u64) -> (Call, RequestFrame) {
        match self.prng().below(10) {
            0..7 => self.join_group(group),
            7 => {
                let partition = self.partition_of(group);
                self.poll_as_member(group, partition)
            }
            8 => self.leave_group(group),
            _ => self.sync_group(group),
        }
    }

    fn live_groups(&self) -> Vec<u64> {
        let workload = &self.workload;
        let groups = workload.groups.groups.iter();
        groups
            .filter(|(_, group)| {
                let topic = &workload.topics[&group.topic];
                let there = topic.live && workload.streams[&topic.stream].live;
                group.id.is_some() && !group.doubted && there
            })
            .map(|(&group, _)| group)
            .collect()
    }

    /// Now and then, a group that somebody has asked to be deleted.
    fn gone_group(&mut self) -> Option<u64> {
        if !self.prng().chance(1, 40) {
            return None;
        }
        let groups = self.workload.groups.groups.iter();
        let gone: Vec<u64> = groups
            .filter(|(_, group)| group.doubted)
            .map(|(&group, _)| group)
            .collect();
        (!gone.is_empty()).then(|| gone[self.prng().index(gone.len())])
    }

    fn topic_of(&self, group: u64) -> u64 {
        self.workload.groups.groups[&group].topic
    }

    fn partition_of(&mut self, group: u64) -> u32 {
        let partitions = self.workload.topics[&self.topic_of(group)].partitions;
        let partition = self.prng().below(u64::from(partitions.max(1)));
        u32::try_from(partition).expect("few")
    }

    fn names_about(&self, group: u64) -> Names {
        let (stream, topic) = self.names_of(self.topic_of(group));
        let group = group_name(group);
        Names {
            stream,
            topic,
            group,
        }
    }

    fn create_group(&mut self) -> (Call, RequestFrame) {
        let topic = self.some_topic().expect("there is somewhere to write to");
        let group = self.new_name();
        let known = Group {
            topic,
            id: None,
            doubted: false,
        };
        self.workload.groups.groups.insert(group, known);
        let (stream, topic_name) = self.names_of(topic);
        let name = group_name(group);
        let request = CreateConsumerGroup {
            stream: named(&stream),
            topic: named(&topic_name),
            name: Name::new(&name).expect("a short name"),
        };
        let frame = RequestFrame::new(&Request::CreateConsumerGroup(request));
        (Call::CreateGroup { group }, frame)
    }

    fn delete_group(&mut self, group: u64) -> (Call, RequestFrame) {
        let known = self.workload.groups.groups.get_mut(&group);
        known.expect("live").doubted = true;
        let names = self.names_about(group);
        let frame = RequestFrame::new(&Request::DeleteConsumerGroup(names.target()));
        (Call::DeleteGroup { group }, frame)
    }

    fn join_group(&mut self, group: u64) -> (Call, RequestFrame) {
        let id = self.workload.id(self.client);
        self.workload.groups.left.remove(&(id, group));
        let names = self.names_about(group);
        let frame = RequestFrame::new(&Request::JoinConsumerGroup(names.target()));
        (Call::JoinGroup { group }, frame)
    }

    fn leave_group(&self, group: u64) -> (Call, RequestFrame) {
        let names = self.names_about(group);
        let frame = RequestFrame::new(&Request::LeaveConsumerGroup(names.target()));
        (Call::LeaveGroup { group }, frame)
    }

    fn sync_group(&self, group: u64) -> (Call, RequestFrame) {
        let names = self.names_about(group);
        let frame = RequestFrame::new(&Request::SyncConsumerGroup(names.target()));
        (Call::SyncGroup { group }, frame)
    }

    fn get_group(&self, group: u64) -> (Call, RequestFrame) {
        let names = self.names_about(group);
        let frame = RequestFrame::new(&Request::GetConsumerGroup(names.target()));
        (Call::GetGroup { group }, frame)
    }

    fn get_groups(&self, group: u64) -> (Call, RequestFrame) {
        let topic = self.topic_of(group);
        let (stream, name) = self.names_of(topic);
        let target = TopicTarget {
            stream: named(&stream),
            topic: named(&name),
        };
        let frame = RequestFrame::new(&Request::GetConsumerGroups(target));
        (Call::GetGroups { topic }, frame)
    }

    fn consumer_of(&self, group: u64) -> u32 {
        GROUP | self.workload.groups.groups[&group].id.expect("live")
    }

    fn poll_as_member(&mut self, group: u64, partition: u32) -> (Call, RequestFrame) {
        let topic = self.topic_of(group);
        let count = u32::try_from(self.prng().between(1, 20)).expect("few");
        let commits = self.prng().chance(1, 3);
        let names = self.names_about(group);
        let about = names.target();
        let request = PollMessages {
            consumer: names.consumer(),
            stream: about.stream,
            topic: about.topic,
            partition: OptionalPartition(Some(partition)),
            strategy: PollingStrategy::Next,
            count,
            auto_commit: commits,
        };
        let frame = RequestFrame::new(&Request::PollMessages(request));
        let call = Call::Poll {
            target: Target { topic, partition },
            strategy: PollingStrategy::Next,
            count,
            consumer: self.consumer_of(group),
            commits,
        };
        (call, frame)
    }

    /// Commits what was read last of some partition; if nothing was, asks what may be polled.
    fn commit_as_member(&mut self, group: u64) -> (Call, RequestFrame) {
        let client = self.client;
        let member = &self.workload.groups.members[&(client, group)];
        let read: Vec<(u32, u64)> = member.read.iter().map(|(&of, &to)| (of, to)).collect();
        if read.is_empty() {
            return self.sync_group(group);
        }
        let (partition, offset) = read[self.prng().index(read.len())];
        let names = self.names_about(group);
        let request = StoreConsumerOffset {
            target: names.offset_target(partition),
            offset,
            ack: AckLevel::Quorum,
        };
        let frame = RequestFrame::new(&Request::StoreConsumerOffset(request));
        let call = Call::StoreOffset {
            target: Target {
                topic: self.topic_of(group),
                partition,
            },
            consumer: self.consumer_of(group),
            offset,
        };
        (call, frame)
    }

    fn read_offset(&mut self, group: u64) -> (Call, RequestFrame) {
        let partition = self.partition_of(group);
        let names = self.names_about(group);
        let request = Request::GetConsumerOffset(names.offset_target(partition));
        let frame = RequestFrame::new(&request);
        let target = Target {
            topic: self.topic_of(group),
            partition,
        };
        let consumer = self.consumer_of(group);
        (Call::GetOffset { target, consumer }, frame)
    }

    pub(super) fn judge_group(&mut self, call: &Call, reply: &Reply) -> Verdict {
        let client = self.client;
        let id = self.workload.id(client);
        match *call {
            Call::CreateGroup { group } => self.judge_created(group, reply),
            Call::DeleteGroup { group } => {
                self.workload
                    .groups
                    .members
                    .retain(|(_, of), _| *of != group);
                Ok(())
            }
            Call::JoinGroup { group } => {
                let members = &mut self.workload.groups.members;
                members.insert((client, group), Member::default());
                Ok(())
            }
            Call::LeaveGroup { group } => {
                self.workload.groups.members.remove(&(client, group));
                let op = reply.header().op;
                self.workload.groups.left.insert((id, group), op);
                Ok(())
            }
            Call::SyncGroup { group } => self.judge_sync(group, reply),
            Call::GetGroup { group } => self.judge_details(group, reply),
            Call::GetGroups { topic } => self.judge_list(topic, reply),
            _ => unreachable!("{call:?} is not about a group"),
        }
    }

    fn judge_created(&mut self, group: u64, reply: &Reply) -> Verdict {
        let Ok(details) = reply.decode::<GroupDetails<'_>>() else {
            return self.fail(format!("group {group} was created without a record"));
        };
        if details.group.name.as_str() != group_name(group) || !details.members.is_empty() {
            return self.fail(format!("group {group} was created as {details:?}"));
        }
        let topic = self.topic_of(group);
        let groups = &mut self.workload.groups.groups;
        let mut others = groups.iter().filter(|(other, _)| **other != group);
        if others.any(|(_, it)| it.topic == topic && it.id == Some(details.group.id)) {
            return self.fail(format!("group {group} has the number of another"));
        }
        groups.get_mut(&group).expect("asked for").id = Some(details.group.id);
        Ok(())
    }

    /// Of one generation nobody else is told the same partition, and who has left is told none.
    fn judge_sync(&mut self, group: u64, reply: &Reply) -> Verdict {
        let (client, time) = (self.client, self.time);
        let id = self.workload.id(client);
        let groups = &mut self.workload.groups;
        let Ok(told) = reply.decode_optional::<Assignment>() else {
            return self.fail(format!("client {client} cannot read what it may poll"));
        };
        let Some(Assignment {
            generation,
            partitions,
        }) = told
        else {
            groups.members.remove(&(client, group));
            return Ok(());
        };
        if groups.left.contains_key(&(id, group)) {
            return self.fail(format!(
                "client {client} has left group {group} and is in it"
            ));
        }
        for &partition in &partitions.0 {
            let owner = *groups
                .told
                .entry((group, generation, partition))
                .or_insert(id);
            if owner != id {
                let text = format!(
                    "{:x} and {:x} may both poll partition {partition} of group {group} \
                     in generation {generation}, at {time}",
                    owner.0, id.0
                );
                return self.fail(text);
            }
        }
        base::sometimes!(
            !partitions.0.is_empty(),
            "workload: a member is told what to poll"
        );
        let member = groups.members.entry((client, group)).or_default();
        member.assigned = Some(partitions.0);
        Ok(())
    }

    /// All groups of a topic are some that were asked for, in the order of their numbers.
    fn judge_list(&mut self, topic: u64, reply: &Reply) -> Verdict {
        let Ok(records) = reply.decode::<Vec<GroupRecord<'_>>>() else {
            return self.fail(format!("the groups of topic {topic} cannot be read"));
        };
        let groups = self.workload.groups.groups.iter();
        let asked: Vec<String> = groups
            .filter(|(_, group)| group.topic == topic)
            .map(|(&group, _)| group_name(group))
            .collect();
        let known = |name: &str| asked.iter().any(|it| it == name);
        let ordered = records.is_sorted_by(|a, b| a.id < b.id);
        if !ordered || !records.iter().all(|it| known(it.name.as_str())) {
            return self.fail(format!("topic {topic} has the groups {records:?}"));
        }
        Ok(())
    }

    /// If a group has members, each partition has one owner.
    fn judge_details(&mut self, group: u64, reply: &Reply) -> Verdict {
        let Ok(details) = reply.decode_optional::<GroupDetails<'_>>() else {
            return self.fail(format!("group {group} cannot be read"));
        };
        let Some(details) = details else {
            return Ok(());
        };
        let members = details.members.iter();
        let mut owned: Vec<u32> = members.flat_map(|it| it.partitions.0.clone()).collect();
        owned.sort_unstable();
        let whole = owned.iter().copied().eq(0..details.group.partitions_count);
        let counted = details.members.len() == details.group.members_count as usize;
        if !counted || !(whole || details.members.is_empty()) {
            return self.fail(format!("group {group} was read as {details:?}"));
        }
        Ok(())
    }

    /// The member is to ask again what it may poll.
    pub(super) fn on_resync(&mut self, target: Target, consumer: u32) {
        if let Some(member) = self.member_for(target, consumer) {
            member.assigned = None;
        }
    }

    /// A member was served: it has not left before.
    pub(super) fn on_served(
        &mut self,
        target: Target,
        consumer: u32,
        last: Option<u64>,
    ) -> Verdict {
        let id = self.workload.id(self.client);
        if let Some(group) = self.group_with(target, consumer)
            && self.workload.groups.left.contains_key(&(id, group))
        {
            let client = self.client;
            let text = format!("client {client} has left group {group} and polls as its member");
            return self.fail(text);
        }
        if let Some(member) = self.member_for(target, consumer)
            && let Some(last) = last
        {
            member.read.insert(target.partition, last);
        }
        Ok(())
    }

    /// A call of a member was refused: it may be none any more.
    pub(super) fn on_group_refused(&mut self, call: &Call) {
        let client = self.client;
        let group = match *call {
            Call::JoinGroup { group } | Call::LeaveGroup { group } => Some(group),
            Call::Poll {
                target, consumer, ..
            }
            | Call::StoreOffset {
                target, consumer, ..
            } => self.group_with(target, consumer),
            _ => None,
        };
        if let Some(group) = group {
            self.workload.groups.members.remove(&(client, group));
        }
    }

    fn group_with(&self, target: Target, consumer: u32) -> Option<u64> {
        let groups = self.workload.groups.groups.iter();
        groups
            .filter(|(_, group)| group.topic == target.topic)
            .find(|(_, group)| group.id.map(|id| GROUP | id) == Some(consumer))
            .map(|(&group, _)| group)
    }

    fn member_for(&mut self, target: Target, consumer: u32) -> Option<&mut Member> {
        let group = self.group_with(target, consumer)?;
        let client = self.client;
        self.workload.groups.members.get_mut(&(client, group))
    }
}

/// Of a stream, a topic and a group, for identifiers.
struct Names {
    stream: String,
    topic: String,
    group: String,
}

impl Names {
    fn target(&self) -> GroupTarget<'_> {
        GroupTarget {
            stream: named(&self.stream),
            topic: named(&self.topic),
            group: named(&self.group),
        }
    }

    fn consumer(&self) -> Consumer<'_> {
        Consumer {
            kind: ConsumerKind::Group,
            id: named(&self.group),
        }
    }

    fn offset_target(&self, partition: u32) -> OffsetTarget<'_> {
        OffsetTarget {
            consumer: self.consumer(),
            stream: named(&self.stream),
            topic: named(&self.topic),
            partition: OptionalPartition(Some(partition)),
        }
    }
}
