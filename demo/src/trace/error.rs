//! Why a file is no trace.

use std::io;
use std::path::PathBuf;

use gpumem_text::units::count;

/// A file that could not be read as a trace.
#[derive(Debug, thiserror::Error)]
#[error("{}", gpumem_text::clean(&format!("{}: {problem}", path.display())))]
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
    /// It is known, and none that is read.
    #[error("is {is}: {instead}")]
    Foreign {
        /// What it is.
        is: &'static str,
        /// What would be right, and how to get it.
        instead: &'static str,
    },
    /// Neither lines of text nor anything else that is known.
    #[error("is a binary file of no kind that is known; expected {}", super::headers())]
    Binary,
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
    /// A pickle or JSON that is no snapshot of PyTorch's.
    #[error("is no memory snapshot, which is what torch.cuda.memory._dump_snapshot(FILE) writes: {0}")]
    NoSnapshot(String),
    /// A snapshot of PyTorch's that cannot be read.
    #[error("as a snapshot of PyTorch's: {}", advised(.0))]
    Snapshot(gpumem_snapshot::ReadError),
    /// A snapshot of PyTorch's without a history.
    #[error(
        "is a snapshot {}: call torch.cuda.memory._record_memory_history() before the work that is to be recorded \
        (programs of gpumem-alloc: GPUMEM_ALLOC_CONF=history:on)",
        without(*entries)
    )]
    NoHistory {
        /// How many entries it has, none of which tells enough.
        entries: u64,
    },
    /// A snapshot that is cut off before its history.
    #[error("is a snapshot that is cut off before its history ({0}): copy or write it again")]
    CutBefore(String),
    /// So much of it is odd that the rest would mean nothing.
    #[error("{first}; {} of {} make no more sense than that, and what is left would mean nothing", count(*odd), entries_or_rows(*all, *rows))]
    Odd {
        /// What is wrong with the first.
        first: String,
        /// How many are odd.
        odd: u64,
        /// Of so many.
        all: u64,
        /// They are rows, and not entries.
        rows: bool,
    },
    /// Something is not as it should be in the history of a snapshot.
    #[error("request {number} of the history: {what}")]
    Request {
        /// The request, from 1.
        number: u64,
        /// What was found and what was expected.
        what: String,
    },
    /// There is more than may be.
    #[error("line {line}, column {column}: {what}")]
    Limit {
        /// Line, from 1.
        line: u64,
        /// Column in bytes, from 1.
        column: usize,
        /// What was found and what was expected.
        what: String,
    },
    /// A row is not as it should be.
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

impl From<gpumem_snapshot::ReadError> for Problem {
    fn from(error: gpumem_snapshot::ReadError) -> Problem {
        match error {
            gpumem_snapshot::ReadError::Shape { path, expected, found } if path.is_empty() => {
                let returned = if found == "None" {
                    ", which that function returns"
                } else {
                    ""
                };
                Problem::NoSnapshot(format!("expected {expected}, found {found}{returned}"))
            }
            other => Problem::Snapshot(other),
        }
    }
}

impl Problem {
    /// The same of a file that is compressed: damage to it is not always seen where it is unpacked.
    pub(super) fn of_compressed(self) -> Problem {
        match self {
            Problem::At { line, column, what } => Problem::At {
                line,
                column,
                what: what + DOUBT,
            },
            Problem::Limit { line, column, what } => Problem::Limit {
                line,
                column,
                what: what + DOUBT,
            },
            other => other,
        }
    }
}

/// What is said of a compressed file besides.
const DOUBT: &str = "; the file is compressed and may be damaged (gzip -t tells)";

fn without(entries: u64) -> String {
    match entries {
        0 => "without a history".to_owned(),
        1 => "whose history has 1 entry, so that nothing was recorded".to_owned(),
        n => format!("whose history has {} entries and no request among them", count(n)),
    }
}

fn entries_or_rows(all: u64, rows: bool) -> String {
    let what = if rows { "rows" } else { "entries" };
    format!("{} {what}", count(all))
}

/// With what to do about a pickle that would run something.
fn advised(error: &gpumem_snapshot::ReadError) -> String {
    use gpumem_snapshot::{PickleError, ReadError};
    let advice = match error {
        ReadError::Pickle {
            kind: PickleError::Import { .. } | PickleError::Code(_),
            ..
        } => ": save the snapshot without objects of other classes, or as JSON",
        _ => "",
    };
    format!("{error}{advice}")
}

fn after(line: u64) -> String {
    match line {
        0 => "near its beginning".to_owned(),
        line => format!("after line {line}"),
    }
}
