//! One seed, or many: runs worlds, catches what panics, adds up.

use std::{
    cell::RefCell,
    fs,
    panic::{self, AssertUnwindSafe},
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use crate::{
    check::Failure,
    history::History,
    marks::Marks,
    profile::Profile,
    twice::run_twice,
    world::{Digest, Outcome, Statistics, World},
};

/// How the binary measures memory: it owns the allocator.
#[derive(Clone, Copy, Debug)]
pub struct MemoryProbe {
    /// Forgets the peak of this thread.
    pub reset: fn(),
    /// The peak of this thread since, in bytes.
    pub peak: fn() -> u64,
}

static PROBE: OnceLock<MemoryProbe> = OnceLock::new();

/// Says how memory is measured; once, before any run.
pub fn install_memory_probe(probe: MemoryProbe) {
    let _ = PROBE.set(probe);
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A finished run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    pub(crate) seed: u64,
    pub(crate) outcome: Outcome,
    pub(crate) memory_peak: u64,
    /// The marks it has reached.
    pub(crate) reached: Vec<&'static str>,
}

/// Runs one seed.
pub(crate) fn run_seed(seed: u64, profile: &Profile, trace: bool) -> Run {
    run_history(History::draw(seed, profile), trace)
}

/// Runs one history. A panic of the product is a failure of the check `assert`.
pub(crate) fn run_history(history: History, trace: bool) -> Run {
    let seed = history.shape.seed;
    if let Some(probe) = PROBE.get() {
        (probe.reset)();
    }
    // What another run of this thread has reached is none of ours.
    let _ = base::marks::take_reached();
    let mut world = World::with(history.shape, history.schedule, trace);
    let outcome = run_world(&mut world);
    let memory_peak = PROBE.get().map_or(0, |probe| (probe.peak)());
    Run {
        seed,
        outcome,
        memory_peak,
        reached: base::marks::take_reached(),
    }
}

/// Runs a world to its end. A panic of the product is a failure of the check `assert`.
pub(crate) fn run_world(world: &mut World) -> Outcome {
    let ended = panic::catch_unwind(AssertUnwindSafe(|| world.run()));
    ended.unwrap_or_else(|_| {
        let message = PANIC
            .take()
            .unwrap_or_else(|| "a panic without words".into());
        let failure = Failure {
            check: "assert",
            time: world.time(),
            message,
        };
        Outcome {
            failure: Some(failure),
            ..world.outcome()
        }
    })
}

/// Keeps what a panic says instead of printing it.
pub(crate) fn catch_panics() {
    panic::set_hook(Box::new(|info| {
        let text = info.payload_as_str().unwrap_or("no text");
        let place = info
            .location()
            .map(|at| format!("{}:{}", at.file(), at.line()));
        let message = format!("{text} ({})", place.unwrap_or_default());
        PANIC.with(|panic| *panic.borrow_mut() = Some(message));
    }));
}

/// Many seeds.
#[derive(Clone, Copy)]
pub(crate) struct Campaign<'a> {
    pub(crate) start: u64,
    pub(crate) seeds: u64,
    pub(crate) jobs: usize,
    pub(crate) profile: &'a Profile,
    /// No new seed is started after a failure.
    pub(crate) stop_at_failure: bool,
    /// No new seed is started after this time.
    pub(crate) until: Option<Instant>,
    /// Each seed is run twice, and both runs must be the same.
    pub(crate) twice: bool,
}

/// Sums over many runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) runs: u64,
    pub(crate) failures: Vec<(u64, Failure)>,
    pub(crate) total: Statistics,
    pub(crate) memory_peak: u64,
    pub(crate) runs_without_commits: u64,
    pub(crate) cpu_micros: u64,
    pub(crate) digest: u64,
    pub(crate) marks: Marks,
}

impl Campaign<'_> {
    /// Runs all seeds; `on_run` hears of each as it ends, in no order.
    pub(crate) fn run(self, on_run: impl Fn(&Run) + Sync) -> Summary {
        let next = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        let cpu_micros = AtomicU64::new(0);
        let runs: Mutex<Vec<Run>> = Mutex::new(Vec::new());
        let work = || {
            let started = thread_cpu_micros();
            let late = || self.until.is_some_and(|until| Instant::now() >= until);
            while !stop.load(Ordering::Relaxed) && !late() {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= self.seeds {
                    break;
                }
                let seed = self.start + index;
                let run = if self.twice {
                    run_twice(&History::draw(seed, self.profile))
                } else {
                    run_seed(seed, self.profile, false)
                };
                if self.stop_at_failure && run.outcome.failure.is_some() {
                    stop.store(true, Ordering::Relaxed);
                }
                on_run(&run);
                runs.lock().expect("nobody panics with it").push(run);
            }
            cpu_micros.fetch_add(thread_cpu_micros() - started, Ordering::Relaxed);
        };
        thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(work);
            }
        });
        let mut runs = runs.into_inner().expect("nobody panics with it");
        runs.sort_by_key(|run| run.seed);
        let cpu_micros = cpu_micros.into_inner();
        Summary {
            cpu_micros,
            ..Summary::of(&runs)
        }
    }
}

impl Summary {
    /// Sums up runs given in seed order.
    fn of(runs: &[Run]) -> Self {
        let mut summary = Self::default();
        let mut digest = Digest::new(0);
        for Run {
            seed,
            outcome,
            memory_peak,
            reached,
        } in runs
        {
            digest.add(outcome.digest);
            summary.runs += 1;
            summary.memory_peak = summary.memory_peak.max(*memory_peak);
            summary.runs_without_commits += u64::from(outcome.statistics.committed_ops == 0);
            summary.total.add(&outcome.statistics);
            summary.marks.add(reached);
            if let Some(failure) = &outcome.failure {
                summary.failures.push((*seed, failure.clone()));
            }
        }
        summary.digest = digest.value();
        summary
    }
}

impl Statistics {
    fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.crashes += other.crashes;
        self.restarts += other.restarts;
        self.power_losses += other.power_losses;
        self.wipes += other.wipes;
        self.damages += other.damages;
        self.pauses += other.pauses;
        self.cuts += other.cuts;
        self.resets += other.resets;
        self.committed_ops += other.committed_ops;
        self.view_changes += other.view_changes;
        self.calls += other.calls;
        self.calls_done += other.calls_done;
        self.calls_unknown += other.calls_unknown;
        self.calls_refused += other.calls_refused;
        self.virtual_micros += other.virtual_micros;
        self.objects_searched += other.objects_searched;
        self.objects_undecided += other.objects_undecided;
    }
}

/// Time this thread has been on a processor; for reports only.
pub(crate) fn thread_cpu_micros() -> u64 {
    let statistics = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = statistics
        .split_whitespace()
        .next()
        .and_then(|field| field.parse::<u64>().ok());
    nanos.unwrap_or(0) / 1_000
}
