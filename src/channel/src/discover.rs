//! Finding channels: our own directories, everybody's as root, and those inside containers.
//!
//! Anybody can put anything into `/dev/shm`, and into that of a container. So names are filtered before anything is counted, each owner's
//! files are counted by themselves, and what is left out all the same is a [`Problem`].

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::OpenError;
use crate::reader::Reader;
use crate::source::Access;
use crate::{place, sweep};

mod search;

/// A channel file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    /// Where it can be opened.
    pub path: PathBuf,
    /// Device and inode: the same file seen through two mount namespaces has one key.
    pub key: (u64, u64),
    access: Access,
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

    /// Opens it, if it still is the file that was found. In one of our own user's directories our own user's file is mapped; any other is
    /// read with `pread`.
    ///
    /// # Errors
    /// See [`OpenError`]. Nothing in the file is believed before it is checked.
    pub fn open(&self) -> Result<Reader, OpenError> {
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
        Reader::of_file(file, self.access)
    }
}

/// A place that could not be looked at, or not at all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub path: PathBuf,
    /// What keeps us from it.
    pub kind: ProblemKind,
    /// The same in words.
    pub reason: String,
}

/// What keeps us from channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// A directory is refused: nothing in it is looked at.
    Refused,
    /// There is more than is looked at.
    Overflow,
}

/// What one scan saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Channels, each once.
    pub found: Vec<Found>,
    /// Directories that are there and were refused, and what was left out.
    pub problems: Vec<Problem>,
    /// We have no more files to open, or no memory: what was found before and is not now may be there all the same.
    pub incomplete: bool,
}

/// Mount namespaces that are looked into.
const NAMESPACES_MAX: usize = 4096;

/// Looks for every channel this user may read.
///
/// Costs a few directory listings; with other mount namespaces on the machine, one link to read per process. Meant for every few
/// seconds, not for every frame.
pub fn discover() -> Scan {
    let own = place::own_directories();
    // A directory named by hand is all that is wanted.
    if place::named_directory().is_some() {
        return search::within(&own, std::iter::empty());
    }
    let mut scan = Scan::default();
    let roots = other_mount_namespaces(&mut scan);
    let found = search::within(&own, std::iter::once(PathBuf::from("/")).chain(roots));
    Scan {
        problems: [scan.problems, found.problems].concat(),
        ..found
    }
}

/// Descriptors of a process that are looked at.
const DESCRIPTORS_MAX: usize = 4096;

/// The name that the channel file of a process had before it was removed. A publisher keeps its file open, so `/proc/PID/fd` shows it.
/// `None` where the process has no such file, or does not let us look.
///
/// Costs a link to read for each file that the process has open. The process can make the name up: it says something of that process only.
pub fn removed_channel_of(pid: u32) -> Option<PathBuf> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    open.take(DESCRIPTORS_MAX)
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .find_map(|link| {
            let path = Path::new(OsStr::from_bytes(
                link.as_os_str().as_bytes().strip_suffix(b" (deleted)")?,
            ));
            sweep::is_of_publisher(path.file_name()?).then(|| path.to_owned())
        })
}

/// `/proc/PID/root` of one process for every mount namespace but ours that we may enter.
fn other_mount_namespaces(scan: &mut Scan) -> Vec<PathBuf> {
    let namespace = |path: &Path| fs::read_link(path.join("ns/mnt")).ok();
    let mut seen: HashSet<_> = namespace(Path::new("/proc/self")).into_iter().collect();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = processes.filter(|entry| entry.file_name().as_bytes().iter().all(u8::is_ascii_digit));
    let mut roots: Vec<(u32, PathBuf)> = processes
        .map(|entry| entry.path())
        .filter(|path| namespace(path).is_some_and(|ns| seen.insert(ns)))
        .map(|path| {
            (
                fs::metadata(&path).map_or(u32::MAX, |about| about.uid()),
                path.join("root"),
            )
        })
        .collect();
    // Any user can make namespaces: those of root's processes, as of most containers', come first.
    roots.sort();
    if roots.len() > NAMESPACES_MAX {
        scan.problems.push(Problem {
            path: roots[NAMESPACES_MAX].1.clone(),
            kind: ProblemKind::Overflow,
            reason: format!(
                "{} mount namespaces, this one first, are left out: at most {NAMESPACES_MAX} are searched",
                roots.len() - NAMESPACES_MAX
            ),
        });
        roots.truncate(NAMESPACES_MAX);
    }
    roots.into_iter().map(|(_, root)| root).collect()
}
