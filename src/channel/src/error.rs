//! Errors of the channel, with what the user can do about them.

use std::io;
use std::path::PathBuf;

use crate::directory::shown;

/// Why no channel could be created. The program that embeds the publisher continues without one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// No directory is suitable.
    #[error("no directory for the channel: {}", .0.join("; "))]
    NoDirectory(Vec<String>),
    /// A system call failed.
    #[error("cannot {doing} {}: {source}", shown(path))]
    Io {
        /// What the publisher was doing.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// There is no space for the channel's file, and no black box left that could be removed. The file's memory is
    /// allocated in full at creation, so that it can never run out later.
    #[error(
        "no room for a channel of {bytes} bytes in {}: make room there, put it in another tmpfs (GPUMEM_DIR) or, in Rust, make it smaller (Options)",
        shown(dir)
    )]
    NoSpace {
        /// The directory of the channel.
        dir: PathBuf,
        /// Size of the channel's file.
        bytes: u64,
    },
    /// The directory's file system has no free inode.
    #[error(
        "no inode is left for a channel in {}: remove files there, or put it in another tmpfs (GPUMEM_DIR)",
        shown(dir)
    )]
    NoInodes {
        /// The directory of the channel.
        dir: PathBuf,
    },
    /// The process may not make files of that size. Trying would kill it with `SIGXFSZ`.
    #[error(
        "files of this process may have {limit} bytes (ulimit -f) and a channel needs {bytes}: raise the limit or, in Rust, make it smaller (Options)"
    )]
    FileSizeLimit {
        /// Size of the channel's file.
        bytes: u64,
        /// The process's limit on the size of a file.
        limit: u64,
    },
    /// The process has reached the limit on open channels.
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
    /// It is not a regular file, or does not begin like a channel.
    #[error("not a gpumem channel")]
    NotAChannel,
    /// It belongs to another user, and this process is not root.
    #[error("it belongs to user {uid}: only that user and root can read it")]
    NotYours {
        /// Its owner.
        uid: u32,
    },
    /// It was written by a newer gpumem in a format that this reader does not understand.
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
    /// The file was truncated.
    #[error("the file was cut short while it was open")]
    Truncated,
}
