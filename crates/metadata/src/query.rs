//! Reads: what identifiers stand for, and the bodies of the get commands.
//!
//! Absence is an empty body, not an error (`wire.md` 2.3). Counts and sizes of messages are not
//! metadata; the caller looks them up, per group.

use alloc::vec::Vec;

use base::{GroupId, PartitionIds};
use wire::{
    Codec, ErrorCode, Identifier, Name, Operation, Options, OptionsScope, Prefixed, Sink,
    reply::{PartitionRecord, StreamRecord, TopicRecord},
    request::TopicTarget,
};

use crate::{
    Metadata, TopicOptions,
    catalog::Entry,
    options::describe_topic_options,
    state::{Partition, PartitionInfo, Stream, Topic},
};

/// What a partition holds, as its group knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionStats {
    /// Offset of the last committed message, 0 if there is none.
    pub current_offset: u64,
    /// Bytes of committed messages.
    pub size_bytes: u64,
    /// Committed messages.
    pub messages_count: u64,
    /// Segments; a new partition has one.
    pub segments_count: u32,
}

/// What a partition holds that nothing has been written to.
pub const EMPTY_PARTITION: PartitionStats = PartitionStats {
    current_offset: 0,
    size_bytes: 0,
    messages_count: 0,
    segments_count: 1,
};

/// Looks up what the partition of a group holds.
pub type StatsLookup<'a> = &'a dyn Fn(GroupId) -> PartitionStats;

/// How much there is of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Streams.
    pub streams: u32,
    /// Topics of all streams.
    pub topics: u32,
    /// Partitions of all topics.
    pub partitions: u32,
    /// Sessions.
    pub clients: u32,
}

impl Metadata {
    /// The number of a stream.
    ///
    /// # Errors
    /// 1009 if there is none.
    pub fn resolve_stream(&self, stream: Identifier<'_>) -> Result<u32, ErrorCode> {
        self.state.find_stream(stream)
    }

    /// The numbers of a topic and its stream, and how many partitions it has.
    ///
    /// # Errors
    /// 1009 or 2010 if there is none.
    pub fn resolve_topic(&self, target: &TopicTarget<'_>) -> Result<TopicInfo, ErrorCode> {
        let (stream, topic) = self.state.find_topic(target.stream, target.topic)?;
        let entry = self.state.topic(stream, topic);
        Ok(TopicInfo {
            stream,
            topic,
            partitions_count: count_u32(entry.value.partitions.len()),
            options: entry.value.options,
        })
    }

    /// A partition.
    ///
    /// # Errors
    /// 1009, 2010 or 3007 if there is none.
    pub fn resolve_partition(
        &self,
        target: &TopicTarget<'_>,
        partition: u32,
    ) -> Result<PartitionInfo, ErrorCode> {
        let (stream, topic) = self.state.find_topic(target.stream, target.topic)?;
        let ids = PartitionIds {
            stream,
            topic,
            partition,
        };
        self.state
            .partition(ids)
            .ok_or(ErrorCode::PARTITION_NOT_FOUND)
    }

    /// The partitions that a purge (205 or 305) is about; none if what it names does not exist.
    #[must_use]
    pub fn purged_by(&self, operation: Operation, body: &[u8]) -> Vec<PartitionInfo> {
        let (stream, topic) = match operation {
            Operation::PurgeStream => {
                let stream = Identifier::decode(body).ok();
                (
                    stream.and_then(|stream| self.resolve_stream(stream).ok()),
                    None,
                )
            }
            Operation::PurgeTopic => {
                let target = TopicTarget::decode(body).ok();
                let topic = target.and_then(|target| self.resolve_topic(&target).ok());
                (
                    topic.map(|topic| topic.stream),
                    topic.map(|topic| topic.topic),
                )
            }
            _ => (None, None),
        };
        let Some(stream) = stream else {
            return Vec::new();
        };
        let topics = self.state.stream(stream).value.topics.iter();
        let topics = topics.filter(|(id, _)| topic.is_none_or(|topic| topic == *id));
        let groups = topics.flat_map(|(_, entry)| &entry.value.partitions);
        groups
            .filter_map(|partition| self.partition(partition.group))
            .collect()
    }

    /// The partition of a group, unless it has been deleted or is yet to be created.
    #[must_use]
    pub fn partition(&self, group: GroupId) -> Option<PartitionInfo> {
        self.state.group(group)
    }

    /// The partition at a place.
    #[must_use]
    pub fn partition_at(&self, ids: PartitionIds) -> Option<PartitionInfo> {
        self.state.partition(ids)
    }

    /// All partitions, by group.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionInfo> + '_ {
        self.state.groups()
    }

    /// How much there is of everything.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let topics = self
            .state
            .streams
            .iter()
            .map(|(_, stream)| stream.value.topics.len());
        Counts {
            streams: count_u32(self.state.streams.len()),
            topics: count_u32(topics.sum()),
            partitions: count_u32(self.state.groups_count()),
            clients: count_u32(self.sessions().count()),
        }
    }

    /// Body of get_stream (200): the stream and its topics, or nothing.
    #[must_use]
    pub fn get_stream(&self, stream: Identifier<'_>, stats: StatsLookup<'_>) -> Vec<u8> {
        let mut body = Vec::new();
        if let Ok(id) = self.state.find_stream(stream) {
            let stream = self.state.stream(id);
            write_stream(id, stream, stats, &mut body);
            for (id, topic) in stream.value.topics.iter() {
                write_topic(id, topic, stats, &mut body);
            }
        }
        body
    }

    /// Body of get_streams (201).
    #[must_use]
    pub fn get_streams(&self, stats: StatsLookup<'_>) -> Vec<u8> {
        let mut body = Vec::new();
        for (id, stream) in self.state.streams.iter() {
            write_stream(id, stream, stats, &mut body);
        }
        body
    }

    /// Body of get_topic (300): the topic and its partitions, or nothing.
    #[must_use]
    pub fn get_topic(&self, target: &TopicTarget<'_>, stats: StatsLookup<'_>) -> Vec<u8> {
        let mut body = Vec::new();
        if let Ok((stream, id)) = self.state.find_topic(target.stream, target.topic) {
            write_topic_details(id, self.state.topic(stream, id), stats, &mut body);
        }
        body
    }

    /// Body of get_topics (301): nothing if there is no such stream.
    #[must_use]
    pub fn get_topics(&self, stream: Identifier<'_>, stats: StatsLookup<'_>) -> Vec<u8> {
        let mut body = Vec::new();
        if let Ok(stream) = self.state.find_stream(stream) {
            let topics = &self.state.stream(stream).value.topics;
            count_u32(topics.len()).write(&mut body);
            for (id, topic) in topics.iter() {
                write_topic(id, topic, stats, &mut body);
            }
        }
        body
    }

    /// Body of describe_options (13). Streams and users have none.
    #[must_use]
    pub fn describe_options(&self, scope: OptionsScope) -> Vec<u8> {
        let mut body = Vec::new();
        match scope {
            OptionsScope::Topic => {
                let defaults = TopicOptions::defaults(&self.limits);
                describe_topic_options(&defaults, &mut body);
            }
            OptionsScope::Stream | OptionsScope::User => 0_u32.write(&mut body),
        }
        body
    }

    /// Payload of the reply to a creation: the stream as it is now, without messages.
    pub(crate) fn created_stream(&self, id: u32) -> Vec<u8> {
        let mut payload = Vec::new();
        write_stream(
            id,
            self.state.stream(id),
            &|_| EMPTY_PARTITION,
            &mut payload,
        );
        payload
    }

    /// Payload of the reply to a creation: the topic and its partitions, without messages.
    pub(crate) fn created_topic(&self, stream: u32, id: u32) -> Vec<u8> {
        let topic = self.state.topic(stream, id);
        let mut payload = Vec::new();
        write_topic_details(id, topic, &|_| EMPTY_PARTITION, &mut payload);
        payload
    }
}

/// A topic, resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    /// Its stream.
    pub stream: u32,
    /// Its number.
    pub topic: u32,
    /// How many partitions it has.
    pub partitions_count: u32,
    /// Its options.
    pub options: TopicOptions,
}

fn write_stream(id: u32, stream: &Entry<Stream>, stats: StatsLookup<'_>, out: &mut impl Sink) {
    let topics = &stream.value.topics;
    let partitions = topics.iter().flat_map(|(_, topic)| &topic.value.partitions);
    let (size_bytes, messages_count) = totals(partitions, stats);
    let record = StreamRecord {
        id,
        created_at: stream.value.created_at.0,
        topics_count: count_u32(topics.len()),
        size_bytes,
        messages_count,
        name: name_of(stream),
        options: Prefixed(Options::default()),
    };
    record.write(out);
}

fn write_topic(id: u32, topic: &Entry<Topic>, stats: StatsLookup<'_>, out: &mut impl Sink) {
    let Topic {
        created_at,
        options,
        partitions,
        groups: _,
    } = &topic.value;
    let (size_bytes, messages_count) = totals(partitions.iter(), stats);
    let (explicit, derived) = (options.explicit(), options.derived());
    let record = TopicRecord {
        id,
        created_at: created_at.0,
        partitions_count: count_u32(partitions.len()),
        message_expiry: options.message_expiry,
        compression_algorithm: options.compression,
        max_topic_size: options.topic_size_max,
        size_bytes,
        messages_count,
        name: name_of(topic),
        options: Prefixed(explicit.as_options()),
        derived_options: Prefixed(derived.as_options()),
    };
    record.write(out);
}

fn write_topic_details(id: u32, topic: &Entry<Topic>, stats: StatsLookup<'_>, out: &mut impl Sink) {
    write_topic(id, topic, stats, out);
    for (id, partition) in (0..).zip(&topic.value.partitions) {
        let stats = stats(partition.group);
        let record = PartitionRecord {
            id,
            created_at: partition.created_at.0,
            segments_count: stats.segments_count,
            current_offset: stats.current_offset,
            size_bytes: stats.size_bytes,
            messages_count: stats.messages_count,
        };
        record.write(out);
    }
}

/// Bytes and messages of several partitions.
fn totals<'a>(
    partitions: impl Iterator<Item = &'a Partition>,
    stats: StatsLookup<'_>,
) -> (u64, u64) {
    partitions.fold((0, 0), |(size, count), partition| {
        let stats = stats(partition.group);
        (size + stats.size_bytes, count + stats.messages_count)
    })
}

fn name_of<T>(entry: &Entry<T>) -> Name<'_> {
    Name::new(&entry.name).expect("it was a name when the entry was made")
}

fn count_u32(count: usize) -> u32 {
    u32::try_from(count).expect("limits are far below 2^32")
}
