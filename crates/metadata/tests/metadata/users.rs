//! Users, their rights and their tokens, as the log has them.

use base::{ClientId, Op, Timestamp};
use metadata::{Change, CreateToken, Credential, Limits, Metadata, ROOT, Right, Scope};
use wire::{
    Codec, GlobalPermissions, Identifier, Name, Operation, Options, Permissions, Prefixed, Secret,
    StreamPermissions, StreamRights, TopicPermissions, TopicRights, UserStatus, Value,
    reply::{TokenRecord, UserDetails, UserRecord},
    request::{ChangePassword, CreateUser, UpdatePermissions, UpdateUser},
};

use crate::{
    model::LIMITS,
    support::{
        CLIENT, Entry, Log, block, create_stream, create_topic, id, named, topic, update_stream,
    },
};

const OTHER: ClientId = ClientId(9);

fn name(name: &str) -> Name<'_> {
    Name::new(name).expect("a name")
}

pub(crate) fn create_user(username: &str, permissions: Option<Permissions>) -> Vec<u8> {
    CreateUser {
        username: name(username),
        password: Secret("$argon2id$1"),
        status: UserStatus::Active,
        permissions: permissions.map(Prefixed),
        options: Options::default(),
    }
    .encode()
}

pub(crate) fn update_user(
    user: Identifier<'_>,
    username: Option<&str>,
    status: Option<UserStatus>,
) -> Vec<u8> {
    UpdateUser {
        user,
        username: username.map(name),
        status,
        options: Options::default(),
    }
    .encode()
}

pub(crate) fn change_password(user: Identifier<'_>, current: &str, new: &str) -> Vec<u8> {
    ChangePassword {
        user,
        current: Secret(current),
        new: Secret(new),
    }
    .encode()
}

pub(crate) fn update_permissions(
    user: Identifier<'_>,
    permissions: Option<Permissions>,
) -> Vec<u8> {
    UpdatePermissions {
        user,
        permissions: permissions.map(Prefixed),
    }
    .encode()
}

pub(crate) fn create_token(token: &str, expiry: u64, hash: u8) -> Vec<u8> {
    CreateToken {
        name: name(token),
        expiry,
        hash: [hash; 32],
    }
    .encode()
}

pub(crate) fn global(set: impl FnOnce(&mut GlobalPermissions)) -> Permissions {
    let mut permissions = Permissions::default();
    set(&mut permissions.global);
    permissions
}

/// Sending to stream 0, and to topic 0 of stream 1.
pub(crate) fn senders() -> Permissions {
    let sends = StreamRights {
        send_messages: true,
        ..StreamRights::default()
    };
    let topics = vec![TopicPermissions {
        id: 0,
        rights: TopicRights {
            send_messages: true,
            ..TopicRights::default()
        },
    }];
    let stream = |id, rights, topics| StreamPermissions { id, rights, topics };
    Permissions {
        streams: vec![
            stream(0, sends, vec![]),
            stream(1, StreamRights::default(), topics),
        ],
        ..Permissions::default()
    }
}

fn may_send(metadata: &Metadata, user: u32, stream: u32, topic: u32) -> bool {
    let scope = Scope::topic(stream, topic);
    metadata.authorize(user, Right::Send, scope).is_ok()
}

fn logged_in(log: &Log, client: ClientId) -> bool {
    log.metadata.session(client).is_some()
}

/// Users `alice` (1) and `bob` (2), who may do nothing; `bob` is logged in as [`OTHER`].
fn populated(limits: Limits) -> Log {
    let mut log = Log::new(limits);
    for user in ["alice", "bob"] {
        assert_eq!(log.code(Operation::CreateUser, &create_user(user, None)), 0);
    }
    assert!(log.register(OTHER, 2).reply.result.is_ok());
    log
}

#[test]
fn users_are_numbered_from_one_and_never_twice() {
    let mut log = populated(Limits::default());
    let names = |log: &Log| {
        let users = log.metadata.users();
        users
            .map(|(id, name, _)| (id, name.to_owned()))
            .collect::<Vec<_>>()
    };
    let user = |id: u32, name: &str| (id, name.to_owned());
    assert_eq!(
        names(&log),
        [user(0, "iggy"), user(1, "alice"), user(2, "bob")]
    );
    assert_eq!(log.code(Operation::DeleteUser, &id(2).encode()), 0);
    let created = log.ask(Operation::CreateUser, &create_user("carol", None));
    let payload = created.reply.result.expect("free");
    let details = UserDetails::decode(&payload).expect("a user");
    assert_eq!(details.user.id, 3);
    assert_eq!(details.permissions, None);
    assert_eq!(names(&log).last(), Some(&user(3, "carol")));
    let mut body = log.metadata.get_users();
    let records = Vec::<UserRecord<'_>>::decode(&body).expect("users");
    assert_eq!(records.len(), 3);
    assert_eq!(
        records[0].created_at, 1_000_001,
        "root is as old as the log"
    );
    body = log.metadata.get_user(named("iggy"));
    let root = UserDetails::decode(&body).expect("root");
    assert!(root.permissions.expect("everything").global.manage_users);
    assert_eq!(log.metadata.get_user(id(2)), [], "absence is empty");
}

#[test]
fn each_limit_holds_and_one_beyond_is_refused() {
    let mut log = Log::new(LIMITS);
    let code =
        |log: &mut Log, name: &str| log.code(Operation::CreateUser, &create_user(name, None));
    let long = "x".repeat(50);
    assert_eq!(code(&mut log, "ab"), 43);
    assert_eq!(code(&mut log, &"x".repeat(51)), 43);
    assert_eq!(code(&mut log, "abc"), 0);
    assert_eq!(code(&mut log, &long), 0);
    assert_eq!(code(&mut log, "abc"), 46);
    let rename = |name| update_user(id(1), Some(name), None);
    assert_eq!(log.code(Operation::UpdateUser, &rename("ab")), 43);
    assert_eq!(log.code(Operation::UpdateUser, &rename(&long)), 46);
    assert_eq!(
        log.code(Operation::UpdateUser, &rename("abc")),
        0,
        "its own"
    );
    assert_eq!(code(&mut log, "third"), 0);
    assert_eq!(code(&mut log, "fourth"), 0);
    assert_eq!(code(&mut log, "fifth"), 55);
    let mut permissions = senders();
    permissions.streams[0].topics = permissions.streams[1].topics.clone();
    let update = |permissions: &Permissions| update_permissions(id(1), Some(permissions.clone()));
    assert_eq!(
        log.code(Operation::UpdatePermissions, &update(&permissions)),
        0
    );
    permissions.streams[0].topics.push(TopicPermissions {
        id: 9,
        rights: TopicRights::default(),
    });
    assert_eq!(
        log.code(Operation::UpdatePermissions, &update(&permissions)),
        3
    );
    let token = |name: &str, hash| create_token(name, 0, hash);
    let create = Operation::CreatePersonalAccessToken;
    assert_eq!(log.code(create, &token("ab", 1)), 50);
    assert_eq!(log.code(create, &token(&"x".repeat(31), 1)), 50);
    assert_eq!(log.code(create, &token("abc", 1)), 0);
    assert_eq!(log.code(create, &token("abc", 2)), 51);
    assert_eq!(
        log.code(create, &token("other", 1)),
        51,
        "never the same token"
    );
    assert_eq!(log.code(create, &token(&"x".repeat(30), 2)), 0);
    assert_eq!(log.code(create, &token("third", 3)), 52);
    let endless = create_token("third", u64::MAX - 1, 3);
    assert_eq!(log.code(create, &endless), 56, "beyond the end of time");
}

#[test]
fn bad_requests_have_their_codes_and_change_nothing() {
    let colour = block(&[("colour", Value::text("red"))]);
    let with_options = CreateUser {
        username: name("carol"),
        password: Secret("$argon2id$1"),
        status: UserStatus::Active,
        permissions: None,
        options: colour.as_options(),
    };
    let renamed_with = UpdateUser {
        user: id(1),
        username: Some(name("carol")),
        status: None,
        options: colour.as_options(),
    };
    let inactive = Some(UserStatus::Inactive);
    let cases = [
        (4041, Operation::CreateUser, with_options.encode()),
        (4041, Operation::UpdateUser, renamed_with.encode()),
        (20, Operation::UpdateUser, update_user(id(9), None, None)),
        (
            45,
            Operation::UpdateUser,
            update_user(id(0), None, inactive),
        ),
        (20, Operation::DeleteUser, named("carol").encode()),
        (48, Operation::DeleteUser, id(ROOT).encode()),
        (
            20,
            Operation::UpdatePermissions,
            update_permissions(id(9), None),
        ),
        (
            49,
            Operation::UpdatePermissions,
            update_permissions(id(ROOT), None),
        ),
        (
            20,
            Operation::ChangePassword,
            change_password(id(9), "", "$argon2id$2"),
        ),
        (
            42,
            Operation::ChangePassword,
            change_password(id(1), "$argon2id$0", "$argon2id$2"),
        ),
        (
            42,
            Operation::ChangePassword,
            change_password(id(0), "$argon2id$0", "$argon2id$2"),
        ),
        (
            20,
            Operation::DeletePersonalAccessToken,
            name("none").encode(),
        ),
        (3, Operation::DeletePersonalAccessToken, vec![]),
        (3, Operation::CreatePersonalAccessToken, vec![3, b'a']),
    ];
    let mut log = populated(Limits::default());
    for (code, operation, body) in cases {
        let (users, tokens) = (log.metadata.get_users(), log.metadata.get_tokens(ROOT));
        assert_eq!(log.code(operation, &body), code, "{operation:?}");
        assert_eq!(log.metadata.get_users(), users);
        assert_eq!(log.metadata.get_tokens(ROOT), tokens);
    }
    assert!(logged_in(&log, OTHER));
}

#[test]
fn root_may_be_renamed_and_is_then_known_by_that_name_only() {
    let mut log = populated(Limits::default());
    let taken = update_user(id(ROOT), Some("alice"), None);
    assert_eq!(log.code(Operation::UpdateUser, &taken), 46);
    let renamed = update_user(id(ROOT), Some("chief"), Some(UserStatus::Active));
    assert_eq!(log.code(Operation::UpdateUser, &renamed), 0);
    assert_eq!(log.metadata.find_user(named("chief")), Some(ROOT));
    assert_eq!(log.metadata.find_user(named("iggy")), None);
    let iggy = create_user("iggy", None);
    assert_eq!(log.code(Operation::CreateUser, &iggy), 0);
    assert_eq!(log.metadata.find_user(named("iggy")), Some(3));
}

#[test]
fn whoever_is_deleted_or_made_inactive_is_out() {
    for delete in [false, true] {
        let mut log = populated(Limits::default());
        let session = log.metadata.session(OTHER).expect("logged in").session;
        let (operation, body) = match delete {
            true => (Operation::DeleteUser, named("bob").encode()),
            false => {
                let status = Some(UserStatus::Inactive);
                (Operation::UpdateUser, update_user(id(2), None, status))
            }
        };
        let closed = Change::SessionClosed {
            client: OTHER,
            session,
        };
        assert_eq!(log.ask(operation, &body).changes, [closed]);
        assert!(!logged_in(&log, OTHER));
        assert!(logged_in(&log, CLIENT));
        let refused = log.register(OTHER, 2).reply.result;
        let code = if delete { 42 } else { 47 };
        assert_eq!(refused.map_err(|code| code.0), Err(code));
        let scope = Scope::GLOBAL;
        let denied = log.metadata.authorize(2, Right::ReadStreams, scope);
        assert_eq!(denied.map_err(|code| code.0), Err(40));
    }
}

#[test]
fn whoever_deletes_itself_is_answered_and_gone() {
    let mut log = Log::new(Limits::default());
    let manager = Some(global(|flags| flags.manage_users = true));
    assert_eq!(
        log.code(Operation::CreateUser, &create_user("alice", manager)),
        0
    );
    log.register(OTHER, 1).reply.result.expect("active");
    let session = log.metadata.session(OTHER).expect("logged in").session;
    let applied = log.append_as(
        1,
        &Entry {
            client: OTHER,
            session,
            request: 1,
            request_checksum: 0,
            operation: Operation::DeleteUser,
            body: &id(1).encode(),
        },
    );
    assert!(applied.reply.result.is_ok());
    assert!(!logged_in(&log, OTHER));
    assert_eq!(log.metadata.find_user(id(1)), None);
}

#[test]
fn a_login_is_checked_again_when_its_session_is_opened() {
    let mut log = populated(Limits::default());
    let since = log.metadata.login(1).expect("there").since;
    let change = change_password(id(1), "$argon2id$1", "$argon2id$2");
    assert_eq!(log.code(Operation::ChangePassword, &change), 0);
    let login = log.metadata.login(1).expect("there");
    assert_eq!(login.hash.as_deref(), Some("$argon2id$2"));
    let stale = log.register_with(ClientId(5), 1, Credential::Password { since });
    assert_eq!(stale.reply.result.map_err(|code| code.0), Err(42));
    assert!(log.register(ClientId(5), 1).reply.result.is_ok());
    // What was verified against the old one no longer changes it.
    assert_eq!(log.code(Operation::ChangePassword, &change), 42);
    // Root's is the configured one until it is changed.
    let root = change_password(id(ROOT), "", "$argon2id$3");
    assert_eq!(log.code(Operation::ChangePassword, &root), 0);
    assert_eq!(log.code(Operation::ChangePassword, &root), 42);
    let configured = Credential::Password { since: Op(0) };
    let stale = log.register_with(ClientId(6), ROOT, configured);
    assert_eq!(stale.reply.result.map_err(|code| code.0), Err(42));
}

#[test]
fn each_op_needs_its_right() {
    let manager = global(|flags| flags.manage_users = true);
    let streams = global(|flags| flags.manage_streams = true);
    let topics = global(|flags| flags.manage_topics = true);
    let cases = [
        (&streams, Operation::CreateStream, create_stream("new")),
        (
            &streams,
            Operation::UpdateStream,
            update_stream(id(0), "new"),
        ),
        (&streams, Operation::DeleteStream, id(0).encode()),
        (
            &topics,
            Operation::CreateTopic,
            create_topic(id(0), "new", 1),
        ),
        (&topics, Operation::DeleteTopic, topic(id(0), id(0))),
        (&manager, Operation::CreateUser, create_user("carol", None)),
        (
            &manager,
            Operation::UpdateUser,
            update_user(id(2), Some("carol"), None),
        ),
        (&manager, Operation::DeleteUser, id(2).encode()),
        (
            &manager,
            Operation::UpdatePermissions,
            update_permissions(id(2), None),
        ),
        (
            &manager,
            Operation::ChangePassword,
            change_password(id(2), "$argon2id$1", "$argon2id$2"),
        ),
    ];
    for (right, operation, body) in cases {
        for granted in [false, true] {
            let mut log = populated(Limits::default());
            assert_eq!(log.code(Operation::CreateStream, &create_stream("old")), 0);
            assert_eq!(
                log.code(Operation::CreateTopic, &create_topic(id(0), "old", 1)),
                0
            );
            if granted {
                let grant = update_permissions(id(1), Some(right.clone()));
                assert_eq!(log.code(Operation::UpdatePermissions, &grant), 0);
            }
            log.user = 1;
            let expected = if granted { 0 } else { 41 };
            assert_eq!(log.code(operation, &body), expected, "{operation:?}");
        }
    }
    let mut log = populated(Limits::default());
    log.user = 1;
    let own = change_password(named("alice"), "$argon2id$1", "$argon2id$2");
    assert_eq!(log.code(Operation::ChangePassword, &own), 0);
    let token = create_token("mine", 0, 1);
    assert_eq!(log.code(Operation::CreatePersonalAccessToken, &token), 0);
    let gone = name("mine").encode();
    assert_eq!(log.code(Operation::DeletePersonalAccessToken, &gone), 0);
}

/// Streams 0 and 1, each with a topic, and rights of `alice` to send to some of it.
fn granted() -> Log {
    let mut log = populated(Limits::default());
    for stream in ["a", "b"] {
        assert_eq!(log.code(Operation::CreateStream, &create_stream(stream)), 0);
        let topic = create_topic(named(stream), "t", 1);
        assert_eq!(log.code(Operation::CreateTopic, &topic), 0);
    }
    let grant = update_permissions(id(1), Some(senders()));
    assert_eq!(log.code(Operation::UpdatePermissions, &grant), 0);
    log
}

#[test]
fn rights_follow_numbers_not_names() {
    let mut log = granted();
    assert!(may_send(&log.metadata, 1, 0, 0));
    assert!(may_send(&log.metadata, 1, 1, 0));
    let swap = [(0, "c"), (1, "a"), (0, "b")];
    for (stream, name) in swap {
        assert_eq!(
            log.code(Operation::UpdateStream, &update_stream(id(stream), name)),
            0
        );
    }
    assert!(may_send(&log.metadata, 1, 0, 7), "all of stream 0");
    assert!(!may_send(&log.metadata, 1, 1, 1), "one topic of stream 1");
    assert!(!may_send(&log.metadata, 2, 0, 0));
    assert!(may_send(&log.metadata, ROOT, 9, 9));
}

#[test]
fn rights_on_what_is_gone_are_gone() {
    let mut log = granted();
    assert_eq!(log.code(Operation::DeleteTopic, &topic(id(1), id(0))), 0);
    assert_eq!(log.code(Operation::DeleteStream, &id(0).encode()), 0);
    // Others get their numbers.
    assert_eq!(
        log.code(Operation::CreateStream, &create_stream("other")),
        0
    );
    assert_eq!(
        log.code(Operation::CreateTopic, &create_topic(id(0), "other", 1)),
        0
    );
    assert_eq!(
        log.code(Operation::CreateTopic, &create_topic(id(1), "other", 1)),
        0
    );
    assert!(!may_send(&log.metadata, 1, 0, 0));
    assert!(!may_send(&log.metadata, 1, 1, 0));
}

#[test]
fn tokens_open_until_they_end_or_their_user_does() {
    let mut log = populated(Limits::default());
    log.user = 1;
    let now = log.metadata.op().0 + 1_000_000;
    let create = Operation::CreatePersonalAccessToken;
    let applied = log.ask(create, &create_token("brief", 10, 1));
    assert_eq!(
        applied.reply.result.as_deref(),
        Ok([1; 32].as_slice()),
        "the digest, for whoever made the token; the token is not known here"
    );
    assert_eq!(log.code(create, &create_token("forever", u64::MAX, 2)), 0);
    let end = now + 1 + 10;
    assert_eq!(log.metadata.first_token_end(), Some(Timestamp(end)));
    let body = log.metadata.get_tokens(1);
    let records = Vec::<TokenRecord<'_>>::decode(&body).expect("tokens");
    let records: Vec<_> = records
        .iter()
        .map(|it| (it.name.as_str(), it.expiry_at))
        .collect();
    assert_eq!(records, [("brief", end), ("forever", 0)]);
    assert_eq!(log.metadata.get_tokens(ROOT), []);

    let login = |log: &Log, hash, at| {
        let user = log.metadata.login_by_token(&[hash; 32], Timestamp(at));
        user.map_err(|code| code.0)
    };
    assert_eq!(login(&log, 1, end - 1), Ok(1));
    assert_eq!(login(&log, 1, end), Err(54));
    assert_eq!(login(&log, 2, u64::MAX), Ok(1));
    assert_eq!(login(&log, 3, 0), Err(53));
    let register = |log: &mut Log, user, hash| {
        let credential = Credential::Token([hash; 32]);
        let applied = log.register_with(ClientId(7), user, credential);
        applied
            .reply
            .result
            .map_err(|code| code.0)
            .err()
            .unwrap_or(0)
    };
    assert_eq!(register(&mut log, 2, 1), 53, "another's");
    while log.metadata.op().0 + 1_000_001 < end {
        assert_eq!(register(&mut log, 1, 1), 0);
    }
    assert_eq!(register(&mut log, 1, 1), 54, "at its end");
    assert_eq!(log.metadata.tokens(1).count(), 2);
    let sweep = log.own(Operation::RemoveExpiredTokens, &[]);
    assert!(sweep.reply.result.is_ok());
    assert_eq!(log.metadata.tokens(1).count(), 1);
    assert_eq!(log.metadata.first_token_end(), None);
    assert_eq!(register(&mut log, 1, 1), 53, "removed");
    assert_eq!(register(&mut log, 1, 2), 0);
    log.user = ROOT;
    let status = Some(UserStatus::Inactive);
    assert_eq!(
        log.code(Operation::UpdateUser, &update_user(id(1), None, status)),
        0
    );
    assert_eq!(register(&mut log, 1, 2), 47);
    assert_eq!(log.code(Operation::DeleteUser, &id(1).encode()), 0);
    assert_eq!(register(&mut log, 1, 2), 42);
    assert_eq!(login(&log, 2, 0), Err(53));
}

#[test]
fn a_repeated_creation_of_a_token_tells_the_digest_of_the_first() {
    let mut log = Log::new(Limits::default());
    let session = log.metadata.session(CLIENT).expect("logged in").session;
    let first = create_token("mine", 0, 1);
    let second = create_token("mine", 0, 2);
    let entry = |body| Entry {
        client: CLIENT,
        session,
        request: 1,
        request_checksum: 0,
        operation: Operation::CreatePersonalAccessToken,
        body,
    };
    let answer = log.append(&entry(&first)).reply;
    assert_eq!(log.append(&entry(&second)).reply, answer);
    assert_eq!(answer.result.as_deref(), Ok([1; 32].as_slice()));
}

#[test]
fn neither_hashes_nor_passwords_show() {
    let log = populated(Limits::default());
    assert!(!format!("{:?}", log.metadata).contains("argon2id"));
    assert!(!format!("{:?}", log.metadata.login(1)).contains("argon2id"));
}
