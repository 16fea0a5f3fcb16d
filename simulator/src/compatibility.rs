//! `docs/compatibility.md`: every command of the protocol and what exercises it.
//!
//! Nothing in it is a claim. Golden vectors are looked for in their file, answers of the published
//! clients' suites in the records that these suites write and compare, and what the workload
//! asks under faults in the marks of a few seeds run here. A command that one of them leaves out
//! needs its reason below; a reason that is no longer needed fails too. `UPDATE=1` rewrites the
//! page.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use wire::Code;

use crate::{profile::PROFILES, runner::run_seed};

/// Enough for every command of the workload.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=40;

const COLUMNS: [&str; 5] = ["vector", "model", "SDK", "CLI", "Python"];

const OLD_LOGIN: &str = "of before 0.11: it has no body there and is answered with an eviction, \
                         in `crates/server/tests/server/sessions.rs`";
const ROUTED: &str = "only clients of several nodes ask this, and these go through one";
const NO_LOGOUT: &str = "our client ends its connection instead; `crates/server/tests/server`";
const NO_VERB: &str = "the client has no verb for it";

/// Why a column leaves out a command. `*` stands for all columns.
const HOLES: &[(Code, &str, &str)] = &[
    (Code::LoginUser, "*", OLD_LOGIN),
    (Code::LoginWithPersonalAccessToken, "*", OLD_LOGIN),
    (Code::Logout, "model", NO_LOGOUT),
    (Code::AttachConsumerSession, "CLI", ROUTED),
    (Code::AttachConsumerSession, "Python", ROUTED),
    (Code::PollRouting, "CLI", ROUTED),
    (Code::PollRouting, "Python", ROUTED),
    (Code::PollOnPrimary, "CLI", ROUTED),
    (Code::PollOnPrimary, "Python", ROUTED),
    (Code::ConsumerOffsetRouting, "CLI", ROUTED),
    (Code::ConsumerOffsetRouting, "Python", ROUTED),
    (Code::DeleteConsumerOffset, "CLI", NO_VERB),
    (Code::JoinConsumerGroup, "CLI", NO_VERB),
    (Code::LeaveConsumerGroup, "CLI", NO_VERB),
    (Code::SyncConsumerGroup, "CLI", NO_VERB),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Commands of which there is a golden request.
fn with_vectors() -> BTreeSet<u32> {
    let text = read("crates/wire/vectors/iggy-0.11.0.json");
    let all: serde_json::Value = serde_json::from_str(&text).expect("vectors are JSON");
    let vectors = all["vectors"].as_array().expect("a list");
    let requests = vectors.iter().filter(|vector| vector["kind"] == "request");
    let code = |vector: &serde_json::Value| vector["decoded"]["code"].as_u64();
    requests
        .filter_map(|vector| u32::try_from(code(vector)?).ok())
        .collect()
}

/// Commands that the suite of a client has had answered or refused.
fn in_record(suite: &str) -> BTreeMap<u32, String> {
    let text = read(&format!("crates/interop/records/{suite}.txt"));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (code, outcome) = line.split_once(' ').expect("a code and its outcome");
            (code.parse().expect("a number"), outcome.to_owned())
        })
        .collect()
}

/// Commands that clients of the simulator were answered.
fn in_simulation() -> BTreeSet<&'static str> {
    SEEDS
        .flat_map(|seed| run_seed(seed, &PROFILES[0], false).reached)
        .filter_map(|mark| mark.strip_prefix("command: "))
        .collect()
}

type Cells = [Option<String>; COLUMNS.len()];

/// What exercises each command, in the order of the columns.
fn cells() -> Vec<(Code, Cells)> {
    let vectors = with_vectors();
    let simulated = in_simulation();
    let [sdk, cli, python] = ["sdk", "cli", "python"].map(in_record);
    let yes = |it: bool| it.then(|| "yes".to_owned());
    let row = |code: &Code| {
        let number = code.number();
        let cells = [
            yes(vectors.contains(&number)),
            yes(simulated.contains(code.name())),
            sdk.get(&number).cloned(),
            cli.get(&number).cloned(),
            python.get(&number).cloned(),
        ];
        (*code, cells)
    };
    Code::ALL.iter().map(row).collect()
}

fn reason(code: Code, column: &str) -> Option<&'static str> {
    let covers = |hole: &&(Code, &str, &str)| hole.0 == code && ["*", column].contains(&hole.1);
    HOLES.iter().find(covers).map(|(_, _, reason)| *reason)
}

/// The page, and what is wrong with it: holes without a reason, reasons without a hole.
fn page() -> (String, Vec<String>) {
    let mut text = HEAD.to_owned();
    let mut notes: Vec<&str> = Vec::new();
    let mut wrong = Vec::new();
    for (code, cells) in cells() {
        let _ = write!(text, "| {} | `{}` |", code.number(), code.name());
        for (column, cell) in COLUMNS.into_iter().zip(cells) {
            match (cell, reason(code, column)) {
                (Some(cell), None) => {
                    let _ = write!(text, " {cell} |");
                }
                (None, Some(reason)) => {
                    let known = notes.iter().position(|note| *note == reason);
                    let number = known.unwrap_or_else(|| {
                        notes.push(reason);
                        notes.len() - 1
                    });
                    let _ = write!(text, " - ({}) |", number + 1);
                }
                (Some(_), Some(_)) => wrong.push(format!("{code:?} has {column} after all")),
                (None, None) => wrong.push(format!("{code:?} has no {column}, and no reason")),
            }
        }
        text.push('\n');
    }
    text.push_str("\nWhy some are left out:\n\n");
    for (number, note) in notes.iter().enumerate() {
        let _ = writeln!(text, "{}. {note}.", number + 1);
    }
    (text, wrong)
}

const HEAD: &str = "\
# Compatibility

Every command of protocol 0.11.0 and what exercises it.
The page is written by a test of the simulator (`UPDATE=1 cargo test -p simulator --lib compatibility`) from facts; do not edit it by hand.

- *vector*: a golden request, decoded and encoded in `crates/wire/tests/vectors`.
- *model*: the workload of the simulator asks it under faults, and the answer is held against a model.
- *SDK*, *CLI*, *Python*: the suites of the published clients `iggy` 0.11.0, `iggy-cli` 0.14.0 and `apache-iggy` 0.9.0, as their records in `crates/interop/records` say: *answered* at least once with what was asked for, or only ever *refused*, as Iggy 0.11 does too.

| code | command | vector | model | SDK | CLI | Python |
|---|---|---|---|---|---|---|
";

#[test]
fn the_page_says_what_exercises_each_command() {
    let (text, wrong) = page();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let path = root().join("docs/compatibility.md");
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, &text).expect("the page can be written");
    }
    let known = read("docs/compatibility.md");
    assert!(
        text == known,
        "UPDATE=1 rewrites the page; it is now\n{text}"
    );
}
