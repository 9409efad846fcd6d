//! Why a file could not be read.

use std::path::PathBuf;

use super::opcode::Opcode;

/// What helps where a real snapshot is too much.
const FEWER: &str = "record fewer events (max_entries of _record_memory_history())";

/// Why a snapshot could not be read. Nothing of the file was run, and nothing of it is kept.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system would not give the file's bytes.
    #[error("reading {}: {source}", path.display().to_string().escape_debug())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file or what it unpacks to is larger than [`Limits::input`](crate::Limits::input).
    #[error(
        "the snapshot is larger than {limit} bytes{}, the most that is read of any: {FEWER}",
        if *unpacked { " once unpacked" } else { "" }
    )]
    TooLarge {
        /// The limit.
        limit: u64,
        /// It was gzip's output that did not end.
        unpacked: bool,
    },
    /// What the file unpacks to is more than files of its size do, by [`Limits::gzip_ratio`](crate::Limits) or
    /// [`Limits::file_ratio`](crate::Limits).
    #[error(
        "the snapshot is larger than {limit} bytes once unpacked, too much for a file that is compressed to {packed} bytes: if it is \
         no hostile one, unpack it first (gzip -d)"
    )]
    Packed {
        /// Bytes of the file.
        packed: u64,
        /// The limit.
        limit: u64,
    },
    /// The gzip file is damaged or cut off.
    #[error("gzip, after {unpacked} unpacked bytes: {source}")]
    Gzip {
        /// Bytes that came out before.
        unpacked: u64,
        /// What the decompressor said.
        source: std::io::Error,
    },
    /// Neither a pickle nor JSON.
    #[error("not a snapshot: {0}; expected a pickle of protocol 2 to 5 or JSON, plain or gzipped")]
    Format(&'static str),
    /// The pickle is damaged, cut off, or wants to run something.
    #[error("pickle, byte {offset}: {kind}")]
    Pickle {
        /// Where the opcode begins, in the unpacked bytes.
        offset: u64,
        /// What is wrong with it.
        kind: PickleError,
    },
    /// The JSON is damaged or cut off.
    #[error("JSON: {0}")]
    Json(serde_json::Error),
    /// Well-formed, but not what a snapshot looks like.
    #[error("{}: expected {expected}, found {found}", at_place(path))]
    Shape {
        /// Where: `segments[3].blocks[0].size`.
        path: String,
        /// What PyTorch writes there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// The content would take more memory than files of its size do: [`Limits::memory_ratio`](crate::Limits) and the like.
    #[error("{}: the content takes more than {limit} bytes of memory, {bound}", at_place(place))]
    Memory {
        /// Where: as with [`ReadError::Shape`], or the byte of a pickle or line and column of JSON.
        place: String,
        /// The limit.
        limit: u64,
        /// What sets it.
        bound: Bound,
    },
    /// What the content shares would come to more than files of its size do: [`Limits::values_ratio`](crate::Limits).
    #[error(
        "{}: the content stands for more than {limit} values, too many for a file of its size: damaged or hostile?",
        at_place(place)
    )]
    Shared {
        /// Where, as with [`ReadError::Shape`].
        place: String,
        /// The limit.
        limit: u64,
    },
}

fn at_place(path: &str) -> &str {
    if path.is_empty() { "the snapshot" } else { path }
}

/// What sets the limit of a file's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The size of its content: [`Limits::memory_ratio`](crate::Limits).
    Content,
    /// The size that it is compressed to, [`Limits::file_ratio`](crate::Limits): unpacked, it may take more.
    Compressed,
    /// Nothing of its own, [`Limits::memory`](crate::Limits): real ones of long programs may be as large.
    Any,
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const DOUBT: &str = "too much for a file of its size: damaged or hostile?";
        match self {
            Bound::Content => f.write_str(DOUBT),
            Bound::Compressed => write!(
                f,
                "{DOUBT} If neither, unpack it first (gzip -d): it may take more then"
            ),
            Bound::Any => write!(f, "as much as any snapshot may take: {FEWER}"),
        }
    }
}

/// What is wrong with a pickle.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PickleError {
    /// The file is cut off.
    #[error("cut off: {needed} more byte{} expected", if *needed == 1 { "" } else { "s" })]
    Truncated {
        /// At least so many.
        needed: u64,
    },
    /// The file is written with a newer pickle, or not a pickle.
    #[error("protocol {0} is not known, 2 to 5 are")]
    Protocol(u8),
    /// The pickle would import something.
    #[error("{opcode} would import {name}; not run")]
    Import {
        /// The opcode.
        opcode: Opcode,
        /// Module and name, without control characters.
        name: String,
    },
    /// The pickle would call something or make an object of a class.
    #[error("{0} would run code; not run")]
    Code(Opcode),
    /// Nothing a snapshot needs.
    #[error("{0} is not used by snapshots and not supported")]
    Unsupported(Opcode),
    /// No opcode at all.
    #[error("{0:#04x} is no opcode")]
    Unknown(u8),
    /// The opcode takes more than there is.
    #[error("{0} finds too little on the stack")]
    Stack(Opcode),
    /// The opcode takes another kind of thing.
    #[error("{opcode} expects {expected}")]
    Kind {
        /// The opcode.
        opcode: Opcode,
        /// What should be there.
        expected: &'static str,
    },
    /// A reference to what was never kept.
    #[error("nothing is kept under number {0}")]
    Memo(u32),
    /// An integer of more than 64 bits.
    #[error("an integer of {0} bytes does not fit 64 bits")]
    Integer(u32),
}

impl ReadError {
    /// The same error, told from one level further out.
    pub(crate) fn within(mut self, outer: impl FnOnce() -> String) -> ReadError {
        if let Some(path) = self.place() {
            let dot = if path.is_empty() || path.starts_with('[') {
                ""
            } else {
                "."
            };
            *path = format!("{}{dot}{path}", outer());
        }
        self
    }

    /// The same error, met where JSON was read up to there.
    pub(crate) fn before(mut self, line: usize, column: usize) -> ReadError {
        let before = format!("before line {line}, column {column}");
        match &mut self {
            ReadError::Shape { found, .. } => *found = format!("{found}, {before}"),
            ReadError::Memory { place, .. } | ReadError::Shared { place, .. } => {
                *place = format!("{}, {before}", at_place(place));
            }
            _ => {}
        }
        self
    }

    fn place(&mut self) -> Option<&mut String> {
        match self {
            ReadError::Shape { path: place, .. }
            | ReadError::Memory { place, .. }
            | ReadError::Shared { place, .. } => Some(place),
            _ => None,
        }
    }

    pub(crate) fn shape(expected: &'static str, found: impl Into<String>) -> ReadError {
        ReadError::Shape {
            path: String::new(),
            expected,
            found: found.into(),
        }
    }
}

/// A text of a file as a message may show it: short, and without what steers a terminal.
pub(crate) fn printable(text: &str) -> String {
    let cut: String = text.chars().take(60).collect();
    cut.escape_debug().to_string()
}

/// For `map_err`: the error is about the value under this key.
pub(crate) fn at(key: &'static str) -> impl FnOnce(ReadError) -> ReadError {
    move |error| error.within(|| key.to_owned())
}
