//! Writes frames to the terminal, with one write per frame that never blocks.
//!
//! A terminal behind a stalled connection stops taking bytes. A blocking write would then delay signals and samples, so the
//! terminal is opened a second time in non-blocking mode (the flag belongs to the open file description, which stdout shares with
//! the shell). While bytes are pending, no new frame is drawn; after that the latest state is drawn.

use std::cell::RefCell;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Begins and ends a synchronized update. Terminals that do not support it ignore the sequences.
const BEGIN: &[u8] = b"\x1b[?2026h";
const END: &[u8] = b"\x1b[?2026l";

/// Capacity in bytes that buffers keep for the next frame.
const KEPT_CAPACITY: usize = 8 << 10;

/// The buffer that collects a frame. The backend writes to a clone of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frame(Rc<RefCell<Vec<u8>>>);

impl Write for Frame {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The terminal's writing end.
#[derive(Debug)]
pub(crate) struct Output {
    frame: Frame,
    pending: Vec<u8>,
    tty: AsyncFd<BorrowedFd<'static>>,
}

impl Output {
    /// Creates the output of the open terminal. Needs a tokio runtime.
    ///
    /// # Errors
    /// When no terminal is open, or it cannot be polled.
    pub(crate) fn new() -> io::Result<Output> {
        let tty = super::watch(super::tty()?.screen.as_fd(), Interest::WRITABLE)?;
        Ok(Output {
            frame: Frame::default(),
            pending: Vec::new(),
            tty,
        })
    }

    /// Returns the buffer for the backend.
    pub(crate) fn frame(&self) -> Frame {
        self.frame.clone()
    }

    /// Checks whether bytes of an earlier frame are pending.
    pub(crate) fn busy(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Sends the collected frame, as far as the terminal accepts it now.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub(crate) fn send(&mut self) -> io::Result<()> {
        let mut frame = self.frame.0.borrow_mut();
        if frame.is_empty() {
            return Ok(());
        }
        self.pending.extend_from_slice(BEGIN);
        self.pending.append(&mut frame);
        self.pending.extend_from_slice(END);
        drop(frame);
        self.push()
    }

    /// Waits until the terminal accepts bytes, and sends pending ones.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub(crate) async fn drain(&mut self) -> io::Result<()> {
        let mut ready = self.tty.writable().await?;
        ready.clear_ready();
        drop(ready);
        self.push()
    }

    fn push(&mut self) -> io::Result<()> {
        // A panic or a signal on another thread may have restored the terminal, which then belongs to the shell.
        let writing = super::lock();
        if !super::last_resort::armed() {
            self.pending.clear();
        }
        let mut sent = 0;
        let result = loop {
            if sent == self.pending.len() {
                break Ok(());
            }
            match rustix::io::write(self.tty.get_ref(), &self.pending[sent..]) {
                Ok(n) => sent += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break Ok(()),
                Err(error) => break Err(error.into()),
            }
        };
        drop(writing);
        self.pending.drain(..sent);
        // A full redraw is rare and large, so its memory is freed.
        self.pending.shrink_to(KEPT_CAPACITY);
        self.frame.0.borrow_mut().shrink_to(KEPT_CAPACITY);
        result
    }
}

/// Opens the terminal of stdout again. If that is not allowed, returns stdout itself, which may block.
pub(super) fn nonblocking_stdout() -> io::Result<OwnedFd> {
    let again = OpenOptions::new()
        .write(true)
        .custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32)
        .open("/proc/self/fd/1");
    match again {
        Ok(file) => Ok(file.into()),
        Err(_) => io::stdout().as_fd().try_clone_to_owned(),
    }
}

/// Writes everything, and blocks as long as that takes.
pub(super) fn write_all(tty: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(tty, bytes))?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Writes what the terminal accepts within `limit`, since the exit must not hang. Allocates nothing.
pub(super) fn write_within(tty: BorrowedFd<'_>, mut bytes: &[u8], limit: Duration) -> io::Result<()> {
    let deadline = Instant::now() + limit;
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(&tty, PollFlags::OUT)], Some(&timeout)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            // An interruption, as by SIGWINCH, is no failure.
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        match rustix::io::write(tty, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
