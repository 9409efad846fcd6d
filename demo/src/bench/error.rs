//! The errors of benchmarks and their exit codes.

use gpumem_text::units::bytes_to_pib;

use crate::control::End;
use crate::gpu::GpuError;
use crate::process::TieError;
use crate::rig::RigError;

/// Why a benchmark could not run or go on.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The device cannot be used.
    #[error("{0}. This benchmark measures a GPU and needs one")]
    NoDevice(String),
    /// The device cannot be used, and some of what was asked for needs none.
    #[error("{0}. Claims that need no GPU are checked with --device sim")]
    NoGpu(String),
    /// The budget is too small to measure anything beyond the L2 cache of common cards.
    #[error("a budget of {} is too small: at least {} are needed", bytes_to_pib(*asked), bytes_to_pib(*least))]
    TooSmall {
        /// The requested bytes.
        asked: u64,
        /// The least number of bytes.
        least: u64,
    },
    /// More than a quarter of the free memory of a GPU that may have other users.
    #[error(
        "a budget of {} is more than a quarter of the {} free on this device: ask for {} or less (--budget)",
        bytes_to_pib(*asked), bytes_to_pib(*free), bytes_to_pib(free / 4)
    )]
    TooLarge {
        /// The requested bytes.
        asked: u64,
        /// Free memory of the device in bytes.
        free: u64,
    },
    /// No budget was requested, and a quarter of the free memory is too little.
    #[error(
        "a quarter of the {} free on this device is less than the {} that are needed: free memory on it",
        bytes_to_pib(*free), bytes_to_pib(*least)
    )]
    DeviceFull {
        /// Free memory of the device in bytes.
        free: u64,
        /// The least number of bytes.
        least: u64,
    },
    /// A call of the device failed, or a kernel computed something else than it had to.
    #[error("{0}")]
    Device(String),
    /// The process could not be tied to its parent.
    #[error(transparent)]
    Tie(#[from] TieError),
    /// The output could not be written.
    #[error("could not write the report: {0}")]
    Output(#[source] std::io::Error),
    /// The reader of the output is gone. This ends the benchmark without being its failure.
    #[error("the reader of the report is gone")]
    OutputClosed,
}

impl From<std::io::Error> for BenchError {
    fn from(error: std::io::Error) -> BenchError {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => BenchError::OutputClosed,
            _ => BenchError::Output(error),
        }
    }
}

impl From<RigError> for BenchError {
    fn from(error: RigError) -> BenchError {
        BenchError::Device(error.to_string())
    }
}

impl From<GpuError> for BenchError {
    fn from(error: GpuError) -> BenchError {
        BenchError::Device(error.to_string())
    }
}

impl BenchError {
    /// Returns the exit code, as [`exit_code`](crate::exit_code()) has it for demos: 1 if something failed, 2 for a budget that
    /// does not fit, 3 for no usable device, 0 if the parent or the reader of the output is gone.
    pub fn exit_code(&self) -> u8 {
        match self {
            BenchError::OutputClosed | BenchError::Tie(TieError::ParentGone) => 0,
            BenchError::TooSmall { .. } | BenchError::TooLarge { .. } | BenchError::DeviceFull { .. } => 2,
            BenchError::NoDevice(_) | BenchError::NoGpu(_) => 3,
            BenchError::Device(_) | BenchError::Tie(_) | BenchError::Output(_) => 1,
        }
    }
}

/// Why a benchmark stops before its end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It was told to.
    End(End),
    /// It cannot go on.
    Error(BenchError),
}

impl<E: Into<BenchError>> From<E> for Stop {
    fn from(error: E) -> Stop {
        Stop::Error(error.into())
    }
}
