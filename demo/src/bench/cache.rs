//! The user's cache folder: `$XDG_CACHE_HOME/gpumem`, else `~/.cache/gpumem`. Reports are kept there, and Python files of `gpumem-tui run`.
//!
//! The folder belongs to the user, nobody else can write to it, and it is no symbolic link. A file appears there complete or not at
//! all: it is written under a temporary name and renamed.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use gpumem_text::clean;
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

/// The largest file that is written or read, in bytes.
pub(super) const MAX_BYTES: u64 = 256 << 10;
/// The most entries of the folder that are looked at.
const MAX_ENTRIES: usize = 4096;
/// How many temporary names are tried. Those of processes that were killed stay.
const MAX_ATTEMPTS: u32 = 16;

/// Why a file could not be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The environment names no folder.
    #[error("there is no cache folder: set XDG_CACHE_HOME or HOME to an absolute path")]
    NoFolder,
    /// A folder or a file cannot be used.
    #[error("{}: {why}", clean(&path.display().to_string()))]
    Unusable {
        /// Which one.
        path: PathBuf,
        /// Why not, and what to do where that is not plain.
        why: String,
    },
}

impl CacheError {
    pub(super) fn new(path: &Path, why: impl ToString) -> CacheError {
        CacheError::Unusable {
            path: path.to_owned(),
            why: why.to_string(),
        }
    }
}

/// Returns the path of the folder, which need not exist.
///
/// # Errors
///
/// If neither variable of the environment is an absolute path.
pub fn folder() -> Result<PathBuf, CacheError> {
    let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    // The specification has relative paths ignored.
    let named = named.filter(|path| path.is_absolute());
    let home = || Some(std::env::home_dir()?.join(".cache")).filter(|path| path.is_absolute());
    let cache = named.or_else(home).ok_or(CacheError::NoFolder)?;
    Ok(cache.join("gpumem"))
}

/// The folder or one in it, opened.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    handle: OwnedFd,
}

impl Folder {
    /// Opens the folder, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// If it cannot be made, is not this user's, is a symbolic link, or others can write to it.
    pub fn create(path: &Path) -> Result<Folder, CacheError> {
        let fail = |error| CacheError::new(path, format!("cannot make this folder: {error}"));
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        if let Some(parent) = path.parent() {
            builder.recursive(true).create(parent).map_err(fail)?;
        }
        match builder.recursive(false).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(fail(error)),
            _ => {}
        }
        let gone = || CacheError::new(path, "this folder was removed just now");
        Folder::open(path)?.ok_or_else(gone)
    }

    /// Opens the folder. `None` if it does not exist.
    pub(super) fn open(path: &Path) -> Result<Option<Folder>, CacheError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(handle) => handle,
            Err(Errno::NOENT) => return Ok(None),
            // With these flags a symbolic link is not a directory.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Err(CacheError::new(path, "not a folder, or a symbolic link: remove it"));
            }
            Err(error) => return Err(CacheError::new(path, io::Error::from(error))),
        };
        let about = rustix::fs::fstat(&handle).map_err(|error| CacheError::new(path, io::Error::from(error)))?;
        if about.st_uid != rustix::process::geteuid().as_raw() {
            return Err(CacheError::new(path, "this folder belongs to another user"));
        }
        if about.st_mode & 0o022 != 0 {
            return Err(CacheError::new(
                path,
                "other users can write to this folder: chmod go-w",
            ));
        }
        Ok(Some(Folder {
            path: path.to_owned(),
            handle,
        }))
    }

    /// Returns the path of a file in it.
    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file, in place of an older one of that name.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or has more than 256 KiB.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), CacheError> {
        let fail = |error: io::Error| CacheError::new(&self.path_of(name), format!("cannot write it: {error}"));
        if bytes.len() as u64 > MAX_BYTES {
            return Err(fail(io::ErrorKind::FileTooLarge.into()));
        }
        let (temporary, mut file) = self.temporary(name).map_err(fail)?;
        let mut write = || {
            file.write_all(bytes)?;
            file.sync_all()?;
            rustix::fs::renameat(&self.handle, &temporary, &self.handle, name).map_err(io::Error::from)
        };
        write().map_err(|error| {
            // Nothing reads a file of this name.
            let _ = rustix::fs::unlinkat(&self.handle, &temporary, AtFlags::empty());
            fail(error)
        })
    }

    fn temporary(&self, name: &str) -> io::Result<(String, File)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for attempt in 0..MAX_ATTEMPTS {
            let temporary = format!(".{name}.{}-{attempt}", std::process::id());
            match rustix::fs::openat(&self.handle, &temporary, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => return Ok((temporary, file.into())),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Returns the names of files that begin and end so, in order.
    pub(super) fn names(&self, prefix: &str, suffix: &str) -> Result<Vec<String>, CacheError> {
        let fail = |error: Errno| CacheError::new(&self.path, format!("cannot list it: {}", io::Error::from(error)));
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.handle).map_err(fail)?.take(MAX_ENTRIES) {
            let entry = entry.map_err(fail)?;
            if let Ok(name) = entry.file_name().to_str()
                && name.starts_with(prefix)
                && name.ends_with(suffix)
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Reads a file of this user.
    ///
    /// # Errors
    ///
    /// If it cannot be read, is no regular file of this user, or has more than 256 KiB.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, CacheError> {
        let fail = |error: io::Error| CacheError::new(&self.path_of(name), format!("cannot read it: {error}"));
        // Opening a FIFO without NONBLOCK would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.handle, name, flags, Mode::empty());
        let file = File::from(file.map_err(|error| fail(error.into()))?);
        let about = file.metadata().map_err(fail)?;
        let refuse = |why: &str| Err(CacheError::new(&self.path_of(name), why));
        if !about.is_file() {
            return refuse("not a regular file");
        }
        if about.uid() != rustix::process::geteuid().as_raw() {
            return refuse("this file belongs to another user");
        }
        let mut bytes = Vec::new();
        // The size may have changed since it was asked for.
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(fail)?;
        match bytes.len() as u64 <= MAX_BYTES {
            true => Ok(bytes),
            false => refuse("too large"),
        }
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
