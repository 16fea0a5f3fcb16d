//! The time of a log: it never goes back, and in calm times it is what a majority of the clocks
//! says.
//!
//! Source: Marzullo 1984 (a window that a majority lies in leaves no room for a wrong minority);
//! row 34 of the scenarios (a primary whose clock jumps must not move the log's time with it).

use std::collections::BTreeMap;

use base::{GroupId, Op, Timestamp};

use super::{Verdict, ensure};

const CHECK: &str = "clock";

/// Where stamps must lie now, in microseconds of realtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

/// Clocks that are set over a network still differ by so much, and a stamp is taken a round trip
/// after what it is compared with.
const AHEAD_MAX: u64 = 500_000;
/// From the stamp to the commit.
const BEHIND_MAX: u64 = 15_000_000;
/// Clocks this close to each other agree.
const AGREE_WITHIN: u64 = 10_000;

impl Window {
    /// What a majority of `count` clocks says, of which those in `clocks` run; none if no
    /// majority of them agrees.
    pub(crate) fn of(mut clocks: Vec<u64>, count: usize) -> Option<Self> {
        clocks.sort_unstable();
        let majority = count / 2 + 1;
        let mut agreeing = clocks.windows(majority);
        agreeing.find(|some| some[majority - 1] - some[0] <= AGREE_WITHIN)?;
        // So many clocks are around any point of agreement, hence not all of them beyond it.
        let low = clocks[majority - 1].saturating_sub(BEHIND_MAX);
        let high = clocks[clocks.len() - majority] + AHEAD_MAX;
        (low <= high).then_some(Self { low, high })
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Clocks {
    newest: BTreeMap<GroupId, Timestamp>,
}

impl Clocks {
    /// An op enters the history of its group; `window` is given if all has been calm for long.
    pub(crate) fn on_committed(
        &mut self,
        time: u64,
        (group, op): (GroupId, Op),
        stamp: Timestamp,
        window: Option<Window>,
    ) -> Verdict {
        let newest = self.newest.entry(group).or_insert(Timestamp(0));
        let before = std::mem::replace(newest, stamp);
        ensure(stamp >= before, CHECK, time, || {
            let back = before.0 - stamp.0;
            format!("{group} op {op} is stamped {back} us before the op before it")
        })?;
        let Some(window) = window.filter(|_| stamp > before) else {
            return Ok(());
        };
        base::sometimes!("clock: a stamp is compared with what a majority says");
        ensure(
            window.low <= stamp.0 && stamp.0 <= window.high,
            CHECK,
            time,
            || {
                let stamp = stamp.0;
                format!("{group} op {op} is stamped {stamp}, a majority of clocks says {window:?}")
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000_000;
    const GROUP: GroupId = GroupId(3);

    fn stamped(clocks: &mut Clocks, op: u64, stamp: u64, window: Option<Window>) -> Verdict {
        clocks.on_committed(0, (GROUP, Op(op)), Timestamp(stamp), window)
    }

    #[test]
    fn time_may_stand_still_and_must_not_go_back() {
        let mut clocks = Clocks::default();
        assert!(stamped(&mut clocks, 1, NOW, None).is_ok());
        assert!(stamped(&mut clocks, 2, NOW, None).is_ok());
        assert!(stamped(&mut clocks, 3, NOW - 1, None).is_err());
    }

    #[test]
    fn one_wrong_clock_of_three_moves_nothing() {
        let window = Window::of(vec![NOW, NOW + 3_600_000_000, NOW + 5], 3);
        let mut clocks = Clocks::default();
        assert!(stamped(&mut clocks, 1, NOW + 100, window).is_ok());
        assert!(stamped(&mut clocks, 2, NOW + 3_600_000_000, window).is_err());
        let mut clocks = Clocks::default();
        assert!(stamped(&mut clocks, 1, NOW - 60_000_000, window).is_err());
    }

    #[test]
    fn without_a_majority_that_agrees_there_is_no_window() {
        assert!(Window::of(vec![NOW, NOW + 60_000_000, NOW + 120_000_000], 3).is_none());
        assert!(Window::of(vec![NOW], 3).is_none());
        assert!(Window::of(vec![NOW, NOW + 9], 3).is_some());
    }

    #[test]
    fn a_time_held_from_before_is_no_lie() {
        let window = Window::of(vec![NOW, NOW, NOW], 3);
        let mut clocks = Clocks::default();
        assert!(stamped(&mut clocks, 1, NOW + 60_000_000, None).is_ok());
        assert!(stamped(&mut clocks, 2, NOW + 60_000_000, window).is_ok());
    }
}
