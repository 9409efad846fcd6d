//! Whether a publisher is alive. It holds an exclusive lock on its file as long as it lives. The kernel releases the
//! lock when the process ends, however it ends and whatever its namespaces are.

use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, flock};

/// Whether a process holds the lock of `file`. Takes a shared lock for a moment. That never delays a publisher, which
/// locks its file before the file has a name that readers look at.
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
