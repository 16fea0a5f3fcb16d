//! Sends that nobody was told the outcome of and nobody has read: they may fill places of the log
//! of which nothing else is known.
//!
//! Which of them fills which place is left open, or the search would try them all. Places are
//! taken piece by piece, in order, at any time; what holds for every assignment is asked instead:
//! when a piece is seen to be taken, sends of at least so many messages have begun.

use std::collections::BTreeMap;

use super::{Calls, models::LogCall};
use crate::wgl::Operation;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Unseen {
    /// When they began and how many messages they have.
    pub(super) sends: Vec<(u64, u64)>,
}

impl Unseen {
    /// Adds to the calls about a log what nobody has seen but must stand there.
    pub(super) fn fill(&mut self, calls: &mut Calls<LogCall>) -> Result<(), String> {
        self.sends.sort_unstable();
        let pieces = pieces(&calls.calls);
        let deadlines = deadlines(&calls.calls);
        let first = self.sends.first().map_or(u64::MAX, |(start, _)| *start);
        let mut needed = 0;
        for (offset, end) in pieces {
            needed += end - offset;
            let until = deadlines.range(end..).map(|(_, until)| *until).min();
            let begun = self
                .sends
                .iter()
                .filter(|(start, _)| until.is_none_or(|until| *start <= until));
            let most: u64 = begun.map(|(_, count)| count).sum();
            if needed > most {
                return Err(format!(
                    "offsets {offset} to {end} are taken by {until:?}, but of what was sent by \
                     then {most} messages at most can stand where nobody has read, \
                     and {needed} do"
                ));
            }
            let call = LogCall::Append {
                offset,
                count: end - offset,
            };
            calls.entries.push(0);
            calls.calls.push(Operation {
                call,
                start: first,
                end: None,
            });
        }
        Ok(())
    }
}

/// Places that must be taken and of which nothing is known, cut where readers saw the log end.
fn pieces(calls: &[Operation<LogCall>]) -> Vec<(u64, u64)> {
    let mut taken: Vec<(u64, u64)> = Vec::new();
    let mut cuts = Vec::new();
    for call in calls {
        match call.call {
            LogCall::Append { offset, count } => {
                taken.push((offset, offset + count));
                cuts.push(offset);
            }
            LogCall::Look { length } | LogCall::LookBack { length } => cuts.push(length),
            LogCall::LookNothing => {}
        }
    }
    taken.sort_unstable();
    cuts.sort_unstable();
    let mut taken = taken.into_iter().peekable();
    let (mut pieces, mut at) = (Vec::new(), 0);
    for cut in cuts {
        while let Some(&(offset, end)) = taken.peek()
            && offset <= at
        {
            at = end.max(at);
            taken.next();
        }
        if cut > at {
            pieces.push((at, cut));
            at = cut;
        }
    }
    pieces
}

/// By length of the log: when somebody knew that it was at least as long.
fn deadlines(calls: &[Operation<LogCall>]) -> BTreeMap<u64, u64> {
    let mut deadlines: BTreeMap<u64, u64> = BTreeMap::new();
    for call in calls {
        let length = match call.call {
            LogCall::Append { offset, .. } => offset,
            LogCall::Look { length } | LogCall::LookBack { length } => length,
            LogCall::LookNothing => continue,
        };
        if let Some(end) = call.end {
            let deadline = deadlines.entry(length).or_insert(end);
            *deadline = end.min(*deadline);
        }
    }
    deadlines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(of: &[(LogCall, u64, u64)]) -> Calls<LogCall> {
        let mut calls = Calls::default();
        for &(call, start, end) in of {
            calls.entries.push(0);
            calls.calls.push(Operation {
                call,
                start,
                end: Some(end),
            });
        }
        calls
    }

    const fn append(offset: u64, count: u64) -> LogCall {
        LogCall::Append { offset, count }
    }

    #[test]
    fn holes_and_the_unknown_end_are_filled_in_pieces() {
        let mut calls = calls(&[
            (append(0, 3), 0, 1),
            (append(8, 2), 2, 5),
            (LogCall::Look { length: 5 }, 2, 4),
            (LogCall::Look { length: 12 }, 6, 9),
        ]);
        assert_eq!(pieces(&calls.calls), [(3, 5), (5, 8), (10, 12)]);
        let mut enough = Unseen {
            sends: vec![(8, 2), (2, 2), (3, 3)],
        };
        let before = calls.calls.len();
        assert_eq!(enough.fill(&mut calls), Ok(()));
        assert_eq!(calls.calls.len(), before + 3);
    }

    #[test]
    fn what_began_too_late_or_is_too_little_fills_nothing() {
        let holes = calls(&[(append(0, 3), 0, 1), (append(5, 1), 2, 5)]);
        for (sends, fits) in [
            (vec![(4, 2)], true),
            (vec![(4, 1)], false),
            (vec![(6, 2)], false),
            (vec![], false),
        ] {
            let mut unseen = Unseen { sends };
            assert_eq!(unseen.fill(&mut holes.clone()).is_ok(), fits);
        }
    }
}
