//! Finding channels: our own directories, everybody's as root, and those inside containers.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::{place, sweep};

/// A channel file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    /// Where it can be opened.
    pub path: PathBuf,
    /// Device and inode: the same file seen through two mount namespaces has one key.
    pub key: (u64, u64),
}

/// A place that could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub path: PathBuf,
    /// Why not.
    pub reason: String,
}

/// What one scan saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Channels, each once.
    pub found: Vec<Found>,
    /// Directories that are there and were refused.
    pub problems: Vec<Problem>,
    /// We have no more files to open, or no memory: what was found before and is not now may be there all the same.
    pub incomplete: bool,
}

/// Channels one scan returns at most.
const FOUND_MAX: usize = 4096;

/// Looks for every channel this user may read.
///
/// Costs a few directory listings; with other mount namespaces on the machine, one link to read per process. Meant for every few
/// seconds, not for every frame.
pub fn discover() -> Scan {
    let mut scan = Scan::default();
    let mut seen = HashSet::new();
    let us = rustix::process::geteuid();
    let own = place::own_directories();
    for dir in &own {
        look_into(dir, None, &mut seen, &mut scan);
    }
    // A directory named by hand is all that is wanted.
    if place::named_directory().is_some() {
        return scan;
    }
    for root in std::iter::once(PathBuf::from("/")).chain(other_mount_namespaces()) {
        for (parent, prefix, inner) in [("dev/shm", "gpumem-", ""), ("run/user", "", "gpumem")] {
            for entry in fs::read_dir(root.join(parent))
                .into_iter()
                .flatten()
                .flatten()
                .take(FOUND_MAX)
            {
                let name = entry.file_name();
                if name.to_string_lossy().starts_with(prefix) {
                    let path = if inner.is_empty() {
                        entry.path()
                    } else {
                        entry.path().join(inner)
                    };
                    if !own.contains(&path) {
                        look_into(&path, Some(us), &mut seen, &mut scan);
                    }
                }
            }
        }
    }
    scan
}

/// Lists one directory. `foreign` marks one that may belong to somebody else: it is silently left out unless it is ours or we
/// are root, and it must be private to its owner like any other.
fn look_into(dir: &Path, foreign: Option<rustix::process::Uid>, seen: &mut HashSet<(u64, u64)>, scan: &mut Scan) {
    let refuse = |scan: &mut Scan, reason: String| {
        scan.problems.push(Problem {
            path: dir.to_owned(),
            reason,
        })
    };
    let (handle, metadata) = match place::open_directory(dir).and_then(|f| f.metadata().map(|m| (f, m))) {
        Ok(opened) => opened,
        Err(error) if is_want(&error) => return scan.incomplete = true,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound || foreign.is_some() => return,
        Err(error) => return refuse(scan, error.to_string()),
    };
    let us = rustix::process::geteuid();
    if foreign.is_some_and(|us| !us.is_root() && us.as_raw() != metadata.uid()) {
        return;
    }
    let owner = if us.is_root() { metadata.uid() } else { us.as_raw() };
    if let Err(why) = place::check_private(&metadata, owner) {
        return refuse(scan, why.to_owned());
    }
    let names = sweep::list(&handle).unwrap_or_else(|error| {
        scan.incomplete |= is_want(&error);
        Vec::new()
    });
    for name in names {
        if !sweep::is_channel(&name) || scan.found.len() >= FOUND_MAX {
            continue;
        }
        let metadata = match place::open_in(&handle, &name).and_then(|file| file.metadata()) {
            Ok(metadata) => metadata,
            Err(error) => {
                scan.incomplete |= is_want(&error);
                continue;
            }
        };
        let key = (metadata.dev(), metadata.ino());
        if metadata.is_file() && seen.insert(key) {
            scan.found.push(Found {
                path: dir.join(&name),
                key,
            });
        }
    }
}

/// Whether it is us who lack what it takes to look.
fn is_want(error: &std::io::Error) -> bool {
    let error = Errno::from_io_error(error);
    matches!(error, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

/// `/proc/PID/root` of one process for every mount namespace but ours that we may enter.
fn other_mount_namespaces() -> Vec<PathBuf> {
    let namespace = |path: &Path| fs::read_link(path.join("ns/mnt")).ok();
    let mut seen: HashSet<_> = namespace(Path::new("/proc/self")).into_iter().collect();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = processes.filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit));
    processes
        .map(|entry| entry.path())
        .filter(|path| namespace(path).is_some_and(|ns| seen.insert(ns)))
        .map(|path| path.join("root"))
        .collect()
}
