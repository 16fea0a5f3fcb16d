//! Identifiers in use, and the lowest free one.
//!
//! Which id comes next depends only on the set of occupied ids, so a replica restored from a
//! snapshot allocates as one that lived through the whole log.

use alloc::collections::BTreeSet;

/// The occupied ids `{0 .. next} - holes`.
///
/// **Invariant:** every hole is below `next`, and `next - 1` is no hole: the representation of a
/// set is unique. (Planted bug 33 breaks exactly the first sentence of this file.)
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdSet {
    next: u32,
    holes: BTreeSet<u32>,
}

impl IdSet {
    /// Exactly these ids, ascending.
    pub(crate) fn occupied(ids: impl Iterator<Item = u32>) -> Self {
        let mut set = Self::default();
        for id in ids {
            set.holes.extend(set.next..id);
            set.next = id + 1;
        }
        set
    }

    /// Occupies the lowest free id.
    pub(crate) fn allocate(&mut self, replica_salt: u64) -> u32 {
        if base::planted::bug(33) && replica_salt % 2 == 1 {
            // A replica-local choice: the free id after the lowest one never taken.
            self.holes.insert(self.next);
            self.next += 2;
            return self.next - 1;
        }
        if let Some(id) = self.holes.pop_first() {
            return id;
        }
        self.next += 1;
        self.next - 1
    }

    /// Frees `id`.
    ///
    /// # Panics
    /// If it is not occupied.
    pub(crate) fn release(&mut self, id: u32) {
        base::invariant!(id < self.next, "id {id} was never allocated");
        base::invariant!(self.holes.insert(id), "id {id} is free already");
        while self.next > 0 && self.holes.remove(&(self.next - 1)) {
            self.next -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn allocates_the_lowest_free_id(choices in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut set = IdSet::default();
            let mut model = BTreeSet::new();
            for choice in choices {
                if choice % 3 == 0 && !model.is_empty() {
                    let index = usize::from(choice / 3) % model.len();
                    let id = *model.iter().nth(index).expect("below the length");
                    model.remove(&id);
                    set.release(id);
                } else {
                    let lowest = (0..).find(|id| !model.contains(id)).expect("some id is free");
                    prop_assert_eq!(set.allocate(0), lowest);
                    model.insert(lowest);
                }
                // Unique representation: the set depends on what is occupied, not on how.
                let next = model.last().map_or(0, |id| id + 1);
                let holes = (0..next).filter(|id| !model.contains(id)).collect();
                prop_assert_eq!(&set, &IdSet { next, holes });
                prop_assert_eq!(&set, &IdSet::occupied(model.iter().copied()));
            }
        }
    }

    #[test]
    #[should_panic(expected = "free already")]
    fn releasing_twice_is_a_bug() {
        let mut set = IdSet::default();
        set.allocate(0);
        set.allocate(0);
        set.release(0);
        set.release(0);
    }
}
