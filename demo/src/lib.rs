//! Workloads that create and fix GPU memory problems.
//!
//! A demo is a process of its own that publishes like any other program; the dashboard starts it as a child, steers it
//! through [`protocol`], and looks at it through its channel.
#![deny(unsafe_code)]

mod account;
mod args;
mod conf;
mod control;
mod error;
mod fragmentation;
mod gpu;
mod kernels;
mod lab;
mod list;
mod model;
mod output;
mod patient;
mod pattern;
mod process;
pub mod protocol;
pub mod replay;
mod run;
mod scale;
mod stamp;
pub mod trace;
mod train;

pub use args::{DemoArgs, DeviceChoice, Fix, TRAIN_PACE};
pub use conf::{Conf, publishes};
pub use control::End;
pub use error::{DemoError, Ended, exit_code};
pub use gpu::{GpuError, Kernels};
pub use list::{Demo, list};
pub use patient::{Patient, stdout};
pub use pattern::{Checked, pattern};
pub use process::TieError;
pub use run::{check, main, run};
pub use scale::{BudgetError, GRAIN, MIN_BUDGET, REFERENCE_BUDGET, Sizes, budget, simulated_budget};
