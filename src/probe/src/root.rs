//! The file system as the probe reads it: below a root, so that tests can bring their own `/proc`, and never more than
//! asked for.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where `/` is. Every file that the probe reads itself is read below it.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Root(PathBuf::from("/"))
    }
}

impl Root {
    /// A tree that stands in for `/`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Root(path.into())
    }

    /// Whether this is the machine's own root, where system services may be asked too.
    pub(crate) fn is_real(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// `below`, which must be relative, as a path of this root.
    pub(crate) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.0.join(below)
    }

    /// At most `limit` bytes of a file. A fifo or a device in its place does not block.
    pub(crate) fn read(&self, below: impl AsRef<Path>, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(below)?.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn open(&self, below: impl AsRef<Path>) -> io::Result<File> {
        let nonblocking = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
        OpenOptions::new()
            .read(true)
            .custom_flags(nonblocking.bits() as i32)
            .open(self.path(below))
    }

    /// The number in a namespace link such as `pid:[4026531836]`.
    pub(crate) fn namespace(&self, link: impl AsRef<Path>) -> io::Result<u64> {
        let target = std::fs::read_link(self.path(link))?;
        let number = target
            .to_str()
            .and_then(|t| t.split_once('['))
            .and_then(|(_, n)| n.strip_suffix(']'));
        number
            .and_then(|n| n.parse().ok())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a namespace link"))
    }
}
