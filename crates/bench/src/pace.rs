//! When each request is due: integers only, computed from the start each time.

use std::time::Duration;

/// The schedule of one connection of several. All requests of a run are due at equal distances,
/// and the connections take them in turn; every time is computed from the start, so that nothing
/// adds up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Messages per second of all connections; 0 for no schedule.
    pub(crate) rate: u64,
    pub(crate) batch: u64,
    pub(crate) connections: u64,
    pub(crate) connection: u64,
}

impl Pace {
    /// The place among all requests of the run of this connection's request `index`.
    const fn place(&self, index: u64) -> u64 {
        index * self.connections + self.connection
    }

    /// When it is due, since the start; nothing if there is no schedule.
    pub(crate) fn due(&self, index: u64) -> Option<Duration> {
        const NANOS: u128 = 1_000_000_000;
        let messages = u128::from(self.place(index)) * u128::from(self.batch);
        let nanos = (messages * NANOS).checked_div(u128::from(self.rate))?;
        Some(Duration::from_nanos(
            u64::try_from(nanos).unwrap_or(u64::MAX),
        ))
    }

    /// How many messages it has if the run has `total`.
    pub(crate) fn share(&self, index: u64, total: u64) -> u64 {
        let before = self.place(index).saturating_mul(self.batch);
        total.saturating_sub(before).min(self.batch)
    }

    /// How many requests from `index` on are due before `end`.
    pub(crate) fn count_before(&self, index: u64, end: Duration) -> u64 {
        let is_before = |index: &u64| self.due(*index).is_some_and(|due| due < end);
        (index..).take_while(is_before).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace {
        rate: 3_000,
        batch: 100,
        connections: 3,
        connection: 1,
    };

    #[test]
    fn connections_share_one_even_schedule() {
        let mut due: Vec<Duration> = (0..3)
            .flat_map(|connection| {
                let pace = Pace { connection, ..PACE };
                (0..10).map(move |index| pace.due(index).expect("a schedule"))
            })
            .collect();
        due.sort();
        // A batch each 33.3 ms, three connections, ten requests each.
        for (place, due) in (0_u64..).zip(due) {
            assert_eq!(due, Duration::from_nanos(place * 1_000_000_000 / 30));
        }
    }

    #[test]
    fn a_schedule_does_not_drift() {
        // Seven does not divide a second: rounding once per request would lose time.
        let pace = Pace {
            rate: 7,
            batch: 1,
            connections: 1,
            connection: 0,
        };
        assert_eq!(pace.due(7 * 86_400), Some(Duration::from_secs(86_400)));
        assert!(pace.due(u64::MAX / 2).is_some(), "nor overflow");
    }

    #[test]
    fn a_closed_loop_has_no_schedule() {
        let pace = Pace { rate: 0, ..PACE };
        assert_eq!(pace.due(5), None);
        assert_eq!(pace.count_before(0, Duration::from_secs(1)), 0);
    }

    #[test]
    fn shares_add_up_to_the_total() {
        for total in [0, 1, 99, 100, 101, 250, 1_000] {
            let shares = (0..3).map(|connection| {
                let pace = Pace { connection, ..PACE };
                (0..10).map(|index| pace.share(index, total)).sum::<u64>()
            });
            assert_eq!(shares.sum::<u64>(), total);
        }
    }

    #[test]
    fn what_was_due_and_not_sent_is_counted() {
        // Of connection 1: due at 33, 133, 233 ... 933 ms.
        assert_eq!(PACE.count_before(0, Duration::from_secs(1)), 10);
        assert_eq!(PACE.count_before(7, Duration::from_secs(1)), 3);
        assert_eq!(PACE.count_before(10, Duration::from_secs(1)), 0);
    }
}
