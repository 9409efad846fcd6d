//! What can go wrong, and what to do about it.

use std::io;
use std::path::PathBuf;

use crate::place::shown;

/// Why a publisher has no channel. The program that embeds it works on without one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// No directory would do.
    #[error("no directory for the channel: {}", .0.join("; "))]
    NoDirectory(Vec<String>),
    /// A system call failed.
    #[error("cannot {doing} {}: {source}", shown(path))]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// There is no room for the channel's file, and no black box left that could make way. Its memory is taken in full at the start, so
    /// that it can never run out later.
    #[error(
        "no room for a channel of {bytes} bytes in {}: make room there, have it in another tmpfs (GPUMEM_DIR) or, in Rust, smaller (Options)",
        shown(dir)
    )]
    NoSpace {
        /// The directory.
        dir: PathBuf,
        /// What the channel needs.
        bytes: u64,
    },
    /// The directory's file system has no room for one more file, however small.
    #[error(
        "no inode is left for a channel in {}: remove files there, or have it in another tmpfs (GPUMEM_DIR)",
        shown(dir)
    )]
    NoInodes {
        /// The directory.
        dir: PathBuf,
    },
    /// The process may not make files that large. Trying would end it by `SIGXFSZ`.
    #[error(
        "files of this process may have {limit} bytes (ulimit -f) and a channel needs {bytes}: raise the limit or, in Rust, have it smaller (Options)"
    )]
    FileSizeLimit {
        /// What the channel needs.
        bytes: u64,
        /// What is allowed.
        limit: u64,
    },
    /// As many channels as a process may have are open.
    #[error("this process has too many channels open ({})", crate::map::CHANNELS_MAX)]
    TooMany,
}

/// Why a file cannot be read as a channel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A system call failed.
    #[error("cannot open it: {0}")]
    Io(#[from] io::Error),
    /// Not a regular file, or it does not begin as a channel does.
    #[error("not a gpumem channel")]
    NotAChannel,
    /// Another user's, and we are not root.
    #[error("it belongs to user {uid}: only that user and root can read it")]
    NotYours {
        /// Its owner.
        uid: u32,
    },
    /// Written by a newer gpumem whose format this reader does not understand.
    #[error(
        "it has format {version} and needs a reader of format {needs} or newer (this one reads {}): update gpumem",
        crate::format::VERSION
    )]
    TooNew {
        /// Its format.
        version: u64,
        /// The oldest format a reader must know.
        needs: u64,
    },
    /// It contradicts itself.
    #[error("malformed channel: {0}")]
    Malformed(&'static str),
}

/// Why an open channel can no longer be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A system call failed.
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
    /// Someone cut it short.
    #[error("the file was cut short while it was open")]
    Truncated,
}
