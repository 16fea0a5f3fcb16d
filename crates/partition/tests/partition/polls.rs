//! Polls against a naive model: a list of committed messages, walked one by one.

use base::{Bytes, Offset, Timestamp};
use partition::{Limits, Poll, PollPlan, PollStart, Polled, Progress};
use proptest::prelude::*;
use wire::{
    BatchError, Codec, HEADER_SIZE, Operation, PollingStrategy,
    batch::{BATCH_HEADER_SIZE, frames, split},
    replica::PrepareHeader,
    reply::PollHead,
};

use crate::support::{Log, SERVER, batch, single, store};

/// A message as a consumer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Message {
    offset: u64,
    timestamp: u64,
    payload: Vec<u8>,
}

fn poll(strategy: PollingStrategy, count: u32) -> Poll {
    Poll {
        consumer: single(1),
        strategy,
        count,
        bytes_max: 1 << 20,
    }
}

/// Serves a poll as a shard does, but with the whole log at once.
fn serve(log: &Log, poll: &Poll) -> Polled {
    match log.state.plan_poll(poll) {
        PollPlan::Empty(polled) => polled,
        PollPlan::Read(mut reply) => {
            for prepare in &log.prepares {
                reply.push(prepare).expect("the log holds batches");
            }
            assert_eq!(
                reply.push(&log.prepares[0]),
                Ok(Progress::Done),
                "planned to be served"
            );
            reply.finish()
        }
    }
}

/// Reads a reply as a client does, and checks its head.
fn read(log: &Log, polled: &Polled) -> Vec<Message> {
    let head = PollHead::decode(&polled.body[0]).expect("a head");
    assert_eq!(head.partition_id, 3);
    assert_eq!(head.current_offset, log.state.current_offset().0);
    let body: Vec<u8> = polled.body[1..]
        .iter()
        .flat_map(|piece| piece.iter().copied())
        .collect();
    let mut messages = Vec::new();
    for record in split(&body) {
        let (header, frames) = frames(record.expect("whole batches")).expect("a batch");
        let before = messages.len();
        for frame in frames {
            let frame = frame.expect("frames tile the batch");
            assert!(frame.is_intact());
            messages.push(Message {
                offset: header.base_offset + u64::from(frame.offset_delta),
                timestamp: header.base_timestamp,
                payload: frame.payload().to_vec(),
            });
        }
        assert_eq!(messages.len() - before, header.message_count as usize);
        assert_eq!(header.partition_id, 3);
    }
    assert_eq!(messages.len(), head.count as usize);
    assert_eq!(polled.count, head.count);
    assert_eq!(
        polled.last_offset.map(|o| o.0),
        messages.last().map(|m| m.offset)
    );
    messages
}

/// Batches of 2, 1 and 3 messages at times 1,000, 1,010 and 1,020, a Noop between them, and an
/// uncommitted fourth batch.
fn sample() -> Log {
    let mut log = Log::new(Limits::default());
    log.send(&[b"a", b"bb"]);
    log.realtime = Timestamp(1_010);
    log.run((SERVER, 0), Operation::Noop, &[]);
    log.send(&[b"ccc"]);
    log.realtime = Timestamp(1_020);
    log.send(&[b"d", b"e", b"f"]);
    log.realtime = Timestamp(1_030);
    log.append(
        (SERVER, 0),
        Operation::SendMessages,
        &batch(&[b"uncommitted"]),
    );
    log
}

fn offsets(log: &Log, strategy: PollingStrategy, count: u32) -> Vec<u64> {
    let polled = serve(log, &poll(strategy, count));
    read(log, &polled)
        .iter()
        .map(|message| message.offset)
        .collect()
}

#[test]
fn each_strategy_starts_where_it_says() {
    use PollingStrategy::{First, Last, Next, Offset, Timestamp};
    let mut log = sample();
    let cases: &[(PollingStrategy, u32, &[u64])] = &[
        (Offset(0), 10, &[0, 1, 2, 3, 4, 5]),
        (Offset(1), 3, &[1, 2, 3]),
        (Offset(5), 10, &[5]),
        (Offset(6), 10, &[]),
        (Offset(u64::MAX), 10, &[]),
        (Offset(0), 0, &[]),
        (Timestamp(0), 2, &[0, 1]),
        (Timestamp(1_000), 1, &[0]),
        (Timestamp(1_001), 1, &[2]),
        (Timestamp(1_010), 2, &[2, 3]),
        (Timestamp(1_020), 10, &[3, 4, 5]),
        (Timestamp(1_021), 10, &[]),
        (First, 1, &[0]),
        (Last, 0, &[]),
        (Last, 1, &[5]),
        (Last, 4, &[2, 3, 4, 5]),
        (Last, 100, &[0, 1, 2, 3, 4, 5]),
        (Next, 2, &[0, 1]),
    ];
    for (strategy, count, expected) in cases {
        assert_eq!(
            offsets(&log, *strategy, *count),
            *expected,
            "{strategy:?} {count}"
        );
    }
    while log.state.committed() != log.state.appended() {
        log.commit();
    }
    log.run(
        (SERVER, 0),
        Operation::StoreConsumerOffset,
        &store(single(1), 1),
    );
    assert_eq!(offsets(&log, Next, 2), [2, 3]);
    log.run(
        (SERVER, 0),
        Operation::StoreConsumerOffset,
        &store(single(1), 6),
    );
    assert_eq!(offsets(&log, Next, 2), [] as [u64; 0]);
}

#[test]
fn an_empty_partition_answers_with_a_head_alone() {
    let mut log = Log::new(Limits::default());
    log.append(
        (SERVER, 0),
        Operation::SendMessages,
        &batch(&[b"uncommitted"]),
    );
    for strategy in [
        PollingStrategy::Offset(0),
        PollingStrategy::Timestamp(0),
        PollingStrategy::First,
        PollingStrategy::Last,
        PollingStrategy::Next,
    ] {
        let polled = serve(&log, &poll(strategy, 10));
        assert_eq!(polled.body.len(), 1);
        assert_eq!(
            *polled.body[0],
            [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(polled.last_offset, None);
    }
}

#[test]
fn whole_records_and_parts_are_served_without_a_copy() {
    let log = sample();
    let within = |piece: &Bytes, prepare: &Bytes| prepare.as_ptr_range().contains(&piece.as_ptr());
    let polled = serve(&log, &poll(PollingStrategy::Offset(1), 3));
    // Head; header and frames of the first record's second message; the second record as it
    // stands; header and frames of the third record's first message.
    let sizes: Vec<_> = polled.body.iter().map(|piece| piece.len()).collect();
    assert_eq!(sizes, [16, 256, 48 + 2, 256 + 48 + 3, 256, 48 + 1]);
    assert!(within(&polled.body[2], &log.prepares[0]));
    assert!(within(&polled.body[3], &log.prepares[2]));
    assert!(within(&polled.body[5], &log.prepares[3]));
    assert_eq!(polled.body[3][..], log.prepares[2][HEADER_SIZE..]);
}

#[test]
fn a_reply_says_whether_and_where_to_read_more() {
    let log = sample();
    let PollPlan::Read(mut reply) = log.state.plan_poll(&poll(PollingStrategy::Timestamp(1), 4))
    else {
        panic!("there are messages");
    };
    assert_eq!(reply.start(), PollStart::Timestamp(Timestamp(1)));
    assert_eq!(reply.up_to(), log.state.committed().op);
    assert_eq!(reply.push(&log.prepares[0]), Ok(Progress::More));
    assert_eq!(reply.start(), PollStart::Offset(Offset(2)));
    // The same again brings nothing.
    assert_eq!(reply.push(&log.prepares[0]), Ok(Progress::More));
    assert_eq!(reply.push(&log.prepares[1]), Ok(Progress::More));
    assert_eq!(reply.push(&log.prepares[2]), Ok(Progress::More));
    assert_eq!(reply.push(&log.prepares[3]), Ok(Progress::Done));
    assert_eq!(reply.finish().count, 4);
}

#[test]
fn what_is_committed_after_the_plan_is_not_served() {
    let mut log = sample();
    let PollPlan::Read(mut reply) = log.state.plan_poll(&poll(PollingStrategy::First, 100)) else {
        panic!("there are messages");
    };
    log.commit();
    for prepare in &log.prepares {
        reply.push(prepare).expect("batches");
    }
    let polled = reply.finish();
    assert_eq!((polled.count, polled.last_offset), (6, Some(Offset(5))));
}

#[test]
fn a_record_without_a_batch_is_an_error_and_not_no_messages() {
    let log = sample();
    let PollPlan::Read(mut reply) = log.state.plan_poll(&poll(PollingStrategy::First, 1)) else {
        panic!("there are messages");
    };
    let mut frame = vec![0; HEADER_SIZE + 10];
    let header = PrepareHeader::decode(&log.prepares[0]).expect("a prepare");
    header.seal_into(&mut frame);
    assert_eq!(
        reply.push(&Bytes::copy_of(&frame)),
        Err(BatchError::Truncated)
    );
    assert_eq!(
        reply.push(&Bytes::copy_of(&frame[..100])),
        Err(BatchError::Truncated)
    );
}

#[test]
fn the_first_message_is_served_whatever_its_size() {
    let log = sample();
    for bytes_max in [0, 16, 16 + 256 + 48, 16 + 256 + 48 + 1] {
        let poll = Poll {
            bytes_max,
            ..poll(PollingStrategy::First, 10)
        };
        let polled = serve(&log, &poll);
        assert_eq!(polled.count, 1, "{bytes_max}");
    }
}

/// What a poll must return, by the plainest reading of the rules.
fn expected(
    messages: &[Message],
    records: &[usize],
    stored: Option<u64>,
    poll: &Poll,
) -> Vec<Message> {
    let last = messages.len() as u64;
    let start = match poll.strategy {
        PollingStrategy::Offset(offset) => offset,
        PollingStrategy::Timestamp(timestamp) => messages
            .iter()
            .find(|message| message.timestamp >= timestamp)
            .map_or(last, |message| message.offset),
        PollingStrategy::First => 0,
        PollingStrategy::Last => last.saturating_sub(u64::from(poll.count)),
        PollingStrategy::Next => stored.map_or(0, |stored| stored + 1),
    };
    let mut size = 16;
    let mut served = Vec::new();
    let mut record = None;
    for message in messages.iter().filter(|message| message.offset >= start) {
        let its_record = records[usize::try_from(message.offset).expect("small")];
        let header = if record == Some(its_record) {
            0
        } else {
            BATCH_HEADER_SIZE
        };
        size += header + 48 + message.payload.len();
        let fits = served.is_empty() || size <= poll.bytes_max;
        if served.len() == poll.count as usize || !fits {
            break;
        }
        record = Some(its_record);
        served.push(message.clone());
    }
    served
}

fn strategy() -> impl Strategy<Value = PollingStrategy> {
    prop_oneof![
        (0..40_u64).prop_map(PollingStrategy::Offset),
        (990..1_100_u64).prop_map(PollingStrategy::Timestamp),
        Just(PollingStrategy::First),
        Just(PollingStrategy::Last),
        Just(PollingStrategy::Next),
    ]
}

/// Sizes of the payloads of one batch.
fn sizes() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(1..200_usize, 1..6)
}

proptest! {
    #[test]
    fn polls_return_what_the_model_returns(
        batches in proptest::collection::vec((0..20_u64, sizes()), 0..12),
        uncommitted in 0..3_usize,
        stored in proptest::option::of(0..30_u64),
        polls in proptest::collection::vec((strategy(), 0..30_u32, 0..4_000_usize), 1..8),
    ) {
        let mut log = Log::new(Limits::default());
        let (mut messages, mut records) = (Vec::new(), Vec::new());
        let committed = batches.len().saturating_sub(uncommitted);
        for (index, (pause, sizes)) in batches.iter().enumerate() {
            log.realtime = Timestamp(log.realtime.0 + pause);
            let payloads: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![7; size]).collect();
            let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
            if index % 3 == 1 {
                log.append((SERVER, 0), Operation::Noop, &[]);
            }
            let header = log.append((SERVER, 0), Operation::SendMessages, &batch(&payloads));
            if index < committed {
                while log.state.committed().op < header.op {
                    log.commit();
                }
                for payload in payloads {
                    let offset = messages.len() as u64;
                    let payload = payload.to_vec();
                    messages.push(Message { offset, timestamp: header.timestamp.0, payload });
                    records.push(index);
                }
            }
        }
        let stored = stored.filter(|&stored| stored < messages.len() as u64);
        if let (Some(stored), 0) = (stored, uncommitted) {
            log.run((SERVER, 0), Operation::StoreConsumerOffset, &store(single(1), stored));
        }
        let stored = stored.filter(|_| uncommitted == 0);
        for (strategy, count, bytes_max) in polls {
            let poll = Poll { consumer: single(1), strategy, count, bytes_max };
            let polled = match log.state.plan_poll(&poll) {
                PollPlan::Empty(polled) => polled,
                PollPlan::Read(mut reply) => {
                    let mut progress = Progress::More;
                    for prepare in &log.prepares {
                        progress = reply.push(prepare).expect("batches");
                    }
                    prop_assert_eq!(progress, Progress::Done);
                    reply.finish()
                }
            };
            let found = read(&log, &polled);
            let wanted = expected(&messages, &records, stored, &poll);
            prop_assert_eq!(found, wanted, "{:?}", poll);
            let size: usize = polled.body.iter().map(|piece| piece.len()).sum();
            prop_assert!(size <= bytes_max || polled.count <= 1);
        }
    }
}
