//! The names of a disk, and what makes them durable: a sync of the directory they are in.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::Prng;
use platform::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    File(usize),
    Dir,
}

#[derive(Debug)]
pub(super) enum NameChange {
    Set { path: String, entry: Entry },
    Remove { path: String },
    Rename { from: String, to: String },
}

#[derive(Debug, Default)]
pub(super) struct Names {
    now: BTreeMap<String, Entry>,
    durable: BTreeMap<String, Entry>,
    /// Completed and not yet durable, with the sequence in which they completed.
    unsynced: VecDeque<(u64, NameChange)>,
}

impl Names {
    pub(super) fn get(&self, path: &str) -> Option<Entry> {
        self.now.get(path).copied()
    }

    /// The name of a file, if it has one.
    pub(super) fn name_of(&self, file: usize) -> Option<&str> {
        let mut names = self.now.iter();
        let found = names.find(|(_, entry)| **entry == Entry::File(file))?;
        Some(found.0)
    }

    pub(super) fn is_dir(&self, path: &Path) -> bool {
        path.0.is_empty() || self.get(&path.0) == Some(Entry::Dir)
    }

    pub(super) fn change(&mut self, sequence: u64, change: NameChange) {
        change.apply(&mut self.now);
        self.unsynced.push_back((sequence, change));
    }

    /// The names in `directory` that changed before `covers` are durable.
    pub(super) fn sync(&mut self, directory: &str, covers: u64) {
        let mut kept = VecDeque::new();
        for (sequence, change) in std::mem::take(&mut self.unsynced) {
            if sequence < covers && change.touches(directory) {
                change.apply(&mut self.durable);
            } else {
                kept.push_back((sequence, change));
            }
        }
        self.unsynced = kept;
    }

    /// Names directly in a directory, sorted.
    pub(super) fn list(&self, directory: &Path) -> Vec<String> {
        let names = self.below(directory.join("")).filter_map(|(name, _)| {
            let (parent, name) = name.rsplit_once('/').unwrap_or(("", name));
            (parent == directory.0 && !name.is_empty()).then(|| name.into())
        });
        names.collect()
    }

    pub(super) fn is_empty_dir(&self, path: &Path) -> bool {
        self.below(path.join("")).next().is_none()
    }

    /// Entries whose names begin with `prefix`.
    pub(super) fn below(&self, prefix: Path) -> impl Iterator<Item = (&str, Entry)> {
        let names = self.now.range(prefix.0.clone()..);
        let names = names.map(|(name, entry)| (name.as_str(), *entry));
        names.take_while(move |(name, _)| name.starts_with(&prefix.0))
    }

    /// A directory is gone with all names below it, once and for all; the files they named.
    pub(super) fn forget(&mut self, directory: &str) -> Vec<usize> {
        let prefix = format!("{directory}/");
        let gone = |name: &String| name == directory || name.starts_with(&prefix);
        let files = self.now.iter().filter(|(name, _)| gone(name));
        let files = files.filter_map(|(_, entry)| match entry {
            Entry::File(file) => Some(*file),
            Entry::Dir => None,
        });
        let files = files.collect();
        self.now.retain(|name, _| !gone(name));
        self.durable.retain(|name, _| !gone(name));
        files
    }

    /// The machine loses power: each unsynced change is kept or not.
    pub(super) fn lose_power(&mut self, prng: &mut Prng) {
        for (_, change) in std::mem::take(&mut self.unsynced) {
            if prng.chance(1, 2) {
                change.apply(&mut self.durable);
            }
        }
        // A name below a directory that was lost is lost with it.
        let durable = &self.durable;
        let rooted = |name: &String| {
            let mut path = Path(name.clone()).split().0;
            while !path.0.is_empty() {
                if durable.get(&path.0) != Some(&Entry::Dir) {
                    return false;
                }
                path = path.split().0;
            }
            true
        };
        let names = durable.iter().filter(|(name, _)| rooted(name));
        let names: BTreeMap<_, _> = names.map(|(name, entry)| (name.clone(), *entry)).collect();
        self.durable.clone_from(&names);
        self.now = names;
    }

    /// Files that have a name, or may have one after a power loss.
    pub(super) fn reachable(&self) -> BTreeSet<usize> {
        let changed = self.unsynced.iter().filter_map(|(_, change)| match change {
            NameChange::Set { entry, .. } => Some(entry),
            NameChange::Remove { .. } | NameChange::Rename { .. } => None,
        });
        let all = self.now.values().chain(self.durable.values());
        all.chain(changed)
            .filter_map(|entry| match entry {
                Entry::File(file) => Some(*file),
                Entry::Dir => None,
            })
            .collect()
    }
}

impl NameChange {
    fn touches(&self, directory: &str) -> bool {
        let within =
            |path: &str| path.rsplit_once('/').map_or("", |(parent, _)| parent) == directory;
        match self {
            Self::Set { path, .. } | Self::Remove { path } => within(path),
            Self::Rename { from, to } => within(from) || within(to),
        }
    }

    /// A rename is atomic, and nothing without its source.
    fn apply(&self, names: &mut BTreeMap<String, Entry>) {
        match self {
            Self::Set { path, entry } => {
                names.insert(path.clone(), *entry);
            }
            Self::Remove { path } => {
                names.remove(path);
            }
            Self::Rename { from, to } => {
                if let Some(entry) = names.remove(from) {
                    names.insert(to.clone(), entry);
                }
            }
        }
    }
}
