//! The system allocator, counting bytes per thread: a run is one thread, so this is its memory.
//!
//! Blocks of the usual sizes are not given back: they wait in a list of their class and thread for
//! the next of their kind, so that one seed after another runs in the same memory.
//!
//! ```text
//!   size ≤ 1 KiB    classes 32 bytes apart
//!   size ≤ 64 KiB   classes of powers of two; from 4 KiB on page-aligned, as disk buffers ask
//!   else            the system's
//! ```
//!
//! Memory given back on another thread than it came from would blur the figure by its size; runs
//! hand over nothing but their small results.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr::{self, NonNull},
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

/// Small classes are so many bytes apart.
const STEP: usize = 32;
const SMALL_MAX: usize = 1 << 10;
const LARGE_MAX: usize = 64 << 10;
const SMALL_CLASSES: usize = SMALL_MAX / STEP;
const CLASSES: usize = SMALL_CLASSES + (LARGE_MAX / SMALL_MAX).ilog2() as usize;
const PAGE: usize = 4096;

thread_local! {
    /// The first free block of each class; each block begins with the address of the next.
    static FREE: [Cell<*mut u8>; CLASSES] =
        const { [const { Cell::new(ptr::null_mut()) }; CLASSES] };
}

/// The class of a block and what all blocks of it are laid out as; none for the system's own.
fn class_of(layout: Layout) -> Option<(usize, Layout)> {
    let (size, align) = (layout.size(), layout.align());
    let (class, whole, least) = if size <= SMALL_MAX {
        let class = size.saturating_sub(1) / STEP;
        (class, (class + 1) * STEP, STEP)
    } else if size <= LARGE_MAX {
        let whole = size.next_power_of_two();
        let class = SMALL_CLASSES - 1 + (whole / SMALL_MAX).ilog2() as usize;
        (class, whole, if whole >= PAGE { PAGE } else { STEP })
    } else {
        return None;
    };
    let layout = Layout::from_size_align(whole, least).ok()?;
    (align <= least).then_some((class, layout))
}

/// A free block of a class, if this thread has one.
fn take(class: usize) -> Option<NonNull<u8>> {
    FREE.try_with(|free| {
        let block = NonNull::new(free[class].get())?;
        // SAFETY: `give` wrote the address of the next block there, and nobody has had the block
        // since.
        #[allow(unsafe_code)]
        let next = unsafe { block.cast::<*mut u8>().read() };
        free[class].set(next);
        Some(block)
    })
    .ok()
    .flatten()
}

/// Keeps a block for the next of its class; false at the end of a thread.
fn give(class: usize, block: NonNull<u8>) -> bool {
    let kept = FREE.try_with(|free| {
        // SAFETY: the block is free, at least `STEP` bytes long and aligned for an address.
        #[allow(unsafe_code)]
        unsafe {
            block.cast::<*mut u8>().write(free[class].get());
        }
        free[class].set(block.as_ptr());
    });
    kept.is_ok()
}

// SAFETY: a block comes from the system with the layout of its class, or its own if it has none,
// and goes back to where it came from; counting and lists are thread-local cells, which do not
// allocate.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(size(layout.size()));
        let Some((class, whole)) = class_of(layout) else {
            // SAFETY: the caller's contract is the same.
            return unsafe { System.alloc(layout) };
        };
        // SAFETY: as above; a class is never empty.
        take(class).map_or_else(|| unsafe { System.alloc(whole) }, NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-size(layout.size()));
        let Some((class, whole)) = class_of(layout) else {
            // SAFETY: as above.
            return unsafe { System.dealloc(pointer, layout) };
        };
        let kept = NonNull::new(pointer).is_some_and(|block| give(class, block));
        if !kept {
            // SAFETY: it came from the system with this layout.
            unsafe { System.dealloc(pointer, whole) }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(size(layout.size()));
        let Some((class, whole)) = class_of(layout) else {
            // SAFETY: as above.
            return unsafe { System.alloc_zeroed(layout) };
        };
        let Some(block) = take(class) else {
            // SAFETY: as above.
            return unsafe { System.alloc_zeroed(whole) };
        };
        // SAFETY: the block is at least as long as the layout.
        unsafe { block.as_ptr().write_bytes(0, layout.size()) };
        block.as_ptr()
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(new_size, layout.align()) else {
            return ptr::null_mut();
        };
        let (old, new) = (class_of(layout), class_of(wanted));
        if old == new {
            count(size(new_size) - size(layout.size()));
            if old.is_some() {
                return pointer;
            }
            // SAFETY: it came from the system with this layout.
            return unsafe { System.realloc(pointer, layout, new_size) };
        }
        // SAFETY: the new block is another one and as long as what is copied; the old one is not
        // used again.
        unsafe {
            let moved = self.alloc(wanted);
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(pointer, layout.size().min(new_size));
                self.dealloc(pointer, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_its_sizes_and_no_two_layouts_share_one() {
        let mut last: Option<(usize, Layout)> = None;
        for size in 1..=LARGE_MAX {
            let layout = Layout::from_size_align(size, 8).expect("a layout");
            let (class, whole) = class_of(layout).expect("a usual size");
            assert!(class < CLASSES && whole.size() >= size);
            if let Some((before, layout)) = last {
                assert!((class == before) == (whole == layout));
                assert!(class == before || class == before + 1);
            }
            last = Some((class, whole));
        }
        assert_eq!(last.map(|(class, _)| class), Some(CLASSES - 1));
    }

    #[test]
    fn odd_layouts_are_the_systems() {
        let of = |size, align| class_of(Layout::from_size_align(size, align).expect("a layout"));
        assert!(of(LARGE_MAX + 1, 8).is_none());
        assert!(of(64, 64).is_none());
        assert!(of(4096, 4096).is_some());
        assert!(of(4096, 8192).is_none());
    }
}
