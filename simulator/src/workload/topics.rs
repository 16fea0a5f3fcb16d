//! Topics and their partitions: create, delete, get, grow, shrink.

use client::{Reply, RequestFrame};
use wire::{Name, OptionsBlock, Request, Value, options, reply, request};

use super::{Call, Sampler, Topic, Verdict, named, stream_name, topic_name};
use crate::profile::Durability;

/// So many exist at a time, and so many partitions in each.
const TOPICS_MAX: usize = 4;
const PARTITIONS_MAX: u32 = 3;

impl Sampler<'_> {
    pub(super) fn sample_topic(&mut self) -> (Call, RequestFrame) {
        let live = self
            .workload
            .topics
            .values()
            .filter(|topic| topic.live)
            .count();
        let (Some(topic), Some(stream)) = (self.some_topic(), self.some_stream()) else {
            return self.sample_set_up();
        };
        // Whether an attempt in a lost session has changed it too cannot be known.
        let is_known = !self.workload.sessions_end;
        let partitions = self.workload.topics[&topic].partitions;
        match self.prng().below(10) {
            0..4 if live < TOPICS_MAX => self.create_topic(stream),
            4..5 if live > 1 => {
                let (stream, name) = self.names_of(topic);
                let target = request::TopicTarget {
                    stream: named(&stream),
                    topic: named(&name),
                };
                (
                    Call::DeleteTopic { topic },
                    RequestFrame::new(&Request::DeleteTopic(target)),
                )
            }
            5..6 if is_known && partitions < PARTITIONS_MAX => {
                self.change_partitions(Call::CreatePartitions { topic, count: 1 })
            }
            6..7 if is_known && partitions > 1 => {
                self.change_partitions(Call::DeletePartitions { topic, count: 1 })
            }
            _ => {
                let (stream, name) = self.names_of(topic);
                let target = request::TopicTarget {
                    stream: named(&stream),
                    topic: named(&name),
                };
                (
                    Call::GetTopic { topic },
                    RequestFrame::new(&Request::GetTopic(target)),
                )
            }
        }
    }

    fn change_partitions(&mut self, call: Call) -> (Call, RequestFrame) {
        let (Call::CreatePartitions { topic, count } | Call::DeletePartitions { topic, count }) =
            call
        else {
            unreachable!("{call:?} does not change partitions");
        };
        let (stream, name) = self.names_of(topic);
        let (stream, topic) = (named(&stream), named(&name));
        let body = request::PartitionsCount {
            stream,
            topic,
            count,
        };
        let request = match call {
            Call::CreatePartitions { .. } => Request::CreatePartitions(body),
            _ => Request::DeletePartitions(body),
        };
        let frame = RequestFrame::new(&request);
        (call, frame)
    }

    pub(super) fn create_topic(&mut self, stream: u64) -> (Call, RequestFrame) {
        let partitions = 1 + u32::try_from(self.prng().below(2)).expect("few");
        let persisted =
            self.workload.durability == Durability::AllPersisted || self.prng().chance(1, 2);
        let trims = self.prng().chance(1, 3);
        self.create_topic_with(stream, partitions, (persisted, trims))
    }

    pub(super) fn create_topic_with(
        &mut self,
        stream: u64,
        partitions: u32,
        (persisted, trims): (bool, bool),
    ) -> (Call, RequestFrame) {
        let topic = self.new_name();
        let known = Topic {
            stream,
            partitions,
            live: false,
            doubts: 0,
            trims,
        };
        self.workload.topics.insert(topic, known);
        let durability = if persisted { "persisted" } else { "replicated" };
        let segment_size = self.workload.segment_size.to_le_bytes();
        let mut block = OptionsBlock::new();
        block.push("durability", Value::text(durability));
        block.push("consumer_offset_durability", Value::text(durability));
        let segment_size = Value {
            kind: options::kind::UINT64,
            data: &segment_size,
        };
        let retention = if trims {
            self.some_retention()
        } else {
            Vec::new()
        };
        for (key, value) in &retention {
            let data = &value.to_le_bytes();
            let kind = options::kind::UINT64;
            block.push(key, Value { kind, data });
        }
        block.push("segment_size", segment_size);
        let (stream, name) = (stream_name(stream), topic_name(topic));
        let request = request::CreateTopic {
            stream: named(&stream),
            partitions_count: partitions,
            name: Name::new(&name).expect("a short name"),
            options: block.as_options(),
        };
        (
            Call::CreateTopic { topic, trims },
            RequestFrame::new(&Request::CreateTopic(request)),
        )
    }

    pub(super) fn judge_topic(&mut self, call: &Call, reply: &Reply) -> Verdict {
        match *call {
            Call::CreateTopic { topic, .. } => {
                let Ok(details) = reply.decode::<reply::TopicDetails<'_>>() else {
                    return self.fail("a created topic has no record".into());
                };
                let known = self.workload.topics.get_mut(&topic).expect("known");
                known.live = true;
                let count = known.partitions;
                let dense = details
                    .partitions
                    .iter()
                    .zip(0..)
                    .all(|(record, id)| record.id == id);
                let right = details.topic.partitions_count == count
                    && details.partitions.len() == count as usize
                    && details.topic.name.as_str() == topic_name(topic);
                if right && dense {
                    return Ok(());
                }
                self.fail(format!("topic {topic} was created as {details:?}"))
            }
            Call::DeleteTopic { topic } => {
                self.workload.topics.get_mut(&topic).expect("known").live = false;
                Ok(())
            }
            Call::CreatePartitions { topic, count } => self.grow(topic, |now| now + count),
            Call::DeletePartitions { topic, count } => self.grow(topic, |now| now - count),
            Call::GetTopic { topic } => {
                let name = topic_name(topic);
                match reply.decode_optional::<reply::TopicDetails<'_>>() {
                    Ok(Some(details)) if details.topic.name.as_str() == name => Ok(()),
                    Ok(None) => Ok(()),
                    other => self.fail(format!("{name} was read as {other:?}")),
                }
            }
            _ => unreachable!("{call:?} is not about topics"),
        }
    }

    /// The change is certain; until then, nobody counts on the topic.
    fn grow(&mut self, topic: u64, change: impl Fn(u32) -> u32) -> Verdict {
        let known = self.workload.topics.get_mut(&topic).expect("known");
        known.partitions = change(known.partitions);
        Ok(())
    }
}
