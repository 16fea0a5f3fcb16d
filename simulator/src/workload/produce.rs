//! Sends: batches whose payloads say where they belong and who sent them when.
//!
//! ```text
//! payload = topic u64, partition u32, client u32, sequence u64, filler
//! ```

use base::checksum::xxh3_64;
use client::{Reply, RequestFrame};
use wire::{BatchBuilder, Counted, Partitioning, Request, batch, reply, request};

use super::{Call, Sampler, Verdict, named};
use crate::check::{
    history::Answer,
    linear::{Linear, Target},
};

impl Sampler<'_> {
    pub(super) fn sample_send(&mut self) -> (Call, RequestFrame) {
        let target = self.some_target().expect("checked before");
        self.send(target)
    }

    pub(super) fn send(&mut self, target: Target) -> (Call, RequestFrame) {
        let count = self.prng().between(1, 5);
        self.send_many(target, count)
    }

    pub(super) fn send_many(&mut self, target: Target, count: u64) -> (Call, RequestFrame) {
        let client = self.client;
        let caller = &mut self.workload.callers[client];
        let mut builder = BatchBuilder::new();
        let mut payloads = Vec::new();
        for _ in 0..count {
            caller.sequence += 1;
            let mut payload = Vec::with_capacity(256);
            payload.extend_from_slice(&target.topic.to_le_bytes());
            payload.extend_from_slice(&target.partition.to_le_bytes());
            payload.extend_from_slice(&u32::try_from(client).expect("few").to_le_bytes());
            payload.extend_from_slice(&caller.sequence.to_le_bytes());
            let filler = caller.prng.index(200);
            payload.resize(
                payload.len() + filler,
                u8::try_from(filler).expect("below 200"),
            );
            payloads.push(xxh3_64(&payload));
            let message = batch::Message {
                id: caller.prng.next_u128(),
                origin_timestamp: self.time,
                payload: &payload,
                user_headers: &[],
            };
            builder.push(message).expect("a small message");
        }
        let batch = builder.finish().expect("at least one message");
        let (stream, topic) = self.names_of(target.topic);
        let send_target = request::SendTarget {
            stream: named(&stream),
            topic: named(&topic),
            partitioning: Partitioning::PartitionId(target.partition),
            messages_count: u32::try_from(count).expect("few"),
        };
        let request = request::SendMessages {
            target: send_target,
            batch: &batch,
        };
        let frame = RequestFrame::new(&Request::SendMessages(request));
        (Call::Send { target, payloads }, frame)
    }

    pub(super) fn judge_send(
        &mut self,
        (target, payloads): (Target, &[u64]),
        reply: &Reply,
        linear: &Linear,
    ) -> Verdict {
        let Ok(Counted(confirmations)) = reply.decode::<Counted<reply::Confirmation>>() else {
            return self.fail("a send was answered with something else".into());
        };
        let [confirmation] = confirmations[..] else {
            return self.fail(format!(
                "one batch was confirmed {} times",
                confirmations.len()
            ));
        };
        let base_offset = confirmation.base_offset;
        self.answered(Answer::Sent { base_offset });
        let last = confirmation.base_offset + payloads.len() as u64 - 1;
        let head = self.workload.heads.entry(target).or_default();
        *head = last.max(*head);
        linear.on_confirmed(self.time, payloads[0], Some(confirmation.base_offset))
    }
}

/// The partition that a payload was sent to.
pub(crate) fn payload_target(payload: &[u8]) -> Option<Target> {
    let topic = u64::from_le_bytes(*payload.first_chunk()?);
    let partition = u32::from_le_bytes(*payload.get(8..)?.first_chunk()?);
    Some(Target { topic, partition })
}
