//! The loop of a shard's thread.

use std::{
    io,
    path::PathBuf,
    sync::mpsc::Sender,
    thread::{self, JoinHandle},
    time::Duration,
};

use base::{Instant, ShardIndex};
use platform::{Address, Event, ListenerId, Now, Outbox};

use crate::{Exit, Options, Port, Ring};

/// A shard's logic, as the loop sees it.
pub trait Logic {
    /// Something happened.
    fn on_event(&mut self, now: Now, event: Event, out: &mut Outbox);
    /// All events of a turn have been told.
    fn on_timers(&mut self, now: Now, out: &mut Outbox);
    /// When [`Self::on_timers`] must be called even if nothing happens.
    fn deadline(&self) -> Option<Instant>;
}

/// What shards tell the main thread.
#[derive(Debug)]
pub enum Report {
    /// A listener is bound.
    Listening {
        /// By whom.
        shard: ShardIndex,
        /// Which.
        listener: ListenerId,
        /// The address with its real port.
        address: Address,
    },
    /// A shard can serve.
    Ready {
        /// Which.
        shard: ShardIndex,
    },
    /// A shard's loop has ended.
    Ended {
        /// Which.
        shard: ShardIndex,
        /// How.
        exit: Exit,
    },
    /// A shard's ring has failed, or could not be made.
    Failed {
        /// Which.
        shard: ShardIndex,
        /// How.
        error: io::Error,
    },
    /// A shard's thread has panicked: a bug.
    Panicked {
        /// Which.
        shard: ShardIndex,
    },
}

/// Runs a shard until it has stopped or cannot go on. `start` makes the logic and its first
/// effects.
///
/// # Errors
/// If the ring itself fails.
pub fn run<L: Logic>(
    ring: &mut Ring,
    start: impl FnOnce(Now, &mut Outbox) -> L,
) -> io::Result<Exit> {
    let mut out = Outbox::new();
    let mut logic = start(ring.now(), &mut out);
    loop {
        for effect in out.drain(..) {
            ring.execute(effect)?;
        }
        if let Some(exit) = ring.exit() {
            return Ok(exit);
        }
        ring.wait(logic.deadline())?;
        let now = ring.now();
        // Only what is there now: an effect that is answered at once waits for the next turn, so
        // that completions and timers get theirs.
        for _ in 0..ring.events() {
            let Some(event) = ring.next_event() else {
                break;
            };
            logic.on_event(now, event, &mut out);
            // At once, so that nothing follows a `Close` in the same turn.
            for effect in out.drain(..) {
                ring.execute(effect)?;
            }
        }
        logic.on_timers(now, &mut out);
    }
}

/// Tells the main thread if the shard's thread panics.
struct Alarm {
    shard: ShardIndex,
    reports: Sender<Report>,
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.reports.send(Report::Panicked { shard: self.shard });
        }
    }
}

/// Runs a shard on its own thread, with files under `data`. How it ends is reported.
///
/// # Errors
/// If there is no thread to be had.
pub fn spawn<L: Logic>(
    port: Port,
    data: PathBuf,
    options: Options,
    start: impl FnOnce(Now, &mut Outbox) -> L + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let shard = port.shard();
    let reports = port.reports.clone();
    thread::Builder::new()
        .name(format!("shard-{shard}"))
        .spawn(move || {
            let _alarm = Alarm {
                shard,
                reports: reports.clone(),
            };
            let ended = Ring::new(port, &data, &options).and_then(|mut ring| {
                let exit = run(&mut ring, start)?;
                if exit == Exit::Stopped {
                    ring.drain(Duration::from_secs(1).min(options.close_grace))?;
                }
                Ok(exit)
            });
            let report = match ended {
                Ok(exit) => Report::Ended { shard, exit },
                Err(error) => Report::Failed { shard, error },
            };
            let _ = reports.send(report);
        })
}
