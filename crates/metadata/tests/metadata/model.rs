//! Random logs against a plain reference, and against a second replica.

use std::collections::BTreeMap;

use base::GroupId;
use metadata::{Change, Limits, PartitionIds};
use proptest::prelude::*;
use wire::{Codec, Operation, Options, request::TopicTarget};

use crate::support::{
    Log, create_stream, create_topic, id, named, partitions, replay, topic, update_stream,
    update_topic,
};

pub(crate) const LIMITS: Limits = Limits {
    streams_max: 4,
    topics_max: 3,
    partitions_max: 6,
    partitions_per_request_max: 4,
    groups_max: 3,
    clients_max: 4,
    replies_max: 2,
    users_max: 4,
    tokens_max: 2,
    grants_max: 4,
    segment_size: 4096,
    segment_size_min: 4096,
    segment_size_max: 1 << 20,
    preallocate_max: 1 << 20,
    replica_salt: 0,
};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// What is asked: targets by number or by name, whether they exist or not.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    CreateStream(usize),
    UpdateStream(Target, usize),
    DeleteStream(Target),
    CreateTopic(Target, usize, u32),
    UpdateTopic(Target, Target, usize),
    DeleteTopic(Target, Target),
    CreatePartitions(Target, Target, u32),
    DeletePartitions(Target, Target, u32),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Number(u32),
    Name(usize),
}

impl Target {
    fn identifier(self) -> wire::Identifier<'static> {
        match self {
            Self::Number(number) => id(number),
            Self::Name(name) => named(NAMES[name]),
        }
    }

    fn find<T>(self, entries: &BTreeMap<u32, (usize, T)>) -> Option<u32> {
        match self {
            Self::Number(number) => entries.contains_key(&number).then_some(number),
            Self::Name(name) => entries.iter().find(|(_, e)| e.0 == name).map(|(&id, _)| id),
        }
    }
}

impl Step {
    pub(crate) fn request(self) -> (Operation, Vec<u8>) {
        let options = Options::default();
        match self {
            Self::CreateStream(name) => (Operation::CreateStream, create_stream(NAMES[name])),
            Self::UpdateStream(stream, name) => (
                Operation::UpdateStream,
                update_stream(stream.identifier(), NAMES[name]),
            ),
            Self::DeleteStream(stream) => (Operation::DeleteStream, stream.identifier().encode()),
            Self::CreateTopic(stream, name, count) => (
                Operation::CreateTopic,
                create_topic(stream.identifier(), NAMES[name], count),
            ),
            Self::UpdateTopic(stream, topic, name) => {
                let target = (stream.identifier(), topic.identifier());
                (
                    Operation::UpdateTopic,
                    update_topic(target, NAMES[name], options),
                )
            }
            Self::DeleteTopic(stream, target) => (
                Operation::DeleteTopic,
                topic(stream.identifier(), target.identifier()),
            ),
            Self::CreatePartitions(stream, topic, count) => {
                let body = partitions(stream.identifier(), topic.identifier(), count);
                (Operation::CreatePartitions, body)
            }
            Self::DeletePartitions(stream, topic, count) => {
                let body = partitions(stream.identifier(), topic.identifier(), count);
                (Operation::DeletePartitions, body)
            }
        }
    }
}

/// The reference: streams by id, each its name and topics; topics likewise, each with the ops
/// and positions that created its partitions.
#[derive(Default)]
struct Model {
    streams: BTreeMap<u32, (usize, Topics)>,
}

type Topics = BTreeMap<u32, (usize, Vec<(u64, u16)>)>;

fn lowest<T>(entries: &BTreeMap<u32, T>) -> u32 {
    (0..)
        .find(|id| !entries.contains_key(id))
        .expect("some id is free")
}

fn taken<T>(entries: &BTreeMap<u32, (usize, T)>, name: usize, except: Option<u32>) -> bool {
    entries
        .iter()
        .any(|(&id, entry)| entry.0 == name && Some(id) != except)
}

impl Model {
    fn apply(&mut self, step: Step, op: u64) -> Result<(), u32> {
        match step {
            Step::CreateStream(name) => {
                if taken(&self.streams, name, None) {
                    return Err(1012);
                }
                if self.streams.len() == 4 {
                    return Err(1020);
                }
                self.streams
                    .insert(lowest(&self.streams), (name, Topics::new()));
            }
            Step::UpdateStream(stream, name) => {
                let id = stream.find(&self.streams).ok_or(1009_u32)?;
                if taken(&self.streams, name, Some(id)) {
                    return Err(1012);
                }
                self.streams.get_mut(&id).expect("found").0 = name;
            }
            Step::DeleteStream(stream) => {
                let id = stream.find(&self.streams).ok_or(1009_u32)?;
                self.streams.remove(&id);
            }
            Step::CreateTopic(stream, ..)
            | Step::UpdateTopic(stream, ..)
            | Step::DeleteTopic(stream, ..)
            | Step::CreatePartitions(stream, ..)
            | Step::DeletePartitions(stream, ..) => {
                let id = stream.find(&self.streams).ok_or(1009_u32)?;
                let topics = &mut self.streams.get_mut(&id).expect("found").1;
                return Self::apply_to_topics(topics, step, op);
            }
        }
        Ok(())
    }

    fn apply_to_topics(topics: &mut Topics, step: Step, op: u64) -> Result<(), u32> {
        let created = |count: u32| {
            (0..)
                .take(count as usize)
                .map(move |position: u16| (op, position))
        };
        let find = |topics: &Topics, topic: Target| topic.find(topics).ok_or(2010_u32);
        match step {
            Step::CreateTopic(_, name, count) => {
                if count > 4 {
                    return Err(2015);
                }
                if taken(topics, name, None) {
                    return Err(2013);
                }
                if topics.len() == 3 {
                    return Err(2021);
                }
                topics.insert(lowest(topics), (name, created(count).collect()));
            }
            Step::UpdateTopic(_, topic, name) => {
                let id = find(topics, topic)?;
                if taken(topics, name, Some(id)) {
                    return Err(2013);
                }
                topics.get_mut(&id).expect("found").0 = name;
            }
            Step::DeleteTopic(_, topic) => {
                let id = find(topics, topic)?;
                topics.remove(&id);
            }
            Step::CreatePartitions(_, topic, count) => {
                let id = find(topics, topic)?;
                if count == 0 || count > 4 {
                    return Err(2015);
                }
                let partitions = &mut topics.get_mut(&id).expect("found").1;
                if partitions.len() + count as usize > 6 {
                    return Err(3013);
                }
                partitions.extend(created(count));
            }
            Step::DeletePartitions(_, topic, count) => {
                let id = find(topics, topic)?;
                if count == 0 || count > 4 {
                    return Err(2015);
                }
                let partitions = &mut topics.get_mut(&id).expect("found").1;
                let kept = partitions
                    .len()
                    .checked_sub(count as usize)
                    .ok_or(2019_u32)?;
                partitions.truncate(kept);
            }
            _ => unreachable!("streams are handled above"),
        }
        Ok(())
    }

    fn groups(&self) -> BTreeMap<GroupId, PartitionIds> {
        let mut groups = BTreeMap::new();
        for (&stream, (_, topics)) in &self.streams {
            for (&topic, (_, partitions)) in topics {
                for (partition, &(op, position)) in (0..).zip(partitions) {
                    let group = GroupId::partition(base::Op(op), position);
                    groups.insert(
                        group,
                        PartitionIds {
                            stream,
                            topic,
                            partition,
                        },
                    );
                }
            }
        }
        groups
    }
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        (0..5_u32).prop_map(Target::Number),
        (0..NAMES.len()).prop_map(Target::Name)
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES.len();
    let count = || 0..=5_u32;
    prop_oneof![
        3 => name().prop_map(Step::CreateStream),
        1 => (target(), name()).prop_map(|(s, n)| Step::UpdateStream(s, n)),
        1 => target().prop_map(Step::DeleteStream),
        4 => (target(), name(), count()).prop_map(|(s, n, c)| Step::CreateTopic(s, n, c)),
        1 => (target(), target(), name()).prop_map(|(s, t, n)| Step::UpdateTopic(s, t, n)),
        1 => (target(), target()).prop_map(|(s, t)| Step::DeleteTopic(s, t)),
        3 => (target(), target(), count()).prop_map(|(s, t, c)| Step::CreatePartitions(s, t, c)),
        2 => (target(), target(), count()).prop_map(|(s, t, c)| Step::DeletePartitions(s, t, c)),
    ]
}

/// The groups that exist, as the changes tell.
fn follow(groups: &mut BTreeMap<GroupId, PartitionIds>, changes: &[Change]) {
    for change in changes {
        match *change {
            Change::PartitionCreated(info) => {
                assert_eq!(groups.insert(info.group, info.ids), None);
            }
            Change::PartitionDeleted { group, ids } => {
                assert_eq!(groups.remove(&group), Some(ids));
            }
            Change::PartitionUpdated(_)
            | Change::OffsetsOrphaned { .. }
            | Change::SessionOpened { .. }
            | Change::SessionClosed { .. } => {}
        }
    }
}

proptest! {
    #[test]
    fn does_what_the_reference_does(steps in proptest::collection::vec(step(), 0..80)) {
        let mut log = Log::new(LIMITS);
        let mut model = Model::default();
        let mut followed = BTreeMap::new();
        for step in steps {
            let (operation, body) = step.request();
            let op = log.metadata.op().next();
            let applied = log.ask(operation, &body);
            let found = applied.reply.result.map(|_| ()).map_err(|code| code.0);
            prop_assert_eq!(found, model.apply(step, op.0), "{:?}", step);
            follow(&mut followed, &applied.changes);
            let groups: BTreeMap<_, _> =
                log.metadata.partitions().map(|info| (info.group, info.ids)).collect();
            prop_assert_eq!(&groups, &model.groups());
            prop_assert_eq!(&groups, &followed);
            for (group, ids) in groups {
                let target = TopicTarget { stream: id(ids.stream), topic: id(ids.topic) };
                let resolved = log.metadata.resolve_partition(&target, ids.partition);
                prop_assert_eq!(resolved.map(|info| info.group), Ok(group));
            }
        }
        let names: Vec<_> = model.streams.values().map(|stream| stream.0).collect();
        for (name, text) in NAMES.iter().enumerate() {
            let found = log.metadata.resolve_stream(named(text));
            prop_assert_eq!(found.is_ok(), names.contains(&name));
        }
    }

    #[test]
    fn equal_logs_give_equal_replies_changes_and_digests(
        steps in proptest::collection::vec((step(), 0..8_u8), 0..40),
    ) {
        let mut log = Log::new(LIMITS);
        let mut applied = Vec::new();
        for (step, login) in steps {
            if login < 3 {
                applied.push(log.register(base::ClientId(u128::from(login) + 1), 0));
            }
            let (operation, body) = step.request();
            applied.push(log.ask(operation, &body));
        }
        let (replica, replayed) = replay(&log.prepares, LIMITS);
        prop_assert_eq!(replica.digest(), log.metadata.digest());
        for (first, second) in applied.iter().zip(&replayed[1..]) {
            prop_assert_eq!(&first.reply, &second.reply);
            prop_assert_eq!(&first.changes, &second.changes);
        }
        // Cut off the last op, and the digest is another.
        let (shorter, _) = replay(&log.prepares[..log.prepares.len() - 1], LIMITS);
        prop_assert_ne!(shorter.digest(), log.metadata.digest());
    }
}
