//! Hand-made histories of two clients.

use std::time::{Duration, Instant};

use super::*;

const TARGET: Target = Target {
    topic: 1,
    partition: 0,
};
const OTHER: Target = Target {
    topic: 2,
    partition: 0,
};

#[derive(Default)]
struct Script {
    history: History,
    time: u64,
}

impl Script {
    fn call(&mut self, client: usize, call: &Call) {
        self.time += 1;
        self.history.on_call(self.time, client, call);
    }

    fn answer(&mut self, client: usize, answer: Answer<'_>) {
        self.time += 1;
        self.history.on_answer(self.time, client, answer);
    }

    fn send(&mut self, client: usize, target: Target, payloads: &[u64]) {
        let payloads = payloads.to_vec();
        self.call(client, &Call::Send { target, payloads });
    }

    fn sent(&mut self, client: usize, base_offset: u64) {
        self.answer(client, Answer::Sent { base_offset });
    }

    fn poll(&mut self, client: usize, strategy: PollingStrategy, commits: bool) {
        let poll = Call::Poll {
            target: TARGET,
            strategy,
            count: 9,
            consumer: 7,
            commits,
        };
        self.call(client, &poll);
    }

    fn polled(&mut self, client: usize, head: u64, messages: &[(u64, u64)]) {
        let message = |&(offset, payload): &(u64, u64)| Message { offset, payload };
        let messages: Vec<_> = messages.iter().map(message).collect();
        let messages = &messages[..];
        self.answer(client, Answer::Polled { head, messages });
    }

    fn store(&mut self, client: usize, offset: u64) {
        let (target, consumer) = (TARGET, 7);
        self.call(
            client,
            &Call::StoreOffset {
                target,
                consumer,
                offset,
            },
        );
    }

    fn get(&mut self, client: usize, stored: Option<(u64, u64)>) {
        let (target, consumer) = (TARGET, 7);
        self.call(client, &Call::GetOffset { target, consumer });
        self.answer(client, Answer::Offset { stored });
    }

    fn verdict(&self) -> Result<Searched, Failure> {
        self.history.check(self.time)
    }

    #[track_caller]
    fn passes(&self) {
        let verdict = self.verdict();
        assert!(verdict.is_ok_and(|searched| searched.undecided == 0));
    }

    #[track_caller]
    fn fails(&self) {
        assert!(self.verdict().is_err());
    }
}

/// One batch of three by client 0.
fn three() -> Script {
    let mut script = Script::default();
    script.send(0, TARGET, &[10, 11, 12]);
    script.sent(0, 0);
    script
}

#[test]
fn what_was_sent_is_read() {
    let mut script = three();
    script.send(0, TARGET, &[13]);
    script.send(1, TARGET, &[14]);
    script.sent(1, 3);
    script.sent(0, 4);
    script.poll(1, PollingStrategy::First, false);
    script.polled(1, 4, &[(0, 10), (1, 11), (2, 12), (3, 14), (4, 13)]);
    script.passes();
}

#[test]
fn an_offset_shows_one_message_and_a_message_stands_once() {
    let mut script = three();
    script.poll(1, PollingStrategy::First, false);
    script.polled(1, 2, &[(0, 10), (1, 99)]);
    script.fails();
    let mut script = three();
    script.send(1, TARGET, &[13]);
    script.sent(1, 3);
    script.poll(1, PollingStrategy::Last, false);
    script.polled(1, 4, &[(4, 13)]);
    script.fails();
    let mut script = three();
    script.send(1, OTHER, &[10]);
    script.sent(1, 0);
    script.fails();
}

#[test]
fn offsets_follow_the_real_time_of_sends() {
    let mut script = Script::default();
    script.send(0, TARGET, &[10]);
    script.sent(0, 1);
    script.send(1, TARGET, &[11]);
    script.sent(1, 0);
    script.fails();
    // Together they may come in either order.
    let mut script = Script::default();
    script.send(0, TARGET, &[10]);
    script.send(1, TARGET, &[11]);
    script.sent(0, 1);
    script.sent(1, 0);
    script.passes();
}

#[test]
fn an_unanswered_send_may_stand_in_the_log_or_not_and_late() {
    let mut script = three();
    script.send(1, TARGET, &[20, 21]);
    script.answer(1, Answer::Unknown);
    script.send(0, TARGET, &[13]);
    script.sent(0, 3);
    script.passes();
    script.send(0, TARGET, &[14]);
    script.sent(0, 6);
    script.passes();
    script.poll(0, PollingStrategy::Offset(5), false);
    script.polled(0, 6, &[(5, 21), (6, 14)]);
    script.passes();
    // Nothing was ever sent that could fill such a gap.
    script.send(0, TARGET, &[15]);
    script.sent(0, 8);
    script.fails();
}

#[test]
fn a_call_whose_client_died_may_have_had_its_effect() {
    let mut script = three();
    script.send(1, TARGET, &[20]);
    script.send(1, TARGET, &[21]);
    script.sent(1, 4);
    script.passes();
    let mut refused = three();
    refused.send(1, TARGET, &[20]);
    let nothing_stored = false;
    refused.answer(1, Answer::Refused { nothing_stored });
    refused.send(1, TARGET, &[21]);
    refused.sent(1, 4);
    refused.fails();
}

#[test]
fn nothing_is_read_before_it_was_sent() {
    let mut script = three();
    script.poll(1, PollingStrategy::Last, false);
    script.polled(1, 3, &[(3, 13)]);
    script.fails();
}

#[test]
fn a_batch_stands_together() {
    let mut script = three();
    script.send(1, TARGET, &[20, 21]);
    script.answer(1, Answer::Unknown);
    script.poll(0, PollingStrategy::Offset(3), false);
    script.polled(0, 4, &[(3, 20), (4, 21)]);
    script.passes();
    let mut script = three();
    script.send(1, TARGET, &[20, 21]);
    script.answer(1, Answer::Unknown);
    script.poll(0, PollingStrategy::Offset(3), false);
    script.polled(0, 4, &[(3, 21), (4, 20)]);
    script.fails();
}

#[test]
fn a_partition_made_again_is_left_to_the_certificate() {
    let mut script = three();
    let (topic, count) = (TARGET.topic, 1);
    script.call(1, &Call::DeletePartitions { topic, count });
    script.answer(1, Answer::Done);
    script.passes();
    script.call(1, &Call::CreatePartitions { topic, count });
    script.answer(1, Answer::Done);
    script.send(0, TARGET, &[13]);
    script.sent(0, 0);
    script.passes();
    assert_eq!(script.verdict(), Ok(Searched::default()));
}

#[test]
fn a_delete_that_finds_nothing_follows_no_store() {
    let (target, consumer) = (TARGET, 7);
    let mut script = three();
    script.store(0, 1);
    script.answer(0, Answer::Done);
    script.call(1, &Call::DeleteOffset { target, consumer });
    script.answer(1, Answer::Done);
    script.call(1, &Call::DeleteOffset { target, consumer });
    let nothing_stored = true;
    script.answer(1, Answer::Refused { nothing_stored });
    script.passes();
    script.store(0, 1);
    script.answer(0, Answer::Done);
    script.call(1, &Call::DeleteOffset { target, consumer });
    script.answer(1, Answer::Refused { nothing_stored });
    script.fails();
}

#[test]
fn reads_are_fresh_if_they_must_be() {
    // Sent and acknowledged, and then not seen.
    let mut stale = three();
    stale.send(0, TARGET, &[13]);
    stale.sent(0, 3);
    stale.poll(1, PollingStrategy::Last, false);
    stale.polled(1, 2, &[(2, 12)]);
    assert_eq!(stale.verdict().is_err(), READS_ARE_FRESH);
    let mut stale = three();
    for offset in [0, 2] {
        stale.store(0, offset);
        stale.answer(0, Answer::Done);
    }
    stale.get(1, Some((2, 2)));
    stale.passes();
    stale.get(1, Some((0, 2)));
    assert_eq!(stale.verdict().is_err(), READS_ARE_FRESH);
}

#[test]
fn polls_of_what_comes_next_follow_the_stored_offset() {
    let mut script = three();
    script.poll(0, PollingStrategy::Next, true);
    script.polled(0, 2, &[(0, 10), (1, 11)]);
    script.get(1, Some((1, 2)));
    script.poll(0, PollingStrategy::Next, true);
    script.polled(0, 2, &[(2, 12)]);
    script.poll(0, PollingStrategy::Next, true);
    script.polled(0, 2, &[]);
    script.passes();
    let mut skips = three();
    skips.poll(0, PollingStrategy::Next, true);
    skips.polled(0, 2, &[(0, 10)]);
    skips.poll(0, PollingStrategy::Next, true);
    skips.polled(0, 2, &[(2, 12)]);
    assert_eq!(skips.verdict().is_err(), READS_ARE_FRESH);
    // The first attempt may have stored more than the second returns.
    let mut repeated = three();
    repeated.poll(0, PollingStrategy::Next, true);
    repeated.history.on_repetitions(0, 1);
    repeated.polled(0, 2, &[(0, 10)]);
    repeated.poll(0, PollingStrategy::Next, true);
    repeated.history.on_repetitions(0, 1);
    repeated.polled(0, 2, &[(2, 12)]);
    repeated.passes();
}

/// Method: a generated history that has an order, then the same with one look that has none.
#[test]
fn a_history_of_ten_thousand_calls_is_searched_within_a_second() {
    let started = Instant::now();
    let history = synthetic::history(1, 10_000);
    let searched = history.check(0).expect("it has an order");
    let mut calls = synthetic::fresh(&history);
    let verdict = wgl::search(&Log, &calls, CONFIGURATIONS_MAX);
    let took = started.elapsed();
    println!("a history of {} calls took {took:?}", calls.len());
    assert_eq!(searched.undecided, 0);
    assert_eq!(verdict, wgl::Verdict::Linearizable);
    let bound = if cfg!(debug_assertions) { 10 } else { 1 };
    assert!(took < Duration::from_secs(bound), "{took:?}");
    let is_look = |call: &Operation<LogCall>| matches!(call.call, LogCall::Look { .. });
    let look = calls.iter().rposition(is_look).expect("there are many");
    calls[look].call = LogCall::Look { length: 50 };
    let verdict = wgl::search(&Log, &calls, CONFIGURATIONS_MAX);
    assert_eq!(verdict, wgl::Verdict::Violation { at: look });
}
