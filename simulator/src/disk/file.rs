//! One file: what the page cache shows, what the device holds, and the way between them.
//!
//! ```text
//!   write ─▶ content ─sync─▶ durable    a failed sync: the way is cut, content still shows it
//!   evict:   content ◀────── durable + what is still on its way
//! ```

use std::collections::{BTreeSet, VecDeque};

use base::{Buffer, Bytes, Prng};
use platform::DiskError;

use super::{SECTOR, usize_of};

/// Unit in which a kernel writes its cache back.
const PAGE: u64 = 4096;

#[derive(Debug)]
pub(super) enum Change {
    Write { offset: u64, data: Vec<Bytes> },
    Truncate { size: u64 },
}

#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) content: Vec<u8>,
    pub(super) durable: Vec<u8>,
    /// Completed and not yet durable, with the sequence in which they completed.
    unsynced: VecDeque<(u64, Change)>,
    /// Sectors that the device cannot read; none in almost every file.
    unreadable: BTreeSet<u64>,
}

impl File {
    /// Fills the room of `buffer`; fewer bytes mean the end of the file.
    pub(super) fn read(&self, offset: u64, buffer: &mut Buffer) -> Result<(), DiskError> {
        let start = usize_of(offset).min(self.content.len());
        let spare = buffer.spare_mut();
        let count = spare.len().min(self.content.len() - start);
        if !self.unreadable.is_empty() && count > 0 {
            let sectors = offset / SECTOR..=(offset + count as u64 - 1) / SECTOR;
            if self.unreadable.range(sectors).next().is_some() {
                base::sometimes!("fault: a sector could not be read");
                return Err(DiskError::Io);
            }
        }
        spare[..count].copy_from_slice(&self.content[start..start + count]);
        buffer.advance(count);
        Ok(())
    }

    pub(super) fn change(&mut self, sequence: u64, change: Change) {
        if !self.unreadable.is_empty() {
            self.rewrite_sectors(&change);
        }
        apply(&mut self.content, &change);
        self.unsynced.push_back((sequence, change));
    }

    /// What is written over can be read again.
    fn rewrite_sectors(&mut self, change: &Change) {
        let rewritten = match change {
            Change::Truncate { size } => size.div_ceil(SECTOR)..u64::MAX,
            Change::Write { offset, data } => {
                let size: u64 = data.iter().map(|piece| piece.len() as u64).sum();
                offset / SECTOR..(offset + size).div_ceil(SECTOR)
            }
        };
        let before = self.unreadable.len();
        self.unreadable.retain(|sector| !rewritten.contains(sector));
        base::sometimes!(
            self.unreadable.len() < before,
            "fault: a sector that could not be read was written over"
        );
    }

    /// All that completed before `covers` becomes durable.
    pub(super) fn sync(&mut self, covers: u64) {
        while let Some((_, change)) = self.pop_before(covers) {
            apply(&mut self.durable, &change);
        }
    }

    /// The device fails in the middle of a sync: some of it is durable, the rest will never be,
    /// and the page cache shows all of it as if nothing had happened.
    pub(super) fn fail_sync(&mut self, covers: u64, prng: &mut Prng) {
        while let Some((_, change)) = self.pop_before(covers) {
            survive(&mut self.durable, change, prng);
        }
    }

    fn pop_before(&mut self, covers: u64) -> Option<(u64, Change)> {
        let (sequence, _) = self.unsynced.front()?;
        (*sequence < covers)
            .then(|| self.unsynced.pop_front())
            .flatten()
    }

    /// The kernel forgets its clean pages; true if that shows another content.
    pub(super) fn evict(&mut self) -> bool {
        let mut content = self.durable.clone();
        for (_, change) in &self.unsynced {
            apply(&mut content, change);
        }
        let other = content != self.content;
        self.content = content;
        other
    }

    /// The machine loses power: of each unsynced change any part is kept.
    pub(super) fn lose_power(&mut self, prng: &mut Prng) {
        for (_, change) in std::mem::take(&mut self.unsynced) {
            survive(&mut self.durable, change, prng);
        }
        self.content.clone_from(&self.durable);
    }

    /// Whether the page cache and the device agree on `offset .. offset + size`, and nothing is
    /// on its way there.
    pub(super) fn is_clean(&self, offset: u64, size: u64) -> bool {
        let range = usize_of(offset)..usize_of(offset + size);
        let agree = self.content.get(range.clone());
        if agree.is_none() || agree != self.durable.get(range) {
            return false;
        }
        !self.unsynced.iter().any(|(_, change)| match change {
            Change::Truncate { size: kept } => *kept < offset + size,
            Change::Write { offset: at, data } => {
                let length: u64 = data.iter().map(|piece| piece.len() as u64).sum();
                *at < offset + size && offset < at + length
            }
        })
    }

    /// The device holds other bytes than were written to it; the page is not cached.
    pub(super) fn damage(&mut self, offset: u64, bytes: &[u8]) {
        assert!(self.is_clean(offset, bytes.len() as u64));
        write_at(&mut self.content, usize_of(offset), bytes);
        write_at(&mut self.durable, usize_of(offset), bytes);
    }

    /// The sector cannot be read until it is written to; what it held is gone.
    pub(super) fn spoil(&mut self, sector: u64) {
        let start = sector * SECTOR;
        let end = (start + SECTOR).min(self.durable.len() as u64);
        self.damage(start, &vec![0; usize_of(end - start)]);
        self.unreadable.insert(sector);
    }
}

fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Truncate { size } => content.resize(usize_of(*size), 0),
        Change::Write { offset, data } => {
            let mut at = usize_of(*offset);
            for piece in data {
                write_at(content, at, piece);
                at += piece.len();
            }
        }
    }
}

fn write_at(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return; // A write of nothing does not extend a file.
    }
    if content.len() == at {
        content.extend_from_slice(bytes);
        return;
    }
    if content.len() < at + bytes.len() {
        content.resize(at + bytes.len(), 0);
    }
    content[at..at + bytes.len()].copy_from_slice(bytes);
}

/// What a power loss keeps of one unsynced change: all, nothing, a prefix, a suffix, all but a
/// hole, or any of its sectors; in sectors of the device or in pages of the kernel.
fn survive(durable: &mut Vec<u8>, change: Change, prng: &mut Prng) {
    let Change::Write { offset, data } = change else {
        if prng.chance(1, 2) {
            apply(durable, &change);
        }
        return;
    };
    let mut bytes = Vec::new();
    for piece in &data {
        bytes.extend_from_slice(piece);
    }
    if bytes.is_empty() {
        return;
    }
    let unit = if prng.chance(1, 4) { PAGE } else { SECTOR };
    let first = offset / unit;
    let units = (offset + bytes.len() as u64 - 1) / unit - first + 1;
    let mode = prng.below(8);
    let (low, high) = {
        let (a, b) = (prng.below(units + 1), prng.below(units + 1));
        (a.min(b), a.max(b))
    };
    let mut kept_units = 0;
    for index in 0..units {
        let kept = match mode {
            0 | 1 => false,
            2 | 3 => true,
            4 => index < low,
            5 => index >= high,
            6 => !(low..high).contains(&index),
            _ => prng.chance(1, 2),
        };
        if kept {
            kept_units += 1;
            let start = ((first + index) * unit).max(offset);
            let end = ((first + index + 1) * unit).min(offset + bytes.len() as u64);
            let piece = &bytes[usize_of(start - offset)..usize_of(end - offset)];
            write_at(durable, usize_of(start), piece);
        }
    }
    base::sometimes!(
        kept_units > 0 && kept_units < units,
        "fault: a power loss tore a write"
    );
    // The size may have reached the disk where the data did not.
    let end = usize_of(offset) + bytes.len();
    if mode == 1 && durable.len() < end {
        durable.resize(end, 0);
    }
}
