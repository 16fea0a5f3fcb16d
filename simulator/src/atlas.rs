//! The fault atlas: what may happen to which node without breaking what the cluster promises.
//!
//! A cluster of n replicas survives f = (n - 1) / 2 of them at fault. What counts as at fault:
//!
//! | fault | who is at fault | until |
//! |---|---|---|
//! | power loss, unless all is `persisted` | the node | all its shards trust their logs again |
//! | wiped disk | the node | the same |
//! | damage to the last segment of a log | the node | the damaged records are whole again |
//! | a new partition, taken for one it may have lost | the node | the shard trusts its logs |
//! | damage to a sealed segment | the copy of each record touched | never: the copies are counted |
//!
//! At most f nodes are at fault at a time. A sealed record may be damaged while n - f *other*
//! nodes hold it whole and durable, so that every record of every node may be damaged in the
//! course of a run, each on another minority, and none is ever lost. View stores are damaged by
//! crashes only, since a node alone knows what it has voted.
//!
//! **Invariant:** it knows numbers and not the world, so all of it is tested below.

use std::collections::{BTreeMap, BTreeSet};

use base::GroupId;

/// Which part of a log is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A segment that a later one follows.
    Sealed {
        /// How many other nodes hold all that is touched whole and durable.
        copies: u8,
    },
    /// The last segment, whose end is not known to anyone else.
    Last,
}

/// What the atlas is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    pub(crate) replicas: u8,
    pub(crate) shards: u16,
    /// Every topic is `persisted`: a power loss takes nothing that was acknowledged.
    pub(crate) all_persisted: bool,
    /// Everything is admitted, and the cluster must notice.
    pub(crate) broken: bool,
}

impl Promise {
    /// How many nodes may be at fault at a time.
    const fn faulty_max(&self) -> u8 {
        (self.replicas - 1) / 2
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Atlas {
    promise: Promise,
    /// Nodes whose logs may lack what they have acknowledged.
    doubtful: BTreeMap<u8, Doubt>,
    /// Nodes with damage in a last segment.
    damaged: BTreeSet<u8>,
    /// Logs that are filled from the others', or have said that they doubt their end: no
    /// witnesses until all of their shard's are again.
    filling: BTreeSet<(u8, GroupId)>,
}

/// How far a doubtful node has come.
#[derive(Debug, Default)]
struct Doubt {
    trusted: BTreeSet<u16>,
    complete_at: Option<u64>,
}

/// After which what a node says of its logs is durable.
const SETTLED: u64 = 1_000_000;

impl Atlas {
    pub(crate) const fn new(promise: Promise) -> Self {
        Self {
            promise,
            doubtful: BTreeMap::new(),
            damaged: BTreeSet::new(),
            filling: BTreeSet::new(),
        }
    }

    /// May `node` lose power now? If so, it is at fault from now on.
    pub(crate) fn admit_power_loss(&mut self, time: u64, node: u8) -> bool {
        if self.promise.all_persisted || self.promise.broken {
            return true;
        }
        self.admit_doubt(time, node)
    }

    /// May `node` lose its disk now? `others_damaged` if another node has damage that is not
    /// repaired, for which this one may hold the copy.
    pub(crate) fn admit_wipe(&mut self, time: u64, node: u8, others_damaged: bool) -> bool {
        if self.promise.broken {
            return true;
        }
        if others_damaged || !self.admit_doubt(time, node) {
            return false;
        }
        self.damaged.remove(&node);
        true
    }

    /// May a part of a log of `node` be damaged now?
    pub(crate) fn admit_damage(&mut self, time: u64, node: u8, part: Part) -> bool {
        if self.promise.broken {
            return true;
        }
        match part {
            Part::Sealed { copies } => copies >= self.promise.replicas - self.promise.faulty_max(),
            Part::Last => {
                let admitted = self.may_fail(time, node);
                if admitted {
                    self.damaged.insert(node);
                }
                admitted
            }
        }
    }

    fn admit_doubt(&mut self, time: u64, node: u8) -> bool {
        let admitted = self.may_fail(time, node);
        if admitted {
            self.doubtful.insert(node, Doubt::default());
        }
        admitted
    }

    fn may_fail(&mut self, time: u64, node: u8) -> bool {
        self.settle(time);
        let faulty: BTreeSet<u8> = self
            .doubtful
            .keys()
            .chain(&self.damaged)
            .copied()
            .chain(self.filling.iter().map(|(node, _)| *node))
            .filter(|faulty| *faulty != node)
            .collect();
        faulty.len() < usize::from(self.promise.faulty_max())
    }

    /// The process of `node` has ended: what it said a moment ago may not be durable.
    pub(crate) fn on_stop(&mut self, time: u64, node: u8) {
        self.settle(time);
        if let Some(doubt) = self.doubtful.get_mut(&node) {
            *doubt = Doubt::default();
        }
    }

    /// A log of `node` has been found at a start, trusted or not.
    pub(crate) fn on_recovered(&mut self, node: u8, group: GroupId, trusted: bool) {
        if trusted {
            self.filling.remove(&(node, group));
        } else if group != GroupId::METADATA {
            // Also without a fault: who is not part of the cluster yet takes a new partition for
            // one that it may have lost.
            self.filling.insert((node, group));
        }
    }

    /// A log of `node` is no witness of what it has acknowledged.
    pub(crate) fn on_doubt(&mut self, node: u8, group: GroupId) {
        self.filling.insert((node, group));
    }

    /// A shard trusts its logs again.
    pub(crate) fn on_trusted(&mut self, time: u64, node: u8, shard: u16) {
        let shards = self.promise.shards;
        let of_it = |at: u8, group: GroupId| at == node && group.shard(shards).0 == shard;
        self.filling.retain(|(at, group)| !of_it(*at, *group));
        if let Some(doubt) = self.doubtful.get_mut(&node) {
            doubt.trusted.insert(shard);
            if doubt.trusted.len() == usize::from(self.promise.shards) {
                doubt.complete_at = Some(time);
            }
        }
    }

    /// Whether the logs of `node` may lack what it has acknowledged, or end in damage.
    pub(crate) fn is_at_fault(&self, node: u8) -> bool {
        let filling = self.filling.iter().any(|(at, _)| *at == node);
        filling || self.doubtful.contains_key(&node) || self.damaged.contains(&node)
    }

    /// No damage is left in any last segment of `node`.
    pub(crate) fn on_repaired(&mut self, node: u8) {
        self.damaged.remove(&node);
    }

    /// Forgets doubts that have been settled.
    fn settle(&mut self, time: u64) {
        self.doubtful.retain(|_, doubt| {
            doubt
                .complete_at
                .is_none_or(|complete_at| time < complete_at + SETTLED)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMISE: Promise = Promise {
        replicas: 3,
        shards: 1,
        all_persisted: false,
        broken: false,
    };

    #[test]
    fn no_more_than_a_minority_is_in_doubt() {
        let mut atlas = Atlas::new(Promise {
            shards: 2,
            ..PROMISE
        });
        assert!(atlas.admit_power_loss(0, 0));
        assert!(atlas.admit_power_loss(0, 0));
        assert!(!atlas.admit_power_loss(0, 1));
        atlas.on_trusted(5, 0, 0);
        assert!(!atlas.admit_power_loss(5 + SETTLED, 1));
        atlas.on_trusted(6, 0, 1);
        assert!(!atlas.admit_power_loss(6, 1));
        assert!(atlas.admit_power_loss(6 + SETTLED, 1));
    }

    #[test]
    fn what_a_process_said_before_it_died_does_not_count() {
        let mut atlas = Atlas::new(PROMISE);
        assert!(atlas.admit_power_loss(0, 0));
        atlas.on_trusted(5, 0, 0);
        atlas.on_stop(6, 0);
        assert!(!atlas.admit_power_loss(5 + SETTLED, 1));
    }

    #[test]
    fn persisted_topics_survive_any_power_loss_but_not_any_wipe() {
        let mut atlas = Atlas::new(Promise {
            replicas: 5,
            all_persisted: true,
            ..PROMISE
        });
        assert!((0..5).all(|node| atlas.admit_power_loss(0, node)));
        assert!((0..2).all(|node| atlas.admit_wipe(0, node, false)));
        assert!(!atlas.admit_wipe(0, 2, false));
        assert!(atlas.admit_power_loss(0, 2));
    }

    #[test]
    fn every_node_may_be_damaged_where_enough_others_are_whole() {
        let mut atlas = Atlas::new(PROMISE);
        let sealed = |copies| Part::Sealed { copies };
        assert!((0..3).all(|node| atlas.admit_damage(0, node, sealed(2))));
        assert!((0..3).all(|node| !atlas.admit_damage(0, node, sealed(1))));
    }

    #[test]
    fn a_damaged_end_is_like_a_node_in_doubt_until_it_is_repaired() {
        let mut atlas = Atlas::new(PROMISE);
        assert!(atlas.admit_damage(0, 0, Part::Last));
        assert!(atlas.admit_damage(0, 0, Part::Last));
        assert!(!atlas.admit_damage(0, 1, Part::Last));
        assert!(!atlas.admit_power_loss(0, 1));
        assert!(!atlas.admit_wipe(0, 1, false));
        atlas.on_repaired(0);
        assert!(atlas.admit_wipe(0, 1, false));
        assert!(!atlas.admit_damage(0, 2, Part::Last));
    }

    #[test]
    fn a_disk_that_others_need_for_repair_is_not_wiped() {
        let mut atlas = Atlas::new(PROMISE);
        assert!(!atlas.admit_wipe(0, 0, true));
        assert!(atlas.admit_wipe(0, 0, false));
    }

    #[test]
    fn one_and_two_replicas_survive_no_lost_disk_and_a_broken_promise_none() {
        for replicas in 1..=2 {
            let mut atlas = Atlas::new(Promise {
                replicas,
                ..PROMISE
            });
            assert!(!atlas.admit_wipe(0, 0, false));
            assert!(!atlas.admit_damage(0, 0, Part::Last));
            let copies = replicas - 1;
            assert!(!atlas.admit_damage(0, 0, Part::Sealed { copies }));
            atlas.promise.broken = true;
            assert!(atlas.admit_wipe(0, 0, true));
            assert!(atlas.admit_damage(0, 0, Part::Last));
        }
    }
}
