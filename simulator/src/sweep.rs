//! Systematic crashes: a short scenario is run once for every time that a node's disk passes a
//! point, and the node dies there. What random crashes hit by luck is hit for certain.

use crate::{
    check::Failure,
    disk::{Crash, Point},
    profile::{Profile, Shape, Stretch},
    runner::run_world,
    schedule::{Fault, Schedule},
    world::World,
};

/// Which node dies where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep {
    pub(crate) seed: u64,
    pub(crate) node: u8,
    pub(crate) point: Point,
    pub(crate) crash: Crash,
    /// Every so-manieth time only.
    pub(crate) every: u64,
}

/// What became of it.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    pub(crate) runs: u64,
    /// With the n at which the node died.
    pub(crate) failures: Vec<(u64, Failure)>,
}

/// A death at the n-th request is followed by a start after this time, in microseconds.
const DOWNTIME: u64 = 700_000;

impl Sweep {
    /// Runs the scenario without a fault, to count, and then with one death at a time.
    pub(crate) fn run(&self) -> Swept {
        let mut undisturbed = World::with(self.shape(), Schedule::default(), false);
        let outcome = run_world(&mut undisturbed);
        let mut swept = Swept {
            runs: 1,
            ..Swept::default()
        };
        if let Some(failure) = outcome.failure {
            swept.failures.push((0, failure));
            return swept;
        }
        let passes = undisturbed.passed(self.node, self.point);
        let step = usize::try_from(self.every).expect("small");
        for nth in (1..=passes).step_by(step) {
            let mut world = World::with(self.shape(), self.schedule(nth), false);
            let outcome = run_world(&mut world);
            if outcome.statistics.crashes + outcome.statistics.power_losses == 0 {
                break; // What is passed after the faults have ended kills nobody.
            }
            swept.runs += 1;
            if let Some(failure) = outcome.failure {
                swept.failures.push((nth, failure));
            }
        }
        swept
    }

    /// Three nodes, and clients that work for a few seconds.
    fn shape(&self) -> Shape {
        let profile = Profile::find("smoke").expect("it is listed");
        let mut shape = Shape::draw(self.seed, profile);
        shape.busy = vec![Stretch {
            start: 2_000_000,
            end: 5_000_000,
        }];
        shape
    }

    fn schedule(&self, nth: u64) -> Schedule {
        let death = Fault::CrashAtDisk {
            node: self.node,
            point: self.point,
            nth,
            crash: self.crash,
            downtime: DOWNTIME,
        };
        Schedule {
            faults: vec![(0, death)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(seed: u64, node: u8, point: Point, crash: Crash) {
        let sweep = Sweep {
            seed,
            node,
            point,
            crash,
            every: 1,
        };
        let swept = sweep.run();
        assert!(swept.failures.is_empty(), "{sweep:?}: {:?}", swept.failures);
        assert!(swept.runs > 20, "{sweep:?}: {} runs", swept.runs);
    }

    #[test]
    fn a_process_may_die_at_any_disk_request() {
        sweep(1, 0, Point::Submit, Crash::Process);
        sweep(2, 1, Point::Complete, Crash::Process);
    }

    #[test]
    fn a_machine_may_lose_power_at_any_disk_request() {
        sweep(3, 0, Point::Complete, Crash::Power);
        sweep(4, 2, Point::Sync, Crash::Power);
    }
}
