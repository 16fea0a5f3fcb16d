//! What lets go of messages: deleted segments, purges, and topics that do not retain all.

use client::{Reply, RequestFrame};
use wire::{Request, request};

use super::{Call, Sampler, Verdict, named};
use crate::check::linear::Target;

impl Sampler<'_> {
    /// What a topic retains: of age, of size, of both, or all.
    pub(super) fn some_retention(&mut self) -> Vec<(&'static str, u64)> {
        let segment_size = self.workload.segment_size;
        let mut options = Vec::new();
        if self.prng().chance(1, 2) {
            let seconds = self.prng().between(5, 120);
            options.push(("message_expiry", seconds * 1_000_000));
        }
        if self.prng().chance(1, 2) {
            let segments = self.prng().between(1, 6);
            options.push(("max_topic_size", segments * segment_size));
        }
        options
    }

    /// Only of topics that may lose messages: what others hold is known to all.
    pub(super) fn sample_trim(&mut self) -> (Call, RequestFrame) {
        let target = self.some_target().expect("checked before");
        let topic = target.topic;
        if !self.workload.topics[&topic].trims {
            return self.sample_consumer_offset();
        }
        if self.prng().chance(2, 3) {
            let count = u32::try_from(self.prng().below(4)).expect("few");
            return self.delete_segments(target, count);
        }
        self.purge(topic)
    }

    /// A topic may lose messages from here on.
    pub(super) fn let_trim(&mut self, topic: u64) {
        if let Some(topic) = self.workload.topics.get_mut(&topic) {
            topic.trims = true;
        }
    }

    pub(super) fn delete_segments(&self, target: Target, count: u32) -> (Call, RequestFrame) {
        let (stream, name) = self.names_of(target.topic);
        let request = request::DeleteSegments {
            stream: named(&stream),
            topic: named(&name),
            partition_id: target.partition,
            segments_count: count,
        };
        let frame = RequestFrame::new(&Request::DeleteSegments(request));
        (Call::DeleteSegments { target }, frame)
    }

    pub(super) fn purge(&self, topic: u64) -> (Call, RequestFrame) {
        let (stream, name) = self.names_of(topic);
        let request = request::TopicTarget {
            stream: named(&stream),
            topic: named(&name),
        };
        let frame = RequestFrame::new(&Request::PurgeTopic(request));
        (Call::PurgeTopic { topic }, frame)
    }

    pub(super) fn judge_trim(&self, call: &Call, reply: &Reply) -> Verdict {
        if reply.payload().is_empty() {
            return Ok(());
        }
        self.fail(format!("{call:?} was answered with something"))
    }
}
