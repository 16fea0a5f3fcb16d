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

#[cfg(feature = "planted-bugs")]
static SILENT: core::sync::atomic::AtomicBool = core::sync::atomic::AtomicBool::new(false);

/// Whether invariants stop the process; always, unless a hunt for planted bugs asks what the
/// checkers would find on their own.
#[cfg(feature = "planted-bugs")]
#[inline]
#[must_use]
pub fn invariants_stop() -> bool {
    !SILENT.load(core::sync::atomic::Ordering::Relaxed)
}

/// Lets violated invariants pass, or not.
#[cfg(feature = "planted-bugs")]
pub fn silence_invariants(silent: bool) {
    SILENT.store(silent, core::sync::atomic::Ordering::Relaxed);
}

/// What must hold here: as `assert!`, which it is in every product build. With planted bugs
/// compiled in it can be silenced; the condition is evaluated all the same.
#[cfg(not(feature = "planted-bugs"))]
#[macro_export]
macro_rules! invariant {
    ($($arguments:tt)*) => { assert!($($arguments)*) };
}

/// As [`invariant!`](crate::invariant), for two values that must be equal.
#[cfg(not(feature = "planted-bugs"))]
#[macro_export]
macro_rules! invariant_eq {
    ($($arguments:tt)*) => { assert_eq!($($arguments)*) };
}

/// What must hold here, unless silenced.
#[cfg(feature = "planted-bugs")]
#[macro_export]
macro_rules! invariant {
    ($condition:expr $(,)?) => {
        if !$condition && $crate::planted::invariants_stop() {
            panic!(concat!("assertion failed: ", stringify!($condition)));
        }
    };
    ($condition:expr, $($message:tt)+) => {
        if !$condition && $crate::planted::invariants_stop() {
            panic!($($message)+);
        }
    };
}

/// As [`invariant!`](crate::invariant), for two values that must be equal.
#[cfg(feature = "planted-bugs")]
#[macro_export]
macro_rules! invariant_eq {
    ($left:expr, $right:expr $(, $($message:tt)*)?) => {
        match (&$left, &$right) {
            (left, right) => {
                $crate::invariant!(left == right, "assertion failed: {left:?} is not {right:?}");
            }
        }
    };
}
