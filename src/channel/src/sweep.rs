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
use crate::found::Access;
use crate::reader::Reader;
use crate::snapshot::Snapshot;
use crate::{life, place};

/// How long a black box is kept.
const KEEP_FOR: Duration = Duration::from_secs(24 * 3600);
/// How many of the newest black boxes are kept.
const KEEP_NEWEST: usize = 16;
/// Of those the newest programs that ran out of memory: what somebody will ask about stays, however many began and ended since.
const KEEP_OUT_OF_MEMORY: usize = 4;
/// All together take at most this part of their file system, which others need, too: `/dev/shm` has 64 MiB in a container.
const KEEP_WITHIN: u64 = 4;
/// A file under construction for longer than this, with its lock free, was abandoned.
const ABANDONED: Duration = Duration::from_secs(60);
/// Entries of one directory that are listed. Whoever makes more, each some hundred bytes of the kernel's memory, is looked at no further.
pub(crate) const ENTRIES_MAX: usize = 1 << 18;

/// Names of a directory.
pub(crate) struct Listing {
    /// Those that are wanted.
    pub(crate) names: Vec<OsString>,
    /// It has more than [`ENTRIES_MAX`] entries, and the rest was not looked at.
    pub(crate) in_part: bool,
}

/// The names in a directory that are `wanted`; what is not takes no place of what is.
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

/// The same, and none where they cannot be told.
fn names(dir: &File, wanted: impl Fn(&OsStr) -> bool) -> Vec<OsString> {
    list(dir, wanted).map_or_else(|_| Vec::new(), |listing| listing.names)
}

/// Whether `name` is that of a published channel.
pub(crate) fn is_channel(name: &OsStr) -> bool {
    name.as_bytes().ends_with(place::SUFFIX.as_bytes()) && !name.as_bytes().starts_with(b".")
}

/// Whether it is one as publishers give it: three numbers.
pub(crate) fn is_of_publisher(name: &OsStr) -> bool {
    let stem = name.as_bytes().strip_suffix(place::SUFFIX.as_bytes());
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let parts = stem.map(|stem| stem.split(|&byte| byte == b'-'));
    parts.is_some_and(|parts| parts.clone().count() == 3 && parts.clone().all(is_number))
}

/// Whether `name` is that of a channel under construction.
fn is_temporary(name: &OsStr) -> bool {
    name.as_bytes().starts_with(place::TEMPORARY.as_bytes()) && name.as_bytes().ends_with(place::SUFFIX.as_bytes())
}

/// What a publisher of this user's left that is gone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BlackBox {
    /// When it was last heard of.
    last: SystemTime,
    name: OsString,
    /// What its file takes.
    bytes: u64,
    /// Whether a request of it failed.
    out_of_memory: bool,
}

/// Removes black boxes that are too old, too many or too large, and abandoned temporary files. Never touches a file whose lock is held,
/// another user's, or what is no channel. Failures are left for the next sweep.
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

/// Removes the black box that is worth least, of those that can be removed. Returns whether there was one.
pub(crate) fn remove_least(dir: &File) -> bool {
    black_boxes(dir).iter().rev().any(|least| remove(dir, &least.name))
}

/// Bytes that programs of this user left in a directory that have ended. A publisher that finds no room there takes it from these.
pub fn left_behind(dir: &Path) -> u64 {
    let Ok(dir) = place::open_directory(dir) else { return 0 };
    black_boxes(&dir).iter().map(|black_box| black_box.bytes).sum()
}

/// All that are there, those first that stay longest.
fn black_boxes(dir: &File) -> Vec<BlackBox> {
    let names = names(dir, is_channel).into_iter();
    by_worth(names.filter_map(|name| black_box(dir, name)).collect())
}

/// The newest, then the newest that ran out of memory, and then the newest of all others.
fn by_worth(mut found: Vec<BlackBox>) -> Vec<BlackBox> {
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
        // One all the same.
        Err(OpenError::TooNew { .. } | OpenError::Malformed(_)) => None,
        Err(_) => return None,
    };
    // Stores into a mapping do not move a file's modification time: a long run's file is old by that measure the moment it dies.
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

/// How old something is. A clock that jumped back makes files of the future: they are new.
fn age(made: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(made).unwrap_or_default()
}

/// What all black boxes of a directory may take. A file system without a limit sets none.
fn room(dir: &File) -> u64 {
    match place::total(dir) {
        0 => u64::MAX,
        total => total / KEEP_WITHIN,
    }
}

/// Those of black boxes that go where all may take `room` bytes. One that is too large for what is worth more leaves does not cost others
/// their place.
fn surplus(by_worth: Vec<BlackBox>, now: SystemTime, room: u64) -> impl Iterator<Item = BlackBox> {
    let (mut kept, mut left) = (0, room);
    by_worth.into_iter().filter(move |black_box| {
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

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    #[test]
    fn a_directory_with_more_entries_than_are_listed_says_so() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c.gpumem"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let listed = |most| {
            let listing = list_of(&File::open(dir.path()).unwrap(), |_| true, most).unwrap();
            (listing.names.len(), listing.in_part)
        };
        // The directory itself and the one above are entries, too.
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

    fn black_box(place: usize, hours: u64, mib: u64) -> BlackBox {
        BlackBox {
            last: NOW - Duration::from_secs(hours * 3600),
            name: place.to_string().into(),
            bytes: mib << 20,
            out_of_memory: false,
        }
    }

    fn place(black_box: BlackBox) -> usize {
        black_box.name.to_str().unwrap().parse().unwrap()
    }

    /// Ages in hours and MiB, the newest first, in this many MiB: the places of those that go.
    fn gone(black_boxes: &[(u64, u64)], room: u64) -> Vec<usize> {
        let made = |(place, &(hours, mib)): (usize, &(u64, u64))| black_box(place, hours, mib);
        let newest_first = black_boxes.iter().enumerate().map(made).collect();
        surplus(newest_first, NOW, room << 20).map(place).collect()
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

    #[test]
    fn the_newest_that_ran_out_of_memory_stay_longest() {
        let found = (0..24).map(|place| BlackBox {
            out_of_memory: [9, 17, 20, 21, 22].contains(&place),
            ..black_box(place, place as u64, 1)
        });
        let by_worth = by_worth(found.rev().collect());
        let places: Vec<usize> = by_worth.iter().cloned().map(place).collect();
        assert_eq!(places[..6], [0, 9, 17, 20, 21, 1]);
        assert_eq!(places[22..], [22, 23], "no more than some of them");
        let gone: Vec<usize> = surplus(by_worth, NOW, u64::MAX).map(place).collect();
        assert_eq!(gone, [13, 14, 15, 16, 18, 19, 22, 23], "sixteen stay in all");
        let all_failed = (0..6).map(|place| BlackBox {
            out_of_memory: place > 0,
            ..black_box(place, place as u64, 4)
        });
        let gone = surplus(super::by_worth(all_failed.collect()), NOW, 16 << 20).map(place);
        assert_eq!(
            gone.collect::<Vec<_>>(),
            [4, 5],
            "nor do those take the place of what ended last"
        );
    }
}
