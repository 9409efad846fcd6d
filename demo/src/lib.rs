//! Workloads that create and fix GPU memory problems.
//!
//! A demo is a separate process that publishes like any other program. The dashboard starts it as a child, steers it through
//! [`protocol`], and watches it through its channel. [`Demo`] is the trait of demos; `demos/mod.rs` has their list, and says how
//! to add one.

mod args;
pub mod bench;
mod blocking;
mod budget;
mod conf;
mod control;
mod demo;
mod demos;
mod error;
mod gpu;
mod kernels;
mod lab;
mod list;
mod output;
mod pace;
mod paragraph;
mod pattern;
mod process;
pub mod protocol;
pub mod replay;
mod rig;
mod run;
mod signals;
mod sim_pattern;
mod stage;
pub mod trace;
mod uvm;
mod values;

pub use args::{DeviceChoice, RunArgs};
pub use blocking::{BlockingWriter, stdout};
pub use budget::{BudgetError, MIN_BUDGET};
pub use conf::{Conf, ConfParser, Segments, publishes, wrong_environment};
pub use control::End;
pub use demo::{Chosen, Demo, Entry};
pub use demos::*;
pub use error::{DemoError, Ended, exit_code};
pub use gpu::{GpuError, Kernels};
pub use lab::MemoryPlan;
pub use list::list;
pub use pace::{Pace, Speed};
pub use pattern::{Checked, pattern};
pub use process::TieError;
pub use run::{check, main, run};
pub use signals::heeded;
pub use stage::{Stage, Stop};
pub use values::{is_negative, parse_duration, parse_number};
