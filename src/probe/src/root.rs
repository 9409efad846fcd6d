//! File access of the probe: below a root, so that tests can provide their own `/proc`, and with bounded reads.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The directory that stands for `/`. The probe reads all its own files below it.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Root(PathBuf::from("/"))
    }
}

impl Root {
    /// Uses a directory in place of `/`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Root(path.into())
    }

    /// Whether this is the machine's own root; only then are system services asked.
    pub(crate) fn is_real(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Returns the path of `below`, which must be relative, in this root.
    pub(crate) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.0.join(below)
    }

    /// Reads at most `limit` bytes of a file. Does not block on a fifo or a device.
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

    /// Reads the number in a namespace link such as `pid:[4026531836]`.
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
