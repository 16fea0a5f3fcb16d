//! The timers of a group, as an array indexed by an enum. None runs in normal operation.

use core::time::Duration;

use base::Instant;

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Timeout {
    /// Repeat the wish for another view.
    StartViewChange,
    /// Repeat this replica's log to the new primary.
    DoViewChange,
    /// Give the view up and wish for the next.
    ViewChange,
    /// Ask again for missing prepares.
    Repair,
}

impl Timeout {
    pub(crate) const ALL: [Self; 4] = [
        Self::StartViewChange,
        Self::DoViewChange,
        Self::ViewChange,
        Self::Repair,
    ];
}

const GRID_MICROS: u64 = 10_000;

/// Deadlines on a 10 ms grid, so that timers of many groups fire in the same turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeouts([Option<Instant>; Timeout::ALL.len()]);

impl Timeouts {
    pub(crate) fn set(&mut self, timeout: Timeout, now: Instant, after: Duration) {
        let due = now + after;
        self.0[timeout as usize] = Some(Instant(due.0.div_ceil(GRID_MICROS) * GRID_MICROS));
    }

    pub(crate) const fn clear(&mut self, timeout: Timeout) {
        self.0[timeout as usize] = None;
    }

    pub(crate) fn is_set(&self, timeout: Timeout) -> bool {
        self.0[timeout as usize].is_some()
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.iter().flatten().min().copied()
    }

    /// Takes the timer off if it is due.
    pub(crate) fn fire(&mut self, timeout: Timeout, now: Instant) -> bool {
        let due = self.0[timeout as usize].is_some_and(|due| due <= now);
        if due {
            self.clear(timeout);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_once_on_the_grid() {
        let mut timeouts = Timeouts::default();
        timeouts.set(Timeout::Repair, Instant(1), Duration::from_micros(1));
        assert_eq!(timeouts.next(), Some(Instant(10_000)));
        assert!(!timeouts.fire(Timeout::Repair, Instant(9_999)));
        assert!(timeouts.fire(Timeout::Repair, Instant(10_000)));
        assert!(!timeouts.fire(Timeout::Repair, Instant(10_000)));
        assert_eq!(timeouts.next(), None);
    }
}
