//! Errors of reading a file.

use std::path::PathBuf;

use super::opcode::Opcode;

/// Advice for a real snapshot that is too large.
const FEWER: &str = "record fewer events (max_entries of _record_memory_history())";

/// Why a snapshot could not be read. No code of the file was run, and nothing of it is kept.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be read.
    #[error("reading {}: {source}", path.display().to_string().escape_debug())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
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
        /// Whether the unpacked content is too large, not the file.
        unpacked: bool,
    },
    /// The file unpacks to much more than real files of its size, according to [`Limits::gzip_ratio`](crate::Limits) or
    /// [`Limits::file_ratio`](crate::Limits).
    #[error(
        "the snapshot is larger than {limit} bytes once unpacked, too much for a file that is compressed to {packed} bytes: if it is \
         not hostile, unpack it first (gzip -d)"
    )]
    Packed {
        /// Size of the file in bytes.
        packed: u64,
        /// The limit.
        limit: u64,
    },
    /// The gzip file is damaged or cut off.
    #[error("gzip, after {unpacked} unpacked bytes: {source}")]
    Gzip {
        /// Number of bytes unpacked before the error.
        unpacked: u64,
        /// The decompressor's error.
        source: std::io::Error,
    },
    /// Neither a pickle nor JSON.
    #[error("not a snapshot: {0}; expected a pickle of protocol 2 to 5 or JSON, plain or gzipped")]
    Format(&'static str),
    /// The pickle is damaged, truncated, or would run something.
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
    /// The file is well-formed, but does not have the shape of a snapshot.
    #[error("{}: expected {expected}, found {found}", at_place(path))]
    Shape {
        /// The position, such as `segments[3].blocks[0].size`.
        path: String,
        /// What PyTorch would write there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// The content would take much more memory than that of real files of its size: see
    /// [`Limits::memory_ratio`](crate::Limits) and the other limits.
    #[error("{}: the content takes more than {limit} bytes of memory, {bound}", at_place(place))]
    Memory {
        /// The position, as in [`ReadError::Shape`], or the byte of a pickle, or line and column of JSON.
        place: String,
        /// The limit.
        limit: u64,
        /// The limit that applies.
        bound: Bound,
    },
    /// Expanded, the shared values of the content would be many more than those of real files of its size: see
    /// [`Limits::values_ratio`](crate::Limits).
    #[error(
        "{}: the content stands for more than {limit} values, too many for a file of its size: damaged or hostile?",
        at_place(place)
    )]
    Shared {
        /// The position, as in [`ReadError::Shape`].
        place: String,
        /// The limit.
        limit: u64,
    },
}

fn at_place(path: &str) -> &str {
    if path.is_empty() { "the snapshot" } else { path }
}

/// The limit that applies to a file's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The size of its content: [`Limits::memory_ratio`](crate::Limits).
    Content,
    /// Its compressed size, [`Limits::file_ratio`](crate::Limits): the unpacked file may take more.
    Compressed,
    /// The limit for all files, [`Limits::memory`](crate::Limits): real snapshots of long programs may reach it.
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
        /// Least number of missing bytes.
        needed: u64,
    },
    /// The file has a newer pickle protocol, or is not a pickle.
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
    /// Snapshots do not use this opcode.
    #[error("{0} is not used by snapshots and not supported")]
    Unsupported(Opcode),
    /// The byte is not an opcode.
    #[error("{0:#04x} is no opcode")]
    Unknown(u8),
    /// The opcode needs more items than the stack has.
    #[error("{0} finds too little on the stack")]
    Stack(Opcode),
    /// The opcode needs an item of another kind.
    #[error("{opcode} expects {expected}")]
    Kind {
        /// The opcode.
        opcode: Opcode,
        /// The expected kind.
        expected: &'static str,
    },
    /// A reference to a memo number that was never set.
    #[error("nothing is kept under number {0}")]
    Memo(u32),
    /// An integer of more than 64 bits.
    #[error("an integer of {0} bytes does not fit 64 bits")]
    Integer(u32),
}

impl ReadError {
    /// Adds the name of the enclosing level to the error's position.
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

    /// Adds to the error's position how far the JSON was read.
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

/// Returns a text of a file for a message: shortened, and without control characters.
pub(crate) fn printable(text: &str) -> String {
    let cut: String = text.chars().take(60).collect();
    cut.escape_debug().to_string()
}

/// Returns a function for `map_err` that adds this key to the error's position.
pub(crate) fn at(key: &'static str) -> impl FnOnce(ReadError) -> ReadError {
    move |error| error.within(|| key.to_owned())
}
