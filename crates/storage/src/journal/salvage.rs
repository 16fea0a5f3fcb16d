//! Reading what can be read of a chunk that cannot be read whole.
//!
//! A read that fails is split at sector boundaries until what fails is one sector, which is tried
//! once more. What cannot be read is filled with bytes that are neither zero nor part of any
//! record: a lost sector must not look like one that a crash has never written.

use base::{Buffer, Bytes};
use platform::DiskError;

/// Unit in which a device loses what it holds.
pub(super) const SECTOR_SIZE: u64 = 512;

/// Stands for a byte that cannot be read.
const UNREADABLE: u8 = 0xdb;

/// Sectors in a row, from the first on, after which the whole device is taken for dead.
const DEAD_AFTER: u32 = 256;

/// What is to be done after a read.
#[derive(Debug)]
pub(super) enum Outcome {
    /// This is what stands there; shorter than asked for at the end of the file.
    Chunk(Bytes),
    /// Read so many bytes from here.
    Again(u64, usize),
    /// Nothing can be read at all.
    Dead,
}

/// A chunk put together from pieces.
#[derive(Debug)]
struct Pieces {
    chunk: Buffer,
    /// Sizes still to read, the next one last.
    sizes: alloc::vec::Vec<u64>,
    position: u64,
    tried: bool,
}

/// One chunk after the other, in spite of what cannot be read.
#[derive(Debug, Default)]
pub(super) struct Salvage {
    asked: (u64, usize),
    pieces: Option<Pieces>,
    lost_in_a_row: u32,
    lost_to: u64,
    any: bool,
}

impl Salvage {
    /// A read of `size` bytes from `position` on is under way.
    pub(super) fn ask(&mut self, position: u64, size: usize) {
        self.asked = (position, size);
        self.pieces = None;
    }

    /// Room for the next read. A piece gets no more than its size, lest it touch the next sector.
    pub(super) fn room(&self, size: usize) -> Buffer {
        let mut room = Buffer::with_capacity(size);
        if self.pieces.is_some() {
            room.advance(room.capacity() - size);
        }
        room
    }

    /// A read has ended.
    pub(super) fn on_read(&mut self, result: Result<Buffer, DiskError>) -> Outcome {
        let Some(mut pieces) = self.pieces.take() else {
            return match result {
                Ok(buffer) => {
                    self.any = true;
                    Outcome::Chunk(buffer.freeze())
                }
                Err(_) => {
                    let (position, size) = self.asked;
                    self.go_on(Pieces {
                        chunk: Buffer::with_capacity(size),
                        sizes: [size as u64].into(),
                        position,
                        tried: false,
                    })
                }
            };
        };
        let size = pieces.sizes.pop().expect("a piece was being read");
        match result {
            Ok(buffer) => {
                self.any = true;
                let read = &buffer.as_slice()[buffer.capacity() - index(size)..];
                let length = read.len() as u64;
                pieces.chunk.extend(read);
                pieces.position += length;
                if length < size {
                    pieces.sizes.clear();
                }
            }
            Err(_) => self.split(&mut pieces, size),
        }
        if !self.any && self.lost_in_a_row >= DEAD_AFTER {
            return Outcome::Dead;
        }
        self.go_on(pieces)
    }

    fn split(&mut self, pieces: &mut Pieces, size: u64) {
        let (start, end) = (pieces.position, pieces.position + size);
        let mut middle = start.midpoint(end) / SECTOR_SIZE * SECTOR_SIZE;
        if middle <= start {
            middle += SECTOR_SIZE;
        }
        if middle < end {
            pieces.sizes.extend([end - middle, middle - start]);
        } else if pieces.tried {
            base::sometimes!("storage: a sector could not be read and counts as damaged");
            // A scan reads the last sector of a chunk again.
            self.lost_in_a_row += u32::from(start >= self.lost_to);
            self.lost_to = end;
            pieces.chunk.extend(&[UNREADABLE; 512][..index(size)]);
            pieces.position = end;
        } else {
            pieces.tried = true;
            pieces.sizes.push(size);
            return;
        }
        pieces.tried = false;
    }

    fn go_on(&mut self, pieces: Pieces) -> Outcome {
        let Some(size) = pieces.sizes.last().copied() else {
            return Outcome::Chunk(pieces.chunk.freeze());
        };
        let position = pieces.position;
        self.pieces = Some(pieces);
        Outcome::Again(position, index(size))
    }
}

fn index(size: u64) -> usize {
    usize::try_from(size).expect("a part of a chunk in memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `position .. position + size` of a file of 5,000 bytes with these bad sectors.
    fn read(bad: &[u64], position: u64, size: usize) -> Option<alloc::vec::Vec<u8>> {
        let content: alloc::vec::Vec<u8> = (0..5000_u64).map(|at| (at % 199) as u8).collect();
        let mut salvage = Salvage::default();
        salvage.ask(position, size);
        let (mut at, mut size, size_max) = (position, size, size);
        for _ in 0..10_000 {
            let mut room = salvage.room(size);
            let length = room.spare_mut().len();
            let (start, end) = (index(at).min(5000), (index(at) + length).min(5000));
            let mut sectors = at / 512..(at + length as u64).div_ceil(512);
            let result = if sectors.any(|sector| bad.contains(&sector)) {
                Err(DiskError::Io)
            } else {
                room.extend(&content[start..end]);
                Ok(room)
            };
            match salvage.on_read(result) {
                Outcome::Chunk(bytes) => return Some(bytes[..bytes.len().min(size_max)].to_vec()),
                Outcome::Again(position, length) => (at, size) = (position, length),
                Outcome::Dead => return None,
            }
        }
        panic!("no end")
    }

    #[test]
    fn only_the_sectors_that_fail_are_lost() {
        for (position, size) in [(0, 4096), (100, 3000), (511, 2), (1000, 4500), (1024, 512)] {
            let whole = read(&[], position, size).expect("it is whole");
            assert_eq!(whole.len(), size.min(5000 - index(position)));
            let some = read(&[2, 5], position, size).expect("some of it can be read");
            assert_eq!(some.len(), whole.len());
            for (offset, (found, wanted)) in some.iter().zip(&whole).enumerate() {
                let sector = (position + offset as u64) / 512;
                let expected = if [2, 5].contains(&sector) {
                    0xdb
                } else {
                    *wanted
                };
                assert_eq!(*found, expected, "{offset} from {position}");
            }
        }
    }
}
