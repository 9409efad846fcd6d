//! The gpumem stats channel: how a process publishes the state of its GPU memory, and how others read it.
//!
//! This page is the only specification of the protocol; the modules named here hold the details of their parts.
//!
//! # Who uses it
//! A program that owns GPU memory has a [`Publisher`] inside its allocator (`gpumem-alloc`, or a hook in PyTorch). A
//! dashboard [`discover()`]s channels and reads each with a [`Reader`]. Data flows in one direction only: the writer never
//! reads shared memory, so a viewer cannot slow it down, block it, or influence it.
//!
//! # The file
//! There is one file per publisher, `<pid>-<starttime>-<n>.gpumem`, in `$GPUMEM_DIR`, or else `$XDG_RUNTIME_DIR/gpumem` or
//! `/dev/shm/gpumem-<uid>`: a directory of mode 0700 on tmpfs that belongs to its user. The file is created under a
//! temporary name. All of its memory is allocated (so no store can fail later), it is locked with `flock`, filled, and then
//! renamed, so that no reader sees an incomplete file.
//!
//! The lock is the sign of life ([`Life`]). Held means that the publisher is alive, in whatever pid namespace. Free means
//! that the process is gone, and the file is its black box. The next publisher of the same user removes black boxes, except
//! the newest 16 of the last 24 hours that fit into a quarter of the file system. If it finds no space, it removes these
//! too, the oldest first. Those of programs that ran out of memory stay longest (`sweep.rs`).
//!
//! A forked child releases the lock and the mapping, and publishes nothing. A child of `_Fork` or a bare `clone`, in which
//! no handler runs, publishes nothing either, but keeps the lock as long as it lives.
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
//!               6 generations     7 events    8 strings      9 managed ranges
//!              10 lanes          11 their generations         12 their events
//!              13 figures of managed memory                   14 managed blocks
//!              15 when another allocator was sampled          16 memory outside of it
//!              17 earlier figures of it
//! ```
//! This is format 2. Format 1 has no lanes, and is read as such. Its readers refuse format 2, because they would show its
//! figures in part only. Readers skip unknown kinds and accept longer records than they know; enumerations keep unknown
//! values. Devices are joined to NVML by UUID, never by number. The sections are the rows of one table: [`section`] has it,
//! and says how to add one.
//!
//! # Consistency
//! Every word has one writer, except those of block slots. Publishing is a fixed number of stores, without system calls,
//! allocation or waiting (`writer.rs`).
//! - A **record** has a sequence word, which is odd while the record is written (`seqlock.rs`).
//! - **Figures** alternate between two cells, so that one is complete whenever the writer is stopped. Changes by requests
//!   that hit the cache are derived from their events (`cells.rs`).
//! - A **block** keeps its slot as long as it exists, and names the slot of the next block. Every 1,024 slots share a
//!   **generation** word that changes when one of them does, so a reader reads only what changed (`replica.rs`).
//! - A **segment**'s sequence word brackets every change of its structure (split, join, growth). A reader accepts the blocks
//!   only if the word did not change while it read them. Until then it shows the last state that it accepted.
//! - An **event** is published before what it describes, so the last event names the operation that a kill interrupted. New
//!   events overwrite the oldest in the ring, and readers count the lost ones. The block map is authoritative; events are
//!   for timelines.
//!
//! # Lanes
//! A [`Lane`] is a second kind of writer, for one stream of a device: other threads publish on it concurrently with the
//! publisher ([`Publisher::lane`], `lane.rs`). Changes of a block's state can be published on a lane, changes of structure
//! cannot.
//! - A lane has its own events, figures and generation words, on cache lines that no other writer uses. Lane and publisher
//!   both write the slots of the blocks that the lane was lent. The program's locks order these writes, and their ticket
//!   numbers are never the same.
//! - A device's figures are the **sum** of those of the publisher and its lanes, except the peaks: the publisher raises these
//!   before they are exceeded. The sum is read again if a lane published meanwhile (`reader/figures.rs`).
//! - Events are **merged** by time. Every event has the number of its writer's last [meeting](Publisher::meet) with the other
//!   kind of writer, so that events within one tick of the clock stay in order too (`reader/merge.rs`).
//!
//! # Interrupted publishers
//! If a publisher ended in the middle of a change, readers show what was stored: the segment as incomplete, without the one
//! block that each of its writers was writing.
//!
//! The ordering code is tested under loom, with each fence of the sequence locks and of the models removed in turn (every removal is
//! detected). The reader's own fences are held by the models of it. Its writers are
//! killed between any two stores (`crash_tests.rs`), and it survives 1,000 kills of programs that embed `gpumem-alloc` (the
//! workspace's `tests/tests/kill`).
//!
//! # Trust
//! A reader trusts nothing in the file (`layout/check.rs`, `reader/open.rs`, `reader.rs`). Sizes are checked against the file,
//! which may have no holes, and offsets and counts with checked arithmetic. Sections must not overlap, and lists must
//! ascend in address. Text is [`clean`](gpumem_text::clean)ed before it can reach a terminal. Segments that overlap or
//! contradict themselves are counted as malformed, those that do not fit into the tables of blocks or segments as untracked,
//! and those that cannot be read consistently as lagging. Impossible figures are marked as such; nothing is guessed.
//!
//! This user's files in this user's directories are mapped. All other files, those of other users and of containers, are
//! read with `pread`, are opened only if they are regular files, and only from a tmpfs. Discovery filters names before it
//! counts them, bounds what one owner can add, and reports what it leaves out (`discover.rs`).
//!
//! # Costs
//! `cargo bench -p gpumem-channel` measures both ends; `src/tui/COSTS.md` has the numbers.

#![warn(missing_debug_implementations)]

// Every other crate needs this one or Linux itself, and would fail with a less clear message.
#[cfg(not(target_os = "linux"))]
compile_error!("gpumem needs Linux: it relies on its file locks, fork handling and tmpfs");

mod cells;
mod clock;
mod close_handle;
mod codec;
#[cfg(test)]
mod crash_tests;
mod directory;
mod discover;
mod error;
mod facts;
mod format;
mod found;
#[cfg(test)]
mod golden_tests;
mod identity;
mod lane;
mod layout;
mod life;
mod managed;
mod map;
mod operation;
mod options;
#[cfg(test)]
mod ordering_tests;
mod outside;
mod past;
mod publisher;
mod put;
mod reader;
mod record;
mod replica;
mod sampled;
pub mod section;
mod seqlock;
mod snapshot;
mod source;
mod stats;
mod sweep;
mod text;
mod word;
mod writer;

pub use cells::Touched;
pub use close_handle::CloseHandle;
pub use directory::{check_directory, named_directory, own_directories};
pub use discover::{Problem, ProblemKind, Scan, discover, removed_channel_of};
pub use error::{CreateError, OpenError, ReadError};
pub use facts::{Facts, Place, Unheld};
pub use found::Found;
pub use lane::Lane;
pub use managed::{
    MANAGED_BLOCK, Managed, ManagedBlock, ManagedCounters, ManagedFigures, ManagedMoves, ManagedRange, Preferred,
};
pub use map::Process;
pub use operation::{Operation, Published, Split};
pub use options::{Options, Ranks};
pub use outside::Outside;
pub use past::PastFigures;
pub use publisher::Publisher;
pub use reader::Reader;
pub use record::{
    Block, BlockState, Device, DeviceKind, Event, EventKind, MONITOR, NO_STREAM, PER_THREAD_STREAMS, PoolId, Segment,
    SegmentKind, StringId,
};
pub use sampled::Sampled;
pub use section::past::PAST;
pub use snapshot::{DeviceMap, Events, FreeSums, Identity, LaneView, Life, SegmentMap, Snapshot, free_sizes};
pub use stats::{DeviceStats, LaneFigures, LanePool, LaneStat, PoolStats, Stat};
pub use sweep::left_behind;
pub use text::pool_called;
pub use writer::Structure;
