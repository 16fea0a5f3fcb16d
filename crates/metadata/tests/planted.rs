//! Planted bugs do what they are planted for: replicas of one log disagree, and digests tell; a
//! right, a token or a password is good for more than it should be.
#![cfg(feature = "planted-bugs")]

// The other test binary uses the rest.
#[allow(dead_code)]
#[path = "metadata/support.rs"]
mod support;

use std::sync::{Mutex, MutexGuard};

use base::{ClientId, Timestamp};
use metadata::{CreateToken, Credential, Limits, Right, Scope};
use support::{Log, create_stream, id, replay};
use wire::{
    Codec, Name, Operation, Options, Permissions, Prefixed, Secret, StreamPermissions,
    StreamRights, UserStatus,
    request::{ChangePassword, CreateUser},
};

/// One bug at a time, for the whole process.
struct Planted(#[allow(dead_code)] MutexGuard<'static, ()>);

impl Planted {
    fn none() -> Self {
        static ONE: Mutex<()> = Mutex::new(());
        Self(ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        base::planted::activate(0);
    }
}

/// User 1, who may send to stream 0.
fn with_user() -> Log {
    let mut log = Log::new(Limits::default());
    let rights = StreamRights {
        send_messages: true,
        ..StreamRights::default()
    };
    let streams = vec![StreamPermissions {
        id: 0,
        rights,
        topics: vec![],
    }];
    let permissions = Permissions {
        streams,
        ..Permissions::default()
    };
    let body = CreateUser {
        username: Name::new("alice").expect("short"),
        password: Secret("$argon2id$1"),
        status: UserStatus::Active,
        permissions: Some(Prefixed(permissions)),
        options: Options::default(),
    };
    assert_eq!(log.code(Operation::CreateUser, &body.encode()), 0);
    log
}

#[test]
fn rights_on_a_deleted_stream_would_be_left_to_the_next_with_its_number() {
    let _planted = Planted::none();
    for bug in [0, 45] {
        base::planted::activate(bug);
        let mut log = with_user();
        for (operation, body) in [
            (Operation::CreateStream, create_stream("a")),
            (Operation::DeleteStream, id(0).encode()),
            (Operation::CreateStream, create_stream("b")),
        ] {
            assert_eq!(log.code(operation, &body), 0);
        }
        let allowed = log.metadata.authorize(1, Right::Send, Scope::stream(0));
        assert_eq!(allowed.is_ok(), bug == 45);
    }
}

#[test]
fn a_token_would_open_after_its_end() {
    let _planted = Planted::none();
    for bug in [0, 46] {
        base::planted::activate(bug);
        let mut log = with_user();
        let hash = [7; 32];
        let body = CreateToken {
            name: Name::new("brief").expect("short"),
            expiry: 1,
            hash,
        };
        let create = Operation::CreatePersonalAccessToken;
        assert_eq!(log.code(create, &body.encode()), 0);
        let late = Timestamp(u64::MAX);
        assert_eq!(log.metadata.login_by_token(&hash, late).is_ok(), bug == 46);
        let registered = log.register_with(ClientId(5), 0, Credential::Token(hash));
        assert_eq!(registered.reply.result.is_ok(), bug == 46);
    }
}

#[test]
fn a_password_verified_against_an_old_one_would_replace_the_new_one() {
    let _planted = Planted::none();
    for bug in [0, 47] {
        base::planted::activate(bug);
        let mut log = with_user();
        let change = |current, new| {
            let user = id(1);
            let (current, new) = (Secret(current), Secret(new));
            ChangePassword { user, current, new }.encode()
        };
        let first = change("$argon2id$1", "$argon2id$2");
        assert_eq!(log.code(Operation::ChangePassword, &first), 0);
        let late = change("$argon2id$1", "$argon2id$3");
        let expected = if bug == 47 { 0 } else { 42 };
        assert_eq!(log.code(Operation::ChangePassword, &late), expected);
    }
}

#[test]
fn a_replica_local_choice_shows_in_the_digest() {
    let _planted = Planted::none();
    let salted = |replica_salt| Limits {
        replica_salt,
        ..Limits::default()
    };
    let mut log = Log::new(salted(2));
    log.result(Operation::CreateStream, &create_stream("a"))
        .expect("free");
    let digest = |salt| replay(&log.prepares, salted(salt)).0.digest();
    assert_eq!(digest(1), log.metadata.digest());
    base::planted::activate(33);
    assert_ne!(digest(1), log.metadata.digest());
    assert_eq!(digest(2), log.metadata.digest());
}
