//! One history that passes, and what must fail about it.

use base::{GroupId, Op, ReplicaIndex, Timestamp, View};
use wire::{
    Name, Options, Prefixed, Sink,
    reply::StreamRecord,
    request::CreateStream,
    result::{encode_result, rejection},
};

use super::*;

const CLIENT: ClientId = ClientId(9);
const PLACE: (u8, ConnectionId) = (1, ConnectionId(3));

fn setting() -> Setting {
    Setting {
        root: "root",
        segments: Segments {
            usual: 4096,
            min: 512,
            max: 1 << 30,
        },
        clients_max: 8,
        nodes: 3,
        disks_fill: false,
    }
}

fn prepare(op: u64, operation: Operation) -> PrepareHeader {
    PrepareHeader {
        checksum: 0,
        checksum_body: 0,
        cluster: 0,
        size: 0,
        view: View(0),
        replica: ReplicaIndex(0),
        parent: 0,
        client: CLIENT,
        group: GroupId::METADATA,
        op: Op(op),
        commit: Op(op - 1),
        timestamp: Timestamp(1_000 + op),
        request: op - 1,
        session: u64::from(op > 1),
        request_checksum: 0,
        user: 0,
        operation,
        encryption: None,
    }
}

fn register() -> Vec<u8> {
    let mut body = Vec::new();
    body.put(&0_u32.to_le_bytes());
    body.put(&[1, b'a', 1, b'b', 0]);
    body.put(&0_u64.to_le_bytes());
    body
}

fn name(name: &str) -> Name<'_> {
    Name::new(name).expect("short")
}

fn create(stream: &str) -> Vec<u8> {
    let request = CreateStream {
        name: name(stream),
        options: Options::default(),
    };
    request.encode()
}

/// An auditor that has seen a login, a stream and the same stream once more.
fn auditor() -> Auditor {
    let mut auditor = Auditor::new(setting());
    let ops = [
        (Operation::Register, register()),
        (Operation::CreateStream, create("one")),
        (Operation::CreateStream, create("one")),
    ];
    for (op, (operation, body)) in (1..).zip(ops) {
        let verdict = auditor.on_committed(0, &prepare(op, operation), &body);
        assert_eq!(verdict, Ok(()));
    }
    auditor
}

fn reply(op: u64, body: &[u8]) -> Verdict {
    let header = ReplyHeader {
        size: 0,
        cluster: 0,
        view: View(0),
        replica: ReplicaIndex(1),
        request_checksum: 0,
        client: CLIENT,
        op,
        commit: op,
        timestamp: 0,
        request: op - 1,
        operation: Operation::CreateStream,
        status: ErrorCode::OK,
    };
    auditor().on_reply(5, PLACE, &header, body)
}

fn record(id: u32, created_at: u64) -> Vec<u8> {
    let record = StreamRecord {
        id,
        created_at,
        topics_count: 0,
        size_bytes: 0,
        messages_count: 0,
        name: name("one"),
        options: Prefixed(Options::default()),
    };
    encode_result(Ok(&record.encode()))
}

#[test]
fn what_an_op_came_to_is_what_its_client_must_be_told() {
    assert_eq!(reply(2, &record(0, 1_002)), Ok(()));
    assert!(reply(2, &record(1, 1_002)).is_err(), "the lowest id is 0");
    assert!(reply(2, &record(0, 1_003)).is_err(), "it is older");
    assert!(
        reply(2, &encode_result(Ok(b""))).is_err(),
        "a record is due"
    );
    let exists = rejection(ErrorCode::STREAM_NAME_ALREADY_EXISTS);
    assert!(reply(2, &exists).is_err(), "it has been done");
    assert_eq!(reply(3, &exists), Ok(()));
    let other = rejection(ErrorCode::TOO_MANY_STREAMS);
    assert!(reply(3, &other).is_err(), "that is not why");
    assert!(reply(3, &record(1, 1_003)).is_err(), "the name is taken");
    assert!(reply(4, &exists).is_err(), "there is no such op");
}

#[test]
fn an_op_out_of_turn_is_seen() {
    let mut auditor = auditor();
    let late = prepare(5, Operation::Noop);
    assert!(auditor.on_committed(0, &late, &[]).is_err());
}

#[test]
fn a_deleted_user_or_another_password_lets_nobody_in() {
    let state = State::new("root", setting().segments);
    let password = |since| Credential::Password { since };
    assert_eq!(state.admit(0, &password(0), 1), Ok(()));
    let wrong = Err(ErrorCode::INVALID_CREDENTIALS);
    assert_eq!(state.admit(0, &password(4), 1), wrong);
    assert_eq!(state.admit(3, &password(0), 1), wrong);
    let token = Credential::Token(vec![1; 32]);
    let unknown = Err(ErrorCode::INVALID_PERSONAL_ACCESS_TOKEN);
    assert_eq!(state.admit(0, &token, 1), unknown);
}
