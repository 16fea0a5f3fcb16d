//! The cluster clock: what time a majority of the nodes agrees on, and how far this node's own
//! clock may be believed.
//!
//! An echo bounds how far a peer's clock is from ours: it read `realtime` at some moment of the
//! round trip.
//!
//! ```text
//!   this node  sent ─────────────────────────────────── heard    round trip = heard - sent - held
//!                  ╲                               ╱
//!   peer            heard ──── held ──── realtime        at `heard` it reads between
//!                                                        realtime and realtime + round trip
//! ```
//!
//! The smallest interval that a majority of the clocks (ours included) lies in is the window
//! (Marzullo 1984). A primary stamps with its own clock, clamped into the window: one wrong
//! clock in three does not move the time of the log. Without a majority that agrees the own clock
//! is all there is.
//!
//! Everything is kept as the distance to this node's monotonic clock, so a step of the realtime
//! clock between two samples is seen at once.
//!
//! **Invariant:** nothing here is ever needed for safety; timestamps of a log never step back
//! because the log sees to it, whatever the clocks do.

use ::core::time::Duration;
use alloc::vec::Vec;

use base::{Instant, ReplicaIndex, Timestamp};
use platform::Now;
use wire::replica::Beat;

/// What any clock may be off without being called wrong: they are set over a network, too.
const TOLERANCE: i64 = 10_000;

/// Two clocks drift apart by less than one part in so many: 1,000 ppm.
const DRIFT: i64 = 1_000;

/// A clock not heard of for so long is not asked.
const AGE_MAX: Duration = Duration::from_secs(10);

/// Distances of a realtime clock from our monotonic clock, in microseconds; a closed interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    low: i64,
    high: i64,
}

/// What is known of a peer's clock.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    interval: Interval,
}

impl Sample {
    /// The interval as it must be taken now: the clocks have drifted since.
    fn at(&self, now: Instant) -> Interval {
        let age = i64::try_from(now.since(self.at).as_micros()).unwrap_or(i64::MAX);
        let drift = age / DRIFT;
        let Interval { low, high } = self.interval;
        Interval {
            low: low.saturating_sub(drift),
            high: high.saturating_add(drift),
        }
    }
}

/// How this node's clock stands to the others'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// In the window, or there is none.
    Inside,
    /// Ahead of the window by so many microseconds; behind it, if negative.
    Outside(i64),
}

impl Standing {
    const fn side(self) -> i64 {
        match self {
            Self::Inside => 0,
            Self::Outside(ahead) => ahead.signum(),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ClusterClock {
    /// By replica; the own entry stays empty.
    samples: Vec<Option<Sample>>,
    window: Option<Interval>,
    standing: Standing,
}

impl ClusterClock {
    pub(crate) fn new(replica_count: u8) -> Self {
        Self {
            samples: alloc::vec![None; usize::from(replica_count)],
            window: None,
            standing: Standing::Inside,
        }
    }

    /// A heartbeat of `peer` has been heard. Answers how this node's clock stands, if that has
    /// changed.
    pub(crate) fn on_beat(
        &mut self,
        now: Now,
        peer: ReplicaIndex,
        beat: &Beat,
    ) -> Option<Standing> {
        let echo = beat.echo?;
        let slot = self.samples.get_mut(usize::from(peer.0))?;
        let held = u64::try_from(echo.held.as_micros()).unwrap_or(u64::MAX);
        let whole = now.monotonic.0.checked_sub(echo.sent.0)?;
        // Clocks that run at different speeds may make it negative.
        let round_trip = whole.saturating_sub(held);
        let low = distance(beat.realtime, now.monotonic)?;
        let high = low.checked_add(i64::try_from(round_trip).ok()?)?;
        let fresh = Sample {
            at: now.monotonic,
            interval: Interval { low, high },
        };
        let width = |interval: Interval| interval.high.saturating_sub(interval.low);
        let tighter = |old: &Sample| {
            let old_now = old.at(now.monotonic);
            // A clock that has been set since is not where it was.
            let apart = old_now.low > high || old_now.high < low;
            // In time before it may no longer be used, or its clock would be without a voice
            // until its next heartbeat.
            let is_old = now.monotonic.since(old.at) > AGE_MAX / 2;
            base::sometimes!(is_old, "clock: a sample is replaced for its age");
            apart || is_old || width(fresh.interval) <= width(old_now)
        };
        if slot.as_ref().is_none_or(tighter) {
            *slot = Some(fresh);
        }
        self.agree(now)
    }

    /// Finds the window anew.
    fn agree(&mut self, now: Now) -> Option<Standing> {
        let own = distance(now.realtime, now.monotonic)?;
        for sample in &mut self.samples {
            sample.take_if(|sample| now.monotonic.since(sample.at) > AGE_MAX);
        }
        let peers = self.samples.iter().flatten();
        let mut intervals: Vec<Interval> = peers.map(|sample| sample.at(now.monotonic)).collect();
        intervals.push(Interval {
            low: own,
            high: own,
        });
        for interval in &mut intervals {
            interval.low = interval.low.saturating_sub(TOLERANCE);
            interval.high = interval.high.saturating_add(TOLERANCE);
        }
        let majority = self.samples.len() / 2 + 1;
        self.window = marzullo(&intervals, majority);
        let standing = match self.window {
            Some(window) if own > window.high.saturating_add(TOLERANCE) => {
                Standing::Outside(own.saturating_sub(window.high))
            }
            Some(window) if own < window.low.saturating_sub(TOLERANCE) => {
                Standing::Outside(own.saturating_sub(window.low))
            }
            _ => Standing::Inside,
        };
        let before = ::core::mem::replace(&mut self.standing, standing);
        (before.side() != standing.side()).then_some(standing)
    }

    /// What a primary stamps with.
    pub(crate) fn realtime(&self, now: Now) -> Timestamp {
        let (Some(window), Some(own)) = (self.window, distance(now.realtime, now.monotonic)) else {
            return now.realtime;
        };
        let clamped = own.clamp(window.low, window.high);
        if clamped == own {
            return now.realtime;
        }
        base::sometimes!("clock: a stamp is clamped into the window");
        Timestamp(now.monotonic.0.saturating_add_signed(clamped))
    }
}

/// How far a realtime clock is ahead of the monotonic one; none if no clock could say so.
fn distance(realtime: Timestamp, monotonic: Instant) -> Option<i64> {
    i64::try_from(realtime.0)
        .ok()?
        .checked_sub(i64::try_from(monotonic.0).ok()?)
}

/// The smallest interval that lies in as many of `intervals` as any does, if that are at least
/// `majority`.
fn marzullo(intervals: &[Interval], majority: usize) -> Option<Interval> {
    let count_at = |point: i64| {
        let holds = |interval: &&Interval| interval.low <= point && point <= interval.high;
        intervals.iter().filter(holds).count()
    };
    // The best interval begins where one begins; at most seven of them.
    let begins = intervals.iter().map(|interval| interval.low);
    let (count, low) = begins
        .map(|low| (count_at(low), low))
        .max_by_key(|(count, low)| (*count, ::core::cmp::Reverse(*low)))?;
    let around = intervals
        .iter()
        .filter(|interval| interval.low <= low && low <= interval.high);
    let high = around.map(|interval| interval.high).min()?;
    (count >= majority).then_some(Interval { low, high })
}

#[cfg(test)]
mod tests {
    use wire::replica::Echo;

    use super::*;

    const EPOCH: u64 = 1_700_000_000_000_000;
    const SECOND: u64 = 1_000_000;

    fn interval(low: i64, high: i64) -> Interval {
        Interval { low, high }
    }

    /// A world in which this node's clock is `own` off, and each peer's as listed.
    struct World {
        clock: ClusterClock,
        own: i64,
        peers: Vec<i64>,
        round_trip: u64,
    }

    impl World {
        fn new(own: i64, peers: &[i64]) -> Self {
            let count = u8::try_from(peers.len() + 1).expect("few");
            Self {
                clock: ClusterClock::new(count),
                own,
                peers: peers.to_vec(),
                round_trip: 2_000,
            }
        }

        fn now(&self, time: u64) -> Now {
            Now {
                monotonic: Instant(time + 77),
                realtime: Timestamp((EPOCH + time).saturating_add_signed(self.own)),
            }
        }

        /// All peers are heard at `time`.
        fn hear(&mut self, time: u64) -> Option<Standing> {
            let mut last = None;
            for index in 0..self.peers.len() {
                last = self.hear_one(index, time).or(last);
            }
            last
        }

        fn hear_one(&mut self, index: usize, time: u64) -> Option<Standing> {
            let read = EPOCH + time - self.round_trip / 2;
            let beat = Beat {
                sent: Instant(5),
                realtime: Timestamp(read.saturating_add_signed(self.peers[index])),
                echo: Some(Echo {
                    sent: Instant(time + 77 - 50_000 - self.round_trip),
                    held: Duration::from_millis(50),
                }),
            };
            let peer = ReplicaIndex(u8::try_from(index + 1).expect("few"));
            self.clock.on_beat(self.now(time), peer, &beat)
        }

        /// How far the stamp is off true time.
        fn stamp(&self, time: u64) -> i64 {
            let stamp = self.clock.realtime(self.now(time)).0;
            i64::try_from(stamp).expect("small") - i64::try_from(EPOCH + time).expect("small")
        }
    }

    #[test]
    fn the_smallest_interval_of_the_most_clocks_wins() {
        let all = [interval(8, 12), interval(11, 13), interval(10, 12)];
        assert_eq!(marzullo(&all, 2), Some(interval(11, 12)));
        let two = [interval(8, 9), interval(0, 100), interval(20, 30)];
        assert_eq!(
            marzullo(&two, 2),
            Some(interval(8, 9)),
            "the first of equals"
        );
        let none = [interval(0, 1), interval(2, 3), interval(4, 5)];
        assert_eq!(marzullo(&none, 2), None);
        assert_eq!(marzullo(&[interval(4, 4)], 1), Some(interval(4, 4)));
    }

    #[test]
    fn clocks_that_agree_leave_the_stamp_alone() {
        let mut world = World::new(1_500, &[-2_000, 900]);
        assert_eq!(world.hear(SECOND), None);
        assert_eq!(world.stamp(SECOND + 500), 1_500);
    }

    #[test]
    fn a_clock_an_hour_off_is_clamped_and_said_to_be_off() {
        for hour in [3_600_000_000, -3_600_000_000] {
            let mut world = World::new(hour, &[0, 300]);
            let Some(Standing::Outside(ahead)) = world.hear(SECOND) else {
                panic!("one against two");
            };
            assert_eq!(ahead.signum(), hour.signum());
            assert!(world.stamp(SECOND + 10).abs() < 20_000);
            assert_eq!(world.hear(2 * SECOND), None, "said once");
            world.own = 0;
            assert_eq!(world.hear(3 * SECOND), Some(Standing::Inside));
        }
    }

    #[test]
    fn a_step_between_two_heartbeats_does_not_show() {
        let mut world = World::new(0, &[0, 0]);
        world.hear(SECOND);
        world.own = -60_000_000;
        assert!(world.stamp(SECOND + 50_000).abs() < 20_000);
    }

    #[test]
    fn a_peer_whose_heartbeats_take_longer_now_keeps_its_voice() {
        let mut world = World::new(3_600_000_000, &[0, 0]);
        world.hear(SECOND);
        world.round_trip = 40_000;
        for second in 2..40 {
            for index in 0..2 {
                let time = second * SECOND + index as u64 * SECOND / 2;
                world.hear_one(index, time);
                assert!(world.stamp(time).abs() < 100_000, "at {time}");
            }
        }
    }

    #[test]
    fn one_wrong_peer_is_outvoted_and_no_majority_is_no_window() {
        let mut world = World::new(0, &[0, 90_000_000]);
        assert_eq!(world.hear(SECOND), None);
        assert_eq!(world.stamp(SECOND), 0);
        let mut world = World::new(50_000_000, &[0, 90_000_000]);
        assert_eq!(world.hear(SECOND), None);
        assert_eq!(world.stamp(SECOND), 50_000_000);
    }

    #[test]
    fn a_peer_whose_clock_is_set_is_believed_at_once() {
        let mut world = World::new(0, &[70_000_000, 70_000_000]);
        assert!(world.hear(SECOND).is_some());
        world.peers = alloc::vec![0, 0];
        assert_eq!(world.hear(2 * SECOND), Some(Standing::Inside));
        assert_eq!(world.stamp(2 * SECOND), 0);
    }

    #[test]
    fn what_was_heard_long_ago_counts_no_more() {
        let mut world = World::new(0, &[70_000_000, 70_000_000]);
        assert!(world.hear(SECOND).is_some());
        world.peers.truncate(1);
        world.hear(20 * SECOND);
        assert_eq!(
            world.stamp(20 * SECOND),
            0,
            "two clocks of three, and they differ"
        );
    }

    #[test]
    fn nonsense_from_a_peer_is_no_sample() {
        let mut clock = ClusterClock::new(3);
        let now = Now {
            monotonic: Instant(1_000),
            realtime: Timestamp(EPOCH),
        };
        for (realtime, sent, held) in [(u64::MAX, 0, 0), (0, u64::MAX, 0), (EPOCH, 0, u64::MAX)] {
            let beat = Beat {
                sent: Instant(0),
                realtime: Timestamp(realtime),
                echo: Some(Echo {
                    sent: Instant(sent),
                    held: Duration::from_micros(held),
                }),
            };
            clock.on_beat(now, ReplicaIndex(1), &beat);
            clock.on_beat(now, ReplicaIndex(200), &beat);
        }
        assert_eq!(clock.realtime(now), Timestamp(EPOCH));
    }
}
