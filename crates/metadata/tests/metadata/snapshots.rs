//! A state restored from a snapshot is the one it was taken of, in all it says and does from then
//! on; and bytes that are no snapshot are refused with a reason.

use base::ClientId;
use metadata::{Limits, Metadata};
use proptest::prelude::*;
use wire::{Codec, Operation, SnapshotError, UserStatus, Value};

use crate::{
    model::{LIMITS, step},
    support::{Entry, Log, block, create_stream, create_topic_with, id, named},
};

fn restore(bytes: &[u8], limits: Limits) -> Result<Metadata, SnapshotError> {
    Metadata::restore(limits, "iggy", bytes)
}

/// A log with something of everything in it.
fn rich() -> Log {
    let mut log = Log::new(Limits::default());
    for name in ["a", "b", "c"] {
        assert_eq!(log.code(Operation::CreateStream, &create_stream(name)), 0);
    }
    let options = block(&[
        ("durability", Value::text("persisted")),
        ("message_expiry", Value::text("1 day")),
    ]);
    for name in ["x", "y", "z"] {
        let topic = create_topic_with(id(1), name, 3, options.as_options());
        assert_eq!(log.code(Operation::CreateTopic, &topic), 0, "{name}");
    }
    let gone = crate::support::topic(id(1), id(1));
    assert_eq!(log.code(Operation::DeleteTopic, &gone), 0);
    // Refused, and answered so again.
    assert_ne!(log.code(Operation::CreateStream, &create_stream("a")), 0);
    for client in 1..4 {
        log.register(ClientId(client), 0);
    }
    // Groups, one of them deleted; the partitions are on their way from the first to the others.
    for name in ["gone", "readers", "idle"] {
        assert_eq!(crate::groups::create(&mut log, name), 0, "{name}");
    }
    assert_eq!(crate::groups::delete(&mut log, "gone"), 0);
    for client in 1..4 {
        assert_eq!(crate::groups::join(&mut log, client, "readers", &[]), 0);
    }
    assert_eq!(log.metadata.pending_revocations().count(), 2);
    users(&mut log);
    log
}

/// Users, one of whom is gone, with rights and tokens; root has another name and password.
fn users(log: &mut Log) {
    use crate::users::{change_password, create_token, create_user, senders, update_user};
    for (operation, body) in [
        (Operation::CreateUser, create_user("alice", Some(senders()))),
        (Operation::CreateUser, create_user("bob", None)),
        (Operation::CreateUser, create_user("carol", None)),
        (Operation::DeleteUser, id(2).encode()),
        (
            Operation::UpdateUser,
            update_user(id(3), None, Some(UserStatus::Inactive)),
        ),
        (
            Operation::CreatePersonalAccessToken,
            create_token("brief", 1_000, 1),
        ),
        (
            Operation::CreatePersonalAccessToken,
            create_token("forever", 0, 2),
        ),
        (
            Operation::ChangePassword,
            change_password(id(0), "", "$argon2id$9"),
        ),
        (
            Operation::UpdateUser,
            update_user(id(0), Some("chief"), None),
        ),
    ] {
        assert_eq!(log.code(operation, &body), 0, "{operation:?}");
    }
    log.register(ClientId(9), 1).reply.result.expect("active");
}

#[test]
fn everything_is_in_it() {
    let log = rich();
    let bytes = log.metadata.snapshot();
    let restored = restore(&bytes, Limits::default()).expect("just taken");
    assert_eq!(restored.op(), log.metadata.op());
    assert_eq!(restored.digest(), log.metadata.digest());
    assert_eq!(restored.snapshot(), bytes);
    assert_eq!(restored.find_user(named("chief")), Some(0));
    assert_eq!(restored.get_tokens(0), log.metadata.get_tokens(0));
    assert_eq!(restored.login(0), log.metadata.login(0));
    assert_eq!(restored.permissions(1), log.metadata.permissions(1));
    assert_eq!(restored.first_token_end(), log.metadata.first_token_end());
    assert_eq!(restored.get_users(), log.metadata.get_users());
    let partitions = |metadata: &Metadata| metadata.partitions().collect::<Vec<_>>();
    assert_eq!(partitions(&restored), partitions(&log.metadata));
    assert_eq!(partitions(&restored).len(), 6);
    assert!(restored.sessions().eq(log.metadata.sessions()));
}

#[test]
fn a_retry_after_a_restore_gets_its_first_answer() {
    let mut log = rich();
    let body = create_stream("d");
    let first = log.ask(Operation::CreateStream, &body).reply;
    let restored = restore(&log.metadata.snapshot(), Limits::default()).expect("just taken");
    log.metadata = restored;
    let session = log
        .metadata
        .session(crate::support::CLIENT)
        .expect("logged in");
    let again = log.append(&Entry {
        client: crate::support::CLIENT,
        session: session.session,
        request: session.watermark,
        request_checksum: 0,
        operation: Operation::CreateStream,
        body: &body,
    });
    assert_eq!(again.reply, first);
    assert!(again.changes.is_empty());
}

#[test]
fn no_damaged_byte_and_no_cut_passes() {
    let bytes = rich().metadata.snapshot();
    for at in 0..bytes.len() {
        assert!(
            restore(&bytes[..at], Limits::default()).is_err(),
            "cut at {at}"
        );
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        assert!(restore(&damaged, Limits::default()).is_err(), "byte {at}");
    }
    let mut long = bytes.clone();
    long.push(0);
    assert!(restore(&long, Limits::default()).is_err());
    let mut other = bytes;
    other[15] = b'1';
    let refused = restore(&other, Limits::default()).map(|_| ());
    assert_eq!(refused, Err(SnapshotError::Version));
}

proptest! {
    #[test]
    fn a_restored_state_goes_on_as_the_other(
        before in proptest::collection::vec((step(), 0..8_u8), 0..40),
        after in proptest::collection::vec((step(), 0..8_u8), 0..20),
    ) {
        let mut log = Log::new(LIMITS);
        let play = |log: &mut Log, steps: &[(crate::model::Step, u8)]| {
            let mut applied = Vec::new();
            for (step, login) in steps {
                if *login < 5 {
                    applied.push(log.register(ClientId(u128::from(*login) + 1), 0));
                }
                let (operation, body) = step.request();
                applied.push(log.ask(operation, &body));
            }
            applied
        };
        play(&mut log, &before);
        let bytes = log.metadata.snapshot();
        let mut other = log.clone();
        other.metadata = restore(&bytes, LIMITS).expect("just taken");
        prop_assert_eq!(other.metadata.digest(), log.metadata.digest());
        prop_assert_eq!(&other.metadata.snapshot(), &bytes);
        let (first, second) = (play(&mut log, &after), play(&mut other, &after));
        for (first, second) in first.iter().zip(&second) {
            prop_assert_eq!(&first.reply, &second.reply);
            prop_assert_eq!(&first.changes, &second.changes);
        }
        prop_assert_eq!(other.metadata.digest(), log.metadata.digest());
    }

    #[test]
    fn arbitrary_bytes_are_refused_with_a_reason(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        prop_assert!(restore(&bytes, LIMITS).is_err());
        let mut headed = b"viewstamp meta 4".to_vec();
        headed.extend(&bytes);
        let _ = restore(&headed, LIMITS);
        let whole = rich().metadata.snapshot();
        let mut damaged = whole.clone();
        for (at, value) in damage {
            let at = at.index(damaged.len());
            damaged[at] = value;
        }
        prop_assert_eq!(restore(&damaged, Limits::default()).is_ok(), damaged == whole);
    }
}
