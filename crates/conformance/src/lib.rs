//! What a body must do, told once and held against both: the simulated disk and network, and
//! io_uring on real files and loopback sockets.
//!
//! ```text
//!   tests/disk.rs, tests/network.rs      one function per promise of `platform`
//!            │ Subject: effects, events
//!            ▼
//!          Body ──┬── Simulated   simulator::Bodies, many seeds
//!                 └── Real        three uring::Ring on the test's thread
//! ```
//!
//! A simulator is trusted only as far as it is tested: a behaviour that differs between the two
//! is a bug of one of them, and what the platform says decides of which.
//!
//! **Invariant:** no behaviour knows which arm it runs on.

mod real;
mod simulated;
mod subject;

pub use real::Real;
pub use simulated::Simulated;
pub use subject::{Subject, noise, write_request};

use platform::{Address, Effect, Event};

/// Where effects come from and events go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Shard 0 of the node under test.
    First,
    /// Shard 1 of the same node.
    Second,
    /// The only shard of another process.
    Peer,
}

impl Place {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::First, Self::Second, Self::Peer];
}

/// The bodies of all places.
pub trait Body {
    /// Does what an effect asks, or starts to.
    fn execute(&mut self, place: Place, effect: Effect);

    /// The next event of any place; waits for it.
    ///
    /// # Panics
    /// If none comes.
    fn next(&mut self) -> (Place, Event);

    /// The next event, or none if it looks as if none would come. The simulation knows; of the
    /// kernel it is a guess, so it must decide only claims that something does *not* happen.
    fn next_if_any(&mut self) -> Option<(Place, Event)>;

    /// Where to listen at a place, with port 0.
    fn address(&self, place: Place) -> Address;

    /// Where nobody listens.
    fn nowhere(&self) -> Address;
}

/// Seeds that the simulated arm tries.
pub const SEEDS: u64 = 25;

/// Makes two tests of every behaviour, one per arm. A behaviour that is left out is dead code,
/// and the compiler says so.
#[macro_export]
macro_rules! both {
    ($($behaviour:ident),+ $(,)?) => {
        mod simulated {
            $(#[test]
            fn $behaviour() {
                for seed in 0..$crate::SEEDS {
                    let body = $crate::Simulated::new(seed);
                    super::$behaviour(&mut $crate::Subject::new(body));
                }
            })+
        }
        mod real {
            $(#[test]
            fn $behaviour() {
                super::$behaviour(&mut $crate::Subject::new($crate::Real::new()));
            })+
        }
    };
}
