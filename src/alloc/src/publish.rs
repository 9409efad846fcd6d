//! The way out: what the heap does, told to the channel.
//!
//! One operation publishes its event first, then the blocks it changed, then the figures. Without a channel every call
//! is one branch.

use std::fmt;
use std::path::{Path, PathBuf};

use gpumem_channel::{Block, Device, DeviceStats, Event, Segment, StringId};

/// Whether an allocator publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Publish {
    /// It does. If the channel cannot be made the allocator works on without and says so once.
    On(Options),
    /// It does not.
    Off,
}

impl Default for Publish {
    fn default() -> Publish {
        Publish::On(Options::default())
    }
}

/// How a channel is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Directory; `None`: the user's.
    pub dir: Option<PathBuf>,
    /// Job label.
    pub job: String,
}

/// Groups of figures that changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched(pub(crate) u8);

impl Touched {
    pub(crate) const SMALL: Touched = Touched(1);
    pub(crate) const LARGE: Touched = Touched(2);
    pub(crate) const COLD: Touched = Touched(4);
}

/// Why there is no channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WhyNot {
    /// The program said so.
    Off,
}

impl WhyNot {
    pub(crate) fn is_off(&self) -> bool {
        *self == WhyNot::Off
    }
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyNot::Off => write!(f, "publishing is off"),
        }
    }
}

/// The channel, or the reason there is none.
#[derive(Debug)]
pub(crate) struct Outlet {
    publisher: Option<Publisher>,
    why_not: WhyNot,
}

#[derive(Debug)]
struct Publisher;

impl Outlet {
    pub(crate) fn open(_publish: &Publish, _device: &Device) -> Outlet {
        Outlet {
            publisher: None,
            why_not: WhyNot::Off,
        }
    }

    /// The channel's file, or why there is none.
    pub(crate) fn path(&self) -> Result<&Path, &WhyNot> {
        Err(&self.why_not)
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.publisher.is_some()
    }

    pub(crate) fn intern(&mut self, _text: &str) -> StringId {
        StringId(0)
    }

    #[inline]
    pub(crate) fn event(&mut self, _event: &Event) {}

    #[inline]
    pub(crate) fn block(&mut self, _slot: u32, _block: &Block) {}

    #[inline]
    pub(crate) fn clear_block(&mut self, _slot: u32, _size: u64) {}

    #[inline]
    pub(crate) fn segment_begin(&mut self, _slot: u32) {}

    #[inline]
    pub(crate) fn segment_end(&mut self, _slot: u32, _segment: Option<&Segment>) {}

    #[inline]
    pub(crate) fn stats(&mut self, _device: u8, _stats: &DeviceStats, _touched: Touched) {}
}
