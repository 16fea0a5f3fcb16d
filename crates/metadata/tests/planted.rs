//! Planted bug 33 does what it is planted for: replicas of one log disagree, and digests tell.
#![cfg(feature = "planted-bugs")]

// The other test binary uses the rest.
#[allow(dead_code)]
#[path = "metadata/support.rs"]
mod support;

use metadata::Limits;
use support::{Log, create_stream, replay};
use wire::Operation;

#[test]
fn a_replica_local_choice_shows_in_the_digest() {
    let salted = |replica_salt| Limits {
        replica_salt,
        ..Limits::default()
    };
    let mut log = Log::new(salted(2));
    log.result(Operation::CreateStream, &create_stream("a"))
        .expect("free");
    let digest = |salt| replay(&log.prepares, salted(salt)).0.digest();
    assert_eq!(digest(1), log.metadata.digest());
    base::planted::activate(33);
    assert_ne!(digest(1), log.metadata.digest());
    assert_eq!(digest(2), log.metadata.digest());
    base::planted::activate(0);
}
