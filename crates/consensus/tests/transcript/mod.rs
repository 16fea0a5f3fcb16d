//! Scenario files: what one says, what its cluster does, and the transcript of both.
//!
//! `scenarios/README.md` explains the format and every verb. A script is checked as a whole
//! before its first step, so a misspelt one neither runs nor is rewritten.

pub(crate) mod diff;

use core::time::Duration;

use base::Op;
use consensus::Trust;

use crate::cluster::{Cluster, Crash, Mode};

/// The line between the script and the transcript.
const RULE: &str = "----";

/// A scenario file, understood.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// All of the file up to the rule, and the rule.
    pub(crate) head: String,
    /// What the file says happens.
    pub(crate) expected: String,
    count: usize,
    mode: Mode,
    trust: Trust,
    steps: Vec<Step>,
}

/// One line of a script.
#[derive(Debug)]
struct Step {
    verb: String,
    numbers: Vec<usize>,
}

/// A verb, and the numbers that follow it.
struct Verb {
    name: &'static str,
    /// First so many replicas,
    replicas: usize,
    /// then so many numbers that must be there,
    numbers: usize,
    /// and then one that need not.
    times: bool,
}

const fn verb(name: &'static str, replicas: usize, numbers: usize, times: bool) -> Verb {
    Verb {
        name,
        replicas,
        numbers,
        times,
    }
}

const VERBS: [Verb; 26] = [
    verb("prepare", 1, 0, true),
    verb("deliver", 2, 0, true),
    verb("lose", 2, 0, false),
    verb("forge", 2, 2, false),
    verb("write", 1, 0, false),
    verb("sync", 1, 0, false),
    verb("durable", 1, 0, false),
    verb("store", 1, 0, false),
    verb("serve", 1, 0, false),
    verb("beat", 1, 0, false),
    verb("timers", 1, 0, false),
    verb("suspect", 1, 0, false),
    verb("abdicate", 1, 0, false),
    verb("crash", 1, 0, true),
    verb("power", 1, 0, true),
    verb("restart", 1, 0, false),
    verb("damage", 1, 1, false),
    verb("wipe", 1, 0, false),
    verb("mend", 2, 0, false),
    verb("cut", 2, 0, false),
    verb("connect", 2, 0, false),
    verb("isolate", 1, 0, false),
    verb("rejoin", 1, 0, false),
    verb("pass", 0, 1, false),
    verb("run", 0, 0, false),
    verb("state", 0, 0, false),
];

impl Scenario {
    /// Reads a file's text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if !text
            .strip_prefix("# ")
            .is_some_and(|goal| goal.starts_with(|first: char| !first.is_whitespace()))
        {
            return Err("the first line must be `# goal and method`".into());
        }
        let (script, expected) = text
            .split_once(&format!("\n{RULE}\n"))
            .ok_or_else(|| format!("no line `{RULE}` ends the script"))?;
        let mut lines = script
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line.trim()))
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let (number, line) = lines.next().ok_or("no line `cluster 3 persisted`")?;
        let (count, mode, trust) =
            cluster(line).map_err(|error| format!("line {number}: {error}"))?;
        let steps = lines
            .map(|(number, line)| {
                Step::parse(line, count).map_err(|error| format!("line {number}: {error}"))
            })
            .collect::<Result<Vec<Step>, String>>()?;
        if steps.is_empty() {
            return Err("nothing happens".into());
        }
        Ok(Self {
            head: format!("{script}\n{RULE}\n"),
            expected: expected.into(),
            count,
            mode,
            trust,
            steps,
        })
    }

    /// A new cluster runs the script; each line is followed by what it caused.
    pub(crate) fn run(&self) -> String {
        let mut cluster = Cluster::new(self.count, self.mode, self.trust, 1);
        cluster.trace = Some(Vec::new());
        for step in &self.steps {
            let trace = cluster.trace.as_mut().expect("traced");
            trace.push(step.to_string());
            act(&mut cluster, &step.verb, &step.numbers);
        }
        let lines = cluster.trace.take().expect("traced");
        lines.join("\n") + "\n"
    }
}

/// `cluster 3 persisted`, or `cluster 3 persisted blank`.
fn cluster(line: &str) -> Result<(usize, Mode, Trust), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (count, mode, trust) = match words[..] {
        ["cluster", count, mode] => (count, mode, Trust::Trusted),
        ["cluster", count, mode, "blank"] => (count, mode, Trust::Blank),
        _ => return Err(format!("`{line}` is not like `cluster 3 persisted`")),
    };
    let count = count
        .parse()
        .ok()
        .filter(|count| (1..=6).contains(count))
        .ok_or_else(|| format!("a cluster of {count} replicas"))?;
    match mode {
        "persisted" => Ok((count, Mode::Persisted, trust)),
        "replicated" => Ok((count, Mode::Replicated, trust)),
        _ => Err(format!("no mode `{mode}`")),
    }
}

impl Step {
    fn parse(line: &str, count: usize) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let verb = VERBS.iter().find(|verb| verb.name == name);
        let verb = verb.ok_or_else(|| format!("no verb `{name}`"))?;
        let numbers = words
            .map(|word| word.parse().map_err(|_| format!("`{word}` is no number")))
            .collect::<Result<Vec<usize>, String>>()?;
        let fewest = verb.replicas + verb.numbers;
        if !(fewest..=fewest + usize::from(verb.times)).contains(&numbers.len()) {
            return Err(format!("`{line}`: too few numbers, or too many"));
        }
        let replicas = &numbers[..verb.replicas];
        if let Some(replica) = replicas.iter().find(|replica| **replica >= count) {
            return Err(format!("`{line}`: no replica {replica}"));
        }
        if let [from, to] = replicas
            && from == to
        {
            return Err(format!("`{line}`: no link from {from} to itself"));
        }
        Ok(Self {
            verb: name.into(),
            numbers,
        })
    }
}

impl core::fmt::Display for Step {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.verb)?;
        self.numbers
            .iter()
            .try_for_each(|number| write!(f, " {number}"))
    }
}

fn act(cluster: &mut Cluster, verb: &str, numbers: &[usize]) {
    match (verb, numbers) {
        ("run", []) => quietly(cluster, |cluster| cluster.run(100)),
        ("pass", [millis]) => {
            let time = Duration::from_millis(*millis as u64);
            quietly(cluster, |cluster| cluster.pass(time));
        }
        ("state", []) => {
            let state = cluster.state();
            cluster.trace.as_mut().expect("traced").push(state);
        }
        ("deliver", [from, to]) => while cluster.deliver(*from, *to) {},
        ("deliver", [from, to, count]) => {
            for _ in 0..*count {
                assert!(cluster.deliver(*from, *to), "nothing to deliver");
            }
        }
        ("lose", [from, to]) => while cluster.lose(*from, *to) {},
        ("cut", [from, to]) => cluster.cut(*from, *to),
        ("mend", [index, other]) => cluster.mend(*index, *other),
        ("damage", [index, op]) => {
            assert!(cluster.damage(*index, Op(*op as u64)), "nothing to damage");
        }
        ("connect", [a, b]) => cluster.connect(*a, *b),
        ("forge", [from, to, op, view]) => {
            let view = u32::try_from(*view).expect("small");
            cluster.forge(*from, *to, *op as u64, view);
        }
        (_, [index, rest @ ..]) => act_alone(cluster, verb, *index, rest.first().copied()),
        _ => unreachable!("all verbs were checked"),
    }
}

/// What one replica does, or what befalls it.
fn act_alone(cluster: &mut Cluster, verb: &str, index: usize, times: Option<usize>) {
    let now = cluster.now;
    match verb {
        "prepare" => {
            for _ in 0..times.unwrap_or(1) {
                if !cluster.prepare(index) {
                    cluster.say(|| format!("{index} may not prepare"));
                }
            }
        }
        "write" => drop(cluster.write(index)),
        "sync" => drop(cluster.sync(index)),
        "durable" => while cluster.write(index) | cluster.sync(index) {},
        "store" => drop(cluster.store(index)),
        "serve" => while cluster.serve(index) {},
        "beat" => drop(cluster.heartbeat(index)),
        "timers" => cluster.timers(index),
        "suspect" => cluster.suspect(index),
        "abdicate" => cluster.act(index, |group, out| group.abdicate(now, out)),
        "crash" => cluster.crash(index, Crash::Process, times.unwrap_or(0)),
        "power" => cluster.crash(index, Crash::Power, times.unwrap_or(0)),
        "restart" => cluster.restart(index),
        "wipe" => cluster.wipe(index),
        "isolate" => each_other(cluster, index, |cluster, other| {
            cluster.cut(index, other);
            cluster.cut(other, index);
        }),
        "rejoin" => each_other(cluster, index, |cluster, other| {
            cluster.connect(index, other);
        }),
        _ => unreachable!("all verbs were checked"),
    }
}

fn each_other(cluster: &mut Cluster, index: usize, act: impl Fn(&mut Cluster, usize)) {
    for other in (0..cluster.count()).filter(|other| *other != index) {
        act(cluster, other);
    }
}

/// Messages are left out, the rest is told.
fn quietly(cluster: &mut Cluster, act: impl FnOnce(&mut Cluster)) {
    cluster.quiet = true;
    act(cluster);
    cluster.quiet = false;
}
