//! Lines on stderr.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::Unraised;

/// A pipe that says it has room has it for so many bytes.
const PIECE: usize = 4096;
/// For a reader that is slow. One that has stopped must not stop the program.
const PATIENCE: Duration = Duration::from_millis(100);

/// Says something to whoever reads the program's stderr, if anybody does: a line, or lines. Takes no lock: `eprintln` and `io::stderr` have one,
/// which is locked for ever in a child that was forked while somebody wrote.
pub fn say(text: &str) {
    let _undisturbed = Unraised::begin();
    let stderr = std::io::stderr();
    let until = Instant::now() + PATIENCE;
    let line = format!("{text}\n");
    let mut left = line.as_bytes();
    while !left.is_empty() {
        let patience = until.saturating_duration_since(Instant::now());
        let patience = Timespec {
            tv_sec: 0,
            tv_nsec: patience.as_nanos() as _,
        };
        let mut fds = [PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::OUT)];
        match poll(&mut fds, Some(&patience)) {
            Ok(_) if fds[0].revents().contains(PollFlags::OUT) => {}
            Err(Errno::INTR) => continue,
            _ => return,
        }
        match rustix::io::write(stderr.as_fd(), &left[..left.len().min(PIECE)]) {
            Ok(written) if written > 0 => left = &left[written..],
            // Somebody else took the room.
            Err(Errno::INTR | Errno::AGAIN) if Instant::now() < until => {}
            _ => return,
        }
    }
}
