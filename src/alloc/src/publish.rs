//! The way out: what the heap does, told to the channel.
//!
//! Without a channel every call is one branch.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use gpumem_channel::{Block, Device, DeviceStats, Event, Operation, Options, Publisher, Segment, StringId, Touched};

/// Whether an allocator publishes.
#[derive(Clone, Debug)]
pub enum Publish {
    /// It does. If the channel cannot be made the allocator works on without one and says so once, on stderr.
    On(Options),
    /// It does not.
    Off,
}

impl Default for Publish {
    fn default() -> Publish {
        Publish::On(Options::default())
    }
}

/// Why there is no channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WhyNot {
    /// The program said so.
    Off,
    /// It could not be made.
    Failed(String),
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyNot::Off => f.write_str("publishing is off"),
            WhyNot::Failed(reason) => f.write_str(reason),
        }
    }
}

/// The channel, or the reason there is none.
pub(crate) struct Outlet {
    publisher: Result<Box<Publisher>, WhyNot>,
    /// Bytes of the blocks the channel has no slot for, by slot.
    refused: HashMap<u32, u64>,
    refused_bytes: u64,
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outlet").field(&self.path()).finish()
    }
}

impl Outlet {
    /// Makes the channel, if the program wants one.
    pub(crate) fn open(publish: &Publish, index: u8, device: &Device) -> Outlet {
        let publisher = match publish {
            Publish::Off => Err(WhyNot::Off),
            Publish::On(options) => Publisher::create(options)
                .map(|mut publisher| {
                    publisher.set_device(index, device);
                    publisher.stats(index, &DeviceStats::default(), Touched::ALL);
                    Box::new(publisher)
                })
                .map_err(|error| WhyNot::Failed(error.to_string())),
        };
        Outlet {
            publisher,
            refused: HashMap::new(),
            refused_bytes: 0,
        }
    }

    /// Ends the channel, if there is one.
    pub(crate) fn close(&mut self) {
        if self.is_on() {
            self.publisher = Err(WhyNot::Off);
        }
    }

    /// The channel's file, or why there is none.
    pub(crate) fn path(&self) -> Result<&Path, &WhyNot> {
        self.publisher.as_ref().map(|publisher| publisher.path())
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.publisher.is_ok()
    }

    pub(crate) fn intern(&mut self, text: &str) -> StringId {
        self.publisher
            .as_mut()
            .map_or(StringId(0), |publisher| publisher.intern(text))
    }

    pub(crate) fn event(&mut self, event: &Event) {
        if let Ok(publisher) = &mut self.publisher {
            publisher.event(event);
        }
    }

    /// An event and the one block it is about. Whether the figures have to follow.
    #[inline(always)]
    pub(crate) fn operation(&mut self, operation: &Operation<'_>) -> bool {
        let Ok(publisher) = &mut self.publisher else {
            return false;
        };
        let told = publisher.operation(operation);
        if !told.stored {
            self.refuse(operation.slot, operation.block.size);
        }
        told.figures_due
    }

    #[inline]
    pub(crate) fn block(&mut self, slot: u32, block: &Block, next: Option<u32>) {
        if let Ok(publisher) = &mut self.publisher
            && !publisher.block(slot, block, next)
        {
            self.refuse(slot, block.size);
        }
    }

    #[inline]
    pub(crate) fn clear_block(&mut self, slot: u32) {
        if let Ok(publisher) = &mut self.publisher
            && !publisher.clear_block(slot)
        {
            self.refuse(slot, 0);
        }
    }

    /// The channel has no such slot: it is told how much it does not show.
    #[cold]
    fn refuse(&mut self, slot: u32, size: u64) {
        let before = if size == 0 {
            self.refused.remove(&slot)
        } else {
            self.refused.insert(slot, size)
        };
        self.refused_bytes = self.refused_bytes - before.unwrap_or(0) + size;
        if let Ok(publisher) = &mut self.publisher {
            publisher.untracked(self.refused.len() as u64, self.refused_bytes);
        }
    }

    #[inline]
    pub(crate) fn segment_begin(&mut self, slot: u32) {
        if let Ok(publisher) = &mut self.publisher {
            publisher.segment_begin(slot);
        }
    }

    #[inline]
    pub(crate) fn segment_end(&mut self, slot: u32, segment: Option<(&Segment, Option<u32>)>) {
        if let Ok(publisher) = &mut self.publisher {
            publisher.segment_end(slot, segment);
        }
    }

    #[inline]
    pub(crate) fn stats(&mut self, device: u8, stats: &DeviceStats, touched: Touched) {
        if let Ok(publisher) = &mut self.publisher {
            publisher.stats(device, stats, touched);
        }
    }
}
