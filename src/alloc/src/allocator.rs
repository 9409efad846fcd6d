//! The front: one allocator per device, shared by threads.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpumem_channel::DeviceStats;
use gpumem_snapshot::Snapshot;

use crate::buffer::{Buffer, Element};
use crate::config::Config;
use crate::device::Device;
use crate::error::Error;
use crate::export::{self, ExportError, OnOom};
use crate::free::FreeBlocks;
use crate::heap::{self, COMMON, CompactReport, Grant, Heap, JoinReport, Named};
use crate::history::{History, HistoryFigures, LeakReport, PeakReport};
use crate::home::{Handle, Home};
use crate::lane::Lent;
use crate::monitor::{Monitor, MonitorConfig};
use crate::publish::{WhyNot, say_unpublished};
use crate::share;
use crate::size::bytes_of;
use crate::stack::Kept;
use crate::stream::Stream;
use crate::tag::{self, Scope};

/// A caching allocator for one device. Clones are the same allocator; it lives until the last clone, [`Pool`](crate::Pool) and
/// [`Buffer`] are gone, and then waits for the device and gives everything back to the driver. What the driver does not take within an
/// eighth of a second is said on stderr, and tried again whenever another allocator of the process begins, ends, runs
/// out of memory or [gives its cache back](Allocator::release_cached).
///
/// Every method may be called from any thread. See the [crate docs](crate) for what they cost.
#[derive(Clone, Debug)]
#[must_use = "the allocator ends when its last clone, pool and buffer are dropped"]
pub struct Allocator(pub(crate) Arc<Handle>);

impl Allocator {
    /// An allocator on a device. Takes no memory yet.
    ///
    /// Errors only when the configuration cannot work on this device. A channel that cannot be made is no error:
    /// [`channel`](Allocator::channel) says why.
    pub fn new(device: Device, config: Config) -> Result<Allocator, Error> {
        heap::give_back_remains();
        let driver = Arc::clone(&device.driver);
        let handle = Home::settle(device, OnOom::from_environment(), |front| {
            let heap = Heap::new(driver, &config, front)?;
            if let Err(WhyNot::Failed(why)) = heap.outlet().path() {
                say_unpublished(why);
            }
            Ok(heap)
        });
        let allocator = Allocator(handle?);
        if config.history != History::Off {
            allocator.record_history(config.history)?;
        }
        if let Some(monitor) = config.monitor {
            // It is the first one.
            let _ = allocator.0.monitor.set(allocator.monitor(monitor)?);
        }
        Ok(allocator)
    }

    /// The device it allocates on.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// A buffer of `len` elements for use on a stream. Its contents are whatever the memory held before.
    ///
    /// A buffer of 0 bytes takes no memory and has address 0. Others begin at a multiple of 256 bytes, whatever alignment `T` has.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when it does not fit now: the one that passes when something is freed, or with a smaller request. [`Error::Device`]
    /// when the driver is in trouble. The others say that the call is wrong: [`Error::TooLarge`], [`Error::TooManyStreams`] (of one pool, or
    /// outside of pools), [`Error::PerThreadStream`], and [`Error::Forked`] in a forked child.
    #[inline(always)]
    pub fn alloc<T: Element>(&self, len: usize, stream: Stream) -> Result<Buffer<T>, Error> {
        let bytes = bytes_of::<T>(len)?;
        let home = self.0.home;
        let size = home.size_of(bytes);
        // Either way it comes in registers: a buffer that was written in pieces and is moved as a whole a moment later is waited for.
        let lent = match home.lend_quick((bytes, size), stream, true) {
            Some(lent) => lent,
            None => match home.lend_short(bytes, stream, true, &self.0.device.driver) {
                Some(lent) => lent,
                None => self.lend_as_routed(bytes, stream)?,
            },
        };
        Ok(Buffer::new(home, lent, len, stream))
    }

    /// A block from where requests for a stream go.
    #[inline(never)]
    fn lend_as_routed(&self, bytes: u64, stream: Stream) -> Result<Lent, Error> {
        let pool = self.0.pool(stream);
        self.lend_in(pool.as_deref().map_or(COMMON, |pool| pool.arena), bytes, stream)
    }

    /// A block of an arena that becomes a buffer.
    #[inline(never)]
    pub(crate) fn lend_in(&self, arena: u16, bytes: u64, stream: Stream) -> Result<Lent, Error> {
        let lent = match bytes {
            0 => self.0.home.lend(|_| Ok(Lent::NOTHING)),
            bytes => self.0.home.allocate(arena, bytes, stream, true).map(Grant::lent),
        };
        self.told_if_short(lent)
    }

    /// Writes the snapshot that was asked for from outside, if this is a request for which memory ran out.
    pub(crate) fn told_if_short<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        if result.is_err() {
            self.0.on_oom.look(self, &result);
        }
        result
    }

    /// The figures now, under PyTorch's names and definitions.
    ///
    /// In a forked child: all zero; there is nothing of this allocator's there.
    pub fn stats(&self) -> DeviceStats {
        self.0.home.see(|heap| heap.stats()).unwrap_or_default()
    }

    /// Has every peak begin anew at what there is now: of [`stats`](Allocator::stats), of all [pools](crate::Pool::stats), and of the
    /// [history](Allocator::peak), so that a part of a program can be measured. PyTorch's `reset_peak_memory_stats`. How the allocator
    /// takes memory does not change by it.
    ///
    /// ```
    /// # use gpumem_alloc::{Allocator, Config, Publish, Stream, device};
    /// # fn main() -> Result<(), gpumem_alloc::Error> {
    /// # let config = Config { publish: Publish::Off, ..Config::default() };
    /// # let alloc = Allocator::new(device::sim(Default::default()), config)?;
    /// drop(alloc.alloc::<u8>(64 << 20, Stream::DEFAULT)?); // warming up
    /// alloc.reset_peaks();
    /// drop(alloc.alloc::<u8>(16 << 20, Stream::DEFAULT)?); // what is measured
    /// assert_eq!(alloc.stats().all().requested_bytes.peak, 16 << 20);
    /// # Ok(())
    /// # }
    /// ```
    pub fn reset_peaks(&self) {
        // A forked child has none.
        let _ = self.0.home.with(Heap::reset_peaks);
    }

    /// The free blocks now: how much is free, and in pieces of what size. Costs 0.5 µs with 1,000 live blocks of all sizes
    /// on one stream.
    ///
    /// In a forked child: none.
    pub fn free_blocks(&self) -> FreeBlocks {
        self.0.home.see(|heap| heap.free_blocks()).unwrap_or_default()
    }

    /// Waits for the device and gives all unused memory back to the driver: wholly free segments, and free chunks of
    /// virtual ones. Returns the bytes that came free. When the driver does not take something back it stays in the
    /// cache; the error is returned after everything else was tried.
    ///
    /// # Errors
    /// [`Error::Device`], and [`Error::Capturing`] while a graph is captured: nothing was done then.
    pub fn release_cached(&self) -> Result<u64, Error> {
        let freed = heap::release_cached(&mut self.0.turn()?)?;
        heap::give_back_remains();
        share::let_go_of_left();
        Ok(freed)
    }

    /// Waits for the device: afterwards no queued work uses what was given back before, and what waited for that is free.
    ///
    /// # Errors
    /// [`Error::Capturing`] while a graph is captured, and what the driver says.
    pub fn settle(&self) -> Result<(), Error> {
        heap::wait_for_device(&mut self.0.turn()?)
    }

    /// Sets the most bytes this allocator may take from the driver; `None`: as much as the device has. If more is reserved, the cache
    /// goes back first, as [`release_cached`](Allocator::release_cached) does it; live blocks stay, and nothing new is taken until there is
    /// room again. While a graph is captured nothing goes back: then what is reserved beyond the budget stays until a release, or until it is set
    /// once more.
    ///
    /// Errors when 0 is asked for, which changes nothing, and when the driver fails while the cache goes back: then the budget holds all
    /// the same.
    pub fn set_budget(&self, budget: Option<u64>) -> Result<(), Error> {
        heap::set_budget(&mut self.0.turn()?, budget)
    }

    /// [`set_budget`](Allocator::set_budget) by a fraction of the device's memory, above 0 and at most 1: PyTorch's
    /// `set_per_process_memory_fraction`.
    pub fn set_memory_fraction(&self, fraction: f64) -> Result<(), Error> {
        let config = Config {
            budget_fraction: Some(fraction),
            ..Config::default()
        };
        config.check()?;
        self.set_budget(config.budget_on(self.0.device.info().total)?)
    }

    /// The most bytes this allocator may take from the driver now.
    pub fn budget(&self) -> Option<u64> {
        self.0.home.see(|heap| heap.budget()).unwrap_or_default()
    }

    /// Takes memory for one block of `bytes` on a stream and leaves it free in the cache, so that later requests are cut
    /// from one piece, or where memory is stitched from pieces that are mapped side by side already. While it is taken it is a request like
    /// any other: figures and [reports](Allocator::peak) of the peak count it. It is never of a pool, whatever is
    /// [sent](Allocator::begin_allocate_to_pool) to one.
    pub fn reserve(&self, bytes: u64, stream: Stream) -> Result<(), Error> {
        let home = self.0.home;
        if bytes == 0 {
            return home.with(|_| ());
        }
        let taken = self.told_if_short(home.allocate(COMMON, bytes, stream, false));
        home.give_back(taken?.held)
    }

    /// Makes `bytes` contiguous and free on a stream without new memory and without copying: physical chunks of free
    /// blocks move into one address range. Live blocks keep addresses and contents. Waits for the device first.
    ///
    /// Needs [`SegmentMode::Virtual`](crate::SegmentMode::Virtual). Less than 2 MiB is taken as 2 MiB, and serves no smaller request: these
    /// live in plain segments there. Errors when the whole chunks of all free blocks are too
    /// few; then nothing changed. What other threads ask for on the stream meanwhile may be of what was joined. Memory that moved and cannot
    /// be unmapped where it was is free at its new place, and goes back to the driver only after a later release has unmapped it.
    ///
    /// # Errors
    /// Beside that [`Error::NotVirtual`], [`Error::Device`], and [`Error::Capturing`] while a graph is captured.
    pub fn join_holes(&self, bytes: u64, stream: Stream) -> Result<JoinReport, Error> {
        self.0.end_lost_captures();
        self.0.home.name(|heap| heap.may_join(bytes, stream))?;
        heap::join(&mut self.0.turn()?, bytes, stream)
    }

    /// Makes the cache compact: wholly free plain segments go back to the driver; free chunks of virtual segments are mapped side by
    /// side, without copying, into one free block, and stay; free chunks of stitched memory, and mappings that nothing uses, go back.
    /// Live blocks keep addresses and contents. Waits for the device only if queued work may use free memory.
    ///
    /// [`release_cached`](Allocator::release_cached) gives more back, and what a program then wants again it has to pay for.
    /// When the driver refuses something it stays as it was; the error is returned after everything else was tried. Memory that moved and
    /// cannot be unmapped where it was is such an error, too: it is free, and none of it goes back until a later release has unmapped it.
    ///
    /// # Errors
    /// [`Error::Device`], and [`Error::Capturing`] while a graph is captured: nothing was done then.
    pub fn compact(&self) -> Result<CompactReport, Error> {
        heap::compact(&mut self.0.turn()?)
    }

    /// Looks whether blocks that wait for other streams are free by now, and whether what is left of pools that are gone may go back to the
    /// driver. The allocator does so by itself when it runs short; this is for programs that want their figures up to date.
    pub fn poll(&self) {
        // In a forked child nothing is pending.
        let _ = self.0.home.poll();
    }

    /// Says that a stream is about to be destroyed, and that no other stream uses what it has, but for what was
    /// [recorded](Buffer::record_stream). To be called while it still exists and after the last work was queued on it,
    /// before `cuStreamDestroy`; nothing is waited for but other threads that just ask the driver something about it. An event is recorded
    /// on it, for each pool that used it one more, and none after that.
    ///
    /// Buffers of the stream live on, and as long as one does the stream counts among those that are kept apart
    /// ([`Error::TooManyStreams`]). What is free on it is anybody's once its work is done, and so is each buffer when it is dropped;
    /// until then they are read and written in the order of the default stream, after the ended stream's work. Memory of others that
    /// used it ([`record_stream`](Buffer::record_stream)) waits for that work as before.
    ///
    /// From then on its handle is the name of another stream, which CUDA may make: it must not be used here before. A stream that
    /// this allocator has not seen is nothing to it, and fine.
    ///
    /// # Errors
    /// [`Error::DefaultStream`]: that one is never destroyed; [`Error::PerThreadStream`]. [`Error::Capturing`]: recording the event would
    /// end the capture of a graph; call again when that is over. Nothing changes then.
    pub fn retire_stream(&self, stream: Stream) -> Result<(), Error> {
        self.0.end_lost_captures();
        // The driver is given no handle that is nothing to it.
        if !self.heap(|heap| heap.knows(stream))? {
            return self.0.home.retire_stream(stream, Named::default());
        }
        let id = self.0.device.id_of(stream);
        self.0.home.retire_stream(stream, Named { id, lasts: false })
    }

    /// Publishes a mark on the timeline: "forward", "step 12".
    ///
    /// A channel has room for 1,024 names ([`Options::strings`](crate::Options)), of which marks take 768 at most: further names of marks are
    /// on the timeline without a name, for as long as the allocator lives. A program that goes on for long marks what comes again. A history
    /// has the names of the first 65,535, and others as "(other marks)".
    pub fn mark(&self, name: &str) {
        // A forked child has no timeline.
        let _ = self.heap(|heap| heap.mark(name));
    }

    /// Begins a history, anew if there is one, or ends it: every event with time, thread and call stack, and who holds what.
    /// [`peak`](Allocator::peak), [`leaks`](Allocator::leaks) and the traces of
    /// [`snapshot`](Allocator::snapshot) come from it.
    ///
    /// ```
    /// use gpumem_alloc::{Allocator, Config, History, Stream, device};
    ///
    /// # fn main() -> Result<(), gpumem_alloc::Error> {
    /// # let config = Config { publish: gpumem_alloc::Publish::Off, ..Config::default() };
    /// # let alloc = Allocator::new(device::sim(Default::default()), config)?;
    /// alloc.record_history(History::ON)?;
    /// let mut forgotten = Vec::new();
    /// for _batch in 0..3 {
    ///     forgotten.push(alloc.alloc::<u8>(1 << 20, Stream::DEFAULT)?);
    ///     alloc.step();
    /// }
    /// let leaks = alloc.leaks(2).unwrap(); // what outlived two steps, by who allocated it
    /// assert_eq!(leaks.leaks.iter().map(|leak| leak.bytes).sum::<u64>(), 2 << 20);
    /// println!("{leaks}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// An event then costs 0.1 µs more, and 1.4 to 3.8 µs if its call stack is taken. Memory is bounded:
    /// [`history`](Allocator::history) counts it.
    pub fn record_history(&self, history: History) -> Result<(), Error> {
        self.0.home.record_history(history)
    }

    /// What the history holds and takes; `None` when it is off.
    pub fn history(&self) -> Option<HistoryFigures> {
        self.0.home.give(|heap| heap.history_figures()).unwrap_or_default()
    }

    /// Who held the memory at the peak of what the program held, since the history began or [`reset_peaks`](Allocator::reset_peaks);
    /// `None` when it is off.
    pub fn peak(&self) -> Option<PeakReport> {
        self.0.home.give(|heap| heap.peak_report()).unwrap_or_default()
    }

    /// Ends a step of the program's (a batch, a request), for [`leaks`](Allocator::leaks). Nothing when the history is off.
    pub fn step(&self) {
        // A forked child has no history.
        let _ = self.0.home.give(Heap::step);
    }

    /// The blocks that outlived `min_steps` [`step`](Allocator::step)s, by the place in the program that allocated them, and
    /// which of these grow; `None` when the history is off.
    pub fn leaks(&self, min_steps: u64) -> Option<LeakReport> {
        self.0.home.give(|heap| heap.leak_report(min_steps)).unwrap_or_default()
    }

    /// The segments and blocks now, in PyTorch's format, with the history's events as its trace if there is one. The heap is
    /// locked for a copy of them (10 ms for a million events, up to 0.6 s for a million held blocks); names of functions are looked up
    /// afterwards.
    ///
    /// A stitched block is shown as its pieces, where they lie in their segment: the first one's events and block have what was asked for as
    /// `whole`, the others' the first one's address as `part_of`, by which [`Snapshot::requests`] joins them. Each part of a virtual segment that has
    /// memory is a segment. Marks, steps and retries are `external_annotations`, tags are `tag` of blocks and
    /// `user_metadata` of events, a pool's name is `pool_name` of its segments and its [id](crate::MempoolId) their `segment_pool_id`.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let picture = self.0.home.give(|heap| heap.picture())?;
        Ok(export::snapshot(&picture, true))
    }

    /// Writes [`snapshot`](Allocator::snapshot) into a file that PyTorch's viewers read: JSON if its name ends in `.json`, else a
    /// pickle. A file of that name is replaced when the new one is whole.
    pub fn write_snapshot(&self, path: impl AsRef<Path>) -> Result<(), ExportError> {
        export::write(&self.snapshot()?, path.as_ref(), export::Readers::AsUsual)
    }

    /// Names what the calling thread allocates, on any allocator, until the guard is dropped. The same as
    /// [`gpumem_alloc::scope`](crate::scope), which says how many names there may be.
    pub fn scope(&self, name: &str) -> Scope {
        tag::scope(name)
    }

    /// Starts a thread that looks after fragmentation until the guard is dropped or the allocator ends. [`Config::monitor`] does the
    /// same for as long as there are clones of the allocator.
    ///
    /// # Errors
    /// When the settings cannot work, or there is no thread to be had.
    pub fn monitor(&self, config: MonitorConfig) -> Result<Monitor, Error> {
        Monitor::start(self.0.home, config)
    }

    /// The channel's file, or why there is none.
    pub fn channel(&self) -> Result<PathBuf, String> {
        self.heap(|heap| heap.outlet().path().map(PathBuf::from).map_err(|why| why.to_string()))
            .map_err(|error| error.to_string())?
    }

    /// Says goodbye on the channel, which goes on until the process ends, and has the [monitor](Config::monitor) end. For programs that exit
    /// with the allocator in a global variable, which nothing drops: a channel without it looks like that of a program that was killed. May be
    /// called at any time, by handlers of `exit` that a signal handler runs, too: it waits for nobody, and no other thread of this process, the
    /// one that was interrupted included, has to go on for it.
    pub fn goodbye(&self) {
        if let Some(monitor) = self.0.monitor.get() {
            monitor.end();
        }
        if let Some(goodbye) = &self.0.goodbye {
            goodbye.close();
        }
    }

    /// Ends the channel; the allocator works on without one.
    pub fn stop_publishing(&self) {
        // In a forked child there is no channel.
        let _ = self.heap(Heap::close_outlet);
    }

    /// For who has a lock of its own meanwhile that other threads wait for which have what a [source](crate::Stack::set_source) of stacks waits
    /// for. The stack is taken now.
    #[doc(hidden)]
    pub fn keep_caller(&self) -> Kept {
        self.0.home.keep_caller()
    }

    #[inline]
    pub(crate) fn heap<R>(&self, work: impl FnOnce(&mut Heap) -> R) -> Result<R, Error> {
        self.0.home.with(work)
    }
}
