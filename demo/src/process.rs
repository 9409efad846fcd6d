//! What ties a demo's process to the one that started it.

/// Why a child could not be tied to its parent.
#[derive(Debug, thiserror::Error)]
pub enum TieError {
    /// The parent was gone already.
    #[error("the process that started this demo is gone")]
    ParentGone,
    /// The kernel refused.
    #[error("could not ask the kernel to end this demo with its parent: {0}")]
    Refused(std::io::Error),
}

/// Asks the kernel to kill this process when its parent dies, so that a killed dashboard leaves no memory held.
///
/// The kernel means the parent's *thread* that started this process: a parent starts demos from a thread that lives as
/// long as it wants them. `parent` is the parent's id as it told it (a parent that died before this call was replaced
/// by another one, whose death would mean nothing); without it the id before and after the call are compared, and a
/// still earlier death shows as the end of stdin.
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
