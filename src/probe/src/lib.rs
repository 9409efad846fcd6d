//! What the driver and the kernel say about GPU memory, seen from outside.
//!
//! - [`Nvml`] samples the driver: devices, their memory, the processes on them. It never opens a CUDA context.
//! - [`Processes`] describes processes by pid, [`Users`] names users by number, [`PidTranslator`] finds our pid for one that a container's publisher
//!   gave.
//! - [`host_memory`] is the host's memory, [`Facts`] are what decides how much can be seen here.
//!
//! Processes and host memory come through `sysinfo`, except what it does not give: starts in clock ticks, pids of other
//! namespaces, command lines of bounded length and the names of all users.
//!
//! The values are in one place, as plain data: [`Reading`] is a figure or the reason why there is none. Texts from
//! outside are free of control characters. Nothing here knows a clock's time of day, a channel or a screen; every call
//! returns within microseconds to milliseconds except [`Nvml::load`], and what is slow by nature runs on threads of its
//! own.

// Lifted only where foreign functions are called: `nvml::calls` and `process::users`.
#![deny(unsafe_code)]

mod facts;
mod host;
mod nvml;
mod pidns;
mod process;
mod root;
mod stat;
mod types;
mod uuid;
mod uvm;

pub use facts::{Capabilities, DeviceNode, Fact, Facts, Place, PtraceScope};
pub use host::host_memory;
pub use nvml::Nvml;
pub use pidns::{Claim, ForeignPid, PidTranslator};
pub use process::{NoProcess, Processes, Users};
pub use root::Root;
pub use types::*;
pub use uvm::{
    BLOCK, BLOCK_PAGES, BlockMoves, Cause, Counters, Direction, EventSums, Events, ManagedMemory, ManagedRange, Moves,
    PAGE, PARTS, Resident, Span, Spans, Target, UvmPolicy, UvmWatch, Watching, run_helper,
};
