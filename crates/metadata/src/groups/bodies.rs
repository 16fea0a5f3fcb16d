//! Bodies of the group ops as they stand in the log: what the server adds to a client's words, and
//! the ops that it proposes by itself.

use alloc::vec::Vec;

use base::ClientId;
use wire::{Codec, Counted, DecodeError, Reader, Sink, request::GroupTarget};

use super::{GroupIds, Home};

/// Body of a JoinConsumerGroup in the log.
///
/// ```text
///   the client's body (stream, topic, group), home replica u8, home shard u16,
///   home life u64, generation u64, drained: count u32, partition u32 each
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join<'a> {
    /// The group.
    pub target: GroupTarget<'a>,
    /// Where the client is connected.
    pub home: Home,
    /// The group's generation when its partitions were asked; if it is another one when the op
    /// is applied, nothing is known to be drained.
    pub generation: u64,
    /// Partitions of which nothing is polled and not committed.
    pub drained: Counted<u32>,
}

impl<'a> Codec<'a> for Join<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            target: reader.read()?,
            home: Home {
                replica: reader.read()?,
                shard: reader.read()?,
                life: reader.read()?,
            },
            generation: reader.read()?,
            drained: reader.read()?,
        })
    }

    fn write(&self, out: &mut impl Sink) {
        self.target.write(out);
        self.home.replica.write(out);
        self.home.shard.write(out);
        self.home.life.write(out);
        self.generation.write(out);
        self.drained.write(out);
    }
}

impl<'a> Join<'a> {
    /// What the node that holds the connection makes of a client's body; the metadata primary
    /// adds what it finds to be drained.
    #[must_use]
    pub const fn new(target: GroupTarget<'a>, home: Home) -> Self {
        Self {
            target,
            home,
            generation: 0,
            drained: Counted(Vec::new()),
        }
    }
}

/// Body of a RemoveConsumerGroupMember: a session that cannot consume any more leaves all its
/// groups. It goes on otherwise: what it asked for before is still answered.
///
/// ```text
///   0 client u128   16 session u64
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoveMember {
    /// Whose session.
    pub client: ClientId,
    /// Which; a later one of the same client is left alone.
    pub session: u64,
}

impl<'a> Codec<'a> for RemoveMember {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            client: ClientId(reader.read()?),
            session: reader.read()?,
        })
    }

    fn write(&self, out: &mut impl Sink) {
        self.client.0.write(out);
        self.session.write(out);
    }
}

/// Body of a CompleteConsumerGroupRevocation: a partition has been drained, or its time is up.
///
/// ```text
///   0 stream u32   4 topic u32   8 group u32   12 source client u128   28 partition u32
///  32 began u64
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompleteRevocation {
    /// The group.
    pub group: GroupIds,
    /// Whose session gives the partition away.
    pub source: ClientId,
    /// Which partition.
    pub partition: u32,
    /// The op with which the revocation began: another one is left alone.
    pub began: u64,
}

impl<'a> Codec<'a> for CompleteRevocation {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            group: GroupIds {
                stream: reader.read()?,
                topic: reader.read()?,
                group: reader.read()?,
            },
            source: ClientId(reader.read()?),
            partition: reader.read()?,
            began: reader.read()?,
        })
    }

    fn write(&self, out: &mut impl Sink) {
        self.group.stream.write(out);
        self.group.topic.write(out);
        self.group.group.write(out);
        self.source.0.write(out);
        self.partition.write(out);
        self.began.write(out);
    }
}
