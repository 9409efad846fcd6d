//! A caching allocator for GPU memory that publishes its state.
//!
//! Taking memory from the driver costs 50 to 900 µs and waits for the GPU; taking it from a cache costs less than 0.1 µs.
//! So a program takes memory from the driver rarely, in large segments, and cuts them up. What it then holds is more than what
//! it uses, and nobody outside can see why: this allocator tells, through the [channel](gpumem_channel), who holds what, how
//! it is cut, and what happened.
//!
//! ```no_run
//! use gpumem_alloc::{Allocator, Config, Stream, device};
//!
//! # fn main() -> Result<(), gpumem_alloc::Error> {
//! let device = device::cuda(0).unwrap_or_else(|_| device::sim(Default::default()));
//! let alloc = Allocator::new(device, Config::default())?;
//! let _scope = gpumem_alloc::scope("activations");
//! let mut x = alloc.alloc::<f32>(1 << 20, Stream::DEFAULT)?; // gives itself back when dropped
//! x.write(&vec![1.0; 1 << 20])?;
//! # Ok(())
//! # }
//! ```
//!
//! # Terms
//!
//! PyTorch's. *Requested*: what was asked for. *Allocated*: the same after rounding. *Active*: allocated, or freed and still
//! used by queued GPU work (*pending*). *Reserved*: taken from the driver. *Cached*: reserved - allocated. A *segment* is an
//! address range taken from the driver; *blocks* tile it; a *chunk* is a piece of physical memory mapped into a virtual
//! segment. *Inactive split*: a free block that live neighbours pin in its segment.
//!
//! # The algorithm
//!
//! **Sizes.** Requests are rounded to 512 B. Up to 1 MiB they are cut from segments of 2 MiB (the small pool), those below 10 MiB from
//! segments of 20 MiB, larger ones get segments of their own, rounded to 2 MiB. With [`SegmentMode::Virtual`], requests from
//! 2 MiB are rounded to 2 MiB and live in growing address ranges made of chunks of 2 to 64 MiB. With [`SegmentMode::Stitched`],
//! the default where the device can map memory, everything is rounded to 512 B and lives in two such ranges, up to 1 MiB and above.
//! Where a stream's small sizes are different each time, they are rounded further after some thousands of requests: to one of eight sizes
//! to each power of two, at most an eighth more. These come again, and small memory may then be twice what the program ever held of it, up
//! to 1/16 of all it held.
//!
//! **Allocation.** The smallest free block that fits, the lowest address among equals, of the request's pool and stream. In stitched
//! memory the shortest of the large requests go to the lowest address instead, and where a program repeats itself and would map memory
//! again in each round, requests go where they went in the round before, if that is free. What is left of it stays free if it is worth
//! keeping: 512 B in the small pool and in stitched memory, more than 1 MiB in large plain segments, 2 MiB in virtual ones. If there is none, in this order: pending blocks whose events are done;
//! with [`cross_stream_reuse`](Config::cross_stream_reuse) blocks of other streams that no queued work uses any more; stitching, in that mode; new memory, the least that does (the end or a hole
//! of a virtual segment, with the free blocks beside it); after waiting for the device, which makes anybody's what other streams have free,
//! and giving the cache back, once more, unless
//! that cannot be enough beside what the program holds; then [`Error::OutOfMemory`] with a [report](OomReport) of what would have helped.
//!
//! **Stitching.** A driver maps whole chunks, but a block need not use all of them: the end of one free block, whole chunks from
//! anywhere and the beginning of another free block, mapped side by side a second time, are one block. Only what then is still
//! missing is new memory. Such a *view* stays mapped when its block is freed, and whatever later request finds enough free memory
//! side by side in a view has it without a driver call: a loop that repeats itself soon maps nothing. Mapping costs more than
//! memory, so up to 1.4 % more than the program ever held are taken before anything is stitched.
//!
//! **Free.** A block joins its free neighbours, unless its size is one that comes again: then it is set aside whole for the next request
//! of that size, in front of the heap, until a request of another size looks at all free memory of the stream. It may be reused by its own stream at once: what that stream does next is queued behind. If other streams
//! were noted to use it ([`Buffer::record_stream`]), it first waits for one event on each. Another stream may have it once the device was
//! waited for after the free, or with [`cross_stream_reuse`](Config::cross_stream_reuse) when its stream was idle after the free, or an event
//! recorded there after it is done; then it is nobody's.
//!
//! **Joining.** [`Allocator::join_holes`] maps the chunks of scattered free blocks side by side: no new memory, no copy, and
//! live blocks keep addresses and contents. Only whole chunks can move. [`Allocator::compact`] does so with all there is, and gives wholly free
//! plain segments back.
//!
//! **Watching.** A [`Monitor`] is a thread that warns, releases the cache or makes it compact when too much of it has been scattered
//! for too long.
//!
//! **Pools.** [`Allocator::pool`] keeps a tenant's memory apart: its cache serves nobody else, its budget binds what it takes, what it
//! has no room for fails or overflows to everybody's memory, and when memory runs out pools of lower priority give their caches back
//! first. [`Allocator::private_pool`] is for CUDA graphs: what it handed out stays where it is for as long as it lives, and while a
//! graph is captured ([`Pool::serve`]) nothing is done that would end the capture. Pools live in plain segments, and
//! their requests go through the heap.
//!
//! **Managed memory.** [`Allocator::alloc_managed`] returns buffers that CPU and GPU access at one address. They come from the driver one by
//! one, are not cached and not counted, and are published with their tag and advice.
//!
//! **Options.** `max_split_size`, `garbage_collection_threshold` and the others of [`Config`] are PyTorch's; [`conf`] reads them from text.
//!
//! # Threads, forks, streams
//!
//! Everything here may be used from any thread; a buffer may be dropped on another thread than the one that made it. The first
//! eight streams have a *lane* each, with a lock of its own: blocks of sizes that come again are handed out and taken back there,
//! so threads on different streams do not wait for each other. Everything else is done under the one lock of the heap. It is not held
//! while the driver takes, gives, maps or moves memory or waits for the device, whatever that is for: one thread at a time does that, and
//! only who needs the driver, too, or memory that is just going back to it, waits. Nor is it held while the driver is asked something
//! (events, idle streams, how much memory is left), which is over at once unless the driver is busy with other threads' calls, the program's
//! own among them. Only a request that was not served by 64 calls, because others took what each gave, makes those that follow under it.
//!
//! A thread that always takes the same lane, or the heap's lock, does so without an atomic operation, and loses that right when another one
//! comes, for twice as many turns each time. Taking it away needs `membarrier(2)` (Linux 4.14): where the kernel or a sandbox refuses that, all
//! are ordinary locks. A sandbox that ends a program for calls that it does not know has to know this one.
//!
//! In a forked child every call is [`Error::Forked`] and dropping is free of effect: CUDA does not survive a fork. That goes for children of
//! `_Fork` and of `clone` without `CLONE_VM`, too (Linux 4.14), but these keep the channel looking alive for as long as they live.
//!
//! Before a stream is destroyed that buffers were allocated on, or that was noted to use them, the allocator has to be told:
//! [`Allocator::retire_stream`]. CUDA crashes on the handle of a stream that is gone. Buffers live on without their stream, its lane goes
//! to the next one, and a program that makes and destroys streams all the time does not grow.
//!
//! # Costs
//!
//! `cargo bench -p gpumem-alloc` measures them. The simulated device adds up what its driver calls would cost on an
//! H100 ([`device::Sim::modelled_ns`]), so that a policy can be judged without a GPU.

#![warn(missing_debug_implementations)]

mod allocator;
mod buffer;
mod callback;
pub mod conf;
mod config;
mod counts;
pub mod device;
mod error;
mod export;
mod free;
mod free_memory;
mod heap;
mod history;
mod home;
mod lane;
mod lock;
mod managed;
mod monitor;
mod pool;
mod process;
mod publish;
mod raw;
mod report;
mod rounding;
mod route;
mod share;
mod size;
mod spread;
mod stack;
mod stream;
mod tag;

pub use allocator::Allocator;
pub use buffer::{Buffer, Element};
#[doc(hidden)]
pub use callback::Callback;
pub use conf::ConfError;
pub use config::{Config, SegmentMode};
pub use error::{DeviceError, Error};
pub use export::ExportError;
pub use free::FreeBlocks;
pub use free_memory::set_free_memory_callback;
pub use gpumem_channel::{DeviceStats, Options, PoolStats, Stat};
pub use gpumem_snapshot::Snapshot;
pub use heap::{CompactReport, JoinReport};
pub use history::{History, HistoryFigures, Leak, LeakReport, Owner, PeakReport, Stacks};
pub use managed::ManagedBuffer;
pub use monitor::{Action, Alert, Done, Listener, Measure, Monitor, MonitorConfig};
pub use pool::{MempoolId, Overflow, Pool, PoolBlock, PoolConfig, PoolFigures, Serving};
#[doc(hidden)]
pub use process::{Origin, Uncancelled, Unsignalled, say, tell_trouble_to};
pub use publish::Publish;
pub use raw::Base;
pub use report::{Help, OomReport, PoolShortage};
pub use rounding::Divisions;
pub use route::Route;
pub use share::{Imported, IpcHandle, SharedMemory};
#[doc(hidden)]
pub use stack::Kept;
pub use stack::{Stack, StackFrame, StackSource};
pub use stream::Stream;
pub use tag::{Scope, scope};
