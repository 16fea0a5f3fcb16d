//! The whole state in bytes: what a checkpoint of the metadata log holds.
//!
//! ```text
//!   0 magic "viewstamp meta 4"   16 op u64   24 digest of the state u128
//!  40 streams u32, each: id u32, name, created_at u64, topics u32, each:
//!       id u32, name, created_at u64, options, partitions u32, each:
//!         group u64, created_at u64, view u32, purges u64
//!       next consumer group u32, consumer groups u32, each:
//!         id u32, name, created_at u64, generation u64, members u32, each:
//!           slot u32, client u128, home replica u8, home shard u16,
//!           home life u64,
//!           partitions u32, each u32,
//!           revocations u32, each: partition u32, target slot u32, since u64, began u64
//!     clients u32, each: client u128, session u64, user u32, watermark u64, newest op u64,
//!       replies u32, each: op u64, timestamp u64, operation u8, request u64,
//!         request_checksum u128, code u32, and if that is 0: payload (len u32, bytes)
//!     highest number given to a user u32, users u32, each: id u32, name, created_at u64,
//!       status u8, password hash (len u8, PHC string), op that set it u64,
//!       permissions (u8: 0, or 1 and len u32, as on the wire), tokens u32, each: name,
//!         digest (len u32, 32 bytes), expires_at u64 (0 is never)
//! ```
//!
//! Names are `len u8` and UTF-8. An empty name or hash of root (user 0) is the configured one.
//! Options are compression u8, message_expiry u64,
//! max_topic_size u64, segment_size u64, durability u8 (1 is persisted), the same of consumer
//! offsets, messages to save u32, size to save u64, preallocate u8, enforce_fsync u8 and a u16
//! with one bit for each option that a client has set. Which ids are free follows from those in
//! use.
//!
//! **Invariant:** whatever the bytes, reading them ends in a state or a reason, and takes no more
//! memory than they do, times what the limits allow to be free.

use alloc::{collections::BTreeMap, vec::Vec};

use base::{ClientId, GroupId, Op, Timestamp, View};
use wire::{Codec, Name, Reader, SnapshotError};

use crate::{
    Limits, TopicOptions,
    catalog::{Catalog, Entry},
    clients::ClientTable,
    groups::{ConsumerGroup, ConsumerGroups, Home, Member, Revocation},
    state::{Partition, State, Stream, Topic},
    users::Users,
};

const MAGIC: [u8; 16] = *b"viewstamp meta 4";

/// What a snapshot says.
pub(crate) struct Restored {
    pub(crate) op: Op,
    pub(crate) digest: u128,
    pub(crate) state: State,
    pub(crate) clients: ClientTable,
    pub(crate) users: Users,
}

/// A count as snapshots have it.
pub(crate) fn count(length: usize) -> u32 {
    u32::try_from(length).expect("limited far below 2^32")
}

pub(crate) fn write(
    op: Op,
    digest: u128,
    (state, clients, users): (&State, &ClientTable, &Users),
) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(MAGIC);
    op.0.write(&mut out);
    digest.write(&mut out);
    count(state.streams.len()).write(&mut out);
    for (id, stream) in state.streams.iter() {
        write_head(id, stream, stream.value.created_at, &mut out);
        count(stream.value.topics.len()).write(&mut out);
        for (id, topic) in stream.value.topics.iter() {
            write_head(id, topic, topic.value.created_at, &mut out);
            topic.value.options.write(&mut out);
            count(topic.value.partitions.len()).write(&mut out);
            for partition in &topic.value.partitions {
                partition.group.0.write(&mut out);
                partition.created_at.0.write(&mut out);
                partition.view.0.write(&mut out);
                partition.purges.write(&mut out);
            }
            write_groups(&topic.value.groups, &mut out);
        }
    }
    clients.write(&mut out);
    users.write(&mut out);
    out
}

fn write_head<T>(id: u32, entry: &Entry<T>, created_at: Timestamp, out: &mut Vec<u8>) {
    id.write(out);
    let name = Name::new(&entry.name).expect("names are checked when they are given");
    name.write(out);
    created_at.0.write(out);
}

pub(crate) fn read(bytes: &[u8], limits: &Limits) -> Result<Restored, SnapshotError> {
    let rest = bytes.strip_prefix(&MAGIC).ok_or(SnapshotError::Version)?;
    let mut reader = Reader::new(rest);
    let (op, digest) = (Op(reader.read()?), reader.read()?);
    let (streams_max, topics_max) = (limits.streams_max, limits.topics_max);
    let streams = read_catalog(&mut reader, streams_max, |reader, created_at| {
        let topics = read_catalog(reader, topics_max, |reader, created_at| {
            let options = TopicOptions::read(reader)?;
            let partitions = read_partitions(reader, op)?;
            let count = count(partitions.len());
            let groups = read_groups(reader, op, count)?;
            Ok(Topic {
                created_at,
                options,
                partitions,
                groups,
            })
        })?;
        Ok(Stream { created_at, topics })
    })?;
    let state = State::restore(streams).ok_or(SnapshotError::Contradiction)?;
    let clients = ClientTable::read(&mut reader, op)?;
    let users = Users::read(&mut reader, op)?;
    reader.finish()?;
    Ok(Restored {
        op,
        digest,
        state,
        clients,
        users,
    })
}

fn read_catalog<'a, T>(
    reader: &mut Reader<'a>,
    ids_max: u32,
    mut value: impl FnMut(&mut Reader<'a>, Timestamp) -> Result<T, SnapshotError>,
) -> Result<Catalog<T>, SnapshotError> {
    let mut entries = Vec::new();
    for _ in 0..reader.read::<u32>()? {
        let id = reader.read()?;
        let name: Name<'_> = reader.read()?;
        let created_at = Timestamp(reader.read()?);
        let value = value(reader, created_at)?;
        let name = name.as_str().into();
        entries.push((id, Entry { name, value }));
    }
    Catalog::restore(entries, ids_max).ok_or(SnapshotError::Contradiction)
}

fn read_partitions(reader: &mut Reader<'_>, op: Op) -> Result<Vec<Partition>, SnapshotError> {
    let mut partitions = Vec::new();
    for _ in 0..reader.read::<u32>()? {
        let partition = Partition {
            group: GroupId(reader.read()?),
            created_at: Timestamp(reader.read()?),
            view: View(reader.read()?),
            purges: reader.read()?,
        };
        let created = partition.group.create_op();
        if created == Op(0) || created > op {
            return Err(SnapshotError::Contradiction);
        }
        partitions.push(partition);
    }
    Ok(partitions)
}

fn write_groups(groups: &ConsumerGroups, out: &mut Vec<u8>) {
    groups.next.write(out);
    count(groups.len()).write(out);
    for (id, group) in groups.iter() {
        id.write(out);
        let name = Name::new(&group.name).expect("names are checked when they are given");
        name.write(out);
        group.created_at.0.write(out);
        group.generation.write(out);
        count(group.members.len()).write(out);
        for (slot, member) in &group.members {
            slot.write(out);
            member.client.0.write(out);
            member.home.replica.write(out);
            member.home.shard.write(out);
            member.home.life.write(out);
            count(member.partitions.len()).write(out);
            for partition in &member.partitions {
                partition.write(out);
            }
            count(member.pending.len()).write(out);
            for revocation in &member.pending {
                revocation.partition.write(out);
                revocation.target.write(out);
                revocation.since.0.write(out);
                revocation.began.write(out);
            }
        }
    }
}

fn read_groups(
    reader: &mut Reader<'_>,
    op: Op,
    partitions_count: u32,
) -> Result<ConsumerGroups, SnapshotError> {
    let next = reader.read()?;
    let mut groups = Vec::new();
    for _ in 0..reader.read::<u32>()? {
        let id = reader.read()?;
        let name: Name<'_> = reader.read()?;
        let group = ConsumerGroup {
            name: name.as_str().into(),
            created_at: Timestamp(reader.read()?),
            generation: reader.read()?,
            members: read_members(reader)?,
        };
        if group.generation > op.0 || !group.is_consistent(partitions_count) {
            return Err(SnapshotError::Contradiction);
        }
        groups.push((id, group));
    }
    ConsumerGroups::restore(next, groups).ok_or(SnapshotError::Contradiction)
}

fn read_members(reader: &mut Reader<'_>) -> Result<BTreeMap<u32, Member>, SnapshotError> {
    let mut members = BTreeMap::new();
    for _ in 0..reader.read::<u32>()? {
        let slot = reader.read()?;
        let client = ClientId(reader.read()?);
        let home = Home {
            replica: reader.read()?,
            shard: reader.read()?,
            life: reader.read()?,
        };
        let (mut partitions, mut pending) = (Vec::new(), Vec::new());
        for _ in 0..reader.read::<u32>()? {
            partitions.push(reader.read()?);
        }
        for _ in 0..reader.read::<u32>()? {
            pending.push(Revocation {
                partition: reader.read()?,
                target: reader.read()?,
                since: Timestamp(reader.read()?),
                began: reader.read()?,
            });
        }
        let member = Member {
            client,
            home,
            partitions,
            pending,
        };
        if members.insert(slot, member).is_some() {
            return Err(SnapshotError::Contradiction);
        }
    }
    Ok(members)
}
