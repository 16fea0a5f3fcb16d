//! What a shard does in its own time: it tries again where the disk was full, asks its peers for
//! what damage has taken, and reads sealed data to find damage before anybody needs it.
//!
//! None of it has a timer while there is nothing to do; the scrubber has one per shard, once
//! anything is sealed.

use ::core::{
    ops::Bound::{Excluded, Unbounded},
    time::Duration,
};
use alloc::collections::BTreeSet;

use base::{GroupId, Instant};
use platform::Level;

use super::{OWNER_VIEWS, Shard};
use crate::{Observation, core::Core};

/// Groups for which one round of repair asks.
const REPAIR_GROUPS_MAX: usize = 16;

/// How long a full disk is left alone.
const SPACE_RETRY: Duration = Duration::from_secs(1);

/// How often tokens that have ended are looked for, while there are any that end.
const TOKEN_SWEEP: Duration = Duration::from_secs(10);

/// When what is due next.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    space_at: Option<Instant>,
    repair_at: Option<Instant>,
    scrub_at: Option<Instant>,
    retain_at: Option<Instant>,
    purge_at: Option<Instant>,
    sweep_at: Option<Instant>,
    /// The group that was repaired last.
    repaired: Option<GroupId>,
    /// The group that was scrubbed last.
    scrubbed: Option<GroupId>,
}

impl Upkeep {
    pub(super) fn deadline(&self) -> Option<Instant> {
        [
            self.space_at,
            self.repair_at,
            self.scrub_at,
            self.retain_at,
            self.purge_at,
            self.sweep_at,
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

impl Core {
    /// A disk request of `owner` did not fit: writes are refused until it does.
    pub(crate) fn on_full(&mut self, owner: u64) {
        if self.full.is_empty() {
            base::sometimes!("server: the disk is full");
            let line = "the disk is full: writes are refused until there is space again";
            self.log(Level::Error, line.into());
            self.observe(|| Observation::DiskFull { full: true });
        }
        self.full.insert(owner);
    }

    /// What did not fit has been written.
    pub(crate) fn on_space(&mut self, owner: u64) {
        if self.full.remove(&owner) && self.full.is_empty() {
            base::sometimes!("server: there is space on the disk again");
            self.log(Level::Info, "there is space on the disk again".into());
            self.observe(|| Observation::DiskFull { full: false });
        }
    }

    /// Whether this node refuses writes.
    pub(crate) fn is_full(&self) -> bool {
        !self.full.is_empty()
    }
}

impl Shard {
    /// At the end of a turn: sets the timers of what there is to do.
    pub(super) fn arm_upkeep(&mut self) {
        let now = self.core.now.monotonic;
        if self.core.full.is_empty() {
            self.upkeep.space_at = None;
        } else {
            self.upkeep.space_at.get_or_insert(now + SPACE_RETRY);
        }
        if self.core.gapped.is_empty() {
            self.upkeep.repair_at = None;
        } else {
            // At once: peers are asked as soon as a gap is known.
            self.upkeep.repair_at.get_or_insert(now);
        }
        let scrub = self.core.config.timing.scrub;
        if scrub.is_zero() || self.core.sealed.is_empty() || self.is_stopping() {
            self.upkeep.scrub_at = None;
        } else {
            self.upkeep.scrub_at.get_or_insert(now + scrub);
        }
        self.arm_trims();
        self.arm_sweep();
    }

    /// Sets the timers of partitions that have something to trim or purge.
    fn arm_trims(&mut self) {
        let now = self.core.now.monotonic;
        let interval = self.core.config.timing.retention;
        if interval.is_zero() || self.core.aging.is_empty() || self.is_stopping() {
            self.upkeep.retain_at = None;
        } else {
            self.upkeep.retain_at.get_or_insert(now + interval);
        }
        if self.core.owing.is_empty() || self.is_stopping() {
            self.upkeep.purge_at = None;
        } else {
            self.upkeep.purge_at.get_or_insert(now + SPACE_RETRY);
        }
    }

    /// Sets the timer of tokens that end.
    fn arm_sweep(&mut self) {
        let now = self.core.now.monotonic;
        if self.metadata.first_token_end().is_some() && self.serves_metadata() {
            self.upkeep.sweep_at.get_or_insert(now + TOKEN_SWEEP);
        } else {
            self.upkeep.sweep_at = None;
        }
    }

    pub(super) fn fire_upkeep(&mut self) {
        let now = self.core.now.monotonic;
        let due = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        if due(&mut self.upkeep.space_at) {
            self.retry_full();
        }
        if due(&mut self.upkeep.repair_at) {
            self.ask_for_bodies();
        }
        if due(&mut self.upkeep.scrub_at) {
            self.scrub();
        }
        if due(&mut self.upkeep.retain_at) {
            for id in self.core.aging.clone() {
                self.trim_partition(id);
            }
        }
        if due(&mut self.upkeep.purge_at) {
            for id in self.core.owing.clone() {
                self.trim_partition(id);
            }
        }
        if due(&mut self.upkeep.sweep_at) {
            self.sweep_tokens();
        }
    }

    /// Lets a partition trim or purge its log, if it leads and must, once the metadata has been
    /// read.
    pub(super) fn trim_partition(&mut self, id: GroupId) {
        if !self.swept {
            // The metadata may go on to say that it is deleted.
            return;
        }
        let Some(info) = self.metadata.partition(id) else {
            self.core.aging.remove(&id);
            self.core.owing.remove(&id);
            return;
        };
        if let Some(hosted) = self.groups.get_mut(&id) {
            hosted.upkeep(&info, &mut self.core);
        }
    }

    /// Has the tokens removed that have ended. They open nothing already.
    fn sweep_tokens(&mut self) {
        let end = self.metadata.first_token_end();
        if self.is_stopping() || end.is_none_or(|end| end > self.core.stamp()) {
            return;
        }
        base::sometimes!("users: tokens have ended");
        if let Some(hosted) = self.groups.get_mut(&GroupId::METADATA) {
            hosted.propose_token_sweep(&mut self.core);
        }
    }

    fn retry_full(&mut self) {
        for owner in self.core.full.clone() {
            if owner == OWNER_VIEWS {
                self.core.views.retry(&mut self.core.out);
            } else if let Some(hosted) = self.groups.get_mut(&GroupId(owner)) {
                hosted.retry(&mut self.core);
            } else {
                self.core.on_space(owner);
            }
        }
    }

    /// Asks a peer, another one each time, for each body that is missing here.
    fn ask_for_bodies(&mut self) {
        let first = self.upkeep.repaired;
        for _ in 0..REPAIR_GROUPS_MAX {
            let Some(id) = next_after(&self.core.gapped, self.upkeep.repaired) else {
                break;
            };
            self.upkeep.repaired = Some(id);
            match self.groups.get_mut(&id) {
                Some(hosted) => hosted.ask_for_bodies(&mut self.core),
                None => drop(self.core.gapped.remove(&id)),
            }
            if first == Some(id) {
                break;
            }
        }
        let retry = self.core.config.timing.repair_retry;
        let pause = self.core.prng.duration(retry, retry * 2);
        self.upkeep.repair_at = Some(self.core.now.monotonic + pause);
    }

    /// Verifies a piece of the next group that has sealed data.
    fn scrub(&mut self) {
        let Some(id) = next_after(&self.core.sealed, self.upkeep.scrubbed) else {
            return;
        };
        self.upkeep.scrubbed = Some(id);
        if let Some(hosted) = self.groups.get_mut(&id) {
            hosted.scrub(&mut self.core);
        }
    }
}

/// Round and round.
fn next_after(groups: &BTreeSet<GroupId>, last: Option<GroupId>) -> Option<GroupId> {
    let rest = last.and_then(|last| groups.range((Excluded(last), Unbounded)).next());
    rest.or(groups.first()).copied()
}
