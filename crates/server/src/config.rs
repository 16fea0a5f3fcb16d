//! What a shard is told when it starts. All of it comes from the body; nothing is read here.

use ::core::time::Duration;
use alloc::{string::String, vec::Vec};

use base::{ReplicaIndex, ShardIndex};
use platform::Address;

use crate::EncryptionKey;

/// Start-up parameters of one shard.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// The cluster, from the hash of its name.
    pub cluster: u128,
    /// Its name, shown to clients.
    pub cluster_name: String,
    /// This node's number in the roster.
    pub replica: ReplicaIndex,
    /// This shard.
    pub shard: ShardIndex,
    /// Shards on every node of the cluster.
    pub shard_count: u16,
    /// The roster, by replica index; one entry without clustering.
    pub nodes: Vec<NodeAddress>,
    /// Where this node accepts clients; port 0 lets the body choose. Only shard 0 listens.
    pub client_listen: Address,
    /// Where this node accepts replicas; none without clustering.
    pub replica_listen: Option<Address>,
    /// Changes exactly when the machine may have lost what was not synced.
    pub boot_id: u128,
    /// The root user's name and password hash.
    pub root: RootCredential,
    /// What messages are encrypted with before they enter a log; the same on every node.
    pub encryption: Option<EncryptionKey>,
    /// Bounds of everything that could grow.
    pub limits: Limits,
    /// Timeouts.
    pub timing: Timing,
    /// Whether to record [`crate::Observation`]s; for white-box checkers.
    pub observe: bool,
}

impl ShardConfig {
    /// The bounds of the metadata state machine; the same on every replica.
    pub(crate) fn metadata_limits(&self) -> metadata::Limits {
        metadata::Limits {
            clients_max: self.limits.clients_max,
            segment_size: self.limits.segment_size,
            segment_size_min: self.limits.segment_size_min,
            replica_salt: u64::from(self.replica.0),
            ..metadata::Limits::default()
        }
    }
}

/// A node as the roster has it.
#[derive(Clone, Debug)]
pub struct NodeAddress {
    /// Name shown to clients.
    pub name: String,
    /// Host that clients are told.
    pub client_host: String,
    /// Port that clients are told; 0 until bound, then the real one for this node.
    pub client_port: u16,
    /// Where the other replicas connect to.
    pub replica: Address,
}

/// The root user, checked on every login.
#[derive(Clone, Debug)]
pub struct RootCredential {
    /// Its name.
    pub username: String,
    /// Argon2id hash of its password, as a PHC string.
    pub hash: String,
}

/// Bounds of everything that could grow; each is tested at the limit and one beyond.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of one frame, header included.
    pub frame_size_max: usize,
    /// Client connections of one node.
    pub connections_max: usize,
    /// Uncommitted ops of one group.
    pub pipeline_max: usize,
    /// Bytes queued on one client connection before it is closed.
    pub client_queue_bytes_max: usize,
    /// Bytes queued on one replica link before prepares are left to repair.
    pub replica_queue_bytes_max: usize,
    /// Requests that wait for their group to be built or to find its primary, per shard; and those
    /// whose password or token is being computed.
    pub parked_max: usize,
    /// Bytes of a segment of a partition whose topic does not say.
    pub segment_size: u64,
    /// Smallest `segment_size` a topic may ask for.
    pub segment_size_min: u64,
    /// Bytes of a segment of the metadata log.
    pub metadata_segment_size: u64,
    /// Ops of the metadata log between two checkpoints.
    pub checkpoint_ops: u64,
    /// Ops of a partition's log between two checkpoints.
    pub partition_checkpoint_ops: u64,
    /// Bytes of a checkpoint in one frame to a peer.
    pub checkpoint_chunk: usize,
    /// Bytes beyond which a view store that is mostly history is compacted.
    pub views_size: u64,
    /// Bytes between two entries of the sparse index.
    pub index_interval: u64,
    /// Bytes read at once from a segment.
    pub read_chunk: usize,
    /// Bytes of newest records a partition keeps in memory.
    pub tail_cache: usize,
    /// Bytes of records in one poll reply.
    pub poll_bytes_max: usize,
    /// Prepares in one answer to a repair request.
    pub repair_max: usize,
    /// Client sessions.
    pub clients_max: usize,
    /// Identified producers per partition.
    pub producers_max: usize,
    /// Stored offsets per partition and kind of consumer.
    pub consumers_max: usize,
    /// How many times what a topic may retain a partition holds, in age or bytes, before messages
    /// go that a consumer has not read; 0 to keep them for ever.
    pub patience_factor: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_size_max: 64 << 20,
            connections_max: 10_000,
            pipeline_max: 64,
            client_queue_bytes_max: 256 << 20,
            replica_queue_bytes_max: 64 << 20,
            parked_max: 1024,
            segment_size: 1 << 30,
            segment_size_min: 1 << 20,
            metadata_segment_size: 64 << 20,
            checkpoint_ops: 1024,
            partition_checkpoint_ops: 4096,
            checkpoint_chunk: 256 << 10,
            views_size: 64 << 10,
            index_interval: 64 << 10,
            read_chunk: 1 << 20,
            tail_cache: 1 << 20,
            poll_bytes_max: 16 << 20,
            repair_max: 64,
            clients_max: 10_000,
            producers_max: 4096,
            consumers_max: 100_000,
            patience_factor: 10,
        }
    }
}

/// Timeouts; all on a 10 ms grid.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Between two heartbeats on a link.
    pub heartbeat: Duration,
    /// Silence after which a node is taken for dead.
    pub suspect: Duration,
    /// Between two votes while a view change goes on.
    pub view_change_retry: Duration,
    /// After which a view change that got nowhere moves to the next view.
    pub view_change: Duration,
    /// Between two requests for missing prepares.
    pub repair_retry: Duration,
    /// Between two attempts to dial a peer; doubled up to eight times, with jitter.
    pub redial: Duration,
    /// After which what a `replicated` topic wrote is synced.
    pub flush: Duration,
    /// Between two pieces of sealed data that are read to find damage; zero to leave it alone.
    pub scrub: Duration,
    /// Between two looks for segments that are too old to be retained; zero to retain everything,
    /// whatever topics say.
    pub retention: Duration,
    /// The age below which no message goes that a consumer has not read, whatever the topic says.
    pub patience: Duration,
    /// How long a request waits for a group without a primary before it is refused (58).
    pub park: Duration,
    /// How long a partition that must change its consumer waits for the old one to commit what
    /// it has polled.
    pub rebalancing: Duration,
    /// How often clients give a sign of life; a member of a consumer group that is silent for
    /// more than 1.2 times as long is evicted. Zero to leave them alone.
    pub client_heartbeat: Duration,
    /// How long an admitted request waits for its commit before its outcome is unknown (57).
    pub request: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(100),
            suspect: Duration::from_millis(1_000),
            view_change_retry: Duration::from_millis(200),
            view_change: Duration::from_millis(800),
            repair_retry: Duration::from_millis(100),
            redial: Duration::from_millis(100),
            flush: Duration::from_millis(50),
            scrub: Duration::from_secs(1),
            retention: Duration::from_secs(60),
            patience: Duration::from_secs(3600),
            park: Duration::from_millis(1_500),
            rebalancing: Duration::from_secs(30),
            client_heartbeat: Duration::from_secs(30),
            request: Duration::from_secs(10),
        }
    }
}
