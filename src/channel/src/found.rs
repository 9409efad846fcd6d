//! The file of a channel, before anything of it is read.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::OpenError;
use crate::place;

/// Whose directory a file is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// One of our own user's: a file of our own user's in it is mapped.
    Own,
    /// It may be anybody's: no file in it is mapped.
    Foreign,
}

/// A channel file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    /// Where it can be opened.
    pub path: PathBuf,
    /// Device and inode: the same file seen through two mount namespaces has one key.
    pub key: (u64, u64),
    pub(crate) access: Access,
}

impl Found {
    /// A file that is named by who may have it mapped if it is our own user's.
    ///
    /// # Errors
    /// When nothing can be said of it.
    pub fn named(path: &Path) -> io::Result<Found> {
        let about = fs::symlink_metadata(path)?;
        Ok(Found {
            path: path.to_owned(),
            key: (about.dev(), about.ino()),
            access: Access::Own,
        })
    }

    /// Whether it is in one of our own user's directories.
    pub fn is_own(&self) -> bool {
        self.access == Access::Own
    }

    /// Its file, opened if it still is the one that was found.
    pub(crate) fn file(&self) -> Result<File, OpenError> {
        let name = self.path.file_name().ok_or(OpenError::NotAChannel)?;
        // A bare name's parent is an empty path.
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        let dir = match self.access {
            Access::Own => place::open_directory(dir),
            Access::Foreign => place::open_foreign(dir),
        }?;
        let file = place::open_in(&dir, name)?;
        let about = file.metadata()?;
        if (about.dev(), about.ino()) != self.key {
            return Err(io::Error::new(io::ErrorKind::NotFound, "another file has its name now").into());
        }
        Ok(file)
    }
}
