//! Keys and mouse from the terminal.
//!
//! Reads the terminal itself rather than through crossterm's event reader. That reader spins for ever on a terminal that is gone, as a
//! dropped connection leaves it ([crossterm#793](https://github.com/crossterm-rs/crossterm/issues/793); its
//! [PR 1067](https://github.com/crossterm-rs/crossterm/pull/1067) is open), and takes a sequence that came in two parts for keys
//! ([crossterm#993](https://github.com/crossterm-rs/crossterm/issues/993)).

mod parse;

use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use crate::event::Event;
use crate::terminal::watch;

use parse::Parser;

/// The terminal's reading end.
pub(crate) struct Input {
    tty: AsyncFd<BorrowedFd<'static>>,
    parser: Parser,
    /// When a sequence that has begun is given up. Kept here, for callers cancel and call again all the time.
    give_up_at: Option<Instant>,
}

impl Input {
    /// Reads keys from `tty`. Needs a tokio runtime.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub(crate) fn new(tty: BorrowedFd<'static>) -> io::Result<Input> {
        Ok(Input {
            tty: watch(tty, Interest::READABLE)?,
            parser: Parser::default(),
            give_up_at: None,
        })
    }

    /// The next events, at least one. `Ok(None)` when the terminal is gone. Cancelling the future loses nothing.
    ///
    /// # Errors
    /// When waiting fails.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Vec<Event>>> {
        loop {
            let mut ready = match self.give_up_at {
                None => self.tty.readable().await?,
                Some(at) => match tokio::time::timeout_at(at, self.tty.readable()).await {
                    Ok(ready) => ready?,
                    Err(_) => {
                        self.give_up_at = None;
                        match self.parser.give_up() {
                            Some(event) => return Ok(Some(vec![event])),
                            None => continue,
                        }
                    }
                },
            };
            // The terminal is in blocking mode, which others share: read only what is known to be there.
            if !readable(self.tty.get_ref())? {
                ready.clear_ready();
                continue;
            }
            let mut bytes = [0; 1024];
            match rustix::io::read(self.tty.get_ref(), &mut bytes) {
                Ok(0) | Err(rustix::io::Errno::IO) => return Ok(None),
                Ok(n) => {
                    let events = self.parser.feed(&bytes[..n]);
                    self.give_up_at = self.parser.patience().map(|time| Instant::now() + time);
                    if !events.is_empty() {
                        return Ok(Some(events));
                    }
                }
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn readable(tty: &BorrowedFd<'_>) -> io::Result<bool> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut [PollFd::new(tty, PollFlags::IN)], Some(&now)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
