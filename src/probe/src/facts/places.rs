//! The directories that can hold channels.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Fact;
use crate::Root;

/// A directory that can hold channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Path of the directory.
    pub path: PathBuf,
    /// Whether it is on a tmpfs, that is, in memory. Channels elsewhere are refused.
    pub tmpfs: bool,
    /// Bytes available to unprivileged users.
    pub free: u64,
    /// Size in bytes; on some systems 0 means "no limit".
    pub total: u64,
}

pub(super) fn shm(root: &Root) -> Fact<Place> {
    place(&root.path("dev/shm"))
}

/// Checks that the directory exists, belongs to this user and is closed to others (XDG Base Directory Specification).
pub(super) fn runtime_dir(path: Option<&Path>) -> Fact<Place> {
    let path = path
        .filter(|p| !p.as_os_str().is_empty())
        .ok_or("XDG_RUNTIME_DIR is not set")?;
    if !path.is_absolute() {
        return Err("XDG_RUNTIME_DIR is not an absolute path".into());
    }
    let meta = std::fs::metadata(path).map_err(|e| e.to_string())?;
    let me = rustix::process::geteuid().as_raw();
    if meta.uid() != me {
        return Err(format!("belongs to user {}, not to {me}", meta.uid()));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(format!(
            "is open to other users: mode {:03o} instead of 700",
            meta.mode() & 0o777
        ));
    }
    place(path)
}

fn place(path: &Path) -> Fact<Place> {
    /// `TMPFS_MAGIC` of linux/magic.h.
    const TMPFS: u64 = 0x0102_1994;
    if !std::fs::metadata(path).map_err(|e| e.to_string())?.is_dir() {
        return Err("is not a directory".into());
    }
    let fs = rustix::fs::statfs(path).map_err(|e| e.to_string())?;
    let unit = u64::try_from(fs.f_bsize).unwrap_or(0);
    Ok(Place {
        path: path.to_owned(),
        tmpfs: u64::try_from(fs.f_type) == Ok(TMPFS),
        free: fs.f_bavail.saturating_mul(unit),
        total: fs.f_blocks.saturating_mul(unit),
    })
}
