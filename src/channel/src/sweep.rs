//! The files of dead publishers: kept for a while as black boxes, then removed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir};

use crate::error::OpenError;
use crate::found::Access;
use crate::reader::Reader;
use crate::snapshot::Snapshot;
use crate::{directory, life};

/// How long a black box is kept.
const KEEP_FOR: Duration = Duration::from_secs(24 * 3600);
/// How many of the newest black boxes are kept.
const KEEP_NEWEST: usize = 16;
/// How many of these are reserved for the newest programs that ran out of memory, which users are most likely to ask
/// about, however many programs ended since.
const KEEP_OUT_OF_MEMORY: usize = 4;
/// All black boxes together take at most one part in this many of their file system, which other programs need too: a
/// container's `/dev/shm` has 64 MiB.
const KEEP_WITHIN: u64 = 4;
/// A file that has been under construction for longer than this and is not locked was abandoned.
const ABANDONED: Duration = Duration::from_secs(60);
/// Most entries of one directory that are listed. Each costs its owner a few hundred bytes of kernel memory.
pub(crate) const ENTRIES_MAX: usize = 1 << 18;

/// The names listed in a directory.
pub(crate) struct Listing {
    /// The wanted names.
    pub(crate) names: Vec<OsString>,
    /// Whether the directory has more than [`ENTRIES_MAX`] entries, and the rest was ignored.
    pub(crate) in_part: bool,
}

/// Lists the names in a directory that are `wanted`. Other names do not displace wanted ones.
pub(crate) fn list(dir: &File, wanted: impl Fn(&OsStr) -> bool) -> std::io::Result<Listing> {
    list_of(dir, wanted, ENTRIES_MAX)
}

fn list_of(dir: &File, wanted: impl Fn(&OsStr) -> bool, most: usize) -> std::io::Result<Listing> {
    let (mut names, mut entries) = (Vec::new(), 0);
    for entry in Dir::read_from(dir.as_fd())? {
        if entries == most {
            return Ok(Listing { names, in_part: true });
        }
        entries += 1;
        // After an error there is nothing more to read.
        let Ok(entry) = entry else { break };
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if wanted(name) {
            names.push(name.to_owned());
        }
    }
    Ok(Listing { names, in_part: false })
}

/// Lists the wanted names, or none if the directory cannot be read.
fn names(dir: &File, wanted: impl Fn(&OsStr) -> bool) -> Vec<OsString> {
    list(dir, wanted).map_or_else(|_| Vec::new(), |listing| listing.names)
}

/// Whether `name` is that of a published channel.
pub(crate) fn is_channel(name: &OsStr) -> bool {
    name.as_bytes().ends_with(directory::SUFFIX.as_bytes()) && !name.as_bytes().starts_with(b".")
}

/// Whether `name` has the form that publishers use: three numbers.
pub(crate) fn is_of_publisher(name: &OsStr) -> bool {
    let stem = name.as_bytes().strip_suffix(directory::SUFFIX.as_bytes());
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let parts = stem.map(|stem| stem.split(|&byte| byte == b'-'));
    parts.is_some_and(|parts| parts.clone().count() == 3 && parts.clone().all(is_number))
}

/// Whether `name` is that of a channel under construction.
fn is_temporary(name: &OsStr) -> bool {
    name.as_bytes().starts_with(directory::TEMPORARY.as_bytes())
        && name.as_bytes().ends_with(directory::SUFFIX.as_bytes())
}

/// The file of a dead publisher of this user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BlackBox {
    /// When its publisher was last active.
    last: SystemTime,
    name: OsString,
    /// Size of its file in bytes.
    bytes: u64,
    /// Whether one of its requests failed.
    out_of_memory: bool,
}

/// Removes black boxes that are too old, too many or too large, and abandoned temporary files. Never touches a file
/// that is locked, belongs to another user, or is not a channel. Failures are left for the next sweep.
pub(crate) fn sweep(dir: &File) {
    for name in names(dir, is_temporary) {
        if is_abandoned(dir, &name) {
            remove(dir, &name);
        }
    }
    for black_box in surplus(black_boxes(dir), SystemTime::now(), room(dir)) {
        remove(dir, &black_box.name);
    }
}

/// Removes the least valuable black box that can be removed. Returns whether there was one.
pub(crate) fn remove_least_valuable(dir: &File) -> bool {
    black_boxes(dir).iter().rev().any(|least| remove(dir, &least.name))
}

/// Returns the bytes of this user's black boxes in a directory. A publisher that finds no space there removes them.
pub fn left_behind(dir: &Path) -> u64 {
    let Ok(dir) = directory::open_directory(dir) else {
        return 0;
    };
    black_boxes(&dir).iter().map(|black_box| black_box.bytes).sum()
}

/// Returns all black boxes, most valuable first.
fn black_boxes(dir: &File) -> Vec<BlackBox> {
    let names = names(dir, is_channel).into_iter();
    by_value(names.filter_map(|name| black_box(dir, name)).collect())
}

/// Sorts black boxes by value: the newest one, then the newest that ran out of memory, then the others by age.
fn by_value(mut found: Vec<BlackBox>) -> Vec<BlackBox> {
    found.sort_by(|one, other| other.cmp(one));
    let others = found.split_off(found.len().min(1));
    let mut kept = 0;
    let (failed, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|black_box| {
        let kept_for_it = black_box.out_of_memory && kept < KEEP_OUT_OF_MEMORY;
        kept += usize::from(kept_for_it);
        kept_for_it
    });
    [found, failed, others].concat()
}

fn black_box(dir: &File, name: OsString) -> Option<BlackBox> {
    let file = open_dead(dir, &name)?;
    let about = file.metadata().ok()?;
    let mut reader = match Reader::of_file(file, Access::Own) {
        Ok(reader) => Some(reader),
        // It is a black box all the same.
        Err(OpenError::TooNew { .. } | OpenError::Malformed(_)) => None,
        Err(_) => return None,
    };
    // Stores into a mapping do not change a file's modification time: by that time, the file of a long run would be old
    // at the moment the run dies.
    let event = reader.as_mut().and_then(Reader::last_event_realtime);
    let event = event.map(|event| SystemTime::UNIX_EPOCH + Duration::from_nanos(event));
    let last = about.modified().ok().max(event)?;
    let figures = reader.as_mut().and_then(|reader| reader.glance().ok());
    Some(BlackBox {
        last,
        name,
        bytes: about.blocks() * 512,
        out_of_memory: figures.is_some_and(|figures| ran_out_of_memory(&figures)),
    })
}

fn ran_out_of_memory(figures: &Snapshot) -> bool {
    let stats = figures.devices.iter().filter_map(|map| map.stats.as_ref());
    stats.map(|stats| stats.num_ooms).any(|failed| failed > 0)
}

/// Returns the age of something. If the clock jumped back, times in the future count as new.
fn age(made: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(made).unwrap_or_default()
}

/// Returns how many bytes all black boxes of a directory may take. There is no limit on a file system without one.
fn room(dir: &File) -> u64 {
    match directory::total(dir) {
        0 => u64::MAX,
        total => total / KEEP_WITHIN,
    }
}

/// Selects the black boxes to remove if all may take `room` bytes. One that does not fit is removed without displacing
/// smaller ones after it.
fn surplus(by_value: Vec<BlackBox>, now: SystemTime, room: u64) -> impl Iterator<Item = BlackBox> {
    let (mut kept, mut left) = (0, room);
    by_value.into_iter().filter(move |black_box| {
        let stays = kept < KEEP_NEWEST && age(black_box.last, now) <= KEEP_FOR && black_box.bytes <= left;
        if stays {
            kept += 1;
            left -= black_box.bytes;
        }
        !stays
    })
}

/// Whether a file was created and never published.
fn is_abandoned(dir: &File, name: &OsStr) -> bool {
    let made = directory::open_in(dir, name).and_then(|file| file.metadata()?.modified());
    // Age is checked first: taking the lock of a file under construction could keep its publisher from getting it.
    made.is_ok_and(|made| age(made, SystemTime::now()) > ABANDONED) && open_dead(dir, name).is_some()
}

/// Opens a file of this user if it is not locked.
fn open_dead(dir: &File, name: &OsStr) -> Option<File> {
    let file = directory::open_in(dir, name).ok()?;
    let about = file.metadata().ok()?;
    let ours = about.is_file() && about.uid() == rustix::process::geteuid().as_raw();
    (ours && matches!(life::is_held(&file), Ok(false))).then_some(file)
}

/// Removes a dead file, if it is still dead: programs that start at the same time remove the same files, and a
/// publisher with the same process id and start time may reuse a free name. Returns whether it was removed.
fn remove(dir: &File, name: &OsStr) -> bool {
    open_dead(dir, name).is_some() && rustix::fs::unlinkat(dir, name, AtFlags::empty()).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]
    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    #[test]
    fn listing_of_too_many_entries_is_marked_as_partial() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c.gpumem"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let listed = |most| {
            let listing = list_of(&File::open(dir.path()).unwrap(), |_| true, most).unwrap();
            (listing.names.len(), listing.in_part)
        };
        // The directory itself and its parent are entries too.
        assert_eq!(listed(5), (5, false));
        assert_eq!(listed(4), (4, true));
    }

    #[test]
    fn publishers_names_are_three_numbers() {
        for (name, is) in [
            ("1-22-0.gpumem", true),
            ("1-22.gpumem", false),
            ("1-22-0-0.gpumem", false),
            ("1-22-0-a.gpumem", false),
            ("a-22-0.gpumem", false),
            ("--.gpumem", false),
            ("1-22-0", false),
        ] {
            assert_eq!(is_of_publisher(OsStr::new(name)), is, "{name}");
        }
    }

    fn black_box(index: usize, hours: u64, mib: u64) -> BlackBox {
        BlackBox {
            last: NOW - Duration::from_secs(hours * 3600),
            name: index.to_string().into(),
            bytes: mib << 20,
            out_of_memory: false,
        }
    }

    fn index(black_box: BlackBox) -> usize {
        black_box.name.to_str().unwrap().parse().unwrap()
    }

    /// Takes black boxes as (age in hours, MiB), the newest first, and the limit in MiB. Returns the indices of those
    /// to remove.
    fn gone(black_boxes: &[(u64, u64)], room: u64) -> Vec<usize> {
        let made = |(index, &(hours, mib)): (usize, &(u64, u64))| black_box(index, hours, mib);
        let newest_first = black_boxes.iter().enumerate().map(made).collect();
        surplus(newest_first, NOW, room << 20).map(index).collect()
    }

    #[test]
    fn old_surplus_and_large_black_boxes_are_removed() {
        assert_eq!(gone(&[], 0), []);
        assert_eq!(gone(&[(0, 10), (24, 10), (25, 10)], 100), [2]);
        assert_eq!(gone(&[(1, 10); 18], 1000), [16, 17]);
        // A quarter of 64 MiB.
        assert_eq!(gone(&[(1, 10), (2, 10), (3, 10)], 16), [1, 2]);
        assert_eq!(gone(&[(1, 16)], 16), [], "the newest stays if it fits");
        assert_eq!(gone(&[(1, 17), (2, 10), (3, 7), (4, 6)], 16), [0, 2]);
        // Removed ones do not displace others.
        let mut many = [(1, 1); 18];
        many[3] = (1, 200);
        assert_eq!(gone(&many, 100), [3, 17]);
    }

    #[test]
    fn newest_out_of_memory_black_boxes_stay_longest() {
        let found = (0..24).map(|index| BlackBox {
            out_of_memory: [9, 17, 20, 21, 22].contains(&index),
            ..black_box(index, index as u64, 1)
        });
        let by_value = by_value(found.rev().collect());
        let indices: Vec<usize> = by_value.iter().cloned().map(index).collect();
        assert_eq!(indices[..6], [0, 9, 17, 20, 21, 1]);
        assert_eq!(indices[22..], [22, 23], "no more than some of them");
        let gone: Vec<usize> = surplus(by_value, NOW, u64::MAX).map(index).collect();
        assert_eq!(gone, [13, 14, 15, 16, 18, 19, 22, 23], "sixteen stay in all");
        let all_failed = (0..6).map(|index| BlackBox {
            out_of_memory: index > 0,
            ..black_box(index, index as u64, 4)
        });
        let gone = surplus(super::by_value(all_failed.collect()), NOW, 16 << 20).map(index);
        assert_eq!(gone.collect::<Vec<_>>(), [4, 5], "they do not displace the newest");
    }
}
