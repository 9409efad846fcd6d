//! Ends a demo's process with the process that started it.

/// Why the death of the parent cannot end this process.
#[derive(Debug, thiserror::Error)]
pub enum TieError {
    /// The parent is gone already.
    #[error("the process that started this demo is gone")]
    ParentGone,
    /// The kernel refused.
    #[error("could not ask the kernel to end this demo with its parent: {0}")]
    Refused(std::io::Error),
}

/// Asks the kernel to kill this process when its parent dies, so that a killed dashboard leaves no memory held.
///
/// The kernel watches the *thread* of the parent that started this process, so a parent starts demos from a thread that lives
/// as long as they should. `parent` is the parent's id as the parent passed it: if the parent died before this call, another
/// process has taken its place, whose death means nothing. Without it the ids before and after the call are compared, and an
/// earlier death shows as the end of stdin.
///
/// # Errors
/// When the parent is gone already, or the kernel refused.
pub(crate) fn die_with_parent(parent: Option<u32>) -> Result<(), TieError> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    let id = || getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    let expected = parent.unwrap_or_else(id);
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| TieError::Refused(e.into()))?;
    if id() == expected {
        Ok(())
    } else {
        Err(TieError::ParentGone)
    }
}
