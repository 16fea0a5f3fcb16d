//! Random ops on users against a plain reference: who is there, who may send where, whose token
//! opens, whose session goes on.

use std::collections::{BTreeMap, BTreeSet};

use base::ClientId;
use metadata::{Credential, Metadata, Right, Scope};
use proptest::prelude::*;
use wire::{
    Codec, Name, Operation, Permissions, StreamPermissions, StreamRights, TopicPermissions,
    TopicRights, UserStatus,
};

use crate::{
    model::LIMITS,
    support::{Log, create_stream, create_topic, id, named, replay, topic, update_stream},
    users::{change_password, create_token, create_user, global, update_permissions, update_user},
};

const NAMES: [&str; 5] = ["alice", "bob", "carol", "dave", "erin"];
const PASSWORDS: [&str; 3] = ["$argon2id$1", "$argon2id$2", "$argon2id$3"];

/// Where a user may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Grant {
    Everywhere,
    Stream(u32),
    Topic(u32, u32),
}

#[derive(Clone, Debug)]
enum Step {
    Create(usize, Vec<Grant>),
    Rename(u32, usize),
    Status(u32, bool),
    Delete(u32),
    Grant(u32, Vec<Grant>),
    ChangePassword(u32, usize, usize),
    CreateToken(u32, usize, u8, bool),
    DeleteToken(u32, usize),
    Sweep,
    LogIn(u32, usize),
    LogInByToken(u32, u8),
    CreateStream(usize),
    RenameStream(u32, usize),
    DeleteStream(u32),
    CreateTopic(u32, usize),
    DeleteTopic(u32, u32),
}

struct User {
    name: usize,
    active: bool,
    password: usize,
    grants: BTreeSet<Grant>,
    /// By name: digest, and the time at which it ends.
    tokens: BTreeMap<usize, (u8, Option<u64>)>,
}

/// The reference, without root.
#[derive(Default)]
struct Model {
    users: BTreeMap<u32, User>,
    newest: u32,
    /// Topics by stream.
    streams: BTreeMap<u32, BTreeSet<u32>>,
    stream_names: BTreeMap<u32, usize>,
    sessions: BTreeMap<u128, u32>,
}

fn permissions(grants: &[Grant]) -> Permissions {
    let mut permissions = global(|flags| flags.send_messages = grants.contains(&Grant::Everywhere));
    for grant in grants {
        let (id, sends, topics) = match *grant {
            Grant::Everywhere => continue,
            Grant::Stream(id) => (id, true, vec![]),
            Grant::Topic(id, topic) => {
                let rights = TopicRights {
                    send_messages: true,
                    ..TopicRights::default()
                };
                (id, false, vec![TopicPermissions { id: topic, rights }])
            }
        };
        let rights = StreamRights {
            send_messages: sends,
            ..StreamRights::default()
        };
        permissions
            .streams
            .push(StreamPermissions { id, rights, topics });
    }
    permissions
}

/// How many streams and topics these name.
fn named_count(grants: &[Grant]) -> usize {
    let mut streams = BTreeSet::new();
    let mut topics = BTreeSet::new();
    for grant in grants {
        match *grant {
            Grant::Everywhere => {}
            Grant::Stream(stream) => drop(streams.insert(stream)),
            Grant::Topic(stream, topic) => {
                streams.insert(stream);
                topics.insert((stream, topic));
            }
        }
    }
    streams.len() + topics.len()
}

fn lowest<T>(taken: &BTreeMap<u32, T>) -> u32 {
    (0..)
        .find(|id| !taken.contains_key(id))
        .expect("some are free")
}

impl Model {
    fn holder(&self, name: usize) -> Option<u32> {
        let mut users = self.users.iter();
        users.find(|(_, user)| user.name == name).map(|(&id, _)| id)
    }

    fn digest_holder(&self, digest: u8) -> Option<(u32, Option<u64>)> {
        let mut tokens = self.users.iter().flat_map(|(&id, user)| {
            user.tokens
                .values()
                .map(move |&(digest, end)| (id, digest, end))
        });
        tokens
            .find(|it| it.1 == digest)
            .map(|(id, _, end)| (id, end))
    }

    fn user(&mut self, user: u32) -> Result<&mut User, u32> {
        self.users.get_mut(&user).ok_or(20)
    }

    fn close(&mut self, user: u32) {
        self.sessions.retain(|_, owner| *owner != user);
    }

    fn apply(&mut self, step: &Step, now: u64) -> Result<(), u32> {
        match *step {
            Step::Create(name, ref grants) => {
                if self.holder(name).is_some() {
                    return Err(46);
                }
                if self.users.len() == LIMITS.users_max {
                    return Err(55);
                }
                if named_count(grants) > LIMITS.grants_max {
                    return Err(3);
                }
                self.newest += 1;
                let user = User {
                    name,
                    active: true,
                    password: 0,
                    grants: grants.iter().copied().collect(),
                    tokens: BTreeMap::new(),
                };
                self.users.insert(self.newest, user);
            }
            Step::Rename(user, name) => {
                self.user(user)?;
                if self.holder(name).is_some_and(|holder| holder != user) {
                    return Err(46);
                }
                self.user(user)?.name = name;
            }
            Step::Status(user, active) => {
                self.user(user)?.active = active;
                if !active {
                    self.close(user);
                }
            }
            Step::Delete(user) => {
                self.users.remove(&user).ok_or(20_u32)?;
                self.close(user);
            }
            Step::Grant(user, ref grants) => {
                let entry = self.user(user)?;
                if named_count(grants) > LIMITS.grants_max {
                    return Err(3);
                }
                entry.grants = grants.iter().copied().collect();
            }
            Step::ChangePassword(user, current, new) => {
                let entry = self.user(user)?;
                if entry.password != current {
                    return Err(42);
                }
                entry.password = new;
            }
            _ => return self.apply_to_others(step, now),
        }
        Ok(())
    }

    fn apply_to_others(&mut self, step: &Step, now: u64) -> Result<(), u32> {
        match *step {
            Step::CreateToken(user, name, digest, ends) => {
                let known = self.users.get(&user).is_some_and(|user| user.active);
                if !known {
                    return Err(40);
                }
                let taken = self.digest_holder(digest).is_some();
                let entry = self.user(user)?;
                if taken || entry.tokens.contains_key(&name) {
                    return Err(51);
                }
                if entry.tokens.len() == LIMITS.tokens_max {
                    return Err(52);
                }
                entry.tokens.insert(name, (digest, ends.then_some(now + 5)));
            }
            Step::DeleteToken(user, name) => {
                let known = self.users.get(&user).is_some_and(|user| user.active);
                if !known {
                    return Err(40);
                }
                self.user(user)?.tokens.remove(&name).ok_or(20_u32)?;
            }
            Step::Sweep => {
                for user in self.users.values_mut() {
                    user.tokens
                        .retain(|_, token| token.1.is_none_or(|end| end > now));
                }
            }
            Step::LogIn(user, password) => {
                let entry = self.users.get(&user).ok_or(42_u32)?;
                if entry.password != password {
                    return Err(42);
                }
                if !entry.active {
                    return Err(47);
                }
                self.sessions.insert(u128::from(user) + 100, user);
            }
            Step::LogInByToken(user, digest) => {
                let active = self.users.get(&user).ok_or(42_u32)?.active;
                let (owner, end) = self.digest_holder(digest).ok_or(53_u32)?;
                if end.is_some_and(|end| end <= now) {
                    return Err(54);
                }
                if owner != user {
                    return Err(53);
                }
                if !active {
                    return Err(47);
                }
                self.sessions.insert(u128::from(user) + 100, user);
            }
            _ => return self.apply_to_streams(step),
        }
        Ok(())
    }

    fn apply_to_streams(&mut self, step: &Step) -> Result<(), u32> {
        match *step {
            Step::CreateStream(name) => {
                if self.stream_names.values().any(|taken| *taken == name) {
                    return Err(1012);
                }
                if self.streams.len() == LIMITS.streams_max as usize {
                    return Err(1020);
                }
                let id = lowest(&self.streams);
                self.streams.insert(id, BTreeSet::new());
                self.stream_names.insert(id, name);
            }
            Step::RenameStream(stream, name) => {
                self.streams.get(&stream).ok_or(1009_u32)?;
                let taken = |(id, taken): (&u32, &usize)| *taken == name && *id != stream;
                if self.stream_names.iter().any(taken) {
                    return Err(1012);
                }
                self.stream_names.insert(stream, name);
            }
            Step::DeleteStream(stream) => {
                self.streams.remove(&stream).ok_or(1009_u32)?;
                self.stream_names.remove(&stream);
                for user in self.users.values_mut() {
                    user.grants.retain(|grant| match *grant {
                        Grant::Everywhere => true,
                        Grant::Stream(of) | Grant::Topic(of, _) => of != stream,
                    });
                }
            }
            Step::CreateTopic(stream, name) => {
                // Topics are named after their number here, so that they are created in order.
                let topics = self.streams.get_mut(&stream).ok_or(1009_u32)?;
                let name = u32::try_from(name).expect("few");
                if !topics.insert(name) {
                    return Err(2013);
                }
            }
            Step::DeleteTopic(stream, topic) => {
                let topics = self.streams.get_mut(&stream).ok_or(1009_u32)?;
                if !topics.remove(&topic) {
                    return Err(2010);
                }
                for user in self.users.values_mut() {
                    user.grants.remove(&Grant::Topic(stream, topic));
                }
            }
            _ => unreachable!("all else is done"),
        }
        Ok(())
    }

    /// Everything that can be asked about users.
    fn agree(&self, metadata: &Metadata) {
        let users: Vec<_> = metadata
            .users()
            .skip(1)
            .map(|(id, name, _)| (id, name))
            .collect();
        let expected = self.users.iter().map(|(&id, user)| (id, NAMES[user.name]));
        assert_eq!(users, expected.collect::<Vec<_>>());
        for user in 1..=self.newest + 1 {
            let entry = self.users.get(&user);
            for stream in 0..4 {
                for topic in 0..3 {
                    let there = self
                        .streams
                        .get(&stream)
                        .is_some_and(|it| it.contains(&topic));
                    if !there {
                        continue;
                    }
                    let granted = [
                        Grant::Everywhere,
                        Grant::Stream(stream),
                        Grant::Topic(stream, topic),
                    ];
                    let may = entry.is_some_and(|entry| {
                        entry.active && granted.iter().any(|it| entry.grants.contains(it))
                    });
                    let scope = Scope::topic(stream, topic);
                    let found = metadata.authorize(user, Right::Send, scope).is_ok();
                    assert_eq!(found, may, "user {user}, topic {topic} of stream {stream}");
                }
            }
            let tokens = entry.map_or(0, |entry| entry.tokens.len());
            assert_eq!(metadata.tokens(user).count(), tokens);
        }
        let sessions = metadata.sessions().filter(|(_, session)| session.user != 0);
        let sessions = sessions.map(|(client, session)| (client.0, session.user));
        assert_eq!(sessions.collect::<BTreeMap<_, _>>(), self.sessions);
    }
}

/// Does a step to the log; its code.
fn play(log: &mut Log, step: &Step) -> u32 {
    let token = |name: usize| format!("token {name}");
    let (operation, body) = match *step {
        Step::Create(name, ref grants) => (
            Operation::CreateUser,
            create_user(NAMES[name], Some(permissions(grants))),
        ),
        Step::Rename(user, name) => (
            Operation::UpdateUser,
            update_user(id(user), Some(NAMES[name]), None),
        ),
        Step::Status(user, active) => {
            let status = if active {
                UserStatus::Active
            } else {
                UserStatus::Inactive
            };
            (
                Operation::UpdateUser,
                update_user(id(user), None, Some(status)),
            )
        }
        Step::Delete(user) => (Operation::DeleteUser, id(user).encode()),
        Step::Grant(user, ref grants) => (
            Operation::UpdatePermissions,
            update_permissions(id(user), Some(permissions(grants))),
        ),
        Step::ChangePassword(user, current, new) => (
            Operation::ChangePassword,
            change_password(id(user), PASSWORDS[current], PASSWORDS[new]),
        ),
        Step::CreateToken(user, name, digest, ends) => {
            let expiry = if ends { 5 } else { 0 };
            log.user = user;
            let body = create_token(&token(name), expiry, digest);
            (Operation::CreatePersonalAccessToken, body)
        }
        Step::DeleteToken(user, name) => {
            log.user = user;
            let name = token(name);
            let body = Name::new(&name).expect("short").encode();
            (Operation::DeletePersonalAccessToken, body)
        }
        Step::Sweep => {
            let applied = log.own(Operation::RemoveExpiredTokens, &[]);
            return applied.reply.result.err().map_or(0, |code| code.0);
        }
        Step::LogIn(user, password) => {
            let login = log.metadata.login(user);
            let of = |login: &metadata::Login| login.hash.as_deref() == Some(PASSWORDS[password]);
            // What was verified is the password that is there, or it was one before it.
            let since = login.filter(of).map_or(base::Op(0), |login| login.since);
            return log_in(log, user, Credential::Password { since });
        }
        Step::LogInByToken(user, digest) => {
            return log_in(log, user, Credential::Token([digest; 32]));
        }
        Step::CreateStream(name) => (Operation::CreateStream, create_stream(NAMES[name])),
        Step::RenameStream(stream, name) => (
            Operation::UpdateStream,
            update_stream(id(stream), NAMES[name]),
        ),
        Step::DeleteStream(stream) => (Operation::DeleteStream, id(stream).encode()),
        Step::CreateTopic(stream, name) => (
            Operation::CreateTopic,
            create_topic(id(stream), NAMES[name], 1),
        ),
        Step::DeleteTopic(stream, of) => (
            Operation::DeleteTopic,
            topic(id(stream), named(NAMES[of as usize])),
        ),
    };
    let code = log.code(operation, &body);
    log.user = 0;
    code
}

fn log_in(log: &mut Log, user: u32, credential: Credential) -> u32 {
    let client = ClientId(u128::from(user) + 100);
    let applied = log.register_with(client, user, credential);
    applied.reply.result.err().map_or(0, |code| code.0)
}

fn grants() -> impl Strategy<Value = Vec<Grant>> {
    let grant = prop_oneof![
        1 => Just(Grant::Everywhere),
        3 => (0..4_u32).prop_map(Grant::Stream),
        4 => (0..4_u32, 0..3_u32).prop_map(|(stream, topic)| Grant::Topic(stream, topic)),
    ];
    proptest::collection::vec(grant, 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    let (user, name) = (|| 1..8_u32, || 0..NAMES.len());
    let (password, stream, topic) = (|| 0..PASSWORDS.len(), || 0..4_u32, || 0..3_u32);
    prop_oneof![
        4 => (name(), grants()).prop_map(|(n, g)| Step::Create(n, g)),
        1 => (user(), name()).prop_map(|(u, n)| Step::Rename(u, n)),
        2 => (user(), any::<bool>()).prop_map(|(u, a)| Step::Status(u, a)),
        1 => user().prop_map(Step::Delete),
        3 => (user(), grants()).prop_map(|(u, g)| Step::Grant(u, g)),
        2 => (user(), password(), password()).prop_map(|(u, c, n)| Step::ChangePassword(u, c, n)),
        4 => (user(), 0..3_usize, 0..6_u8, any::<bool>())
            .prop_map(|(u, n, d, e)| Step::CreateToken(u, n, d, e)),
        1 => (user(), 0..3_usize).prop_map(|(u, n)| Step::DeleteToken(u, n)),
        1 => Just(Step::Sweep),
        3 => (user(), password()).prop_map(|(u, p)| Step::LogIn(u, p)),
        3 => (user(), 0..6_u8).prop_map(|(u, d)| Step::LogInByToken(u, d)),
        3 => name().prop_map(Step::CreateStream),
        1 => (stream(), name()).prop_map(|(s, n)| Step::RenameStream(s, n)),
        1 => stream().prop_map(Step::DeleteStream),
        4 => (stream(), 0..3_usize).prop_map(|(s, n)| Step::CreateTopic(s, n)),
        1 => (stream(), topic()).prop_map(|(s, t)| Step::DeleteTopic(s, t)),
    ]
}

proptest! {
    #[test]
    fn users_do_what_the_reference_does(steps in proptest::collection::vec(step(), 0..80)) {
        let limits = metadata::Limits { clients_max: 100, ..LIMITS };
        let mut log = Log::new(limits.clone());
        let mut model = Model::default();
        for step in &steps {
            // Names stand for numbers only while no smaller number is free.
            if let Step::CreateTopic(stream, name) = step
                && let Some(topics) = model.streams.get(stream)
                && (0..).find(|id| !topics.contains(id)) != u32::try_from(*name).ok()
            {
                continue;
            }
            let now = log.metadata.op().0 + 1 + 1_000_000;
            let expected = model.apply(step, now).err().unwrap_or(0);
            prop_assert_eq!(play(&mut log, step), expected, "{:?}", step);
            model.agree(&log.metadata);
        }
        let bytes = log.metadata.snapshot();
        let restored = Metadata::restore(limits.clone(), "iggy", &bytes).expect("just taken");
        model.agree(&restored);
        prop_assert_eq!(restored.digest(), log.metadata.digest());
        prop_assert_eq!(replay(&log.prepares, limits).0.digest(), log.metadata.digest());
    }
}
