//! Finds channels: in this user's directories, as root in every user's, and inside containers.
//!
//! Any user can put anything into `/dev/shm`, also into that of a container. So names are filtered before anything is
//! counted, each owner's files are counted separately, and whatever is still left out is reported as a [`Problem`].

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::found::Found;
use crate::{directory, sweep};

mod search;

/// A file or directory that was not searched, or only in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file or directory.
    pub path: PathBuf,
    /// The kind of the problem.
    pub kind: ProblemKind,
    /// The problem as text for the user.
    pub reason: String,
}

/// Why channels were left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// A directory was refused: nothing in it was looked at.
    Refused,
    /// There are more entries than are searched.
    Overflow,
}

/// The result of one scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Channels, each once.
    pub found: Vec<Found>,
    /// Directories that were refused, and entries that were left out.
    pub problems: Vec<Problem>,
    /// This process ran out of file descriptors or memory, so a channel found by an earlier scan but not by this one
    /// may still exist.
    pub incomplete: bool,
}

/// Most mount namespaces that are searched.
const NAMESPACES_MAX: usize = 4096;

/// Searches for every channel that this user may read.
///
/// Costs a few directory listings, and on a machine with other mount namespaces one `readlink` per process. Meant to be
/// called every few seconds, not for every frame.
pub fn discover() -> Scan {
    let own = directory::own_directories();
    // If the user named a directory, only that one is searched.
    if directory::named_directory().is_some() {
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

/// Most descriptors of a process that are looked at.
const DESCRIPTORS_MAX: usize = 4096;

/// Returns the name that the channel file of a process had before it was removed. A publisher keeps its file open, so
/// `/proc/PID/fd` shows it. Returns `None` if the process has no such file, or may not be inspected.
///
/// Costs one `readlink` for each file that the process has open. A process can forge the name, so it says something
/// about that process only.
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

/// Returns `/proc/PID/root` of one process for every other mount namespace that this process may enter.
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
    // Any user can make namespaces, so those of root's processes, which most containers have, come first.
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
