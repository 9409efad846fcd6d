//! Reads recorded allocations from files of several programs into one compact form.
//!
//! The format is recognised by content:
//!
//! | format | begins with | rows |
//! |---|---|---|
//! | ours | `op,id,bytes,stream` | `a,ID,BYTES,STREAM` and `f,ID` in program order |
//! | RMM's log | `Thread,Time,Action,Pointer,Size,Stream` | as `rmm::mr::logging_resource_adaptor` writes them |
//! | PyTorch's snapshot | a pickle or JSON | `torch.cuda.memory._dump_snapshot()` after `_record_memory_history()` |
//!
//! Each may be plain or compressed with gzip. Other known formats are named in the error (`foreign.rs`).
//!
//! Columns are found by their names. They may be separated by commas, semicolons or tabs, with quotes, blanks and further
//! columns. Invalid rows are left out and counted, and the first of them is reported ([`Odd`]). A truncated file is replayed up
//! to its end. A file is refused if more rows are invalid than valid.
//!
//! Files are not trusted. Every error names its line and column, and only numbers and a few short texts of a file are kept.
//! Memory and time are bounded: one line is held at a time, the number of lines, operations and live blocks is limited
//! (`builder.rs`), a compressed file has no more lines than its size allows (`packed.rs`), and the memory for reading a snapshot
//! is bounded by its size, too ([`Limits`]).

mod before;
mod builder;
mod csv;
mod error;
mod fields;
mod foreign;
mod lines;
mod odd;
mod packed;
mod pytorch;
#[cfg(test)]
mod pytorch_tests;
mod rmm;
#[cfg(test)]
mod rmm_tests;
mod rows;
#[cfg(test)]
mod rows_tests;
mod spread;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::fd::AsFd;
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use gpumem_snapshot::{Limits, Snapshot};

pub use error::{Problem, TraceError};
pub use odd::Odd;
use packed::Counted;
use rows::rows;

/// The path that stands for stdin.
pub const STDIN: &str = "/dev/stdin";

/// The bytes of a file, and of its unpacked beginning, that its format is recognised by.
const HEAD: u64 = 1 << 16;

/// One operation of a program. Blocks are identified by *slot*, a number that is reused once its block is freed, so that a
/// replayer can keep its blocks in a small array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A request of at least one byte.
    Alloc {
        /// The block's slot, which is free before this operation.
        slot: u32,
        /// Index into [`Trace::streams`].
        stream: u16,
        /// Bytes asked for.
        bytes: u64,
    },
    /// The free of the block in a slot.
    Free {
        /// Its slot.
        slot: u32,
    },
}

/// What kind of file a trace came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `op,id,bytes,stream`.
    Csv,
    /// The log of RMM's logging adaptor.
    RmmLog,
    /// A snapshot of PyTorch with a history.
    PyTorch,
}

impl Format {
    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::RmmLog => "rmm log",
            Format::PyTorch => "pytorch snapshot",
        }
    }
}

/// A program's allocations and frees, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The file's format.
    pub format: Format,
    /// Whether the file was compressed.
    pub compressed: bool,
    /// The operations.
    pub ops: Vec<Op>,
    /// The streams as the file numbers them.
    pub streams: Vec<u64>,
    /// The number of slots that the operations use, which is the most blocks that live at once.
    pub slots: usize,
    /// Peak of requested bytes that were not freed.
    pub peak_requested: u64,
    /// Blocks that are never freed.
    pub live_blocks: u64,
    /// Bytes of these blocks.
    pub live_bytes: u64,
    /// Requests of 0 bytes. They and their frees are not in `ops`.
    pub zero_sized: u64,
    /// Requests that failed when the trace was recorded. They are not in `ops`.
    pub recorded_failures: u64,
    /// Operations missing from a recording of PyTorch or RMM: blocks that were live when it began, frees in its gaps.
    pub assumed: u64,
    /// Entries that neither request nor free memory: frees of 0 bytes in RMM's logs, actions of the allocator itself in PyTorch's
    /// histories.
    pub others: u64,
    /// Entries of PyTorch's histories with an unknown action. They may have been requests.
    pub unknown_actions: u64,
    /// The names of some of these actions, cleaned and shortened; `...` stands for the rest.
    pub unknown_names: Vec<String>,
    /// Further devices of the recording, whose operations are not in `ops`.
    pub other_devices: u64,
    /// Faults of the file that do not prevent a replay.
    pub odd: Odd,
}

impl Trace {
    /// Reads a file, or [stdin](STDIN) from its current position.
    ///
    /// # Errors
    /// When it cannot be read or is not a trace. The error names the file, and line and column where there are any.
    pub fn open(path: &Path) -> Result<Trace, TraceError> {
        // Neither a socket nor a file that another user opened for us can be opened by its name.
        let file = match path == Path::new(STDIN) {
            true => std::io::stdin().as_fd().try_clone_to_owned().map(File::from),
            false => File::open(path),
        };
        file.map_err(Problem::Io)
            .and_then(Trace::read)
            .map_err(|problem| TraceError {
                path: path.to_owned(),
                problem,
            })
    }

    /// Reads a trace from a reader.
    ///
    /// # Errors
    /// When it cannot be read or is not a trace.
    pub fn read(from: impl Read) -> Result<Trace, Problem> {
        let bytes = Cell::new(0);
        let from = Counted { from, bytes: &bytes };
        let mut from = BufReader::with_capacity(1 << 16, from);
        let mut head = Vec::new();
        from.by_ref().take(HEAD).read_to_end(&mut head)?;
        let compressed = head.starts_with(&[0x1f, 0x8b]);
        let mut unpacked = Vec::new();
        if compressed {
            // Damage is reported by the code that reads on. An early end is normal for the head of a long file.
            let _ = MultiGzDecoder::new(&head[..]).take(HEAD).read_to_end(&mut unpacked);
        }
        let begin = if compressed { &unpacked } else { &head };
        if let Some(problem) = foreign::named(begin) {
            return Err(problem);
        }
        let is_snapshot = begins_a_snapshot(begin);
        let mut from = (&head[..]).chain(from);
        let trace = match (is_snapshot, compressed) {
            (true, _) => snapshot(from),
            (false, true) => rows(&mut MultiGzDecoder::new(from), Some(&bytes)).map_err(Problem::of_compressed),
            (false, false) => rows(&mut from, None),
        };
        trace.map(|trace| Trace { compressed, ..trace })
    }

    /// Returns the peak of requested bytes if the requests at these indices (ascending) are refused.
    pub fn peak_requested_without(&self, refused: &[usize]) -> u64 {
        let mut sizes = vec![0; self.slots];
        let (mut now, mut peak, mut refused) = (0u64, 0, refused.iter().peekable());
        for (at, op) in self.ops.iter().enumerate() {
            match *op {
                Op::Alloc { .. } if refused.next_if_eq(&&at).is_some() => {}
                Op::Alloc { slot, bytes, .. } => {
                    sizes[slot as usize] = bytes;
                    now += bytes;
                    peak = peak.max(now);
                }
                Op::Free { slot } => now -= std::mem::take(&mut sizes[slot as usize]),
            }
        }
        peak
    }
}

/// Checks whether a pickle or JSON begins here. Editors may have put a byte order mark and white space before JSON.
fn begins_a_snapshot(head: &[u8]) -> bool {
    let text = head.strip_prefix(lines::MARK).unwrap_or(head).trim_ascii_start();
    head.starts_with(&[0x80]) || matches!(text.first(), Some(b'{' | b'['))
}

/// Reads a snapshot. Its reader also accepts compressed ones.
fn snapshot(from: impl Read) -> Result<Trace, Problem> {
    let most = Limits::default().input;
    let mut bytes = Vec::new();
    // One more byte than allowed, so that a file that is too long is refused and not truncated.
    from.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    let (snapshot, damage) = Snapshot::from_damaged(&bytes)?;
    drop(bytes);
    pytorch::trace(&snapshot, damage)
}

/// Describes the expected beginning of a file.
fn headers() -> String {
    let (ours, rmm) = (csv::HEADER, rmm::HEADER);
    format!("the header {ours:?} or {rmm:?} (without Thread and Time, too), or a snapshot of PyTorch's")
}

/// Formats a piece of a file for a message: quoted, escaped and shortened.
fn show(text: &[u8]) -> String {
    const LONGEST: usize = 48;
    let shown = String::from_utf8_lossy(&text[..text.len().min(LONGEST)]);
    let more = if text.len() > LONGEST { "..." } else { "" };
    format!("{shown:?}{more}")
}
