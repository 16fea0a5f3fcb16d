//! Answers put together from what every shard of the node knows: what partitions hold, who is
//! connected, and what the body knows of the process.
//!
//! Whoever is asked answers within a turn or two. A shard that is held up costs a read of the
//! clients or of the numbers its own part only: after a while the answer goes without it.

use ::core::time::Duration;
use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use base::{GroupId, Instant, ShardIndex};
use metadata::{EMPTY_PARTITION, PartitionStats};
use platform::{ClientFacts, Effect, Facts, GroupStats, Letter, Token, Work};
use wire::ErrorCode;

use super::{OWNER_SHARD, Shard, reads::Question};
use crate::ask::Ask;

/// How long an answer waits for its parts.
const PATIENCE: Duration = Duration::from_secs(3);

/// A part of an answer that is not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Stats(ShardIndex),
    Clients(ShardIndex),
    Facts,
}

/// A read that waits for what others know.
pub(super) struct Gather {
    pub(super) ask: Ask,
    pub(super) question: Question,
    waiting: BTreeSet<Part>,
    until: Instant,
    stats: BTreeMap<GroupId, PartitionStats>,
    pub(super) clients: Vec<ClientFacts>,
    pub(super) facts: Box<Facts>,
}

impl Gather {
    /// What the partition of a group holds, as far as it was told.
    pub(super) fn stats(&self, group: GroupId) -> PartitionStats {
        self.stats.get(&group).copied().unwrap_or(EMPTY_PARTITION)
    }
}

/// A question about partitions of this shard, some of which are still being recovered: nobody is
/// told that they are empty.
struct Asked {
    by: ShardIndex,
    number: u64,
    groups: Vec<GroupId>,
    until: Instant,
}

/// All reads that wait, by number.
#[derive(Default)]
pub(super) struct Gathers {
    waiting: BTreeMap<u64, Gather>,
    made: u64,
    asked: Vec<Asked>,
}

impl Gathers {
    /// Numbers ascend and all are given the same patience, so the first ends first.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiting
            .first_key_value()
            .map(|(_, gather)| gather.until)
    }
}

impl Shard {
    /// Begins to put an answer together: what this shard knows is in it at once.
    pub(super) fn gather(&mut self, ask: Ask, question: Question, wanted: BTreeSet<GroupId>) {
        self.gathers.made += 1;
        let number = self.gathers.made;
        let mut gather = Gather {
            ask,
            question,
            waiting: BTreeSet::new(),
            until: self.core.now.monotonic + PATIENCE,
            stats: BTreeMap::new(),
            clients: Vec::new(),
            facts: Box::default(),
        };
        self.ask_for_stats(number, wanted, &mut gather);
        if question.needs_clients() {
            self.ask_for_clients(number, &mut gather);
        }
        if question.needs_facts() {
            gather.waiting.insert(Part::Facts);
            let token = Token {
                owner: OWNER_SHARD,
                request: number,
            };
            let work = Work::Measure;
            self.core.out.push(Effect::Compute { token, work });
        }
        self.gathers.waiting.insert(number, gather);
        self.finish_gather(number);
    }

    fn ask_for_stats(&mut self, number: u64, wanted: BTreeSet<GroupId>, gather: &mut Gather) {
        let mut by_shard: BTreeMap<ShardIndex, Vec<GroupId>> = BTreeMap::new();
        for group in wanted {
            let shard = group.shard(self.core.config.shard_count);
            by_shard.entry(shard).or_default().push(group);
        }
        for (to, groups) in by_shard {
            if to == self.core.config.shard && !self.are_recovering(&groups) {
                for group in groups {
                    let stats = self.stats_of(group).unwrap_or(EMPTY_PARTITION);
                    gather.stats.insert(group, stats);
                }
                continue;
            }
            gather.waiting.insert(Part::Stats(to));
            if to == self.core.config.shard {
                self.on_stats_request(to, number, groups);
                continue;
            }
            let letter = Letter::StatsRequest { number, groups };
            self.core.out.push(Effect::Post { to, letter });
        }
    }

    fn ask_for_clients(&mut self, number: u64, gather: &mut Gather) {
        gather.clients.extend(self.connections.facts());
        for to in (0..self.core.config.shard_count).map(ShardIndex) {
            if to != self.core.config.shard {
                gather.waiting.insert(Part::Clients(to));
            }
        }
        self.post_to_others(|| Letter::ClientsRequest { number });
    }

    fn stats_of(&self, group: GroupId) -> Option<PartitionStats> {
        let hosted = self.groups.get(&group)?;
        let partition = hosted.partition()?;
        let info = self.metadata.partition(group);
        if info.is_some_and(|info| !hosted.has_purged(info.purges)) {
            // The purge that empties it is on its way, and whoever asked for it may know.
            return Some(EMPTY_PARTITION);
        }
        Some(PartitionStats {
            current_offset: partition.current_offset().0,
            size_bytes: partition.size_bytes(),
            messages_count: partition.messages_count(),
            segments_count: u32::try_from(partition.segments_count()).unwrap_or(u32::MAX),
        })
    }

    /// Whether the state of one of these partitions is not what its log makes of it, yet.
    fn are_recovering(&self, groups: &[GroupId]) -> bool {
        groups.iter().any(|group| match self.groups.get(group) {
            Some(hosted) => hosted.is_recovering(),
            None => !self.is_gone(*group),
        })
    }

    pub(super) fn on_stats_request(&mut self, by: ShardIndex, number: u64, groups: Vec<GroupId>) {
        self.gathers.asked.push(Asked {
            by,
            number,
            groups,
            until: self.core.now.monotonic + PATIENCE,
        });
        self.answer_asked();
    }

    /// Tells what partitions hold, once all that were asked for have recovered.
    pub(super) fn answer_asked(&mut self) {
        let now = self.core.now.monotonic;
        for asked in ::core::mem::take(&mut self.gathers.asked) {
            if !self.are_recovering(&asked.groups) {
                self.answer_stats(&asked);
            } else if asked.until > now {
                base::sometimes!("server: the numbers of a partition wait for its recovery");
                self.gathers.asked.push(asked);
            }
        }
    }

    fn answer_stats(&mut self, asked: &Asked) {
        let found = asked.groups.iter().filter_map(|group| {
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
        let (number, stats) = (asked.number, found.collect::<Vec<_>>());
        if asked.by == self.core.config.shard {
            return self.on_stats_reply(asked.by, number, &stats);
        }
        let letter = Letter::StatsReply { number, stats };
        self.core.out.push(Effect::Post {
            to: asked.by,
            letter,
        });
    }

    pub(super) fn on_stats_reply(
        &mut self,
        from: ShardIndex,
        number: u64,
        stats: &[(GroupId, GroupStats)],
    ) {
        self.add_part(number, Part::Stats(from), |gather| {
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
        });
    }

    pub(super) fn on_clients_request(&mut self, from: ShardIndex, number: u64) {
        let clients = self.connections.facts().collect();
        let letter = Letter::ClientsReply { number, clients };
        self.core.out.push(Effect::Post { to: from, letter });
    }

    pub(super) fn on_clients_reply(
        &mut self,
        from: ShardIndex,
        number: u64,
        clients: Vec<ClientFacts>,
    ) {
        self.add_part(number, Part::Clients(from), |gather| {
            gather.clients.extend(clients);
        });
    }

    pub(super) fn on_measured(&mut self, number: u64, facts: Box<Facts>) {
        self.add_part(number, Part::Facts, |gather| gather.facts = facts);
    }

    /// A part has come; nobody waits for one that comes too late.
    fn add_part(&mut self, number: u64, part: Part, add: impl FnOnce(&mut Gather)) {
        if let Some(gather) = self.gathers.waiting.get_mut(&number)
            && gather.waiting.remove(&part)
        {
            add(gather);
            self.finish_gather(number);
        }
    }

    fn finish_gather(&mut self, number: u64) {
        let complete = |gather: &Gather| gather.waiting.is_empty();
        if self.gathers.waiting.get(&number).is_some_and(complete)
            && let Some(gather) = self.gathers.waiting.remove(&number)
        {
            self.answer_gathered(&gather);
        }
    }

    /// Answers what has waited too long with what there is, if a part is as good as an answer.
    pub(super) fn expire_gathers(&mut self) {
        let now = self.core.now.monotonic;
        while self.gathers.deadline().is_some_and(|until| until <= now) {
            let Some((_, gather)) = self.gathers.waiting.pop_first() else {
                return;
            };
            if gather.question.may_be_partial() {
                self.answer_gathered(&gather);
            } else {
                let refusal = gather.ask.refuse(ErrorCode::TRANSIENT_NOT_ACCEPTED);
                self.core.answers.push(refusal);
            }
        }
    }
}
