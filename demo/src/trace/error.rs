//! Why a file cannot be read as a trace.

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
        /// The last complete line before the damage; 0 for none.
        line: u64,
        /// The decompressor's error.
        source: io::Error,
    },
    /// The file is empty.
    #[error("is empty: a trace begins with a header line")]
    Empty,
    /// A known format that is not a trace.
    #[error("is {is}: {instead}")]
    Foreign {
        /// What it is.
        is: &'static str,
        /// What is expected instead, and how to get it.
        instead: &'static str,
    },
    /// Neither text nor a known format.
    #[error("is a binary file of an unknown kind; expected {}", super::headers())]
    Binary,
    /// The unpacked file is compressed, too.
    #[error("is compressed twice: unpack it once (gzip -d)")]
    CompressedTwice,
    /// Compressed by another program than gzip.
    #[error("is compressed by {0}, and only gzip can be read: unpack it first ({0} -d)")]
    CompressedBy(&'static str),
    /// It unpacks to more rows than files of its size have.
    #[error(
        "has more than {} rows once unpacked, too many for the {} bytes of it that were read: if you trust the file, unpack it \
        first (gzip -d)",
        count(*rows),
        count(*bytes)
    )]
    Packed {
        /// The most rows allowed.
        rows: u64,
        /// Bytes of the file that were read.
        bytes: u64,
    },
    /// The machine has too little memory for the trace.
    #[error("line {line}: there is no memory for more operations")]
    NoMemory {
        /// Line, from 1.
        line: u64,
    },
    /// Text in UTF-16 or UTF-32.
    #[error("is in {0}, as some programs write text on Windows: convert it (iconv -f {0} -t UTF-8)")]
    Wide(&'static str),
    /// A pickle or JSON that is not a snapshot of PyTorch.
    #[error("is not a memory snapshot, which torch.cuda.memory._dump_snapshot(FILE) writes: {0}")]
    NoSnapshot(String),
    /// A snapshot of PyTorch that cannot be read.
    #[error("as a snapshot of PyTorch's: {}", advised(.0))]
    Snapshot(gpumem_snapshot::ReadError),
    /// A snapshot of PyTorch without a history.
    #[error(
        "is a snapshot {}: call torch.cuda.memory._record_memory_history() before the work that is to be recorded \
        (programs of gpumem-alloc: GPUMEM_ALLOC_CONF=history:on)",
        without(*entries)
    )]
    NoHistory {
        /// The number of entries, none of which is a request.
        entries: u64,
    },
    /// A snapshot that is cut off before its history.
    #[error("is a snapshot that is cut off before its history ({0}): copy or write it again")]
    CutBefore(String),
    /// Too many rows or entries are invalid.
    #[error("{first}; {} of {} are invalid, too many to replay the rest", count(*odd), entries_or_rows(*all, *rows))]
    Odd {
        /// What is wrong with the first one.
        first: String,
        /// The number of invalid ones.
        odd: u64,
        /// The number of all.
        all: u64,
        /// Whether they are rows and not entries.
        rows: bool,
    },
    /// A request of a snapshot's history is invalid.
    #[error("request {number} of the history: {what}")]
    Request {
        /// The request, from 1.
        number: u64,
        /// What was found and what was expected.
        what: String,
    },
    /// A limit is exceeded.
    #[error("line {line}, column {column}: {what}")]
    Limit {
        /// Line, from 1.
        line: u64,
        /// Column in bytes, from 1.
        column: usize,
        /// What was found and what was expected.
        what: String,
    },
    /// A row is invalid.
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
    /// Returns the problem of a compressed file. Unpacking does not detect all damage, so the message mentions it.
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

/// Added to messages about compressed files.
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

/// Returns the error, with advice if a pickle would run code.
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
