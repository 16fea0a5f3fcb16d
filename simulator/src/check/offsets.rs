//! Offsets of a partition are dense, each is given once, and a producer that keeps its identity
//! has every request in the log at most once and in the order it made them.
//!
//! Source: `design.md` §1.5 and §7; Kafka's idempotent producer for the failure modes.

use std::collections::BTreeMap;

use base::{ClientId, GroupId, Op};

use super::{Verdict, ensure};

const CHECK: &str = "offsets";

/// A committed batch, as far as this checker looks at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) group: GroupId,
    pub(crate) op: Op,
    pub(crate) base_offset: u64,
    pub(crate) count: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Offsets {
    next: BTreeMap<GroupId, u64>,
    requests: BTreeMap<(GroupId, ClientId), u64>,
    purges: BTreeMap<GroupId, u64>,
}

impl Offsets {
    pub(crate) fn on_batch(&mut self, time: u64, batch: Batch) -> Verdict {
        let Batch {
            group,
            op,
            base_offset,
            count,
        } = batch;
        let next = self.next.entry(group).or_default();
        ensure(*next == base_offset && count > 0, CHECK, time, || {
            format!("{group} op {op} holds {count} messages from {base_offset}, next is {next}")
        })?;
        *next += count;
        Ok(())
    }

    /// A purge was committed: offsets begin anew, unless it is one that has been before. True if
    /// they do.
    pub(crate) fn on_purge(&mut self, group: GroupId, generation: u64) -> bool {
        let known = self.purges.entry(group).or_default();
        let new = generation > *known;
        if new {
            *known = generation;
            self.next.insert(group, 0);
        }
        new
    }

    /// The offset that the next message of a group will have.
    pub(crate) fn next(&self, group: GroupId) -> u64 {
        self.next.get(&group).copied().unwrap_or_default()
    }

    /// An op of an identified client was committed for the first time.
    pub(crate) fn on_request(
        &mut self,
        time: u64,
        group: GroupId,
        op: Op,
        client: ClientId,
        request: u64,
    ) -> Verdict {
        let last = self.requests.entry((group, client)).or_default();
        ensure(request > *last, CHECK, time, || {
            format!(
                "{group} op {op} is request {request} of {:x}, after its request {last}",
                client.0
            )
        })?;
        *last = request;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(1 << 10);

    const fn batch(op: u64, base_offset: u64, count: u64) -> Batch {
        Batch {
            group: GROUP,
            op: Op(op),
            base_offset,
            count,
        }
    }

    #[test]
    fn dense_offsets_and_growing_requests_pass() {
        let mut checker = Offsets::default();
        assert_eq!(checker.on_batch(0, batch(1, 0, 3)), Ok(()));
        assert_eq!(checker.on_batch(0, batch(2, 3, 1)), Ok(()));
        assert_eq!(checker.next(GROUP), 4);
        for request in [1, 2, 7] {
            assert_eq!(
                checker.on_request(0, GROUP, Op(request), ClientId(1), request),
                Ok(())
            );
        }
        assert_eq!(checker.on_request(0, GROUP, Op(9), ClientId(2), 1), Ok(()));
    }

    #[test]
    fn offsets_begin_anew_after_a_purge_and_only_after_a_new_one() {
        let mut checker = Offsets::default();
        assert_eq!(checker.on_batch(0, batch(1, 0, 3)), Ok(()));
        assert!(checker.on_purge(GROUP, 1));
        assert_eq!(checker.on_batch(0, batch(3, 0, 2)), Ok(()));
        assert!(!checker.on_purge(GROUP, 1));
        assert!(checker.on_batch(0, batch(5, 0, 1)).is_err());
        assert_eq!(checker.on_batch(0, batch(5, 2, 1)), Ok(()));
    }

    #[test]
    fn a_gap_a_reused_offset_and_a_repeated_request_fail() {
        let mut checker = Offsets::default();
        assert_eq!(checker.on_batch(0, batch(1, 0, 3)), Ok(()));
        assert!(checker.on_batch(0, batch(2, 4, 1)).is_err());
        assert!(checker.on_batch(0, batch(2, 2, 1)).is_err());
        assert_eq!(checker.on_request(0, GROUP, Op(1), ClientId(1), 5), Ok(()));
        assert!(checker.on_request(0, GROUP, Op(2), ClientId(1), 5).is_err());
        assert!(checker.on_request(0, GROUP, Op(2), ClientId(1), 4).is_err());
    }
}
