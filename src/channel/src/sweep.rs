//! What dead publishers leave behind: kept for a while as their black boxes, then removed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir};

use crate::reader::Reader;
use crate::{life, place};

/// How long a black box is kept.
const KEEP_FOR: Duration = Duration::from_secs(24 * 3600);
/// How many of the newest black boxes are kept.
const KEEP_NEWEST: usize = 16;
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

/// Removes black boxes that are too old or too many, and abandoned temporary files. Never touches a file whose lock is held.
/// Failures are left for the next sweep.
pub(crate) fn sweep(dir: &File) {
    let now = SystemTime::now();
    let mut dead = Vec::new();
    for name in names(dir) {
        let temporary = name.as_bytes().starts_with(place::TEMPORARY.as_bytes());
        if !temporary && !is_channel(&name) {
            continue;
        }
        let Ok(file) = place::open_in(dir, &name) else { continue };
        // A clock that jumped back makes files of the future: they are new.
        let age_of = |last| now.duration_since(last).unwrap_or_default();
        let made = file.metadata().and_then(|metadata| metadata.modified());
        // To ask for the lock of one that is being made could keep its publisher from it.
        if temporary && made.is_ok_and(|made| age_of(made) <= ABANDONED) {
            continue;
        }
        if !matches!(life::is_held(&file), Ok(false)) {
            continue;
        }
        let Ok(last) = last_sign(file) else { continue };
        match temporary {
            true => remove(dir, &name),
            false => dead.push((age_of(last), name)),
        }
    }
    dead.sort();
    for (i, (age, name)) in dead.iter().enumerate() {
        if i >= KEEP_NEWEST || *age > KEEP_FOR {
            remove(dir, name);
        }
    }
}

/// When a dead publisher was last heard of: its last event, or else when its file was made. (Stores into a mapping do not move a
/// file's modification time, so a long run's file is old by that measure the moment it dies.)
fn last_sign(file: File) -> std::io::Result<SystemTime> {
    let modified = file.metadata()?.modified()?;
    let last = Reader::of_file(file)
        .ok()
        .and_then(|mut reader| reader.last_event_realtime());
    Ok(last.map_or(modified, |last| {
        modified.max(SystemTime::UNIX_EPOCH + Duration::from_nanos(last))
    }))
}

fn remove(dir: &File, name: &OsStr) {
    let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
}
