//! The real arm: three rings on the test's own thread, a directory per process, sockets of the
//! loopback interface.

use std::{
    fs,
    path::PathBuf,
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, channel},
    },
    time::Duration,
};

use base::Instant;
use platform::{Address, Effect, Event};
use uring::{Options, Report, Ring, mesh};

use crate::{Body, Place};

/// How long something that must happen may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long nothing must happen until it is taken that nothing will.
const SILENCE: Duration = Duration::from_millis(30);
/// How long one ring is waited for before the others are looked at.
const STEP: Duration = Duration::from_micros(200);

/// A directory that goes with its owner.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("viewstamp-conformance-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a temporary directory can be made");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What cannot be removed is left to the system.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// See the module.
pub struct Real {
    // First, so that it is dropped first: rings wait for what they have in flight.
    rings: Vec<(Place, Ring)>,
    /// Which ring is looked at first, so that none is preferred.
    turn: usize,
    _reports: Vec<Receiver<Report>>,
    _directories: Vec<Directory>,
}

impl Real {
    /// Rings and directories of its own.
    ///
    /// # Panics
    /// If the kernel gives no ring or no directory.
    #[must_use]
    pub fn new() -> Self {
        let (mut rings, mut reports, mut directories) = (vec![], vec![], vec![]);
        for places in [&[Place::First, Place::Second][..], &[Place::Peer]] {
            let (sender, receiver) = channel();
            let count = u16::try_from(places.len()).expect("few places");
            let (ports, _) = mesh(count, 16, &sender, ()).expect("the kernel gives descriptors");
            let directory = Directory::new();
            for (&place, port) in places.iter().zip(ports) {
                let ring = Ring::new(port, &directory.0, &Options::default());
                rings.push((place, ring.expect("the kernel gives rings")));
            }
            reports.push(receiver);
            directories.push(directory);
        }
        Self {
            rings,
            turn: 0,
            _reports: reports,
            _directories: directories,
        }
    }

    fn now(&self) -> Instant {
        self.rings[0].1.now().monotonic
    }

    /// The next event that comes before `patience` is over.
    fn wait(&mut self, patience: Duration) -> Option<(Place, Event)> {
        let until = self.now() + patience;
        let mut step = Duration::ZERO;
        loop {
            for _ in 0..self.rings.len() {
                self.turn = (self.turn + 1) % self.rings.len();
                // Taken one by one, so that the ring can keep to itself what a close forbids.
                let (place, ring) = &mut self.rings[self.turn];
                if let Some(event) = ring.next_event() {
                    return Some((*place, event));
                }
            }
            if self.now() > until {
                return None;
            }
            for (_, ring) in &mut self.rings {
                let deadline = ring.now().monotonic + step;
                ring.wait(Some(deadline)).expect("rings go on");
            }
            step = STEP;
        }
    }
}

impl Default for Real {
    fn default() -> Self {
        Self::new()
    }
}

impl Body for Real {
    fn execute(&mut self, place: Place, effect: Effect) {
        let ring = self.rings.iter_mut().find(|(at, _)| *at == place);
        let (_, ring) = ring.expect("every place has a ring");
        ring.execute(effect).expect("rings go on");
    }

    fn next(&mut self) -> (Place, Event) {
        self.wait(PATIENCE).expect("something is to happen")
    }

    fn next_if_any(&mut self) -> Option<(Place, Event)> {
        self.wait(SILENCE)
    }

    fn address(&self, _: Place) -> Address {
        Address::from(([127, 0, 0, 1], 0))
    }

    fn nowhere(&self) -> Address {
        // Below the ports that the kernel gives away, and of a protocol that nobody speaks.
        Address::from(([127, 0, 0, 1], 1))
    }
}
