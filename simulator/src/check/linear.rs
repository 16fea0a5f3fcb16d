//! Each partition is linearizable, by an order certificate: the log is the order, and it respects
//! the real time of the calls; what was read is what the log holds.
//!
//! - An op of a call that ended before another call began stands before that call's op.
//! - A poll returns committed messages of its own partition, contiguous, each at its offset; no
//!   offset ever shows two payloads.
//! - An offset read is one that the log has stored, or none.
//!
//! Writes are certified in O(1) per op. Reads may lag (a poll returns a *prefix* of the log), so
//! only their content is certified, not their recency.
//!
//! Source: Herlihy and Wing 1990; the certificate is TigerBeetle's observation that the commit
//! order of a log is a valid linearization if each commit lies within its call.

use std::collections::{BTreeMap, BTreeSet};

use base::{ClientId, GroupId};

use super::{Failure, Verdict, committed::Committed, ensure, trims::Trims};

const CHECK: &str = "linear";

/// A partition as clients name it; topic names are never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) topic: u64,
    pub(crate) partition: u32,
}

/// When a call began and ended; `u64::MAX` if its outcome is unknown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// A message as the log or a poll has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) offset: u64,
    /// Hash of the payload; payloads are never used twice.
    pub(crate) payload: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Linear {
    messages: BTreeMap<GroupId, Vec<u64>>,
    /// How far trims may have gone.
    pub(crate) trims: Trims,
    /// When each group was purged: what was placed before is of an earlier life of its log.
    purged: BTreeMap<GroupId, Vec<u64>>,
    /// In which life of it, as well.
    placed: BTreeMap<u64, (GroupId, u64, usize)>,
    target_of: BTreeMap<GroupId, Target>,
    groups_of: BTreeMap<Target, BTreeSet<GroupId>>,
    /// Every offset that the log has stored for a consumer.
    stored: BTreeMap<(GroupId, u32), BTreeSet<u64>>,
    /// What consumers were shown, independently of what the log is taken for.
    shown: BTreeMap<(Target, GroupId, usize, u64), u64>,
}

impl Linear {
    /// A batch for `target` was committed in `group`.
    pub(crate) fn on_batch(
        &mut self,
        time: u64,
        group: GroupId,
        target: Target,
        batch: &[Message],
    ) -> Verdict {
        self.on_target(time, group, target)?;
        let life = self.life(group);
        let log = self.messages.entry(group).or_default();
        for message in batch {
            ensure(message.offset == log.len() as u64, CHECK, time, || {
                format!(
                    "{group} has a message at offset {} after {}",
                    message.offset,
                    log.len()
                )
            })?;
            log.push(message.payload);
            let before = self
                .placed
                .insert(message.payload, (group, message.offset, life));
            // A retry may find the partition deleted and created anew: the log that knew the
            // request is gone with its messages, and the new one has the message once.
            let gone = |(old, ..): &(GroupId, u64, usize)| *old < group;
            ensure(before.as_ref().is_none_or(gone), CHECK, time, || {
                format!(
                    "a message of {group} at {} stands twice, also at {before:?}",
                    message.offset
                )
            })?;
        }
        Ok(())
    }

    /// How often a group has been purged.
    fn life(&self, group: GroupId) -> usize {
        self.purged.get(&group).map_or(0, Vec::len)
    }

    /// All messages of a group are gone, and its offsets begin anew.
    pub(crate) fn on_purge(&mut self, time: u64, group: GroupId) {
        self.messages.remove(&group);
        self.trims.on_purge(group);
        self.purged.entry(group).or_default().push(time);
    }

    /// A call that began at `start` was served these messages: none of them had been purged then.
    pub(crate) fn check_fresh(&self, time: u64, start: u64, messages: &[Message]) -> Verdict {
        let Some(first) = messages.first() else {
            return Ok(());
        };
        let Some(&(group, offset, life)) = self.placed.get(&first.payload) else {
            return Ok(());
        };
        let ended = self.purged.get(&group).and_then(|purges| purges.get(life));
        ensure(
            ended.is_none_or(|ended| start <= *ended),
            CHECK,
            time,
            || format!("{group} shows offset {offset} of before a purge to a poll after it"),
        )
    }

    /// A poll from offset `due` on was served these messages: what it skips has been trimmed.
    pub(crate) fn check_start(&self, time: u64, due: u64, messages: &[Message]) -> Verdict {
        let Some(first) = messages.first() else {
            return Ok(());
        };
        let Some(&(group, offset, life)) = self.placed.get(&first.payload) else {
            return Ok(());
        };
        let start_max = self.trims.start_max(group);
        let over = life < self.life(group);
        ensure(over || offset <= due.max(start_max), CHECK, time, || {
            format!(
                "{group} serves a poll from {due} on at {offset}, but no more than {start_max} \
                 may have been trimmed"
            )
        })
    }

    /// An op for `target` was committed in `group`.
    /// A group belongs to this target.
    pub(crate) fn on_target(&mut self, time: u64, group: GroupId, target: Target) -> Verdict {
        let known = *self.target_of.entry(group).or_insert(target);
        self.groups_of.entry(target).or_default().insert(group);
        ensure(known == target, CHECK, time, || {
            format!("{group} is {known:?} and has an op for {target:?}")
        })
    }

    /// The log has stored an offset.
    pub(crate) fn on_store(
        &mut self,
        time: u64,
        group: GroupId,
        target: Target,
        (consumer, offset): (u32, u64),
    ) -> Verdict {
        self.on_target(time, group, target)?;
        self.stored
            .entry((group, consumer))
            .or_default()
            .insert(offset);
        Ok(())
    }

    /// A poll of `target` has returned these messages.
    pub(crate) fn on_poll(&mut self, time: u64, target: Target, messages: &[Message]) -> Verdict {
        let fail = |message: String| {
            Err(Failure {
                check: CHECK,
                time,
                message,
            })
        };
        let mut group_first = None;
        for (index, message) in messages.iter().enumerate() {
            let offset = message.offset;
            let expected = messages[0].offset + index as u64;
            ensure(offset == expected, CHECK, time, || {
                format!("a poll of {target:?} returns offset {offset} where {expected} is due")
            })?;
            let Some(&(group, place, life)) = self.placed.get(&message.payload) else {
                return fail(format!(
                    "a poll of {target:?} returns at offset {offset} what is nowhere committed"
                ));
            };
            let first = *group_first.get_or_insert((group, life));
            let right = place == offset && (group, life) == first;
            ensure(
                right && self.target_of.get(&group) == Some(&target),
                CHECK,
                time,
                || {
                    format!(
                        "a poll of {target:?} returns at offset {offset} \
                         what is {group} offset {place}"
                    )
                },
            )?;
            let shown = *self
                .shown
                .entry((target, group, life, offset))
                .or_insert(message.payload);
            ensure(shown == message.payload, CHECK, time, || {
                format!("{target:?} has shown two payloads at offset {offset}")
            })?;
        }
        Ok(())
    }

    /// A poll that stores what it has read is answered: that, or more, stands in the log by then.
    pub(crate) fn on_auto_commit(
        &self,
        time: u64,
        target: Target,
        consumer: u32,
        last: u64,
    ) -> Verdict {
        let groups = self.groups_of.get(&target).into_iter().flatten();
        let stored = groups
            .filter_map(|group| self.stored.get(&(*group, consumer)))
            .any(|stored| stored.last().is_some_and(|&stored| stored >= last));
        ensure(stored, CHECK, time, || {
            format!(
                "consumer {consumer} is served {target:?} up to {last} \
                 and to store that, which the log has not"
            )
        })
    }

    /// The partition that a group is, as far as its messages have shown it.
    pub(crate) fn target_of(&self, group: GroupId) -> Option<Target> {
        self.target_of.get(&group).copied()
    }

    /// A consumer was told its offset.
    pub(crate) fn on_offset(
        &self,
        time: u64,
        target: Target,
        consumer: u32,
        offset: Option<u64>,
    ) -> Verdict {
        let Some(offset) = offset else { return Ok(()) };
        let groups = self.groups_of.get(&target).into_iter().flatten();
        let known = groups
            .filter_map(|group| self.stored.get(&(*group, consumer)))
            .any(|stored| stored.contains(&offset));
        ensure(known, CHECK, time, || {
            format!(
                "consumer {consumer} is told offset {offset} of {target:?}, \
                 which the log never stored"
            )
        })
    }

    /// What a send was told fits what the log holds.
    pub(crate) fn on_confirmed(
        &self,
        time: u64,
        payload: u64,
        base_offset: Option<u64>,
    ) -> Verdict {
        let Some(&(group, offset, _)) = self.placed.get(&payload) else {
            let message = "a send is confirmed whose messages are nowhere committed".into();
            return Err(Failure {
                check: CHECK,
                time,
                message,
            });
        };
        ensure(
            base_offset.is_none_or(|base| base == offset),
            CHECK,
            time,
            || {
                format!(
                    "a send is confirmed at {base_offset:?}, \
                     its messages are {group} offset {offset}"
                )
            },
        )
    }

    /// The group of a partition; the newest, if it was deleted and made again.
    pub(crate) fn newest_group_of(&self, target: Target) -> Option<GroupId> {
        self.groups_of.get(&target)?.last().copied()
    }
}

/// Commit order respects the real time of calls.
pub(crate) fn check_order(
    time: u64,
    committed: &Committed,
    window: impl Fn(ClientId, u64) -> Option<Window>,
) -> Verdict {
    for (group, history) in &committed.groups {
        let (mut latest_start, mut latest_op) = (0, 0);
        for (index, op) in history.iter().enumerate() {
            let Some(Window { start, end }) = window(op.client, op.request) else {
                continue;
            };
            ensure(end >= latest_start, CHECK, time, || {
                format!(
                    "{group} op {} was done at {end}, \
                     before the call of op {latest_op} began at {latest_start}",
                    index + 1
                )
            })?;
            ensure(op.time >= start, CHECK, time, || {
                format!(
                    "{group} op {} was committed before its call began",
                    index + 1
                )
            })?;
            if start > latest_start {
                (latest_start, latest_op) = (start, index + 1);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::committed::tests::prepare, *};
    use wire::replica::PrepareHeader;

    const GROUP: GroupId = GroupId(1 << 10);
    const TARGET: Target = Target {
        topic: 1,
        partition: 0,
    };

    const fn message(offset: u64, payload: u64) -> Message {
        Message { offset, payload }
    }

    fn with_log() -> Linear {
        let mut checker = Linear::default();
        let batch = [message(0, 100), message(1, 101), message(2, 102)];
        checker.on_batch(0, GROUP, TARGET, &batch).expect("dense");
        checker
            .on_store(0, GROUP, TARGET, (9, 1))
            .expect("same target");
        checker
    }

    #[test]
    fn reads_of_the_log_pass() {
        let mut checker = with_log();
        assert_eq!(
            checker.on_poll(0, TARGET, &[message(1, 101), message(2, 102)]),
            Ok(())
        );
        assert_eq!(checker.on_poll(0, TARGET, &[]), Ok(()));
        assert_eq!(checker.on_offset(0, TARGET, 9, Some(1)), Ok(()));
        assert_eq!(checker.on_offset(0, TARGET, 9, None), Ok(()));
        assert_eq!(checker.on_confirmed(0, 100, Some(0)), Ok(()));
    }

    #[test]
    fn what_is_purged_is_not_shown_to_whoever_asks_afterwards() {
        let mut checker = with_log();
        checker.on_purge(50, GROUP);
        let old = [message(0, 100)];
        assert_eq!(checker.check_fresh(60, 40, &old), Ok(()));
        assert!(checker.check_fresh(60, 55, &old).is_err());
        let new = [message(0, 200)];
        assert_eq!(checker.on_batch(60, GROUP, TARGET, &new), Ok(()));
        assert_eq!(checker.on_poll(70, TARGET, &old), Ok(()));
        assert_eq!(checker.on_poll(70, TARGET, &new), Ok(()));
        assert_eq!(checker.check_fresh(70, 65, &new), Ok(()));
        let both = [message(0, 200), message(1, 101)];
        assert!(checker.on_poll(70, TARGET, &both).is_err());
    }

    #[test]
    fn a_message_stands_once_in_what_exists() {
        let (newer, older) = (GroupId(2 << 10), GroupId(1));
        let again = [message(0, 100)];
        assert_eq!(with_log().on_batch(0, newer, TARGET, &again), Ok(()));
        assert!(with_log().on_batch(0, older, TARGET, &again).is_err());
        let again = [message(3, 100)];
        assert!(with_log().on_batch(0, GROUP, TARGET, &again).is_err());
    }

    #[test]
    fn reads_of_anything_else_fail() {
        let mut checker = with_log();
        let other = Target {
            topic: 2,
            partition: 0,
        };
        assert!(checker.on_poll(0, TARGET, &[message(3, 103)]).is_err());
        assert!(checker.on_poll(0, TARGET, &[message(0, 101)]).is_err());
        assert!(
            checker
                .on_poll(0, TARGET, &[message(0, 100), message(2, 102)])
                .is_err()
        );
        assert!(checker.on_poll(0, other, &[message(0, 100)]).is_err());
        assert_eq!(checker.on_auto_commit(0, TARGET, 9, 1), Ok(()));
        assert!(checker.on_auto_commit(0, TARGET, 9, 2).is_err());
        assert!(checker.on_auto_commit(0, TARGET, 8, 0).is_err());
        assert!(checker.on_offset(0, TARGET, 9, Some(2)).is_err());
        assert!(checker.on_offset(0, other, 9, Some(1)).is_err());
        assert!(checker.on_confirmed(0, 100, Some(1)).is_err());
        assert!(checker.on_confirmed(0, 999, None).is_err());
    }

    #[test]
    fn one_payload_at_two_offsets_and_one_group_for_two_partitions_fail() {
        let mut checker = with_log();
        assert!(
            checker
                .on_batch(0, GROUP, TARGET, &[message(3, 100)])
                .is_err()
        );
        let other = Target {
            topic: 1,
            partition: 1,
        };
        assert!(
            checker
                .on_batch(0, GROUP, other, &[message(4, 104)])
                .is_err()
        );
    }

    fn history() -> Committed {
        let mut committed = Committed::default();
        let mut parent = 0;
        for op in 1..=2 {
            let frame = prepare(op, parent, 7, op);
            let header = PrepareHeader::decode(&frame).expect("valid");
            parent = header.checksum;
            committed
                .on_committed(50, 0, &header, &frame)
                .expect("chained");
        }
        committed
    }

    #[test]
    fn the_log_respects_real_time() {
        let committed = history();
        let overlapping = |_, request: u64| {
            Some(Window {
                start: request * 10,
                end: 60,
            })
        };
        assert_eq!(check_order(0, &committed, overlapping), Ok(()));
        let swapped = |_, request: u64| match request {
            1 => Some(Window { start: 30, end: 60 }),
            _ => Some(Window { start: 10, end: 20 }),
        };
        assert!(check_order(0, &committed, swapped).is_err());
        let too_early = |_, _| Some(Window { start: 51, end: 60 });
        assert!(check_order(0, &committed, too_early).is_err());
    }
}
