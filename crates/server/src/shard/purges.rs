//! Who waits for partitions to be purged. The answer to a purge leaves once every partition it is
//! about has let go of its messages: what is asked afterwards, wherever, finds it empty.
//!
//! ```text
//!   shard 0: purge applied ─▶ watches its own partitions, and asks the other shards to
//!   each shard: its partitions have been purged, or are gone ─▶ says so ─▶ shard 0 answers
//! ```
//!
//! A partition whose replica here has applied the purge has committed it, so its primary serves
//! nothing of before. Nobody waits longer than the client does.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use base::{GroupId, Instant, ShardIndex};
use metadata::PartitionInfo;
use platform::{Effect, Letter};

use super::Shard;
use crate::ask::Answer;

/// Partitions of this shard that somebody waits for.
struct Watch {
    /// Who asks, and by which number.
    asker: (ShardIndex, u64),
    /// Each with how often it must have been purged.
    left: Vec<(GroupId, u64)>,
    until: Instant,
}

/// An answer that waits for shards.
struct Wait {
    answer: Answer,
    left: BTreeSet<ShardIndex>,
    until: Instant,
}

/// All that wait.
#[derive(Default)]
pub(super) struct Purges {
    watches: Vec<Watch>,
    waits: BTreeMap<u64, Wait>,
    waits_made: u64,
}

impl Shard {
    /// Sends an answer once these partitions have been purged.
    pub(super) fn answer_when_purged(&mut self, answer: Answer, partitions: &[PartitionInfo]) {
        let mut wanted: BTreeMap<ShardIndex, Vec<(GroupId, u64)>> = BTreeMap::new();
        for info in partitions {
            let shard = info.group.shard(self.core.config.shard_count);
            wanted
                .entry(shard)
                .or_default()
                .push((info.group, info.purges));
        }
        if wanted.is_empty() {
            return self.core.answers.push(answer);
        }
        let now = self.core.now.monotonic;
        let until = now + self.core.config.timing.request;
        self.purges.waits.retain(|_, wait| wait.until > now);
        self.purges.waits_made += 1;
        let number = self.purges.waits_made;
        let left = wanted.keys().copied().collect();
        let wait = Wait {
            answer,
            left,
            until,
        };
        self.purges.waits.insert(number, wait);
        let own = self.core.config.shard;
        for (to, groups) in wanted {
            if to == own {
                self.on_purge_watch(own, number, groups);
            } else {
                let letter = Letter::PurgeWatch { number, groups };
                self.core.out.push(Effect::Post { to, letter });
            }
        }
    }

    /// A shard wants to know when partitions of this one have been purged.
    pub(super) fn on_purge_watch(
        &mut self,
        from: ShardIndex,
        number: u64,
        left: Vec<(GroupId, u64)>,
    ) {
        let until = self.core.now.monotonic + self.core.config.timing.request;
        self.purges.watches.push(Watch {
            asker: (from, number),
            left,
            until,
        });
        self.check_purges();
    }

    /// A partition has been purged or deleted: somebody may wait for it.
    pub(super) fn check_purges(&mut self) {
        let now = self.core.now.monotonic;
        let mut watches = ::core::mem::take(&mut self.purges.watches);
        watches.retain_mut(|watch| {
            watch
                .left
                .retain(|(group, purges)| self.is_unpurged(*group, *purges));
            if watch.left.is_empty() {
                let (asker, number) = watch.asker;
                if asker == self.core.config.shard {
                    self.on_purge_done(asker, number);
                } else {
                    let letter = Letter::PurgeDone { number };
                    self.core.out.push(Effect::Post { to: asker, letter });
                }
                return false;
            }
            watch.until > now
        });
        self.purges.watches = watches;
    }

    fn is_unpurged(&self, group: GroupId, purges: u64) -> bool {
        let hosted = self.groups.get(&group);
        self.metadata.partition(group).is_some()
            && hosted.is_some_and(|hosted| !hosted.has_purged(purges))
    }

    /// All partitions of a shard have been purged.
    pub(super) fn on_purge_done(&mut self, from: ShardIndex, number: u64) {
        let Some(wait) = self.purges.waits.get_mut(&number) else {
            return;
        };
        wait.left.remove(&from);
        if wait.left.is_empty()
            && let Some(wait) = self.purges.waits.remove(&number)
        {
            self.core.answers.push(wait.answer);
        }
    }
}
