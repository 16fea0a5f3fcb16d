//! What lets go of messages: deleted segments, purges, and topics that do not retain all.

use client::{Reply, RequestFrame};
use wire::{Request, request};

use super::{Call, Sampler, Verdict, named};

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
        let (stream, name) = self.names_of(topic);
        if self.prng().chance(2, 3) {
            let count = u32::try_from(self.prng().below(4)).expect("few");
            let request = request::DeleteSegments {
                stream: named(&stream),
                topic: named(&name),
                partition_id: target.partition,
                segments_count: count,
            };
            let frame = RequestFrame::new(&Request::DeleteSegments(request));
            return (Call::DeleteSegments { target }, frame);
        }
        let request = request::TopicTarget {
            stream: named(&stream),
            topic: named(&name),
        };
        let frame = RequestFrame::new(&Request::PurgeTopic(request));
        (Call::PurgeTopic, frame)
    }

    pub(super) fn judge_trim(&self, call: &Call, reply: &Reply) -> Verdict {
        if reply.payload().is_empty() {
            return Ok(());
        }
        self.fail(format!("{call:?} was answered with something"))
    }
}
