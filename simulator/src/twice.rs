//! A seed run twice: both runs must deliver the same events, and if they do not, the first that
//! differs is named.
//!
//! Each run keeps its digest every 1,024 events. The first checkpoint that differs bounds the
//! stretch in which they part; both are run once more, and in that stretch every event is kept.
//!
//! Source: `faults.md` §7.1 and the hash-chained event log of §8.

use crate::{
    check::Failure,
    history::History,
    runner::{Run, run_history, run_world},
    world::{CHECKPOINT, Seen, Watch, World},
};

const CHECK: &str = "determinism";

/// Runs a history twice. The run is the first, which fails if the second is another.
pub(crate) fn run_twice(history: &History) -> Run {
    let mut run = run_history(history.clone(), false);
    let again = run_history(history.clone(), false);
    if again.outcome.digest != run.outcome.digest {
        let world = || World::with(history.shape.clone(), history.schedule.clone(), false);
        let message = first_difference(world, world)
            .unwrap_or_else(|| "two runs differed, two others of the same seed did not".into());
        run.outcome.failure = Some(Failure {
            check: CHECK,
            time: run.outcome.statistics.virtual_micros,
            message,
        });
    }
    run
}

/// Where two worlds part; none if they do not.
pub(crate) fn first_difference(
    one: impl Fn() -> World,
    other: impl Fn() -> World,
) -> Option<String> {
    let (first, second) = (checkpoints(one()), checkpoints(other()));
    if first == second {
        return None;
    }
    let pairs = first.checkpoints.iter().zip(&second.checkpoints);
    let equal = pairs.take_while(|(first, second)| first == second).count() as u64;
    let from = equal * CHECKPOINT + 1;
    let stretch = from..from + CHECKPOINT;
    let (first, second) = (
        events(one(), stretch.clone()),
        events(other(), stretch.clone()),
    );
    let pairs = first.iter().zip(&second);
    let equal = pairs.take_while(|(first, second)| first == second).count();
    let line = |seen: Option<&Seen>| {
        let line = seen.map(|seen| seen.line.trim().to_string());
        line.unwrap_or_else(|| "nothing more".into())
    };
    if first.get(equal) == second.get(equal) {
        let last = stretch.end - 1;
        return Some(format!(
            "two runs part between events {from} and {last}, and not always"
        ));
    }
    Some(format!(
        "two runs part at event {}: {:?} in one is {:?} in the other",
        from + equal as u64,
        line(first.get(equal)),
        line(second.get(equal))
    ))
}

#[derive(PartialEq, Eq)]
struct Checkpoints {
    checkpoints: Vec<u64>,
    digest: u64,
}

fn checkpoints(mut world: World) -> Checkpoints {
    run_world(&mut world);
    Checkpoints {
        checkpoints: world.digest().checkpoints().to_vec(),
        digest: world.digest().value(),
    }
}

fn events(mut world: World, stretch: std::ops::Range<u64>) -> Vec<Seen> {
    world.watch(Watch::over(stretch));
    run_world(&mut world);
    world.watched()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    fn world() -> World {
        let History { shape, schedule } = History::draw(3, Profile::find("smoke").expect("there"));
        World::with(shape, schedule, false)
    }

    #[test]
    fn a_seed_is_one_history() {
        assert_eq!(first_difference(world, world), None);
    }

    /// Goal: what depends on anything but the seed is found and named. Method: one of two runs
    /// draws a random number more, as an order by address or a clock would have it.
    #[test]
    fn the_first_event_that_differs_is_named() {
        const FROM: u64 = 2_500;
        let disturbed = || {
            let mut world = world();
            world.disturb(FROM);
            world
        };
        let found = first_difference(world, disturbed).expect("they differ");
        let event = found
            .strip_prefix("two runs part at event ")
            .and_then(|rest| rest.split(':').next())
            .and_then(|number| number.parse::<u64>().ok());
        let event = event.expect("its number");
        assert!((FROM..FROM + 100).contains(&event), "{found}");
        assert!(found.contains("node"), "{found}");
    }
}
