//! Where a request goes: to the shard that hosts its group, and if this node's replica of the
//! group is not the primary, to the node whose replica is.

use base::{GroupId, Instant, Op};
use platform::{Effect, Letter};
use wire::{
    ConsumerKind, ErrorCode, Operation, Plane, Request,
    request::{GroupTarget, OffsetTarget, PollMessages, SendTarget, TopicTarget},
};

use super::Shard;
use crate::{ask::Ask, hosted::choose_partition};

/// How often a request may be passed between nodes that disagree about the primary.
const HOPS_MAX: u8 = 3;

impl Shard {
    /// Finds the group of a request and sends it there. What is not known here is asked of the
    /// primary of the metadata: only it may say that something does not exist.
    pub(super) fn route(&mut self, mut ask: Ask) {
        match ask.header.operation.plane() {
            Plane::Partition | Plane::NonReplicated => match self.resolve(&ask) {
                Ok((group, floor)) => {
                    ask.group = group;
                    ask.floor = ask.floor.max(floor);
                }
                Err(code) if self.serves_metadata() => {
                    return self.core.answers.push(ask.refuse(code));
                }
                Err(code) if !is_absence(code) => {
                    return self.core.answers.push(ask.refuse(code));
                }
                Err(_) => ask.group = GroupId::METADATA,
            },
            _ => ask.group = GroupId::METADATA,
        }
        self.ask_group(ask);
    }

    /// The group that a request about one partition is for, and the metadata op that it must not
    /// be answered without.
    pub(super) fn resolve(&mut self, ask: &Ask) -> Result<(GroupId, Op), ErrorCode> {
        let header = &ask.header;
        let request = if header.operation == Operation::SendMessages {
            // The batch is looked at by the partition; only what stands before it matters here.
            let mut reader = wire::Reader::new(ask.body());
            let target = reader.read::<wire::Prefixed<SendTarget<'_>>>();
            let group = self.resolve_send(&target.map_err(|error| error.code())?.0)?;
            return Ok((group, Op(0)));
        } else {
            Request::decode(header.operation, header.code, ask.body())
                .map_err(|error| error.code())?
        };
        match request {
            Request::PollMessages(PollMessages {
                consumer,
                stream,
                topic,
                partition,
                ..
            })
            | Request::PollOnPrimary(PollMessages {
                consumer,
                stream,
                topic,
                partition,
                ..
            }) => self.resolve_offset(&OffsetTarget {
                consumer,
                stream,
                topic,
                partition,
            }),
            Request::GetConsumerOffset(target) => self.resolve_offset(&target),
            Request::StoreConsumerOffset(request) => self.resolve_offset(&request.target),
            Request::DeleteConsumerOffset(request) => self.resolve_offset(&request.target),
            Request::DeleteSegments(request) => {
                let target = TopicTarget {
                    stream: request.stream,
                    topic: request.topic,
                };
                let partition = request.partition_id;
                let info = self.metadata.resolve_partition(&target, partition)?;
                Ok((info.group, Op(0)))
            }
            _ => Err(ErrorCode::INVALID_COMMAND),
        }
    }

    fn resolve_send(&mut self, send: &SendTarget<'_>) -> Result<GroupId, ErrorCode> {
        let target = TopicTarget {
            stream: send.stream,
            topic: send.topic,
        };
        let topic = self.metadata.resolve_topic(&target)?;
        let count = topic.partitions_count;
        let partition = choose_partition(send.partitioning, count, &mut self.turn)?;
        Ok(self.metadata.resolve_partition(&target, partition)?.group)
    }

    fn resolve_offset(&self, offset: &OffsetTarget<'_>) -> Result<(GroupId, Op), ErrorCode> {
        let target = TopicTarget {
            stream: offset.stream,
            topic: offset.topic,
        };
        if offset.consumer.kind == ConsumerKind::Single {
            let partition = offset.partition.0.unwrap_or(0);
            let info = self.metadata.resolve_partition(&target, partition)?;
            return Ok((info.group, Op(0)));
        }
        let group = self.metadata.resolve_group(&GroupTarget {
            stream: offset.stream,
            topic: offset.topic,
            group: offset.consumer.id,
        })?;
        // A group has no partition that goes without saying.
        let partition = offset.partition.0.ok_or(ErrorCode::PARTITION_NOT_FOUND)?;
        let info = self.metadata.resolve_partition(&target, partition)?;
        Ok((info.group, Op(group.group.generation)))
    }

    /// Sends a request to the shard that hosts its group.
    pub(super) fn ask_group(&mut self, ask: Ask) {
        let to = ask.group.shard(self.core.config.shard_count);
        if to == self.core.config.shard {
            return self.ask_local_group(ask);
        }
        let Ask {
            ticket,
            group,
            user,
            consumer,
            floor,
            frame,
            ..
        } = ask;
        let letter = Letter::Request {
            ticket,
            group,
            user,
            consumer,
            floor,
            frame,
        };
        self.core.out.push(Effect::Post { to, letter });
    }

    /// A request for a group that this shard hosts, or will.
    pub(super) fn ask_local_group(&mut self, ask: Ask) {
        if ask.group == GroupId::METADATA {
            return self.on_metadata_ask(ask);
        }
        match self.groups.get_mut(&ask.group) {
            Some(hosted) if hosted.is_removing() => {
                self.core
                    .answers
                    .push(ask.refuse(ErrorCode::PARTITION_NOT_FOUND));
            }
            Some(hosted) if hosted.is_serving() => {
                hosted.note_serving(&mut self.core);
                if let Some(ask) = self.admit(ask)
                    && let Some(hosted) = self.groups.get_mut(&ask.group)
                {
                    hosted.on_ask(ask, &mut self.core);
                }
            }
            Some(hosted) => hosted.on_ask(ask, &mut self.core),
            None => self.ask_missing_group(ask),
        }
    }

    /// The asker's copy of the metadata is ahead of this shard's, or behind it.
    fn ask_missing_group(&mut self, ask: Ask) {
        if self.is_gone(ask.group) {
            let refusal = ask.refuse(ErrorCode::PARTITION_NOT_FOUND);
            return self.core.answers.push(refusal);
        }
        self.park(ask);
    }

    /// The group cannot take it now: the primary's node can, or it waits.
    pub(super) fn on_deferred(&mut self, ask: Ask) {
        let hosted = self.groups.get(&ask.group);
        if hosted.is_some_and(crate::hosted::Hosted::is_removing) {
            let refusal = ask.refuse(ErrorCode::PARTITION_NOT_FOUND);
            return self.core.answers.push(refusal);
        }
        let group = hosted.and_then(crate::hosted::Hosted::group);
        let elsewhere = group.filter(|group| group.is_normal() && !group.is_primary());
        if let Some(primary) = elsewhere.map(consensus::Group::primary)
            && ask.hops < HOPS_MAX
            && self.core.pass_on(primary, &ask)
        {
            return self.note_passed(primary, &ask);
        }
        self.park(ask);
    }

    /// Lets a request wait for its group; certainly not admitted, if it waits in vain.
    pub(super) fn park(&mut self, mut ask: Ask) {
        let now = self.core.now.monotonic;
        let patience = *ask
            .patience
            .get_or_insert(now + self.core.config.timing.park);
        if patience <= now || self.parked.len() >= self.core.config.limits.parked_max {
            let refusal = ask.refuse(ErrorCode::TRANSIENT_NOT_ACCEPTED);
            return self.core.answers.push(refusal);
        }
        self.core.awaited.insert(ask.group);
        self.parked.push((patience, ask));
    }

    /// A group has changed: what waited for it may go on.
    pub(super) fn unpark(&mut self, group: GroupId) {
        let (ready, parked) = ::core::mem::take(&mut self.parked)
            .into_iter()
            .partition(|(_, ask): &(Instant, Ask)| ask.group == group);
        self.parked = parked;
        for (_, ask) in ready {
            self.ask_local_group(ask);
        }
    }

    /// The metadata has come further here: what waited for that may go on.
    pub(super) fn unpark_behind(&mut self) {
        if !::core::mem::take(&mut self.behind) {
            return;
        }
        let op = self.metadata.op();
        let (ready, parked) = ::core::mem::take(&mut self.parked)
            .into_iter()
            .partition(|(_, ask): &(Instant, Ask)| ask.floor > Op(0) && ask.floor <= op);
        self.parked = parked;
        self.behind = self.parked.iter().any(|(_, ask)| ask.floor > op);
        for (_, ask) in ready {
            self.ask_local_group(ask);
        }
    }

    /// A node is gone, and with it the connections of its clients: what they asked for must not
    /// be done behind their backs, after they have asked again elsewhere.
    pub(super) fn drop_parked_of(&mut self, replica: base::ReplicaIndex) {
        self.parked.retain(|(_, ask)| ask.ticket.replica != replica);
    }

    pub(super) fn expire_parked(&mut self) {
        let now = self.core.now.monotonic;
        if !self.parked.iter().any(|(until, _)| *until <= now) {
            return;
        }
        let (late, parked) = ::core::mem::take(&mut self.parked)
            .into_iter()
            .partition(|(until, _): &(Instant, Ask)| *until <= now);
        self.parked = parked;
        for (_, ask) in late {
            self.core
                .answers
                .push(ask.refuse(ErrorCode::TRANSIENT_NOT_ACCEPTED));
        }
    }
}

/// Whether a code says that something does not exist.
const fn is_absence(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::STREAM_ID_NOT_FOUND
            | ErrorCode::STREAM_NAME_NOT_FOUND
            | ErrorCode::TOPIC_ID_NOT_FOUND
            | ErrorCode::TOPIC_NAME_NOT_FOUND
            | ErrorCode::PARTITION_NOT_FOUND
            | ErrorCode::CONSUMER_GROUP_ID_NOT_FOUND
            | ErrorCode::NO_PARTITIONS
    )
}
