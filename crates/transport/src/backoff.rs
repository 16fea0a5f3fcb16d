//! Pauses between attempts: doubling, bounded, with jitter, so that peers that lost each other at
//! one moment do not come back at one moment.

use core::time::Duration;

use base::Prng;

/// A growing pause.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    last: Duration,
    next: Duration,
}

impl Backoff {
    /// Pauses from `first` on, doubling up to `last`.
    ///
    /// # Panics
    /// If `first` is zero or above `last`.
    #[must_use]
    pub fn new(first: Duration, last: Duration) -> Self {
        assert!(!first.is_zero());
        assert!(first <= last);
        Self {
            first,
            last,
            next: first,
        }
    }

    /// The pause before the next attempt: half to all of the present step.
    pub fn pause(&mut self, prng: &mut Prng) -> Duration {
        let step = self.next;
        self.next = (step * 2).min(self.last);
        prng.duration(step / 2, step)
    }

    /// An attempt went well.
    pub const fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use base::Domain;

    use super::*;

    #[test]
    fn pauses_double_to_the_bound_and_start_over() {
        let mut prng = Prng::new(1, Domain::Client, 0);
        let millis = Duration::from_millis;
        let mut backoff = Backoff::new(millis(10), millis(50));
        for step in [10, 20, 40, 50, 50].map(millis) {
            let pause = backoff.pause(&mut prng);
            assert!(pause >= step / 2 && pause <= step, "{pause:?} of {step:?}");
        }
        backoff.reset();
        assert!(backoff.pause(&mut prng) <= millis(10));
    }

    #[test]
    fn peers_do_not_pause_alike() {
        let pause = |entity| {
            let mut prng = Prng::new(1, Domain::Replica, entity);
            Backoff::new(Duration::from_secs(1), Duration::from_secs(1)).pause(&mut prng)
        };
        assert_ne!(pause(0), pause(1));
    }
}
