//! Retries: answered from the table, refused while in flight, never appended twice.

use base::{Bytes, ClientId, Offset, Op};
use partition::{Decision, Limits};
use wire::{HEADER_SIZE, Operation};

use crate::support::{Log, batch, confirmed, header_of, single, store};

const CLIENT: ClientId = ClientId(7);

fn send(log: &mut Log, client: u128, request: u64) -> partition::Reply {
    log.run(
        (ClientId(client), request),
        Operation::SendMessages,
        &batch(&[b"x", b"y"]),
    )
}

#[test]
fn a_retry_gets_the_answer_of_the_first_time() {
    let mut log = Log::new(Limits::default());
    assert_eq!(confirmed(&send(&mut log, 1, 4)), Offset(0));
    let reply = send(&mut log, 7, 4);
    assert_eq!((confirmed(&reply), reply.op), (Offset(2), Op(2)));
    assert_eq!(confirmed(&send(&mut log, 1, 5)), Offset(4));
    assert_eq!(log.state.check_request(CLIENT, 4), Decision::Replay(reply));
    assert_eq!(log.state.check_request(CLIENT, 3), Decision::AlreadyApplied);
    assert_eq!(log.state.check_request(CLIENT, 5), Decision::New);
    assert_eq!(log.state.check_request(ClientId(0), 0), Decision::New);
}

#[test]
fn a_request_in_the_log_is_in_flight_until_its_commit() {
    let mut log = Log::new(Limits::default());
    log.append((CLIENT, 4), Operation::SendMessages, &batch(&[b"x"]));
    assert_eq!(log.state.check_request(CLIENT, 4), Decision::InFlight);
    assert_eq!(
        log.state.check_request(CLIENT, 5),
        Decision::New,
        "clients may pipeline"
    );
    let reply = log.commit();
    assert_eq!(log.state.check_request(CLIENT, 4), Decision::Replay(reply));
}

#[test]
fn a_request_that_was_cut_off_is_new_again() {
    let mut log = Log::new(Limits::default());
    log.append((CLIENT, 4), Operation::SendMessages, &batch(&[b"x"]));
    log.append((CLIENT, 5), Operation::SendMessages, &batch(&[b"y", b"z"]));
    log.append((ClientId(9), 1), Operation::SendMessages, &batch(&[b"w"]));
    let kept: Vec<Bytes> = log.prepares[..1].to_vec();
    let kept = kept
        .iter()
        .map(|prepare| (header_of(prepare), &prepare[HEADER_SIZE..]));
    log.state.reset_appended(kept);
    log.prepares.truncate(1);
    assert_eq!(log.state.check_request(CLIENT, 4), Decision::InFlight);
    assert_eq!(log.state.check_request(CLIENT, 5), Decision::New);
    assert_eq!(log.state.check_request(ClientId(9), 1), Decision::New);
    assert_eq!(
        (log.state.appended().op, log.state.appended().next_offset),
        (Op(1), Offset(1))
    );
    // The offset goes to whoever comes next.
    let reply = log.run((ClientId(9), 1), Operation::SendMessages, &batch(&[b"w"]));
    assert_eq!(confirmed(&reply), Offset(1));
}

#[test]
fn offset_requests_are_remembered_too_and_executed_once() {
    let mut log = Log::new(Limits::default());
    send(&mut log, 1, 1);
    let operation = Operation::StoreConsumerOffset;
    let first = log.run((CLIENT, 3), operation, &store(single(1), 1));
    log.run((CLIENT, 4), operation, &store(single(1), 0));
    // Both entered the log a second time: the newest is answered, the older one refused.
    let again = log.run((CLIENT, 4), operation, &store(single(1), 1));
    assert_eq!((again.op, again.result), (Op(3), Ok(vec![])));
    let older = log.run((CLIENT, 3), operation, &store(single(1), 1));
    assert_eq!(older.result.map_err(|code| code.0), Err(59));
    assert!(first.result.is_ok());
    assert_eq!(log.state.stored_offset(single(1)), Some(Offset(0)));
}

#[test]
fn producers_at_the_limit_and_one_beyond() {
    let mut log = Log::new(Limits {
        producers_max: 2,
        ..Limits::default()
    });
    let replies = [send(&mut log, 1, 1), send(&mut log, 2, 1)];
    let check = |log: &Log, client| log.state.check_request(ClientId(client), 1);
    assert_eq!(check(&log, 1), Decision::Replay(replies[0].clone()));
    assert_eq!(check(&log, 2), Decision::Replay(replies[1].clone()));
    let third = send(&mut log, 3, 1);
    assert_eq!(
        check(&log, 1),
        Decision::New,
        "forgotten: its request was the oldest op"
    );
    assert_eq!(check(&log, 2), Decision::Replay(replies[1].clone()));
    assert_eq!(check(&log, 3), Decision::Replay(third));
}

#[test]
#[should_panic(expected = "recorded once")]
fn messages_in_the_log_twice_are_a_bug_of_the_primary() {
    let mut log = Log::new(Limits::default());
    send(&mut log, 1, 1);
    send(&mut log, 1, 1);
}
