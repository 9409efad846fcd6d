//! Frames to the terminal: one write per frame, and never a wait for a slow one.
//!
//! A terminal behind a stalled connection stops taking bytes. A blocking write would then hold up signals and samples,
//! so the terminal is opened a second time in non-blocking mode (the flag belongs to the open file, which stdout
//! shares with the shell). While bytes wait, no new frame is drawn: the latest state is drawn once they are out.

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

/// Terminals that know it show the bytes between these two at once; others ignore them.
const BEGIN: &[u8] = b"\x1b[?2026h";
const END: &[u8] = b"\x1b[?2026l";

/// Bytes kept for the next frame.
const KEPT: usize = 8 << 10;

/// Where a frame is collected: cloned into the backend that writes it.
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
    /// Sends frames to the terminal that is open. Needs a tokio runtime.
    ///
    /// # Errors
    /// When none is, or it cannot be waited for.
    pub(crate) fn new() -> io::Result<Output> {
        let tty = super::watch(super::kept()?.screen.as_fd(), Interest::WRITABLE)?;
        Ok(Output {
            frame: Frame::default(),
            pending: Vec::new(),
            tty,
        })
    }

    /// Where the backend writes.
    pub(crate) fn frame(&self) -> Frame {
        self.frame.clone()
    }

    /// Whether bytes of an earlier frame still wait.
    pub(crate) fn busy(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Sends the collected frame, as far as the terminal takes it now.
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

    /// Waits until waiting bytes are out, or until some are.
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
        // A panic or a signal on another thread gives the terminal back at any moment: from then on it is the shell's.
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
        // A full screen is rare and large; what it took is given back.
        self.pending.shrink_to(KEPT);
        self.frame.0.borrow_mut().shrink_to(KEPT);
        result
    }
}

/// Stdout's terminal, opened anew. Where that is not allowed, stdout itself: it works, and may wait.
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

/// Writes everything, however long that takes.
pub(super) fn write_all(tty: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(tty, bytes))?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Writes to the terminal what it takes within a time: the way out must not hang. Allocates nothing.
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
            // A signal, as a new size is one, does not make the terminal any slower.
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
