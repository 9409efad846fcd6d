//! The process that started this one, and whether it is still there.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};

/// The process that started this one.
#[derive(Debug)]
pub(crate) struct Parent {
    pid: Option<Pid>,
    /// Never another process. `None` on kernels without pidfds (before 5.3).
    fd: Option<OwnedFd>,
}

impl Parent {
    /// Returns the process that started this one.
    pub(crate) fn of_this_process() -> Parent {
        let pid = getppid();
        let fd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // It may have ended before it was opened; then init is the parent now.
        let fd = fd.filter(|_| getppid() == pid);
        Parent { pid, fd }
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid.and_then(|pid| u32::try_from(pid.as_raw_pid()).ok())
    }

    /// Checks whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        let Some(fd) = &self.fd else {
            return getppid() != self.pid;
        };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }
}
