//! Reads of the metadata: names from this shard's own copy, sizes and counts from the shards that
//! host the partitions.

use ::core::cell::RefCell;
use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use base::{GroupId, ShardIndex};
use metadata::{EMPTY_PARTITION, PartitionStats};
use platform::{Effect, GroupStats, Letter};
use wire::{ErrorCode, Operation, Request, request::TopicTarget};

use super::Shard;
use crate::ask::Ask;

/// A read that waits for what other shards hold.
pub(super) struct Gather {
    ask: Ask,
    waiting: BTreeSet<ShardIndex>,
    stats: BTreeMap<GroupId, PartitionStats>,
}

impl Shard {
    /// Whether a request reads metadata.
    pub(super) fn is_metadata_read(&self, ask: &Ask) -> bool {
        matches!(
            Request::decode(ask.header.operation, ask.header.code, ask.body()),
            Ok(Request::GetStream(_)
                | Request::GetStreams
                | Request::GetTopic(_)
                | Request::GetTopics(_))
        )
    }

    /// Answers a read of the metadata. Only the primary may say that something does not exist.
    pub(super) fn on_metadata_read(&mut self, mut ask: Ask) {
        let wanted = RefCell::new(BTreeSet::new());
        let body = self.read_body(&ask, &|group| {
            wanted.borrow_mut().insert(group);
            EMPTY_PARTITION
        });
        let body = match body {
            Ok(body) => body,
            Err(code) => return self.core.answers.push(ask.refuse(code)),
        };
        if body.is_empty() && !self.serves_metadata() {
            ask.group = GroupId::METADATA;
            return self.ask_group(ask);
        }
        let mut gather = Gather {
            ask,
            waiting: BTreeSet::new(),
            stats: BTreeMap::new(),
        };
        let mut elsewhere: BTreeMap<ShardIndex, Vec<GroupId>> = BTreeMap::new();
        for group in wanted.into_inner() {
            let shard = group.shard(self.core.config.shard_count);
            if shard == self.core.config.shard {
                gather
                    .stats
                    .insert(group, self.stats_of(group).unwrap_or(EMPTY_PARTITION));
            } else {
                elsewhere.entry(shard).or_default().push(group);
            }
        }
        self.gathers_made += 1;
        let number = self.gathers_made;
        for (to, groups) in elsewhere {
            gather.waiting.insert(to);
            let letter = Letter::StatsRequest { number, groups };
            self.core.out.push(Effect::Post { to, letter });
        }
        self.gathers.insert(number, gather);
        self.finish_gather(number);
    }

    fn read_body(
        &self,
        ask: &Ask,
        stats: &dyn Fn(GroupId) -> PartitionStats,
    ) -> Result<Vec<u8>, ErrorCode> {
        let request = Request::decode(ask.header.operation, ask.header.code, ask.body())
            .map_err(|error| error.code())?;
        match request {
            Request::GetStream(stream) => Ok(self.metadata.get_stream(stream, stats)),
            Request::GetStreams => Ok(self.metadata.get_streams(stats)),
            Request::GetTopic(TopicTarget { stream, topic }) => Ok(self
                .metadata
                .get_topic(&TopicTarget { stream, topic }, stats)),
            Request::GetTopics(stream) => Ok(self.metadata.get_topics(stream, stats)),
            _ => Err(ErrorCode::INVALID_COMMAND),
        }
    }

    fn stats_of(&self, group: GroupId) -> Option<PartitionStats> {
        let hosted = self.groups.get(&group)?;
        let partition = hosted.partition()?;
        Some(PartitionStats {
            current_offset: partition.current_offset().0,
            size_bytes: partition.size_bytes(),
            messages_count: partition.messages_count(),
            segments_count: u32::try_from(hosted.segments().max(1)).unwrap_or(u32::MAX),
        })
    }

    pub(super) fn on_stats_request(&mut self, from: ShardIndex, number: u64, groups: &[GroupId]) {
        let found = groups.iter().filter_map(|group| {
            let stats = self.stats_of(*group)?;
            let PartitionStats {
                current_offset,
                size_bytes,
                messages_count,
                segments_count,
            } = stats;
            let stats = GroupStats {
                current_offset,
                size_bytes,
                messages_count,
                segments_count,
            };
            Some((*group, stats))
        });
        let letter = Letter::StatsReply {
            number,
            stats: found.collect(),
        };
        self.core.out.push(Effect::Post { to: from, letter });
    }

    pub(super) fn on_stats_reply(
        &mut self,
        from: ShardIndex,
        number: u64,
        stats: &[(GroupId, GroupStats)],
    ) {
        let Some(gather) = self.gathers.get_mut(&number) else {
            return;
        };
        for (group, stats) in stats {
            let GroupStats {
                current_offset,
                size_bytes,
                messages_count,
                segments_count,
            } = *stats;
            let stats = PartitionStats {
                current_offset,
                size_bytes,
                messages_count,
                segments_count,
            };
            gather.stats.insert(*group, stats);
        }
        gather.waiting.remove(&from);
        self.finish_gather(number);
    }

    fn finish_gather(&mut self, number: u64) {
        if self
            .gathers
            .get(&number)
            .is_none_or(|gather| !gather.waiting.is_empty())
        {
            return;
        }
        let Some(Gather { ask, stats, .. }) = self.gathers.remove(&number) else {
            return;
        };
        let lookup = |group: GroupId| stats.get(&group).copied().unwrap_or(EMPTY_PARTITION);
        let answer = match self.read_body(&ask, &lookup) {
            Ok(body) => ask.reply(self.metadata.op(), Operation::NonReplicated, &body),
            Err(code) => ask.refuse(code),
        };
        self.core.answers.push(answer);
    }
}
