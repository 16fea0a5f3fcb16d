//! `viewstamp-server`: from the command line to running shards, and back to an exit code.
//!
//! **Invariant:** nothing here decides anything about the protocol; this crate reads the outside
//! world once, hands it to the shards as plain data, and waits.

mod config;
mod data;
mod effective;
mod encryption;
mod exit;
mod flags;
mod inspect;
mod node;
mod root;
mod shard;

use std::{
    env, fmt,
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::{self, ExitCode},
    sync::mpsc::{Sender, channel},
    thread,
};

use clap::Parser;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};
use tracing_subscriber::{filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use config::{Loaded, Overrides};
use data::Data;
use exit::Failure;
use flags::Flags;
use inspect::LogTail;
use node::{Node, Notice};

/// The exit code of a second signal: that of a process that SIGINT ended.
const SECOND_SIGNAL: i32 = 130;

fn main() -> ExitCode {
    let flags = Flags::parse();
    match serve(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Shown whatever is logged, and before there is a log.
            say(&failure);
            ExitCode::from(failure.code())
        }
    }
}

fn serve(flags: &Flags) -> Result<(), Failure> {
    let overrides = Overrides {
        replica_id: flags.replica_id,
        shards: flags.shards,
    };
    let file = match &flags.config {
        // As published servers do: a file of the environment that is not there says nothing.
        None => env::var_os("IGGY_CONFIG_PATH").map(PathBuf::from),
        Some(path) if path.is_file() => Some(path.clone()),
        Some(path) => {
            let problem = format!("--config {} is no file", path.display());
            return Err(Failure::Config(vec![problem]));
        }
    };
    let loaded = config::load(file.as_deref(), variables(), &overrides);
    let Loaded { config, warnings } = loaded.map_err(Failure::Config)?;
    let log = LogTail::default();
    start_log(config.log.clone(), log.clone());
    warnings
        .iter()
        .for_each(|warning| tracing::warn!("{warning}"));
    let given = root::given(
        env::var("IGGY_ROOT_USERNAME").ok(),
        env::var("IGGY_ROOT_PASSWORD").ok(),
        flags.with_default_root_credentials,
    )
    .map_err(|problem| Failure::Config(vec![problem]))?;

    if let Err(error) = uring::raise_descriptor_limit() {
        tracing::warn!("the limit of open files and connections stays as it was: {error}");
    }
    let data = Data::open(&config.path)?;
    if flags.fresh {
        let wiped = data.wipe();
        wiped.map_err(|error| Failure::Data(format!("{}: {error}", config.path.display())))?;
        tracing::warn!("wiped {} as --fresh asks", config.path.display());
    }
    encryption::check(&data, config.encryption.as_ref())?;
    let root = root::load_or_make(&data, given, config.clustered)?;
    if let Some(warning) = &root.warning {
        // Not through the log, which goes into diagnostic archives: it may tell a password.
        say(warning);
    }
    let (sender, notices) = channel();
    listen_for_signals(sender.clone()).map_err(|error| Failure::Ring(error.to_string()))?;
    let node = Node {
        config,
        data,
        root: root.credential,
        log,
    };
    node.run(shard::start, (sender, notices))
}

/// The environment, as far as it is text.
fn variables() -> impl Iterator<Item = (String, String)> {
    env::vars_os().filter_map(|(name, value)| {
        Some((
            name.into_string().ok()?,
            value.to_string_lossy().into_owned(),
        ))
    })
}

fn start_log(filter: Targets, tail: LogTail) {
    let stderr = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false);
    let tail = tracing_subscriber::fmt::layer()
        .with_writer(tail)
        .with_ansi(false)
        .with_target(false);
    tracing_subscriber::registry()
        .with(stderr)
        .with(tail)
        .with(filter)
        .init();
}

/// A line on standard error; `eprintln` would panic if nobody reads any more.
fn say(what: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "viewstamp-server: {what}");
}

/// The first signal asks to stop, the second ends the process.
fn listen_for_signals(notices: Sender<Notice>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let mut signals = signals.forever();
            if signals.next().is_some() {
                let _ = notices.send(Notice::Stop);
            }
            if signals.next().is_some() {
                process::exit(SECOND_SIGNAL);
            }
        })?;
    Ok(())
}
