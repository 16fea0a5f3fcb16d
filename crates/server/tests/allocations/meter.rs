//! Counts what the server allocates, and nothing that the test around it does.

use std::cell::Cell;

use allocation_counter::{AllocationInfo, measure};

/// What was allocated since the last reset.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allocated {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

thread_local! {
    static ALLOCATED: Cell<Allocated> = const { Cell::new(Allocated { count: 0, bytes: 0 }) };
}

/// Runs the server's part of a turn and counts.
pub(crate) fn inside<T>(turn: impl FnOnce() -> T) -> T {
    let mut result = None;
    let AllocationInfo {
        count_total,
        bytes_total,
        ..
    } = measure(|| result = Some(turn()));
    ALLOCATED.with(|allocated| {
        let Allocated { count, bytes } = allocated.get();
        allocated.set(Allocated {
            count: count + count_total,
            bytes: bytes + bytes_total,
        });
    });
    result.expect("the turn was run")
}

/// What the server allocates while `work` runs.
pub(crate) fn of(work: impl FnOnce()) -> Allocated {
    ALLOCATED.with(|allocated| allocated.set(Allocated::default()));
    work();
    ALLOCATED.with(Cell::get)
}
