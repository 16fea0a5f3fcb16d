//! What clients do that strains a cluster: they die and come back, and all of them call at once.

use super::{Draw, Drawer, Fault, Identity, SECOND};
use crate::profile::Classes;

/// What the classes of a seed allow.
pub(super) fn kinds(classes: &Classes, kinds: &mut Vec<Draw>) {
    if classes.client_crashes {
        kinds.extend([Drawer::client_crash as Draw, Drawer::client_churn]);
    }
    if classes.overloads {
        kinds.extend([Drawer::burst as Draw, Drawer::burst]);
    }
}

impl Drawer {
    /// A non-empty set of clients: one, or any.
    fn clients(&mut self) -> u64 {
        let count = u64::from(self.shape.clients);
        let all = (1 << count) - 1;
        let some = self.prng.next_u64() & all;
        if some == 0 || self.prng.chance(1, 2) {
            1 << self.prng.below(count)
        } else {
            some
        }
    }

    fn identity(&mut self) -> Identity {
        if self.prng.chance(1, 2) {
            Identity::Same
        } else {
            Identity::New
        }
    }

    fn client_crash(&mut self, at: u64) {
        let clients = self.clients();
        let machine = self.prng.chance(1, 3);
        self.push(at, Fault::ClientCrash { clients, machine });
        let downtime = self.downtime();
        let identity = self.identity();
        self.push(at + downtime, Fault::ClientReturn { clients, identity });
    }

    /// One client that does not stay up.
    fn client_churn(&mut self, mut at: u64) {
        let clients = 1 << self.prng.below(u64::from(self.shape.clients));
        for _ in 0..self.prng.between(2, 5) {
            let machine = self.prng.chance(1, 5);
            self.push(at, Fault::ClientCrash { clients, machine });
            at += self.prng.between(1, 300_000);
            let identity = self.identity();
            self.push(at, Fault::ClientReturn { clients, identity });
            at += self.prng.between(1_000, 3 * SECOND);
        }
    }

    fn burst(&mut self, at: u64) {
        let clients = match self.prng.below(3) {
            0 => self.clients(),
            _ => (1 << self.shape.clients) - 1,
        };
        let calls = u32::try_from(self.prng.between(5, 20)).expect("few");
        self.push(at, Fault::Burst { clients, calls });
    }
}
