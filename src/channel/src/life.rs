//! Alive or dead: a publisher holds an exclusive lock on its file for as long as it lives. The kernel lets go of it when the
//! process ends, however it ends, in whatever namespace it lived.

use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, flock};

/// Whether somebody holds the lock of `file`. Takes a shared lock for a moment, which no publisher waits for: it locks its file
/// before the file has a name that others look at.
pub(crate) fn is_held(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            flock(file, FlockOperation::Unlock)?;
            Ok(false)
        }
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Takes the lock, which must be free.
pub(crate) fn hold(file: &File) -> io::Result<()> {
    Ok(flock(file, FlockOperation::NonBlockingLockExclusive)?)
}
