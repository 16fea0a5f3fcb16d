//! One committed history per group: every replica commits the same ops in the same order, each
//! chained to the one before.
//!
//! Source: VR Revisited §4 (agreement); TigerBeetle's state checker.

use std::collections::BTreeMap;

use base::{ClientId, GroupId, Op, checksum::xxh3_128};
use wire::{HEADER_SIZE, Operation, replica::PrepareHeader};

use super::{Failure, Verdict, ensure};

const CHECK: &str = "committed";

/// An op of the one history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Canonical {
    pub(crate) checksum: u128,
    pub(crate) client: ClientId,
    pub(crate) request: u64,
    pub(crate) operation: Operation,
    /// When the first replica committed it.
    pub(crate) time: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Committed {
    /// Op n of a group is at n - 1.
    pub(crate) groups: BTreeMap<GroupId, Vec<Canonical>>,
    /// What each replica has committed since its process started.
    pub(crate) positions: BTreeMap<(u8, GroupId), Op>,
}

impl Committed {
    /// The process of `node` starts afresh and will tell its commits again.
    pub(crate) fn on_restart(&mut self, node: u8) {
        self.positions.retain(|(at, _), _| *at != node);
    }

    /// A replica has committed a prepare. True if it is the first to do so.
    pub(crate) fn on_committed(
        &mut self,
        time: u64,
        node: u8,
        header: &PrepareHeader,
        frame: &[u8],
    ) -> Result<bool, Failure> {
        let (group, op) = (header.group, header.op);
        let fail = |message: String| Failure {
            check: CHECK,
            time,
            message,
        };
        let intact = xxh3_128(&frame[HEADER_SIZE..]) == header.checksum_body;
        ensure(intact, CHECK, time, || {
            format!("replica {node} committed a damaged body at {group} op {op}")
        })?;
        if let Some(before) = self.positions.get(&(node, group)) {
            ensure(op == before.next(), CHECK, time, || {
                format!("replica {node} committed {group} op {op} after op {before}")
            })?;
        }
        self.positions.insert((node, group), op);
        let history = self.groups.entry(group).or_default();
        let index = usize::try_from(op.0).expect("small") - 1;
        if index > history.len() {
            let head = history.len();
            return Err(fail(format!(
                "replica {node} committed {group} op {op}, but op {} is nowhere committed",
                head + 1
            )));
        }
        if index < history.len() {
            let known = history[index].checksum;
            ensure(known == header.checksum, CHECK, time, || {
                format!(
                    "replica {node} committed {:032x} at {group} op {op}, others {known:032x}",
                    header.checksum
                )
            })?;
            return Ok(false);
        }
        let parent = history.last().map_or(0, |last| last.checksum);
        ensure(parent == header.parent, CHECK, time, || {
            format!(
                "replica {node} committed {group} op {op}, which is not chained to the op before"
            )
        })?;
        history.push(Canonical {
            checksum: header.checksum,
            client: header.client,
            request: header.request,
            operation: header.operation,
            time,
        });
        Ok(true)
    }

    /// The state machine of `node` is now what a checkpoint of an op has it.
    pub(crate) fn on_restored(
        &mut self,
        time: u64,
        node: u8,
        (group, op): (GroupId, Op),
        identity: u128,
    ) -> Verdict {
        let before = self.position(node, group);
        ensure(before < op, CHECK, time, || {
            format!("replica {node} went back from {group} op {before} to a checkpoint of op {op}")
        })?;
        let known = self.get(group, op).map(|known| known.checksum);
        ensure(known == Some(identity), CHECK, time, || {
            format!(
                "replica {node} restored {group} from {identity:032x} at op {op}, not {known:x?}"
            )
        })?;
        self.positions.insert((node, group), op);
        Ok(())
    }

    /// A replica has put a checkpoint aside and reads its log from the beginning.
    pub(crate) fn on_emptied(&mut self, node: u8, group: GroupId) {
        self.positions.remove(&(node, group));
    }

    /// Last op of the history of a group.
    pub(crate) fn head(&self, group: GroupId) -> Op {
        Op(self
            .groups
            .get(&group)
            .map_or(0, |history| history.len() as u64))
    }

    pub(crate) fn get(&self, group: GroupId, op: Op) -> Option<&Canonical> {
        let index = usize::try_from(op.0.checked_sub(1)?).ok()?;
        self.groups.get(&group)?.get(index)
    }

    /// How far a replica's running process has committed.
    pub(crate) fn position(&self, node: u8, group: GroupId) -> Op {
        self.positions
            .get(&(node, group))
            .copied()
            .unwrap_or_default()
    }
}

/// Every op of every group belongs to a call that a client has made, or to the server itself.
pub(crate) fn check_origin(
    time: u64,
    committed: &Committed,
    is_call: impl Fn(ClientId, u64) -> bool,
) -> Verdict {
    for (group, history) in &committed.groups {
        for (index, op) in history.iter().enumerate() {
            let own = matches!(
                op.operation,
                Operation::Noop | Operation::Register | Operation::Logout
            );
            ensure(
                own || op.client.0 == 0 || is_call(op.client, op.request),
                CHECK,
                time,
                || {
                    format!(
                        "{group} op {} is request {} of client {:x}, which nobody made",
                        index + 1,
                        op.request,
                        op.client.0
                    )
                },
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use base::{ReplicaIndex, Timestamp, View};

    /// A sealed prepare of group 1 << 10.
    pub(crate) fn prepare(op: u64, parent: u128, client: u128, request: u64) -> Vec<u8> {
        let mut frame = vec![0; HEADER_SIZE + 8];
        frame[HEADER_SIZE] = u8::try_from(op).expect("small");
        let header = PrepareHeader {
            checksum: 0,
            checksum_body: 0,
            cluster: 1,
            size: 0,
            view: View(0),
            replica: ReplicaIndex(0),
            parent,
            client: ClientId(client),
            group: GroupId(1 << 10),
            op: Op(op),
            commit: Op(0),
            timestamp: Timestamp(0),
            request,
            session: 1,
            request_checksum: 0,
            user: 0,
            operation: Operation::SendMessages,
            encryption: None,
        };
        header.seal_into(&mut frame);
        frame
    }

    fn commit(checker: &mut Committed, node: u8, frame: &[u8]) -> Result<bool, Failure> {
        let header = PrepareHeader::decode(frame).expect("a prepare");
        checker.on_committed(0, node, &header, frame)
    }

    #[test]
    fn replicas_that_agree_pass() {
        let mut checker = Committed::default();
        let one = prepare(1, 0, 7, 1);
        let two = prepare(
            2,
            PrepareHeader::decode(&one).expect("valid").checksum,
            7,
            2,
        );
        assert_eq!(commit(&mut checker, 0, &one), Ok(true));
        assert_eq!(commit(&mut checker, 0, &two), Ok(true));
        assert_eq!(commit(&mut checker, 1, &one), Ok(false));
        checker.on_restart(1);
        assert_eq!(commit(&mut checker, 1, &one), Ok(false));
        assert_eq!(checker.head(GroupId(1 << 10)), Op(2));
        assert_eq!(check_origin(0, &checker, |_, request| request <= 2), Ok(()));
        assert!(check_origin(0, &checker, |_, request| request <= 1).is_err());
    }

    #[test]
    fn a_replica_goes_on_from_a_checkpoint_of_the_one_history_only() {
        let mut checker = Committed::default();
        let one = prepare(1, 0, 7, 1);
        let first = PrepareHeader::decode(&one).expect("valid").checksum;
        let two = prepare(2, first, 7, 2);
        assert_eq!(commit(&mut checker, 0, &one), Ok(true));
        let at = |op| (GroupId(1 << 10), Op(op));
        assert!(
            checker.on_restored(0, 1, at(2), first).is_err(),
            "nowhere committed"
        );
        assert!(checker.on_restored(0, 1, at(1), 99).is_err(), "another one");
        assert_eq!(checker.on_restored(0, 1, at(1), first), Ok(()));
        assert!(
            checker.on_restored(0, 1, at(1), first).is_err(),
            "back to it"
        );
        assert_eq!(commit(&mut checker, 1, &two), Ok(true));
        checker.on_restart(1);
        assert_eq!(checker.on_restored(0, 1, at(1), first), Ok(()));
        assert!(commit(&mut checker, 1, &one).is_err(), "it is in the state");
    }

    #[test]
    fn a_fork_fails() {
        let mut checker = Committed::default();
        assert_eq!(commit(&mut checker, 0, &prepare(1, 0, 7, 1)), Ok(true));
        assert!(commit(&mut checker, 1, &prepare(1, 0, 8, 1)).is_err());
    }

    #[test]
    fn a_gap_a_broken_chain_and_a_damaged_body_fail() {
        let mut checker = Committed::default();
        assert!(commit(&mut checker, 0, &prepare(2, 0, 7, 1)).is_err());
        let mut checker = Committed::default();
        assert_eq!(commit(&mut checker, 0, &prepare(1, 0, 7, 1)), Ok(true));
        assert!(commit(&mut checker, 0, &prepare(2, 99, 7, 2)).is_err());
        let mut damaged = prepare(1, 0, 7, 1);
        *damaged.last_mut().expect("a body") ^= 1;
        assert!(commit(&mut Committed::default(), 0, &damaged).is_err());
    }
}
