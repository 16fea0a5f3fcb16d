//! Trims and purges: what goes, what consumers hold up, and that the counters are the sums of what
//! is left.

use base::{ClientId, Offset, Op, Timestamp};
use partition::{Limits, PartitionState, Patience, Retention, Trim, purge_body};
use wire::{BatchHeader, HEADER_SIZE, Operation};

use crate::support::{Log, SERVER, batch, header_of, single, store};

/// A segment holds one batch of [`send`], for it is full with the first.
const LIMITS: Limits = Limits {
    producers_max: 8,
    consumers_max: 8,
    segment_size: 600,
};

const ENDLESS: Retention = Retention {
    age_max: None,
    size_max: None,
    patience: Patience::Endless,
};

/// Sends two messages, as one op that fills a segment.
fn send(log: &mut Log) {
    log.send(&[b"a message", b"another"]);
}

fn trim(log: &mut Log, trim: Trim) {
    let reply = log.run((SERVER, 0), Operation::TrimLog, &trim.body());
    assert_eq!(reply.result, Ok(Vec::new()));
}

fn purge(log: &mut Log, generation: u64) {
    let body = purge_body(generation);
    let reply = log.run((SERVER, 0), Operation::PurgePartition, &body);
    assert_eq!(reply.result, Ok(Vec::new()));
}

fn read(log: &mut Log, consumer: u32, offset: u64) {
    let body = store(single(consumer), offset);
    let reply = log.run((SERVER, 0), Operation::StoreConsumerOffset, &body);
    assert_eq!(reply.result, Ok(Vec::new()));
}

fn filled(batches: usize) -> Log {
    let mut log = Log::new(LIMITS);
    for at in 1..=batches as u64 {
        log.realtime = Timestamp(at * 1_000);
        send(&mut log);
    }
    log
}

/// Bytes and messages of what is retained, counted in the log itself.
fn recounted(log: &Log) -> (u64, u64) {
    let first = log.state.first_op();
    let committed = log.state.committed().op;
    let retained = log.prepares.iter().filter(|prepare| {
        let header = header_of(prepare);
        let within = header.op >= first && header.op <= committed;
        within && header.operation == Operation::SendMessages
    });
    retained.fold((0, 0), |(size, count), prepare| {
        let batch = BatchHeader::decode(&prepare[HEADER_SIZE..]).expect("a batch");
        (
            size + batch.batch_length,
            count + u64::from(batch.message_count),
        )
    })
}

fn assert_sums(log: &Log) {
    let state = &log.state;
    let counted = (state.size_bytes(), state.messages_count());
    assert_eq!(counted, recounted(log));
    let restored = state.restored(&state.snapshot()).expect("just taken");
    assert_eq!(restored.digest(), state.digest());
    assert_eq!(restored.first_offset(), state.first_offset());
    assert_eq!(restored.segments_count(), state.segments_count());
}

#[test]
fn the_oldest_sealed_segments_go_and_the_active_one_never() {
    let mut log = filled(5);
    assert_eq!(log.state.segments_count(), 5);
    assert_eq!(log.state.oldest_segments(0), None);
    let two = log.state.oldest_segments(2).expect("five are there");
    assert_eq!(two.before, Op(3));
    trim(&mut log, two);
    assert_eq!(log.state.first_offset(), Offset(4));
    assert_eq!(
        log.state.segments_count(),
        4,
        "the trim's own op begins one"
    );
    assert_eq!(log.state.messages_count(), 6);
    assert_sums(&log);
    // All that is sealed, and no more, however much is asked for.
    for before in [two.before, Op(u64::MAX)] {
        trim(&mut log, Trim { before, ..two });
        assert_sums(&log);
    }
    assert_eq!(log.state.segments_count(), 1);
    assert_eq!(log.state.current_offset(), Offset(9));
    assert_eq!(log.state.oldest_segments(9), None);
}

#[test]
fn nothing_goes_that_the_slowest_consumer_has_not_read() {
    let mut log = filled(5);
    read(&mut log, 1, 9);
    read(&mut log, 2, 3);
    let trimmed = log.state.oldest_segments(4).expect("two are read by both");
    assert_eq!(trimmed.before, Op(3));
    // The barrier of when it is applied counts, not that of when it was asked for.
    let back = store(single(2), 1);
    log.run((ClientId(9), 1), Operation::StoreConsumerOffset, &back);
    trim(&mut log, trimmed);
    assert_eq!(log.state.first_offset(), Offset(2));
    assert_eq!(log.state.oldest_segments(4), None);
    let body = crate::support::delete(single(2));
    let reply = log.run((SERVER, 0), Operation::DeleteConsumerOffset, &body);
    assert_eq!(reply.result, Ok(Vec::new()));
    let rest = log.state.oldest_segments(4).expect("the slow one is gone");
    trim(&mut log, rest);
    assert_eq!(log.state.first_offset(), Offset(10));
    assert_sums(&log);
}

#[test]
fn what_is_too_old_or_too_much_goes() {
    let mut log = filled(5);
    let old = |age_max| Retention {
        age_max: Some(age_max),
        ..ENDLESS
    };
    let before = |log: &Log, retention: &Retention| {
        let trim = log.state.expired(retention, Timestamp(5_000));
        trim.map(|trim| (trim.before.0, trim.past_consumers))
    };
    assert_eq!(before(&log, &ENDLESS), None);
    // Appended at 1,000, 2,000 and so on; exactly as old is not older.
    assert_eq!(before(&log, &old(4_000)), None);
    assert_eq!(before(&log, &old(3_999)), Some((2, false)));
    assert_eq!(
        before(&log, &old(0)),
        Some((5, false)),
        "the active one stays"
    );
    assert_eq!(log.state.expires_at(4_000), Some(Timestamp(5_001)));
    let batch = log.state.size_bytes() / 5;
    let large = |size_max| Retention {
        size_max: Some(size_max),
        ..ENDLESS
    };
    assert_eq!(before(&log, &large(5 * batch)), None);
    assert_eq!(before(&log, &large(5 * batch - 1)), Some((2, false)));
    assert_eq!(before(&log, &large(2 * batch)), Some((4, false)));
    assert_eq!(before(&log, &large(0)), Some((5, false)));
    let both = Retention {
        age_max: Some(3_999),
        ..large(2 * batch)
    };
    assert_eq!(before(&log, &both), Some((4, false)));
    // A consumer holds it up: for ever, or until it is so many times too old or too much.
    read(&mut log, 1, 1);
    assert_eq!(before(&log, &old(999)), Some((2, false)));
    let limited = |retention: Retention, age_min, factor| Retention {
        patience: Patience::Limited { age_min, factor },
        ..retention
    };
    assert_eq!(before(&log, &limited(old(999), 0, 2)), Some((4, true)));
    assert_eq!(before(&log, &limited(old(999), 3_500, 2)), Some((2, false)));
    assert_eq!(before(&log, &limited(large(batch), 0, 2)), Some((4, true)));
    assert_eq!(
        before(&log, &limited(large(2 * batch), 0, 2)),
        Some((2, false))
    );
    assert!(log.state.is_full(&large(2 * batch)));
    assert!(!log.state.is_full(&large(3 * batch)));
    assert!(!log.state.is_full(&limited(large(batch), 0, 2)));
}

#[test]
fn a_purge_begins_anew_at_offset_0_and_is_done_once() {
    let mut log = filled(3);
    read(&mut log, 1, 2);
    let sent = log.run((ClientId(7), 1), Operation::SendMessages, &batch(&[b"x"]));
    purge(&mut log, 1);
    let state = &log.state;
    assert_eq!((state.messages_count(), state.size_bytes()), (0, 0));
    assert_eq!(state.stored_offset(single(1)), None);
    assert_eq!(state.current_offset(), Offset(0));
    assert_eq!(state.segments_count(), 1);
    send(&mut log);
    assert_eq!(log.state.current_offset(), Offset(1));
    assert_eq!(log.state.first_offset(), Offset(0));
    assert_sums(&log);
    // The same one again, and an earlier one.
    for generation in [1, 0] {
        purge(&mut log, generation);
        assert_eq!(log.state.messages_count(), 2);
        assert_sums(&log);
    }
    // A retry of before gets its first answer, and is not executed again.
    let again = log.state.check_request(ClientId(7), 1);
    assert_eq!(again, partition::Decision::Replay(sent));
    purge(&mut log, 2);
    assert_eq!(log.state.messages_count(), 0);
}

#[test]
fn messages_behind_an_uncommitted_purge_begin_at_offset_0() {
    let mut log = filled(1);
    log.append((SERVER, 0), Operation::PurgePartition, &purge_body(1));
    log.append((SERVER, 0), Operation::SendMessages, &batch(&[b"new"]));
    assert_eq!(log.state.appended().next_offset, Offset(1));
    assert_eq!(log.state.committed().next_offset, Offset(2));
    // It is cut off, and never was.
    log.prepares.truncate(1);
    log.state.reset_appended(core::iter::empty());
    assert_eq!(log.state.appended().next_offset, Offset(2));
    send(&mut log);
    assert_eq!(log.state.current_offset(), Offset(3));
    assert_sums(&log);
}

#[test]
fn a_snapshot_of_another_segment_size_goes_on_by_its_own() {
    let log = filled(3);
    let bytes = log.state.snapshot();
    let (group, ids) = (log.state.group(), log.state.ids());
    let limits = Limits {
        segment_size: 1 << 20,
        ..LIMITS
    };
    let mut other = PartitionState::restore(group, ids, limits, &bytes).expect("whole");
    assert_eq!(other.segments_count(), 3);
    let mut log = Log {
        state: other.clone(),
        ..log
    };
    send(&mut log);
    other = log.state;
    assert_eq!(
        other.segments_count(),
        3,
        "the active one is not full any more"
    );
}

#[test]
fn a_reply_ends_where_what_should_follow_has_been_trimmed() {
    let log = filled(3);
    let poll = partition::Poll {
        consumer: single(1),
        strategy: wire::PollingStrategy::First,
        count: 100,
        bytes_max: 1 << 20,
    };
    let partition::PollPlan::Read(mut reply) = log.state.plan_poll(&poll) else {
        panic!("three batches are there");
    };
    let more = reply.push(&log.prepares[0]).expect("a batch");
    assert_eq!(more, partition::Progress::More);
    // The second went between two reads of the journal.
    let done = reply.push(&log.prepares[2]).expect("a batch");
    assert_eq!(done, partition::Progress::Done);
    let polled = reply.finish();
    assert_eq!((polled.count, polled.last_offset), (2, Some(Offset(1))));
}
