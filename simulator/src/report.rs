//! What the command line prints and writes about runs.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use serde_json::{Value, json};

use crate::{check::Failure, marks::REQUIRED_FROM, profile::Profile, runner::Summary};

/// A failure, with everything needed to see it again.
pub(crate) fn failure(seed: u64, profile: &Profile, failure: &Failure) -> String {
    let Failure {
        check,
        time,
        message,
    } = failure;
    let name = profile.name;
    let replay = replay(seed, profile);
    format!(
        "seed {seed} failed\n  profile  {name}\n  check    {check}\n  \
         time     {}.{:06} s (virtual)\n  \
         message  {message}\n  replay   {replay}",
        time / 1_000_000,
        time % 1_000_000,
    )
}

/// A profile's name and its paragraph.
pub(crate) fn profile(profile: &Profile) -> String {
    let mut text = String::from(profile.name);
    let mut column = usize::MAX;
    for word in profile.about.split_whitespace() {
        if column.saturating_add(1 + word.len()) > 90 {
            text.push_str("\n   ");
            column = 3;
        }
        text.push(' ');
        text.push_str(word);
        column += 1 + word.len();
    }
    text
}

/// The command that shows a run again.
pub(crate) fn replay(seed: u64, profile: &Profile) -> String {
    format!("cargo sim replay {seed} --profile {}", profile.name)
}

/// The object that `--json` writes.
pub(crate) fn json(summary: &Summary, profile: &Profile, start: u64) -> Value {
    let total = &summary.total;
    let failed: Vec<Value> = summary
        .failures
        .iter()
        .map(|(seed, failure)| {
            json!({
                "seed": seed,
                "check": failure.check,
                "time_micros": failure.time,
                "message": failure.message,
            })
        })
        .collect();
    json!({
        "profile": profile.name,
        "first_seed": start,
        "runs": summary.runs,
        "failures": summary.failures.len(),
        "failed": failed,
        "committed_ops": total.committed_ops,
        "runs_without_commits": summary.runs_without_commits,
        "simulated_seconds": seconds(total.virtual_micros),
        "cpu_seconds": seconds(summary.cpu_micros),
        "crashes": total.crashes,
        "restarts": total.restarts,
        "power_losses": total.power_losses,
        "wipes": total.wipes,
        "damages": total.damages,
        "pauses": total.pauses,
        "cuts": total.cuts,
        "resets": total.resets,
        "view_changes": total.view_changes,
        "calls": total.calls,
        "calls_done": total.calls_done,
        "calls_unknown": total.calls_unknown,
        "calls_refused": total.calls_refused,
        "events": total.events,
        "objects_searched": total.objects_searched,
        "objects_undecided": total.objects_undecided,
        "peak_memory_bytes": summary.memory_peak,
        "digest": digest(summary.digest),
        "marks": summary.marks.all().collect::<BTreeMap<_, _>>(),
        "marks_missed": summary.marks.missed(profile),
    })
}

/// Says how many marks were reached and names those that were not.
pub(crate) fn marks(summary: &Summary, profile: &Profile) -> String {
    let all = summary.marks.all();
    let (count, reached) = all.fold((0, 0), |(count, reached), (_, seeds)| {
        (count + 1, reached + usize::from(seeds > 0))
    });
    let mut text = format!("{reached} of {count} marks reached");
    let missed = summary.marks.missed(profile);
    // A handful of seeds misses most; the table of `--marks` has them all.
    let shown = if summary.runs < REQUIRED_FROM / 10 {
        3
    } else {
        missed.len()
    };
    for mark in missed.iter().take(shown) {
        text.push_str("\n  never reached: ");
        text.push_str(mark);
    }
    if missed.len() > shown {
        let _ = write!(text, "\n  and {} more", missed.len() - shown);
    }
    text
}

/// The lines after a campaign.
pub(crate) fn text(summary: &Summary) -> String {
    let total = &summary.total;
    let per_cpu_second = |count: u64| {
        let micros = u128::from(summary.cpu_micros.max(1));
        u128::from(count) * 1_000_000 / micros
    };
    let virtual_seconds = total.virtual_micros / 1_000_000;
    format!(
        "{} committed ops, {virtual_seconds} virtual seconds, {} crashes, {} power losses, \
         {} view changes\n{} runs, {} committed ops, {} virtual seconds per CPU second; \
         peak {} KiB a run\n{} passed, {} failed",
        total.committed_ops,
        total.crashes,
        total.power_losses,
        total.view_changes,
        per_cpu_second(summary.runs),
        per_cpu_second(total.committed_ops),
        per_cpu_second(virtual_seconds),
        summary.memory_peak / 1024,
        summary.runs - summary.failures.len() as u64,
        summary.failures.len(),
    )
}

/// A digest as everyone writes it.
pub(crate) fn digest(digest: u64) -> String {
    format!("{digest:016x}")
}

/// Seconds for reports.
pub(crate) fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::PROFILES;

    #[test]
    fn a_failure_says_how_to_see_it_again() {
        let seen = Failure {
            check: "linear",
            time: 1_500_000,
            message: "why".into(),
        };
        let text = failure(7, &PROFILES[0], &seen);
        for part in [
            "seed 7",
            "linear",
            "1.500000",
            "cargo sim replay 7 --profile swarm",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn the_object_has_what_campaigns_are_judged_by() {
        let value = json(&Summary::default(), &PROFILES[0], 1);
        for key in [
            "runs",
            "failures",
            "committed_ops",
            "simulated_seconds",
            "cpu_seconds",
            "crashes",
            "restarts",
            "power_losses",
            "view_changes",
            "peak_memory_bytes",
            "digest",
            "marks",
            "marks_missed",
        ] {
            assert!(!value[key].is_null(), "{key}");
        }
    }
}
