//! Why a demo could not run, and what exit code says so.

use crate::budget::BudgetError;
use crate::control::End;
use crate::gpu::GpuError;
use crate::process::TieError;
use crate::protocol::Outcome;
use crate::replay::ReplayError;

/// Why a demo could not run or go on.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// An argument that cannot work.
    #[error("{argument}: {reason}")]
    Argument {
        /// Its name.
        argument: &'static str,
        /// What is wrong with it and what would be right.
        reason: String,
    },
    /// The budget cannot be had.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// What the allocator is told cannot be read.
    #[error(transparent)]
    Conf(#[from] gpumem_alloc::ConfError),
    /// What the allocator is told cannot work.
    #[error("the allocator's settings: {0}")]
    Settings(gpumem_alloc::Error),
    /// The device cannot be used.
    #[error("{0}. The simulated device needs no GPU: --device sim")]
    NoDevice(String),
    /// The allocator failed where the demo does not expect it.
    #[error("{doing}: {source}")]
    Allocator {
        /// What the demo was doing.
        doing: &'static str,
        /// What the allocator says.
        source: gpumem_alloc::Error,
    },
    /// The snapshot could not be written.
    #[error(transparent)]
    Snapshot(#[from] gpumem_alloc::ExportError),
    /// A block that has to fit did not.
    #[error("the demo itself ran {0}")]
    OutOfMemory(String),
    /// What was meant to leak has taken all the memory there is.
    #[error("{steps} forgot {bytes} (--leak): what is left is too small even for half a batch")]
    Leaked {
        /// How many there were.
        steps: String,
        /// How much.
        bytes: String,
    },
    /// A kernel failed.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// A trace could not be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The process could not be tied to its parent.
    #[error(transparent)]
    Tie(#[from] TieError),
    /// A line could not be written.
    #[error("could not write the demo's output: {0}")]
    Output(#[source] std::io::Error),
    /// Whoever read the output is gone: no error of the demo's, but its end.
    #[error("nobody reads the demo's output any more")]
    OutputClosed,
}

impl From<std::io::Error> for DemoError {
    fn from(error: std::io::Error) -> DemoError {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => DemoError::OutputClosed,
            _ => DemoError::Output(error),
        }
    }
}

/// How a run ended without an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// After its last step.
    Done(Outcome),
    /// Before, because it was told to. Its memory is free.
    Early(End),
}

/// The exit code of a run:
///
/// | code | meaning |
/// |---|---|
/// | 0 | it showed what it promises; or it was told to quit, its parent is gone, or nobody reads its output any more |
/// | 1 | something failed on the way, or it did not show what it promises |
/// | 2 | bad arguments, a budget that does not fit among them |
/// | 3 | no usable device |
/// | 128 + n | ended by signal n, after freeing its memory |
pub fn exit_code(ended: &Result<Ended, DemoError>) -> u8 {
    match ended {
        Ok(Ended::Done(outcome)) => u8::from(!outcome.as_promised()),
        Ok(Ended::Early(End::Signal(signal))) => 128u8.saturating_add(u8::try_from(*signal).unwrap_or(0)),
        Ok(Ended::Early(End::Quit | End::ParentGone)) => 0,
        Err(error) => error.exit_code(),
    }
}

impl DemoError {
    /// See [`exit_code`].
    pub fn exit_code(&self) -> u8 {
        match self {
            DemoError::OutputClosed | DemoError::Tie(TieError::ParentGone) => 0,
            DemoError::Argument { .. } | DemoError::Budget(_) | DemoError::Conf(_) | DemoError::Settings(_) => 2,
            DemoError::NoDevice(_) => 3,
            DemoError::Replay(error) => error.exit_code(),
            DemoError::Allocator { .. }
            | DemoError::OutOfMemory(_)
            | DemoError::Leaked { .. }
            | DemoError::Gpu(_)
            | DemoError::Snapshot(_)
            | DemoError::Tie(_)
            | DemoError::Output(_) => 1,
        }
    }
}
