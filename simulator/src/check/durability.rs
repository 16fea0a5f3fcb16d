//! Acknowledged ops are durable, per mode: what a client was told is in the one history for ever,
//! and a replica that trusts its recovered log has in it all that it had acknowledged.
//!
//! Source: `design.md` §6; DISC 2017 for what goes wrong without it.

use std::collections::BTreeMap;

use base::{ClientId, GroupId, Op};

use super::{Failure, Verdict, committed::Committed, ensure};

const CHECK: &str = "durability";

/// Something a client has been told is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    pub(crate) group: GroupId,
    pub(crate) client: ClientId,
    pub(crate) request: u64,
    pub(crate) op: Op,
}

/// A log as a replica found it on its disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecoveredLog {
    pub(crate) node: u8,
    pub(crate) group: GroupId,
    pub(crate) op: Op,
    pub(crate) trusted: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Durability {
    acknowledged: Vec<Acknowledged>,
    /// What a replica has acknowledged to a primary and not cut since.
    promised: BTreeMap<(u8, GroupId), Op>,
}

impl Durability {
    pub(crate) fn on_acknowledged(
        &mut self,
        time: u64,
        acknowledged: Acknowledged,
        committed: &Committed,
    ) -> Verdict {
        check_one(time, &acknowledged, committed)?;
        self.acknowledged.push(acknowledged);
        Ok(())
    }

    pub(crate) fn on_prepare_ok(&mut self, node: u8, group: GroupId, op: Op) {
        let promised = self.promised.entry((node, group)).or_default();
        *promised = op.max(*promised);
    }

    /// The replica has cut its log, by the rules of a view change.
    pub(crate) fn on_truncated(&mut self, node: u8, group: GroupId, op: Op) {
        if let Some(promised) = self.promised.get_mut(&(node, group)) {
            *promised = op.min(*promised);
        }
    }

    /// A replica has nothing of a group, and is right to.
    pub(crate) fn on_emptied(&mut self, node: u8, group: GroupId) {
        self.promised.remove(&(node, group));
    }

    pub(crate) fn on_recovered(&self, time: u64, log: RecoveredLog) -> Verdict {
        let promised = self
            .promised
            .get(&(log.node, log.group))
            .copied()
            .unwrap_or_default();
        ensure(!log.trusted || log.op >= promised, CHECK, time, || {
            format!(
                "replica {} trusts its log of {} up to op {}, but had acknowledged op {promised}",
                log.node, log.group, log.op
            )
        })
    }

    /// At the end: all of it is in the history, and committed at every replica that holds the
    /// group.
    pub(crate) fn check_end(
        &self,
        time: u64,
        committed: &Committed,
        positions: &[(u8, GroupId, Op)],
    ) -> Verdict {
        let mut last: BTreeMap<GroupId, Op> = BTreeMap::new();
        for acknowledged in &self.acknowledged {
            check_one(time, acknowledged, committed)?;
            let last = last.entry(acknowledged.group).or_default();
            *last = acknowledged.op.max(*last);
        }
        for &(node, group, op) in positions {
            let needed = last.get(&group).copied().unwrap_or_default();
            ensure(op >= needed, CHECK, time, || {
                format!("replica {node} ends with {group} at op {op}, acknowledged is op {needed}")
            })?;
        }
        Ok(())
    }
}

fn check_one(time: u64, acknowledged: &Acknowledged, committed: &Committed) -> Verdict {
    let Acknowledged {
        group,
        client,
        request,
        op,
    } = *acknowledged;
    let Some(canonical) = committed.get(group, op) else {
        let message = format!("{group} op {op} is acknowledged and nowhere committed");
        return Err(Failure {
            check: CHECK,
            time,
            message,
        });
    };
    ensure(
        canonical.client == client && canonical.request == request,
        CHECK,
        time,
        || {
            format!(
                "request {request} of {:x} is acknowledged as {group} op {op}, \
                 where request {} of {:x} is",
                client.0, canonical.request, canonical.client.0
            )
        },
    )
}

#[cfg(test)]
mod tests {
    use super::{super::committed::tests::prepare, *};
    use wire::replica::PrepareHeader;

    const GROUP: GroupId = GroupId(1 << 10);

    fn history() -> Committed {
        let mut committed = Committed::default();
        let frame = prepare(1, 0, 7, 1);
        let header = PrepareHeader::decode(&frame).expect("valid");
        committed
            .on_committed(0, 0, &header, &frame)
            .expect("first");
        committed
    }

    const fn acknowledged(op: u64, request: u64) -> Acknowledged {
        Acknowledged {
            group: GROUP,
            client: ClientId(7),
            request,
            op: Op(op),
        }
    }

    #[test]
    fn what_is_acknowledged_and_kept_passes() {
        let (mut checker, committed) = (Durability::default(), history());
        assert_eq!(
            checker.on_acknowledged(0, acknowledged(1, 1), &committed),
            Ok(())
        );
        assert_eq!(
            checker.check_end(0, &committed, &[(2, GROUP, Op(1))]),
            Ok(())
        );
    }

    #[test]
    fn what_is_acknowledged_and_lost_fails() {
        let (mut checker, committed) = (Durability::default(), history());
        assert!(
            checker
                .on_acknowledged(0, acknowledged(2, 2), &committed)
                .is_err()
        );
        assert!(
            checker
                .on_acknowledged(0, acknowledged(1, 2), &committed)
                .is_err()
        );
        assert_eq!(
            checker.on_acknowledged(0, acknowledged(1, 1), &committed),
            Ok(())
        );
        assert!(
            checker
                .check_end(0, &committed, &[(2, GROUP, Op(0))])
                .is_err()
        );
    }

    #[test]
    fn a_trusted_log_holds_what_its_replica_acknowledged() {
        let mut checker = Durability::default();
        checker.on_prepare_ok(1, GROUP, Op(5));
        let log = RecoveredLog {
            node: 1,
            group: GROUP,
            op: Op(4),
            trusted: true,
        };
        assert!(checker.on_recovered(0, log).is_err());
        assert_eq!(
            checker.on_recovered(
                0,
                RecoveredLog {
                    trusted: false,
                    ..log
                }
            ),
            Ok(())
        );
        assert_eq!(
            checker.on_recovered(0, RecoveredLog { op: Op(5), ..log }),
            Ok(())
        );
        checker.on_truncated(1, GROUP, Op(3));
        assert_eq!(checker.on_recovered(0, log), Ok(()));
    }
}
