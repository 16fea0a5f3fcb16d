//! The fence in front of a partition: who may poll and commit for a consumer group.
//!
//! It stands where the partition's primary serves, and looks at this shard's copy of the metadata.
//! A request names the metadata op that its sender has seen of the group; if that has not come
//! here yet, it waits.

use alloc::vec::Vec;

use wire::{
    Code, Consumer, ConsumerKind, ErrorCode, HEADER_SIZE, Identifier, Operation, Request,
    reply::{POLL_PARTITION_RESYNC, PollHead},
    request::OffsetTarget,
};

use super::Shard;
use crate::ask::Ask;

/// What a member wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Poll,
    Commit,
    Read,
}

/// The first byte of the bodies of all requests that a consumer makes of a partition.
const GROUP: u8 = ConsumerKind::Group as u8;

fn is_of_group(ask: &Ask) -> bool {
    const POLL: u32 = Code::PollMessages.number();
    const POLL_ON_PRIMARY: u32 = Code::PollOnPrimary.number();
    const GET: u32 = Code::GetConsumerOffset.number();
    let consumes = match ask.header.operation {
        Operation::StoreConsumerOffset | Operation::DeleteConsumerOffset => true,
        Operation::NonReplicated => matches!(ask.header.code, POLL | POLL_ON_PRIMARY | GET),
        _ => false,
    };
    consumes && ask.body().first() == Some(&GROUP)
}

impl Shard {
    /// Lets a request through to its partition, whose primary serves here; one of a consumer group
    /// only if its sender may. A group that is named is numbered from here on.
    pub(super) fn admit(&mut self, mut ask: Ask) -> Option<Ask> {
        if ask.floor > self.metadata.op() {
            base::sometimes!("groups: a request waits for the metadata it was made with");
            self.behind = true;
            self.park(ask);
            return None;
        }
        if !is_of_group(&ask) {
            return Some(ask);
        }
        match self.judge_group(&ask) {
            Ok(None) => Some(ask),
            Ok(Some(body)) => {
                let mut frame = ask.frame[..HEADER_SIZE].to_vec();
                frame.extend(body);
                ask.frame = base::Bytes::copy_of(&frame);
                Some(ask)
            }
            Err(Refusal::Code(code)) => {
                self.core.answers.push(ask.refuse(code));
                None
            }
            Err(Refusal::Resync) => {
                base::sometimes!("groups: a member must sync before it polls");
                let head = PollHead {
                    partition_id: POLL_PARTITION_RESYNC,
                    current_offset: 0,
                    count: 0,
                };
                let op = self.metadata.op();
                let answer = ask.reply(op, Operation::NonReplicated, &head.to_bytes());
                self.core.answers.push(answer);
                None
            }
        }
    }

    /// Whether the group exists and its member may do this; the body with the group's number, if
    /// it was named.
    fn judge_group(&self, ask: &Ask) -> Result<Option<Vec<u8>>, Refusal> {
        let header = &ask.header;
        let mut request = Request::decode(header.operation, header.code, ask.body())
            .map_err(|error| Refusal::Code(error.code()))?;
        let (wish, consumer) = match &mut request {
            Request::PollMessages(poll) | Request::PollOnPrimary(poll) => {
                (Wish::Poll, &mut poll.consumer)
            }
            Request::StoreConsumerOffset(store) => (Wish::Commit, consumer_of(&mut store.target)),
            Request::DeleteConsumerOffset(delete) => {
                (Wish::Commit, consumer_of(&mut delete.target))
            }
            Request::GetConsumerOffset(target) => (Wish::Read, consumer_of(target)),
            _ => return Err(Refusal::Code(ErrorCode::INVALID_COMMAND)),
        };
        let partition = self.metadata.partition(ask.group);
        let ids = partition.map(|partition| partition.ids);
        let ids = ids.ok_or(Refusal::Code(ErrorCode::PARTITION_NOT_FOUND))?;
        let info = self.metadata.group_of_partition(ids, consumer.id);
        let info = info.ok_or(Refusal::Code(ErrorCode::CONSUMER_GROUP_ID_NOT_FOUND))?;
        let group = info.group;
        match wish {
            Wish::Poll => {
                if group.member(ask.consumer).is_none() {
                    return Err(Refusal::Code(ErrorCode::CONSUMER_GROUP_MEMBER_NOT_FOUND));
                }
                let now = self.core.now.monotonic;
                let hosted = self.groups.get(&ask.group);
                let frozen = hosted
                    .is_some_and(|hosted| hosted.is_frozen(info.ids.group, group.generation, now));
                if frozen || !group.may_poll(ask.consumer, ids.partition) {
                    return Err(Refusal::Resync);
                }
            }
            Wish::Commit if !group.may_commit(ask.consumer, ids.partition) => {
                let code = ErrorCode::CONSUMER_GROUP_PARTITION_NOT_OWNED;
                return Err(Refusal::Code(code));
            }
            Wish::Commit | Wish::Read => {}
        }
        let named = matches!(consumer.id, Identifier::Named(_));
        consumer.id = Identifier::Numeric(info.ids.group);
        Ok(named.then(|| request.encode()))
    }
}

/// Why a request is not let through.
enum Refusal {
    Code(ErrorCode),
    /// The partition is not the member's to poll: it must ask what is.
    Resync,
}

fn consumer_of<'a, 'b>(target: &'b mut OffsetTarget<'a>) -> &'b mut Consumer<'a> {
    &mut target.consumer
}
