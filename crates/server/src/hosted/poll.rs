//! Reads of a partition, served by its primary: messages up to the commit, and stored offsets.

use alloc::{boxed::Box, vec::Vec};

use base::Bytes;
use partition::{Poll, PollPlan, PollReply, PollStart, Polled, Progress, consumer_key};
use storage::{ReadMessages, Start};
use wire::{
    ConsumerKind, ErrorCode, Operation, ReplyHeader, Request, header::reply_head,
    replica::PrepareHeader, reply::PollHead,
};

use super::{Hosted, Read, marks::PROBE};
use crate::{CannotDecrypt, ask::Ask, core::Core};

/// A poll that reads the journal.
pub(super) struct Polling {
    pub(super) ask: Ask,
    pub(super) poll: Poll,
    auto_commit: bool,
    reply: PollReply,
}

impl Hosted {
    /// A read of this partition.
    pub(super) fn on_read_request(&mut self, ask: Ask, core: &mut Core) {
        let Some(partition) = &self.partition else {
            return core.answers.push(ask.refuse(ErrorCode::INVALID_COMMAND));
        };
        if ask.header.code == PROBE {
            return self.on_probe(&ask, core);
        }
        let header = &ask.header;
        match Request::decode(header.operation, header.code, ask.body()) {
            Ok(Request::PollMessages(request) | Request::PollOnPrimary(request)) => {
                let consumer = match consumer_key(request.consumer) {
                    Ok(consumer) => consumer,
                    Err(code) => return core.answers.push(ask.refuse(code)),
                };
                let poll = Poll {
                    consumer,
                    strategy: request.strategy,
                    count: request.count,
                    bytes_max: core.config.limits.poll_bytes_max,
                };
                let auto_commit = request.auto_commit;
                self.start_poll(ask, poll, auto_commit, core);
            }
            Ok(Request::GetConsumerOffset(target)) => {
                let answer = match consumer_key(target.consumer) {
                    Ok(consumer) => {
                        let body = partition.get_consumer_offset(consumer);
                        ask.reply(partition.committed().op, Operation::NonReplicated, &body)
                    }
                    Err(code) => ask.refuse(code),
                };
                core.answers.push(answer);
            }
            Ok(_) => core.answers.push(ask.refuse(ErrorCode::INVALID_COMMAND)),
            Err(error) => core.answers.push(ask.refuse(error.code())),
        }
    }

    fn start_poll(&mut self, ask: Ask, poll: Poll, auto_commit: bool, core: &mut Core) {
        let Some(partition) = &self.partition else {
            return core
                .answers
                .push(ask.refuse(ErrorCode::PARTITION_NOT_FOUND));
        };
        match partition.plan_poll(&poll) {
            PollPlan::Empty(polled) => self.finish_poll(ask, &poll, false, polled, core),
            PollPlan::Read(reply) => {
                let polling = Polling {
                    ask,
                    poll,
                    auto_commit,
                    reply,
                };
                self.read_for(Box::new(polling), core);
            }
        }
    }

    fn read_for(&mut self, polling: Box<Polling>, core: &mut Core) {
        let range = ReadMessages {
            start: match polling.reply.start() {
                PollStart::Offset(offset) => Start::Offset(offset),
                PollStart::Timestamp(timestamp) => Start::Timestamp(timestamp),
            },
            from: polling.reply.from(),
            up_to: polling.reply.up_to(),
            count_max: polling.reply.count_left(),
            bytes_max: polling.reply.bytes_left().max(1),
        };
        self.read(Read::Poll(polling), core, |journal, id, core, events| {
            journal.read_messages(id, range, &mut core.files, &mut core.out, events);
        });
    }

    pub(super) fn continue_poll(
        &mut self,
        mut polling: Box<Polling>,
        prepares: &[Bytes],
        core: &mut Core,
    ) {
        let mut more = !prepares.is_empty();
        for prepare in prepares {
            let opened = match open(prepare, core) {
                Ok(opened) => opened,
                Err(code) => return core.answers.push(polling.ask.refuse(code)),
            };
            match polling.reply.push(&opened) {
                Ok(Progress::More) => {}
                Ok(Progress::Done) => {
                    more = false;
                    break;
                }
                Err(error) => return core.answers.push(polling.ask.refuse(error.code())),
            }
        }
        if more {
            return self.read_for(polling, core);
        }
        let Polling {
            ask,
            poll,
            auto_commit,
            reply,
        } = *polling;
        let first = self.partition().map(partition::PartitionState::first_op);
        if reply.count() == 0 && first.is_some_and(|first| first > reply.from()) {
            base::sometimes!("trim: what a poll was reading has been trimmed");
            return self.start_poll(ask, poll, auto_commit, core);
        }
        // An offset of before a purge says nothing about the messages after it.
        let purges = self
            .partition()
            .map(|partition| partition.appended().purges);
        if auto_commit && purges != Some(reply.purges()) {
            base::sometimes!("trim: what a poll would store has been purged");
            return core
                .answers
                .push(ask.refuse(ErrorCode::TRANSIENT_NOT_ACCEPTED));
        }
        self.finish_poll(ask, &poll, auto_commit, reply.finish(), core);
    }

    fn finish_poll(
        &mut self,
        ask: Ask,
        poll: &Poll,
        auto_commit: bool,
        polled: Polled,
        core: &mut Core,
    ) {
        let Some(partition) = &self.partition else {
            return core
                .answers
                .push(ask.refuse(ErrorCode::PARTITION_NOT_FOUND));
        };
        if poll.consumer.kind == ConsumerKind::Group
            && let Some(offset) = polled.last_offset
        {
            self.marks.note_polled(poll.consumer.id, offset);
        }
        let op = partition.committed().op.0;
        let header = ReplyHeader {
            op,
            commit: op,
            ..ReplyHeader::to(&ask.header)
        };
        let mut pieces: Vec<Bytes> = polled.body;
        let head_piece = pieces.remove(0);
        debug_assert_eq!(head_piece.len(), PollHead::SIZE);
        let rest = pieces.iter().map(|piece| piece.len()).sum();
        pieces.insert(0, reply_head(&header, &head_piece, rest));
        let offset = polled.last_offset.filter(|_| auto_commit);
        let Some(offset) = offset else {
            return core.answers.push(ask.answer(pieces));
        };
        if partition
            .stored_offset(poll.consumer)
            .is_some_and(|stored| stored >= offset)
        {
            return core.answers.push(ask.answer(pieces));
        }
        if core.is_full() {
            let refusal = ask.refuse(super::propose::full(Operation::StoreConsumerOffset));
            return core.answers.push(refusal);
        }
        // The reply waits until the offset is committed, so that the next poll goes on there.
        let body = partition.auto_commit_body(poll.consumer, offset);
        if self.group().is_some_and(consensus::Group::can_prepare) {
            return self.propose_auto_commit(ask, &body, pieces, core);
        }
        core.answers
            .push(ask.refuse(ErrorCode::TRANSIENT_NOT_ACCEPTED));
    }
}

/// A prepare as a poll reads it: decrypted, if it is encrypted.
fn open(prepare: &Bytes, core: &Core) -> Result<Bytes, ErrorCode> {
    let Some(key) = &core.config.encryption else {
        let header = PrepareHeader::decode(prepare);
        let encrypted = header.is_ok_and(|header| header.encryption.is_some());
        return if encrypted {
            Err(ErrorCode::CANNOT_DECRYPT_DATA)
        } else {
            Ok(prepare.clone())
        };
    };
    key.open(prepare)
        .map_err(|CannotDecrypt| ErrorCode::CANNOT_DECRYPT_DATA)
}
