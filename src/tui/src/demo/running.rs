//! The running children, for the panic hook: the main loop cannot end them after a panic.
//!
//! They are identified by pidfd, which never refers to another process.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};

static RUNNING: Mutex<Vec<(u32, OwnedFd)>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Vec<(u32, OwnedFd)>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a child that has not been waited for. Without pidfds (Linux before 5.3) it is not added; it still ends when its stdin is
/// closed.
pub(super) fn add(pid: u32) {
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(Ok(fd)) = id.map(|id| pidfd_open(id, PidfdFlags::empty())) {
        lock().push((pid, fd));
    }
}

/// Removes a child that was waited for.
pub(super) fn forget(pid: u32) {
    lock().retain(|known| known.0 != pid);
}

/// Resumes a child that was stopped.
pub(super) fn resume(pid: u32) {
    for (_, fd) in lock().iter().filter(|known| known.0 == pid) {
        // This fails if it has just ended, which is fine.
        let _ = pidfd_send_signal(fd, Signal::CONT);
    }
}

/// Kills every child and waits for each, so that no zombie is left. Takes no longer than `limit`, since a process can be stuck in
/// the driver.
pub(super) fn kill_all(limit: Duration) {
    // The panic may have occurred while the lock was held.
    let Ok(mut running) = RUNNING.try_lock() else { return };
    let deadline = Instant::now() + limit;
    for (_, fd) in running.iter() {
        let _ = pidfd_send_signal(fd, Signal::KILL);
    }
    for (_, fd) in running.drain(..) {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout));
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let _ = waitid(WaitId::PidFd(std::os::fd::AsFd::as_fd(&fd)), options);
    }
}
