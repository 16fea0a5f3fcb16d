//! The Wing–Gong–Lowe search: is there an order of these calls that respects their real time and
//! that a sequential model could have answered like this?
//!
//! ```text
//!   calls ──split by object──▶ search ──▶ Linearizable
//!                                  └────▶ Violation: the call that no order can explain
//! ```
//!
//! - *Just in time* (Lowe): an order is decided only when a call returns. Then that call is tried
//!   first, and others that are open only if it has no place yet.
//! - *Memoisation* (Lowe): a set of placed calls with a state is entered once. The set is kept
//!   as a sum of 128-bit names, one per call: two sets of one sum would have to be hit by
//!   chance.
//! - *Reads at once*: a call that changes nothing is placed as soon as the state allows it; any
//!   order that has it later can have it here.
//! - *P-compositionality* (Herlihy and Wing's locality): objects are searched one by one; who
//!   calls [`search`] has split the history.
//!
//! A call of unknown outcome has no return: it may be placed at any later moment, or never. Equal
//! ones stand for one another, so they share a name.
//!
//! Source: Wing and Gong 1993; Lowe, "Testing for linearizability", 2017; Horn and Kroening,
//! "Faster linearizability checking via P-compositionality", 2015.

pub(crate) mod published;

use std::collections::{BTreeMap, BTreeSet};

/// A sequential object.
pub(crate) trait Model {
    /// What it holds.
    type State: Clone + Ord;
    /// A call with its answer, as far as that is known.
    type Call: Clone + Ord;

    /// What it holds at first.
    fn initial(&self) -> Self::State;

    /// What it holds after `call`; none if the call cannot have been answered like this here.
    fn step(&self, state: &Self::State, call: &Self::Call) -> Option<Self::State>;

    /// Whether `call` changes nothing, in no state.
    fn is_read(&self, call: &Self::Call) -> bool;
}

/// A call and when it began and ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation<C> {
    pub(crate) call: C,
    pub(crate) start: u64,
    /// None if it may take effect later, or never.
    pub(crate) end: Option<u64>,
}

/// What a search has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Linearizable,
    /// No order works; none gets beyond the return of this call (an index).
    Violation {
        at: usize,
    },
    /// Given up after so many configurations.
    Undecided,
}

/// A list of the calls that have no place yet, in the order in which they began. A call that is
/// taken out can be put back where it was, in reverse order of taking.
struct Unplaced {
    next: Vec<usize>,
    previous: Vec<usize>,
}

impl Unplaced {
    /// `order` lists calls by their begin; index `order.len()` is the sentinel.
    fn new(order: &[usize]) -> Self {
        let sentinel = order.len();
        let mut list = Self {
            next: vec![sentinel; sentinel + 1],
            previous: vec![sentinel; sentinel + 1],
        };
        let mut last = sentinel;
        for &call in order {
            list.next[last] = call;
            list.previous[call] = last;
            last = call;
        }
        list.next[last] = sentinel;
        list.previous[sentinel] = last;
        list
    }

    fn take(&mut self, call: usize) {
        let (before, after) = (self.previous[call], self.next[call]);
        self.next[before] = after;
        self.previous[after] = before;
    }

    fn put_back(&mut self, call: usize) {
        let (before, after) = (self.previous[call], self.next[call]);
        self.next[before] = call;
        self.previous[after] = call;
    }
}

/// The next call to try at a return.
#[derive(Clone, Copy)]
enum Next {
    /// The one that returns.
    Returning,
    /// This open one.
    Other(usize),
}

/// A choice that may have to be taken back.
struct Choice<S> {
    /// The return at which it was made: an index into the returns.
    at: usize,
    state: S,
    placed: u128,
    next: Next,
    /// The calls that are placed below this choice.
    taken: Vec<usize>,
}

/// Searches for an order of `calls`, entering at most `configurations_max` configurations.
pub(crate) fn search<M: Model>(
    model: &M,
    calls: &[Operation<M::Call>],
    configurations_max: usize,
) -> Verdict {
    Search::new(model, calls).run(configurations_max)
}

/// Searches the histories of several objects of one model. The effort for each grows in rounds:
/// an object that is plainly wrong need not wait for one that is hard to judge.
pub(crate) fn search_each<M: Model>(
    model: &M,
    histories: &[Vec<Operation<M::Call>>],
    configurations_max: usize,
) -> Verdict {
    let mut open: Vec<_> = histories.iter().collect();
    let mut effort = 1_000;
    while !open.is_empty() && effort <= configurations_max {
        let mut undecided = Vec::new();
        for calls in open {
            match search(model, calls, effort) {
                Verdict::Linearizable => {}
                Verdict::Undecided => undecided.push(calls),
                violation @ Verdict::Violation { .. } => return violation,
            }
        }
        open = undecided;
        effort *= 10;
    }
    if open.is_empty() {
        Verdict::Linearizable
    } else {
        Verdict::Undecided
    }
}

struct Search<'a, M: Model> {
    model: &'a M,
    calls: &'a [Operation<M::Call>],
    /// Calls that return, by their end.
    returns: Vec<usize>,
    unplaced: Unplaced,
    is_placed: Vec<bool>,
    /// By call.
    names: Vec<u128>,
    known: BTreeSet<(u128, M::State)>,
    choices: Vec<Choice<M::State>>,
    furthest: usize,
}

impl<'a, M: Model> Search<'a, M> {
    fn new(model: &'a M, calls: &'a [Operation<M::Call>]) -> Self {
        let mut order: Vec<usize> = (0..calls.len()).collect();
        order.sort_by_key(|&call| calls[call].start);
        let mut returns: Vec<usize> = (0..calls.len())
            .filter(|&call| calls[call].end.is_some())
            .collect();
        returns.sort_by_key(|&call| calls[call].end);
        Self {
            model,
            calls,
            returns,
            unplaced: Unplaced::new(&order),
            is_placed: vec![false; calls.len()],
            names: names(calls),
            known: BTreeSet::new(),
            choices: Vec::new(),
            furthest: 0,
        }
    }

    fn run(mut self, configurations_max: usize) -> Verdict {
        if self.enter(0, 0, self.model.initial()) {
            return Verdict::Linearizable;
        }
        while let Some(mut choice) = self.choices.pop() {
            for call in choice.taken.drain(..).rev() {
                self.is_placed[call] = false;
                self.unplaced.put_back(call);
            }
            let Some(call) = self.candidate(&mut choice) else {
                continue;
            };
            let next = self.model.step(&choice.state, &self.calls[call].call);
            let placed = choice.placed.wrapping_add(self.names[call]);
            let at = choice.at;
            self.choices.push(choice);
            let Some(state) = next else { continue };
            if self.known.contains(&(placed, state.clone())) {
                continue;
            }
            if self.known.len() >= configurations_max {
                return Verdict::Undecided;
            }
            self.known.insert((placed, state.clone()));
            self.take(call);
            if self.enter(at, placed, state) {
                return Verdict::Linearizable;
            }
        }
        let at = self.returns[self.furthest];
        Verdict::Violation { at }
    }

    /// Places a call below the last choice.
    fn take(&mut self, call: usize) {
        self.unplaced.take(call);
        self.is_placed[call] = true;
        if let Some(choice) = self.choices.last_mut() {
            choice.taken.push(call);
        }
    }

    /// Goes on from a return to the next whose call has no place. True if there is none.
    fn enter(&mut self, mut at: usize, mut placed: u128, state: M::State) -> bool {
        while let Some(&call) = self.returns.get(at) {
            placed = self.place_reads(at, placed, &state);
            if !self.is_placed[call] {
                self.furthest = at.max(self.furthest);
                self.choices.push(Choice {
                    at,
                    state,
                    placed,
                    next: Next::Returning,
                    taken: Vec::new(),
                });
                return false;
            }
            at += 1;
        }
        true
    }

    /// Places all open reads that the state allows.
    fn place_reads(&mut self, at: usize, mut placed: u128, state: &M::State) -> u128 {
        let sentinel = self.calls.len();
        let until = self.calls[self.returns[at]].end;
        let mut call = self.unplaced.next[sentinel];
        while call != sentinel && Some(self.calls[call].start) <= until {
            let next = self.unplaced.next[call];
            let read = &self.calls[call].call;
            if self.model.is_read(read) && self.model.step(state, read).as_ref() == Some(state) {
                placed = placed.wrapping_add(self.names[call]);
                self.take(call);
            }
            call = next;
        }
        placed
    }

    /// The next call to try: the one that returns, then whatever else had begun by then.
    fn candidate(&self, choice: &mut Choice<M::State>) -> Option<usize> {
        let sentinel = self.calls.len();
        let returning = self.returns[choice.at];
        let call = match choice.next {
            Next::Returning => {
                choice.next = Next::Other(self.unplaced.next[sentinel]);
                return Some(returning);
            }
            Next::Other(call) if call == returning => self.unplaced.next[call],
            Next::Other(call) => call,
        };
        // Calls that touch at one instant overlap.
        if call == sentinel || Some(self.calls[call].start) > self.calls[returning].end {
            return None;
        }
        choice.next = Next::Other(self.unplaced.next[call]);
        Some(call)
    }
}

/// The name of each call in the sum of a set. Calls without a return that are equal have one name:
/// where one of them is placed, the other could be, and what is left is the same.
fn names<C: Clone + Ord>(calls: &[Operation<C>]) -> Vec<u128> {
    let mut first: BTreeMap<&C, usize> = BTreeMap::new();
    let name = |(index, call)| {
        let call: &Operation<C> = call;
        let index = match call.end {
            Some(_) => index,
            None => *first.entry(&call.call).or_insert(index),
        };
        base::checksum::xxh3_128(&(index as u64).to_le_bytes())
    };
    calls.iter().enumerate().map(name).collect()
}

#[cfg(test)]
mod tests;
