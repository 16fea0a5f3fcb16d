//! Marks on branches that are rarely taken: a campaign that never reaches one proves nothing
//! about it.
//!
//! ```text
//!   base::sometimes!("trust: a log in doubt is trusted again");
//! ```
//!
//! A mark is nothing without the feature `marks`, which only the simulator enables; with it, each
//! thread notes which marks it has reached, and this module alone needs the standard library.

/// Notes that this place has been reached, or that a condition has held here once.
#[cfg(feature = "marks")]
#[macro_export]
macro_rules! sometimes {
    ($name:literal) => {{
        static SITE: $crate::marks::Site = $crate::marks::Site::new($name);
        SITE.reach();
    }};
    ($condition:expr, $name:literal) => {
        if $condition {
            $crate::sometimes!($name);
        }
    };
}

/// Notes that this place has been reached; nothing in this build.
#[cfg(not(feature = "marks"))]
#[macro_export]
macro_rules! sometimes {
    ($name:literal) => {};
    ($condition:expr, $name:literal) => {
        let _ = || $condition;
    };
}

#[cfg(feature = "marks")]
mod enabled {
    extern crate std;

    use core::sync::atomic::{AtomicU32, Ordering};
    use std::{cell::RefCell, sync::Mutex, vec::Vec};

    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

    std::thread_local! {
        static REACHED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }

    /// A marked place in the code.
    #[derive(Debug)]
    pub struct Site {
        name: &'static str,
        /// From 1; 0 until it is first reached.
        number: AtomicU32,
    }

    impl Site {
        /// A place that has not been reached.
        #[must_use]
        pub const fn new(name: &'static str) -> Self {
            Self {
                name,
                number: AtomicU32::new(0),
            }
        }

        /// Notes it for this thread.
        pub fn reach(&self) {
            let mut number = self.number.load(Ordering::Relaxed);
            if number == 0 {
                number = number_of(self.name);
                self.number.store(number, Ordering::Relaxed);
            }
            let index = number as usize - 1;
            REACHED.with_borrow_mut(|reached| {
                if reached.len() <= index / 64 {
                    reached.resize(index / 64 + 1, 0);
                }
                reached[index / 64] |= 1 << (index % 64);
            });
        }
    }

    /// Marks with one name are one mark.
    fn number_of(name: &'static str) -> u32 {
        let mut names = NAMES.lock().expect("nobody panics with it");
        let known = names.iter().position(|known| *known == name);
        let index = known.unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        u32::try_from(index + 1).expect("few marks")
    }

    /// The marks that this thread has reached since the last call.
    #[must_use]
    pub fn take_reached() -> Vec<&'static str> {
        let reached = REACHED.take();
        let names = NAMES.lock().expect("nobody panics with it");
        let reached = |index: usize| {
            reached
                .get(index / 64)
                .is_some_and(|bits| bits >> (index % 64) & 1 == 1)
        };
        let names = names.iter().enumerate();
        names
            .filter(|(index, _)| reached(*index))
            .map(|(_, name)| *name)
            .collect()
    }
}

#[cfg(feature = "marks")]
pub use enabled::{Site, take_reached};
