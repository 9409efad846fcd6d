//! Finding channels: our own directories, everybody's as root, and those inside containers.
//!
//! Anybody can put anything into `/dev/shm`, and into that of a container. So names are filtered before anything is counted, each owner's
//! files are counted by themselves, and what is left out all the same is a [`Problem`].

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::found::Found;
use crate::{place, sweep};

mod search;

/// A place that could not be looked at, or not at all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file or directory.
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
