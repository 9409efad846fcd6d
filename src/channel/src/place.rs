//! Where channel files live, and which directories can be trusted with them.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gpumem_text::clean;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// What a channel's file name ends in.
pub(crate) const SUFFIX: &str = ".gpumem";
/// What the name of a file under construction begins with.
pub(crate) const TEMPORARY: &str = ".new-";

const TMPFS_MAGIC: u64 = 0x0102_1994;
const NOT_IN_MEMORY: &str = "not in memory (tmpfs), where channels have to be, as /dev/shm is";

/// The directory that is named by hand, `$GPUMEM_DIR`: then there is no other. An empty value names none.
pub fn named_directory() -> Option<PathBuf> {
    let dir = std::env::var_os("GPUMEM_DIR").filter(|dir| !dir.is_empty());
    dir.map(PathBuf::from)
}

/// The directories in which this user's channels may be, in the order a publisher tries them: the [named](named_directory) one, else
/// `$XDG_RUNTIME_DIR/gpumem` and `/dev/shm/gpumem-<uid>`.
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

/// Opens `dir` as a home for channels, making it if it is not there. It must be ours alone, no symbolic link, and in memory: on a
/// disk every store into a mapped channel would sooner or later be written back.
pub(crate) fn open_own(dir: &Path) -> Result<File, String> {
    let fail = |what: &str, error: io::Error| format!("{}: {what}: {error}", shown(dir));
    let made = match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(fail("cannot make it", error)),
        made => made.is_ok(),
    };
    if made {
        // The program's mask may have taken a part. If it cannot be given back that is what is wrong with the directory below.
        let _ = open_directory(dir).and_then(|made| made.set_permissions(Permissions::from_mode(0o700)));
    }
    let opened = open_home(dir);
    if made && opened.is_err() {
        // What somebody put into it meanwhile stays.
        let _ = std::fs::remove_dir(dir);
    }
    opened
}

/// Whether a directory that is there can be a home for this user's channels; otherwise why not.
pub fn check_directory(dir: &Path) -> Result<(), String> {
    open_home(dir).map(drop)
}

fn open_home(dir: &Path) -> Result<File, String> {
    let fail = |what: &str, error: io::Error| format!("{}: {what}: {error}", shown(dir));
    let file = open_directory(dir).map_err(|error| fail("cannot open it", error))?;
    let metadata = file.metadata().map_err(|error| fail("cannot look at it", error))?;
    check_private(&metadata, rustix::process::geteuid().as_raw()).map_err(|why| format!("{}: {why}", shown(dir)))?;
    let kind = rustix::fs::fstatfs(&file)
        .map_err(|error| fail("cannot look at its file system", error.into()))?
        .f_type as u64;
    if kind != TMPFS_MAGIC {
        return Err(format!("{}: {NOT_IN_MEMORY}", shown(dir)));
    }
    Ok(file)
}

/// A path as a message may show it.
pub(crate) fn shown(path: &Path) -> String {
    clean(&path.display().to_string())
}

/// Opens a directory without following a symbolic link at its end.
pub(crate) fn open_directory(dir: &Path) -> io::Result<File> {
    // A slash or a dot behind the name would be the end, and the link be followed to get there.
    let dir: PathBuf = dir.components().collect();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(&dir, flags, Mode::empty()) {
        Ok(opened) => Ok(opened.into()),
        // The system says of it that it is no directory.
        Err(_) if dir.is_symlink() => Err(io::Error::new(
            io::ErrorKind::NotADirectory,
            "it is a symbolic link: name the directory itself",
        )),
        Err(error) => Err(error.into()),
    }
}

/// Whether a directory belongs to `uid` and to nobody else.
pub(crate) fn check_private(metadata: &Metadata, uid: u32) -> Result<(), &'static str> {
    if metadata.uid() != uid {
        return Err("it belongs to another user");
    }
    if metadata.mode() & 0o077 != 0 {
        return Err("other users can enter it (its mode must be 0700)");
    }
    Ok(())
}

/// Opens the directory that users' directories are in. In a container it may be anything, a FIFO too.
pub(crate) fn open_parent(dir: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::empty())?.into())
}

/// Opens a directory that somebody else may have made, of which nothing is known yet: only if it is in memory. Another file system can
/// be one whose owner has every look at it wait.
pub(crate) fn open_foreign(dir: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = rustix::fs::open(dir, flags, Mode::empty())?;
    if rustix::fs::fstatfs(&place)?.f_type as u64 != TMPFS_MAGIC {
        return Err(io::Error::new(io::ErrorKind::Unsupported, NOT_IN_MEMORY));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&place, ".", flags, Mode::empty())?.into())
}

/// Opens a regular file of an open directory for reading, never through a symbolic link. Anything else is not opened at all: opening a
/// device can already do something, and a FIFO tells its other end.
pub(crate) fn open_in(dir: impl AsFd, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file: File = rustix::fs::openat(&dir, name, flags, Mode::empty())?.into();
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no regular file"));
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // Not by its name, which may be another file's by now.
    match rustix::fs::open(format!("/proc/self/fd/{}", file.as_raw_fd()), flags, Mode::empty()) {
        Err(Errno::NOENT) => {}
        opened => return Ok(opened?.into()),
    }
    // There is no /proc.
    Ok(rustix::fs::openat(dir, name, flags | OFlags::NOFOLLOW, Mode::empty())?.into())
}

/// Bytes of the file system that a directory is in; 0 if it has no limit.
pub(crate) fn total(dir: &File) -> u64 {
    rustix::fs::fstatvfs(dir).map_or(0, |about| about.f_blocks.saturating_mul(about.f_frsize))
}
