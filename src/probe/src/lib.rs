//! What the driver and the kernel say about GPU memory, seen from outside.
//!
//! - [`Nvml`] samples the driver: devices, their memory, the processes on them. It never opens a CUDA context.
//! - [`Processes`] describes processes by pid. [`Users`] gives the names of user ids. [`PidTranslator`] finds the pid
//!   here of a process that knows its pid in another namespace only. [`HintReader`] finds what explains a process's memory: its
//!   command line, environment, libraries and records.
//! - [`ManagedMemory`] finds the unified memory of any process and which of its pages the CPU can reach. [`UvmWatch`] has the
//!   driver count what moves, through a helper process that runs [`run_helper`].
//! - [`host_memory`] reads the host's memory. [`Facts`] decide how much can be seen on this machine. [`driver_log`] has
//!   what the driver wrote to the kernel's log.
//!
//! Processes and host memory come from `sysinfo`, except what it does not give: starts in clock ticks, pids of other
//! namespaces, command lines of bounded length and the names of all users.
//!
//! The results are plain data: a [`Reading`] is a figure or the reason why there is none. Text from outside is stripped
//! of control characters. Nothing here knows the time of day, a channel or a screen. Every call except [`Nvml::load`]
//! returns within microseconds to milliseconds, and [`ManagedMemory::residency`] within 2 ms for each GiB; slow queries run on their own
//! threads.

// Allowed only where foreign functions are called: `attach::sys`, `nvml::calls`, `process::users` and `uvm::sys`.
#![deny(unsafe_code)]

mod arguments;
pub mod attach;
mod facts;
mod hints;
mod host;
mod kernel_log;
mod nvml;
mod pidns;
mod process;
mod root;
mod stat;
mod suspects;
mod types;
mod uvm;

pub use facts::{Capabilities, DeviceNode, Fact, Facts, Place, PtraceScope};
pub use hints::HintReader;
pub use host::host_memory;
pub use kernel_log::driver_log;
pub use nvml::Nvml;
pub use pidns::{Claim, ForeignPid, PidTranslator};
pub use process::{NoProcess, Processes, Users};
pub use root::Root;
pub use suspects::{HostState, MemoryHolder, SharedMemory};
pub use types::*;
pub use uvm::{
    BLOCK, BLOCK_PAGES, BlockMoves, Cause, Counters, Direction, EventSums, Events, ManagedMap, ManagedMemory,
    ManagedRange, Moves, PAGE, PARTS, Resident, Span, Spans, Target, UvmPolicy, UvmSupport, UvmWatch, Watching,
    run_helper,
};
