//! The trackers of this process.
//!
//! A tracker lives as long as its descriptor of the tools device is open, also as a copy in another process. This library does not see
//! when descriptors are closed. Instead it takes a lock that belongs to the open file, which the kernel releases with the last copy.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::TOOLS;
use crate::memory::Alias;

/// A tracker. Counters and events are enabled after it was made.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// The byte of the tools device that is locked through its descriptor.
    lock: i64,
    pub(crate) space: u32,
    pub(crate) control: Alias,
    pub(crate) queue: Option<Queue>,
    /// Mask of the enabled counters or types of events.
    pub(crate) enabled: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) memory: Alias,
    pub(crate) entries: u32,
}

static TRACKERS: Mutex<BTreeMap<RawFd, Arc<Tracker>>> = Mutex::new(BTreeMap::new());
static MADE: AtomicU64 = AtomicU64::new(0);

fn trackers() -> MutexGuard<'static, BTreeMap<RawFd, Arc<Tracker>>> {
    TRACKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tracker {
    /// Makes a tracker from a descriptor of the tools device.
    pub(crate) fn make(fd: RawFd, space: u32, control: Alias, queue: Option<Queue>) -> io::Result<()> {
        // Unique among the machine's living processes.
        let lock = i64::from(std::process::id()) << 32 | MADE.fetch_add(1, Ordering::Relaxed) as i64;
        locks(fd, libc::F_OFD_SETLK, lock, 1)?;
        let tracker = Tracker {
            lock,
            space,
            control,
            queue,
            enabled: AtomicU64::new(0),
        };
        trackers().insert(fd, Arc::new(tracker));
        Ok(())
    }

    /// Returns the tracker of a descriptor.
    pub(crate) fn of(root: &Path, fd: RawFd) -> Option<Arc<Tracker>> {
        let tracker = trackers().get(&fd).cloned()?;
        if tracker.is_open(root) {
            return Some(tracker);
        }
        trackers().remove(&fd);
        None
    }

    /// Returns whether its descriptor is still open.
    pub(crate) fn is_open(&self, root: &Path) -> bool {
        File::open(root.join(TOOLS)).is_ok_and(|file| {
            locks(file.as_raw_fd(), libc::F_OFD_GETLK, self.lock, 1)
                .ok()
                .flatten()
                .is_some()
        })
    }
}

/// Counts the open trackers of all processes.
pub(crate) fn count_open(root: &Path) -> io::Result<usize> {
    let file = File::open(root.join(TOOLS))?;
    let (mut from, mut count) = (0, 0);
    while let Some(lock) = locks(file.as_raw_fd(), libc::F_OFD_GETLK, from, 0)? {
        // The kernel returns any lock in the range, and only merges adjacent locks of the same open file.
        (from, count) = (lock + 1, count + 1);
    }
    Ok(count)
}

/// Sets a lock on a range, or returns the first byte of a lock that another open file has in it. A length of 0 means up to the end.
fn locks(fd: RawFd, command: i32, start: i64, len: i64) -> io::Result<Option<i64>> {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start,
        l_len: len,
        l_pid: 0,
    };
    // SAFETY: the argument is what both commands take, and lives until the call returns.
    match unsafe { libc::fcntl(fd, command, &raw mut lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok((i32::from(lock.l_type) != libc::F_UNLCK).then_some(lock.l_start)),
    }
}
