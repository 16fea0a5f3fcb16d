//! Each partition is linearizable as its clients see it: the black-box cross-check of the order
//! certificate. Nothing here knows what the log really holds.
//!
//! Every call of every client about a partition is kept with its window and its answer. At the end
//! a search looks for one order per object (the log, each consumer's offset) that respects the
//! windows and explains all answers; a call of unknown outcome may have had its effect at any
//! later moment, or never.
//!
//! A partition that may have been deleted and made again is left to the certificate: its name
//! then stands for two logs.
//!
//! Source: Herlihy and Wing 1990; the search is [`crate::wgl`].

mod models;
mod synthetic;
mod unseen;

use std::collections::{BTreeMap, BTreeSet};

use wire::PollingStrategy;

use super::{
    Failure, Verdict,
    linear::{Message, Target},
};
use crate::{
    wgl::{self, Model, Operation},
    workload::Call,
};
use models::{Log, LogCall, Offset, OffsetCall};

use unseen::Unseen;

pub(crate) use synthetic::measure;

const CHECK: &str = "history";

/// A read that begins after a write was acknowledged shows it: primaries serve reads under a
/// lease. Without one a read may come from a primary that was replaced without its knowledge.
const READS_ARE_FRESH: bool = true;

/// A search enters at most so many configurations.
const CONFIGURATIONS_MAX: usize = 100_000;
/// Effects of one call that nobody was told of, so many are searched for.
const UNSEEN_MAX: u64 = 4;

/// How a call about a partition was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer<'a> {
    /// It has been done; there is nothing more to tell.
    Done,
    /// A send has been done and this is its first offset.
    Sent { base_offset: u64 },
    /// A poll returns these messages, of a log with this last offset.
    Polled { head: u64, messages: &'a [Message] },
    /// A consumer's stored offset and the last offset of the log, if one is stored.
    Offset { stored: Option<(u64, u64)> },
    /// It has certainly had no effect; for a delete: there was nothing.
    Refused { nothing_stored: bool },
    /// Nobody knows.
    Unknown,
}

#[derive(Clone, Debug)]
enum What {
    Send {
        payloads: Vec<u64>,
        base_offset: Option<u64>,
    },
    Poll {
        strategy: PollingStrategy,
        consumer: u32,
        commits: bool,
        /// Last offset of the log, first and last offset returned.
        seen: Option<(u64, Option<(u64, u64)>)>,
    },
    Store {
        consumer: u32,
        offset: u64,
    },
    Delete {
        consumer: u32,
        found: bool,
    },
    Get {
        consumer: u32,
        /// The stored offset and the last offset of the log.
        seen: Option<Option<(u64, u64)>>,
    },
}

impl What {
    /// What a call is about, if it is about a partition, and which.
    fn of(call: &Call) -> Option<(Target, Self)> {
        match *call {
            Call::Send {
                target,
                ref payloads,
            } => {
                let what = Self::Send {
                    payloads: payloads.clone(),
                    base_offset: None,
                };
                Some((target, what))
            }
            Call::Poll {
                target,
                strategy,
                consumer,
                commits,
                ..
            } => {
                let what = Self::Poll {
                    strategy,
                    consumer,
                    commits,
                    seen: None,
                };
                Some((target, what))
            }
            Call::StoreOffset {
                target,
                consumer,
                offset,
            } => Some((target, Self::Store { consumer, offset })),
            Call::DeleteOffset { target, consumer } => {
                let found = true;
                Some((target, Self::Delete { consumer, found }))
            }
            Call::GetOffset { target, consumer } => {
                let seen = None;
                Some((target, Self::Get { consumer, seen }))
            }
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
struct Entry {
    target: Target,
    what: What,
    start: u64,
    end: Option<u64>,
    /// It was answered by a refusal: it never happened.
    void: bool,
    /// How often the client has sent it again.
    repetitions: u64,
}

#[derive(Clone, Copy, Debug)]
enum Pending {
    Entry(usize),
    Grow { topic: u64 },
}

/// See the module.
#[derive(Default)]
pub(crate) struct History {
    entries: Vec<Entry>,
    /// By client: the call it waits for.
    pending: BTreeMap<usize, Pending>,
    /// By client: how often it had sent a request again, in all and since its last answer.
    repetitions: BTreeMap<usize, (u64, u64)>,
    /// Where payloads were seen or confirmed to stand.
    placed: BTreeMap<u64, (Target, u64)>,
    /// And what stands there.
    shown: BTreeMap<(Target, u64), u64>,
    contradictions: Vec<(u64, Target, String)>,
    /// Topics that somebody has asked to delete partitions of.
    shrunk: BTreeSet<u64>,
    /// Requests for more partitions that may still have their effect.
    growing: BTreeMap<u64, u32>,
    /// Topics whose partitions may have been deleted and made again.
    ambiguous: BTreeSet<u64>,
}

/// What the searches came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Searched {
    pub(crate) objects: u64,
    pub(crate) undecided: u64,
}

impl History {
    /// A client makes a call. What it waited for before, if anything, it never heard the end of.
    pub(crate) fn on_call(&mut self, time: u64, client: usize, call: &Call) {
        self.pending.remove(&client);
        match *call {
            Call::DeletePartitions { topic, .. } => {
                self.shrunk.insert(topic);
                if self.growing.get(&topic).is_some_and(|open| *open > 0) {
                    self.ambiguous.insert(topic);
                }
            }
            // What is trimmed or purged is left to the certificate.
            Call::CreateTopic { topic, trims: true } | Call::PurgeTopic { topic } => {
                self.ambiguous.insert(topic);
            }
            Call::DeleteSegments { target } => {
                self.ambiguous.insert(target.topic);
            }
            Call::CreatePartitions { topic, .. } => {
                if self.shrunk.contains(&topic) {
                    self.ambiguous.insert(topic);
                }
                *self.growing.entry(topic).or_default() += 1;
                self.pending.insert(client, Pending::Grow { topic });
            }
            _ => {
                let Some((target, what)) = What::of(call) else {
                    return;
                };
                let entry = Pending::Entry(self.entries.len());
                self.pending.insert(client, entry);
                self.entries.push(Entry {
                    target,
                    what,
                    start: time,
                    end: None,
                    void: false,
                    repetitions: 0,
                });
            }
        }
    }

    /// A client that is about to be answered has sent requests again so often, all in all. What is
    /// no write has no number, so each time may have an effect of its own.
    pub(crate) fn on_repetitions(&mut self, client: usize, count: u64) {
        let known = self.repetitions.entry(client).or_default();
        // A client that has come back counts from nothing.
        *known = (count, count.checked_sub(known.0).unwrap_or(count));
    }

    /// Its call has come to an end.
    pub(crate) fn on_answer(&mut self, time: u64, client: usize, answer: Answer<'_>) {
        let index = match self.pending.remove(&client) {
            Some(Pending::Entry(index)) => index,
            Some(Pending::Grow { topic }) => {
                if !matches!(answer, Answer::Unknown) {
                    *self.growing.get_mut(&topic).expect("it was asked for") -= 1;
                }
                return;
            }
            None => return,
        };
        let entry = &mut self.entries[index];
        let target = entry.target;
        entry.end = Some(time);
        let repetitions = self.repetitions.get(&client);
        entry.repetitions = repetitions.map_or(0, |(_, repeated)| *repeated);
        match (&mut entry.what, answer) {
            (
                What::Send {
                    payloads,
                    base_offset,
                },
                Answer::Sent { base_offset: told },
            ) => {
                *base_offset = Some(told);
                let placed = (told..).zip(payloads.clone());
                for (offset, payload) in placed {
                    self.place(time, target, Message { offset, payload });
                }
            }
            (What::Poll { seen, .. }, Answer::Polled { head, messages }) => {
                let ends = messages.first().zip(messages.last());
                *seen = Some((head, ends.map(|(first, last)| (first.offset, last.offset))));
                for message in messages {
                    self.place(time, target, *message);
                }
            }
            (What::Get { seen, .. }, Answer::Offset { stored }) => *seen = Some(stored),
            (What::Delete { found, .. }, Answer::Refused { nothing_stored }) if nothing_stored => {
                *found = false;
            }
            (_, Answer::Refused { .. }) => entry.void = true,
            (_, Answer::Unknown) => entry.end = None,
            (_, _) => {}
        }
    }

    /// A message was seen at its place: nothing else may ever be seen there, nor it elsewhere.
    fn place(&mut self, time: u64, target: Target, message: Message) {
        let Message { offset, payload } = message;
        let place = *self.placed.entry(payload).or_insert((target, offset));
        if place != (target, offset) {
            let other = place.1;
            let what = format!("one message is told to stand at {other} and at {offset}");
            self.contradictions.push((time, target, what));
        }
        let shown = *self.shown.entry((target, offset)).or_insert(payload);
        if shown != payload {
            let what = format!("two messages are told to stand at offset {offset}");
            self.contradictions.push((time, target, what));
        }
    }

    /// Searches for an order for every partition.
    pub(crate) fn check(&self, time: u64) -> Result<Searched, Failure> {
        let certain = |target: &Target| !self.ambiguous.contains(&target.topic);
        let mut contradictions = self.contradictions.iter();
        if let Some((time, target, what)) = contradictions.find(|(_, target, _)| certain(target)) {
            let (time, message) = (*time, format!("{target:?}: {what}"));
            return Err(Failure {
                check: CHECK,
                time,
                message,
            });
        }
        let mut objects: BTreeMap<Target, Vec<&Entry>> = BTreeMap::new();
        for entry in &self.entries {
            if certain(&entry.target) && !entry.never_happened() {
                objects.entry(entry.target).or_default().push(entry);
            }
        }
        let mut searched = Searched::default();
        for entries in objects.values() {
            let calls = self.log_calls(entries).map_err(|message| Failure {
                check: CHECK,
                time,
                message,
            })?;
            explain(time, &Log, entries, &calls, &mut searched)?;
            let consumers = entries.iter().filter_map(|entry| entry.consumer());
            let consumers: BTreeSet<u32> = consumers.collect();
            for consumer in consumers {
                let of_it = |entry: &&&Entry| entry.consumer() == Some(consumer);
                if entries.iter().filter(of_it).any(|entry| entry.is_opaque()) {
                    searched.undecided += 1;
                    continue;
                }
                let calls = offset_calls(entries, consumer);
                explain(time, &Offset, entries, &calls, &mut searched)?;
            }
        }
        Ok(searched)
    }
}

impl History {
    /// The calls about a partition's log.
    fn log_calls(&self, entries: &[&Entry]) -> Result<Calls<LogCall>, String> {
        let mut calls = Calls::default();
        let mut unseen = Unseen::default();
        for (index, entry) in entries.iter().enumerate() {
            let call = match &entry.what {
                What::Send {
                    payloads,
                    base_offset,
                } => {
                    let count = payloads.len() as u64;
                    let Some(offset) = self.offset_of(payloads, *base_offset)? else {
                        unseen.sends.push((entry.start, count));
                        continue;
                    };
                    LogCall::Append { offset, count }
                }
                What::Poll {
                    seen: Some((head, ends)),
                    ..
                } => match ends {
                    Some((_, last)) if !READS_ARE_FRESH => LogCall::LookBack { length: last + 1 },
                    None if !READS_ARE_FRESH => continue,
                    None if *head == 0 => LogCall::LookNothing,
                    _ => LogCall::Look { length: head + 1 },
                },
                What::Get {
                    seen: Some(Some((_, head))),
                    ..
                } => {
                    let length = head + 1;
                    if READS_ARE_FRESH {
                        LogCall::Look { length }
                    } else {
                        LogCall::LookBack { length }
                    }
                }
                _ => continue,
            };
            calls.push(index, entry, call);
        }
        unseen.fill(&mut calls)?;
        Ok(calls)
    }

    /// Where a batch stands, as far as anybody was told.
    fn offset_of(&self, payloads: &[u64], told: Option<u64>) -> Result<Option<u64>, String> {
        let mut offset = told;
        for (index, payload) in (0..).zip(payloads) {
            let Some(&(_, place)) = self.placed.get(payload) else {
                continue;
            };
            let base = place.checked_sub(index);
            if base.is_none() || offset.is_some() && offset != base {
                return Err(format!(
                    "a batch does not stand together: message {index} is at {place}, \
                     the batch at {offset:?}"
                ));
            }
            offset = base;
        }
        Ok(offset)
    }
}

/// The calls about one object, and which entries they come from.
#[derive(Clone, Debug)]
struct Calls<C> {
    entries: Vec<usize>,
    calls: Vec<Operation<C>>,
}

impl<C> Default for Calls<C> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            calls: Vec::new(),
        }
    }
}

impl<C> Calls<C> {
    fn push(&mut self, index: usize, entry: &Entry, call: C) {
        self.entries.push(index);
        self.calls.push(Operation {
            call,
            start: entry.start,
            end: entry.end,
        });
    }

    /// A call that may have its effect at any time from now on, or never.
    fn push_open(&mut self, index: usize, entry: &Entry, call: C) {
        self.push(index, entry, call);
        self.calls.last_mut().expect("just pushed").end = None;
    }
}

impl Entry {
    /// A poll that was refused may have stored something at an earlier attempt.
    const fn never_happened(&self) -> bool {
        self.void && !matches!(self.what, What::Poll { commits: true, .. })
    }

    /// A poll that may have stored something more often than can be searched for.
    const fn is_opaque(&self) -> bool {
        self.repetitions >= UNSEEN_MAX && matches!(self.what, What::Poll { commits: true, .. })
    }

    const fn consumer(&self) -> Option<u32> {
        match self.what {
            What::Send { .. } => None,
            What::Poll { consumer, .. }
            | What::Store { consumer, .. }
            | What::Delete { consumer, .. }
            | What::Get { consumer, .. } => Some(consumer),
        }
    }
}

/// The calls about the stored offset of a consumer.
fn offset_calls(entries: &[&Entry], of: u32) -> Calls<OffsetCall> {
    let mut calls = Calls::default();
    for (index, entry) in entries.iter().enumerate() {
        if entry.consumer() != Some(of) {
            continue;
        }
        match entry.what {
            What::Store { offset, .. } => calls.push(index, entry, OffsetCall::Store(offset)),
            What::Delete { found: true, .. } => calls.push(index, entry, OffsetCall::Delete),
            What::Delete { found: false, .. } => {
                calls.push(index, entry, OffsetCall::DeleteNothing);
            }
            What::Get {
                seen: Some(stored), ..
            } if READS_ARE_FRESH => {
                let stored = stored.map(|(stored, _)| stored);
                calls.push(index, entry, OffsetCall::Get(stored));
            }
            What::Poll {
                strategy,
                commits,
                seen,
                ..
            } => {
                if strategy == PollingStrategy::Next
                    && READS_ARE_FRESH
                    && let Some((head, ends)) = seen
                {
                    let call = ends.map_or(OffsetCall::NextNothing(head), |(first, _)| {
                        OffsetCall::Next(first)
                    });
                    calls.push(index, entry, call);
                }
                if let (true, Some((_, Some((_, last))))) = (commits, seen) {
                    calls.push(index, entry, OffsetCall::Raise(last));
                }
                if commits {
                    let unseen = entry.repetitions + u64::from(seen.is_none());
                    for _ in 0..unseen {
                        calls.push_open(index, entry, OffsetCall::RaiseSomewhere);
                    }
                }
            }
            What::Send { .. } | What::Get { .. } => {}
        }
    }
    calls
}

/// Searches for an order of the calls about one object.
fn explain<M: Model>(
    time: u64,
    model: &M,
    entries: &[&Entry],
    calls: &Calls<M::Call>,
    searched: &mut Searched,
) -> Verdict {
    searched.objects += 1;
    crate::marks::reach_checker(CHECK);
    match wgl::search(model, &calls.calls, CONFIGURATIONS_MAX) {
        wgl::Verdict::Linearizable => Ok(()),
        wgl::Verdict::Undecided => {
            searched.undecided += 1;
            Ok(())
        }
        wgl::Verdict::Violation { at } => {
            let entry = entries[calls.entries[at]];
            let message = format!("no order explains what clients were told up to {entry:?}");
            Err(Failure {
                check: CHECK,
                time,
                message,
            })
        }
    }
}

#[cfg(test)]
mod tests;
