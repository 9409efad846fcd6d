//! The gpumem stats channel: how a process publishes the truth about its GPU memory, and how others read it.

mod record;
mod snapshot;
mod stats;

pub use record::{Block, BlockState, Device, DeviceKind, Event, EventKind, PoolId, Segment, SegmentKind, StringId};
pub use snapshot::{DeviceMap, Events, Identity, Life, SegmentMap, Snapshot};
pub use stats::{DeviceStats, PoolStats, Stat};
