//! Users, what they may do, and their tokens (`wire.md` 3.2, 4.7, 5.2 and 5.3).

use core::time::Duration;

use wire::{
    Code, Codec, Credentials, ErrorCode, EvictionReason, GlobalPermissions, Identifier, Login,
    LoginPrefix, PROTOCOL_VERSION, Partitioning, Permissions, PollingStrategy, Prefixed, Request,
    Secret, ShortText, StreamPermissions, StreamRights, Text, TopicPermissions, TopicRights,
    UserStatus,
    reply::{LoginRecord, TokenRecord, UserDetails, UserRecord},
    request::{
        ChangePassword, CreatePersonalAccessToken, CreateUser, DeleteSegments, PartitionsCount,
        TopicTarget, UpdatePermissions, UpdateStream, UpdateTopic, UpdateUser,
    },
};

use crate::{
    client::{
        Answer, Client, batch_of, consumer, create_stream, create_topic, login, name, no_options,
        offset_of, poll, send, store, stream, topic,
    },
    cluster::Cluster,
    node::{Node, PASSWORD, USERNAME},
};

/// A password that must be found nowhere.
const SECRET: &str = "correct horse battery";

fn create_user<'a>(username: &'a str, password: &'a str) -> Request<'a> {
    Request::CreateUser(CreateUser {
        username: name(username),
        password: Secret(password),
        status: UserStatus::Active,
        permissions: None,
        options: no_options(),
    })
}

fn update_user<'a>(
    user: &'a str,
    username: Option<&'a str>,
    status: Option<UserStatus>,
) -> Request<'a> {
    Request::UpdateUser(UpdateUser {
        user: named(user),
        username: username.map(name),
        status,
        options: no_options(),
    })
}

fn grant(user: &str, permissions: Permissions) -> Request<'_> {
    Request::UpdatePermissions(UpdatePermissions {
        user: named(user),
        permissions: Some(Prefixed(permissions)),
    })
}

fn change_password<'a>(user: &'a str, current: &'a str, new: &'a str) -> Request<'a> {
    Request::ChangePassword(ChangePassword {
        user: named(user),
        current: Secret(current),
        new: Secret(new),
    })
}

fn create_token(token: &str, expiry: u64) -> Request<'_> {
    Request::CreatePersonalAccessToken(CreatePersonalAccessToken {
        name: name(token),
        expiry,
    })
}

fn login_by(token: &str) -> Request<'_> {
    Request::Register(Login {
        prefix: LoginPrefix {
            protocol_version: PROTOCOL_VERSION,
            sdk_name: name("rust-sdk"),
            sdk_version: ShortText("0.11.0"),
        },
        credentials: Credentials::Token(Secret(token)),
        context: Text(""),
    })
}

fn named(text: &str) -> Identifier<'_> {
    Identifier::Named(name(text))
}

fn global(set: impl FnOnce(&mut GlobalPermissions)) -> Permissions {
    let mut permissions = Permissions::default();
    set(&mut permissions.global);
    permissions
}

/// What is asked is done.
fn done(node: &mut Node, client: &mut Client, request: &Request<'_>) -> Vec<u8> {
    client.ask(node, request).result().expect("done")
}

/// Logs in; the number of the user, or why not.
fn try_login(
    node: &mut Node,
    client: &mut Client,
    request: &Request<'_>,
) -> Result<u32, EvictionReason> {
    match client.ask(node, request) {
        Answer::Eviction(reason) => Err(reason),
        answer => {
            let payload = answer.result().expect("a login");
            let record = LoginRecord::decode(&payload).expect("a record");
            client.session = record.session;
            Ok(record.user_id)
        }
    }
}

/// A connection of this user, logged in.
fn log_in_as(node: &mut Node, id: u128, username: &str, password: &str) -> Client {
    let mut client = Client::connect(node, id);
    let user = try_login(node, &mut client, &login(username, password));
    assert!(user.is_ok(), "{user:?}");
    client
}

/// The token that a creation was answered with.
fn token_of(answer: &Answer) -> String {
    let payload = answer.result().expect("created");
    let ShortText(token) = ShortText::decode(&payload).expect("a token");
    token.to_owned()
}

/// A node with a topic, root's connection, and that of `alice`, who may do nothing; on one shard
/// and on two.
fn with_alice(test: impl Fn(&mut Node, Client, Client)) {
    for shards in [1, 2] {
        let mut node = Node::new(shards);
        let mut root = Client::log_in(&mut node, 1);
        root.create_topic(&mut node, 2);
        done(&mut node, &mut root, &create_user("alice", SECRET));
        let alice = log_in_as(&mut node, 2, "alice", SECRET);
        test(&mut node, root, alice);
    }
}

#[test]
fn a_user_logs_in_with_its_own_password_only_also_after_restarts() {
    with_alice(|node, mut root, _| {
        let mut client = Client::connect(node, 9);
        for (username, password) in [
            ("alice", PASSWORD),
            (USERNAME, SECRET),
            ("nobody", SECRET),
            ("Alice", SECRET),
        ] {
            let refused = try_login(node, &mut client, &login(username, password));
            assert_eq!(refused, Err(EvictionReason::InvalidCredentials));
        }
        // The same connection may try again.
        let user = try_login(node, &mut client, &login("alice", SECRET));
        assert_eq!(user, Ok(1));

        done(
            node,
            &mut root,
            &change_password("alice", SECRET, "another secret"),
        );
        node.crash();
        let mut client = Client::connect(node, 10);
        let old = try_login(node, &mut client, &login("alice", SECRET));
        assert_eq!(old, Err(EvictionReason::InvalidCredentials));
        let user = try_login(node, &mut client, &login("alice", "another secret"));
        assert_eq!(user, Ok(1));
    });
}

#[test]
fn no_secret_is_ever_written() {
    with_alice(|node, mut root, mut alice| {
        let other = "a second secret";
        done(node, &mut alice, &change_password("alice", SECRET, other));
        let wrong = change_password("alice", "a wrong secret", "a third secret");
        let wrong = alice.ask(node, &wrong);
        assert_eq!(wrong.code(), Some(ErrorCode::INVALID_CREDENTIALS));
        let refused = alice.ask(node, &create_user("carol", "a refused secret"));
        assert_eq!(refused.code(), Some(ErrorCode::UNAUTHORIZED));
        let token = token_of(&alice.ask(node, &create_token("mine", 0)));
        let mut by_token = Client::connect(node, 7);
        assert_eq!(try_login(node, &mut by_token, &login_by(&token)), Ok(1));
        done(
            node,
            &mut root,
            &change_password(USERNAME, PASSWORD, "the new root"),
        );
        node.settle();
        node.crash();
        for secret in [
            SECRET,
            other,
            "a wrong secret",
            "a third secret",
            "a refused secret",
            "the new root",
            &token,
        ] {
            assert!(!node.disk.holds(secret.as_bytes()), "{secret}");
            assert!(!node.log.iter().any(|line| line.contains(secret)));
        }
        assert!(node.disk.holds(b"$argon2id$"), "hashes are");
        // Nor does the log hold a fast hash of a body with a password in it.
        let request = create_user("alice", SECRET);
        let checksum = wire::header::request_checksum(&request.encode());
        assert!(!node.disk.holds(&checksum.to_le_bytes()[..8]));
    });
}

#[test]
fn names_and_passwords_have_limits() {
    let node = &mut Node::new(1);
    let mut root = Client::log_in(node, 1);
    let (long, longer) = ("x".repeat(100), "x".repeat(101));
    for (username, password, code) in [
        ("alice", "ab", Some(ErrorCode::INVALID_PASSWORD)),
        ("alice", &longer, Some(ErrorCode::INVALID_PASSWORD)),
        ("ab", "abc", Some(ErrorCode::INVALID_USERNAME)),
        (&longer[..51], "abc", Some(ErrorCode::INVALID_USERNAME)),
        (USERNAME, "abc", Some(ErrorCode::USER_ALREADY_EXISTS)),
        ("alice", "abc", None),
        (&longer[..50], &long, None),
        ("alice", "abc", Some(ErrorCode::USER_ALREADY_EXISTS)),
    ] {
        let answer = root.ask(node, &create_user(username, password));
        assert_eq!(answer.code(), code, "{username} {password}");
    }
    for (current, new, code) in [
        ("abc", "ab", Some(ErrorCode::INVALID_PASSWORD)),
        ("abc", longer.as_str(), Some(ErrorCode::INVALID_PASSWORD)),
        ("abd", "abcd", Some(ErrorCode::INVALID_CREDENTIALS)),
        ("abc", "abcd", None),
        ("abc", "abcd", Some(ErrorCode::INVALID_CREDENTIALS)),
    ] {
        let answer = root.ask(node, &change_password("alice", current, new));
        assert_eq!(answer.code(), code, "{current} {new}");
    }
    let nobody = root.ask(node, &change_password("nobody", "abc", "abcd"));
    assert_eq!(nobody.code(), Some(ErrorCode::RESOURCE_NOT_FOUND));
    let taken = root.ask(node, &update_user("alice", Some(USERNAME), None));
    assert_eq!(taken.code(), Some(ErrorCode::USER_ALREADY_EXISTS));
}

#[test]
fn root_is_found_by_name_and_protected() {
    let node = &mut Node::new(1);
    let mut root = Client::log_in(node, 1);
    let body = done(node, &mut root, &Request::GetUser(named(USERNAME)));
    let details = UserDetails::decode(&body).expect("root");
    assert_eq!(details.user.id, 0);
    for (request, code) in [
        (
            Request::DeleteUser(named(USERNAME)),
            ErrorCode::CANNOT_DELETE_USER,
        ),
        (
            grant(USERNAME, Permissions::default()),
            ErrorCode::CANNOT_CHANGE_PERMISSIONS,
        ),
        (
            update_user(USERNAME, None, Some(UserStatus::Inactive)),
            ErrorCode::INVALID_USER_STATUS,
        ),
    ] {
        assert_eq!(root.ask(node, &request).code(), Some(code));
    }
    done(node, &mut root, &update_user(USERNAME, Some("chief"), None));
    let mut client = Client::connect(node, 2);
    assert_eq!(
        try_login(node, &mut client, &login("chief", PASSWORD)),
        Ok(0)
    );
    done(node, &mut root, &create_user(USERNAME, SECRET));
    let mut client = Client::connect(node, 3);
    assert_eq!(
        try_login(node, &mut client, &login(USERNAME, SECRET)),
        Ok(1)
    );
}

#[test]
fn users_are_read_by_whoever_may_and_by_themselves() {
    with_alice(|node, mut root, mut alice| {
        let body = done(node, &mut alice, &Request::GetUser(named("alice")));
        assert_eq!(UserDetails::decode(&body).expect("herself").user.id, 1);
        for user in [named(USERNAME), Identifier::Numeric(0), named("nobody")] {
            let answer = alice.ask(node, &Request::GetUser(user));
            assert_eq!(answer.code(), Some(ErrorCode::UNAUTHORIZED));
        }
        let answer = alice.ask(node, &Request::GetUsers);
        assert_eq!(answer.code(), Some(ErrorCode::UNAUTHORIZED));
        let reads = global(|flags| flags.read_users = true);
        done(node, &mut root, &grant("alice", reads));
        let body = done(node, &mut alice, &Request::GetUsers);
        let users = Vec::<UserRecord<'_>>::decode(&body).expect("users");
        let names: Vec<_> = users.iter().map(|user| user.username.as_str()).collect();
        assert_eq!(names, [USERNAME, "alice"]);
        assert_eq!(
            done(node, &mut alice, &Request::GetUser(named("nobody"))),
            []
        );
    });
}

#[test]
fn whoever_is_deleted_or_made_inactive_is_out_at_once() {
    for delete in [false, true] {
        with_alice(|node, mut root, mut alice| {
            let token = token_of(&alice.ask(node, &create_token("mine", 0)));
            let request = match delete {
                true => Request::DeleteUser(named("alice")),
                false => update_user("alice", None, Some(UserStatus::Inactive)),
            };
            done(node, &mut root, &request);
            let read = alice.ask(node, &Request::GetMe);
            assert_eq!(read.code(), Some(ErrorCode::UNAUTHENTICATED));
            let write = alice.ask(node, &create_stream("mine"));
            assert_eq!(write, Answer::Eviction(EvictionReason::NoSession));
            let refused = try_login(node, &mut alice, &login("alice", SECRET));
            assert_eq!(refused, Err(EvictionReason::InvalidCredentials));
            let refused = try_login(node, &mut alice, &login_by(&token));
            let reason = match delete {
                true => EvictionReason::InvalidToken,
                false => EvictionReason::UserInactive,
            };
            assert_eq!(refused, Err(reason));
            if !delete {
                let active = Some(UserStatus::Active);
                done(node, &mut root, &update_user("alice", None, active));
                let user = try_login(node, &mut alice, &login("alice", SECRET));
                assert_eq!(user, Ok(1));
            }
        });
    }
}

/// Every command that needs a right, with the rights that each suffice for it: on everything, on
/// the stream, on the topic.
// tidy: long — a table
#[expect(clippy::too_many_lines, reason = "a table")]
fn rights() -> Vec<(Request<'static>, Vec<Permissions>)> {
    let all = |set: fn(&mut GlobalPermissions)| global(set);
    let on_stream = |set: fn(&mut StreamRights)| {
        let mut rights = StreamRights::default();
        set(&mut rights);
        let streams = vec![StreamPermissions {
            id: 0,
            rights,
            topics: vec![],
        }];
        Permissions {
            streams,
            ..Permissions::default()
        }
    };
    let on_topic = |set: fn(&mut TopicRights)| {
        let mut rights = TopicRights::default();
        set(&mut rights);
        let streams = vec![StreamPermissions {
            id: 0,
            rights: StreamRights::default(),
            topics: vec![TopicPermissions { id: 0, rights }],
        }];
        Permissions {
            streams,
            ..Permissions::default()
        }
    };
    let TopicTarget { stream, topic } = topic();
    let count = PartitionsCount {
        stream,
        topic,
        count: 1,
    };
    let servers = || {
        vec![
            all(|it| it.manage_servers = true),
            all(|it| it.read_servers = true),
        ]
    };
    let manages_users = || vec![all(|it| it.manage_users = true)];
    let reads_topic = || {
        vec![
            all(|it| it.read_topics = true),
            all(|it| it.manage_topics = true),
            all(|it| it.read_streams = true),
            all(|it| it.manage_streams = true),
            on_stream(|it| it.read_stream = true),
            on_stream(|it| it.manage_stream = true),
            on_stream(|it| it.read_topics = true),
            on_stream(|it| it.manage_topics = true),
            on_topic(|it| it.read_topic = true),
            on_topic(|it| it.manage_topic = true),
        ]
    };
    let polls = || {
        let mut rights = reads_topic();
        rights.extend([
            all(|it| it.poll_messages = true),
            on_stream(|it| it.poll_messages = true),
            on_topic(|it| it.poll_messages = true),
        ]);
        rights
    };
    let manages_topic = || {
        vec![
            all(|it| it.manage_topics = true),
            all(|it| it.manage_streams = true),
            on_stream(|it| it.manage_stream = true),
            on_stream(|it| it.manage_topics = true),
            on_topic(|it| it.manage_topic = true),
        ]
    };
    let manages_stream = || {
        vec![
            all(|it| it.manage_streams = true),
            on_stream(|it| it.manage_stream = true),
        ]
    };
    vec![
        (Request::GetStats, servers()),
        (Request::GetClients, servers()),
        (Request::GetClient(1), servers()),
        (
            Request::GetUsers,
            vec![
                all(|it| it.manage_users = true),
                all(|it| it.read_users = true),
            ],
        ),
        (create_user("carol", "a password"), manages_users()),
        (update_user("bob", Some("carol"), None), manages_users()),
        (Request::DeleteUser(named("bob")), manages_users()),
        (grant("bob", Permissions::default()), manages_users()),
        (
            change_password("bob", SECRET, "a password"),
            manages_users(),
        ),
        (
            Request::GetStreams,
            vec![
                all(|it| it.manage_streams = true),
                all(|it| it.read_streams = true),
            ],
        ),
        (
            create_stream("new"),
            vec![all(|it| it.manage_streams = true)],
        ),
        (
            Request::GetStream(stream),
            vec![
                all(|it| it.manage_streams = true),
                all(|it| it.read_streams = true),
                on_stream(|it| it.manage_stream = true),
                on_stream(|it| it.read_stream = true),
            ],
        ),
        (
            Request::UpdateStream(UpdateStream {
                stream,
                name: name("new"),
                options: no_options(),
            }),
            manages_stream(),
        ),
        (Request::DeleteStream(stream), manages_stream()),
        (Request::PurgeStream(stream), manages_stream()),
        (
            Request::PurgeTopic(TopicTarget { stream, topic }),
            manages_topic(),
        ),
        (
            Request::DeleteSegments(DeleteSegments {
                stream,
                topic,
                partition_id: 0,
                segments_count: 0,
            }),
            manages_topic(),
        ),
        (Request::GetTopics(stream), reads_topic()[..8].to_vec()),
        (create_topic("new", 1), manages_topic()[..4].to_vec()),
        (
            Request::GetTopic(TopicTarget { stream, topic }),
            reads_topic(),
        ),
        (
            Request::UpdateTopic(UpdateTopic {
                stream,
                topic,
                name: name("new"),
                options: no_options(),
            }),
            manages_topic(),
        ),
        (
            Request::DeleteTopic(TopicTarget { stream, topic }),
            manages_topic(),
        ),
        (Request::CreatePartitions(count), manages_topic()),
        (Request::DeletePartitions(count), manages_topic()),
        (
            Request::PollMessages(poll(0, PollingStrategy::First, 1, false)),
            polls(),
        ),
        (
            Request::GetConsumerOffset(offset_of(consumer(7), 0)),
            polls(),
        ),
        (store(0, 0), polls()),
    ]
}

/// Every right there is, for all that do not suffice.
fn others(of: &[Permissions], all: &[(Request<'static>, Vec<Permissions>)]) -> Vec<Permissions> {
    let mut others: Vec<Permissions> = Vec::new();
    for permissions in all.iter().flat_map(|(_, rights)| rights) {
        if !of.contains(permissions) && !others.contains(permissions) {
            others.push(permissions.clone());
        }
    }
    others.push(Permissions::default());
    others
}

#[test]
fn each_command_is_done_for_whoever_has_one_of_its_rights_and_for_nobody_else() {
    let table = rights();
    for (request, rights) in &table {
        let node = &mut Node::new(1);
        let mut root = Client::log_in(node, 1);
        root.create_topic(node, 2);
        root.produce(node, 0, &["first"]);
        for user in ["alice", "bob"] {
            done(node, &mut root, &create_user(user, SECRET));
        }
        let mut alice = log_in_as(node, 2, "alice", SECRET);
        for permissions in others(rights, &table) {
            done(node, &mut root, &grant("alice", permissions.clone()));
            let answer = alice.ask(node, request);
            let code = answer.code();
            assert_eq!(
                code,
                Some(ErrorCode::UNAUTHORIZED),
                "{request:?} {permissions:?}"
            );
        }
        // Most can be done only once: one right each, on a node of its own.
        let (first, rest) = rights.split_first().expect("each has one");
        done(node, &mut root, &grant("alice", first.clone()));
        let answer = alice.ask(node, request);
        assert_eq!(answer.code(), None, "{request:?} {first:?}");
        for permissions in rest {
            let node = &mut Node::new(1);
            let mut root = Client::log_in(node, 1);
            root.create_topic(node, 2);
            root.produce(node, 0, &["first"]);
            for user in ["alice", "bob"] {
                done(node, &mut root, &create_user(user, SECRET));
            }
            done(node, &mut root, &grant("alice", permissions.clone()));
            let mut alice = log_in_as(node, 2, "alice", SECRET);
            let answer = alice.ask(node, request);
            assert_eq!(answer.code(), None, "{request:?} {permissions:?}");
        }
    }
}

#[test]
fn rights_change_while_a_session_goes_on() {
    with_alice(|node, mut root, mut alice| {
        let batch = batch_of(&["one"]);
        let request = send(Partitioning::PartitionId(1), &batch, 1);
        assert_eq!(
            alice.ask(node, &request).code(),
            Some(ErrorCode::UNAUTHORIZED)
        );
        let both = global(|flags| (flags.send_messages, flags.poll_messages) = (true, true));
        done(node, &mut root, &grant("alice", both));
        assert_eq!(alice.ask(node, &request).code(), None);
        assert_eq!(
            alice.poll(node, 1, PollingStrategy::First, 10).offsets(),
            [0]
        );
        let polls = global(|flags| flags.poll_messages = true);
        done(node, &mut root, &grant("alice", polls));
        assert_eq!(
            alice.ask(node, &request).code(),
            Some(ErrorCode::UNAUTHORIZED)
        );
        assert_eq!(
            alice.poll(node, 1, PollingStrategy::First, 10).offsets(),
            [0]
        );
    });
}

#[test]
fn what_does_not_exist_is_told_only_to_whoever_might_see_it() {
    with_alice(|node, mut root, mut alice| {
        let missing = || TopicTarget {
            stream: stream(),
            topic: named("missing"),
        };
        let answer = alice.ask(node, &Request::GetStream(named("missing")));
        assert_eq!(answer.code(), Some(ErrorCode::UNAUTHORIZED));
        let answer = alice.ask(node, &Request::GetTopic(missing()));
        assert_eq!(answer.code(), Some(ErrorCode::UNAUTHORIZED));
        let rights = StreamRights {
            read_stream: true,
            ..StreamRights::default()
        };
        let of_stream = Permissions {
            streams: vec![StreamPermissions {
                id: 0,
                rights,
                topics: vec![],
            }],
            ..Permissions::default()
        };
        done(node, &mut root, &grant("alice", of_stream));
        let answer = alice.ask(node, &Request::GetStream(named("missing")));
        assert_eq!(answer.code(), Some(ErrorCode::UNAUTHORIZED));
        assert_eq!(done(node, &mut alice, &Request::GetTopic(missing())), []);
    });
}

#[test]
fn everybody_has_tokens_of_its_own() {
    with_alice(|node, mut root, mut alice| {
        let create = Request::CreatePersonalAccessToken;
        let token = |name| CreatePersonalAccessToken { name, expiry: 0 };
        let mine = token_of(&alice.ask(node, &create(token(name("mine")))));
        let roots = token_of(&root.ask(node, &create(token(name("roots")))));
        assert_ne!(mine, roots);
        let taken = alice.ask(node, &create(token(name("mine"))));
        assert_eq!(
            taken.code(),
            Some(ErrorCode::PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS)
        );
        let short = alice.ask(node, &create(token(name("ab"))));
        assert_eq!(
            short.code(),
            Some(ErrorCode::INVALID_PERSONAL_ACCESS_TOKEN_NAME)
        );
        let body = done(node, &mut alice, &Request::GetPersonalAccessTokens);
        let list = Vec::<TokenRecord<'_>>::decode(&body).expect("a list");
        let list: Vec<_> = list
            .iter()
            .map(|it| (it.name.as_str(), it.expiry_at))
            .collect();
        assert_eq!(list, [("mine", 0)]);
        node.crash();
        let mut client = Client::connect(node, 9);
        let refused = try_login(node, &mut client, &login_by("token of nobody"));
        assert_eq!(refused, Err(EvictionReason::InvalidToken));
        assert_eq!(try_login(node, &mut client, &login_by(&mine)), Ok(1));
        let mut chief = Client::connect(node, 10);
        assert_eq!(try_login(node, &mut chief, &login_by(&roots)), Ok(0));
        let gone = Request::DeletePersonalAccessToken(name("mine"));
        done(node, &mut client, &gone);
        let again = client.ask(node, &gone);
        assert_eq!(again.code(), Some(ErrorCode::RESOURCE_NOT_FOUND));
        let mut client = Client::connect(node, 11);
        let refused = try_login(node, &mut client, &login_by(&mine));
        assert_eq!(refused, Err(EvictionReason::InvalidToken));
    });
}

#[test]
fn a_repeated_creation_of_a_token_gives_the_token_or_nothing() {
    with_alice(|node, _, mut alice| {
        let request = create_token("mine", 0);
        let frame = alice.frame(&request);
        let token = token_of(&alice.exchange(node, &frame));
        let again = alice.exchange(node, &frame);
        assert_eq!(again.code(), Some(ErrorCode::REQUEST_ALREADY_APPLIED));
        let mut client = Client::connect(node, 9);
        assert_eq!(try_login(node, &mut client, &login_by(&token)), Ok(1));
    });
}

#[test]
fn a_token_ends_in_time_and_is_then_removed() {
    let node = &mut Node::new(1);
    let mut root = Client::log_in(node, 1);
    let second = 1_000_000;
    let token = token_of(&root.ask(node, &create_token("brief", 10 * second)));
    let mut client = Client::connect(node, 2);
    assert_eq!(try_login(node, &mut client, &login_by(&token)), Ok(0));
    node.pass(Duration::from_secs(11));
    let mut client = Client::connect(node, 3);
    let refused = try_login(node, &mut client, &login_by(&token));
    assert_eq!(refused, Err(EvictionReason::InvalidToken));
    node.pass(Duration::from_secs(120));
    assert_eq!(done(node, &mut root, &Request::GetPersonalAccessTokens), []);
}

#[test]
fn nothing_but_a_login_and_a_ping_is_served_before_a_login() {
    let node = &mut Node::new(1);
    let client = Client::connect(node, 1);
    let ping = client.numbered(&Request::Ping, 0, 1);
    assert_eq!(client.exchange(node, &ping).code(), None);
    for (request, rights) in rights() {
        assert!(!rights.is_empty());
        let frame = client.numbered(&request, 1, 1);
        match client.exchange(node, &frame) {
            Answer::Eviction(reason) => assert_eq!(reason, EvictionReason::NoSession),
            answer => assert_eq!(answer.code(), Some(ErrorCode::UNAUTHENTICATED)),
        }
    }
    for code in [Code::LoginUser, Code::LoginWithPersonalAccessToken] {
        let legacy = client.command(code.number(), &[]);
        let answer = client.exchange(node, &legacy);
        assert_eq!(answer, Answer::Eviction(EvictionReason::MalformedLogin));
    }
}

/// Three nodes, root's connection to the primary, and a client that is not logged in, of a
/// backup.
fn cluster() -> (Cluster, (usize, Client), (usize, Client)) {
    let mut cluster = Cluster::new(3);
    let mut root = cluster.log_in(0, 1);
    cluster.create_topic(0, &mut root, 1);
    let primary = cluster.primary(base::GroupId::METADATA).expect("one leads");
    let root = cluster.log_in(primary, 2);
    let backup = (primary + 1) % 3;
    let client = Client::connect(&mut cluster.nodes[backup], 3);
    cluster.run();
    (cluster, (primary, root), (backup, client))
}

#[test]
fn what_one_node_has_granted_no_other_refuses() {
    let (mut cluster, (primary, mut root), (backup, mut client)) = cluster();
    let mut ask = |cluster: &mut Cluster, request: &Request<'_>| {
        let answer = cluster.ask(primary, &mut root, request).expect("answered");
        answer.result().expect("done")
    };
    // The backup hears of nothing that is committed, until it asks.
    ask(&mut cluster, &create_user("alice", SECRET));
    let answer = cluster.ask(backup, &mut client, &login("alice", SECRET));
    let payload = answer.expect("answered").result().expect("a login");
    client.session = LoginRecord::decode(&payload).expect("a record").session;
    let sends = global(|flags| flags.send_messages = true);
    ask(&mut cluster, &grant("alice", sends));
    assert_eq!(cluster.produce(backup, &mut client, "one"), Ok(0));
    ask(
        &mut cluster,
        &change_password("alice", SECRET, "another secret"),
    );
    let mut late = Client::connect(&mut cluster.nodes[backup], 4);
    cluster.run();
    let old = cluster.ask(backup, &mut late, &login("alice", SECRET));
    let refused = Answer::Eviction(EvictionReason::InvalidCredentials);
    assert_eq!(old.expect("answered"), refused);
    let new = cluster.ask(backup, &mut late, &login("alice", "another secret"));
    assert!(new.expect("answered").result().is_ok());
    let own = change_password("alice", "another secret", "a third secret");
    let answer = cluster.ask(backup, &mut client, &own).expect("answered");
    assert_eq!(answer.code(), None);
    let refused = create_user("carol", SECRET);
    let answer = cluster
        .ask(backup, &mut client, &refused)
        .expect("answered");
    assert_eq!(answer.code(), Some(ErrorCode::UNAUTHORIZED));
    for node in &cluster.nodes {
        for secret in [SECRET, "another secret", "a third secret"] {
            assert!(!node.disk.holds(secret.as_bytes()));
        }
    }
}

#[test]
fn a_token_made_at_a_backup_opens_every_node() {
    let (mut cluster, (primary, mut root), (backup, mut client)) = cluster();
    let answer = cluster.ask(backup, &mut client, &login(USERNAME, PASSWORD));
    let payload = answer.expect("answered").result().expect("a login");
    client.session = LoginRecord::decode(&payload).expect("a record").session;
    let answer = cluster.ask(backup, &mut client, &create_token("mine", 0));
    let token = token_of(&answer.expect("answered"));
    for node in 0..3 {
        let mut late = Client::connect(&mut cluster.nodes[node], 10 + node as u128);
        cluster.run();
        let answer = cluster.ask(node, &mut late, &login_by(&token));
        assert!(answer.expect("answered").result().is_ok());
        assert!(!cluster.nodes[node].disk.holds(token.as_bytes()));
    }
    let gone = Request::DeletePersonalAccessToken(name("mine"));
    let answer = cluster.ask(primary, &mut root, &gone).expect("answered");
    assert_eq!(answer.code(), None);
    let mut late = Client::connect(&mut cluster.nodes[backup], 20);
    cluster.run();
    let answer = cluster.ask(backup, &mut late, &login_by(&token));
    assert_eq!(
        answer.expect("answered"),
        Answer::Eviction(EvictionReason::InvalidToken)
    );
}

#[test]
fn a_refusal_waits_for_what_the_primary_knows() {
    let (mut cluster, (primary, mut root), (backup, mut client)) = cluster();
    // The backup hears nothing of it.
    cluster.cut(primary, backup);
    let created = cluster.ask(primary, &mut root, &create_user("alice", SECRET));
    assert!(created.expect("a quorum is left").result().is_ok());
    let request = login("alice", SECRET);
    let frame = client.frame(&request);
    cluster.nodes[backup].arrive(client.connection, &frame);
    cluster.run();
    let early = cluster.nodes[backup].frames(client.connection);
    assert!(early.is_empty(), "not refused by old metadata");
    cluster.heal();
    let frames = cluster.nodes[backup].frames(client.connection);
    let [frame] = frames.as_slice() else {
        panic!("{} answers", frames.len());
    };
    assert!(Answer::of(frame).result().is_ok());
}
