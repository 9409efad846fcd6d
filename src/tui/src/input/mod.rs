//! Reads keys and the mouse from the terminal.
//!
//! This replaces crossterm's event reader, which spins forever on a terminal that is gone, as after a dropped connection
//! ([crossterm#793](https://github.com/crossterm-rs/crossterm/issues/793); its
//! [PR 1067](https://github.com/crossterm-rs/crossterm/pull/1067) is open), and takes an escape sequence that arrives in two parts
//! for keys ([crossterm#993](https://github.com/crossterm-rs/crossterm/issues/993)).

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

/// The input of the terminal.
pub(crate) struct Input {
    tty: AsyncFd<BorrowedFd<'static>>,
    parser: Parser,
    /// When an incomplete sequence is given up. Kept here because callers cancel [`Input::next`] and call it again.
    give_up_at: Option<Instant>,
}

impl Input {
    /// Reads keys from `tty`. Needs a tokio runtime.
    ///
    /// # Errors
    /// When it cannot be polled.
    pub(crate) fn new(tty: BorrowedFd<'static>) -> io::Result<Input> {
        Ok(Input {
            tty: watch(tty, Interest::READABLE)?,
            parser: Parser::default(),
            give_up_at: None,
        })
    }

    /// Waits for events and returns at least one. `Ok(None)` if the terminal is gone. Cancelling the future loses nothing.
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
            // The terminal is in blocking mode, which is shared with other processes, so read only if there is input.
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
