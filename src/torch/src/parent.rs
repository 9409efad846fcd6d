//! The program whose memory is published, and whether it is still there.

use std::io::stdin;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::sockopt::{socket_domain, socket_peercred};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open, test_kill_process};

/// The program at the other end of stdin.
#[derive(Debug)]
pub(crate) struct Parent {
    pid: Option<Pid>,
    /// Never another process. `None` on kernels without pidfds (before 5.3).
    fd: Option<OwnedFd>,
}

impl Parent {
    /// Returns the process that made the socket that stdin is, or the one that started this one if stdin is no socket.
    ///
    /// They differ: a publisher is started by a process that ends at once, so that the program has no child that it knows nothing of.
    pub(crate) fn of_this_process() -> Parent {
        // Other sockets have no such process.
        let is_local = socket_domain(stdin()) == Ok(AddressFamily::UNIX);
        let pid = match is_local.then(|| socket_peercred(stdin())) {
            Some(Ok(credentials)) => Some(credentials.pid),
            _ => getppid(),
        };
        let fd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Parent { pid, fd }
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid.and_then(|pid| u32::try_from(pid.as_raw_pid()).ok())
    }

    /// Checks whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        let Some(fd) = &self.fd else {
            return self.pid.is_none_or(|pid| test_kill_process(pid) == Err(Errno::SRCH));
        };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }
}
