//! A large history that is linearizable, to see what its search costs.

use base::{Domain, Prng};
use wire::PollingStrategy;

use super::{
    Answer, History,
    models::{Log, LogCall},
};
use crate::{
    check::linear::{Message, Target},
    wgl::{self, Operation},
    workload::Call,
};

const TARGET: Target = Target {
    topic: 1,
    partition: 0,
};

enum Event {
    Send { payloads: Vec<u64> },
    Sent { base_offset: u64 },
    Poll,
    Polled { head: u64, message: Message },
}

/// A partition's history of so many calls, sixteen at a time: sends, of which one in 25 is never
/// answered and may or may not have had its effect, and polls of the last message.
pub(super) fn history(seed: u64, calls: usize) -> History {
    const REACH: u64 = 80;
    let mut prng = Prng::new(seed, Domain::Workload, 0);
    let (mut length, mut last, mut payload) = (0, 0, 0);
    let mut events = Vec::new();
    for (client, effect) in (0..calls).zip((REACH..).step_by(10)) {
        let start = effect - prng.below(REACH);
        let end = effect + prng.below(REACH);
        if length > 0 && prng.chance(4, 10) {
            let offset = length - 1;
            let message = Message {
                offset,
                payload: last,
            };
            let head = offset;
            events.push((start, client, Event::Poll));
            events.push((end, client, Event::Polled { head, message }));
            continue;
        }
        let count = prng.between(1, 5);
        let payloads: Vec<u64> = (payload..payload + count).collect();
        payload += count;
        events.push((start, client, Event::Send { payloads }));
        let answered = !prng.chance(1, 25);
        if answered || prng.chance(1, 2) {
            let base_offset = length;
            length += count;
            last = payload - 1;
            if answered {
                events.push((end, client, Event::Sent { base_offset }));
            }
        }
    }
    events.sort_by_key(|(time, ..)| *time);
    let mut history = History::default();
    for (time, client, event) in events {
        tell(&mut history, time, client, event);
    }
    history
}

fn tell(history: &mut History, time: u64, client: usize, event: Event) {
    let target = TARGET;
    match event {
        Event::Send { payloads } => {
            history.on_call(time, client, &Call::Send { target, payloads });
        }
        Event::Sent { base_offset } => {
            history.on_answer(time, client, Answer::Sent { base_offset });
        }
        Event::Poll => {
            let poll = Call::Poll {
                target,
                strategy: PollingStrategy::Last,
                count: 1,
                consumer: 1,
                commits: false,
            };
            history.on_call(time, client, &poll);
        }
        Event::Polled { head, message } => {
            let messages = &[message];
            history.on_answer(time, client, Answer::Polled { head, messages });
        }
    }
}

/// The calls about the log in such a history, every read taken for a fresh one.
pub(super) fn fresh(history: &History) -> Vec<Operation<LogCall>> {
    let entries: Vec<_> = history.entries.iter().collect();
    let calls = history.log_calls(&entries).expect("batches stand together");
    let fresh = |call: Operation<LogCall>| match call.call {
        LogCall::LookBack { length } => Operation {
            call: LogCall::Look { length },
            ..call
        },
        _ => call,
    };
    calls.calls.into_iter().map(fresh).collect()
}

/// The verdict on a history of so many calls; for reports.
pub(crate) fn measure(calls: usize) -> wgl::Verdict {
    let history = history(1, calls);
    wgl::search(&Log, &fresh(&history), 10 * calls)
}
