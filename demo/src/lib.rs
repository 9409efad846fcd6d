//! Workloads that create and fix GPU memory problems.
//!
//! A demo is a process of its own that publishes like any other program; the dashboard starts it as a child, steers it
//! through [`protocol`], and looks at it through its channel.
#![deny(unsafe_code)]

mod list;
pub mod protocol;

pub use list::{Demo, list};
