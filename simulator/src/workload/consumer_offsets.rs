//! Offsets of consumers: store, get, delete.

use client::{Reply, RequestFrame};
use wire::{AckLevel, OptionalPartition, Request, reply, request};

use super::{Call, Sampler, Verdict, named, poll::single};
use crate::check::{
    history::Answer,
    linear::{Linear, Target},
};

impl Sampler<'_> {
    pub(super) fn sample_consumer_offset(&mut self) -> (Call, RequestFrame) {
        let target = self.some_target().expect("checked before");
        let consumer = self.some_consumer();
        let (stream, topic) = self.names_of(target.topic);
        let offset_target = request::OffsetTarget {
            consumer: single(consumer),
            stream: named(&stream),
            topic: named(&topic),
            partition: OptionalPartition(Some(target.partition)),
        };
        match self.prng().below(10) {
            0..6 => {
                let head = self.workload.heads.get(&target).copied().unwrap_or(0);
                let offset = self.prng().below(head + 2);
                let ack = AckLevel::Quorum;
                let request = request::StoreConsumerOffset {
                    target: offset_target,
                    offset,
                    ack,
                };
                let frame = RequestFrame::new(&Request::StoreConsumerOffset(request));
                (
                    Call::StoreOffset {
                        target,
                        consumer,
                        offset,
                    },
                    frame,
                )
            }
            6..7 => {
                let ack = AckLevel::Quorum;
                let request = request::DeleteConsumerOffset {
                    target: offset_target,
                    ack,
                };
                let frame = RequestFrame::new(&Request::DeleteConsumerOffset(request));
                (Call::DeleteOffset { target, consumer }, frame)
            }
            _ => {
                let frame = RequestFrame::new(&Request::GetConsumerOffset(offset_target));
                (Call::GetOffset { target, consumer }, frame)
            }
        }
    }

    pub(super) fn judge_offset(
        &mut self,
        target: Target,
        consumer: u32,
        reply: &Reply,
        linear: &Linear,
    ) -> Verdict {
        match reply.decode_optional::<reply::ConsumerOffset>() {
            Ok(told) => {
                let stored = told.map(|told| (told.stored_offset, told.current_offset));
                self.answered(Answer::Offset { stored });
                let offset = stored.map(|(stored, _)| stored);
                linear.on_offset(self.time, target, consumer, offset)
            }
            Err(error) => self.fail(format!("an offset was read as {error:?}")),
        }
    }
}
