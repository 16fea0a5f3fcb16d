//! Views never step back: what a replica has said in a view it keeps to, across restarts.
//!
//! The evidence is what it *says*: frames on the wire and acknowledgements. A replica that has
//! spoken in view v for a group (its log, an acknowledgement) never again speaks in an earlier
//! view. A start_view_change is a wish and binds nobody.
//!
//! Source: VR Revisited §8.2 and its erratum on `log_view`; `design.md` §5.

use std::collections::BTreeMap;

use base::{GroupId, Op, View};

use super::{Verdict, ensure};

const CHECK: &str = "views";

/// What a replica says in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speech {
    /// Its log for a view.
    DoViewChange {
        /// The view its log belongs to.
        log_view: View,
    },
    /// The log of a view, or a prepare of it: it is its primary.
    Primary,
    /// It follows the primary of the view.
    PrepareOk {
        /// What it has got, up to here.
        op: Op,
    },
}

/// A frame of a replica about a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said {
    pub(crate) node: u8,
    pub(crate) group: GroupId,
    pub(crate) view: View,
    pub(crate) speech: Speech,
}

#[derive(Clone, Copy, Debug, Default)]
struct Spoken {
    view: View,
    /// The highest view in which it has acknowledged or led: its log belonged to it.
    log_view: View,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Views {
    spoken: BTreeMap<(u8, GroupId), Spoken>,
    primaries: BTreeMap<(GroupId, View), u8>,
}

impl Views {
    pub(crate) fn on_said(&mut self, time: u64, said: Said) -> Verdict {
        let Said {
            node,
            group,
            view,
            speech,
        } = said;
        let spoken = self.spoken.entry((node, group)).or_default();
        ensure(view >= spoken.view, CHECK, time, || {
            format!(
                "replica {node} says {speech:?} of {group} in view {view}, \
                 after speaking in view {}",
                spoken.view
            )
        })?;
        spoken.view = view;
        match speech {
            Speech::DoViewChange { log_view } => {
                ensure(
                    log_view >= spoken.log_view && log_view < view,
                    CHECK,
                    time,
                    || {
                        format!(
                            "replica {node} gives its log of {group} as of view {log_view} \
                             in view {view}, \
                         after being normal in view {}",
                            spoken.log_view
                        )
                    },
                )?;
            }
            Speech::Primary | Speech::PrepareOk { .. } => {
                spoken.log_view = view.max(spoken.log_view)
            }
        }
        if speech == Speech::Primary {
            let first = *self.primaries.entry((group, view)).or_insert(node);
            ensure(first == node, CHECK, time, || {
                format!("replicas {first} and {node} both lead {group} in view {view}")
            })?;
        }
        Ok(())
    }

    /// A node has lost its disk, and with it all that bound it.
    pub(crate) fn on_wiped(&mut self, node: u8) {
        self.spoken.retain(|(at, _), _| *at != node);
    }

    /// The highest view anyone has led of any group; how many view changes there were.
    pub(crate) fn view_changes(&self) -> u64 {
        let later = self.primaries.keys().filter(|(_, view)| view.0 > 0);
        later.count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId::METADATA;

    fn say(checker: &mut Views, node: u8, view: u32, speech: Speech) -> Verdict {
        checker.on_said(
            0,
            Said {
                node,
                group: GROUP,
                view: View(view),
                speech,
            },
        )
    }

    #[test]
    fn an_ordinary_view_change_passes() {
        let mut checker = Views::default();
        let log = |view| Speech::DoViewChange {
            log_view: View(view),
        };
        assert_eq!(say(&mut checker, 0, 0, Speech::Primary), Ok(()));
        assert_eq!(
            say(&mut checker, 1, 0, Speech::PrepareOk { op: Op(1) }),
            Ok(())
        );
        assert_eq!(say(&mut checker, 2, 1, log(0)), Ok(()));
        assert_eq!(say(&mut checker, 1, 1, Speech::Primary), Ok(()));
        assert_eq!(checker.view_changes(), 1);
    }

    #[test]
    fn speaking_in_an_earlier_view_fails() {
        let mut checker = Views::default();
        let log = Speech::DoViewChange { log_view: View(0) };
        assert_eq!(say(&mut checker, 2, 1, log), Ok(()));
        assert!(say(&mut checker, 2, 0, Speech::PrepareOk { op: Op(1) }).is_err());
        let speech = Speech::PrepareOk { op: Op(1) };
        assert!(say(&mut checker, 2, 0, speech).is_err());
    }

    #[test]
    fn forgetting_the_last_normal_view_fails() {
        let mut checker = Views::default();
        assert_eq!(
            say(&mut checker, 2, 3, Speech::PrepareOk { op: Op(1) }),
            Ok(())
        );
        let forgotten = Speech::DoViewChange { log_view: View(1) };
        assert!(say(&mut checker, 2, 4, forgotten).is_err());
        let inflated = Speech::DoViewChange { log_view: View(5) };
        assert!(say(&mut checker, 2, 5, inflated).is_err());
    }

    #[test]
    fn two_primaries_in_a_view_fail() {
        let mut checker = Views::default();
        assert_eq!(say(&mut checker, 0, 3, Speech::Primary), Ok(()));
        assert!(say(&mut checker, 1, 3, Speech::Primary).is_err());
    }
}
