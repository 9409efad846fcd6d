//! Recorded allocations, read from files of several programs into one compact form.
//!
//! The format is recognised by content:
//!
//! | format | begins with | rows |
//! |---|---|---|
//! | ours | `op,id,bytes,stream` | `a,ID,BYTES,STREAM` and `f,ID` in program order |
//! | RMM's log | `Thread,Time,Action,Pointer,Size,Stream` | as `rmm::mr::logging_resource_adaptor` writes them |
//! | PyTorch's snapshot | a pickle or JSON | `torch.cuda.memory._dump_snapshot()` after `_record_memory_history()` |
//!
//! each plain or compressed with gzip. What is known and is none of them is told by its name (`foreign.rs`).
//!
//! A log is read as it is: columns are found by their names, separated by commas, semicolons or tabs, with quotes, blanks and further columns.
//! A row that makes no sense is left out, counted, and the first of them is told ([`Odd`]); a file that is cut off is replayed up to there. A
//! file is refused where more rows are odd than are not.
//!
//! Files are hostile until read: every error names its line and column, and nothing of a file is
//! kept but numbers and a few short texts. Memory and time are bounded: of lines there is one at a time and as many as there may be operations, of operations
//! and of blocks that live at once there are no more than `builder.rs` allows, of a compressed file no more lines than its size allows (`packed.rs`), and
//! what a snapshot takes while it is read is bounded by its size, too ([`Limits`]).

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

/// What stdin is called among files.
pub const STDIN: &str = "/dev/stdin";

/// Bytes by which a file is known, and of what gzip makes of them.
const HEAD: u64 = 1 << 16;

/// One operation of a program. Blocks are known by *slot*: a number that is reused once its block is freed, so that slots are few
/// and whoever replays can keep its blocks in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A request of at least one byte.
    Alloc {
        /// Where the block is kept; free at this point.
        slot: u32,
        /// Index into [`Trace::streams`].
        stream: u16,
        /// Bytes asked for.
        bytes: u64,
    },
    /// The end of the block in this slot.
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
    /// A snapshot of PyTorch's with a history.
    PyTorch,
}

impl Format {
    /// Its name in reports.
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
    /// How many slots the operations use: the most blocks that live at once.
    pub slots: usize,
    /// Highest sum of bytes asked for and not freed yet.
    pub peak_requested: u64,
    /// Blocks that are never freed.
    pub live_blocks: u64,
    /// Bytes of those.
    pub live_bytes: u64,
    /// Requests of 0 bytes, which are no operations here, nor are their frees.
    pub zero_sized: u64,
    /// Requests that had failed when the trace was recorded, which are no operations here.
    pub recorded_failures: u64,
    /// Operations that the recording lacks, of PyTorch's or RMM's: blocks that were live when it began, frees in its gaps.
    pub assumed: u64,
    /// Entries that neither ask for memory nor free a block: frees of 0 bytes in RMM's logs, what the allocator did in PyTorch's histories.
    pub others: u64,
    /// Entries of PyTorch's histories with an action that is not known: they may have been requests.
    pub unknown_actions: u64,
    /// The names of some of these actions, cleaned and cut; `...` for the rest.
    pub unknown_names: Vec<String>,
    /// Further devices of the recording, whose operations are not here.
    pub other_devices: u64,
    /// What is odd about the file.
    pub odd: Odd,
}

impl Trace {
    /// Reads a file, or [stdin](STDIN) from where it is.
    ///
    /// # Errors
    /// When it cannot be read or is no trace; with the file's name, and line and column where there are such.
    pub fn open(path: &Path) -> Result<Trace, TraceError> {
        // A socket cannot be opened by a name, nor what another user opened for us.
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

    /// Reads from anything.
    ///
    /// # Errors
    /// When it cannot be read or is no trace.
    pub fn read(from: impl Read) -> Result<Trace, Problem> {
        let bytes = Cell::new(0);
        let from = Counted { from, bytes: &bytes };
        let mut from = BufReader::with_capacity(1 << 16, from);
        let mut head = Vec::new();
        from.by_ref().take(HEAD).read_to_end(&mut head)?;
        let compressed = head.starts_with(&[0x1f, 0x8b]);
        let mut unpacked = Vec::new();
        if compressed {
            // Where it is damaged is told by whoever reads on; that it ends early is how the head of a long file looks.
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

    /// The bytes asked for that lived at once at most, when the requests at these places (ascending) were refused.
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

/// Whether a pickle begins here, or JSON, before which people's editors leave a byte order mark and white space.
fn begins_a_snapshot(head: &[u8]) -> bool {
    let text = head.strip_prefix(lines::MARK).unwrap_or(head).trim_ascii_start();
    head.starts_with(&[0x80]) || matches!(text.first(), Some(b'{' | b'['))
}

/// Reads a snapshot, whose reader takes it compressed, too.
fn snapshot(from: impl Read) -> Result<Trace, Problem> {
    let most = Limits::default().input;
    let mut bytes = Vec::new();
    // One more than is allowed, so that too many are refused and not cut off.
    from.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    let (snapshot, damage) = Snapshot::from_damaged(&bytes)?;
    drop(bytes);
    pytorch::trace(&snapshot, damage)
}

/// What a file begins with.
fn headers() -> String {
    let (ours, rmm) = (csv::HEADER, rmm::HEADER);
    format!("the header {ours:?} or {rmm:?} (without Thread and Time, too), or a snapshot of PyTorch's")
}

/// A piece of a file as a message may show it: in quotes, escaped, not too long.
fn show(text: &[u8]) -> String {
    const LONGEST: usize = 48;
    let shown = String::from_utf8_lossy(&text[..text.len().min(LONGEST)]);
    let more = if text.len() > LONGEST { "..." } else { "" };
    format!("{shown:?}{more}")
}
