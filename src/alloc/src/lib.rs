//! A caching allocator for GPU memory that publishes its state.

mod allocator;
mod buffer;
mod config;
pub mod device;
mod error;
mod fork;
mod free;
mod heap;
mod publish;
mod report;
mod size;
mod stream;
mod tag;

pub use allocator::Allocator;
pub use buffer::{Buffer, Element};
pub use config::{Config, SegmentMode};
pub use error::{DeviceError, Error};
pub use gpumem_channel::{DeviceStats, Options, PoolStats, Stat};
pub use heap::JoinReport;
pub use publish::Publish;
pub use report::{Help, OomReport};
pub use stream::Stream;
pub use tag::{Scope, scope};
