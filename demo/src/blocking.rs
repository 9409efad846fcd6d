//! Output that waits for who reads it.

use std::io::{ErrorKind, Result, StdoutLock, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Standard output. Whoever else has the same pipe or terminal may have set it to wait for nobody: then it takes what there is room for, and
/// refuses the rest as long as nobody reads. Here that is waited for, as it is everywhere else.
pub fn stdout() -> Patient<StdoutLock<'static>> {
    Patient(std::io::stdout().lock())
}

/// See [`stdout`].
#[derive(Debug)]
pub struct Patient<W>(W);

impl<W: Write + AsFd> Patient<W> {
    fn until_done<T>(&mut self, mut what: impl FnMut(&mut W) -> Result<T>) -> Result<T> {
        loop {
            match what(&mut self.0) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => wait(&self.0)?,
                done => return done,
            }
        }
    }
}

impl<W: Write + AsFd> Write for Patient<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.until_done(|out| out.write(bytes))
    }

    fn flush(&mut self) -> Result<()> {
        self.until_done(Write::flush)
    }
}

/// Waits until there is room, or nobody left to read: the next write tells which.
fn wait(out: &impl AsFd) -> Result<()> {
    match poll(&mut [PollFd::new(out, PollFlags::OUT)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
