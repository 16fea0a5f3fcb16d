//! Scripts that move a cluster step by step, and the transcript of what it does.
//!
//! ```text
//! prepare 0 [n]    the primary 0 prepares n ops        crash 0 [n], power 0 [n]   n steps kept
//! deliver 0 1 [n]  the oldest n letters, else all      restart 0
//! lose 0 1         what is under way                   suspect 0, abdicate 0
//! write, sync, store, serve, beat 0                    isolate 0, rejoin 0, cut 0 1, connect 0 1
//! durable 0        writes and syncs all                pass 800   milliseconds, everything moves
//! run              everything moves                    state
//! forge 1 0 5 2    a prepare_ok from 1 to 0 of an op 5 that nobody has, in view 2
//! ```

use core::time::Duration;

use expect_test::Expect;

use crate::cluster::{Cluster, Crash, Mode};

/// A new cluster runs the script; each line is followed by what it caused.
pub(crate) fn check(count: usize, mode: Mode, script: &str, expected: Expect) {
    let mut cluster = Cluster::new(count, mode, 1);
    cluster.trace = Some(Vec::new());
    for line in script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let trace = cluster.trace.as_mut().expect("traced");
        trace.push(line.to_owned());
        let mut words = line.split_whitespace();
        let verb = words.next().expect("not empty");
        let numbers: Vec<usize> = words.map(|word| word.parse().expect("a number")).collect();
        act(&mut cluster, verb, &numbers);
    }
    let lines = cluster.trace.take().expect("traced");
    expected.assert_eq(&(lines.join("\n") + "\n"));
}

fn act(cluster: &mut Cluster, verb: &str, numbers: &[usize]) {
    let now = cluster.now;
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
        ("forge", [from, to, op, view]) => {
            cluster.forge(*from, *to, *op as u64, u32::try_from(*view).expect("small"))
        }
        ("connect", [a, b]) => cluster.connect(*a, *b),
        (_, [index, rest @ ..]) => {
            let times = rest.first().copied();
            let index = *index;
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
                "store" => drop(cluster.store(index)),
                "serve" => while cluster.serve(index) {},
                "beat" => drop(cluster.heartbeat(index)),
                "durable" => while cluster.write(index) | cluster.sync(index) {},
                "timers" => cluster.timers(index),
                "suspect" => cluster.suspect(index),
                "abdicate" => cluster.act(index, |group, out| group.abdicate(now, out)),
                "crash" => cluster.crash(index, Crash::Process, times.unwrap_or(0)),
                "power" => cluster.crash(index, Crash::Power, times.unwrap_or(0)),
                "restart" => cluster.restart(index),
                "isolate" => each_other(cluster, index, |cluster, other| {
                    cluster.cut(index, other);
                    cluster.cut(other, index);
                }),
                "rejoin" => each_other(cluster, index, |cluster, other| {
                    cluster.connect(index, other);
                }),
                _ => panic!("no verb {verb}"),
            }
        }
        _ => panic!("{verb} of what?"),
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
