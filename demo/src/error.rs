//! The errors of demos and their exit codes.

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
        /// What is wrong with it and what is expected.
        reason: String,
    },
    /// The budget is not possible.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// The allocator's configuration cannot be parsed.
    #[error(transparent)]
    Conf(#[from] gpumem_alloc::ConfError),
    /// The allocator refuses its configuration.
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
        /// The allocator's error.
        source: gpumem_alloc::Error,
    },
    /// The snapshot could not be written.
    #[error(transparent)]
    Snapshot(#[from] gpumem_alloc::ExportError),
    /// A block that has to fit does not fit.
    #[error("the demo itself ran {0}")]
    OutOfMemory(String),
    /// The intended leak has taken all memory.
    #[error("{steps} leaked {bytes} (--leak): the rest is too small even for half a batch")]
    Leaked {
        /// The number of steps, as text.
        steps: String,
        /// The leaked memory, as text.
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
    /// The reader of the output is gone. This ends the demo without being its failure.
    #[error("the reader of the demo's output is gone")]
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
    /// Before its last step, because it was told to. Its memory is free.
    Early(End),
}

/// Returns the exit code of a run:
///
/// | code | meaning |
/// |---|---|
/// | 0 | it showed what it promises, or it was told to quit, its parent is gone, or the reader of its output is gone |
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
    /// Returns the exit code; see [`exit_code`](exit_code()).
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
