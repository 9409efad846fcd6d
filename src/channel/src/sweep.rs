//! What dead publishers leave behind: kept for a while as their black boxes, then removed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir};

use crate::error::OpenError;
use crate::reader::Reader;
use crate::{life, place};

/// How long a black box is kept.
const KEEP_FOR: Duration = Duration::from_secs(24 * 3600);
/// How many of the newest black boxes are kept.
const KEEP_NEWEST: usize = 16;
/// All together take at most this part of their file system, which others need, too: `/dev/shm` has 64 MiB in a container.
const KEEP_WITHIN: u64 = 4;
/// A file under construction for longer than this, with its lock free, was abandoned.
const ABANDONED: Duration = Duration::from_secs(60);
/// Entries of one directory that are looked at.
const ENTRIES_MAX: usize = 4096;

/// Names of the regular entries of a directory, at most [`ENTRIES_MAX`].
pub(crate) fn names(dir: &File) -> Vec<OsString> {
    let Ok(entries) = Dir::read_from(dir.as_fd()) else {
        return Vec::new();
    };
    entries
        .take(ENTRIES_MAX)
        .filter_map(Result::ok)
        .map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned())
        .collect()
}

/// Whether `name` is that of a published channel.
pub(crate) fn is_channel(name: &OsStr) -> bool {
    name.as_bytes().ends_with(place::SUFFIX.as_bytes()) && !name.as_bytes().starts_with(b".")
}

/// What a publisher of this user's left that is gone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BlackBox {
    /// When it was last heard of.
    last: SystemTime,
    name: OsString,
    /// What its file takes.
    bytes: u64,
}

/// Removes black boxes that are too old, too many or too large, and abandoned temporary files. Never touches a file whose lock is held,
/// another user's, or what is no channel. Failures are left for the next sweep.
pub(crate) fn sweep(dir: &File) {
    for name in names(dir) {
        if is_abandoned(dir, &name) {
            remove(dir, &name);
        }
    }
    for black_box in surplus(black_boxes(dir), SystemTime::now(), room(dir)) {
        remove(dir, &black_box.name);
    }
}

/// Removes the oldest black box that can be removed. Returns whether there was one.
pub(crate) fn remove_oldest(dir: &File) -> bool {
    let newest_first = black_boxes(dir);
    newest_first.iter().rev().any(|oldest| remove(dir, &oldest.name))
}

/// Bytes that programs of this user left in a directory that have ended. A publisher that finds no room there takes it from these.
pub fn left_behind(dir: &Path) -> u64 {
    let Ok(dir) = place::open_directory(dir) else { return 0 };
    black_boxes(&dir).iter().map(|black_box| black_box.bytes).sum()
}

/// All that are there, the newest first.
fn black_boxes(dir: &File) -> Vec<BlackBox> {
    let names = names(dir).into_iter().filter(|name| is_channel(name));
    let mut found: Vec<BlackBox> = names.filter_map(|name| black_box(dir, name)).collect();
    found.sort_by(|one, other| other.cmp(one));
    found
}

fn black_box(dir: &File, name: OsString) -> Option<BlackBox> {
    let file = open_dead(dir, &name)?;
    let about = file.metadata().ok()?;
    let reader = match Reader::of_file(file) {
        Ok(reader) => Some(reader),
        // One all the same.
        Err(OpenError::TooNew { .. } | OpenError::Malformed(_)) => None,
        Err(_) => return None,
    };
    // Stores into a mapping do not move a file's modification time: a long run's file is old by that measure the moment it dies.
    let event = reader.and_then(|mut reader| reader.last_event_realtime());
    let event = event.map(|event| SystemTime::UNIX_EPOCH + Duration::from_nanos(event));
    let last = about.modified().ok().max(event)?;
    Some(BlackBox {
        last,
        name,
        bytes: about.blocks() * 512,
    })
}

/// How old something is. A clock that jumped back makes files of the future: they are new.
fn age(made: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(made).unwrap_or_default()
}

/// What all black boxes of a directory may take. A file system without a limit sets none.
fn room(dir: &File) -> u64 {
    match rustix::fs::fstatvfs(dir) {
        Ok(about) if about.f_blocks > 0 => about.f_blocks.saturating_mul(about.f_frsize) / KEEP_WITHIN,
        _ => u64::MAX,
    }
}

/// Those of black boxes that go where all may take `room` bytes. One that is too large for what newer ones leave does not cost older ones
/// their place.
fn surplus(newest_first: Vec<BlackBox>, now: SystemTime, room: u64) -> impl Iterator<Item = BlackBox> {
    let (mut kept, mut left) = (0, room);
    newest_first.into_iter().filter(move |black_box| {
        let stays = kept < KEEP_NEWEST && age(black_box.last, now) <= KEEP_FOR && black_box.bytes <= left;
        if stays {
            kept += 1;
            left -= black_box.bytes;
        }
        !stays
    })
}

/// Whether a file was begun and never published.
fn is_abandoned(dir: &File, name: &OsStr) -> bool {
    let text = name.as_bytes();
    if !text.starts_with(place::TEMPORARY.as_bytes()) || !text.ends_with(place::SUFFIX.as_bytes()) {
        return false;
    }
    let made = place::open_in(dir, name).and_then(|file| file.metadata()?.modified());
    // To ask for the lock of one that is being made could keep its publisher from it.
    made.is_ok_and(|made| age(made, SystemTime::now()) > ABANDONED) && open_dead(dir, name).is_some()
}

/// Opens a file of this user's whose lock nobody holds.
fn open_dead(dir: &File, name: &OsStr) -> Option<File> {
    let file = place::open_in(dir, name).ok()?;
    let about = file.metadata().ok()?;
    let ours = about.is_file() && about.uid() == rustix::process::geteuid().as_raw();
    (ours && matches!(life::is_held(&file), Ok(false))).then_some(file)
}

/// Removes what was found to be dead, if it still is: programs that start at the same time remove the same files, and a name that is free
/// may be taken by a publisher, if only by one of the same process id and start time. Returns whether it went.
fn remove(dir: &File, name: &OsStr) -> bool {
    open_dead(dir, name).is_some() && rustix::fs::unlinkat(dir, name, AtFlags::empty()).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]
    use super::*;

    /// Ages in hours and MiB, the newest first, in this many MiB: the places of those that go.
    fn gone(black_boxes: &[(u64, u64)], room: u64) -> Vec<usize> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30);
        let made = |(place, (hours, mib)): (usize, &(u64, u64))| BlackBox {
            last: now - Duration::from_secs(hours * 3600),
            name: place.to_string().into(),
            bytes: mib << 20,
        };
        let newest_first = black_boxes.iter().enumerate().map(made).collect();
        let gone = surplus(newest_first, now, room << 20);
        gone.map(|black_box| black_box.name.to_str().unwrap().parse().unwrap())
            .collect()
    }

    #[test]
    fn black_boxes_go_that_are_too_old_too_many_or_too_large() {
        assert_eq!(gone(&[], 0), []);
        assert_eq!(gone(&[(0, 10), (24, 10), (25, 10)], 100), [2]);
        assert_eq!(gone(&[(1, 10); 18], 1000), [16, 17]);
        // A quarter of 64 MiB.
        assert_eq!(gone(&[(1, 10), (2, 10), (3, 10)], 16), [1, 2]);
        assert_eq!(gone(&[(1, 16)], 16), [], "the newest stays if it fits");
        assert_eq!(gone(&[(1, 17), (2, 10), (3, 7), (4, 6)], 16), [0, 2]);
        // What goes takes no place of those that stay.
        let mut many = [(1, 1); 18];
        many[3] = (1, 200);
        assert_eq!(gone(&many, 100), [3, 17]);
    }
}
