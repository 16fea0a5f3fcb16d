//! The binary `sim`: the simulator's command line, with an allocator that counts.

mod memory;

use std::process::ExitCode;

use simulator::MemoryProbe;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

fn main() -> ExitCode {
    simulator::install_memory_probe(MemoryProbe {
        reset: memory::reset,
        peak: memory::peak,
    });
    simulator::main()
}
