//! The way out: what the heap does, told to the channel and to the history.
//!
//! Without them every call is a branch or two.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use gpumem_channel::{
    BlockState, CloseHandle, CreateError, Device, DeviceStats, Event, Facts, Lane, Operation, Options, Publisher,
    Segment, StringId, Touched,
};

mod managed;

use crate::history::{Deed, Recorder};
use crate::process::say;
use crate::stream::Stream;
pub(crate) use managed::ManagedSlot;
use managed::ManagedSlots;

/// The one device of a channel: an allocator is one, and a process with several has several channels.
pub(crate) const DEVICE: u8 = 0;

/// Whether an allocator publishes.
#[derive(Clone, Debug)]
pub enum Publish {
    /// It does. If the channel cannot be made the allocator works on without one and says so once, on stderr. A program that closes
    /// all its descriptors, as daemons do, has to do so before: it is shown as ended from then on.
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

impl WhyNot {
    fn of(error: &CreateError) -> WhyNot {
        WhyNot::Failed(match error {
            CreateError::NoSpace { .. } | CreateError::FileSizeLimit { .. } => {
                format!("{error}; publish:off takes none")
            }
            error => error.to_string(),
        })
    }
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyNot::Off => f.write_str("publishing is off"),
            WhyNot::Failed(reason) => f.write_str(reason),
        }
    }
}

/// The channel and the history, as far as there are any.
pub(crate) struct Outlet {
    channel: Option<Box<Publisher>>,
    history: Option<Box<Recorder>>,
    /// Where there is no channel.
    why_not: WhyNot,
    /// Bytes of the blocks the channel has no slot for, by slot.
    refused: HashMap<u32, u64>,
    refused_bytes: u64,
    managed: ManagedSlots,
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outlet").field(&self.path()).finish()
    }
}

/// Says why there is no channel. What goes for all of a process's devices is said once.
pub(crate) fn say_unpublished(why: &str) {
    /// A number for what was said last. No lock, which a forked child could find taken for ever.
    static SAID: AtomicU64 = AtomicU64::new(0);
    let mut hasher = DefaultHasher::new();
    why.hash(&mut hasher);
    let now = hasher.finish();
    if SAID.swap(now, Ordering::Relaxed) != now {
        say(&format!("gpumem: not publishing: {why}"));
    }
}

impl Outlet {
    /// Makes the channel, if the program wants one.
    pub(crate) fn open(publish: &Publish, device: &Device) -> Outlet {
        let channel = match publish {
            Publish::Off => Err(WhyNot::Off),
            Publish::On(options) => Publisher::create(options)
                .map(|mut publisher| {
                    publisher.set_device(DEVICE, device);
                    publisher.stats(DEVICE, &DeviceStats::default(), Touched::ALL);
                    Box::new(publisher)
                })
                .map_err(|error| WhyNot::of(&error)),
        };
        let (channel, why_not) = match channel {
            Ok(publisher) => (Some(publisher), WhyNot::Off),
            Err(why_not) => (None, why_not),
        };
        Outlet {
            channel,
            history: None,
            why_not,
            refused: HashMap::new(),
            refused_bytes: 0,
            managed: ManagedSlots::default(),
        }
    }

    /// Publishes the device anew.
    pub(crate) fn device(&mut self, device: &Device) {
        if let Some(publisher) = self.publisher() {
            publisher.set_device(DEVICE, device);
        }
    }

    /// What says goodbye on the channel, if there is one.
    pub(crate) fn goodbye(&self) -> Option<CloseHandle> {
        self.channel.as_ref().map(|publisher| publisher.close_handle())
    }

    /// Ends the channel, if there is one.
    pub(crate) fn close(&mut self) {
        self.channel = None;
    }

    /// Begins a history, or ends it.
    pub(crate) fn record(&mut self, recorder: Option<Recorder>) {
        self.history = recorder.map(Box::new);
    }

    /// The history, if it is on.
    pub(crate) fn recorder(&self) -> Option<&Recorder> {
        self.history.as_deref()
    }

    #[inline(always)]
    pub(crate) fn recorder_mut(&mut self) -> Option<&mut Recorder> {
        self.history.as_deref_mut()
    }

    /// The channel's file, or why there is none.
    pub(crate) fn path(&self) -> Result<&Path, &WhyNot> {
        let channel = self.channel.as_ref();
        channel.map(|publisher| publisher.path()).ok_or(&self.why_not)
    }

    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.channel.is_some() || self.history.is_some()
    }

    /// Whether there is a channel, and no history.
    #[inline(always)]
    pub(crate) fn only_publishes(&self) -> bool {
        self.channel.is_some() && self.history.is_none()
    }

    /// Whether there is a history.
    #[inline(always)]
    pub(crate) fn records(&self) -> bool {
        self.history.is_some()
    }

    /// The channel, if there is one. Who asks it for a slot that it does not have says so to [`Outlet::refuse_if`].
    #[inline(always)]
    pub(crate) fn publisher(&mut self) -> Option<&mut Publisher> {
        #[cfg(test)]
        watch::look();
        self.channel.as_deref_mut()
    }

    /// What a lane publishes through, if there is a channel; `None` if that has no more room for lanes.
    pub(crate) fn lane(&mut self, stream: Stream) -> Option<Option<Lane>> {
        match self.publisher() {
            Some(publisher) => publisher.lane(DEVICE, stream.0).map(Some),
            None => Some(None),
        }
    }

    /// What was published here or in a lane before comes before what comes after in either.
    pub(crate) fn meet(&mut self, lane: &mut Option<Lane>) {
        if let (Some(publisher), Some(lane)) = (self.publisher(), lane) {
            publisher.meet(lane);
        }
    }

    /// Whether a block can be shown, if anything is.
    #[inline(always)]
    pub(crate) fn shows(&mut self, slot: u32) -> bool {
        self.publisher().is_none_or(|publisher| publisher.has_slot(slot))
    }

    /// The channel's number of a text; `None` without a channel.
    pub(crate) fn intern(&mut self, text: &str) -> Option<StringId> {
        self.publisher().map(|publisher| publisher.intern(text))
    }

    /// The same for the name of a mark.
    pub(crate) fn intern_mark(&mut self, text: &str) -> Option<StringId> {
        self.publisher().map(|publisher| publisher.intern_mark(text))
    }

    pub(crate) fn event(&mut self, event: &Event) {
        if let Some(recorder) = self.recorder_mut() {
            recorder.event(event);
        }
        self.publish(event);
    }

    /// An event for the channel only.
    pub(crate) fn publish(&mut self, event: &Event) {
        if let Some(publisher) = self.publisher() {
            publisher.event(event);
        }
    }

    /// A free whose block waits for queued work.
    pub(crate) fn waiting(&mut self, event: &Event) {
        if let Some(recorder) = self.recorder_mut() {
            recorder.record(Deed::FreeRequested, event);
        }
        self.publish(event);
    }

    /// An event whose effect on the figures follows from it. Whether they have to follow all the same.
    #[inline]
    pub(crate) fn change(&mut self, event: &Event) -> bool {
        if let Some(recorder) = self.recorder_mut() {
            recorder.event(event);
        }
        self.publish_change(event)
    }

    /// The same for the channel only.
    pub(crate) fn publish_change(&mut self, event: &Event) -> bool {
        self.publisher()
            .is_some_and(|publisher| publisher.change(event.kind, event))
    }

    #[inline]
    pub(crate) fn segment_close(&mut self, slot: u32) {
        if let Some(publisher) = self.publisher() {
            publisher.segment_close(slot);
        }
    }

    /// An event for the channel and the one block it is about. Whether the figures have to follow.
    #[inline(always)]
    pub(crate) fn operation(&mut self, operation: &Operation<'_, impl Facts>) -> bool {
        let Some(publisher) = self.publisher() else {
            return false;
        };
        let told = publisher.operation(operation);
        if !told.stored {
            self.refuse(operation.slot, operation.block.size());
        }
        told.figures_due
    }

    /// Notes a block that the channel has no slot for, if that is so.
    pub(crate) fn refuse_if(&mut self, slot: u32, size: u64) {
        if self.publisher().is_some_and(|publisher| !publisher.has_slot(slot)) {
            self.refuse(slot, size);
        }
    }

    /// A block as it is now.
    #[inline(always)]
    pub(crate) fn block(&mut self, slot: u32, state: BlockState, block: &impl Facts, next: Option<u32>) {
        if let Some(publisher) = self.publisher()
            && !publisher.block_of(slot, state, block, next)
        {
            self.refuse(slot, block.size());
        }
    }

    #[inline]
    pub(crate) fn clear_block(&mut self, slot: u32) {
        if let Some(publisher) = self.publisher()
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
        let (blocks, bytes) = (self.refused.len() as u64, self.refused_bytes);
        if let Some(publisher) = self.publisher() {
            publisher.untracked(blocks, bytes);
        }
    }

    #[inline]
    pub(crate) fn segment_begin(&mut self, slot: u32) {
        if let Some(publisher) = self.publisher() {
            publisher.segment_begin(slot);
        }
    }

    #[inline]
    pub(crate) fn segment_end(&mut self, slot: u32, segment: Option<(&Segment, Option<u32>)>) {
        if let Some(publisher) = self.publisher() {
            publisher.segment_end(slot, segment);
        }
    }

    #[inline]
    pub(crate) fn stats(&mut self, stats: &DeviceStats, touched: Touched) {
        if let Some(publisher) = self.publisher() {
            publisher.stats(DEVICE, stats, touched);
        }
    }
}

/// A look at what is shown between any two publications of a thread, as who is killed there leaves it.
#[cfg(test)]
pub(crate) mod watch {
    use std::cell::RefCell;

    type Look = Box<dyn FnMut()>;

    thread_local! {
        static LOOK: RefCell<Option<Look>> = const { RefCell::new(None) };
    }

    /// Until this is dropped.
    pub(crate) struct Watched;

    pub(crate) fn at_each(look: impl FnMut() + 'static) -> Watched {
        LOOK.set(Some(Box::new(look)));
        Watched
    }

    pub(super) fn look() {
        LOOK.with_borrow_mut(|look| {
            if let Some(look) = look {
                look();
            }
        });
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            LOOK.set(None);
        }
    }
}
