//! Users and tokens: create, delete, change passwords, read.
//!
//! A user is created with rights on one stream and never given others. Passwords are never used
//! twice: each is a user's for one time, so of all changes from it only one can be done.

use std::collections::{BTreeMap, BTreeSet};

use client::{Reply, RequestFrame};
use wire::{
    Name, Options, Permissions, Prefixed, Request, Secret, ShortText, StreamPermissions,
    StreamRights, UserStatus,
    reply::{TokenRecord, UserDetails, UserRecord},
    request::{ChangePassword, CreatePersonalAccessToken, CreateUser},
};

use super::{Call, Sampler, Verdict, named};

/// So many exist at a time.
const USERS_MAX: usize = 3;

/// What clients know of users.
#[derive(Debug, Default)]
pub(super) struct Users {
    users: BTreeMap<u64, User>,
    /// When streams that are gone were asked to go, and an op by which they were gone.
    deleted_streams: BTreeMap<u64, (u64, u64)>,
    /// Changes of passwords that were done: the user and the password before.
    changed: BTreeSet<(u64, u64)>,
    tokens_asked: BTreeSet<String>,
    /// Tokens that were told.
    tokens: BTreeSet<String>,
}

#[derive(Debug)]
struct User {
    /// The stream it has rights on.
    stream: u64,
    /// When it was known to be there.
    created: Option<u64>,
    /// An op by which it was gone.
    deleted_op: Option<u64>,
    /// Its password as far as is known; none if somebody may have changed it.
    password: Option<u64>,
    /// Somebody has asked for its deletion.
    doubted: bool,
}

fn user_name(user: u64) -> String {
    format!("user-{user}")
}

fn password_text(password: u64) -> String {
    format!("password-{password}")
}

impl Users {
    fn live(&self) -> impl Iterator<Item = (u64, &User)> {
        let users = self.users.iter().map(|(&user, known)| (user, known));
        users.filter(|(_, user)| user.created.is_some() && !user.doubted)
    }

    /// A stream is gone.
    pub(super) fn on_stream_deleted(&mut self, stream: u64, asked: u64, op: u64) {
        self.deleted_streams.insert(stream, (asked, op));
    }

    /// Nobody knows what became of a call, or whether it is done later.
    pub(super) fn doubt(&mut self, call: &Call) {
        if let Call::ChangePassword { user, .. } = call
            && let Some(user) = self.users.get_mut(user)
        {
            user.password = None;
        }
    }
}

impl Sampler<'_> {
    pub(super) fn sample_user(&mut self) -> (Call, RequestFrame) {
        let live: Vec<u64> = self.workload.users.live().map(|(user, _)| user).collect();
        let (Some(&newest), Some(stream)) = (live.last(), self.some_stream()) else {
            return match self.some_stream() {
                Some(stream) => self.create_user(stream),
                None => (Call::GetUsers, RequestFrame::new(&Request::GetUsers)),
            };
        };
        match self.prng().below(20) {
            0..3 if live.len() < USERS_MAX => self.create_user(stream),
            3..4 if live.len() > 1 => {
                let user = live[self.prng().index(live.len())];
                let known = self.workload.users.users.get_mut(&user).expect("live");
                known.doubted = true;
                let frame = RequestFrame::new(&Request::DeleteUser(named(&user_name(user))));
                (Call::DeleteUser { user }, frame)
            }
            4..10 => self.change_password(newest),
            10..13 => self.create_token(),
            13..14 => {
                let frame = RequestFrame::new(&Request::GetPersonalAccessTokens);
                (Call::GetTokens, frame)
            }
            14..15 => (Call::GetUsers, RequestFrame::new(&Request::GetUsers)),
            _ => {
                let all: Vec<u64> = self.workload.users.users.keys().copied().collect();
                let user = all[self.prng().index(all.len())];
                let frame = RequestFrame::new(&Request::GetUser(named(&user_name(user))));
                (Call::GetUser { user }, frame)
            }
        }
    }

    fn create_user(&mut self, stream: u64) -> (Call, RequestFrame) {
        let user = self.new_name();
        let known = User {
            stream,
            created: None,
            deleted_op: None,
            password: Some(user),
            doubted: false,
        };
        self.workload.users.users.insert(user, known);
        let rights = StreamRights {
            poll_messages: true,
            ..StreamRights::default()
        };
        let id = self.workload.streams[&stream].id;
        let streams = vec![StreamPermissions {
            id,
            rights,
            topics: vec![],
        }];
        let permissions = Permissions {
            streams,
            ..Permissions::default()
        };
        let (name, password) = (user_name(user), password_text(user));
        let request = CreateUser {
            username: Name::new(&name).expect("a short name"),
            password: Secret(&password),
            status: UserStatus::Active,
            permissions: Some(Prefixed(permissions)),
            options: Options::default(),
        };
        let frame = RequestFrame::new(&Request::CreateUser(request));
        (Call::CreateUser { user }, frame)
    }

    fn change_password(&mut self, user: u64) -> (Call, RequestFrame) {
        let Some(current) = self.workload.users.users[&user].password else {
            return (Call::GetUsers, RequestFrame::new(&Request::GetUsers));
        };
        let new = self.new_name();
        let name = user_name(user);
        let (from, to) = (password_text(current), password_text(new));
        let request = ChangePassword {
            user: named(&name),
            current: Secret(&from),
            new: Secret(&to),
        };
        let frame = RequestFrame::new(&Request::ChangePassword(request));
        (Call::ChangePassword { user, current, new }, frame)
    }

    fn create_token(&mut self) -> (Call, RequestFrame) {
        let token = self.new_name();
        let name = format!("token-{token}");
        let expiry = 1_000_000 * (1 + self.prng().below(20));
        let request = CreatePersonalAccessToken {
            name: Name::new(&name).expect("a short name"),
            expiry,
        };
        let frame = RequestFrame::new(&Request::CreatePersonalAccessToken(request));
        self.workload.users.tokens_asked.insert(name);
        (Call::CreateToken { token }, frame)
    }

    pub(super) fn judge_user(&mut self, call: &Call, start: u64, reply: &Reply) -> Verdict {
        let time = self.time;
        match *call {
            Call::CreateUser { user } => {
                let Ok(record) = reply.decode::<UserDetails<'_>>() else {
                    return self.fail("a created user has no record".into());
                };
                if record.user.username.as_str() != user_name(user) || record.user.id == 0 {
                    return self.fail(format!("user {user} was created as {record:?}"));
                }
                self.user(user).created = Some(time);
            }
            Call::DeleteUser { user } => self.user(user).deleted_op = Some(reply.header().op),
            Call::ChangePassword { user, current, new } => {
                self.user(user).password = Some(new);
                if !self.workload.users.changed.insert((user, current)) {
                    let text = format!("password {current} of user {user} was changed twice");
                    return self.fail(text);
                }
            }
            Call::CreateToken { token: number } => {
                let Ok(ShortText(token)) = reply.decode::<ShortText<'_>>() else {
                    return self.fail(format!("token {number} was not told"));
                };
                self.workload.logins.on_token(token);
                if !self.workload.users.tokens.insert(token.to_owned()) {
                    return self.fail(format!("token {number} had been told before"));
                }
            }
            Call::GetTokens => {
                let Ok(tokens) = reply.decode::<Vec<TokenRecord<'_>>>() else {
                    return self.fail("tokens cannot be read".into());
                };
                let asked = &self.workload.users.tokens_asked;
                let known = |name: &str| asked.contains(name) || super::spare::is_token(name);
                if !tokens.iter().all(|it| known(it.name.as_str())) {
                    return self.fail("there is a token that nobody has asked for".into());
                }
            }
            Call::GetUser { user } => return self.judge_read(user, start, reply),
            _ => {
                if reply.decode::<Vec<UserRecord<'_>>>().is_err() {
                    return self.fail("users cannot be read".into());
                }
            }
        }
        Ok(())
    }

    fn judge_read(&mut self, user: u64, start: u64, reply: &Reply) -> Verdict {
        let Ok(details) = reply.decode_optional::<UserDetails<'_>>() else {
            return self.fail("a user cannot be read".into());
        };
        let users = &self.workload.users;
        let known = &users.users[&user];
        let Some(details) = details else {
            let there = known.created.is_some_and(|at| at < start) && !known.doubted;
            if there {
                return self.fail(format!("user {user} is there and was not found"));
            }
            return Ok(());
        };
        // Whoever is found may be found in metadata of a moment ago; the answer says of when.
        let op = reply.header().op;
        if known.deleted_op.is_some_and(|deleted| deleted <= op) {
            return self.fail(format!("user {user} is gone and was found"));
        }
        let kept = details.permissions.is_some_and(|it| !it.streams.is_empty());
        let gone = users.deleted_streams.get(&known.stream);
        let gone = gone.is_some_and(|&(asked, gone)| {
            gone <= op && known.created.is_some_and(|created| created < asked)
        });
        if gone && kept {
            let text = format!("user {user} has kept its rights on a stream that is gone");
            return self.fail(text);
        }
        Ok(())
    }

    fn user(&mut self, user: u64) -> &mut User {
        let users = &mut self.workload.users.users;
        users.get_mut(&user).expect("asked for before")
    }
}
