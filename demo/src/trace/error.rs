//! Why a file is no trace.

use std::io;
use std::path::PathBuf;

use gpumem_text::units::count;

/// A file that could not be read as a trace.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", gpumem_text::clean(&path.display().to_string()))]
pub struct TraceError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    #[source]
    pub problem: Problem,
}

/// What is wrong with a trace.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It could not be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Compressed data that ends early or is damaged.
    #[error("the compressed data is cut off or damaged {}: {source}", after(*line))]
    Damaged {
        /// The last line that was whole and was read before the damage was met; 0 for none.
        line: u64,
        /// What the decompressor says.
        source: io::Error,
    },
    /// There is nothing in it.
    #[error("is empty: a trace begins with a header line")]
    Empty,
    /// What gzip makes of it is made by gzip.
    #[error("is compressed twice: unpack it once (gzip -d)")]
    CompressedTwice,
    /// It is compressed, and not with gzip.
    #[error("is compressed by {0}, and only what gzip compressed is read: unpack it first ({0} -d)")]
    CompressedBy(&'static str),
    /// What gzip makes of it are more rows than files of its size have.
    #[error(
        "has more than {} rows once unpacked, too many for the {} bytes of it that were read: if it is no hostile one, unpack it \
        first (gzip -d)",
        count(*rows),
        count(*bytes)
    )]
    Packed {
        /// Most rows.
        rows: u64,
        /// Bytes of the file that were read.
        bytes: u64,
    },
    /// This machine has no memory for all that it holds.
    #[error("line {line}: there is no memory for more operations")]
    NoMemory {
        /// Line, from 1.
        line: u64,
    },
    /// Its characters are of two bytes, or four.
    #[error("is in {0}, as some programs write text on Windows: convert it (iconv -f {0} -t UTF-8)")]
    Wide(&'static str),
    /// A snapshot of PyTorch's that cannot be read.
    #[error("as a snapshot of PyTorch's: {0}")]
    Snapshot(#[from] gpumem_snapshot::ReadError),
    /// A snapshot of PyTorch's without a history.
    #[error(
        "is a snapshot without a history: call torch.cuda.memory._record_memory_history() before the work that is to be recorded \
        (programs of gpumem-alloc: GPUMEM_ALLOC_CONF=history:on)"
    )]
    NoHistory,
    /// The history of a snapshot contradicts itself.
    #[error("the history contradicts itself: {0}")]
    Contradiction(#[from] gpumem_snapshot::Problem),
    /// Something is not as it should be in the history of a snapshot.
    #[error("request {number} of the history: {what}")]
    Request {
        /// The request, from 1.
        number: u64,
        /// What was found and what was expected.
        what: String,
    },
    /// Something is not as it should be.
    #[error("line {line}, column {column}: {what}")]
    At {
        /// Line, from 1.
        line: u64,
        /// Column in bytes, from 1.
        column: usize,
        /// What was found and what was expected.
        what: String,
    },
}

impl Problem {
    /// The same of a file that is compressed: damage to it is not always seen where it is unpacked.
    pub(super) fn of_compressed(self) -> Problem {
        match self {
            Problem::At { line, column, what } => Problem::At {
                line,
                column,
                what: format!("{what}; the file is compressed and may be damaged (gzip -t tells)"),
            },
            other => other,
        }
    }
}

fn after(line: u64) -> String {
    match line {
        0 => "near its beginning".to_owned(),
        line => format!("after line {line}"),
    }
}
