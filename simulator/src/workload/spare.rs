//! Spare things: streams, topics, users and tokens that nobody counts on, under a handful of names
//! that come again and again.
//!
//! Elsewhere no name is used twice, so that whatever comes back says where it came from. Here
//! names collide, numbers are reused, things are renamed, and every fifth request is one that must
//! be refused. What a client may be told of all this only the auditor knows (`check::metadata`);
//! here no answer is judged.

use base::Prng;
use client::RequestFrame;
use wire::{
    ArchiveCompression, AttachSession, GlobalPermissions, Identifier, Name, OptionalPartition,
    OptionsBlock, OptionsScope, Permissions, PollingStrategy, Prefixed, Request, Secret,
    StreamPermissions, StreamRights, TopicPermissions, TopicRights, UserStatus, Value,
    options::kind,
    request::{
        ChangePassword, CreatePersonalAccessToken, CreateStream, CreateTopic, CreateUser,
        FlushUnsavedBuffer, OffsetTarget, PartitionsCount, PollMessages, Snapshot, TopicTarget,
        UpdatePermissions, UpdateStream, UpdateTopic, UpdateUser,
    },
};

use super::{Call, Sampler, named, poll::single};
use crate::profile::Durability;

const STREAMS: u64 = 2;
const TOPICS: u64 = 2;
const USERS: u64 = 3;
const TOKENS: u64 = 3;
/// Passwords that spare users may have.
pub(super) const PASSWORDS: u64 = 2;

/// More than one request may ask for.
const TOO_MANY: u32 = 1001;

pub(super) fn password_of(word: u64) -> String {
    format!("word-{word}")
}

pub(super) fn user_of(user: u64) -> String {
    format!("guest-{user}")
}

pub(super) fn is_token(name: &str) -> bool {
    name.starts_with("key-")
}

fn some(prng: &mut Prng, kind: &str, count: u64) -> String {
    format!("{kind}-{}", prng.below(count))
}

fn name(name: &str) -> Name<'_> {
    Name::new(name).expect("a short name")
}

impl Sampler<'_> {
    /// A request about spare things, or one that reads what nobody else asks for.
    pub(super) fn sample_spare(&mut self) -> (Call, RequestFrame) {
        let frame = match self.prng().below(100) {
            0..20 => self.spare_stream(),
            20..45 => self.spare_topic(),
            45..75 => self.spare_user(),
            75..85 => self.spare_token(),
            _ => self.spare_read(),
        };
        let call = Call::Spare {
            code: frame.code(),
            writes: frame.is_write(),
        };
        (call, frame)
    }

    fn spare_stream(&mut self) -> RequestFrame {
        let prng = self.prng();
        let (a, b) = (some(prng, "spare", STREAMS), some(prng, "spare", STREAMS));
        let mut block = OptionsBlock::new();
        if prng.chance(1, 8) {
            block.push("retention", Value::text("none"));
        }
        let options = block.as_options();
        RequestFrame::new(&match prng.below(10) {
            0..3 => Request::CreateStream(CreateStream {
                name: name(&a),
                options,
            }),
            3..5 => Request::UpdateStream(UpdateStream {
                stream: named(&a),
                name: name(&b),
                options,
            }),
            5..6 => Request::DeleteStream(named(&a)),
            6..8 => Request::PurgeStream(named(&a)),
            8..9 => Request::GetStream(named(&a)),
            _ => Request::GetTopics(named(&a)),
        })
    }

    fn spare_topic(&mut self) -> RequestFrame {
        let segment_size = self.workload.segment_size;
        let all_persisted = self.workload.durability == Durability::AllPersisted;
        let prng = self.prng();
        let stream = some(prng, "spare", STREAMS);
        let (a, b) = (some(prng, "topic-s", TOPICS), some(prng, "topic-s", TOPICS));
        let (of_stream, of_topic) = (named(&stream), named(&a));
        let target = TopicTarget {
            stream: of_stream,
            topic: of_topic,
        };
        let partitions = |count| PartitionsCount {
            stream: of_stream,
            topic: of_topic,
            count,
        };
        let mut block = some_options(prng, segment_size);
        let count = [0, 1, 1, TOO_MANY][prng.index(4)];
        let kind = prng.below(12);
        if kind < 3 && all_persisted {
            // Where all nodes may lose power at once, nothing less is promised to survive.
            block.push("durability", Value::text("persisted"));
            block.push("consumer_offset_durability", Value::text("persisted"));
        } else if kind < 3 && prng.chance(1, 3) {
            let words = ["persisted", "Replicated", "lost"];
            block.push("durability", Value::text(words[prng.index(3)]));
        }
        let options = block.as_options();
        RequestFrame::new(&match kind {
            0..3 => Request::CreateTopic(CreateTopic {
                stream: of_stream,
                partitions_count: count,
                name: name(&a),
                options,
            }),
            3..6 => Request::UpdateTopic(UpdateTopic {
                stream: of_stream,
                topic: of_topic,
                name: name(&b),
                options,
            }),
            6..7 => Request::DeleteTopic(target),
            7..8 => Request::PurgeTopic(target),
            8..9 => Request::CreatePartitions(partitions(count)),
            9..11 => Request::DeletePartitions(partitions(count)),
            _ => Request::GetTopic(target),
        })
    }

    fn spare_user(&mut self) -> RequestFrame {
        let streams = self.workload.streams.values();
        let ids: Vec<u32> = streams.filter(|it| it.live).map(|it| it.id).collect();
        let prng = self.prng();
        let (user, other) = (some(prng, "guest", USERS), some(prng, "guest", USERS));
        let permissions = prng.chance(4, 5).then(|| some_permissions(prng, &ids));
        let status = [UserStatus::Active, UserStatus::Inactive][usize::from(prng.chance(1, 4))];
        let mut block = OptionsBlock::new();
        if prng.chance(1, 12) {
            block.push("colour", Value::text("none"));
        }
        let options = block.as_options();
        let word = password_of(prng.below(PASSWORDS));
        let new = password_of(prng.below(PASSWORDS));
        let mistake = prng.chance(1, 6);
        let short = prng.chance(1, 2);
        let target = match mistake && short {
            true => Identifier::Numeric(0),
            false => named(&user),
        };
        RequestFrame::new(&match prng.below(10) {
            0..3 => Request::CreateUser(CreateUser {
                username: name(match (mistake, short) {
                    (true, true) => "ab",
                    (true, false) => crate::world::USERNAME,
                    _ => &user,
                }),
                password: Secret(if prng.chance(1, 12) { "x" } else { &word }),
                status,
                permissions: permissions.map(Prefixed),
                options,
            }),
            3..5 => Request::UpdateUser(UpdateUser {
                user: target,
                username: (prng.chance(1, 2) && !short).then(|| name(&other)),
                status: prng.chance(1, 2).then_some(status),
                options,
            }),
            5..8 => Request::UpdatePermissions(UpdatePermissions {
                user: target,
                permissions: permissions.map(Prefixed),
            }),
            8..9 => Request::ChangePassword(ChangePassword {
                user: named(&user),
                current: Secret(&word),
                new: Secret(if mistake { "x" } else { &new }),
            }),
            // What root may not lose is asked for now and then.
            _ => Request::DeleteUser(target),
        })
    }

    fn spare_token(&mut self) -> RequestFrame {
        let prng = self.prng();
        let token = some(prng, "key", TOKENS);
        let (mistake, short) = (prng.chance(1, 5), prng.chance(1, 2));
        let expiry = match (mistake, short) {
            (true, false) => u64::MAX - 1,
            _ => prng.below(30) * 1_000_000,
        };
        RequestFrame::new(&match prng.below(4) {
            0..2 => Request::CreatePersonalAccessToken(CreatePersonalAccessToken {
                name: name(if mistake && short { "k" } else { &token }),
                expiry,
            }),
            2..3 => Request::DeletePersonalAccessToken(name(&token)),
            _ => Request::GetPersonalAccessTokens,
        })
    }

    fn spare_read(&mut self) -> RequestFrame {
        let caller = &self.workload.callers[self.client];
        let (id, session) = (caller.id, caller.session);
        let topic = self.some_topic();
        let (stream, topic) = match topic {
            Some(topic) => self.names_of(topic),
            None => ("spare-0".into(), "topic-s-0".into()),
        };
        let prng = self.prng();
        let partition = OptionalPartition(Some(0));
        let poll = PollMessages {
            consumer: single(9),
            stream: named(&stream),
            topic: named(&topic),
            partition,
            strategy: PollingStrategy::First,
            count: 0,
            auto_commit: false,
        };
        let offset = OffsetTarget {
            consumer: single(9),
            stream: named(&stream),
            topic: named(&topic),
            partition,
        };
        let scopes = [
            OptionsScope::Topic,
            OptionsScope::Stream,
            OptionsScope::User,
        ];
        RequestFrame::new(&match prng.below(11) {
            0 => Request::GetStats,
            1 => Request::GetMe,
            2 => Request::GetClients,
            3 => Request::GetClient(u32::try_from(prng.below(4)).expect("few")),
            4 => Request::DescribeOptions(scopes[prng.index(3)]),
            5 => Request::PollRouting(poll),
            6 => Request::ConsumerOffsetRouting(offset),
            7 => Request::PollOnPrimary(poll),
            8 if session.is_some() => Request::AttachConsumerSession(AttachSession {
                client_id: id.0,
                session: session.unwrap_or_default(),
                metadata_watermark: 0,
            }),
            9 => Request::FlushUnsavedBuffer(FlushUnsavedBuffer {
                stream: named(&stream),
                topic: named(&topic),
                partition_id: 0,
                fsync: false,
            }),
            _ => {
                let types: &[u8] = &[2, 3];
                let snapshot = Snapshot::new(ArchiveCompression::Stored, types);
                Request::GetSnapshot(snapshot.expect("both are known"))
            }
        })
    }
}

/// Options of a topic, some of them none.
fn some_options(prng: &mut Prng, segment_size: u64) -> OptionsBlock {
    let mut block = OptionsBlock::new();
    let number = |block: &mut OptionsBlock, key, number: u64| {
        let kind = kind::UINT64;
        let data = &number.to_le_bytes();
        block.push(key, Value { kind, data });
    };
    if prng.chance(1, 3) {
        let words = ["none", "gzip", "GZIP", "zip"];
        let word = words[prng.index(4)];
        block.push("compression_algorithm", Value::text(word));
    }
    if prng.chance(1, 3) {
        number(&mut block, "message_expiry", prng.below(3) * 60_000_000);
    }
    if prng.chance(1, 3) {
        number(
            &mut block,
            "max_topic_size",
            prng.below(4) * segment_size / 2,
        );
    }
    if prng.chance(1, 6) {
        let size = [0, segment_size, segment_size + 1][prng.index(3)];
        number(&mut block, "segment_size", size);
    }
    if prng.chance(1, 12) {
        block.push("shape", Value::text("round"));
    }
    block
}

/// Rights on everything, on streams and on topics, a few of each.
fn some_permissions(prng: &mut Prng, streams: &[u32]) -> Permissions {
    let mut flag = |one_in: u64| prng.chance(1, one_in);
    let global = GlobalPermissions {
        manage_servers: flag(16),
        read_servers: flag(8),
        manage_users: flag(16),
        read_users: flag(6),
        manage_streams: flag(24),
        read_streams: flag(10),
        manage_topics: flag(20),
        read_topics: flag(12),
        poll_messages: flag(10),
        send_messages: flag(10),
    };
    let mut given = Vec::new();
    for &id in streams {
        if !flag(2) {
            continue;
        }
        let rights = StreamRights {
            manage_stream: flag(12),
            read_stream: flag(6),
            manage_topics: flag(10),
            read_topics: flag(6),
            poll_messages: flag(6),
            send_messages: flag(6),
        };
        let mut topics = Vec::new();
        for id in 0..3 {
            if flag(2) {
                let rights = TopicRights {
                    manage_topic: flag(10),
                    read_topic: flag(5),
                    poll_messages: flag(3),
                    send_messages: flag(3),
                };
                topics.push(TopicPermissions { id, rights });
            }
        }
        given.push(StreamPermissions { id, rights, topics });
    }
    given.sort_by_key(|it| it.id);
    given.dedup_by_key(|it| it.id);
    Permissions {
        global,
        streams: given,
    }
}
