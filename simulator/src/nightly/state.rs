//! What a night has done so far, as a file: written after every slice, read after a kill.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::plan::Slice;

/// A night: everything that its report says.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Night {
    /// What was built; a night of another commit is not gone on with.
    pub(super) commit: String,
    /// Milliseconds that it may take.
    pub(super) budget: u64,
    /// The first seed of every profile.
    pub(super) start: u64,
    /// How often a process has worked on it.
    pub(super) processes: u32,
    /// The fuzz targets; none if there is nothing to fuzz with.
    pub(super) targets: Vec<String>,
    /// Whether planted bugs are hunted.
    pub(super) hunts: bool,
    /// What is being done.
    pub(super) current: Option<Slice>,
    /// How often `current` has been begun.
    pub(super) attempts: u32,
    pub(super) profiles: BTreeMap<String, Tally>,
    pub(super) fuzz: BTreeMap<String, Fuzzed>,
    pub(super) hunted: BTreeSet<u32>,
    pub(super) bugs_spent: Spent,
    /// The rows of the mutation score.
    pub(super) verdicts: Vec<Value>,
    pub(super) failures: Vec<Found>,
}

/// Time, in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Spent {
    /// On the clock.
    pub(super) wall: u64,
    /// On processors.
    pub(super) cpu: u64,
}

/// The seeds of a profile.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Tally {
    /// The first seed that has not been run.
    pub(super) next: u64,
    pub(super) runs: u64,
    pub(super) failed: u64,
    pub(super) committed_ops: u64,
    pub(super) crashes: u64,
    pub(super) simulated_seconds: u64,
    pub(super) spent: Spent,
    /// Seeds that have reached each mark.
    pub(super) marks: BTreeMap<String, u64>,
}

/// A fuzz target.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Fuzzed {
    pub(super) spent: Spent,
    pub(super) slices: u64,
    pub(super) failed: u64,
}

/// Something that must be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Found {
    /// What failed: a check, a fuzz target, a planted bug.
    pub(super) what: String,
    /// What it said.
    pub(super) message: String,
    /// The command that shows it again.
    pub(super) replay: String,
}

/// The file in the night's directory.
const NAME: &str = "state.json";

impl Night {
    /// The night that was interrupted in `directory`, if there is one.
    pub(super) fn read(directory: &Path) -> io::Result<Option<Self>> {
        let text = match fs::read_to_string(directory.join(NAME)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let night = serde_json::from_str(&text).map_err(io::Error::other)?;
        Ok(Some(night))
    }

    /// Replaces the file; a kill in the middle leaves the old one.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        let temporary = directory.join("state.tmp");
        fs::write(&temporary, text)?;
        fs::rename(temporary, directory.join(NAME))
    }

    /// It is over; the next begins anew.
    pub(super) fn forget(directory: &Path) -> io::Result<()> {
        fs::remove_file(directory.join(NAME))
    }
}
