//! Planted bugs: one-line mutations that prove the checkers would notice.
//!
//! Compiled in only with the feature `planted-bugs`, chosen at run time, one at a time. Each site
//! reads `if planted::bug(7) { wrong } else { right }`; without the feature it is a constant
//! `false`.

#[cfg(feature = "planted-bugs")]
static ACTIVE: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);

/// Whether planted bug `number` is active.
#[inline]
#[must_use]
pub fn bug(number: u32) -> bool {
    #[cfg(feature = "planted-bugs")]
    return ACTIVE.load(core::sync::atomic::Ordering::Relaxed) == number;
    #[cfg(not(feature = "planted-bugs"))]
    {
        let _ = number;
        false
    }
}

/// Chooses the active bug; 0 is none.
#[cfg(feature = "planted-bugs")]
pub fn activate(number: u32) {
    ACTIVE.store(number, core::sync::atomic::Ordering::Relaxed);
}
