//! Polls, with every strategy.

use base::checksum::xxh3_64;
use client::{Reply, RequestFrame};
use wire::{
    Codec, Consumer, ConsumerKind, Identifier, OptionalPartition, PollingStrategy, Reader, Request,
    batch, reply, request,
};

use super::{Call, Sampler, Verdict, groups::is_group, named, payload_target};
use crate::check::{
    history::Answer,
    linear::{Linear, Message, Target},
};

/// The consumer with this number.
pub(super) const fn single(key: u32) -> Consumer<'static> {
    Consumer {
        kind: ConsumerKind::Single,
        id: Identifier::Numeric(key),
    }
}

/// A poll that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Polled {
    pub(super) target: Target,
    pub(super) strategy: PollingStrategy,
    pub(super) count: u32,
    pub(super) consumer: u32,
    /// It stores what it has read as the consumer's offset.
    pub(super) commits: bool,
    /// When it was asked for.
    pub(super) start: u64,
}

impl Sampler<'_> {
    pub(super) fn sample_poll(&mut self) -> (Call, RequestFrame) {
        let target = self.some_target().expect("checked before");
        let time = self.time;
        let strategy = match self.prng().below(6) {
            0 | 1 => PollingStrategy::Offset(self.prng().below(40)),
            2 => PollingStrategy::Timestamp(crate::world::EPOCH + self.prng().below(time + 1)),
            3 => PollingStrategy::First,
            4 => PollingStrategy::Last,
            _ => PollingStrategy::Next,
        };
        let count = u32::try_from(self.prng().between(1, 20)).expect("few");
        let consumer = self.some_consumer();
        let auto_commit = self.prng().chance(1, 3);
        let (stream, topic) = self.names_of(target.topic);
        let request = request::PollMessages {
            consumer: single(consumer),
            stream: named(&stream),
            topic: named(&topic),
            partition: OptionalPartition(Some(target.partition)),
            strategy,
            count,
            auto_commit,
        };
        let frame = RequestFrame::new(&Request::PollMessages(request));
        (
            Call::Poll {
                target,
                strategy,
                count,
                consumer,
                commits: auto_commit,
            },
            frame,
        )
    }

    /// Clients share consumers, so that one may see what another is just storing.
    pub(super) fn some_consumer(&mut self) -> u32 {
        100 + u32::try_from(self.prng().below(2)).expect("few")
    }

    pub(super) fn judge_poll(
        &mut self,
        polled: Polled,
        reply: &Reply,
        linear: &mut Linear,
    ) -> Verdict {
        let Polled {
            target,
            strategy,
            count,
            consumer,
            commits,
            start,
        } = polled;
        let mut reader = Reader::new(reply.payload());
        let Ok(head) = reply::PollHead::read(&mut reader) else {
            return self.fail("a poll was answered with something else".into());
        };
        if is_group(consumer) && head.partition_id == reply::POLL_PARTITION_RESYNC {
            // Nothing was read.
            self.answered(Answer::Refused {
                nothing_stored: false,
            });
            self.on_resync(target, consumer);
            return Ok(());
        }
        let mut messages = Vec::new();
        for batch in batch::split(reader.take_rest()) {
            let decoded = batch.and_then(batch::frames);
            let Ok((header, frames)) = decoded else {
                return self.fail(format!("a poll of {target:?} returns what is not a batch"));
            };
            for frame in frames {
                let frame = match frame {
                    Ok(frame) if frame.is_intact() => frame,
                    _ => {
                        return self
                            .fail(format!("a poll of {target:?} returns a damaged message"));
                    }
                };
                if payload_target(frame.payload()) != Some(target) {
                    return self.fail(format!("a poll of {target:?} returns another's message"));
                }
                let offset = header.base_offset + u64::from(frame.offset_delta);
                messages.push(Message {
                    offset,
                    payload: xxh3_64(frame.payload()),
                });
            }
        }
        let first = messages.first().map(|message| message.offset);
        let last = messages.last().map(|message| message.offset);
        // What is trimmed is skipped, so that the first may come later.
        let trims = self.workload.topics[&target.topic].trims;
        let at = |first: u64, due: u64| first == due || (trims && first > due);
        let place = match strategy {
            PollingStrategy::Offset(offset) => first.is_none_or(|first| at(first, offset)),
            PollingStrategy::First => first.is_none_or(|first| at(first, 0)),
            PollingStrategy::Last => last.is_none_or(|last| last == head.current_offset),
            PollingStrategy::Timestamp(_) | PollingStrategy::Next => true,
        };
        // Where a message is due one is served, whatever it weighs.
        let due = match strategy {
            PollingStrategy::Offset(offset) => offset <= head.current_offset,
            PollingStrategy::First | PollingStrategy::Last => true,
            PollingStrategy::Timestamp(_) | PollingStrategy::Next => false,
        };
        let served = !due || trims || head.current_offset == 0 || first.is_some();
        let counted = messages.len() == head.count as usize && head.count <= count;
        let below = last.is_none_or(|last| last <= head.current_offset);
        if !place || !counted || !below || !served {
            return self.fail(format!(
                "a poll of {target:?} by {strategy:?}, at most {count}, \
                 returns {first:?} to {last:?} with {head:?}"
            ));
        }
        self.answered(Answer::Polled {
            head: head.current_offset,
            messages: &messages,
        });
        if is_group(consumer) {
            self.on_served(target, consumer, last)?;
        }
        if let (true, Some(last)) = (commits, last) {
            linear.on_auto_commit(self.time, target, consumer, last)?;
        }
        linear.check_fresh(self.time, start, &messages)?;
        match strategy {
            PollingStrategy::Offset(due) => linear.check_start(self.time, due, &messages)?,
            PollingStrategy::First => linear.check_start(self.time, 0, &messages)?,
            _ => {}
        }
        linear.on_poll(self.time, target, &messages)
    }
}
