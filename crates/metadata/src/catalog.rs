//! Things with a number and a name: the streams, and the topics of a stream.

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};

use wire::{Identifier, Name};

use crate::id_set::IdSet;

/// The name belongs to another entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameTaken;

/// Entries by id, unique by name.
///
/// **Invariant:** `ids`, `names` and `entries` speak of the same entries.
#[derive(Clone, Debug)]
pub(crate) struct Catalog<T> {
    ids: IdSet,
    names: BTreeMap<Arc<str>, u32>,
    entries: BTreeMap<u32, Entry<T>>,
}

/// An entry with its name.
#[derive(Clone, Debug)]
pub(crate) struct Entry<T> {
    pub(crate) name: Arc<str>,
    pub(crate) value: T,
}

impl<T> Default for Catalog<T> {
    fn default() -> Self {
        Self {
            ids: IdSet::default(),
            names: BTreeMap::new(),
            entries: BTreeMap::new(),
        }
    }
}

impl<T> Catalog<T> {
    /// Exactly these entries, all with ids below `ids_max`; `None` if an id or a name comes
    /// twice, or ids do not ascend.
    pub(crate) fn restore(restored: Vec<(u32, Entry<T>)>, ids_max: u32) -> Option<Self> {
        let ascending = restored.is_sorted_by(|a, b| a.0 < b.0);
        let names: BTreeMap<_, _> = restored
            .iter()
            .map(|(id, e)| (e.name.clone(), *id))
            .collect();
        let highest = restored.last().map_or(0, |(id, _)| *id);
        if !ascending || names.len() < restored.len() || highest >= ids_max {
            return None;
        }
        Some(Self {
            ids: IdSet::occupied(restored.iter().map(|(id, _)| *id)),
            names,
            entries: restored.into_iter().collect(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Entry<T>)> {
        self.entries.iter().map(|(&id, entry)| (id, entry))
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Entry<T>> {
        self.entries.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.entries.get_mut(&id).map(|entry| &mut entry.value)
    }

    /// The id of an entry that exists.
    pub(crate) fn find(&self, identifier: Identifier<'_>) -> Option<u32> {
        match identifier {
            Identifier::Numeric(id) => self.entries.contains_key(&id).then_some(id),
            Identifier::Named(name) => self.names.get(name.as_str()).copied(),
        }
    }

    pub(crate) fn contains_name(&self, name: Name<'_>) -> bool {
        self.names.contains_key(name.as_str())
    }

    /// Adds an entry under the lowest free id.
    pub(crate) fn insert(
        &mut self,
        name: Name<'_>,
        value: T,
        replica_salt: u64,
    ) -> Result<u32, NameTaken> {
        if self.contains_name(name) {
            return Err(NameTaken);
        }
        let id = self.ids.allocate(replica_salt);
        let name: Arc<str> = name.as_str().into();
        self.names.insert(name.clone(), id);
        let previous = self.entries.insert(id, Entry { name, value });
        base::invariant!(previous.is_none(), "the id was free");
        self.assert_invariants();
        Ok(id)
    }

    /// Gives an entry that exists another name, or its own again.
    pub(crate) fn rename(&mut self, id: u32, name: Name<'_>) -> Result<(), NameTaken> {
        match self.names.get(name.as_str()) {
            Some(&owner) if owner == id => return Ok(()),
            Some(_) => return Err(NameTaken),
            None => {}
        }
        let entry = self.entries.get_mut(&id).expect("renamed entries exist");
        self.names.remove(&entry.name);
        entry.name = name.as_str().into();
        self.names.insert(entry.name.clone(), id);
        self.assert_invariants();
        Ok(())
    }

    /// Removes an entry that exists; its id and name are free again.
    pub(crate) fn remove(&mut self, id: u32) -> T {
        let entry = self.entries.remove(&id).expect("removed entries exist");
        self.names.remove(&entry.name);
        self.ids.release(id);
        self.assert_invariants();
        entry.value
    }

    fn assert_invariants(&self) {
        base::invariant!(self.names.len() == self.entries.len());
    }
}
