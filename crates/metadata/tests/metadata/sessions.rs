//! The client table: one execution per request, whatever is repeated and whenever.

use crate::support::{CLIENT, Entry, Log, create_stream, replay};
use base::ClientId;
use metadata::{Change, Decision, Limits, Registration, RequestKey, Session};
use wire::{Codec, Operation};

const OTHER: ClientId = ClientId(9);

fn key(session: u64, request: u64, request_checksum: u128) -> RequestKey {
    RequestKey {
        client: CLIENT,
        session,
        request,
        request_checksum,
    }
}

fn entry(session: u64, request: u64, body: &[u8]) -> Entry<'_> {
    Entry {
        client: CLIENT,
        session,
        request,
        request_checksum: 0,
        operation: Operation::CreateStream,
        body,
    }
}

fn logout(session: u64) -> Entry<'static> {
    Entry {
        operation: Operation::Logout,
        ..entry(session, 0, &[])
    }
}

#[test]
fn the_session_is_the_op_of_its_register() {
    let mut log = Log::new(Limits::default());
    let applied = log.register(OTHER, 0);
    let payload = applied.reply.result.clone().expect("root may log in");
    assert_eq!(
        Registration::decode(&payload),
        Ok(Registration {
            user: 0,
            session: 2
        })
    );
    assert_eq!(
        applied.reply.body()[..4],
        [0; 4],
        "a registration is result-framed"
    );
    let session = Session {
        session: 2,
        user: 0,
        watermark: 0,
    };
    assert_eq!(log.metadata.session(OTHER), Some(session));
}

#[test]
fn each_rule_of_the_table_decides() {
    let mut log = Log::new(Limits::default());
    let body = create_stream("a");
    let stamped = Entry {
        request_checksum: 42,
        ..entry(1, 5, &body)
    };
    let reply = log.append(&stamped).reply;
    assert_eq!(log.metadata.check_request(&key(1, 6, 0)), Decision::New);
    assert_eq!(
        log.metadata.check_request(&key(1, 60, 0)),
        Decision::New,
        "gaps are allowed"
    );
    assert_eq!(
        log.metadata.check_request(&key(1, 5, 42)),
        Decision::Replay(reply.clone())
    );
    assert_eq!(
        log.metadata.check_request(&key(1, 5, 0)),
        Decision::Replay(reply)
    );
    assert_eq!(
        log.metadata.check_request(&key(1, 5, 43)),
        Decision::Mismatch
    );
    assert_eq!(
        log.metadata.check_request(&key(1, 4, 0)),
        Decision::AlreadyApplied
    );
    assert_eq!(log.metadata.check_request(&key(0, 6, 0)), Decision::Fenced);
    assert_eq!(
        log.metadata.check_request(&key(2, 6, 0)),
        Decision::Mismatch
    );
    let stranger = RequestKey {
        client: OTHER,
        ..key(1, 6, 0)
    };
    assert_eq!(log.metadata.check_request(&stranger), Decision::NoSession);
}

#[test]
fn a_request_that_entered_the_log_twice_is_executed_once() {
    let mut log = Log::new(Limits::default());
    let body = create_stream("a");
    let first = log.append(&entry(1, 1, &body));
    let again = log.append(&entry(1, 1, &body));
    assert_eq!(
        again.reply, first.reply,
        "also the op is that of the first execution"
    );
    assert_eq!(again.changes, []);
    assert_eq!(log.metadata.counts().streams, 1);
    // Refused ones too.
    let used = Entry {
        request_checksum: 8,
        ..entry(1, 2, &body)
    };
    assert!(log.append(&used).reply.result.is_err());
    for (refused, code) in [
        (
            Entry {
                request_checksum: 9,
                ..used
            },
            4,
        ),
        (entry(0, 3, &body), 40),
        (entry(9, 3, &body), 4),
        (
            Entry {
                client: OTHER,
                ..entry(1, 3, &body)
            },
            40,
        ),
    ] {
        let applied = log.append(&refused);
        assert_eq!(applied.reply.result.map_err(|code| code.0), Err(code));
        assert_eq!(applied.changes, []);
    }
    assert_eq!(
        log.metadata
            .session(CLIENT)
            .map(|session| session.watermark),
        Some(2)
    );
}

#[test]
fn the_same_user_gets_a_new_session_and_keeps_the_answers() {
    let mut log = Log::new(Limits::default());
    let body = create_stream("a");
    let first = log.append(&entry(1, 7, &body)).reply;
    let applied = log.register(CLIENT, 0);
    let closed = Change::SessionClosed {
        client: CLIENT,
        session: 1,
    };
    let opened = Change::SessionOpened {
        client: CLIENT,
        session: 3,
        user: 0,
    };
    assert_eq!(applied.changes, [closed, opened]);
    assert_eq!(log.metadata.check_request(&key(1, 8, 0)), Decision::Fenced);
    assert_eq!(
        log.metadata.check_request(&key(3, 7, 0)),
        Decision::Replay(first)
    );
    assert_eq!(log.metadata.check_request(&key(3, 8, 0)), Decision::New);
}

#[test]
fn logout_ends_its_own_session_only() {
    let mut log = Log::new(Limits::default());
    log.register(CLIENT, 0).reply.result.expect("the same user");
    let stale = log.append(&logout(1));
    assert_eq!(stale.changes, []);
    assert!(
        stale.reply.body().is_empty(),
        "a Logout is not result-framed"
    );
    assert!(log.metadata.session(CLIENT).is_some());
    let applied = log.append(&logout(2));
    assert_eq!(
        applied.changes,
        [Change::SessionClosed {
            client: CLIENT,
            session: 2
        }]
    );
    assert_eq!(log.metadata.session(CLIENT), None);
    assert_eq!(log.append(&logout(2)).changes, [], "harmless twice");
    // The identity is free again, also for the same number of a request.
    log.register(CLIENT, 0)
        .reply
        .result
        .expect("root may log in");
    assert_eq!(log.metadata.check_request(&key(6, 1, 0)), Decision::New);
}

#[test]
fn a_register_needs_a_client_and_a_body() {
    let mut log = Log::empty(Limits::default());
    assert_eq!(
        log.register(ClientId(0), 0)
            .reply
            .result
            .map_err(|code| code.0),
        Err(3)
    );
    let cut = Entry {
        operation: Operation::Register,
        ..entry(0, 0, &[0, 0, 0, 0, 3, b'a'])
    };
    assert_eq!(log.append(&cut).reply.result.map_err(|code| code.0), Err(3));
    assert_eq!(log.metadata.counts().clients, 0);
}

#[test]
fn the_servers_own_ops_need_no_session() {
    let mut log = Log::empty(Limits::default());
    let noop = Entry {
        client: ClientId(0),
        operation: Operation::Noop,
        ..entry(0, 0, &[])
    };
    let applied = log.append(&noop);
    assert_eq!(applied.reply.result.as_deref(), Ok([].as_slice()));
    assert_eq!(applied.changes, []);
    let body = create_stream("a");
    let own = Entry {
        client: ClientId(0),
        ..entry(0, 0, &body)
    };
    assert!(log.append(&own).reply.result.is_ok());
    assert_eq!(log.metadata.counts().streams, 1);
}

#[test]
fn the_table_is_part_of_the_digest() {
    let mut log = Log::new(Limits::default());
    let body = create_stream("a");
    log.append(&entry(1, 1, &body));
    let (replica, _) = replay(&log.prepares, Limits::default());
    assert_eq!(replica.digest(), log.metadata.digest());
    // The same op with another request number gives the same streams and another digest.
    let mut other = Log::new(Limits::default());
    other.append(&entry(1, 2, &body));
    assert_ne!(other.metadata.digest(), log.metadata.digest());
}

#[test]
#[should_panic(expected = "each once")]
fn applying_an_op_twice_is_a_bug() {
    let log = Log::new(Limits::default());
    let mut replica = log.metadata.clone();
    let header = wire::replica::PrepareHeader::verify(&log.prepares[0]).expect("sealed");
    let _ = replica.apply(&header, &log.prepares[0][wire::HEADER_SIZE..]);
}
