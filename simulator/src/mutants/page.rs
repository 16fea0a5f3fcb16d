//! The page `docs/mutation-score.md`, written by the hunt and never by hand.

use std::fmt::Write;

use super::{Asserts, Mutant, Origin, Score, Verdict, cpu_seconds, seeds};

/// The page.
pub(crate) fn page(verdicts: &[Verdict], command: &str) -> String {
    let mut text = String::from(
        "# Mutation score\n\n\
         Who checks the checkers: known bugs are planted one at a time, and the simulator must \
         find each within its budget of seeds.\n\
         No product build contains them (feature `planted-bugs`).\n\
         A seed that fails without the bug too catches nothing.\n\
         *Asserts off* means that the product's own invariants are silenced, so that only \
         checkers, liveness and plain panics remain.\n\n",
    );
    let _ = writeln!(
        text,
        "This page is written by `{command}`; do not edit it by hand.\n"
    );
    for (asserts, words) in [
        (Asserts::On, "as the product is"),
        (Asserts::Off, "asserts off"),
    ] {
        let table = Score::of(verdicts, Origin::Table, asserts);
        let own = Score::of(verdicts, Origin::Own, asserts);
        if table.of + own.of > 0 {
            let _ = writeln!(
                text,
                "- {words}: **score {} of {}**, and {} of {} bugs of our own",
                table.killed, table.of, own.killed, own.of
            );
        }
    }
    let cpu: u64 = verdicts.iter().map(|verdict| verdict.cpu_micros).sum();
    let _ = writeln!(text, "- CPU seconds in all: {}", cpu / 1_000_000);
    text.push_str(
        "\nClass: S safety, L liveness, D determinism, R recovery.\n\
         *Seeds* is the first seed that catches the bug, *CPU s* the time until then, *killer* \
         the check that does.\n",
    );
    text.push_str("\n## The table of mutations\n\n");
    section(&mut text, verdicts, Origin::Table);
    if verdicts.iter().any(|verdict| verdict.mutant.is_own()) {
        text.push_str(
            "\n## Bugs of our own\n\n\
             Each was in the product for some hours, until a test or a seed found it.\n\n",
        );
        section(&mut text, verdicts, Origin::Own);
    }
    notes(&mut text, verdicts);
    text
}

fn section(text: &mut String, verdicts: &[Verdict], origin: Origin) {
    text.push_str(
        "| bug | what | class | profile | budget | seeds | CPU s | killer | asserts off: seeds | \
         CPU s | killer |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for mutant in mutants(verdicts) {
        if mutant.is_own() != (origin == Origin::Own) {
            continue;
        }
        let cells = |asserts| {
            let found = verdicts.iter().find(|verdict| {
                verdict.mutant.number == mutant.number && verdict.asserts == asserts
            });
            found.map_or_else(
                || "| | ".into(),
                |of| format!("{} | {} | {}", seeds(of), cpu_seconds(of), of.killer),
            )
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            mutant.number,
            mutant.what,
            mutant.class,
            mutant.profile,
            mutant.budget,
            cells(Asserts::On),
            cells(Asserts::Off),
        );
    }
}

fn notes(text: &mut String, verdicts: &[Verdict]) {
    let adapted: Vec<(u32, &str)> = mutants(verdicts)
        .into_iter()
        .filter_map(|mutant| Some((mutant.number, mutant.adapted?)))
        .collect();
    if adapted.is_empty() {
        return;
    }
    text.push_str("\n## Adapted\n\nBugs whose literal form cannot exist in this design.\n\n");
    for (number, why) in adapted {
        let _ = writeln!(text, "- **{number}**: {why}");
    }
}

/// The bugs hunted, each once, by number.
fn mutants(verdicts: &[Verdict]) -> Vec<Mutant> {
    let mut mutants: Vec<Mutant> = verdicts.iter().map(|verdict| verdict.mutant).collect();
    mutants.sort_by_key(|mutant| mutant.number);
    mutants.dedup_by_key(|mutant| mutant.number);
    mutants
}

#[cfg(test)]
mod tests {
    use super::{super::all, *};

    #[test]
    fn the_page_has_a_row_per_bug_with_both_modes_and_a_note_per_adapted_one() {
        let verdict = |number, asserts, seeds, killer| Verdict {
            mutant: *all().find(|mutant| mutant.number == number).expect("there"),
            asserts,
            seeds,
            killer,
            cpu_micros: 3_400_000,
        };
        let verdicts = [
            verdict(6, Asserts::On, Some(9), "committed"),
            verdict(6, Asserts::Off, None, "-"),
            verdict(37, Asserts::On, Some(2), "assert"),
        ];
        let page = page(&verdicts, "cargo sim-mutants");
        for part in [
            "as the product is: **score 1 of 1**, and 1 of 1 bugs of our own",
            "asserts off: **score 0 of 1**, and 0 of 0",
            "| 500 | 9 | 3.4 | committed | alive | 3.4 | - |",
            "## Bugs of our own",
            "| 2 | 3.4 | assert | | |  |",
            "- **6**: ",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
    }
}
