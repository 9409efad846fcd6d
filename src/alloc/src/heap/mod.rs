//! The heap: one device's blocks and segments, and every operation on them. One thread at a time.
//!
//! | file or folder | what |
//! |---|---|
//! | `block`, `segment`, `streams`, `ledger` | the state |
//! | `chain` | the blocks of a segment, and the index of the free ones: cut, merge |
//! | `allocate` | best fit, split |
//! | `short` | the same for most requests |
//! | `inside` | a certain place inside a free block |
//! | `obtain` | what is tried when nothing fits |
//! | `corner` | the same for small requests, most of the time |
//! | `give_back` | free, coalesce |
//! | `lend` | blocks lent to lanes, and which are worth it; size classes for small sizes that seldom come again |
//! | `room`, `wish` | who may count how much before a peak rises |
//! | `retire` | streams that end |
//! | `pending` | blocks that other streams still use; how far streams are known to be done |
//! | `ask` | short driver calls, without the heap's lock |
//! | `turn` | long driver calls without the heap's lock |
//! | `foreign` | reuse across streams |
//! | `arena`, `tally`, `capture` | pools: memory apart from everybody else's |
//! | `budget` | how much may be taken from the driver |
//! | `grow` | memory from the driver |
//! | `release` | memory to the driver, remapping, the end |
//! | `stitch` | one block from pieces that lie apart |
//! | `layout` | where requests went before, and placing them there again |
//! | `raw` | what the driver gave that a block lies in |
//! | `explain` | the out-of-memory report |
//! | `narrate` | what the channel is told |
//! | `picture` | a copy of the state, for snapshots |
//! | `remember` | the history: begun, told what the channel is not, asked |
//!
//! Invariants: blocks tile their segment; neighbouring free blocks belong to different streams or to none; a free block is in the
//! index of its stream and class; one that is lent is held, to the heap; a block without memory is in its segment's `holes`; every
//! figure of the ledger is what counting the blocks would give that are not lent.

mod ages;
mod allocate;
mod arena;
mod ask;
mod block;
mod budget;
mod capture;
mod chain;
mod corner;
mod expected;
mod explain;
mod foreign;
mod give_back;
mod grow;
mod inside;
mod layout;
mod ledger;
mod lend;
mod narrate;
mod obtain;
mod others;
mod pending;
mod picture;
mod raw;
mod release;
mod remember;
mod retire;
mod room;
mod segment;
mod short;
mod slots;
mod stitch;
mod streams;
mod tally;
#[cfg(test)]
mod tests;
mod turn;
mod wish;

use std::collections::HashMap;
use std::sync::Arc;

use gpumem_channel::{DeviceKind, DeviceStats, StringId};

use crate::config::{Config, SegmentMode};
use crate::device::{DeviceInfo, Driver};
use crate::error::Error;
use crate::free::FreeBlocks;
use crate::lane::{Front, Held, Lent, Record};
use crate::publish::Outlet;
use crate::size::{LARGE_ROUND, Sizes};
use arena::Arenas;
use ask::asking::Asked;
use ask::wonder::Wondering;
use block::Blocks;
use grow::fineness::Fineness;
use layout::Layouts;
use ledger::Ledger;
use narrate::labels::Labels;
use others::Others;
pub(crate) use segment::Chunk;
use segment::Segments;
use stitch::views::Views;
use streams::Streams;
use turn::{Calls, Progress};

pub(crate) use arena::{COMMON, NewPool, release_pool, set_pool_budget, shrink_closing};
pub(crate) use ask::errands::{Errands, run_errands};
pub(crate) use ask::poll;
pub(crate) use ask::wonder::Wonder;
pub(crate) use block::{NIL, some};
pub(crate) use budget::set_budget;
pub(crate) use capture::begin_capture;
pub(crate) use narrate::now;
pub(crate) use pending::Named;
pub(crate) use picture::{Past, Picture, PicturedBlock, PicturedSegment};
pub use release::compact::CompactReport;
pub(crate) use release::compact::compact;
pub(crate) use release::end::give_back_remains;
pub use release::join::JoinReport;
pub(crate) use release::join::join;
pub(crate) use release::release_cached;
pub(crate) use retire::{
    Unmet, forget_awaited_streams, forget_streams, has_ended, retire_left_by_threads, retire_stream,
};
pub(crate) use turn::Attempt;
pub(crate) use turn::access::{Access, wait_for_device};

/// A block handed out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) block: u32,
    pub(crate) addr: u64,
    /// Bytes of the block, at least what was asked for.
    #[cfg_attr(not(test), expect(dead_code, reason = "who holds a block asks for them"))]
    pub(crate) size: u64,
    /// How it is given back.
    pub(crate) held: Held,
}

impl Grant {
    /// What of it goes to who asked for it.
    #[inline(always)]
    pub(crate) fn lent(self) -> Lent {
        Lent {
            addr: self.addr,
            held: self.held,
        }
    }

    /// A block that is not lent to a lane.
    #[inline(always)]
    fn by_heap(block: u32, addr: u64, size: u64) -> Grant {
        Grant {
            block,
            addr,
            size,
            held: Held::by_heap(block),
        }
    }
}

/// One device's memory as the allocator sees it.
#[derive(Debug)]
pub(crate) struct Heap {
    driver: Arc<dyn Driver>,
    sizes: Sizes,
    budget: Option<u64>,
    release_on_oom: bool,
    /// [`Config::cross_stream_reuse`].
    shares_across_streams: bool,
    /// [`Config::streams_may_end_untold`].
    streams_may_end_untold: bool,
    gpu_direct_rdma: bool,
    /// Idle segments are given back before more than this part of the budget is reserved.
    collect_at: Option<f64>,
    blocks: Blocks,
    segments: Segments,
    streams: Streams,
    arenas: Arenas,
    /// The last of the pools that are gone which a request [looked at](Heap::give_back_gone).
    looked_at_gone: u16,
    /// Captures of graphs that are under way.
    captures: u32,
    /// Whether the driver knows that there are some.
    capture_told: bool,
    ledger: Ledger,
    /// Whether a block that comes free takes in what is nobody's beside it.
    swallows: bool,
    /// Whether a stream outside of pools was behind when others last needed what it has free.
    behind: bool,
    /// Frees so far: the clock by which blocks become safe for other streams.
    frees: u64,
    /// What it was when the device was waited for last.
    settled_at: u64,
    /// Other streams that used a block since it was allocated, where there are any.
    users: HashMap<u32, Vec<pending::User>>,
    /// How many events each pending block waits for.
    waits: HashMap<u32, usize>,
    /// The virtual segment of stitched memory for large requests.
    home: Option<u32>,
    views: Views,
    layouts: Layouts,
    fineness: Fineness,
    others: Others,
    /// Chunks of no segment that could not be given back, or not be unmapped before that, which are reserved; used first by growth, tried again
    /// at every release.
    orphans: Vec<Chunk>,
    /// Free blocks that are on their way back to the driver, or to another address.
    apart: usize,
    /// What is to be done once the heap's lock is let go of, and whether there is anything.
    errands: Errands,
    due: bool,
    /// Arenas that are to be [given back](Heap::leave_closing).
    closing: Vec<u16>,
    /// Streams that the driver is yet to [meet](crate::device::Driver::meet).
    unmet: Vec<crate::stream::Stream>,
    expected: expected::Expected,
    asked: Arc<Asked>,
    /// Slots of blocks that others took in, until the channel is told. Empty between operations.
    gone: Vec<u32>,
    /// What the request that is being served does for a driver call; and what was done for it so far.
    calls: Calls,
    progress: Option<Box<Progress>>,
    /// What it wonders on the short way.
    wondering: Wondering,
    /// The lines that requests know which are suspended now, as often as one does.
    suspended: Vec<u16>,
    front: &'static Front,
    /// Whether blocks are lent to lanes.
    lends: bool,
    /// Room for what comes back from them, and for what becomes nobody's: segments and blocks.
    returned: Vec<Record>,
    disowned: Vec<(u32, u32)>,
    /// Room for what is left of blocks that pieces are cut out of.
    left: Vec<u32>,
    outlet: Outlet,
    labels: Labels,
    /// The channel's string of each tag; `None` until first used.
    tags: Vec<Option<StringId>>,
}

impl Heap {
    /// A heap behind a front that has no lanes yet.
    pub(crate) fn new(driver: Arc<dyn Driver>, config: &Config, front: &'static Front) -> Result<Heap, Error> {
        let info = driver.info();
        let config = &Config {
            segments: config.segments_on(info.virtual_memory),
            ..config.clone()
        };
        let granularity = check_settings(info, config)?;
        let budget = config.budget_on(info.total)?;
        let outlet = Outlet::open(&config.publish, &narrate::describe(info, budget));
        let sizes = Sizes::new(config, granularity);
        front.round_as(&sizes);
        Ok(Heap {
            sizes,
            budget,
            collect_at: config.garbage_collection_threshold,
            release_on_oom: config.release_on_oom,
            shares_across_streams: config.cross_stream_reuse,
            streams_may_end_untold: config.streams_may_end_untold,
            gpu_direct_rdma: config.gpu_direct_rdma.unwrap_or(info.gpu_direct_rdma),
            blocks: Blocks::default(),
            segments: Segments::default(),
            streams: Streams::new(info.kind == DeviceKind::Cuda),
            arenas: Arenas::default(),
            looked_at_gone: 0,
            captures: 0,
            capture_told: false,
            ledger: Ledger::default(),
            swallows: true,
            behind: false,
            frees: 0,
            settled_at: 0,
            users: HashMap::new(),
            waits: HashMap::new(),
            home: None,
            views: Views::default(),
            layouts: Layouts::new(config.segments == SegmentMode::Stitched),
            fineness: Fineness::default(),
            others: Others::on(info),
            orphans: Vec::new(),
            apart: 0,
            errands: Errands::default(),
            due: false,
            closing: Vec::new(),
            unmet: Vec::new(),
            expected: Default::default(),
            asked: Arc::default(),
            gone: Vec::new(),
            calls: Calls::default(),
            progress: None,
            wondering: Wondering::default(),
            suspended: Vec::new(),
            front,
            lends: true,
            returned: Vec::new(),
            disowned: Vec::new(),
            left: Vec::new(),
            outlet,
            labels: Labels::new(&config.publish),
            tags: vec![Some(StringId(0))],
            driver,
        })
    }

    pub(crate) fn stats(&mut self) -> DeviceStats {
        let mut stats = *self.ledger.stats();
        self.add_lanes(&mut stats);
        stats
    }

    /// Peaks count from now on, pools' and the history's too.
    pub(crate) fn reset_peaks(&mut self) {
        let ledger = &mut self.ledger;
        self.front.each(|lane| ledger.take_leave(&mut lane.counts));
        ledger.reset_peaks();
        self.arenas.reset_peaks();
        if let Some(recorder) = self.outlet.recorder_mut() {
            recorder.reset_peak();
        }
        self.tell_figures();
    }

    pub(crate) fn free_blocks(&mut self) -> FreeBlocks {
        self.drain_all();
        self.count_free()
    }

    /// The same with what is set aside counted in the total only.
    pub(crate) fn count_free(&self) -> FreeBlocks {
        FreeBlocks {
            total: self.free_bytes(),
            ..self.indexed_free(self.streams.indices())
        }
    }

    /// Bytes that are free, and those set aside.
    fn free_bytes(&self) -> u64 {
        let ledger = &self.ledger;
        ledger.reserved() - ledger.loose() - self.allocated_bytes() - ledger.pending()
    }

    pub(crate) fn outlet(&self) -> &Outlet {
        &self.outlet
    }

    pub(crate) fn close_outlet(&mut self) {
        self.front.each(|lane| lane.outlet = None);
        self.outlet.close();
    }
}

/// Checks what an allocator is told against what the device is; the unit of virtual segments.
fn check_settings(info: &DeviceInfo, config: &Config) -> Result<u64, Error> {
    let fail = |setting, reason: &str| {
        Err(Error::Config {
            setting,
            reason: reason.to_owned(),
        })
    };
    config.check()?;
    if !info.granularity.is_power_of_two() {
        return fail("segments", "the device's granularity is not a power of two");
    }
    if config.segments != SegmentMode::Plain && !info.virtual_memory {
        return fail(
            "segments",
            "this device cannot map memory into address ranges: use plain ones (SegmentMode::Plain, segments:plain)",
        );
    }
    if config.gpu_direct_rdma == Some(true) && !info.gpu_direct_rdma {
        return fail("gpu_direct_rdma", "this device cannot map memory for it: leave it out");
    }
    Ok(info.granularity.max(LARGE_ROUND))
}
