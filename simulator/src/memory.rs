//! The system allocator, counting bytes per thread: a run is one thread, so this is its memory.
//!
//! Memory given back on another thread than it came from would blur the figure by its size; runs
//! hand over nothing but their small results.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// See the module.
pub(crate) struct Counting;

thread_local! {
    static NOW: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
    static BASE: Cell<i64> = const { Cell::new(0) };
}

/// Starts a measurement on this thread.
pub(crate) fn reset() {
    let now = NOW.get();
    BASE.set(now);
    PEAK.set(now);
}

/// Most bytes in use on this thread since, beyond what was in use then.
pub(crate) fn peak() -> u64 {
    u64::try_from(PEAK.get() - BASE.get()).unwrap_or(0)
}

fn count(change: i64) {
    // During the end of a thread its counters are gone; nobody asks for them any more.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

fn size(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("allocations are below 2^63 bytes")
}

// SAFETY: every call is passed on to the system allocator unchanged; counting touches only
// thread-local cells, which do not allocate.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(size(layout.size()));
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-size(layout.size()));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(size(layout.size()));
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(size(new_size) - size(layout.size()));
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
