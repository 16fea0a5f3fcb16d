//! Hand-made histories of a register, and a search among all orders to compare with.

use base::{Domain, Prng};

use super::*;

/// A register; nothing is read before the first write.
struct Register;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Call {
    Write(u8),
    Read(u8),
}

impl Model for Register {
    type State = u8;
    type Call = Call;

    fn initial(&self) -> u8 {
        0
    }

    fn step(&self, state: &u8, call: &Call) -> Option<u8> {
        match *call {
            Call::Write(value) => Some(value),
            Call::Read(value) => (*state == value).then_some(value),
        }
    }

    fn is_read(&self, call: &Call) -> bool {
        matches!(call, Call::Read(_))
    }
}

const fn done(call: Call, start: u64, end: u64) -> Operation<Call> {
    Operation {
        call,
        start,
        end: Some(end),
    }
}

const fn unknown(call: Call, start: u64) -> Operation<Call> {
    Operation {
        call,
        start,
        end: None,
    }
}

fn check(calls: &[Operation<Call>]) -> Verdict {
    search(&Register, calls, 1_000_000)
}

#[test]
fn overlapping_calls_take_effect_in_some_order() {
    let calls = [
        done(Call::Write(1), 0, 10),
        done(Call::Read(1), 2, 4),
        done(Call::Write(2), 3, 12),
        done(Call::Read(2), 5, 6),
        done(Call::Read(1), 7, 9),
    ];
    assert_eq!(check(&calls[..4]), Verdict::Linearizable);
    // The second value was seen, and then the first again.
    assert_eq!(check(&calls), Verdict::Violation { at: 4 });
    assert_eq!(check(&[]), Verdict::Linearizable);
}

#[test]
fn a_stale_read_is_no_order() {
    let calls = [
        done(Call::Write(1), 0, 1),
        done(Call::Write(2), 2, 3),
        done(Call::Read(1), 4, 5),
    ];
    assert_eq!(check(&calls), Verdict::Violation { at: 2 });
    let touching = [calls[0], calls[1], done(Call::Read(1), 3, 5)];
    assert_eq!(check(&touching), Verdict::Linearizable);
}

#[test]
fn a_call_of_unknown_outcome_happens_late_or_never() {
    let lost = unknown(Call::Write(7), 0);
    let late = [
        lost,
        done(Call::Write(1), 1, 2),
        done(Call::Read(1), 3, 4),
        done(Call::Read(7), 5, 6),
    ];
    assert_eq!(check(&late), Verdict::Linearizable);
    assert_eq!(check(&late[..3]), Verdict::Linearizable);
    let twice = [
        lost,
        done(Call::Read(7), 1, 2),
        done(Call::Write(1), 3, 4),
        done(Call::Read(7), 5, 6),
    ];
    assert_eq!(check(&twice), Verdict::Violation { at: 3 });
}

#[test]
fn a_search_that_grows_too_large_is_given_up() {
    let writes = (0..20).map(|value| unknown(Call::Write(value), 0));
    let calls: Vec<_> = writes.chain([done(Call::Read(99), 1, 2)]).collect();
    assert_eq!(search(&Register, &calls, 1_000), Verdict::Undecided);
}

/// Every order of the calls that return, and every choice of the others.
fn brute_force(calls: &[Operation<Call>], placed: u32, state: u8) -> bool {
    let free = |call: usize| placed >> call & 1 == 0;
    let mut open = (0..calls.len()).filter(|&call| free(call));
    if open.all(|call| calls[call].end.is_none()) {
        return true;
    }
    (0..calls.len()).filter(|&call| free(call)).any(|call| {
        let first = (0..calls.len()).all(|other| {
            !free(other) || calls[other].end.is_none_or(|end| end >= calls[call].start)
        });
        let next = Register.step(&state, &calls[call].call);
        first && next.is_some_and(|next| brute_force(calls, placed | 1 << call, next))
    })
}

/// Method: random small histories, judged by the search and by trying everything.
#[test]
fn the_search_agrees_with_trying_everything() {
    let mut prng = Prng::new(1, Domain::Workload, 0);
    let mut linearizable = 0;
    for _ in 0..4_000 {
        let calls: Vec<_> = (0..1 + prng.below(7))
            .map(|_| {
                let value = u8::try_from(prng.below(3)).expect("small");
                let call = if prng.chance(1, 2) {
                    Call::Write(value)
                } else {
                    Call::Read(value)
                };
                let start = prng.below(12);
                let end = start + prng.below(6);
                let known = matches!(call, Call::Read(_)) || prng.chance(3, 4);
                Operation {
                    call,
                    start,
                    end: known.then_some(end),
                }
            })
            .collect();
        let expected = brute_force(&calls, 0, 0);
        let found = check(&calls) == Verdict::Linearizable;
        assert_eq!(found, expected, "{calls:?}");
        linearizable += u32::from(found);
    }
    assert!((1_000..3_000).contains(&linearizable), "{linearizable}");
}
