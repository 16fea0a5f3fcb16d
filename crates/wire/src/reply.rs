//! Bodies of replies (`wire.md` sections 3 and 5), without the result section that some start
//! with. `Vec<T>` stands for values up to the end of the body, [`Counted`] for a counted list.

use alloc::vec::Vec;

use crate::{
    AttachSession, Blob, Codec, CompressionAlgorithm, Counted, DecodeError, Name, NodeRole,
    NodeStatus, Options, Permissions, Prefixed, Reader, Sink, Text, TransportKind, UserStatus,
    codec::layout,
};

/// In a poll reply without messages: the consumer's assignment is stale, it must sync.
pub const POLL_PARTITION_RESYNC: u32 = u32::MAX;
/// In a client record: nobody is logged in.
pub const NO_USER: u32 = u32::MAX;

layout! {
    /// A session was opened.
    #[derive(Copy)]
    LoginRecord<'a> {
        /// The user; 0 is root.
        user_id: u32,
        /// The session, never 0.
        session: u64,
        /// Packed.
        server_protocol_version: u32,
        /// For people.
        server_version: Name<'a>,
    }
}

layout! {
    /// A stream.
    #[derive(Copy)]
    StreamRecord<'a> {
        /// Its number.
        id: u32,
        /// When it was created, in microseconds since the epoch.
        created_at: u64,
        /// How many topics it has.
        topics_count: u32,
        /// Bytes of its messages.
        size_bytes: u64,
        /// How many messages it has.
        messages_count: u64,
        /// Its name.
        name: Name<'a>,
        /// Its options.
        options: Prefixed<Options<'a>>,
    }
}

layout! {
    /// A stream and its topics.
    StreamDetails<'a> {
        /// The stream.
        stream: StreamRecord<'a>,
        /// Its topics.
        topics: Vec<TopicRecord<'a>>,
    }
}

layout! {
    /// A topic.
    #[derive(Copy)]
    TopicRecord<'a> {
        /// Its number in its stream.
        id: u32,
        /// When it was created, in microseconds since the epoch.
        created_at: u64,
        /// How many partitions it has.
        partitions_count: u32,
        /// How long messages are kept, in microseconds; `u64::MAX` for ever.
        message_expiry: u64,
        /// How its payloads are compressed.
        compression_algorithm: CompressionAlgorithm,
        /// Bytes after which the oldest messages go; `u64::MAX` for no limit.
        max_topic_size: u64,
        /// Bytes of its messages.
        size_bytes: u64,
        /// How many messages it has.
        messages_count: u64,
        /// Its name.
        name: Name<'a>,
        /// Options its creator gave.
        options: Prefixed<Options<'a>>,
        /// Options that followed from defaults.
        derived_options: Prefixed<Options<'a>>,
    }
}

layout! {
    /// A topic and its partitions.
    TopicDetails<'a> {
        /// The topic.
        topic: TopicRecord<'a>,
        /// Its partitions.
        partitions: Vec<PartitionRecord>,
    }
}

layout! {
    /// A partition.
    #[derive(Copy)]
    PartitionRecord {
        /// Its number in its topic.
        id: u32,
        /// When it was created, in microseconds since the epoch.
        created_at: u64,
        /// How many segments it has; at least 1.
        segments_count: u32,
        /// Offset of the last committed message; 0 if there is none.
        current_offset: u64,
        /// Bytes of its messages.
        size_bytes: u64,
        /// How many messages it has.
        messages_count: u64,
    }
}

layout! {
    /// Where a batch was written. A reply to a send is a counted list of these.
    #[derive(Copy)]
    Confirmation {
        /// The stream.
        stream_id: u32,
        /// The topic.
        topic_id: u32,
        /// The partition.
        partition_id: u32,
        /// Offset of the batch's first message.
        base_offset: u64,
    }
}

layout! {
    /// The start of a poll reply; batches follow, back to back.
    #[derive(Copy)]
    PollHead {
        /// The partition read, or [`POLL_PARTITION_RESYNC`].
        partition_id: u32,
        /// Offset of the last committed message; 0 if there is none.
        current_offset: u64,
        /// How many messages follow.
        count: u32,
    }
}

impl PollHead {
    /// Its size.
    pub const SIZE: usize = 16;

    /// The head's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        crate::put(&mut bytes, 0, self.partition_id.to_le_bytes());
        crate::put(&mut bytes, 4, self.current_offset.to_le_bytes());
        crate::put(&mut bytes, 12, self.count.to_le_bytes());
        bytes
    }
}

layout! {
    /// A consumer's offset. The body is empty if none is stored.
    #[derive(Copy)]
    ConsumerOffset {
        /// The partition.
        partition_id: u32,
        /// Offset of the last committed message.
        current_offset: u64,
        /// The stored offset.
        stored_offset: u64,
    }
}

layout! {
    /// A node.
    #[derive(Copy)]
    NodeRecord<'a> {
        /// Its name.
        name: Text<'a>,
        /// The address clients dial.
        ip: Text<'a>,
        /// TCP port, 0 for none.
        tcp: u16,
        /// QUIC port, 0 for none.
        quic: u16,
        /// HTTP port, 0 for none.
        http: u16,
        /// WebSocket port, 0 for none.
        websocket: u16,
        /// Its part in the metadata group.
        role: NodeRole,
        /// What is known of it.
        status: NodeStatus,
    }
}

layout! {
    /// The nodes of the cluster.
    ClusterMetadata<'a> {
        /// The cluster's name.
        name: Text<'a>,
        /// The nodes.
        nodes: Counted<NodeRecord<'a>>,
    }
}

layout! {
    /// Which node to go to, and what to attach to there.
    #[derive(Copy)]
    Route<'a> {
        /// The session to attach.
        attach: AttachSession,
        /// The node.
        node: NodeRecord<'a>,
    }
}

layout! {
    /// A client.
    #[derive(Copy)]
    ClientRecord<'a> {
        /// Its number.
        client_id: u32,
        /// Its user, or [`NO_USER`].
        user_id: u32,
        /// How it is connected.
        transport: TransportKind,
        /// Where from.
        address: Text<'a>,
        /// How many consumer groups it is in.
        groups_count: u32,
    }
}

layout! {
    /// A consumer group a client is in.
    #[derive(Copy)]
    ClientGroup {
        /// The stream.
        stream_id: u32,
        /// The topic.
        topic_id: u32,
        /// The group.
        group_id: u32,
    }
}

layout! {
    /// A client and its consumer groups.
    ClientDetails<'a> {
        /// The client.
        client: ClientRecord<'a>,
        /// Its groups.
        groups: Vec<ClientGroup>,
    }
}

layout! {
    /// Hits and misses of a partition's cache.
    #[derive(Copy)]
    CacheStats {
        /// The stream.
        stream_id: u32,
        /// The topic.
        topic_id: u32,
        /// The partition.
        partition_id: u32,
        /// Reads served from memory.
        hits: u64,
        /// Reads that went to disk.
        misses: u64,
        /// Hits of all, as the bits of an `f32`: core code has no floats.
        hit_ratio_bits: u32,
    }
}

layout! {
    /// Numbers about the server.
    Stats<'a> {
        /// Of the process.
        process_id: u32,
        /// Per cent, as the bits of an `f32`: core code has no floats.
        cpu_usage_bits: u32,
        /// Per cent, as the bits of an `f32`.
        total_cpu_usage_bits: u32,
        /// Bytes.
        memory_usage: u64,
        /// Bytes.
        total_memory: u64,
        /// Bytes.
        available_memory: u64,
        /// Microseconds since the start.
        run_time: u64,
        /// Microseconds since the epoch.
        start_time: u64,
        /// From disk.
        read_bytes: u64,
        /// To disk.
        written_bytes: u64,
        /// Of all messages.
        messages_size_bytes: u64,
        /// How many streams.
        streams_count: u32,
        /// How many topics.
        topics_count: u32,
        /// How many partitions.
        partitions_count: u32,
        /// How many segments.
        segments_count: u32,
        /// How many messages.
        messages_count: u64,
        /// How many clients.
        clients_count: u32,
        /// How many consumer groups.
        consumer_groups_count: u32,
        /// Of the machine.
        hostname: Text<'a>,
        /// Of the machine.
        os_name: Text<'a>,
        /// Of the machine.
        os_version: Text<'a>,
        /// Of the machine.
        kernel_version: Text<'a>,
        /// For people.
        server_version: Text<'a>,
        /// As one decimal number, see [`decimal_version`]; 0 for none.
        server_semver: u32,
        /// Caches.
        caches: Counted<CacheStats>,
        /// How many threads.
        threads_count: u32,
        /// Bytes.
        free_disk_space: u64,
        /// Bytes.
        total_disk_space: u64,
    }
}

/// A version as one decimal number: minor and patch take three digits each.
#[must_use]
pub const fn decimal_version(major: u32, minor: u32, patch: u32) -> u32 {
    assert!(major < 4_000 && minor < 1_000 && patch < 1_000);
    major * 1_000_000 + minor * 1_000 + patch
}

layout! {
    /// An option there is.
    #[derive(Copy)]
    OptionDescription<'a> {
        /// Its key.
        key: Name<'a>,
        /// Kind of its value.
        kind: u8,
        /// Its default, in the kind's encoding; may be empty.
        default: Blob<'a>,
        /// For people.
        description: Text<'a>,
    }
}

layout! {
    /// A consumer group.
    #[derive(Copy)]
    GroupRecord<'a> {
        /// Its number in its topic.
        id: u32,
        /// How many partitions its topic has.
        partitions_count: u32,
        /// How many members it has.
        members_count: u32,
        /// Its name.
        name: Name<'a>,
    }
}

layout! {
    /// A member of a consumer group.
    MemberRecord {
        /// Its number.
        id: u32,
        /// Its partitions.
        partitions: Counted<u32>,
    }
}

layout! {
    /// A consumer group and its members.
    GroupDetails<'a> {
        /// The group.
        group: GroupRecord<'a>,
        /// Its members.
        members: Vec<MemberRecord>,
    }
}

layout! {
    /// A member's partitions. The body is empty if the client is not a member.
    Assignment {
        /// Changes whenever the partitions may have changed.
        generation: u64,
        /// The partitions.
        partitions: Counted<u32>,
    }
}

layout! {
    /// A user.
    #[derive(Copy)]
    UserRecord<'a> {
        /// Its number; 0 is root.
        id: u32,
        /// When it was created, in microseconds since the epoch.
        created_at: u64,
        /// Whether it may log in.
        status: UserStatus,
        /// Its name.
        username: Name<'a>,
        /// Its options.
        options: Prefixed<Options<'a>>,
    }
}

/// A user and its rights: `01, len:u32, permissions`, or four zero bytes for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserDetails<'a> {
    /// The user.
    pub user: UserRecord<'a>,
    /// Its rights.
    pub permissions: Option<Permissions>,
}

impl<'a> Codec<'a> for UserDetails<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let user = reader.read()?;
        let permissions: Option<Prefixed<Permissions>> = reader.read()?;
        if permissions.is_none() && reader.take_array()? != [0; 3] {
            return Err(DecodeError::Kind);
        }
        Ok(Self {
            user,
            permissions: permissions.map(|Prefixed(permissions)| permissions),
        })
    }

    fn write(&self, out: &mut impl Sink) {
        self.user.write(out);
        match &self.permissions {
            None => out.put(&[0; 4]),
            Some(permissions) => {
                true.write(out);
                Prefixed(permissions.clone()).write(out);
            }
        }
    }
}

layout! {
    /// A token that exists.
    #[derive(Copy)]
    TokenRecord<'a> {
        /// Its name.
        name: Name<'a>,
        /// Until when it is good, in microseconds since the epoch; 0 for ever.
        expiry_at: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_decimal_numbers() {
        assert_eq!(decimal_version(0, 11, 0), 11_000);
        assert_eq!(decimal_version(1, 2, 3), 1_002_003);
    }

    #[test]
    fn a_poll_head_has_one_layout() {
        let head = PollHead {
            partition_id: 2,
            current_offset: 41,
            count: 3,
        };
        assert_eq!(head.encode(), head.to_bytes());
    }
}
