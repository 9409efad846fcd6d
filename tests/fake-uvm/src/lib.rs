//! The nvidia-uvm driver's tools interface for tests, without a GPU.
//!
//! The library `gpumem-fake-uvm-preload` replaces libc's `ioctl` with `LD_PRELOAD`. Requests on the fake driver's devices, which are two
//! plain files, are answered here. All others go to the kernel.
//!
//! # Using it
//! Have both crates as dev-dependencies: cargo then builds the shared object too.
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! let folder = gpumem_fake_uvm::folder()?;
//! let fake = gpumem_fake_uvm::FakeUvm::install(&folder, "580.159.04")?;
//! fake.play("100 count to_gpu=4096 cpu_faults=1")?;
//! // Run a program with this folder in place of `/`, and the library in front of `ioctl`:
//! std::process::Command::new("program").env("LD_PRELOAD", gpumem_fake_uvm::FakeUvm::library()?);
//! # Ok(())
//! # }
//! ```
//! The watched process needs no library. It opens the device and maps it with [`Managed`]: its mappings look like managed memory
//! in `/proc/PID/maps`, and `/proc/PID/pagemap` shows which pages it touched.
//!
//! # What it plays
//! The folder stands for `/`. The driver's version is read from `proc/driver/nvidia/version`, and decides the layout of the
//! requests. Each tracker plays the scenario, the file `dev/nvidia-uvm-tools.scenario`, from the moment that its counters or
//! events are enabled. A line of it is one of these; `#` begins a comment:
//!
//! | line | meaning |
//! |---|---|
//! | `MS count KEY=N...` | after MS milliseconds the counters grow by `to_gpu`, `to_cpu`, `cpu_faults`, `gpu_faults` |
//! | `MS event TYPE KEY=N...` | events are queued: `cpu_fault`, `migration`, `gpu_fault`, `thrashing`, `throttling`, `map_remote`, with the keys `address`, `bytes`, `cause`, `from`, `to` |
//! | `MS event raw=HEX` | an entry of 64 bytes is queued as it is |
//! | `refuse REQUEST STATUS` | the request fails with this status of the driver |
//! | `silent REQUEST` | the request is not answered: `ioctl` succeeds and nothing is written |
//! | `fail REQUEST ERRNO` | `ioctl` itself fails |
//!
//! An event is queued `times=N` times, `step=N` bytes apart. All events of a line become visible together. With `held` they wait for a
//! flush. With `space=N` before it, a line is only for the trackers of processes that opened that address space.
//!
//! Every request is recorded: see [`FakeUvm::requests`].
#![allow(unsafe_code, reason = "it plays a kernel interface, whose arguments are addresses")]

mod device;
mod driver;
mod install;
mod ioctl;
mod layout;
mod memory;
mod process;
mod replay;
mod scenario;
mod tracker;

pub use install::{FakeUvm, Request, folder};
pub use ioctl::ioctl;
pub use process::{Managed, Memory, fork_sleeper};
