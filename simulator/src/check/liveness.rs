//! After healing, the cluster converges: all replicas of all groups have one head, all of it
//! committed, in one view, under one primary.
//!
//! Source: FLP leaves this to timing, so it is asked only after faults have ended, within a bound.

use std::collections::BTreeMap;

use base::{GroupId, Op, View};

/// Where a replica of a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) view: View,
    pub(crate) normal: bool,
    pub(crate) commit: Op,
}

/// Why the cluster has not converged; none if it has. `heads` are the groups that must exist on
/// every node, with the last op of their history.
pub(crate) fn not_converged(
    nodes: u8,
    heads: &BTreeMap<GroupId, Op>,
    standings: &BTreeMap<(u8, GroupId), Standing>,
) -> Option<String> {
    for (&group, &head) in heads {
        let mut first: Option<Standing> = None;
        for node in 0..nodes {
            let Some(standing) = standings.get(&(node, group)) else {
                return Some(format!("replica {node} does not have {group}"));
            };
            if !standing.normal {
                return Some(format!("replica {node} is in a view change of {group}"));
            }
            if standing.commit != head {
                let commit = standing.commit;
                return Some(format!(
                    "replica {node} has committed {group} to {commit}, not {head}"
                ));
            }
            let view = first.get_or_insert(*standing).view;
            if view != standing.view {
                let other = standing.view;
                return Some(format!(
                    "{group} is in view {view} and, at {node}, in view {other}"
                ));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standings(of: [(u32, bool, u64); 2]) -> BTreeMap<(u8, GroupId), Standing> {
        let standing = |(node, (view, normal, commit)): (usize, (u32, bool, u64))| {
            let node = u8::try_from(node).expect("few");
            let standing = Standing {
                view: View(view),
                normal,
                commit: Op(commit),
            };
            ((node, GroupId::METADATA), standing)
        };
        of.into_iter().enumerate().map(standing).collect()
    }

    #[test]
    fn one_view_and_one_head_is_converged() {
        let heads = BTreeMap::from([(GroupId::METADATA, Op(4))]);
        let good = standings([(1, true, 4), (1, true, 4)]);
        assert_eq!(not_converged(2, &heads, &good), None);
    }

    #[test]
    fn a_laggard_a_view_change_two_views_and_a_missing_group_are_not() {
        let heads = BTreeMap::from([(GroupId::METADATA, Op(4))]);
        for bad in [
            standings([(1, true, 4), (1, true, 3)]),
            standings([(1, true, 4), (1, false, 4)]),
            standings([(1, true, 4), (2, true, 4)]),
        ] {
            assert!(not_converged(2, &heads, &bad).is_some());
        }
        let good = standings([(1, true, 4), (1, true, 4)]);
        assert!(not_converged(3, &heads, &good).is_some());
    }
}
