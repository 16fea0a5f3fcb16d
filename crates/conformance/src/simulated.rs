//! The simulated arm: two hosts of the simulator's disk and network.

use base::ShardIndex;
use platform::{Address, Effect, Event};
use simulator::Bodies;

use crate::{Body, Place};

/// See the module.
pub struct Simulated(Bodies);

impl Simulated {
    /// A world of its own for every seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Bodies::new(seed, 2))
    }
}

const fn locate(place: Place) -> (u16, ShardIndex) {
    match place {
        Place::First => (0, ShardIndex(0)),
        Place::Second => (0, ShardIndex(1)),
        Place::Peer => (1, ShardIndex(0)),
    }
}

impl Body for Simulated {
    fn execute(&mut self, place: Place, effect: Effect) {
        let (host, shard) = locate(place);
        self.0.execute(host, shard, effect);
    }

    fn next(&mut self) -> (Place, Event) {
        self.next_if_any().expect("something is to happen")
    }

    fn next_if_any(&mut self) -> Option<(Place, Event)> {
        let (host, shard, event) = self.0.next_event()?;
        let place = Place::ALL.into_iter();
        let place = place.into_iter().find(|at| locate(*at) == (host, shard));
        Some((place.expect("no other place is named"), event))
    }

    fn address(&self, place: Place) -> Address {
        Bodies::address(locate(place).0, 0)
    }

    fn nowhere(&self) -> Address {
        Bodies::address(0, 9)
    }
}
