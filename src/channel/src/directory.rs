//! The directories of channel files: where they are, and whether they can be trusted.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gpumem_text::clean;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Suffix of a channel's file name.
pub(crate) const SUFFIX: &str = ".gpumem";
/// Prefix of the name of a file under construction.
pub(crate) const TEMPORARY: &str = ".new-";

const TMPFS_MAGIC: u64 = 0x0102_1994;
const NOT_IN_MEMORY: &str = "not in memory (tmpfs), where channels have to be, as /dev/shm is";

/// Returns the directory that `$GPUMEM_DIR` names, which is then the only one. An empty value names none.
pub fn named_directory() -> Option<PathBuf> {
    let dir = std::env::var_os("GPUMEM_DIR").filter(|dir| !dir.is_empty());
    dir.map(PathBuf::from)
}

/// Returns the directories in which this user's channels may be, in the order in which a publisher tries them: the
/// [named](named_directory) one, else `$XDG_RUNTIME_DIR/gpumem` and `/dev/shm/gpumem-<uid>`.
pub fn own_directories() -> Vec<PathBuf> {
    if let Some(dir) = named_directory() {
        return vec![dir];
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|d| !d.is_empty());
    let runtime = runtime
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join("gpumem"));
    let shm = format!("/dev/shm/gpumem-{}", rustix::process::geteuid().as_raw());
    runtime.into_iter().chain([shm.into()]).collect()
}

/// Opens `dir` as a channel directory, and creates it if it does not exist. It must be private to this user, not a
/// symbolic link, and in memory: on a disk every store into a mapped channel would eventually be written back.
pub(crate) fn open_own(dir: &Path) -> Result<File, String> {
    let fail = |what: &str, error: io::Error| format!("{}: {what}: {error}", shown(dir));
    let made = match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(fail("cannot make it", error)),
        made => made.is_ok(),
    };
    if made {
        // The process's umask may have removed permissions. If they cannot be restored, the check below reports it.
        let _ = open_directory(dir).and_then(|made| made.set_permissions(Permissions::from_mode(0o700)));
    }
    let opened = open_existing(dir);
    if made && opened.is_err() {
        // If something was put into it meanwhile, it stays.
        let _ = std::fs::remove_dir(dir);
    }
    opened
}

/// Checks whether an existing directory can hold this user's channels; the error says why not.
pub fn check_directory(dir: &Path) -> Result<(), String> {
    open_existing(dir).map(drop)
}

fn open_existing(dir: &Path) -> Result<File, String> {
    let fail = |what: &str, error: io::Error| format!("{}: {what}: {error}", shown(dir));
    let file = open_directory(dir).map_err(|error| fail("cannot open it", error))?;
    let metadata = file
        .metadata()
        .map_err(|error| fail("cannot read its metadata", error))?;
    check_private(&metadata, rustix::process::geteuid().as_raw()).map_err(|why| format!("{}: {why}", shown(dir)))?;
    let kind = rustix::fs::fstatfs(&file)
        .map_err(|error| fail("cannot read its file system", error.into()))?
        .f_type as u64;
    if kind != TMPFS_MAGIC {
        return Err(format!("{}: {NOT_IN_MEMORY}", shown(dir)));
    }
    Ok(file)
}

/// Returns a path as text for a message.
pub(crate) fn shown(path: &Path) -> String {
    clean(&path.display().to_string())
}

/// Opens a directory without following a symbolic link at its end.
pub(crate) fn open_directory(dir: &Path) -> io::Result<File> {
    // With a trailing slash or dot, a symbolic link would be followed.
    let dir: PathBuf = dir.components().collect();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(&dir, flags, Mode::empty()) {
        Ok(opened) => Ok(opened.into()),
        // The system's error would say that it is not a directory.
        Err(_) if dir.is_symlink() => Err(io::Error::new(
            io::ErrorKind::NotADirectory,
            "it is a symbolic link: name the directory itself",
        )),
        Err(error) => Err(error.into()),
    }
}

/// Checks that a directory belongs to `uid` and is closed to other users.
pub(crate) fn check_private(metadata: &Metadata, uid: u32) -> Result<(), &'static str> {
    if metadata.uid() != uid {
        return Err("it belongs to another user");
    }
    if metadata.mode() & 0o077 != 0 {
        return Err("other users can enter it (its mode must be 0700)");
    }
    Ok(())
}

/// Opens the directory that holds users' directories. In a container it may be anything, even a FIFO.
pub(crate) fn open_parent(dir: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::empty())?.into())
}

/// Opens an unknown directory that another user may have made, but only if it is in memory. On other file systems (such
/// as FUSE) the owner could block every access.
pub(crate) fn open_foreign(dir: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = rustix::fs::open(dir, flags, Mode::empty())?;
    if rustix::fs::fstatfs(&place)?.f_type as u64 != TMPFS_MAGIC {
        return Err(io::Error::new(io::ErrorKind::Unsupported, NOT_IN_MEMORY));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&place, ".", flags, Mode::empty())?.into())
}

/// Opens a regular file of an open directory for reading, never through a symbolic link. Other kinds of file are not
/// opened at all: opening a device can have effects, and opening a FIFO is visible to its writer.
pub(crate) fn open_in(dir: impl AsFd, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file: File = rustix::fs::openat(&dir, name, flags, Mode::empty())?.into();
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // Not by name, which may be another file's by now.
    match rustix::fs::open(format!("/proc/self/fd/{}", file.as_raw_fd()), flags, Mode::empty()) {
        Err(Errno::NOENT) => {}
        opened => return Ok(opened?.into()),
    }
    // `/proc` is not mounted.
    Ok(rustix::fs::openat(dir, name, flags | OFlags::NOFOLLOW, Mode::empty())?.into())
}

/// Returns the size in bytes of the file system of a directory; 0 if it has no limit.
pub(crate) fn total(dir: &File) -> u64 {
    rustix::fs::fstatvfs(dir).map_or(0, |about| about.f_blocks.saturating_mul(about.f_frsize))
}
