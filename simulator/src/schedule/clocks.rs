//! Faults of clocks and processors: a realtime clock that jumps, a node that computes slowly.

use super::{Draw, Drawer, Fault, SECOND};
use crate::profile::Classes;

/// What the classes of a seed allow.
pub(super) fn kinds(classes: &Classes, kinds: &mut Vec<Draw>) {
    if classes.clocks {
        kinds.extend([Drawer::clock_step as Draw, Drawer::clock_there_and_back]);
    }
    if classes.slow_processors {
        kinds.push(Drawer::slow_processor);
    }
}

impl Drawer {
    /// Somebody sets a clock: by milliseconds, by seconds or by hours.
    fn clock_step(&mut self, at: u64) {
        let (node, micros) = (self.node(), self.step());
        self.push(at, Fault::StepClock { node, micros });
    }

    /// A clock is set wrong and set right again.
    fn clock_there_and_back(&mut self, at: u64) {
        let (node, micros) = (self.node(), self.step());
        self.push(at, Fault::StepClock { node, micros });
        let length = self.prng.between(100_000, 60 * SECOND);
        let micros = -micros;
        self.push(at + length, Fault::StepClock { node, micros });
    }

    fn step(&mut self) -> i64 {
        let most = [50_000, 3 * SECOND, 3600 * SECOND][self.prng.index(3)];
        let size = i64::try_from(self.prng.between(1, most)).expect("hours");
        if self.prng.chance(1, 2) { size } else { -size }
    }

    fn slow_processor(&mut self, at: u64) {
        let node = self.node();
        let factor = [10, 10, 40][self.prng.index(3)];
        self.push(at, Fault::SlowProcessor { node, factor });
        let length = self.prng.between(SECOND, 30 * SECOND);
        let factor = 1;
        self.push(at + length, Fault::SlowProcessor { node, factor });
    }
}
