//! Stored offsets: the last message each consumer has done with. Bounded per kind.

use alloc::{collections::BTreeMap, vec::Vec};

use base::Offset;
use wire::{Codec, ConsumerKind, ErrorCode, Reader, SnapshotError};

use base::Digest;

use crate::snapshot::count;

/// A consumer as a partition knows it: single consumers by their key, groups by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerKey {
    /// Which of the two.
    pub kind: ConsumerKind,
    /// Its number among its kind.
    pub id: u32,
}

/// How a store treats an offset that is stored already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// Replaces it, also by a lower one: the consumer asked to go back.
    Explicit,
    /// Raises it only: polls may have been served in any order.
    Monotone,
}

/// The stored offsets of one partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Consumers {
    single: BTreeMap<u32, Offset>,
    groups: BTreeMap<u32, Offset>,
}

impl Consumers {
    pub(crate) fn get(&self, consumer: ConsumerKey) -> Option<Offset> {
        self.of(consumer.kind).get(&consumer.id).copied()
    }

    /// The lowest stored offset of any consumer or group.
    pub(crate) fn slowest(&self) -> Option<Offset> {
        self.single
            .values()
            .chain(self.groups.values())
            .min()
            .copied()
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = u32> + '_ {
        self.groups.keys().copied()
    }

    const fn of(&self, kind: ConsumerKind) -> &BTreeMap<u32, Offset> {
        match kind {
            ConsumerKind::Single => &self.single,
            ConsumerKind::Group => &self.groups,
        }
    }

    const fn of_mut(&mut self, kind: ConsumerKind) -> &mut BTreeMap<u32, Offset> {
        match kind {
            ConsumerKind::Single => &mut self.single,
            ConsumerKind::Group => &mut self.groups,
        }
    }

    /// 3024 if there is no room for another consumer of this kind.
    pub(crate) fn store(
        &mut self,
        consumer: ConsumerKey,
        offset: Offset,
        store: Store,
        consumers_max: usize,
    ) -> Result<(), ErrorCode> {
        let offsets = self.of_mut(consumer.kind);
        let full = offsets.len() >= consumers_max;
        match offsets.get_mut(&consumer.id) {
            Some(stored) if store == Store::Monotone => *stored = offset.max(*stored),
            Some(stored) => *stored = offset,
            None if full => return Err(ErrorCode::TOO_MANY_CONSUMER_OFFSETS),
            None => {
                offsets.insert(consumer.id, offset);
            }
        }
        Ok(())
    }

    /// 3021 if none is stored.
    pub(crate) fn delete(&mut self, consumer: ConsumerKey) -> Result<(), ErrorCode> {
        let removed = self.of_mut(consumer.kind).remove(&consumer.id);
        removed
            .map(|_| ())
            .ok_or(ErrorCode::CONSUMER_OFFSET_NOT_FOUND)
    }

    /// Appends all stored offsets to a snapshot.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for offsets in [&self.single, &self.groups] {
            count(offsets.len()).write(out);
            for (id, offset) in offsets {
                id.write(out);
                offset.0.write(out);
            }
        }
    }

    /// Reads what [`Self::write`] wrote.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, SnapshotError> {
        let mut consumers = Self::default();
        for offsets in [&mut consumers.single, &mut consumers.groups] {
            for _ in 0..reader.read::<u32>()? {
                let id = reader.read()?;
                if offsets
                    .last_key_value()
                    .is_some_and(|(last, _)| *last >= id)
                {
                    return Err(SnapshotError::Contradiction);
                }
                offsets.insert(id, Offset(reader.read()?));
            }
        }
        Ok(consumers)
    }

    pub(crate) fn digest_into(&self, digest: &mut Digest) {
        for offsets in [&self.single, &self.groups] {
            digest.u64(offsets.len() as u64);
            for (id, offset) in offsets {
                digest.u32(*id);
                digest.u64(offset.0);
            }
        }
    }
}
