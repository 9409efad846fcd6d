//! The gpumem stats channel: how a process publishes the truth about its GPU memory, and how others read it.
//!
//! This page is the protocol's one specification; the modules named here hold the details of their part.
//!
//! # Who uses it
//! A program that owns GPU memory has a [`Publisher`] inside its allocator (`gpumem-alloc`, or a hook in PyTorch). A dashboard
//! [`discover()`]s channels and reads each with a [`Reader`]. Nothing flows back: the writer never reads shared memory, so that a
//! viewer cannot slow it down, block it, or steer it.
//!
//! # The file
//! One file per publisher, `<pid>-<starttime>-<n>.gpumem`, in `$GPUMEM_DIR`, or else `$XDG_RUNTIME_DIR/gpumem` or
//! `/dev/shm/gpumem-<uid>`: a directory of mode 0700 on tmpfs that is its user's own. It is built under a temporary name, all of its
//! memory is allocated (no store can fail later), locked with `flock`, filled, and only then renamed, so that nobody sees a part of it.
//!
//! The lock is the sign of life ([`Life`]): held means alive, in whatever pid namespace; free means the process is gone, and
//! the file is its black box. The next publisher of the same user sweeps all but the newest 16 of the last 24 hours that fit into a quarter
//! of the file system, and where it finds no room these, too, the oldest first; programs that ran out of memory stay longest (`sweep.rs`).
//!
//! A forked child lets go of the lock and of the mapping: it publishes nothing. One of `_Fork` or a bare `clone`, in which no handler
//! runs, publishes nothing either, but keeps the lock for as long as it lives.
//!
//! # The layout
//! Little-endian words of 64 bits, always accessed as such (`format.rs`, `codec.rs`):
//! ```text
//! bytes 0..64   frozen for ever: magic "gpumemch", format version, least reader version, file length,
//!               table of contents (offset, entries), identity offset, 0
//!       64..512 identity: pid, start time, boot id (0: not known), pid namespace, times of creation, ranks,
//!               program, job
//!      512..    table of contents: kind, offset, stride | count << 32, version of each section
//! sections      1 live counters   2 devices   3 figures      4 segments   5 blocks
//!               6 generations     7 events    8 strings      9 managed ranges (reserved)
//!              10 lanes          11 their generations         12 their events
//! ```
//! This is format 2. Format 1 has no lanes and is read as such; its readers refuse format 2, whose figures they would show in part.
//! Readers skip unknown kinds and accept longer records than they know; enumerations keep unknown values. Devices are joined to
//! NVML by UUID, never by number. Each section is a row of one table: [`section`] has it and says how to add one.
//!
//! # Consistency
//! One writer for every word but those of block slots; publishing is a fixed number of stores, without system call, allocation or wait (`writer.rs`).
//! - A **record** has a sequence word, odd while it is written (`seqlock.rs`).
//! - **Figures** alternate between two cells, so that one is complete whenever the writer is stopped; what requests that hit the
//!   cache change since is told by their events (`cells.rs`).
//! - A **block** keeps its slot for life and names the slot of the block behind it. Every 1,024 slots share a **generation** word
//!   that moves when one of them changes: a reader reads again only what changed (`mirror.rs`).
//! - A **segment**'s sequence word brackets every change of its structure (split, join, growth): a reader believes the blocks only
//!   if the word did not move while it read them. Until then it keeps showing the last state that it believed.
//! - An **event** is published before what it describes, so the last one names the operation that a kill interrupted. The ring
//!   overwrites the oldest; readers count what they lost. The map is the truth, events are for timelines.
//!
//! # Lanes
//! A [`Lane`] is a second kind of writer, for one stream of a device: other threads publish on it while the publisher does its own
//! ([`Publisher::lane`], `lane.rs`). What changes a block's state alone can go that way, what changes structure cannot.
//! - It has its own events, figures and generation words, no cache line of which anybody else writes. What both write are the slots
//!   of the blocks that it was lent; the program's locks say who is next, and the numbers of their writes never are the same.
//! - A device's figures are the **sum** of what the publisher and its lanes say, peaks excepted: these the publisher raises before
//!   they are passed. The sum is read again if a lane published meanwhile (`reader/figures.rs`).
//! - Events are **merged** by time. Every event carries the number of its writer's last [meeting](Publisher::meet) with the other
//!   kind, so that what happened within one tick of the clock stays in order, too (`reader/merge.rs`).
//!
//! # Ends
//! What a publisher left that ended in the middle of a change is shown as far as it was stored: the segment as not complete, the
//! one block that was being written, of each of its writers, not at all.
//!
//! The ordering code runs under loom with every fence taken out in turn (each is missed), is cut between any two stores, and
//! survives 1,000 kills of programs that embed `gpumem-alloc` (the workspace's `tests/tests/kill`).
//!
//! # Trust
//! A reader believes nothing (`layout/check.rs`, `reader/open.rs`, `reader.rs`): sizes are checked against the file, which may have no holes, offsets and counts with checked
//! arithmetic, sections must not overlap, lists must climb in address, text is [`clean`](gpumem_text::clean)ed before it can reach a terminal. What
//! overlaps or contradicts itself is counted as malformed, what does not fit into the tables of blocks or segments as untracked, what
//! cannot be read consistently as lagging, and figures that cannot be true are marked as such; nothing is guessed. Our own user's files in our own
//! directories are mapped; whatever else is found, other users' and containers', is read with `pread`, opened only if it is a regular file, and
//! only from a tmpfs. Discovery filters names before it counts them, bounds what one owner can add, and says what it leaves out (`discover.rs`).
//!
//! # Costs
//! `cargo bench -p gpumem-channel` measures both ends; README has the numbers.

#![warn(missing_debug_implementations)]

// Every other crate needs this one or Linux by itself, and would say so less clearly.
#[cfg(not(target_os = "linux"))]
compile_error!("gpumem needs Linux: signs of life, forked children and files in memory are those of its kernel");

mod cells;
mod codec;
#[cfg(test)]
mod cut_tests;
mod discover;
mod error;
mod facts;
mod format;
mod found;
#[cfg(test)]
mod golden_tests;
mod goodbye;
mod identity;
mod lane;
mod layout;
mod life;
mod map;
mod mirror;
mod operation;
mod options;
#[cfg(test)]
mod ordering_tests;
mod place;
mod publisher;
mod put;
mod reader;
mod record;
pub mod section;
mod seqlock;
mod snapshot;
mod source;
mod stamp;
mod stats;
mod sweep;
mod text;
mod word;
mod writer;

pub use cells::Touched;
pub use discover::{Problem, ProblemKind, Scan, discover, removed_channel_of};
pub use error::{CreateError, OpenError, ReadError};
pub use facts::{Facts, Place, Unheld};
pub use found::Found;
pub use goodbye::Goodbye;
pub use lane::Lane;
pub use map::Process;
pub use operation::{Operation, Split, Told};
pub use options::Options;
pub use place::{check_directory, named_directory, own_directories};
pub use publisher::Publisher;
pub use reader::Reader;
pub use record::{
    Block, BlockState, Device, DeviceKind, Event, EventKind, MONITOR, NO_STREAM, PER_THREAD_STREAMS, PoolId, Segment,
    SegmentKind, StringId,
};
pub use snapshot::{DeviceMap, Events, FreeSums, Identity, LaneView, Life, SegmentMap, Snapshot, free_sizes};
pub use stats::{DeviceStats, LaneFigures, LanePool, LaneStat, PoolStats, Stat};
pub use sweep::left_behind;
pub use text::pool_called;
pub use writer::Structure;
