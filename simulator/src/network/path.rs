//! The way from one host to another: whether anything passes, how fast, and what gets damaged.

use base::Bytes;
use serde::{Deserialize, Serialize};

/// How much slower than usual a way is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Slowness {
    /// Added to every delay, in microseconds.
    pub(crate) delay: u64,
    /// The delay grows by this share of the time that passes, up to [`LAG_MAX`]: the way is never
    /// silent, but what arrives was said ever longer ago.
    pub(crate) lag_percent: u64,
    /// No more than this passes in a second; the rest waits its turn. 0 is no bound.
    pub(crate) bytes_per_second: u64,
}

/// Most of what [`Slowness::lag_percent`] comes to, in microseconds.
const LAG_MAX: u64 = 20_000_000;

/// What happens to the next bytes on a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Damage {
    /// One bit of them turns over.
    Flip,
    /// Some of them are missing: fewer than a header, so that never a whole frame is.
    Hole,
    /// Their end is missing, as above.
    Tail,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Path {
    /// Nothing passes.
    pub(super) cut: bool,
    slowness: Slowness,
    slow_since: u64,
    /// When all that was sent before has passed, where there is a bound.
    busy_until: u64,
    damage: Option<(Damage, u64)>,
}

impl Path {
    pub(super) fn slow_down(&mut self, now: u64, slowness: Slowness) {
        self.slowness = slowness;
        self.slow_since = now;
        self.busy_until = self.busy_until.max(now);
    }

    pub(super) const fn damage_next(&mut self, damage: Damage, pick: u64) {
        self.damage = Some((damage, pick));
    }

    /// Ends all that is wrong with it; what is on its way stays late.
    pub(super) fn mend(&mut self) {
        *self = Self {
            busy_until: self.busy_until,
            ..Self::default()
        };
    }

    pub(super) fn is_sound(&self) -> bool {
        !self.cut && self.slowness == Slowness::default()
    }

    /// What the way adds to the usual delay of bytes that are sent now.
    pub(super) fn detour(&mut self, now: u64, size: usize) -> u64 {
        let Slowness {
            delay,
            lag_percent,
            bytes_per_second,
        } = self.slowness;
        if self.slowness == Slowness::default() {
            return 0;
        }
        let mut detour = delay;
        if lag_percent > 0 {
            let lag = (now - self.slow_since) * lag_percent / 100;
            base::sometimes!(
                lag > 5_000_000,
                "fault: a frame is seconds late on a live link"
            );
            detour += lag.min(LAG_MAX);
        }
        if let Some(passage) = (size as u64 * 1_000_000).checked_div(bytes_per_second) {
            let start = self.busy_until.max(now);
            self.busy_until = start + passage;
            base::sometimes!(start > now, "fault: bytes wait for a slow link");
            detour += self.busy_until - now;
        }
        base::sometimes!(delay > 0, "fault: a delay spike");
        detour
    }

    /// The bytes as they come out at the other end; none if they come out as they went in.
    pub(super) fn damaged(&mut self, bytes: &Bytes) -> Option<Bytes> {
        if bytes.len() < 2 {
            return None;
        }
        let (damage, pick) = self.damage.take()?;
        let place = |count: usize| usize::try_from(pick % count as u64).expect("an index");
        let most = bytes.len().min(super::HOLE_MAX + 1) - 1;
        let missing = 1 + usize::try_from(pick >> 32).expect("64 bits") % most;
        let mut damaged = bytes.to_vec();
        match damage {
            Damage::Flip => damaged[place(bytes.len())] ^= 1 << (pick >> 61),
            Damage::Hole => {
                let start = place(bytes.len() - missing + 1);
                damaged.drain(start..start + missing);
            }
            Damage::Tail => damaged.truncate(bytes.len() - missing),
        }
        Some(Bytes::copy_of(&damaged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_way_makes_bytes_wait_for_those_before() {
        let mut path = Path::default();
        assert_eq!(path.detour(5, 1000), 0);
        path.slow_down(
            10,
            Slowness {
                bytes_per_second: 1000,
                ..Slowness::default()
            },
        );
        assert_eq!(path.detour(10, 500), 500_000);
        assert_eq!(path.detour(10, 500), 1_000_000);
        assert_eq!(path.detour(2_000_010, 100), 100_000);
        path.mend();
        assert_eq!(path.detour(2_000_010, 100), 0);
    }

    #[test]
    fn a_lagging_way_is_later_and_later() {
        let mut path = Path::default();
        path.slow_down(
            0,
            Slowness {
                lag_percent: 50,
                ..Slowness::default()
            },
        );
        assert_eq!(path.detour(1_000_000, 1), 500_000);
        assert_eq!(path.detour(10_000_000, 1), 5_000_000);
        assert_eq!(path.detour(100_000_000, 1), LAG_MAX);
    }

    #[test]
    fn damage_is_done_once_and_never_takes_a_whole_frame() {
        let bytes = Bytes::copy_of(&[7; 300]);
        for damage in [Damage::Flip, Damage::Hole, Damage::Tail] {
            for pick in 0..200u64 {
                let mut path = Path::default();
                path.damage_next(damage, pick << 33 | pick);
                let damaged = path.damaged(&bytes).expect("it was armed");
                assert_ne!(damaged[..], bytes[..]);
                assert!(damaged.len() + super::super::HOLE_MAX >= bytes.len());
                assert!(path.damaged(&bytes).is_none());
            }
        }
    }
}
