//! What another node of the cluster may send: whatever it is, it never brings this one down.

use core::time::Duration;

use base::{
    Bytes, ClientId, Domain, GroupId, Instant, Op, Prng, ReplicaIndex, ShardIndex, Timestamp, View,
};
use platform::{ConnectionId, ListenerId};
use transport::{Identity, REPLICA_PROTOCOL};
use wire::{
    Code, Command, HEADER_SIZE, Operation, Request, RequestHeader, header,
    replica::{
        Beat, Echo, Envelope, GroupStatus, Message, PrepareHeader, StatusRole, Trust,
        envelope_repair, seal,
    },
};

use crate::{
    client::{create_stream, login},
    node::{CLUSTER, Node, Options, PASSWORD, USERNAME},
};

/// What is committed, as far as the peers say: a node that is lied to about this stops, for its
/// log and the group's have parted.
const NOTHING: Op = Op(0);

/// A node of three, and its links to the two others.
struct Cluster {
    node: Node,
    links: [ConnectionId; 2],
}

fn identity(replica: u8) -> Identity {
    Identity {
        cluster: CLUSTER,
        replica: ReplicaIndex(replica),
        replica_count: 3,
        shard: ShardIndex(0),
        shard_count: 1,
        boot: 9,
        version: REPLICA_PROTOCOL,
    }
}

impl Cluster {
    fn new() -> Self {
        let mut node = Node::with(Options {
            shards: 1,
            peers: 2,
            ..Options::default()
        });
        let links = [0, 1].map(|replica| Self::link(&mut node, replica));
        Self { node, links }
    }

    fn link(node: &mut Node, replica: u8) -> ConnectionId {
        let connection = node.connect_to(ListenerId::REPLICA);
        node.send(connection, &identity(replica).hello());
        connection
    }

    /// A frame of `replica`; a link that was closed is made again.
    fn tell(&mut self, replica: u8, frame: &[u8]) {
        let link = &mut self.links[usize::from(replica)];
        if self.node.is_closed(*link) {
            *link = Self::link(&mut self.node, replica);
        }
        self.node.send(*link, frame);
        if self.node.halted.take().is_some() {
            // A log that cannot go on is an answer, too.
            self.node.crash();
            self.links = [0, 1].map(|replica| Self::link(&mut self.node, replica));
        }
    }
}

fn small(prng: &mut Prng) -> u64 {
    if prng.index(20) == 0 {
        prng.next_u64()
    } else {
        prng.next_u64() % 5
    }
}

fn small_view(prng: &mut Prng) -> View {
    let view = small(prng) % (1 << 20);
    View(u32::try_from(view).expect("cut above"))
}

/// The prepare of a small op, which may well be the next one of a view.
fn prepare(prng: &mut Prng, replica: u8) -> Bytes {
    let bodies = [
        create_stream("orders").encode(),
        login(USERNAME, PASSWORD).encode(),
        vec![0; prng.index(9)],
    ];
    let operations = [
        Operation::Noop,
        Operation::Register,
        Operation::CreateStream,
        Operation::CreateTopic,
        Operation::SendMessages,
        Operation::Logout,
    ];
    let mut frame = vec![0; HEADER_SIZE];
    frame.extend_from_slice(&bodies[prng.index(bodies.len())]);
    let header = PrepareHeader {
        checksum: 0,
        checksum_body: 0,
        cluster: CLUSTER,
        size: 0,
        view: small_view(prng),
        replica: ReplicaIndex(replica),
        parent: 0,
        client: ClientId(u128::from(small(prng))),
        group: GroupId(small(prng) & 1),
        op: Op(small(prng)),
        commit: NOTHING,
        timestamp: Timestamp(small(prng)),
        request: small(prng),
        session: small(prng),
        request_checksum: 0,
        user: 0,
        operation: operations[prng.index(operations.len())],
        encryption: None,
    };
    header.seal_into(&mut frame);
    Bytes::copy_of(&frame)
}

fn headers(prng: &mut Prng, replica: u8) -> Vec<PrepareHeader> {
    (0..prng.index(3))
        .map(|_| PrepareHeader::decode(&prepare(prng, replica)).expect("sealed"))
        .collect()
}

/// A heartbeat's clocks, some of them impossible.
fn beat(prng: &mut Prng) -> Beat {
    Beat {
        sent: Instant(small(prng)),
        realtime: Timestamp(small(prng)),
        echo: (prng.index(2) == 0).then(|| Echo {
            sent: Instant(small(prng)),
            held: Duration::from_micros(small(prng)),
        }),
    }
}

/// An identity for `op`; nothing has none.
fn checksum_of(op: Op, prng: &mut Prng) -> u128 {
    u128::from(small(prng)) * u128::from(op.0.min(1))
}

fn message(prng: &mut Prng, replica: u8) -> Bytes {
    let group = GroupId(0);
    let (op, commit) = (Op(small(prng)), NOTHING);
    let log_view = small_view(prng);
    let role = [
        StatusRole::Normal,
        StatusRole::Abdicated,
        StatusRole::ViewChange,
        StatusRole::Doubt,
        StatusRole::Rejoining,
    ][prng.index(5)];
    let message = match prng.index(6) {
        0 => Message::PrepareOk {
            group,
            op,
            checksum: u128::from(small(prng)),
        },
        1 => Message::StartViewChange { group },
        2 => Message::DoViewChange {
            group,
            op,
            commit,
            log_view,
            trust: [Trust::Doubt, Trust::Trusted, Trust::Blank][prng.index(3)],
            checksum: checksum_of(op, prng),
            headers: headers(prng, replica),
            faulty: Vec::new(),
            nonce: u128::from(small(prng)),
        },
        3 => Message::StartView {
            group,
            op,
            commit,
            checksum: checksum_of(op, prng),
            headers: headers(prng, replica),
            nonce: u128::from(small(prng)),
        },
        4 => Message::RequestPrepares {
            group,
            from: op,
            to: Op(small(prng)),
        },
        _ => Message::Heartbeat {
            beat: beat(prng),
            statuses: vec![GroupStatus {
                group,
                view: small_view(prng),
                log_view,
                op,
                commit,
                checksum: 0,
                role,
            }],
        },
    };
    message.encode(CLUSTER, small_view(prng), ReplicaIndex(replica))
}

/// A frame that a peer passes on, around something that is perhaps a client's.
fn passed(prng: &mut Prng, replica: u8) -> Vec<u8> {
    let command = [Command::Forward, Command::ForwardReply][prng.index(2)];
    let mut frame = vec![0; HEADER_SIZE];
    Envelope {
        cluster: CLUSTER,
        view: View(0),
        command,
        replica: ReplicaIndex(replica),
    }
    .encode(&mut frame);
    for at in [128, 136] {
        let value = small(prng);
        frame[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    frame[144] = u8::try_from(prng.index(3)).expect("small");
    frame[146] = u8::try_from(prng.index(9)).expect("small");
    frame[147] = u8::try_from(prng.index(6)).expect("small");
    let code = [
        Code::CreateStream,
        Code::GetStreams,
        Code::PollMessages,
        Code::SendMessages,
        Code::Logout,
        Code::DeleteSegments,
        Code::GetMe,
    ][prng.index(7)];
    let asked = RequestHeader::new(ClientId(3), small(prng), small(prng), code);
    let inner = header::request(&asked, &Request::GetClient(1).encode());
    let cut = inner.len() - prng.index(2) * prng.index(inner.len());
    frame.extend_from_slice(&inner[..cut]);
    seal(&mut frame);
    frame
}

#[test]
fn nonsense_under_a_seal_never_stops_the_node() {
    for seed in 0..60 {
        let mut cluster = Cluster::new();
        let prng = &mut Prng::new(seed, Domain::Network, 1);
        for _ in 0..300 {
            let replica = u8::try_from(prng.index(2)).expect("small");
            match prng.index(5) {
                0 => {
                    let frame = prepare(prng, replica);
                    cluster.tell(replica, &frame);
                }
                1 => {
                    let prepare = prepare(prng, replica);
                    let (view, replica_index) = (small_view(prng), ReplicaIndex(replica));
                    let group = GroupId(0);
                    let head = envelope_repair(CLUSTER, view, replica_index, group, &prepare);
                    let whole = [&head[..], &prepare[..]].concat();
                    cluster.tell(replica, &whole);
                }
                2 => {
                    let frame = passed(prng, replica);
                    cluster.tell(replica, &frame);
                }
                _ => {
                    let frame = message(prng, replica);
                    cluster.tell(replica, &frame);
                }
            }
            if prng.index(10) == 0 {
                cluster.node.pass(Duration::from_millis(300));
            }
        }
    }
}

#[test]
fn a_frame_without_a_seal_closes_the_link() {
    let mut cluster = Cluster::new();
    let mut frame = message(&mut Prng::new(1, Domain::Network, 2), 0).to_vec();
    frame[130] ^= 1;
    cluster.tell(0, &frame);
    assert!(cluster.node.is_closed(cluster.links[0]));
    assert!(!cluster.node.is_closed(cluster.links[1]));
}

#[test]
fn a_damaged_size_closes_the_link_at_once() {
    let mut cluster = Cluster::new();
    let mut frame = message(&mut Prng::new(1, Domain::Network, 2), 0).to_vec();
    // 128 KiB more than there are; the link would be deaf until they have come.
    frame[50] ^= 2;
    cluster.tell(0, &frame);
    assert!(cluster.node.is_closed(cluster.links[0]));
}

#[test]
fn a_stranger_on_the_replica_port_is_turned_away() {
    let mut cluster = Cluster::new();
    for hello in [
        identity(2).hello(),
        identity(7).hello(),
        Identity {
            cluster: 1,
            ..identity(0)
        }
        .hello(),
        Identity {
            shard_count: 2,
            ..identity(0)
        }
        .hello(),
        message(&mut Prng::new(1, Domain::Network, 3), 0),
    ] {
        let stranger = cluster.node.connect_to(ListenerId::REPLICA);
        cluster.node.send(stranger, &hello);
        assert!(cluster.node.is_closed(stranger));
    }
    let silent = cluster.node.connect_to(ListenerId::REPLICA);
    cluster.node.pass(Duration::from_secs(2));
    assert!(cluster.node.is_closed(silent));
}
