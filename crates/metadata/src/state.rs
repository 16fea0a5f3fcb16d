//! The streams, topics and partitions, and the ops that change them.
//!
//! Each op either changes the state as asked and returns the payload of its reply, or changes
//! nothing and returns a code. What it does depends on the prepare and the state only.

use alloc::{collections::BTreeMap, vec::Vec};

use base::{Digest, GroupId, PartitionIds, Timestamp, View};
use wire::{
    ErrorCode, Identifier, Name, Options,
    replica::PrepareHeader,
    request::{CreateTopic, PartitionsCount, TopicTarget, UpdateTopic},
};

use crate::{
    Limits, TopicOptions,
    catalog::{Catalog, Entry, NameTaken},
    groups::{ConsumerGroups, GroupIds, Memberships},
};

/// A partition and what its group must know to be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    /// Its replication group.
    pub group: GroupId,
    /// How clients know it.
    pub ids: PartitionIds,
    /// The first view of the group: the metadata view in which it was created.
    pub view: View,
    /// When it was created.
    pub created_at: Timestamp,
    /// The options of its topic, as they are now.
    pub options: TopicOptions,
    /// How many partitions its topic has now.
    pub partitions_count: u32,
    /// How often it is to have been purged.
    pub purges: u64,
}

/// What an op has changed for the rest of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A group to build.
    PartitionCreated(PartitionInfo),
    /// A group to remove, with all its files.
    PartitionDeleted {
        /// The group.
        group: GroupId,
        /// How clients knew it.
        ids: PartitionIds,
    },
    /// The options of a partition's topic have changed, or it is to be purged.
    PartitionUpdated(PartitionInfo),
    /// A consumer group is gone: what a partition of its topic has stored for it is nobody's.
    OffsetsOrphaned {
        /// The partition's group.
        group: GroupId,
    },
    /// A client has a session.
    SessionOpened {
        /// Whose.
        client: base::ClientId,
        /// Its number.
        session: u64,
        /// Who logged in.
        user: u32,
    },
    /// A session is over: logged out, replaced by a newer one of its client, or evicted to make
    /// room. A connection bound to it must not go on.
    SessionClosed {
        /// Whose.
        client: base::ClientId,
        /// Its number.
        session: u64,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) created_at: Timestamp,
    pub(crate) topics: Catalog<Topic>,
}

#[derive(Clone, Debug)]
pub(crate) struct Topic {
    pub(crate) created_at: Timestamp,
    pub(crate) options: TopicOptions,
    /// By partition id.
    pub(crate) partitions: Vec<Partition>,
    pub(crate) groups: ConsumerGroups,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Partition {
    pub(crate) group: GroupId,
    pub(crate) created_at: Timestamp,
    pub(crate) view: View,
    /// How often it is to have been purged.
    pub(crate) purges: u64,
}

/// Everything but the sessions.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) streams: Catalog<Stream>,
    /// Where each live group belongs.
    ///
    /// **Invariant:** exactly the partitions of `streams`.
    groups: BTreeMap<GroupId, PartitionIds>,
    pub(crate) memberships: Memberships,
}

impl State {
    /// Everything under these streams; `None` if a group comes twice.
    pub(crate) fn restore(streams: Catalog<Stream>) -> Option<Self> {
        let mut groups = BTreeMap::new();
        let mut memberships = Memberships::default();
        for (stream, entry) in streams.iter() {
            for (topic, entry) in entry.value.topics.iter() {
                for (group, found) in entry.value.groups.iter() {
                    let ids = GroupIds {
                        stream,
                        topic,
                        group,
                    };
                    memberships.add(ids, found);
                }
                for (partition, info) in (0..).zip(&entry.value.partitions) {
                    let ids = PartitionIds {
                        stream,
                        topic,
                        partition,
                    };
                    if groups.insert(info.group, ids).is_some() {
                        return None;
                    }
                }
            }
        }
        Some(Self {
            streams,
            groups,
            memberships,
        })
    }

    pub(crate) fn find_stream(&self, stream: Identifier<'_>) -> Result<u32, ErrorCode> {
        self.streams
            .find(stream)
            .ok_or(ErrorCode::STREAM_ID_NOT_FOUND)
    }

    pub(crate) fn find_topic(
        &self,
        stream: Identifier<'_>,
        topic: Identifier<'_>,
    ) -> Result<(u32, u32), ErrorCode> {
        let stream = self.find_stream(stream)?;
        let topics = &self.stream(stream).value.topics;
        let topic = topics.find(topic).ok_or(ErrorCode::TOPIC_ID_NOT_FOUND)?;
        Ok((stream, topic))
    }

    pub(crate) fn stream(&self, id: u32) -> &Entry<Stream> {
        self.streams.get(id).expect("the id was found")
    }

    pub(crate) fn topic(&self, stream: u32, topic: u32) -> &Entry<Topic> {
        self.stream(stream)
            .value
            .topics
            .get(topic)
            .expect("the id was found")
    }

    pub(crate) fn groups_count(&self) -> usize {
        self.groups.len()
    }

    fn stream_mut(&mut self, id: u32) -> &mut Stream {
        self.streams.get_mut(id).expect("the id was found")
    }

    pub(crate) fn topic_mut(&mut self, stream: u32, topic: u32) -> &mut Topic {
        self.stream_mut(stream)
            .topics
            .get_mut(topic)
            .expect("the id was found")
    }

    pub(crate) fn partition(&self, ids: PartitionIds) -> Option<PartitionInfo> {
        let stream = &self.streams.get(ids.stream)?.value;
        let topic = &stream.topics.get(ids.topic)?.value;
        let partition = topic.partitions.get(ids.partition as usize)?;
        Some(PartitionInfo {
            group: partition.group,
            ids,
            view: partition.view,
            created_at: partition.created_at,
            options: topic.options,
            partitions_count: u32::try_from(topic.partitions.len()).expect("limited per topic"),
            purges: partition.purges,
        })
    }

    pub(crate) fn group(&self, group: GroupId) -> Option<PartitionInfo> {
        self.groups.get(&group).and_then(|&ids| self.partition(ids))
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = PartitionInfo> + '_ {
        self.groups
            .values()
            .map(|&ids| self.partition(ids).expect("groups are partitions"))
    }

    pub(crate) fn create_stream(
        &mut self,
        name: Name<'_>,
        options: Options<'_>,
        at: &PrepareHeader,
        limits: &Limits,
    ) -> Result<u32, ErrorCode> {
        refuse_options(options)?;
        if self.streams.contains_name(name) {
            return Err(ErrorCode::STREAM_NAME_ALREADY_EXISTS);
        }
        if self.streams.len() >= limits.streams_max as usize {
            return Err(ErrorCode::TOO_MANY_STREAMS);
        }
        let stream = Stream {
            created_at: at.timestamp,
            topics: Catalog::default(),
        };
        let id = self.streams.insert(name, stream, limits.replica_salt);
        Ok(id.expect("the name is free"))
    }

    pub(crate) fn update_stream(
        &mut self,
        stream: Identifier<'_>,
        name: Name<'_>,
        options: Options<'_>,
    ) -> Result<(), ErrorCode> {
        let id = self.find_stream(stream)?;
        refuse_options(options)?;
        let renamed = self.streams.rename(id, name);
        renamed.map_err(|NameTaken| ErrorCode::STREAM_NAME_ALREADY_EXISTS)
    }

    pub(crate) fn delete_stream(
        &mut self,
        stream: Identifier<'_>,
        changes: &mut Vec<Change>,
    ) -> Result<u32, ErrorCode> {
        let id = self.find_stream(stream)?;
        let stream = self.streams.remove(id);
        for (topic, entry) in stream.topics.iter() {
            self.forget_partitions(id, topic, 0, &entry.value.partitions, changes);
            self.forget_groups(id, topic, &entry.value);
        }
        Ok(id)
    }

    pub(crate) fn create_topic(
        &mut self,
        topic: &CreateTopic<'_>,
        at: &PrepareHeader,
        limits: &Limits,
        changes: &mut Vec<Change>,
    ) -> Result<(u32, u32), ErrorCode> {
        let stream = self.find_stream(topic.stream)?;
        if topic.partitions_count > limits.partitions_per_request_max {
            return Err(ErrorCode::TOO_MANY_PARTITIONS);
        }
        let options = TopicOptions::create(topic.options, topic.partitions_count, limits)?;
        let topics = &mut self.stream_mut(stream).topics;
        if topics.contains_name(topic.name) {
            return Err(ErrorCode::TOPIC_NAME_ALREADY_EXISTS);
        }
        if topics.len() >= limits.topics_max as usize {
            return Err(ErrorCode::TOO_MANY_TOPICS);
        }
        if topic.partitions_count > limits.partitions_max {
            return Err(ErrorCode::PARTITION_ID_SPACE_EXHAUSTED);
        }
        let value = Topic {
            created_at: at.timestamp,
            options,
            partitions: Vec::new(),
            groups: ConsumerGroups::default(),
        };
        let id = topics
            .insert(topic.name, value, limits.replica_salt)
            .expect("the name is free");
        self.add_partitions((stream, id), topic.partitions_count, at, changes);
        Ok((stream, id))
    }

    pub(crate) fn update_topic(
        &mut self,
        request: &UpdateTopic<'_>,
        limits: &Limits,
        changes: &mut Vec<Change>,
    ) -> Result<(), ErrorCode> {
        let (stream, topic) = self.find_topic(request.stream, request.topic)?;
        let updated = self
            .topic_mut(stream, topic)
            .options
            .update(request.options, limits)?;
        let renamed = self.stream_mut(stream).topics.rename(topic, request.name);
        renamed.map_err(|NameTaken| ErrorCode::TOPIC_NAME_ALREADY_EXISTS)?;
        self.topic_mut(stream, topic).options = updated;
        self.tell_updated((stream, topic), changes);
        Ok(())
    }

    /// All partitions of a topic are to be purged once more. What that means for messages and
    /// offsets is told in each partition's own log.
    pub(crate) fn purge_topic(
        &mut self,
        request: &TopicTarget<'_>,
        changes: &mut Vec<Change>,
    ) -> Result<(), ErrorCode> {
        let (stream, topic) = self.find_topic(request.stream, request.topic)?;
        self.purge((stream, topic), changes);
        Ok(())
    }

    /// The same for all topics of a stream.
    pub(crate) fn purge_stream(
        &mut self,
        stream: Identifier<'_>,
        changes: &mut Vec<Change>,
    ) -> Result<(), ErrorCode> {
        let stream = self.find_stream(stream)?;
        let topics = self.stream(stream).value.topics.iter();
        for topic in topics.map(|(topic, _)| topic).collect::<Vec<u32>>() {
            self.purge((stream, topic), changes);
        }
        Ok(())
    }

    fn purge(&mut self, (stream, topic): (u32, u32), changes: &mut Vec<Change>) {
        for partition in &mut self.topic_mut(stream, topic).partitions {
            partition.purges += 1;
        }
        self.tell_updated((stream, topic), changes);
    }

    fn tell_updated(&self, (stream, topic): (u32, u32), changes: &mut Vec<Change>) {
        let count = self.topic(stream, topic).value.partitions.len();
        for partition in 0..u32::try_from(count).expect("limited per topic") {
            let ids = PartitionIds {
                stream,
                topic,
                partition,
            };
            let info = self.partition(ids).expect("one of the topic's");
            changes.push(Change::PartitionUpdated(info));
        }
    }

    pub(crate) fn delete_topic(
        &mut self,
        request: &TopicTarget<'_>,
        changes: &mut Vec<Change>,
    ) -> Result<(u32, u32), ErrorCode> {
        let (stream, topic) = self.find_topic(request.stream, request.topic)?;
        let removed = self.stream_mut(stream).topics.remove(topic);
        self.forget_partitions(stream, topic, 0, &removed.partitions, changes);
        self.forget_groups(stream, topic, &removed);
        Ok((stream, topic))
    }

    pub(crate) fn create_partitions(
        &mut self,
        request: &PartitionsCount<'_>,
        at: &PrepareHeader,
        limits: &Limits,
        changes: &mut Vec<Change>,
    ) -> Result<(), ErrorCode> {
        let (stream, topic) = self.find_topic(request.stream, request.topic)?;
        check_partitions_count(request.count, limits)?;
        let present = self.topic_mut(stream, topic).partitions.len();
        if present + request.count as usize > limits.partitions_max as usize {
            return Err(ErrorCode::PARTITION_ID_SPACE_EXHAUSTED);
        }
        self.add_partitions((stream, topic), request.count, at, changes);
        self.deal_topic_anew(stream, topic, at.into());
        Ok(())
    }

    pub(crate) fn delete_partitions(
        &mut self,
        request: &PartitionsCount<'_>,
        at: &PrepareHeader,
        limits: &Limits,
        changes: &mut Vec<Change>,
    ) -> Result<(), ErrorCode> {
        let (stream, topic) = self.find_topic(request.stream, request.topic)?;
        check_partitions_count(request.count, limits)?;
        let partitions = &mut self.topic_mut(stream, topic).partitions;
        let Some(kept) = partitions.len().checked_sub(request.count as usize) else {
            return Err(ErrorCode::INVALID_PARTITIONS_COUNT);
        };
        let removed = partitions.split_off(kept);
        self.forget_partitions(stream, topic, kept, &removed, changes);
        self.deal_topic_anew(stream, topic, at.into());
        Ok(())
    }

    /// Appends `count` partitions, whose groups are named after this op.
    fn add_partitions(
        &mut self,
        (stream, topic): (u32, u32),
        count: u32,
        at: &PrepareHeader,
        changes: &mut Vec<Change>,
    ) {
        for position in 0..count {
            let position = u16::try_from(position).expect("limited to 1,000 per request");
            let group = GroupId::partition(at.op, position);
            let partitions = &mut self.topic_mut(stream, topic).partitions;
            let partition = u32::try_from(partitions.len()).expect("limited per topic");
            partitions.push(Partition {
                group,
                created_at: at.timestamp,
                view: at.view,
                purges: 0,
            });
            let ids = PartitionIds {
                stream,
                topic,
                partition,
            };
            let previous = self.groups.insert(group, ids);
            base::invariant!(previous.is_none(), "an op creates each of its groups once");
            let info = self.partition(ids).expect("just added");
            changes.push(Change::PartitionCreated(info));
        }
    }

    /// Takes partitions that left their topic, the first of them with id `first`, off the groups.
    fn forget_partitions(
        &mut self,
        stream: u32,
        topic: u32,
        first: usize,
        removed: &[Partition],
        changes: &mut Vec<Change>,
    ) {
        for (index, partition) in removed.iter().enumerate() {
            let id = u32::try_from(first + index).expect("limited per topic");
            let ids = PartitionIds {
                stream,
                topic,
                partition: id,
            };
            let known = self.groups.remove(&partition.group);
            base::invariant!(known == Some(ids), "every partition is among the groups");
            changes.push(Change::PartitionDeleted {
                group: partition.group,
                ids,
            });
        }
    }

    pub(crate) fn digest_into(&self, digest: &mut Digest) {
        digest.u64(self.streams.len() as u64);
        for (id, stream) in self.streams.iter() {
            digest.u32(id);
            digest.bytes(stream.name.as_bytes());
            digest.u64(stream.value.created_at.0);
            digest.u64(stream.value.topics.len() as u64);
            for (id, topic) in stream.value.topics.iter() {
                digest.u32(id);
                digest.bytes(topic.name.as_bytes());
                digest.u64(topic.value.created_at.0);
                topic.value.options.digest_into(digest);
                digest.u64(topic.value.partitions.len() as u64);
                for partition in &topic.value.partitions {
                    digest.u64(partition.group.0);
                    digest.u64(partition.created_at.0);
                    digest.u32(partition.view.0);
                    digest.u64(partition.purges);
                }
                topic.value.groups.digest_into(digest);
            }
        }
    }
}

/// Streams and users have no options: any key is unknown.
pub(crate) fn refuse_options(options: Options<'_>) -> Result<(), ErrorCode> {
    if options.is_empty() {
        Ok(())
    } else {
        Err(ErrorCode::UNSUPPORTED_OPTION_KEY)
    }
}

fn check_partitions_count(count: u32, limits: &Limits) -> Result<(), ErrorCode> {
    if count == 0 || count > limits.partitions_per_request_max {
        return Err(ErrorCode::TOO_MANY_PARTITIONS);
    }
    Ok(())
}
