//! Searches directories that any user may have filled.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::Errno;

use super::{Problem, ProblemKind, Scan};
use crate::found::{Access, Found};
use crate::{directory, sweep};

/// Most channels that one scan returns. If there are more, they are shared out evenly among the owners.
const FOUND_MAX: usize = 4096;
/// Most directories of one owner that are searched: each of a user's containers has one, and each `GPUMEM_DIR` may be
/// another.
const OWNER_DIRECTORIES_MAX: usize = 512;
/// Most directories of all owners that are searched.
const DIRECTORIES_MAX: usize = 4096;

/// An owner, whose files share one bound: a uid and the number of a mount namespace. The namespace matters only for uid
/// 0, because the root of a container can be uid 0 here. Owners are ordered by uid, so that the machine's users come
/// before the ids of user namespaces.
type Owner = (u32, usize);

/// Searches for channels in this user's own directories and below these roots.
pub(super) fn within(own: &[PathBuf], roots: impl IntoIterator<Item = PathBuf>) -> Scan {
    let mut search = Search::default();
    for dir in own {
        search.look_into_own(dir);
    }
    let mut parents = HashSet::new();
    let mut dirs = Vec::new();
    for (namespace, root) in roots.into_iter().enumerate() {
        for parent in &PARENTS {
            let path = root.join(parent.path);
            // Most mount namespaces show the same directory.
            if fs::metadata(&path).is_ok_and(|about| parents.insert((about.dev(), about.ino()))) {
                search.list_directories(&path, parent, namespace, own, &mut dirs);
            }
        }
    }
    for dir in search.within_bounds(dirs) {
        search.look_into_foreign(&dir);
    }
    search.deal()
}

/// A directory that holds users' directories.
struct Parent {
    path: &'static str,
    is_wanted: fn(&OsStr) -> bool,
    /// Path of the channel directory inside the user's directory.
    inner: &'static str,
}

const PARENTS: [Parent; 2] = [
    Parent {
        path: "dev/shm",
        is_wanted: |name| name.as_bytes().starts_with(b"gpumem-"),
        inner: "",
    },
    Parent {
        path: "run/user",
        is_wanted: |name| name.as_bytes().iter().all(u8::is_ascii_digit),
        inner: "gpumem",
    },
];

/// A directory that may belong to another user.
struct Directory {
    owner: Owner,
    /// Its name is not that of its owner's directory. There may be many such directories, so they come last.
    is_odd: bool,
    path: PathBuf,
}

/// The channel files of one owner.
#[derive(Default)]
struct Hand {
    found: Vec<Found>,
    /// The directory in which files are left out, and how many are.
    left_out: Option<(PathBuf, usize)>,
}

#[derive(Default)]
struct Search {
    scan: Scan,
    dirs: HashSet<(u64, u64)>,
    files: HashSet<(u64, u64)>,
    own: Hand,
    hands: BTreeMap<Owner, Hand>,
}

impl Search {
    fn look_into_own(&mut self, dir: &Path) {
        match directory::open_directory(dir) {
            Ok(handle) => {
                let mut hand = std::mem::take(&mut self.own);
                self.look_into(dir, &handle, Access::Own, &mut hand);
                self.own = hand;
            }
            Err(error) if is_want(&error) => self.scan.incomplete = true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.refuse(dir, error.to_string()),
        }
    }

    /// Searches a directory that may belong to another user. It is silently skipped if it is gone or this user may not
    /// read it.
    fn look_into_foreign(&mut self, dir: &Directory) {
        match directory::open_foreign(&dir.path) {
            Ok(handle) => {
                let mut hand = self.hands.remove(&dir.owner).unwrap_or_default();
                self.look_into(&dir.path, &handle, Access::Foreign, &mut hand);
                self.hands.insert(dir.owner, hand);
            }
            Err(error) if is_want(&error) => self.scan.incomplete = true,
            Err(error) if error.kind() == io::ErrorKind::Unsupported => self.refuse(&dir.path, error.to_string()),
            Err(_) => {}
        }
    }

    /// Adds the channels of one directory, which must be private to its owner, to that owner's files.
    fn look_into(&mut self, dir: &Path, handle: &File, access: Access, hand: &mut Hand) {
        let metadata = match handle.metadata() {
            Ok(metadata) => metadata,
            Err(error) => return self.refuse(dir, error.to_string()),
        };
        if !self.dirs.insert((metadata.dev(), metadata.ino())) {
            return;
        }
        let us = rustix::process::geteuid();
        let owner = if us.is_root() { metadata.uid() } else { us.as_raw() };
        if let Err(why) = directory::check_private(&metadata, owner) {
            return self.refuse(dir, why.to_owned());
        }
        let names = match sweep::list(handle, sweep::is_channel) {
            Ok(listing) => self.names(dir, listing),
            Err(error) if is_want(&error) => return self.scan.incomplete = true,
            Err(error) => return self.refuse(dir, error.to_string()),
        };
        let mut files: Vec<_> = names
            .into_iter()
            .filter_map(|name| Some((statat(handle, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?, name)))
            // A mount over a file belongs to another file system.
            .filter(|(about, _)| FileType::from_raw_mode(about.st_mode).is_file() && about.st_dev == metadata.dev())
            .filter(|(about, _)| self.files.insert((about.st_dev, about.st_ino)))
            .collect();
        // If there are too many, the files with the most memory come first: hiding a channel behind others then costs
        // as much memory for each.
        files.sort_by_cached_key(|(about, name)| {
            let worth = (
                sweep::is_of_publisher(name),
                about.st_blocks,
                about.st_mtime,
                about.st_mtime_nsec,
            );
            std::cmp::Reverse(worth)
        });
        let room = FOUND_MAX - hand.found.len();
        if let Some(surplus) = files.len().checked_sub(room).filter(|&surplus| surplus > 0) {
            let left_out = hand.left_out.get_or_insert((dir.to_owned(), 0));
            left_out.1 += surplus;
        }
        hand.found
            .extend(files.into_iter().take(room).map(|(about, name)| Found {
                path: dir.join(name),
                key: (about.st_dev, about.st_ino),
                access,
            }));
    }

    /// Adds the directories below `parent` that may have channels for this user.
    fn list_directories(
        &mut self,
        path: &Path,
        parent: &Parent,
        namespace: usize,
        own: &[PathBuf],
        dirs: &mut Vec<Directory>,
    ) {
        let us = rustix::process::geteuid();
        let listed = match directory::open_parent(path).and_then(|handle| sweep::list(&handle, parent.is_wanted)) {
            Ok(listing) => self.names(path, listing),
            Err(error) => {
                self.scan.incomplete |= is_want(&error);
                return;
            }
        };
        for name in listed {
            let mut dir = path.join(&name);
            if !parent.inner.is_empty() {
                dir.push(parent.inner);
            }
            let about = fs::symlink_metadata(&dir).ok().filter(fs::Metadata::is_dir);
            let about = about.filter(|about| us.is_root() || about.uid() == us.as_raw());
            let Some(uid) = about.map(|about| about.uid()).filter(|_| !own.contains(&dir)) else {
                continue;
            };
            let number = name.as_bytes().strip_prefix(b"gpumem-").unwrap_or(name.as_bytes());
            dirs.push(Directory {
                owner: (uid, if uid == 0 { namespace } else { 0 }),
                // Inside a user namespace the same user has another uid.
                is_odd: number != uid.to_string().as_bytes()
                    && (namespace == 0 || !number.iter().all(u8::is_ascii_digit)),
                path: dir,
            });
        }
    }

    /// Drops the directories beyond the bounds, and reports them.
    fn within_bounds(&mut self, mut dirs: Vec<Directory>) -> Vec<Directory> {
        dirs.sort_by(|one, other| (one.owner, one.is_odd, &one.path).cmp(&(other.owner, other.is_odd, &other.path)));
        let (mut kept, mut dropped) = (Vec::new(), Vec::new());
        for dir in dirs {
            let of_owner = |kept: &[Directory]| kept.iter().rev().take_while(|k| k.owner == dir.owner).count();
            match kept.len() < DIRECTORIES_MAX && of_owner(&kept) < OWNER_DIRECTORIES_MAX {
                true => kept.push(dir),
                false => dropped.push(dir),
            }
        }
        if let [first, ..] = dropped.as_slice() {
            let reason = format!(
                "{} channel directories, this one first, are left out: at most {OWNER_DIRECTORIES_MAX} of a user are searched, \
                 and {DIRECTORIES_MAX} of all users",
                dropped.len()
            );
            self.overflow(&first.path, reason);
        }
        kept
    }

    /// Shares [`FOUND_MAX`] places out, one to each owner in turn, this user first.
    fn deal(mut self) -> Scan {
        let hands = std::iter::once(self.own).chain(self.hands.into_values());
        let mut hands: Vec<_> = hands
            .map(|hand| (hand.found.into_iter().peekable(), hand.left_out))
            .collect();
        let found = &mut self.scan.found;
        while found.len() < FOUND_MAX && hands.iter().any(|(left, _)| left.len() > 0) {
            let places = FOUND_MAX - found.len();
            found.extend(hands.iter_mut().filter_map(|(left, _)| left.next()).take(places));
        }
        for (mut left, left_out) in hands {
            let next = left.peek().and_then(|found| found.path.parent()).map(Path::to_owned);
            let more = left.len();
            let Some((dir, files)) = left_out.or(next.map(|dir| (dir, 0))) else {
                continue;
            };
            self.scan.problems.push(Problem {
                path: dir,
                kind: ProblemKind::Overflow,
                reason: format!(
                    "{} channel files of its owner are left out: at most {FOUND_MAX} are read in all",
                    files + more
                ),
            });
        }
        self.scan
    }

    fn names(&mut self, dir: &Path, listing: sweep::Listing) -> Vec<OsString> {
        if listing.in_part {
            self.overflow(
                dir,
                format!(
                    "it has more than {} entries, the rest is not looked at",
                    sweep::ENTRIES_MAX
                ),
            );
        }
        listing.names
    }

    fn refuse(&mut self, dir: &Path, reason: String) {
        self.scan.problems.push(Problem {
            path: dir.to_owned(),
            kind: ProblemKind::Refused,
            reason,
        });
    }

    fn overflow(&mut self, dir: &Path, reason: String) {
        self.scan.problems.push(Problem {
            path: dir.to_owned(),
            kind: ProblemKind::Overflow,
            reason,
        });
    }
}

/// Whether the error means that this process ran out of file descriptors or memory.
fn is_want(error: &io::Error) -> bool {
    let error = Errno::from_io_error(error);
    matches!(error, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

#[cfg(test)]
mod tests;
