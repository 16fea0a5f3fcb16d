//! Events of a stretch of a run, each with the digest after it: what two runs of a seed are
//! compared by once they are known to differ there.

use std::ops::Range;

use super::Digest;
use crate::cli::say;

/// An event that was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) digest: u64,
    pub(crate) line: String,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    /// By number of the event, from 1.
    events: Range<u64>,
    pub(super) seen: Vec<Seen>,
}

impl Watch {
    /// Keeps these events.
    pub(crate) const fn over(events: Range<u64>) -> Self {
        Self {
            events,
            seen: Vec::new(),
        }
    }

    /// Whether the last event of the digest is to be kept.
    pub(super) fn is_on(&self, digest: &Digest) -> bool {
        self.events.contains(&digest.events())
    }

    /// The last event of the digest is `line`.
    pub(super) fn take(&mut self, digest: &Digest, print: bool, line: String) {
        if print {
            say(&line);
        }
        if self.is_on(digest) {
            let digest = digest.value();
            self.seen.push(Seen { digest, line });
        }
    }
}
