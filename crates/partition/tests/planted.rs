//! Planted bug 34 does what it is planted for: an offset is visible before its op is committed,
//! and stays if the op is cut off.
#![cfg(feature = "planted-bugs")]

// The other test binary uses the rest.
#[allow(dead_code)]
#[path = "partition/support.rs"]
mod support;

use base::Offset;
use partition::Limits;
use support::{Log, SERVER, single, store};
use wire::Operation;

#[test]
fn an_offset_shows_before_its_commit() {
    let played = || {
        let mut log = Log::new(Limits::default());
        log.send(&[b"a"]);
        log.append(
            (SERVER, 0),
            Operation::StoreConsumerOffset,
            &store(single(1), 0),
        );
        log.state.reset_appended(core::iter::empty());
        log.state.stored_offset(single(1))
    };
    assert_eq!(played(), None);
    base::planted::activate(34);
    assert_eq!(played(), Some(Offset(0)));
    base::planted::activate(0);
}
