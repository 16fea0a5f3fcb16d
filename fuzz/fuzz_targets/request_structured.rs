//! Every request there is, built from the input by its structure: what we encode decodes to the
//! same value, and no shorter or longer body does.

#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use wire::{
    AckLevel, ArchiveCompression, ArchiveContent, AttachSession, Code, Codec, Consumer,
    ConsumerKind, Credentials, GlobalPermissions, Identifier, Login, LoginPrefix, Name,
    OptionalPartition, Options, OptionsBlock, OptionsScope, PROTOCOL_VERSION, Partitioning,
    Permissions, PollingStrategy, Prefixed, Request, Secret, ShortText, StreamPermissions,
    StreamRights, Text, TopicPermissions, TopicRights, UserStatus, Value, request,
};

type Input<'a, 'b> = &'b mut Unstructured<'a>;

/// A prefix of at most `max` bytes that is whole text.
fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

fn name<'a>(u: Input<'a, '_>) -> Result<Name<'a>> {
    Ok(Name::new(cut(<&str>::arbitrary(u)?, 255)).unwrap_or(Name::new("n").expect("short")))
}

fn secret<'a>(u: Input<'a, '_>) -> Result<Secret<'a>> {
    Ok(Secret(cut(<&str>::arbitrary(u)?, 255)))
}

fn identifier<'a>(u: Input<'a, '_>) -> Result<Identifier<'a>> {
    Ok(if bool::arbitrary(u)? {
        Identifier::Numeric(u32::arbitrary(u)?)
    } else {
        Identifier::Named(name(u)?)
    })
}

fn topic<'a>(u: Input<'a, '_>) -> Result<request::TopicTarget<'a>> {
    Ok(request::TopicTarget {
        stream: identifier(u)?,
        topic: identifier(u)?,
    })
}

fn group<'a>(u: Input<'a, '_>) -> Result<request::GroupTarget<'a>> {
    Ok(request::GroupTarget {
        stream: identifier(u)?,
        topic: identifier(u)?,
        group: identifier(u)?,
    })
}

fn consumer<'a>(u: Input<'a, '_>) -> Result<Consumer<'a>> {
    let kinds = [ConsumerKind::Single, ConsumerKind::Group];
    Ok(Consumer {
        kind: *u.choose(&kinds)?,
        id: identifier(u)?,
    })
}

fn partition(u: Input<'_, '_>) -> Result<OptionalPartition> {
    Option::arbitrary(u).map(OptionalPartition)
}

fn offset_target<'a>(u: Input<'a, '_>) -> Result<request::OffsetTarget<'a>> {
    Ok(request::OffsetTarget {
        consumer: consumer(u)?,
        stream: identifier(u)?,
        topic: identifier(u)?,
        partition: partition(u)?,
    })
}

fn partitions<'a>(u: Input<'a, '_>) -> Result<request::PartitionsCount<'a>> {
    Ok(request::PartitionsCount {
        stream: identifier(u)?,
        topic: identifier(u)?,
        count: u32::arbitrary(u)?,
    })
}

fn poll<'a>(u: Input<'a, '_>) -> Result<request::PollMessages<'a>> {
    let value = u64::arbitrary(u)?;
    let strategies = [
        PollingStrategy::Offset(value),
        PollingStrategy::Timestamp(value),
        PollingStrategy::First,
        PollingStrategy::Last,
        PollingStrategy::Next,
    ];
    Ok(request::PollMessages {
        consumer: consumer(u)?,
        stream: identifier(u)?,
        topic: identifier(u)?,
        partition: partition(u)?,
        strategy: *u.choose(&strategies)?,
        count: u32::arbitrary(u)?,
        auto_commit: bool::arbitrary(u)?,
    })
}

fn ack(u: Input<'_, '_>) -> Result<AckLevel> {
    u.choose(&[AckLevel::None, AckLevel::Quorum]).copied()
}

fn status(u: Input<'_, '_>) -> Result<UserStatus> {
    u.choose(&[UserStatus::Active, UserStatus::Inactive])
        .copied()
}

fn partitioning<'a>(u: Input<'a, '_>) -> Result<Partitioning<'a>> {
    let key = <&[u8]>::arbitrary(u)?;
    Ok(match (u8::arbitrary(u)? % 3, key) {
        (0, _) | (2, []) => Partitioning::Balanced,
        (1, _) => Partitioning::PartitionId(u32::arbitrary(u)?),
        (_, key) => Partitioning::MessagesKey(&key[..key.len().min(255)]),
    })
}

/// Any rights: as many bits as the encoding of none has bytes that are flags.
fn rights<T: for<'x> Codec<'x> + Default>(u: Input<'_, '_>) -> Result<T> {
    let mut bytes = T::default().encode();
    for byte in &mut bytes {
        *byte = u8::from(bool::arbitrary(u)?);
    }
    Ok(T::decode(&bytes).expect("flags"))
}

fn permissions(u: Input<'_, '_>) -> Result<Permissions> {
    let global = rights::<GlobalPermissions>(u)?;
    let mut streams = Vec::new();
    for id in 0..u.int_in_range(0..=3)? {
        let mut topics = Vec::new();
        for id in 0..u.int_in_range(0..=3)? {
            let rights = rights::<TopicRights>(u)?;
            topics.push(TopicPermissions { id, rights });
        }
        let rights = rights::<StreamRights>(u)?;
        streams.push(StreamPermissions { id, rights, topics });
    }
    Ok(Permissions { global, streams })
}

fn maybe_permissions(u: Input<'_, '_>) -> Result<Option<Prefixed<Permissions>>> {
    Ok(if bool::arbitrary(u)? {
        Some(Prefixed(permissions(u)?))
    } else {
        None
    })
}

fn options_block(u: Input<'_, '_>) -> Result<OptionsBlock> {
    let mut block = OptionsBlock::new();
    for number in 0..u.int_in_range(0..=4)? {
        let text = cut(<&str>::arbitrary(u)?, 200);
        // Keys ascend and differ.
        block.push(
            &format!("{number}"),
            Value::text(if text.is_empty() { "x" } else { text }),
        );
    }
    Ok(block)
}

fn login<'a>(u: Input<'a, '_>, by_token: bool) -> Result<Login<'a>> {
    let prefix = LoginPrefix {
        protocol_version: PROTOCOL_VERSION,
        sdk_name: name(u)?,
        sdk_version: ShortText(cut(<&str>::arbitrary(u)?, 255)),
    };
    let credentials = if by_token {
        let Secret(token) = secret(u)?;
        Credentials::Token(Secret(if token.is_empty() { "t" } else { token }))
    } else {
        Credentials::Password {
            username: name(u)?,
            password: secret(u)?,
        }
    };
    Ok(Login {
        prefix,
        credentials,
        context: Text(<&str>::arbitrary(u)?),
    })
}

const CONTENTS: [u8; 3] = [
    ArchiveContent::Test as u8,
    ArchiveContent::ServerConfig as u8,
    ArchiveContent::All as u8,
];

// tidy: long — one arm a command.
/// The request of a command; nothing for the two old logins, which have no body here.
fn build<'a>(
    code: Code,
    u: Input<'a, '_>,
    options: Options<'a>,
    body: &'a [u8],
) -> Result<Option<Request<'a>>> {
    Ok(Some(match code {
        Code::LoginUser | Code::LoginWithPersonalAccessToken => return Ok(None),
        Code::LoginRegister => Request::Register(login(u, false)?),
        Code::LoginRegisterWithPersonalAccessToken => Request::Register(login(u, true)?),
        Code::Ping => Request::Ping,
        Code::Logout => Request::Logout,
        Code::GetStats => Request::GetStats,
        Code::GetClusterMetadata => Request::GetClusterMetadata,
        Code::GetMe => Request::GetMe,
        Code::GetClients => Request::GetClients,
        Code::GetUsers => Request::GetUsers,
        Code::GetPersonalAccessTokens => Request::GetPersonalAccessTokens,
        Code::GetStreams => Request::GetStreams,
        Code::GetSnapshot => {
            let compressions = [ArchiveCompression::Stored, ArchiveCompression::Xz];
            let contents = &CONTENTS[..u.int_in_range(0..=CONTENTS.len())?];
            let asked = request::Snapshot::new(*u.choose(&compressions)?, contents);
            Request::GetSnapshot(asked.expect("known contents"))
        }
        Code::DescribeOptions => {
            let scopes = [
                OptionsScope::Topic,
                OptionsScope::Stream,
                OptionsScope::User,
            ];
            Request::DescribeOptions(*u.choose(&scopes)?)
        }
        Code::AttachConsumerSession => Request::AttachConsumerSession(AttachSession {
            client_id: u128::arbitrary(u)?,
            session: u64::arbitrary(u)?,
            metadata_watermark: u64::arbitrary(u)?,
        }),
        Code::GetClient => Request::GetClient(u32::arbitrary(u)?),
        Code::GetUser => Request::GetUser(identifier(u)?),
        Code::CreateUser => Request::CreateUser(request::CreateUser {
            username: name(u)?,
            password: secret(u)?,
            status: status(u)?,
            permissions: maybe_permissions(u)?,
            options,
        }),
        Code::DeleteUser => Request::DeleteUser(identifier(u)?),
        Code::UpdateUser => {
            let user = identifier(u)?;
            let (has_name, has_status) = <(bool, bool)>::arbitrary(u)?;
            Request::UpdateUser(request::UpdateUser {
                user,
                username: if has_name { Some(name(u)?) } else { None },
                status: if has_status { Some(status(u)?) } else { None },
                options,
            })
        }
        Code::UpdatePermissions => Request::UpdatePermissions(request::UpdatePermissions {
            user: identifier(u)?,
            permissions: maybe_permissions(u)?,
        }),
        Code::ChangePassword => Request::ChangePassword(request::ChangePassword {
            user: identifier(u)?,
            current: secret(u)?,
            new: secret(u)?,
        }),
        Code::CreatePersonalAccessToken => {
            Request::CreatePersonalAccessToken(request::CreatePersonalAccessToken {
                name: name(u)?,
                expiry: u64::arbitrary(u)?,
            })
        }
        Code::DeletePersonalAccessToken => Request::DeletePersonalAccessToken(name(u)?),
        Code::PollMessages => Request::PollMessages(poll(u)?),
        Code::PollRouting => Request::PollRouting(poll(u)?),
        Code::PollOnPrimary => Request::PollOnPrimary(poll(u)?),
        Code::SendMessages => Request::SendMessages(request::SendMessages {
            target: request::SendTarget {
                stream: identifier(u)?,
                topic: identifier(u)?,
                partitioning: partitioning(u)?,
                messages_count: u32::arbitrary(u)?,
            },
            batch: body,
        }),
        Code::FlushUnsavedBuffer => Request::FlushUnsavedBuffer(request::FlushUnsavedBuffer {
            stream: identifier(u)?,
            topic: identifier(u)?,
            partition_id: u32::arbitrary(u)?,
            fsync: bool::arbitrary(u)?,
        }),
        Code::GetConsumerOffset => Request::GetConsumerOffset(offset_target(u)?),
        Code::ConsumerOffsetRouting => Request::ConsumerOffsetRouting(offset_target(u)?),
        Code::StoreConsumerOffset => Request::StoreConsumerOffset(request::StoreConsumerOffset {
            target: offset_target(u)?,
            offset: u64::arbitrary(u)?,
            ack: ack(u)?,
        }),
        Code::DeleteConsumerOffset => {
            Request::DeleteConsumerOffset(request::DeleteConsumerOffset {
                target: offset_target(u)?,
                ack: ack(u)?,
            })
        }
        Code::GetStream => Request::GetStream(identifier(u)?),
        Code::CreateStream => Request::CreateStream(request::CreateStream {
            name: name(u)?,
            options,
        }),
        Code::DeleteStream => Request::DeleteStream(identifier(u)?),
        Code::UpdateStream => Request::UpdateStream(request::UpdateStream {
            stream: identifier(u)?,
            name: name(u)?,
            options,
        }),
        Code::PurgeStream => Request::PurgeStream(identifier(u)?),
        Code::GetTopic => Request::GetTopic(topic(u)?),
        Code::GetTopics => Request::GetTopics(identifier(u)?),
        Code::CreateTopic => Request::CreateTopic(request::CreateTopic {
            stream: identifier(u)?,
            partitions_count: u32::arbitrary(u)?,
            name: name(u)?,
            options,
        }),
        Code::DeleteTopic => Request::DeleteTopic(topic(u)?),
        Code::UpdateTopic => Request::UpdateTopic(request::UpdateTopic {
            stream: identifier(u)?,
            topic: identifier(u)?,
            name: name(u)?,
            options,
        }),
        Code::PurgeTopic => Request::PurgeTopic(topic(u)?),
        Code::CreatePartitions => Request::CreatePartitions(partitions(u)?),
        Code::DeletePartitions => Request::DeletePartitions(partitions(u)?),
        Code::DeleteSegments => Request::DeleteSegments(request::DeleteSegments {
            stream: identifier(u)?,
            topic: identifier(u)?,
            partition_id: u32::arbitrary(u)?,
            segments_count: u32::arbitrary(u)?,
        }),
        Code::GetConsumerGroup => Request::GetConsumerGroup(group(u)?),
        Code::GetConsumerGroups => Request::GetConsumerGroups(topic(u)?),
        Code::CreateConsumerGroup => Request::CreateConsumerGroup(request::CreateConsumerGroup {
            stream: identifier(u)?,
            topic: identifier(u)?,
            name: name(u)?,
        }),
        Code::DeleteConsumerGroup => Request::DeleteConsumerGroup(group(u)?),
        Code::JoinConsumerGroup => Request::JoinConsumerGroup(group(u)?),
        Code::LeaveConsumerGroup => Request::LeaveConsumerGroup(group(u)?),
        Code::SyncConsumerGroup => Request::SyncConsumerGroup(group(u)?),
    }))
}

fn check(data: &[u8]) -> Result<()> {
    let u = &mut Unstructured::new(data);
    let code = *u.choose(Code::ALL)?;
    let block = options_block(u)?;
    let batch = <Vec<u8>>::arbitrary(u)?;
    let Some(built) = build(code, u, block.as_options(), &batch)? else {
        return Ok(());
    };
    assert_eq!(built.code(), code);
    let decode = |body| Request::decode(code.operation(), code.number(), body);
    let body = built.encode();
    assert_eq!(decode(&body), Ok(built.clone()));
    // A batch ends its body, whatever its length; all others say where they end.
    if code != Code::SendMessages {
        for end in 0..body.len() {
            assert_ne!(decode(&body[..end]), Ok(built.clone()), "cut at {end}");
        }
        assert_ne!(decode(&[&body[..], &[0]].concat()), Ok(built));
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let _ = check(data);
});
