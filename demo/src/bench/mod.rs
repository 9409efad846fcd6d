//! Benchmarks of a card, as `gpumem-tui bench` runs them. Each is a process of its own: the dashboard never opens CUDA.

mod args;
mod budget;
mod cache;
pub mod claims;
mod error;
pub mod hierarchy;
pub mod protocol;
mod run;
mod watch;

pub use args::{Bench, ClaimsArgs, HierarchyArgs};
pub use cache::{CacheError, Folder as CacheFolder, folder as cache_folder};
pub use error::BenchError;
pub use run::main;
