//! Who owns which partition of a consumer group, worked out a second time.
//!
//! Every op of the metadata log that concerns groups is applied to a model that was written from
//! the rules alone, and the state machine must come to the same: members by slot, what each owns
//! and in which order, what it must give away and to whom, and the generation.
//!
//! ```text
//!   join ─▶ what nobody owns goes to who owns nothing; then what is beyond a fair share moves to
//!           who still owns nothing: at once if it is drained, else once it is revoked
//!   leave, the end of a session, partitions that come or go ─▶ all is dealt anew, in order
//! ```
//!
//! That all replicas agree is another checker's (`digests`); how many partitions a topic has, and
//! whether a session lives, is taken from the metadata.
//!
//! Source: `features.md` §1.5.

use std::collections::{BTreeMap, BTreeSet};

use base::ClientId;
use metadata::{CompleteRevocation, GroupIds, GroupInfo, Join, Metadata, RemoveMember};
use wire::{Codec, Operation, request::GroupTarget};

use super::{Verdict, ensure};

const CHECK: &str = "groups";

/// An op of the metadata log, as far as this checker looks at it.
#[derive(Clone, Debug)]
pub(crate) struct GroupOp {
    pub(crate) op: u64,
    pub(crate) operation: Operation,
    pub(crate) client: ClientId,
    pub(crate) session: u64,
    pub(crate) request: u64,
    pub(crate) body: Vec<u8>,
}

/// A partition that its owner must give away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leaving {
    partition: u32,
    heir: u32,
    began: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seat {
    client: ClientId,
    owns: Vec<u32>,
    leaving: Vec<Leaving>,
}

impl Seat {
    fn keeps(&self) -> Vec<u32> {
        let goes = |partition: &u32| self.leaving.iter().any(|it| it.partition == *partition);
        let owns = self.owns.iter().copied();
        owns.filter(|partition| !goes(partition)).collect()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Group {
    generation: u64,
    partitions: u32,
    seats: BTreeMap<u32, Seat>,
}

impl Group {
    fn of(info: &GroupInfo<'_>) -> Self {
        let seat = |member: &metadata::Member| Seat {
            client: member.client,
            owns: member.partitions.clone(),
            leaving: member
                .pending
                .iter()
                .map(|it| Leaving {
                    partition: it.partition,
                    heir: it.target,
                    began: it.began,
                })
                .collect(),
        };
        let members = info.group.members.iter();
        Self {
            generation: info.group.generation,
            partitions: info.partitions_count,
            seats: members
                .map(|(&slot, member)| (slot, seat(member)))
                .collect(),
        }
    }

    fn slot_of(&self, client: ClientId) -> Option<u32> {
        let mut seats = self.seats.iter();
        seats
            .find(|(_, seat)| seat.client == client)
            .map(|(&slot, _)| slot)
    }

    /// Who owns nothing and waits for nothing.
    fn idle(&self) -> Vec<u32> {
        let awaits = |slot: u32| {
            let mut all = self.seats.values().flat_map(|seat| &seat.leaving);
            all.any(|it| it.heir == slot)
        };
        let seats = self.seats.iter();
        seats
            .filter(|(slot, seat)| seat.owns.is_empty() && !awaits(**slot))
            .map(|(&slot, _)| slot)
            .collect()
    }

    fn deal_ownerless(&mut self) {
        let owned: BTreeSet<u32> = self.seats.values().flat_map(|it| it.owns.clone()).collect();
        let idle = self.idle();
        if idle.is_empty() {
            return;
        }
        let ownerless = (0..self.partitions).filter(|it| !owned.contains(it));
        for (turn, partition) in ownerless.enumerate() {
            let slot = idle[turn % idle.len()];
            self.seats
                .get_mut(&slot)
                .expect("idle")
                .owns
                .push(partition);
        }
    }

    fn deal_anew(&mut self, op: u64) {
        for seat in self.seats.values_mut() {
            seat.owns.clear();
            seat.leaving.clear();
        }
        self.deal_ownerless();
        self.generation = op;
    }

    fn join(&mut self, client: ClientId, drained: &BTreeSet<u32>, op: u64) {
        if self.slot_of(client).is_some() {
            return;
        }
        let mut slots = 0..;
        let slot = slots.find(|slot| !self.seats.contains_key(slot));
        let seat = Seat {
            client,
            owns: Vec::new(),
            leaving: Vec::new(),
        };
        self.seats.insert(slot.expect("there is no end"), seat);
        self.generation = op;
        self.deal_ownerless();
        let idle = self.idle();
        if idle.is_empty() {
            return;
        }
        for (turn, (from, partition)) in self.beyond_fair().into_iter().enumerate() {
            let heir = idle[turn % idle.len()];
            if drained.contains(&partition) {
                self.hand_over(from, heir, partition);
            } else {
                let leaving = Leaving {
                    partition,
                    heir,
                    began: op,
                };
                let seat = self.seats.get_mut(&from).expect("it owns something");
                seat.leaving.push(leaving);
            }
        }
    }

    /// What is taken from whom, from the tail of what each keeps.
    fn beyond_fair(&self) -> Vec<(u32, u32)> {
        let members = u32::try_from(self.seats.len()).expect("few");
        let fair = (self.partitions / members) as usize;
        let mut with_one_more = self.partitions % members;
        let mut taken = Vec::new();
        for (&slot, seat) in &self.seats {
            let keeps = seat.keeps();
            let more = keeps.len() > fair && with_one_more > 0;
            with_one_more -= u32::from(more);
            let share = fair + usize::from(more);
            let beyond = keeps.iter().skip(share).rev();
            taken.extend(beyond.map(|&partition| (slot, partition)));
        }
        taken
    }

    fn hand_over(&mut self, from: u32, heir: u32, partition: u32) {
        let seat = self.seats.get_mut(&from).expect("it owns the partition");
        seat.owns.retain(|it| *it != partition);
        seat.leaving.retain(|it| it.partition != partition);
        let seat = self.seats.get_mut(&heir).expect("the heir is there");
        seat.owns.push(partition);
    }

    fn leave(&mut self, client: ClientId, op: u64) {
        if let Some(slot) = self.slot_of(client) {
            self.seats.remove(&slot);
            self.deal_anew(op);
        }
    }

    fn complete(&mut self, end: &CompleteRevocation, op: u64) {
        let Some(from) = self.slot_of(end.source) else {
            return;
        };
        let mut leaving = self.seats[&from].leaving.iter();
        let found = leaving.find(|it| (it.partition, it.began) == (end.partition, end.began));
        let Some(heir) = found.map(|it| it.heir) else {
            return;
        };
        if self.seats.contains_key(&heir) {
            self.hand_over(from, heir, end.partition);
            self.generation = op;
        } else {
            self.deal_anew(op);
        }
    }
}

type Groups = BTreeMap<GroupIds, Group>;

fn groups_in(metadata: &Metadata) -> Groups {
    let groups = metadata.consumer_groups();
    groups.map(|info| (info.ids, Group::of(&info))).collect()
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ConsumerGroups {
    groups: Groups,
    /// Sessions that live, by client.
    sessions: BTreeMap<ClientId, u64>,
    /// The last request of each session that was executed.
    executed: BTreeMap<(ClientId, u64), u64>,
    /// Ops that were committed in the present turn.
    fresh: Vec<GroupOp>,
}

impl ConsumerGroups {
    /// An op of the metadata log was committed for the first time.
    pub(crate) fn on_op(&mut self, op: GroupOp) {
        self.fresh.push(op);
    }

    /// The end of a turn: the metadata of the shard that committed these ops stands after them.
    pub(crate) fn settle(&mut self, time: u64, metadata: &Metadata) -> Verdict {
        if self.fresh.is_empty() {
            return Ok(());
        }
        let fresh = std::mem::take(&mut self.fresh);
        let now = groups_in(metadata);
        let verdict = match &fresh[..] {
            [op] if metadata.op().0 == op.op => self.judge(time, op, &now, metadata),
            // Between several the metadata is not seen.
            _ => Ok(()),
        };
        for op in &fresh {
            let executed = self.executed.entry((op.client, op.session)).or_default();
            *executed = op.request.max(*executed);
        }
        self.groups = now;
        let sessions = metadata.sessions();
        self.sessions = sessions
            .map(|(client, live)| (client, live.session))
            .collect();
        verdict
    }

    fn judge(&self, time: u64, op: &GroupOp, now: &Groups, metadata: &Metadata) -> Verdict {
        let mut expected = self.groups.clone();
        // Partitions, topics and streams come and go by ops of their own.
        expected.retain(|ids, _| now.contains_key(ids) || !may_remove(op.operation));
        for (ids, group) in now {
            match expected.get_mut(ids) {
                Some(known) if known.partitions != group.partitions => {
                    known.partitions = group.partitions;
                    if !known.seats.is_empty() {
                        base::sometimes!("check: groups were dealt anew for other partitions");
                        known.deal_anew(op.op);
                    }
                }
                None if op.operation == Operation::CreateConsumerGroup => {
                    let new = Group {
                        generation: op.op,
                        partitions: group.partitions,
                        seats: BTreeMap::new(),
                    };
                    expected.insert(*ids, new);
                }
                _ => {}
            }
        }
        // A session that is over has left everything; whose turn it was to end is not judged here.
        let over = |client: &ClientId| {
            let session = metadata.session(*client).map(|live| live.session);
            session != self.sessions.get(client).copied()
        };
        let lost: BTreeSet<ClientId> = self
            .groups
            .values()
            .flat_map(|group| group.seats.values().map(|seat| seat.client))
            .filter(over)
            .collect();
        for group in expected.values_mut() {
            for client in &lost {
                group.leave(*client, op.op);
            }
        }
        self.apply(op, &mut expected, metadata);
        ensure(expected == *now, CHECK, time, || {
            format!(
                "metadata op {}, {:?}, makes of the groups {:?} not {expected:?} but {now:?}",
                op.op, op.operation, self.groups
            )
        })
    }

    fn apply(&self, op: &GroupOp, expected: &mut Groups, metadata: &Metadata) {
        let executed = self.executed.get(&(op.client, op.session));
        let is_repeated = executed >= Some(&op.request);
        let lives = self.sessions.get(&op.client) == Some(&op.session);
        let is_due = op.client.0 == 0 || lives && !is_repeated;
        let found = |target: &GroupTarget<'_>| {
            let info = metadata.resolve_group(target).ok()?;
            Some(info.ids)
        };
        match op.operation {
            Operation::JoinConsumerGroup if is_due => {
                if let Ok(join) = Join::decode(&op.body)
                    && let Some(group) = found(&join.target).and_then(|it| expected.get_mut(&it))
                {
                    base::sometimes!("check: a join to a group was judged");
                    let drained = (join.generation == group.generation)
                        .then(|| join.drained.0.iter().copied().collect());
                    group.join(op.client, &drained.unwrap_or_default(), op.op);
                }
            }
            Operation::LeaveConsumerGroup if is_due => {
                if let Ok(target) = GroupTarget::decode(&op.body)
                    && let Some(group) = found(&target).and_then(|it| expected.get_mut(&it))
                {
                    base::sometimes!("check: a leave of a group was judged");
                    group.leave(op.client, op.op);
                }
            }
            Operation::RemoveConsumerGroupMember => {
                if let Ok(RemoveMember { client, session }) = RemoveMember::decode(&op.body)
                    && self.sessions.get(&client) == Some(&session)
                {
                    base::sometimes!("check: the removal of a lost member was judged");
                    for group in expected.values_mut() {
                        group.leave(client, op.op);
                    }
                }
            }
            Operation::CompleteConsumerGroupRevocation => {
                if let Ok(end) = CompleteRevocation::decode(&op.body)
                    && let Some(group) = expected.get_mut(&end.group)
                {
                    base::sometimes!("check: the end of a revocation was judged");
                    group.complete(&end, op.op);
                }
            }
            _ => {}
        }
    }

    /// What must come to an end by itself: a revocation, or the membership of a client that is
    /// not there any more.
    pub(crate) fn unfinished(&self, is_there: impl Fn(ClientId) -> bool) -> Option<String> {
        let mut groups = self.groups.iter();
        groups.find_map(|(ids, group)| {
            let mut seats = group.seats.values();
            let seat = seats.find(|seat| !seat.leaving.is_empty() || !is_there(seat.client))?;
            Some(format!("{ids:?} has {seat:?}"))
        })
    }
}

/// Ops that take groups away.
const fn may_remove(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::DeleteConsumerGroup | Operation::DeleteTopic | Operation::DeleteStream
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(partitions: u32) -> Group {
        Group {
            partitions,
            ..Group::default()
        }
    }

    fn owned(group: &Group) -> Vec<&[u32]> {
        let seats = group.seats.values();
        seats.map(|seat| seat.owns.as_slice()).collect()
    }

    fn all(partitions: u32) -> BTreeSet<u32> {
        (0..partitions).collect()
    }

    #[test]
    fn what_is_drained_moves_at_once_and_the_rest_when_it_is_revoked() {
        let mut group = group(5);
        group.join(ClientId(1), &all(5), 1);
        assert_eq!(owned(&group), [&[0, 1, 2, 3, 4]]);
        group.join(ClientId(2), &BTreeSet::from([4]), 2);
        assert_eq!(owned(&group), [&[0, 1, 2, 3][..], &[4]]);
        assert_eq!(group.seats[&0].keeps(), [0, 1, 2]);
        let end = CompleteRevocation {
            group: GroupIds {
                stream: 0,
                topic: 0,
                group: 0,
            },
            source: ClientId(1),
            partition: 3,
            began: 2,
        };
        group.complete(&end, 3);
        assert_eq!(owned(&group), [&[0, 1, 2][..], &[4, 3]]);
        assert_eq!(group.generation, 3);
    }

    #[test]
    fn a_leave_deals_all_anew_in_order() {
        let mut group = group(5);
        for client in 1..=3 {
            group.join(ClientId(client), &all(5), 1);
        }
        group.leave(ClientId(1), 4);
        assert_eq!(owned(&group), [&[0, 2, 4][..], &[1, 3]]);
        group.join(ClientId(4), &BTreeSet::new(), 5);
        assert_eq!(group.slot_of(ClientId(4)), Some(0), "the lowest free slot");
        assert!(group.seats[&0].owns.is_empty());
    }

    #[test]
    fn more_members_than_partitions_leave_some_with_nothing() {
        let mut group = group(2);
        for client in 1..=3 {
            group.join(ClientId(client), &all(2), 1);
        }
        assert_eq!(owned(&group), [&[0][..], &[1], &[]]);
    }
}
