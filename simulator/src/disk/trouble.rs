//! What a device does to those who trust it: errors, no space, slowness, damage to what was
//! written long ago.
//!
//! A read that the kernel cuts short, or a write of which it takes only a part, is not seen here:
//! the port promises that a body goes on with the rest (the ring's own tests hold it to that),
//! so fewer bytes mean the end of the file. What a crash leaves of a write in flight is a part.

use platform::DiskError;
use serde::{Deserialize, Serialize};

use super::{Disk, Entry, File, SECTOR};

/// What the device may fail to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    Read,
    Write,
    Sync,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Trouble {
    /// The n-th read, write and sync from now fails; 0 is none.
    errors: [u64; 3],
    /// Writes that would grow the files beyond so many bytes fail.
    capacity: u64,
    /// Everything takes so many times as long.
    pub(super) slowness: u64,
    /// A request has failed for no fault of its own since the process started.
    pub(super) failed: bool,
}

impl Default for Trouble {
    fn default() -> Self {
        Self {
            errors: [0; 3],
            capacity: u64::MAX,
            slowness: 1,
            failed: false,
        }
    }
}

impl Trouble {
    /// Whether this one fails.
    pub(super) fn strikes(&mut self, operation: Operation) -> bool {
        let left = &mut self.errors[operation as usize];
        if *left == 0 {
            return false;
        }
        *left -= 1;
        let strikes = *left == 0;
        self.failed |= strikes;
        strikes
    }
}

impl Disk {
    /// The n-th such request that completes from now on fails.
    pub(crate) const fn fail(&mut self, operation: Operation, nth: u64) {
        self.trouble.errors[operation as usize] = nth;
    }

    /// No further request fails, there is room, and all goes at its usual speed.
    pub(crate) const fn heal(&mut self) {
        self.trouble.errors = [0; 3];
        self.trouble.capacity = u64::MAX;
        self.trouble.slowness = 1;
    }

    /// Whether a request has failed since the process started.
    pub(crate) const fn has_failed(&self) -> bool {
        self.trouble.failed
    }

    /// Files may grow by so many bytes in all; any number if none.
    pub(crate) fn limit_space(&mut self, free: Option<u64>) {
        let used = self.used();
        self.trouble.capacity = free.map_or(u64::MAX, |free| used + free);
    }

    /// Whether its space is limited.
    pub(crate) const fn is_limited(&self) -> bool {
        self.trouble.capacity != u64::MAX
    }

    /// Everything submitted from now on takes so many times as long.
    pub(crate) const fn slow_down(&mut self, slowness: u64) {
        self.trouble.slowness = slowness;
    }

    /// How many bytes there is room for.
    pub(super) fn free_space(&self) -> u64 {
        if self.trouble.capacity == u64::MAX {
            return u64::MAX;
        }
        self.trouble.capacity.saturating_sub(self.used())
    }

    fn used(&self) -> u64 {
        let named = self.files_named();
        named.map(|(_, file)| file.content.len() as u64).sum()
    }

    /// Creating a name needs some room, whatever it is for.
    pub(super) fn room_for_a_name(&self) -> Result<(), DiskError> {
        if self.free_space() == 0 {
            base::sometimes!("fault: no space for a name");
            return Err(DiskError::Full);
        }
        Ok(())
    }

    /// How much of a write there is room for, if not for all.
    pub(super) fn lacks_room(&self, file: &File, offset: u64, size: u64) -> Option<u64> {
        let free = self.free_space();
        let room = (file.content.len() as u64).saturating_add(free);
        (offset + size > room).then(|| room.saturating_sub(offset))
    }

    /// The kernel forgets all clean pages.
    pub(crate) fn drop_caches(&mut self) {
        for file in self.files.values_mut() {
            let other = file.evict();
            base::sometimes!(other, "fault: a page showed that its sync had failed");
        }
    }

    /// Everything is gone, names and files; to be called when the machine is off.
    pub(crate) fn wipe(&mut self) {
        assert!(self.in_flight.is_empty() && self.handles.is_empty());
        self.files.clear();
        self.names = super::Names::default();
        self.trouble = Trouble::default();
    }

    /// Directories that have files, sorted.
    pub(crate) fn directories(&self) -> Vec<String> {
        let mut found: Vec<String> = self
            .names
            .below(platform::Path(String::new()))
            .filter(|(_, entry)| matches!(entry, Entry::File(_)))
            .filter_map(|(name, _)| Some(name.rsplit_once('/')?.0.to_owned()))
            .collect();
        found.dedup();
        found
    }

    /// A directory is gone with all that was in it; to be called when the machine is off.
    pub(crate) fn wipe_below(&mut self, directory: &str) {
        assert!(self.in_flight.is_empty() && self.handles.is_empty());
        for file in self.names.forget(directory) {
            self.files.remove(&file);
        }
    }

    fn file_at(&self, path: &str) -> Option<&File> {
        match self.names.get(path)? {
            Entry::File(file) => self.files.get(&file),
            Entry::Dir => None,
        }
    }

    fn file_at_mut(&mut self, path: &str) -> Option<&mut File> {
        match self.names.get(path)? {
            Entry::File(file) => self.files.get_mut(&file),
            Entry::Dir => None,
        }
    }

    /// What the device holds of a file.
    pub(crate) fn durable(&self, path: &str) -> Option<&[u8]> {
        self.file_at(path).map(|file| file.durable.as_slice())
    }

    /// Whether a range of a file is durable and nothing on its way there.
    pub(crate) fn is_clean(&self, path: &str, offset: u64, size: u64) -> bool {
        self.file_at(path)
            .is_some_and(|file| file.is_clean(offset, size))
    }

    /// Replaces what a clean range of a file holds.
    pub(crate) fn damage(&mut self, path: &str, offset: u64, bytes: &[u8]) {
        let file = self.file_at_mut(path).expect("it is clean, so it is there");
        file.damage(offset, bytes);
    }

    /// Makes the sectors of a clean range unreadable until they are written to.
    pub(crate) fn spoil(&mut self, path: &str, offset: u64, size: u64) {
        let file = self.file_at_mut(path).expect("it is clean, so it is there");
        for sector in offset / SECTOR..(offset + size).div_ceil(SECTOR) {
            file.spoil(sector);
        }
    }
}
