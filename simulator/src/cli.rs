//! The command line: `cargo sim <command>`.

use std::{
    fs,
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    check::history,
    disk::{Crash, Point},
    history::History,
    marks::REQUIRED_FROM,
    mutants::{self, Asserts, Effort, Mutant, Verdict},
    nightly,
    profile::{PROFILES, Profile},
    report,
    runner::{Campaign, catch_panics, run_history, thread_cpu_micros},
    scenario::Scenario,
    seeds,
    sweep::Sweep,
    twice::run_twice,
    wgl::{self, published},
};

const EXAMPLES: &str = "\
Examples:
  cargo sim run                          100 seeds of the profile swarm
  cargo sim run --seeds 2000 --jobs 2    a campaign
  cargo sim run --seed 7 --profile crash one seed
  cargo sim replay 7 --profile crash --trace | less
                                         the same history, one line per event
  cargo sim-mutants                      would the checkers notice? (builds with planted bugs)

A run is a whole cluster, its clients, disks and network in one thread, with virtual time. The
seed decides everything: the shape of the cluster, its tiny limits, every delay and every fault.
Faults end before the run does; the cluster must then converge, answer every client, and still
have all that it ever acknowledged.

Exit status: 0 all passed, 1 a check failed, 2 wrong usage.";

/// Runs a simulated cluster under faults, over and over, and checks what it promises.
#[derive(Parser)]
#[command(name = "sim", after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run many seeds, or one, and check them.
    Run(RunArgs),
    /// Run one seed again and print its digest; with --trace, everything that happens in it.
    Replay(ReplayArgs),
    /// Plant known bugs one at a time and see which the checkers catch.
    Mutants(MutantsArgs),
    /// Run the regression seeds of `seeds/*.json`.
    Seeds(SeedsArgs),
    /// Kill one node at every disk request of a short scenario, one run each.
    Sweep(SweepArgs),
    /// Spend hours on every profile, each fuzz target and the planted bugs; see `ci/nightly`.
    Nightly(NightlyArgs),
    /// Run one file of `scenarios/cluster` and print its transcript.
    Scenario(ScenarioArgs),
    /// List the profiles and what they do to a cluster.
    Profiles,
    /// Judge histories with published verdicts by the linearizability search.
    Histories(HistoriesArgs),
}

#[derive(Args)]
struct RunArgs {
    /// How many seeds to run.
    #[arg(long, default_value_t = 100, conflicts_with = "seed")]
    seeds: u64,
    /// Run only this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    start: u64,
    /// What kind of cluster and faults; `sim profiles` lists them.
    #[arg(long, default_value = "swarm", value_parser = find_profile)]
    profile: &'static Profile,
    /// Seeds run at a time [default: one per processor]. Results do not depend on it.
    #[arg(long)]
    jobs: Option<usize>,
    /// Write totals to this file as one JSON object.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the schedule of every failure to this directory, for `sim replay --schedule`.
    #[arg(long, value_name = "DIRECTORY")]
    schedules: Option<PathBuf>,
    /// Run each seed twice; if the two runs are not the same, name the first event that differs.
    #[arg(long)]
    twice: bool,
    /// Print every mark with the number of seeds that have reached it.
    #[arg(long)]
    marks: bool,
    /// Fail if a mark of this profile is never reached, however few the seeds. A campaign of
    /// 2,000 seeds of the first profile does so anyway.
    #[arg(long)]
    require_marks: bool,
}

#[derive(Args)]
struct ReplayArgs {
    /// The seed.
    #[arg(required_unless_present = "schedule")]
    seed: Option<u64>,
    /// Replay what this file says instead of what a seed means today; see `sim run --schedules`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "profile"])]
    schedule: Option<PathBuf>,
    /// The profile that it failed in.
    #[arg(long, default_value = "swarm", value_parser = find_profile)]
    profile: &'static Profile,
    /// Print one line per event, with decoded frames.
    #[arg(long)]
    trace: bool,
    /// Run it twice; if the two runs are not the same, name the first event that differs.
    #[arg(long, conflicts_with = "trace")]
    twice: bool,
}

#[derive(Args)]
struct MutantsArgs {
    /// Plant only the bug with this number; may be repeated.
    #[arg(long)]
    only: Vec<u32>,
    /// Plant only bugs that die within some ten seconds of a processor.
    #[arg(long, conflicts_with = "only")]
    fast: bool,
    /// Hunt in this profile instead of each bug's own.
    #[arg(long, value_parser = find_profile)]
    profile: Option<&'static Profile>,
    /// Multiply every budget of seeds by this, as in 10 or 0.5.
    #[arg(long, default_value = "1", value_name = "X", value_parser = find_factor)]
    budget: Factor,
    /// With the product's own asserts, without them, or both.
    #[arg(long, default_value = "on", value_parser = ["on", "off", "both"])]
    asserts: String,
    /// Stop hunting after so many seconds; what lives then is undecided.
    #[arg(long)]
    seconds: Option<u64>,
    /// Write the page with all verdicts to this file (Markdown).
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Write all verdicts to this file as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seeds run at a time [default: one per processor].
    #[arg(long)]
    jobs: Option<usize>,
}

#[derive(Args)]
struct NightlyArgs {
    /// How long, as in 8 or 0.5.
    #[arg(value_parser = find_factor)]
    hours: Factor,
    /// Where its state and its report are; a night that was killed there goes on.
    #[arg(long, default_value = "target/nightly")]
    directory: PathBuf,
    /// The first seed of every profile.
    #[arg(long, default_value_t = 1)]
    start: u64,
    /// What is built, for the report; a night of another commit begins anew.
    #[arg(long, default_value = "unknown")]
    commit: String,
    /// A `sim` with planted bugs; without it, none are hunted.
    #[arg(long, value_name = "PROGRAM")]
    mutants: Option<PathBuf>,
    /// A program that fuzzes, given seconds and a target.
    #[arg(long, value_name = "PROGRAM", requires = "target")]
    fuzz: Option<PathBuf>,
    /// A fuzz target; may be repeated.
    #[arg(long, requires = "fuzz")]
    target: Vec<String>,
    /// Seeds run at a time [default: one per processor].
    #[arg(long)]
    jobs: Option<usize>,
}

/// A decimal number, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Factor(u64);

#[derive(Args)]
struct SeedsArgs {
    /// Where the seed files are.
    #[arg(default_value = "seeds")]
    directory: PathBuf,
}

#[derive(Args)]
struct HistoriesArgs {
    /// Where `verdicts.json` and the histories are.
    directory: PathBuf,
}

#[derive(Args)]
struct ScenarioArgs {
    /// The script, and what it says will happen.
    file: PathBuf,
    /// Print one line per event, with decoded frames.
    #[arg(long)]
    trace: bool,
}

#[derive(Args)]
struct SweepArgs {
    /// The seed of the scenario.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The node that dies.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..3))]
    node: u8,
    /// Where: when a request is submitted or has completed, or only a sync or a rename has.
    #[arg(long, default_value = "submit", value_parser = ["submit", "complete", "sync", "rename"])]
    point: String,
    /// Cut the power instead of killing the process.
    #[arg(long)]
    power: bool,
    /// Only every so-manieth.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
}

fn find_profile(name: &str) -> Result<&'static Profile, String> {
    Profile::find(name).ok_or_else(|| {
        let names: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
        format!("profiles are: {}", names.join(", "))
    })
}

impl Factor {
    fn of(self, budget: u64) -> u64 {
        (budget * self.0 / 1_000).max(1)
    }
}

fn find_factor(text: &str) -> Result<Factor, String> {
    let wrong = || format!("{text} is no factor such as 10 or 0.5");
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    if part.is_empty() || part.len() > 3 {
        return Err(wrong());
    }
    let whole: u32 = whole.parse().map_err(|_| wrong())?;
    let part: u32 = format!("{part:0<3}").parse().map_err(|_| wrong())?;
    Ok(Factor(u64::from(whole) * 1_000 + u64::from(part)))
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    catch_panics();
    match cli.command {
        Command::Run(args) => run(&args),
        Command::Replay(args) => replay(&args),
        Command::Mutants(args) => hunt_mutants(&args),
        Command::Seeds(args) => run_seeds(&args),
        Command::Sweep(args) => run_sweep(&args),
        Command::Scenario(args) => run_scenario(&args),
        Command::Nightly(args) => spend_night(&args),
        Command::Profiles => {
            for profile in &PROFILES {
                say(&report::profile(profile));
            }
            ExitCode::SUCCESS
        }
        Command::Histories(args) => judge_histories(&args),
    }
}

fn run(args: &RunArgs) -> ExitCode {
    let (start, seeds) = args.seed.map_or((args.start, args.seeds), |seed| (seed, 1));
    let bar = progress(seeds);
    let profile = args.profile;
    let jobs = jobs(args.jobs);
    let campaign = Campaign {
        start,
        seeds,
        jobs,
        profile,
        stop_at_failure: false,
        until: None,
        twice: args.twice,
    };
    let summary = campaign.run(|run| {
        bar.inc(1);
        if let Some(failure) = &run.outcome.failure {
            let mut text = report::failure(run.seed, profile, failure);
            if let Some(directory) = &args.schedules {
                text.push_str("\n  schedule ");
                text.push_str(&match History::write(directory, profile, run) {
                    Ok(path) => path,
                    Err(error) => format!("cannot be written: {error}"),
                });
            }
            bar.suspend(|| say(&text));
        }
    });
    bar.finish_and_clear();
    if args.marks {
        say(&summary.marks.table());
    }
    say(&report::marks(&summary, profile));
    say(&report::text(&summary));
    if let Some(path) = &args.json {
        let text = format!("{:#}\n", report::json(&summary, profile, start));
        if let Err(error) = fs::write(path, text) {
            return usage(&format!("cannot write {}: {error}", path.display()));
        }
    }
    let large = seeds >= REQUIRED_FROM && profile.name == PROFILES[0].name;
    let required = args.require_marks || large;
    let vacuous = required && !summary.marks.missed(profile).is_empty();
    verdict(summary.failures.is_empty() && !vacuous)
}

fn replay(args: &ReplayArgs) -> ExitCode {
    let (profile, history) = match (&args.schedule, args.seed) {
        (Some(path), _) => match History::read(path) {
            Ok(read) => read,
            Err(error) => return usage(&format!("cannot read the schedule: {error}")),
        },
        (None, seed) => {
            let seed = seed.expect("clap asks for one of both");
            (args.profile, History::draw(seed, args.profile))
        }
    };
    let run = if args.twice {
        run_twice(&history)
    } else {
        run_history(history, args.trace)
    };
    if let Some(failure) = &run.outcome.failure {
        say(&report::failure(run.seed, profile, failure));
    }
    let statistics = run.outcome.statistics;
    say(&format!(
        "{} events in {} virtual seconds, {} committed ops, {} view changes, {} crashes",
        statistics.events,
        statistics.virtual_micros / 1_000_000,
        statistics.committed_ops,
        statistics.view_changes,
        statistics.crashes
    ));
    say(&format!("digest={}", report::digest(run.outcome.digest)));
    verdict(run.outcome.failure.is_none())
}

fn hunt_mutants(args: &MutantsArgs) -> ExitCode {
    if !mutants::AVAILABLE {
        return usage("this build has no planted bugs; use `cargo sim-mutants`");
    }
    let chosen = |mutant: &&Mutant| {
        let number = mutant.number;
        (args.only.is_empty() || args.only.contains(&number))
            && (!args.fast || mutants::FAST.contains(&number))
    };
    let chosen: Vec<Mutant> = mutants::all().filter(chosen).copied().collect();
    if chosen.is_empty() {
        return usage("no bug has such a number");
    }
    let modes: &[Asserts] = match args.asserts.as_str() {
        "on" => &[Asserts::On],
        "off" => &[Asserts::Off],
        _ => &[Asserts::On, Asserts::Off],
    };
    let until = args
        .seconds
        .map(|limit| Instant::now() + Duration::from_secs(limit));
    say(mutants::HEAD);
    let mut verdicts = Vec::new();
    for mutant in chosen {
        let profile = args.profile.map_or(mutant.profile, |profile| profile.name);
        let budget = args.budget.of(mutant.budget);
        let mutant = Mutant {
            profile,
            budget,
            ..mutant
        };
        let effort = Effort {
            budget,
            jobs: jobs(args.jobs),
            until,
        };
        for mode in modes {
            let verdict = mutants::hunt(mutant, *mode, effort);
            say(&mutants::line(&verdict));
            verdicts.push(verdict);
        }
        // After every bug: a long hunt that is stopped leaves what it knows.
        if let Err(why) = write_verdicts(args, &verdicts) {
            return usage(&why);
        }
    }
    say(&mutants::scores(&verdicts));
    // Without asserts a bug may live; that is what the second score is for.
    let judged = |verdict: &&Verdict| modes.len() == 1 || verdict.asserts == Asserts::On;
    let alive = verdicts.iter().filter(judged).any(|of| of.seeds.is_none());
    verdict(!alive)
}

fn write_verdicts(args: &MutantsArgs, verdicts: &[Verdict]) -> Result<(), String> {
    let budget = match args.budget {
        Factor(1_000) => String::new(),
        Factor(thousandths) => format!(
            " --budget {}.{:03}",
            thousandths / 1_000,
            thousandths % 1_000
        ),
    };
    let command = format!(
        "cargo sim-mutants --asserts {}{budget} --write FILE",
        args.asserts
    );
    let page = mutants::page(verdicts, &command);
    let json = format!("{:#}\n", mutants::json(verdicts));
    for (path, text) in [(&args.write, page), (&args.json, json)] {
        if let Some(path) = path {
            let written = fs::write(path, text);
            written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
    }
    Ok(())
}

fn spend_night(args: &NightlyArgs) -> ExitCode {
    let order = nightly::Order {
        directory: &args.directory,
        budget: Duration::from_millis(args.hours.0 * 3_600),
        start: args.start,
        commit: args.commit.clone(),
        jobs: jobs(args.jobs),
        mutants: args.mutants.clone(),
        fuzz: args.fuzz.clone(),
        targets: args.target.clone(),
    };
    match nightly::run(&order, &say) {
        Ok(green) => verdict(green),
        Err(error) => usage(&format!("the night has ended early: {error}")),
    }
}

fn run_seeds(args: &SeedsArgs) -> ExitCode {
    let regressions = match seeds::read(&args.directory) {
        Ok(regressions) => regressions,
        Err(error) => return usage(&format!("cannot read seeds: {error}")),
    };
    let mut failed = 0;
    for regression in &regressions {
        let Some(profile) = Profile::find(&regression.profile) else {
            return usage(&format!("{}: unknown profile", regression.path.display()));
        };
        let drawn = || History::draw(regression.seed, profile);
        let history = regression.history.clone().unwrap_or_else(drawn);
        let run = run_history(history, false);
        if let Some(failure) = &run.outcome.failure {
            failed += 1;
            say(&format!(
                "{} ({}): {}",
                regression.path.display(),
                regression.check,
                regression.about
            ));
            say(&report::failure(regression.seed, profile, failure));
        }
    }
    say(&format!(
        "{} passed, {failed} failed",
        regressions.len() - failed
    ));
    verdict(failed == 0)
}

fn run_scenario(args: &ScenarioArgs) -> ExitCode {
    let text = match fs::read_to_string(&args.file) {
        Ok(text) => text,
        Err(error) => return usage(&format!("{}: {error}", args.file.display())),
    };
    let scenario = match Scenario::parse(&text) {
        Ok(scenario) => scenario,
        Err(error) => return usage(&format!("{}: {error}", args.file.display())),
    };
    let found = scenario.run_traced(args.trace);
    let as_told = found.as_ref() == Ok(&scenario.expected);
    let (Ok(text) | Err(text)) = found;
    say(&text);
    if !as_told {
        say("This is not what the file says.");
    }
    verdict(as_told)
}

/// The search must be cheap enough to cross-check every partition of every run.
fn search_synthetic() -> bool {
    const CALLS: usize = 10_000;
    const SECONDS_MAX: f64 = 1.0;
    let started = thread_cpu_micros();
    let found = history::measure(CALLS);
    let seconds = report::seconds(thread_cpu_micros() - started);
    say(&format!(
        "a partition of {CALLS} calls: {found:?}, {seconds:.3} CPU s"
    ));
    found == wgl::Verdict::Linearizable && seconds < SECONDS_MAX
}

fn judge_histories(args: &HistoriesArgs) -> ExitCode {
    if !search_synthetic() {
        return verdict(false);
    }
    let directory = args.directory.display();
    if !args.directory.join("verdicts.json").exists() {
        say(&format!("absent, skipped: {directory}"));
        return ExitCode::SUCCESS;
    }
    let started = thread_cpu_micros();
    let judged = match published::judge_all(&args.directory) {
        Ok(judged) => judged,
        Err(error) => return usage(&format!("cannot read histories: {error}")),
    };
    let seconds = report::seconds(thread_cpu_micros() - started);
    let differing = judged.iter().filter(|judged| !judged.agrees());
    for published::Judged {
        file,
        found,
        published,
    } in differing.clone()
    {
        say(&format!(
            "{file}: {found:?}, published as linearizable: {published}"
        ));
    }
    let differing = differing.count();
    say(&format!(
        "{} of {} verdicts as published, {seconds:.2} CPU s",
        judged.len() - differing,
        judged.len()
    ));
    verdict(differing == 0 && !judged.is_empty())
}

fn run_sweep(args: &SweepArgs) -> ExitCode {
    let point = match args.point.as_str() {
        "complete" => Point::Complete,
        "sync" => Point::Sync,
        "rename" => Point::Rename,
        _ => Point::Submit,
    };
    let crash = if args.power {
        Crash::Power
    } else {
        Crash::Process
    };
    let sweep = Sweep {
        seed: args.seed,
        node: args.node,
        point,
        crash,
        every: args.every,
    };
    let swept = sweep.run();
    for (nth, failure) in &swept.failures {
        say(&format!(
            "dying at {point:?} {nth}: {}: {}",
            failure.check, failure.message
        ));
    }
    say(&format!(
        "{} runs, {} failed",
        swept.runs,
        swept.failures.len()
    ));
    verdict(swept.failures.is_empty())
}

fn progress(seeds: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {per_sec}, {eta} left");
    ProgressBar::new(seeds).with_style(style.expect("a valid template"))
}

fn jobs(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| thread::available_parallelism().map_or(1, Into::into))
}

fn verdict(passed: bool) -> ExitCode {
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    }
}

fn usage(message: &str) -> ExitCode {
    eprintln!("error: {message}");
    ExitCode::from(2)
}

/// Prints a line; a reader that has gone away ends the program quietly.
pub(crate) fn say(line: &str) {
    if writeln!(io::stdout().lock(), "{line}").is_err() {
        std::process::exit(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn budgets_are_multiplied_by_decimals() {
        assert_eq!(find_factor("10"), Ok(Factor(10_000)));
        assert_eq!(find_factor("0.25").map(|factor| factor.of(500)), Ok(125));
        assert_eq!(find_factor("0").map(|factor| factor.of(500)), Ok(1));
        for wrong in ["", "x", "1.", "1.2345", "-1", ".5"] {
            assert!(find_factor(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_unknown_profile_is_answered_with_the_known_ones() {
        assert!(find_profile("nonsense").is_err_and(|text| text.contains("partition")));
    }
}
