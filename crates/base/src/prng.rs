//! Seeded randomness: one ChaCha stream per (seed, domain, entity), so that a draw in one domain
//! never shifts another.

use core::time::Duration;

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};

/// What a stream of randomness is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Domain {
    /// Shape of the cluster and limits of a simulated run.
    Shape = 1,
    /// Network delays, fragmentation and faults.
    Network = 2,
    /// Disk latencies and what a power loss keeps.
    Disk = 3,
    /// Crashes, restarts, pauses.
    Process = 4,
    /// What clients ask for.
    Workload = 5,
    /// Jitter inside a replica.
    Replica = 6,
    /// Jitter and identities inside a client.
    Client = 7,
    /// Clock offsets.
    Clock = 8,
}

/// A stream of seeded random numbers.
#[derive(Clone, Debug)]
pub struct Prng(ChaCha8Rng);

impl Prng {
    /// The stream of `entity` in `domain` under `seed`.
    #[must_use]
    pub fn new(seed: u64, domain: Domain, entity: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..12].copy_from_slice(&(domain as u32).to_le_bytes());
        key[16..24].copy_from_slice(&entity.to_le_bytes());
        Self(ChaCha8Rng::from_seed(key))
    }

    /// A uniform 64-bit number.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform 128-bit number.
    pub fn next_u128(&mut self) -> u128 {
        u128::from(self.next_u64()) << 64 | u128::from(self.next_u64())
    }

    /// A uniform number in `0 .. bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        // Multiply-shift; the bias is below 2^-64 * bound, of no matter here.
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("below bound")
    }

    /// A uniform number in `low ..= high`.
    ///
    /// # Panics
    /// If `low` is above `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high);
        low + self.below(high - low + 1)
    }

    /// True in `numerator` of `denominator` cases.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// An index into a non-empty slice of `len` items.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below a usize")
    }

    /// A uniform duration in `low ..= high`, in whole microseconds.
    pub fn duration(&mut self, low: Duration, high: Duration) -> Duration {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.between(micros(low), micros(high)))
    }

    /// Roughly exponential with the given mean: integers only, bounded by eight times the mean.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        // -ln(u) by leading zeros plus a linear fraction: no floats, monotone, mean within 6 %.
        let u = self.next_u64() | 1;
        let zeros = u64::from(u.leading_zeros());
        let fraction = (u << u.leading_zeros()) >> 55 & 0xff; // 8 bits below the leading one
        let log2_q8 = (zeros << 8) + (255 - fraction);
        let mean_micros = u64::try_from(mean.as_micros()).unwrap_or(u64::MAX >> 16);
        // ln 2 = 177/256.
        let micros = mean_micros.saturating_mul(log2_q8) / 256 * 177 / 256;
        Duration::from_micros(micros.min(mean_micros.saturating_mul(8)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_independent_and_repeatable() {
        let draw = |domain, entity| Prng::new(7, domain, entity).next_u64();
        assert_eq!(draw(Domain::Disk, 1), draw(Domain::Disk, 1));
        assert_ne!(draw(Domain::Disk, 1), draw(Domain::Disk, 2));
        assert_ne!(draw(Domain::Disk, 1), draw(Domain::Network, 1));
    }

    #[test]
    fn exponential_has_its_mean() {
        let mut prng = Prng::new(1, Domain::Network, 0);
        let mean = Duration::from_millis(10);
        let total: Duration = (0..10_000).map(|_| prng.exponential(mean)).sum();
        let average = total / 10_000;
        assert!(
            average > mean * 85 / 100 && average < mean * 115 / 100,
            "{average:?}"
        );
    }
}
