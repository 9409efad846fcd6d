//! Output that waits for its reader even if the file is non-blocking.

use std::io::{ErrorKind, Result, StdoutLock, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Returns standard output. Another process with the same pipe or terminal may have made it non-blocking. Then a write may be
/// partial or fail until the reader catches up; this writer waits for that.
pub fn stdout() -> BlockingWriter<StdoutLock<'static>> {
    BlockingWriter(std::io::stdout().lock())
}

/// A writer that waits where a non-blocking file would refuse; see [`stdout`].
#[derive(Debug)]
pub struct BlockingWriter<W>(W);

impl<W: Write + AsFd> BlockingWriter<W> {
    fn until_done<T>(&mut self, mut what: impl FnMut(&mut W) -> Result<T>) -> Result<T> {
        loop {
            match what(&mut self.0) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => wait(&self.0)?,
                done => return done,
            }
        }
    }
}

impl<W: Write + AsFd> Write for BlockingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.until_done(|out| out.write(bytes))
    }

    fn flush(&mut self) -> Result<()> {
        self.until_done(Write::flush)
    }
}

/// Waits until there is room or the reader is gone. The next write shows which.
fn wait(out: &impl AsFd) -> Result<()> {
    match poll(&mut [PollFd::new(out, PollFlags::OUT)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
