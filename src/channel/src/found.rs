//! Channel files that were found but not yet read.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::directory;
use crate::error::OpenError;

/// The kind of directory that a file is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// A directory of this user: this user's files in it are mapped.
    Own,
    /// A directory that may be anyone's: no file in it is mapped.
    Foreign,
}

/// A channel file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    /// Path at which it can be opened.
    pub path: PathBuf,
    /// Device and inode: the same file seen through two mount namespaces has one key.
    pub key: (u64, u64),
    pub(crate) access: Access,
}

impl Found {
    /// Describes a file whose path the caller trusts: it is mapped if it belongs to this user.
    ///
    /// # Errors
    /// If the file's metadata cannot be read.
    pub fn named(path: &Path) -> io::Result<Found> {
        let about = fs::symlink_metadata(path)?;
        Ok(Found {
            path: path.to_owned(),
            key: (about.dev(), about.ino()),
            access: Access::Own,
        })
    }

    /// Whether it is in one of this user's own directories.
    pub fn is_own(&self) -> bool {
        self.access == Access::Own
    }

    /// Opens the file if it is still the one that was found.
    pub(crate) fn file(&self) -> Result<File, OpenError> {
        let name = self.path.file_name().ok_or(OpenError::NotAChannel)?;
        // The parent of a bare name is an empty path.
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        let dir = match self.access {
            Access::Own => directory::open_directory(dir),
            Access::Foreign => directory::open_foreign(dir),
        }?;
        let file = directory::open_in(&dir, name)?;
        let about = file.metadata()?;
        if (about.dev(), about.ino()) != self.key {
            return Err(io::Error::new(io::ErrorKind::NotFound, "another file has its name now").into());
        }
        Ok(file)
    }
}
