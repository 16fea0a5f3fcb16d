//! The clocks of a node: one oscillator, a little fast or slow, behind a monotonic clock that
//! never steps and a realtime clock that somebody may set.
//!
//! ```text
//!   elapsed   = time * (1 + drift)           drift within ±500 ppm
//!   monotonic = base + elapsed               base is new with each process
//!   realtime  = EPOCH + time + offset        offset changes with each step; elapsed instead of
//!                                            time where no time service mends the drift
//! ```
//!
//! **Invariant:** time is virtual; nothing but these figures tells a node what time it is.

use base::{Instant, Timestamp};
use platform::Now;
use serde::{Deserialize, Serialize};

use super::EPOCH;

/// How a node's clocks differ from virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClockShape {
    /// Of the realtime clock, in microseconds.
    pub(crate) offset: i64,
    /// Of the oscillator, in parts per million.
    pub(crate) drift: i64,
    /// Nobody sets the realtime clock right: it drifts, too.
    pub(crate) alone: bool,
}

const MILLION: i64 = 1_000_000;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    shape: ClockShape,
    base: u64,
}

impl Clock {
    pub(super) const fn new(shape: ClockShape) -> Self {
        Self { shape, base: 0 }
    }

    /// The monotonic clock has another beginning.
    pub(super) const fn reboot(&mut self, base: u64) {
        self.base = base;
    }

    /// The realtime clock is set.
    pub(super) const fn step(&mut self, micros: i64) {
        self.shape.offset += micros;
    }

    pub(super) fn now(&self, time: u64) -> Now {
        let elapsed = self.elapsed(time);
        let passed = if self.shape.alone { elapsed } else { time };
        let realtime = (EPOCH + passed).saturating_add_signed(self.shape.offset);
        Now {
            monotonic: Instant(self.base + elapsed),
            realtime: Timestamp(realtime),
        }
    }

    fn elapsed(&self, time: u64) -> u64 {
        if self.shape.drift == 0 {
            return time;
        }
        let micros = i64::try_from(time).expect("runs are short");
        time.strict_add_signed(micros * self.shape.drift / MILLION)
    }

    /// The first virtual time at which the monotonic clock shows `instant`.
    pub(super) fn when(&self, instant: Instant) -> u64 {
        let elapsed = instant.0.saturating_sub(self.base);
        if self.shape.drift == 0 {
            return elapsed;
        }
        let micros = i64::try_from(elapsed).expect("runs are short");
        let mut time = elapsed.saturating_add_signed(-micros * self.shape.drift / MILLION);
        // The error of the first guess is of second order: a walk of a few steps.
        while self.elapsed(time) < elapsed {
            time += 1 + (elapsed - self.elapsed(time)) / 2;
        }
        while time > 0 && self.elapsed(time - 1) >= elapsed {
            time -= 1;
        }
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_comes_when_the_clock_shows_it_and_not_before() {
        for drift in [-500, -37, 0, 1, 500] {
            let mut clock = Clock::new(ClockShape {
                drift,
                ..ClockShape::default()
            });
            clock.reboot(12_345);
            for elapsed in [0, 1, 999, 1_000_000, 7_654_321, 2_000_000_001] {
                let instant = Instant(12_345 + elapsed);
                let time = clock.when(instant);
                assert!(clock.now(time).monotonic >= instant);
                assert!(time == 0 || clock.now(time - 1).monotonic < instant);
            }
        }
    }

    #[test]
    fn a_step_moves_realtime_only() {
        let mut clock = Clock::new(ClockShape::default());
        let before = clock.now(5_000_000);
        clock.step(-3_000_000);
        let after = clock.now(5_000_000);
        assert_eq!(before.monotonic, after.monotonic);
        assert_eq!(after.realtime.0, before.realtime.0 - 3_000_000);
    }
}
