//! Whole-cluster scenarios: a script whose faults are given, and the transcript of what clients
//! are told and replicas say of themselves.
//!
//! The seed is fixed and decides delays only. All checkers of a drawn run listen, and after the
//! script everything heals, must converge, serve, and hold what was ever acknowledged.
//! `scenarios/README.md` lists the verbs.

mod run;
mod verbs;

use crate::profile::{Durability, Profile, Shape};

/// A file of `scenarios/cluster`.
#[derive(Clone, Debug)]
pub struct Scenario {
    shape: Shape,
    steps: Vec<Step>,
    /// The file up to the transcript, the rule included.
    pub head: String,
    /// What the file says will happen.
    pub expected: String,
}

/// A line of a script.
#[derive(Clone, Debug)]
struct Step {
    number: usize,
    words: Vec<String>,
}

/// Ends the script.
const RULE: &str = "----\n";

impl Scenario {
    /// Reads a file.
    ///
    /// # Errors
    /// Says what is wrong with it, and in which line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (script, expected) = text.split_once(RULE).ok_or("no rule `----`")?;
        if !script.starts_with("# ") {
            return Err("the first line is no sentence".into());
        }
        let lines = (1..).zip(script.lines());
        let mut steps = lines.filter_map(|(number, line)| {
            let words = line.split_whitespace().map(String::from);
            let words: Vec<String> = words.collect();
            let is_step = !words.is_empty() && !line.starts_with('#');
            is_step.then_some(Step { number, words })
        });
        let cluster = steps.next().ok_or("nothing happens")?;
        let shape = shape(&cluster.words).map_err(|error| cluster.error(&error))?;
        let steps: Vec<Step> = steps.collect();
        for step in &steps {
            verbs::check(&step.words).map_err(|error| step.error(&error))?;
        }
        if steps.is_empty() {
            return Err("nothing happens".into());
        }
        Ok(Self {
            shape,
            steps,
            head: format!("{script}{RULE}"),
            expected: expected.into(),
        })
    }

    /// Runs it to its end; the transcript.
    ///
    /// # Errors
    /// Says which step could not be done, or which check has failed, after what was told before.
    pub fn run(&self) -> Result<String, String> {
        self.run_traced(false)
    }

    /// As before; with `trace`, every event is printed as it happens.
    pub(crate) fn run_traced(&self, trace: bool) -> Result<String, String> {
        run::Runner::new(self.shape.clone(), trace).run(&self.steps)
    }
}

impl Step {
    fn error(&self, error: &str) -> String {
        format!("line {}: `{}`: {error}", self.number, self.words.join(" "))
    }
}

/// `cluster 3 persisted shards 1 clients 2 seed 1 sessions 1 broken`
fn shape(words: &[String]) -> Result<Shape, String> {
    let number = |at: usize| {
        let word = words.get(at).ok_or("a number is missing")?;
        word.parse::<u8>()
            .map_err(|_| format!("{word} is no number"))
    };
    if words[0] != "cluster" {
        return Err("a script begins with `cluster`".into());
    }
    let replicas = number(1)?;
    let (mut shards, mut clients, mut seed, mut sessions) = (1, 2, 1, 0);
    let (mut persisted, mut broken) = (true, false);
    let mut at = 2;
    while let Some(word) = words.get(at) {
        match word.as_str() {
            "persisted" => persisted = true,
            "replicated" => persisted = false,
            "broken" => broken = true,
            "shards" => shards = number(at + 1)?,
            "clients" => clients = number(at + 1)?,
            "seed" => seed = number(at + 1)?,
            "sessions" => sessions = number(at + 1)?,
            other => return Err(format!("no clusters are {other}")),
        }
        let has_number = ["shards", "clients", "seed", "sessions"].contains(&word.as_str());
        at += if has_number { 2 } else { 1 };
    }
    if !(1..=7).contains(&replicas) || !(1..=8).contains(&shards) || clients == 0 {
        return Err("1 to 7 replicas, 1 to 8 shards, some clients".into());
    }
    let quiet = Profile::find("quiet").expect("it is there");
    let mut shape = Shape::draw(u64::from(seed), quiet);
    shape.replicas = replicas;
    shape.shards = shards.into();
    shape.clients = clients;
    shape.disks = vec![crate::disk::DiskSpeed::default(); usize::from(replicas)];
    shape.clocks = vec![crate::world::ClockShape::default(); usize::from(replicas)];
    shape.busy = Vec::new();
    shape.broken = broken;
    shape.durability = if persisted {
        Durability::AllPersisted
    } else {
        Durability::Mixed
    };
    // What a disk is to blame for may be said of it.
    shape.classes.damage = true;
    shape.classes.disk_errors = true;
    shape.classes.disk_full = true;
    shape.classes.evictions = sessions > 0;
    if sessions > 0 {
        shape.limits.clients_max = sessions.into();
    }
    // Segments of a handful of records and checkpoints of a handful of ops.
    shape.limits.segment_size = 4096;
    shape.limits.metadata_segment_size = 4096;
    shape.limits.checkpoint_ops = 8;
    shape.limits.partition_checkpoint_ops = 8;
    Ok(shape)
}
