//! The gpumem stats channel: how a process publishes the truth about its GPU memory, and how others read it.
mod cells;
mod codec;
#[cfg(test)]
mod cut_tests;
mod discover;
mod error;
mod identity;
mod layout;
mod life;
mod map;
mod mirror;
#[cfg(test)]
mod ordering_tests;
mod place;
mod publisher;
mod reader;
mod record;
mod seqlock;
mod snapshot;
mod source;
mod stats;
mod sweep;
mod text;
mod word;
mod writer;

pub use cells::Touched;
pub use discover::{Found, Problem, Scan, discover};
pub use error::{CreateError, OpenError, ReadError};
pub use place::own_directories;
pub use publisher::{Options, Publisher};
pub use reader::Reader;
pub use record::{Block, BlockState, Device, DeviceKind, Event, EventKind, PoolId, Segment, SegmentKind, StringId};
pub use snapshot::{DeviceMap, Events, Identity, Life, SegmentMap, Snapshot};
pub use stats::{DeviceStats, PoolStats, Stat};
pub use text::clean;
