//! Identifiers as newtypes, so that an op is never passed where a view is meant.

use core::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number!(
    /// Position in a group's log; the first prepare is op 1, op 0 is the empty log.
    Op(u64)
);
number!(
    /// View of a group; its primary is `view mod replica_count`.
    View(u32)
);
number!(
    /// A replica's number in the roster, `0 .. replica_count`.
    ReplicaIndex(u8)
);
number!(
    /// A shard's number on its node, `0 .. shard_count`.
    ShardIndex(u16)
);
number!(
    /// Offset of a message in its partition; dense, from 0.
    Offset(u64)
);
number!(
    /// A client's random identity, minted by the client.
    ClientId(u128)
);

impl Op {
    /// The op after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl View {
    /// The primary of this view.
    ///
    /// # Panics
    /// If `replica_count` is 0.
    #[must_use]
    pub fn primary(self, replica_count: u8) -> ReplicaIndex {
        assert!(replica_count > 0);
        let index = self.0 % u32::from(replica_count);
        ReplicaIndex(u8::try_from(index).expect("a remainder of a u8"))
    }

    /// The view after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A replication group, with its incarnation.
///
/// The metadata group is 0. A partition's group is `create_op << 10 | position`, where
/// `create_op` is the metadata op that created it and `position` its place among the partitions
/// created by that op (at most 1,000 a request). A deleted and recreated partition therefore
/// never shares a group id with its predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

impl GroupId {
    /// The group of the metadata plane, hosted on shard 0.
    pub const METADATA: Self = Self(0);

    /// The group of the `position`-th partition created by `create_op`.
    ///
    /// # Panics
    /// If `position` is 1,024 or more, or `create_op` is 0.
    #[must_use]
    pub fn partition(create_op: Op, position: u16) -> Self {
        assert!(position < 1024);
        assert!(create_op.0 > 0 && create_op.0 < 1 << 54);
        Self(create_op.0 << 10 | u64::from(position))
    }

    /// The metadata op that created this group; op 0 for the metadata group itself.
    #[must_use]
    pub const fn create_op(self) -> Op {
        Op(self.0 >> 10)
    }

    /// The shard that hosts this group, out of `shard_count`.
    ///
    /// # Panics
    /// If `shard_count` is 0.
    #[must_use]
    pub fn shard(self, shard_count: u16) -> ShardIndex {
        assert!(shard_count > 0);
        if self == Self::METADATA {
            return ShardIndex(0);
        }
        // Partitions of one topic are spread evenly, from a shard that the topic's hash chooses.
        let hash = crate::checksum::xxh3_64(&self.create_op().0.to_le_bytes());
        let position = self.0 & 1023;
        let index = (hash.wrapping_add(position)) % u64::from(shard_count);
        ShardIndex(u16::try_from(index).expect("a remainder of a u16"))
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::METADATA => f.write_str("metadata"),
            Self(id) => write!(f, "p{}.{}", id >> 10, id & 1023),
        }
    }
}

/// The numbers by which clients know a partition. They are reused; a [`GroupId`] never is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionIds {
    /// Its stream.
    pub stream: u32,
    /// Its topic in the stream.
    pub topic: u32,
    /// Its place in the topic, from 0.
    pub partition: u32,
}

impl fmt::Display for PartitionIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.stream, self.topic, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_carries_its_incarnation() {
        let group = GroupId::partition(Op(7), 3);
        assert_eq!(group.create_op(), Op(7));
        assert_ne!(group, GroupId::partition(Op(8), 3));
        assert_eq!(GroupId::METADATA.create_op(), Op(0));
        assert_eq!(GroupId::METADATA.shard(4), ShardIndex(0));
        let mut shards: [u16; 4] = core::array::from_fn(|position| {
            let position = u16::try_from(position).expect("small");
            GroupId::partition(Op(7), position).shard(4).0
        });
        shards.sort_unstable();
        assert_eq!(shards, [0, 1, 2, 3], "a topic uses all shards");
    }

    #[test]
    fn primaries_rotate() {
        assert_eq!(View(7).primary(3), ReplicaIndex(1));
    }
}
