//! Calls that a script gives instead of drawing them.

use client::RequestFrame;
use wire::{AckLevel, OptionalPartition, PollingStrategy, Request, request};

use super::{Call, Sampler, Workload, named, poll::single};
use crate::check::linear::Target;

/// What a script lets a client ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// A stream of the next name.
    Stream,
    /// A topic of the next name in a stream.
    Topic {
        stream: u64,
        partitions: u32,
        persisted: bool,
    },
    /// So many messages in one batch.
    Send { target: Target, count: u64 },
    /// At most so many messages from an offset on.
    Poll {
        target: Target,
        offset: u64,
        count: u32,
    },
    /// At most so many messages after what the consumer has stored; stores the last of them.
    Next {
        target: Target,
        consumer: u32,
        count: u32,
    },
    /// A consumer's offset is stored.
    Store {
        target: Target,
        consumer: u32,
        offset: u64,
    },
    /// A consumer's offset is read.
    Offset { target: Target, consumer: u32 },
    /// So many of the oldest segments are deleted.
    Delete { target: Target, count: u32 },
    /// A topic is purged.
    Purge { topic: u64 },
}

impl Workload {
    /// The name that the next stream or topic will have.
    pub(crate) const fn name_next(&self) -> u64 {
        self.names + 1
    }

    /// A client that has no call outstanding makes this one.
    pub(crate) fn order(&mut self, time: u64, client: usize, order: Order) -> RequestFrame {
        let mut sampler = Sampler {
            workload: self,
            client,
            time,
        };
        let (call, frame) = sampler.given(order);
        self.begin(time, client, call);
        frame
    }
}

impl Sampler<'_> {
    fn given(&mut self, order: Order) -> (Call, RequestFrame) {
        match order {
            Order::Stream => self.create_stream(),
            Order::Topic {
                stream,
                partitions,
                persisted,
            } => self.create_topic_with(stream, partitions, (persisted, false)),
            Order::Send { target, count } => self.send_many(target, count),
            Order::Poll {
                target,
                offset,
                count,
            } => self.poll(Call::Poll {
                target,
                strategy: PollingStrategy::Offset(offset),
                count,
                consumer: 1,
                commits: false,
            }),
            Order::Next {
                target,
                consumer,
                count,
            } => self.poll(Call::Poll {
                target,
                strategy: PollingStrategy::Next,
                count,
                consumer,
                commits: true,
            }),
            Order::Store {
                target,
                consumer,
                offset,
            } => self.consumer_offset(target, consumer, Some(offset)),
            Order::Offset { target, consumer } => self.consumer_offset(target, consumer, None),
            Order::Delete { target, count } => {
                self.let_trim(target.topic);
                self.delete_segments(target, count)
            }
            Order::Purge { topic } => {
                self.let_trim(topic);
                self.purge(topic)
            }
        }
    }

    fn poll(&self, call: Call) -> (Call, RequestFrame) {
        let Call::Poll {
            target,
            strategy,
            count,
            consumer,
            commits,
        } = call
        else {
            unreachable!("{call:?} is no poll");
        };
        let (stream, topic) = self.names_of(target.topic);
        let request = request::PollMessages {
            consumer: single(consumer),
            stream: named(&stream),
            topic: named(&topic),
            partition: OptionalPartition(Some(target.partition)),
            strategy,
            count,
            auto_commit: commits,
        };
        let frame = RequestFrame::new(&Request::PollMessages(request));
        (call, frame)
    }

    /// Stores an offset, or reads it if there is none to store.
    fn consumer_offset(
        &self,
        target: Target,
        consumer: u32,
        offset: Option<u64>,
    ) -> (Call, RequestFrame) {
        let (stream, topic) = self.names_of(target.topic);
        let offset_target = request::OffsetTarget {
            consumer: single(consumer),
            stream: named(&stream),
            topic: named(&topic),
            partition: OptionalPartition(Some(target.partition)),
        };
        if let Some(offset) = offset {
            let request = request::StoreConsumerOffset {
                target: offset_target,
                offset,
                ack: AckLevel::Quorum,
            };
            let call = Call::StoreOffset {
                target,
                consumer,
                offset,
            };
            return (
                call,
                RequestFrame::new(&Request::StoreConsumerOffset(request)),
            );
        }
        let request = Request::GetConsumerOffset(offset_target);
        (
            Call::GetOffset { target, consumer },
            RequestFrame::new(&request),
        )
    }
}
