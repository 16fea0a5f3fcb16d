//! What commits first has been acknowledged by a replication quorum, each time anew: in the view
//! of the primary that commits it, and not in one before.
//!
//! A breach shows here at once, long before so many disks are lost that somebody misses the op.
//!
//! Source: VR Revisited §4.1, step 5 (f `prepare_ok` and the primary's own log).

use std::collections::BTreeMap;

use base::{GroupId, Op, View};

use super::{Verdict, ensure};

const CHECK: &str = "quorum";

/// A replica's part in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) view: View,
    pub(crate) primary: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Quorum {
    /// The highest op that a replica has acknowledged in a view.
    acknowledged: BTreeMap<(GroupId, u8, View), Op>,
    /// Of replicas that are in normal operation.
    parts: BTreeMap<(GroupId, u8), Part>,
}

impl Quorum {
    pub(crate) fn on_prepare_ok(&mut self, node: u8, group: GroupId, view: View, op: Op) {
        let acknowledged = self.acknowledged.entry((group, node, view)).or_default();
        *acknowledged = op.max(*acknowledged);
    }

    /// A replica has begun a view, or left one if `part` is none.
    pub(crate) fn on_part(&mut self, node: u8, group: GroupId, part: Option<Part>) {
        match part {
            Some(part) => self.parts.insert((group, node), part),
            None => self.parts.remove(&(group, node)),
        };
    }

    /// A process has ended.
    pub(crate) fn on_stopped(&mut self, node: u8) {
        self.parts.retain(|(_, at), _| *at != node);
    }

    /// An op enters the history of its group, at `node` first. One that comes back from a
    /// restart, or out of a view change, knows it from others and is not asked.
    pub(crate) fn on_committed(
        &self,
        time: u64,
        (node, replicas): (u8, u8),
        (group, op): (GroupId, Op),
        prepared: View,
    ) -> Verdict {
        let Some(part) = self.parts.get(&(group, node)) else {
            return Ok(());
        };
        // A backup may hear of the commit only from the primary of its view or a later one.
        let since = if part.primary { part.view } else { prepared };
        let has = |other: u8| {
            let views = (group, other, since)..=(group, other, part.view);
            self.acknowledged
                .range(views)
                .any(|(_, acked)| *acked >= op)
        };
        let others = (0..replicas).filter(|&other| (other != node || !part.primary) && has(other));
        let copies = others.count() + 1;
        let needed = usize::from(replicas - replicas / 2);
        ensure(copies >= needed, CHECK, time, || {
            format!(
                "replica {node} commits {group} op {op} in view {} on the word of {copies} of \
                 {replicas}",
                part.view
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(9);

    fn leading(view: u32) -> Quorum {
        let mut quorum = Quorum::default();
        let primary = true;
        let part = Part {
            view: View(view),
            primary,
        };
        quorum.on_part(0, GROUP, Some(part));
        quorum
    }

    #[test]
    fn a_commit_needs_acknowledgements_of_its_view() {
        let mut quorum = leading(5);
        let commit = |quorum: &Quorum| quorum.on_committed(0, (0, 5), (GROUP, Op(3)), View(4));
        quorum.on_prepare_ok(1, GROUP, View(5), Op(3));
        assert!(commit(&quorum).is_err());
        quorum.on_prepare_ok(2, GROUP, View(0), Op(9));
        assert!(commit(&quorum).is_err());
        quorum.on_prepare_ok(2, GROUP, View(5), Op(2));
        assert!(commit(&quorum).is_err());
        quorum.on_prepare_ok(2, GROUP, View(5), Op(4));
        assert!(commit(&quorum).is_ok());
    }

    #[test]
    fn a_backup_commits_what_its_primary_could() {
        let mut quorum = Quorum::default();
        let primary = false;
        let view = View(2);
        quorum.on_part(1, GROUP, Some(Part { view, primary }));
        let commit = |quorum: &Quorum| quorum.on_committed(0, (1, 3), (GROUP, Op(3)), View(2));
        assert!(commit(&quorum).is_err());
        quorum.on_prepare_ok(1, GROUP, view, Op(3));
        assert!(commit(&quorum).is_ok());
        quorum.on_stopped(1);
        assert!(
            quorum
                .on_committed(0, (1, 3), (GROUP, Op(8)), View(2))
                .is_ok()
        );
    }
}
