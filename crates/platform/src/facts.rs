//! What only the body knows of the process and its machine, for answers to people: no logic may
//! depend on it.

use alloc::string::String;

/// The process and its machine at a moment. What cannot be found out is 0 or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Of the process.
    pub process_id: u32,
    /// Of the process since it was last asked, in per cent of one core, as the bits of an `f32`:
    /// core code has no floats.
    pub cpu_usage_bits: u32,
    /// Of the machine since it was last asked, in per cent of all cores, as the bits of an `f32`.
    pub cpu_usage_total_bits: u32,
    /// Bytes of memory the process holds.
    pub memory_usage: u64,
    /// Bytes of memory of the machine.
    pub memory_total: u64,
    /// Bytes of memory that are still to be had.
    pub memory_available: u64,
    /// Bytes the process has read from disks.
    pub bytes_read: u64,
    /// Bytes the process has written to disks.
    pub bytes_written: u64,
    /// Name of the machine.
    pub hostname: String,
    /// Name of the operating system.
    pub os_name: String,
    /// Its version.
    pub os_version: String,
    /// Version of its kernel.
    pub kernel_version: String,
    /// Threads of the process.
    pub threads_count: u32,
    /// Bytes that are free on the disk of the data directory.
    pub disk_free: u64,
    /// Bytes of that disk.
    pub disk_total: u64,
}
