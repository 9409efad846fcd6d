//! The fake driver's descriptors, and what the driver knows about each.

use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

/// Paths of the devices below the folder that stands for `/`.
pub(crate) const UVM: &str = "dev/nvidia-uvm";
pub(crate) const TOOLS: &str = "dev/nvidia-uvm-tools";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    Uvm,
    Tools,
}

/// Returns the device of a descriptor, and the folder that it is below. `None` for all other files, real devices included.
pub(crate) fn of(fd: RawFd) -> Option<(Device, PathBuf)> {
    let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    let (device, name) = match path.file_name()?.to_str()? {
        "nvidia-uvm" => (Device::Uvm, UVM),
        "nvidia-uvm-tools" => (Device::Tools, TOOLS),
        _ => return None,
    };
    let root = path.parent()?.parent()?;
    let fake = root != Path::new("/") && root.join(name) == path && path.is_file();
    fake.then(|| (device, root.to_owned()))
}

/// What a descriptor of [`Device::Uvm`] is used for. It is stored as the file position, which is kept when the descriptor is duplicated
/// into another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Opened only.
    Fresh,
    /// An address space, with its number in the scenario.
    Space(u32),
    /// The second descriptor that a process holds, which only keeps its memory alive.
    Lifetime,
}

const LIFETIME: i64 = 1 << 40;

impl Use {
    pub(crate) fn of(fd: RawFd) -> Use {
        // SAFETY: the call takes no address.
        match unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) } {
            LIFETIME => Use::Lifetime,
            position => match u32::try_from(position) {
                Ok(space @ 1..) => Use::Space(space - 1),
                _ => Use::Fresh,
            },
        }
    }

    pub(crate) fn set(self, fd: RawFd) -> io::Result<()> {
        let position = match self {
            Use::Fresh => 0,
            Use::Space(space) => i64::from(space) + 1,
            Use::Lifetime => LIFETIME,
        };
        // SAFETY: the call takes no address.
        match unsafe { libc::lseek(fd, position, libc::SEEK_SET) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}
