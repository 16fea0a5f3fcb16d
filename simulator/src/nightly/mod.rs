//! A night: every profile by weight, each fuzz target and the mutation score within so many
//! hours, in slices that survive a kill, with one report.
//!
//! **Invariant:** a slice counts when it is written down; before that it has not happened.

mod plan;
mod report;
mod state;

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;

use self::{
    plan::{ATTEMPTS_MAX, SLICE_SECONDS, Slice},
    state::{Found, Night},
};
use crate::{
    history::History,
    profile::Profile,
    report as lines,
    runner::{Campaign, Summary},
};

/// What a night is asked for.
pub(crate) struct Order<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) budget: Duration,
    pub(crate) start: u64,
    pub(crate) commit: String,
    pub(crate) jobs: usize,
    /// A build with planted bugs.
    pub(crate) mutants: Option<PathBuf>,
    /// A command that takes seconds and a target.
    pub(crate) fuzz: Option<PathBuf>,
    pub(crate) targets: Vec<String>,
}

/// Runs, or goes on with, a night; whether it is green.
pub(crate) fn run(order: &Order<'_>, say: &dyn Fn(&str)) -> io::Result<bool> {
    fs::create_dir_all(order.directory)?;
    let mut night = begin(order, say)?;
    night.processes += 1;
    night.write(order.directory)?;
    while night.elapsed() < night.budget {
        let Some(slice) = night.next() else { break };
        if night.current.as_ref() == Some(&slice) {
            night.attempts += 1;
        } else {
            night.attempts = 1;
        }
        night.current = Some(slice.clone());
        night.write(order.directory)?;
        let remaining = Duration::from_millis(night.budget - night.elapsed());
        let limit = remaining.min(Duration::from_secs(SLICE_SECONDS));
        match &slice {
            _ if night.attempts > ATTEMPTS_MAX => give_up(&mut night, &slice),
            Slice::Seeds { profile, first } => seeds(order, &mut night, profile, *first, limit)?,
            Slice::Fuzz { target } => fuzz(order, &mut night, target, limit)?,
            Slice::Bug { number } => bug(order, &mut night, *number, remaining)?,
        }
        night.current = None;
        night.write(order.directory)?;
        night.report(order.directory)?;
    }
    night.report(order.directory)?;
    Night::forget(order.directory)?;
    let red = night.red();
    let verdict = if red.is_empty() {
        "green".into()
    } else {
        format!("red: {}", red.join(", "))
    };
    say(&format!(
        "{verdict}; the report is {}",
        order.directory.join("report.md").display()
    ));
    Ok(red.is_empty())
}

/// The night to go on with, or a new one.
fn begin(order: &Order<'_>, say: &dyn Fn(&str)) -> io::Result<Night> {
    if let Some(night) = Night::read(order.directory)? {
        if night.commit == order.commit {
            say(&format!(
                "going on after {} of {} s",
                night.elapsed() / 1_000,
                night.budget / 1_000
            ));
            return Ok(night);
        }
        say(&format!("what is left of {} is dropped", night.commit));
    }
    Ok(Night {
        commit: order.commit.clone(),
        budget: u64::try_from(order.budget.as_millis()).unwrap_or(u64::MAX),
        start: order.start,
        targets: order.targets.clone(),
        hunts: order.mutants.is_some(),
        ..Night::default()
    })
}

/// A slice that has taken the process down several times is left out, and told.
fn give_up(night: &mut Night, slice: &Slice) {
    let (what, replay) = match slice {
        Slice::Seeds { profile, first } => {
            let tally = night.profiles.entry(profile.clone()).or_default();
            tally.next = first + 1;
            // So that the slice counts as work, however often it is given up.
            tally.spent.wall += 1_000;
            (
                format!("seeds of {profile}"),
                format!("cargo sim run --start {first} --profile {profile}"),
            )
        }
        Slice::Fuzz { target } => {
            night.targets.retain(|other| other != target);
            (
                format!("fuzz target {target}"),
                format!("ci/fuzz-short 30 {target}"),
            )
        }
        Slice::Bug { number } => {
            night.hunted.insert(*number);
            (
                format!("planted bug {number}"),
                format!("cargo sim-mutants --only {number} --asserts both"),
            )
        }
    };
    night.failures.push(Found {
        what,
        message: format!("the process died {ATTEMPTS_MAX} times in it"),
        replay,
    });
}

fn seeds(
    order: &Order<'_>,
    night: &mut Night,
    name: &str,
    first: u64,
    limit: Duration,
) -> io::Result<()> {
    let profile = Profile::find(name)
        .ok_or_else(|| io::Error::other(format!("the profile {name} is gone")))?;
    let begun = Instant::now();
    let campaign = Campaign {
        start: first,
        seeds: u64::MAX - first,
        jobs: order.jobs,
        profile,
        stop_at_failure: false,
        twice: false,
        until: Some(begun + limit),
    };
    let schedules = order.directory.join("schedules");
    let summary: Summary = campaign.run(|run| {
        if run.outcome.failure.is_some() {
            // A schedule that cannot be written is no reason to lose the night; the seed is kept.
            let _ = History::write(&schedules, profile, run);
        }
    });
    for (seed, failure) in &summary.failures {
        night.failures.push(Found {
            what: format!("{} in {name}", failure.check),
            message: failure.message.clone(),
            replay: lines::replay(*seed, profile),
        });
    }
    let tally = night.profiles.entry(name.into()).or_default();
    tally.next = first + summary.runs;
    tally.runs += summary.runs;
    tally.failed += summary.failures.len() as u64;
    tally.committed_ops += summary.total.committed_ops;
    tally.crashes += summary.total.crashes;
    tally.simulated_seconds += summary.total.virtual_micros / 1_000_000;
    tally.spent.wall += millis(begun);
    tally.spent.cpu += summary.cpu_micros / 1_000;
    for (mark, seeds) in summary.marks.all().filter(|(_, seeds)| *seeds > 0) {
        *tally.marks.entry(mark.into()).or_default() += seeds;
    }
    Ok(())
}

fn fuzz(order: &Order<'_>, night: &mut Night, target: &str, limit: Duration) -> io::Result<()> {
    let command = order.fuzz.as_ref().expect("targets come with a command");
    let begun = Instant::now();
    let seconds = limit.as_secs().max(1).to_string();
    let passed = succeeds(command, &[seconds.as_ref(), target.as_ref()])?;
    let fuzzed = night.fuzz.entry(target.into()).or_default();
    fuzzed.spent.wall += millis(begun);
    fuzzed.slices += 1;
    if !passed {
        fuzzed.failed += 1;
        let found = Found {
            what: format!("fuzz target {target}"),
            message: format!("what breaks it is in fuzz/artifacts/{target}"),
            replay: format!("ci/fuzz-short 30 {target}"),
        };
        if !night.failures.contains(&found) {
            night.failures.push(found);
        }
    }
    Ok(())
}

fn bug(order: &Order<'_>, night: &mut Night, number: u32, limit: Duration) -> io::Result<()> {
    let program = order
        .mutants
        .as_ref()
        .expect("bugs are hunted with a build");
    let begun = Instant::now();
    let file = order.directory.join("bug.json");
    let (number_text, seconds) = (number.to_string(), limit.as_secs().max(1).to_string());
    let jobs = order.jobs.to_string();
    let arguments: [&OsStr; 11] = [
        "mutants".as_ref(),
        "--only".as_ref(),
        number_text.as_ref(),
        "--asserts".as_ref(),
        "both".as_ref(),
        "--seconds".as_ref(),
        seconds.as_ref(),
        "--jobs".as_ref(),
        jobs.as_ref(),
        "--json".as_ref(),
        file.as_ref(),
    ];
    // That a bug lives is a verdict, too; what counts is what the file says.
    succeeds(program, &arguments)?;
    let text = fs::read_to_string(&file)?;
    let rows: Vec<Value> = serde_json::from_str(&text).map_err(io::Error::other)?;
    fs::remove_file(&file)?;
    for row in &rows {
        let killed = !row["seeds"].is_null();
        if !killed && row["asserts"] == true && row["killer"] != "time" {
            night.failures.push(Found {
                what: format!("planted bug {number}"),
                message: format!("lives through its budget: {}", row["what"]),
                replay: format!("cargo sim-mutants --only {number}"),
            });
        }
    }
    night.verdicts.extend(rows);
    night.hunted.insert(number);
    night.bugs_spent.wall += millis(begun);
    Ok(())
}

fn succeeds(program: &Path, arguments: &[&OsStr]) -> io::Result<bool> {
    let output = Command::new(program).args(arguments).output();
    let output = output
        .map_err(|error| io::Error::other(format!("cannot run {}: {error}", program.display())))?;
    Ok(output.status.success())
}

fn millis(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}
