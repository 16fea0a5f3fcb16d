//! No trim takes what a consumer has still to read, unless it says so; and no poll starts behind
//! more than trims have taken.
//!
//! From the one history of a group this works out, on its own, how far trims may have gone: the
//! end of the last messages before the op that a trim names, and if it does not pass consumers, no
//! further than the slowest has stored at that moment.
//!
//! Source: `features.md` §1.3 (consumer barrier).

use std::collections::BTreeMap;

use base::{GroupId, Op};

use crate::workload::is_group;

/// One group since its last purge.
#[derive(Debug, Default)]
struct Trimmed {
    /// Where the messages of each op end.
    ends: BTreeMap<Op, u64>,
    /// What each consumer has stored.
    stored: BTreeMap<u32, u64>,
    /// No message below this need be there.
    start_max: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Trims {
    groups: BTreeMap<GroupId, Trimmed>,
}

impl Trims {
    pub(crate) fn on_batch(&mut self, group: GroupId, op: Op, end: u64) {
        self.groups.entry(group).or_default().ends.insert(op, end);
    }

    pub(crate) fn on_purge(&mut self, group: GroupId) {
        self.groups.remove(&group);
    }

    /// An offset was stored: by a client as it says, by a poll only upwards.
    pub(crate) fn on_store(&mut self, group: GroupId, consumer: u32, offset: u64, lowers: bool) {
        let stored = &mut self.groups.entry(group).or_default().stored;
        let known = stored.entry(consumer).or_insert(offset);
        *known = if lowers { offset } else { offset.max(*known) };
    }

    pub(crate) fn on_delete(&mut self, group: GroupId, consumer: u32) {
        let trimmed = self.groups.entry(group).or_default();
        trimmed.stored.remove(&consumer);
    }

    /// Some consumer group is deleted: what it has stored holds nothing back.
    pub(crate) fn on_group_deleted(&mut self) {
        for trimmed in self.groups.values_mut() {
            trimmed.stored.retain(|consumer, _| !is_group(*consumer));
        }
    }

    pub(crate) fn on_trim(&mut self, group: GroupId, before: Op, past_consumers: bool) {
        let trimmed = self.groups.entry(group).or_default();
        let last = trimmed.ends.range(..before).next_back();
        let end = last.map_or(0, |(_, end)| *end);
        let slowest = trimmed
            .stored
            .values()
            .min()
            .map_or(u64::MAX, |min| min + 1);
        let limit = if past_consumers {
            end
        } else {
            end.min(slowest)
        };
        trimmed.start_max = trimmed.start_max.max(limit);
    }

    /// The highest offset that the log of a group may begin with.
    pub(crate) fn start_max(&self, group: GroupId) -> u64 {
        self.groups
            .get(&group)
            .map_or(0, |trimmed| trimmed.start_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(1 << 10);

    #[test]
    fn a_trim_goes_as_far_as_it_says_and_the_slowest_has_read() {
        let mut checker = Trims::default();
        for op in 1..=5 {
            checker.on_batch(GROUP, Op(op), op * 10);
        }
        assert_eq!(checker.start_max(GROUP), 0);
        checker.on_trim(GROUP, Op(3), false);
        assert_eq!(checker.start_max(GROUP), 20);
        checker.on_store(GROUP, 1, 24, true);
        checker.on_store(GROUP, 2, 44, true);
        checker.on_store(GROUP, 1, 11, false);
        checker.on_trim(GROUP, Op(5), false);
        assert_eq!(checker.start_max(GROUP), 25);
        checker.on_delete(GROUP, 1);
        checker.on_trim(GROUP, Op(5), false);
        assert_eq!(checker.start_max(GROUP), 40);
        checker.on_store(GROUP, 2, 3, true);
        checker.on_trim(GROUP, Op(9), true);
        assert_eq!(checker.start_max(GROUP), 50);
        checker.on_purge(GROUP);
        assert_eq!(checker.start_max(GROUP), 0);
    }
}
