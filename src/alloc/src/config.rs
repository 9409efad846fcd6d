//! What an allocator can be told.

use gpumem_text::units::bytes_to_pib;

use crate::conf::Note;
use crate::error::Error;
use crate::history::History;
use crate::monitor::MonitorConfig;
use crate::publish::Publish;
use crate::rounding::Divisions;
use crate::size::{MAX_CHUNK, MID_SEGMENT};

/// How memory for large blocks is taken from the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentMode {
    /// What takes least memory: stitched where the device can map memory into address ranges and nothing was asked for that only plain
    /// segments have, else plain.
    #[default]
    Auto,
    /// One `cuMemAlloc` per segment: a segment stays what it is until it is wholly free.
    Plain,
    /// Reserved address ranges into which physical chunks are mapped: they grow in place, free chunks can be given back
    /// from anywhere, and holes can be joined ([`Allocator::join_holes`](crate::Allocator::join_holes)). Requests from
    /// 2 MiB are rounded to 2 MiB; smaller ones live in plain segments.
    Virtual,
    /// Two address ranges made of physical chunks, one for requests up to 1 MiB and one for larger ones (pools live in plain segments); a
    /// request that no free block fits is stitched from free pieces that lie apart, mapped side by side a second time, before any new
    /// memory is taken, and then no more than is missing.
    Stitched,
}

impl SegmentMode {
    /// Every mode.
    pub const ALL: [SegmentMode; 4] = [
        SegmentMode::Auto,
        SegmentMode::Plain,
        SegmentMode::Virtual,
        SegmentMode::Stitched,
    ];

    /// Its name in configurations and on command lines.
    pub fn name(self) -> &'static str {
        match self {
            SegmentMode::Auto => "auto",
            SegmentMode::Plain => "plain",
            SegmentMode::Virtual => "virtual",
            SegmentMode::Stitched => "stitched",
        }
    }
}

/// What an allocator can be told. `Config::default()` is a good start.
///
/// The options that PyTorch has too mean what they mean there (`PYTORCH_CUDA_ALLOC_CONF`).
#[derive(Clone, Debug)]
pub struct Config {
    /// Most bytes this allocator may take from the driver. `None`: as much as the device has.
    pub budget: Option<u64>,
    /// The same as a fraction of the device's memory, above 0 and at most 1. The smaller of the two counts.
    pub budget_fraction: Option<f64>,
    /// How memory for large blocks is taken from the driver.
    pub segments: SegmentMode,
    /// Largest physical chunk of virtual and stitched segments in bytes: a power of two, raised to the device's granularity. What is taken
    /// beyond a quarter of the device or budget has stitched chunks of about half the request at most, or 6 MiB.
    pub max_chunk: u64,
    /// Plain blocks larger than this many bytes, at least 20 MiB, are not split, and smaller requests do not take them. Rounded up to
    /// 2 MiB. `None`: every block is split. Only for plain segments. A block of exactly this size is split, as PyTorch's manual has
    /// it; its code does not.
    pub max_split_size: Option<u64>,
    /// A request above `max_split_size` takes a block that is larger by less than this many bytes, at least 20 MiB.
    pub max_non_split_rounding: u64,
    /// How sizes are rounded beyond 512 B.
    pub roundup_power2_divisions: Divisions,
    /// When more than this fraction of the budget is reserved, plain segments that have been idle for long are given back before
    /// new memory is taken. Above 0 and below 1. Without a budget it has no effect, and leaves [`SegmentMode::Auto`] as it is; only for plain
    /// segments.
    pub garbage_collection_threshold: Option<f64>,
    /// Whether a request that does not fit gives the cache back to the driver and tries again before it fails, and a part of a full device's
    /// stitched memory (1/64 of the device) goes back to others once it is cached.
    pub release_on_oom: bool,
    /// Whether what one stream has freed may serve another one before the device was waited for: once the first stream was seen to be idle
    /// after the free, or an event that was recorded there after it is done. It saves memory where several streams take turns.
    ///
    /// Off by default, as PyTorch's allocator has it: a program is right there that frees a block of stream A while stream B still reads it,
    /// and has A wait for B only before A allocates again. With this on a third stream may get the block while B reads it. Such a program has
    /// to have A wait before the free, or to say what uses the block ([`record_stream`](crate::Buffer::record_stream)).
    ///
    /// Off, memory goes from one stream to another only after the allocator has waited for the device: under memory pressure, before a
    /// request is refused, and when the cache is released.
    ///
    /// For the C functions, whose programs destroy streams without a word, one event tells how far all streams are, and not one for each. It needs a driver for CUDA 12.5, and recording it ends the capture of a graph that the allocator was not told of.
    pub cross_stream_reuse: bool,
    /// Whether streams may be destroyed without a word to the allocator, as those of C, PyTorch, CuPy and RMM may. The driver is then given no
    /// handle that the program did not pass in the same call.
    #[doc(hidden)]
    pub streams_may_end_untold: bool,
    /// Whether network cards and storage can reach mapped memory (GPUDirect RDMA, as UCX and cuFile use it), as they can plain memory. `None`:
    /// where the device can ([`DeviceInfo::gpu_direct_rdma`](crate::device::DeviceInfo::gpu_direct_rdma)). Only for virtual and stitched
    /// segments, a mapping of which takes 20 % longer for it on an H100.
    pub gpu_direct_rdma: Option<bool>,
    /// Whether and how the allocator publishes its state.
    pub publish: Publish,
    /// What is recorded from the beginning; [`Allocator::record_history`](crate::Allocator::record_history) changes it later.
    pub history: History,
    /// What a thread of its own looks for that watches fragmentation. `None`: there is none.
    pub monitor: Option<MonitorConfig>,
    /// What the text that it was read from says without effect, but for what a budget may change:
    /// [`without_effect`](Config::without_effect) has all.
    pub notes: Vec<Note>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            budget: None,
            budget_fraction: None,
            segments: SegmentMode::Auto,
            max_chunk: MAX_CHUNK,
            max_split_size: None,
            max_non_split_rounding: MID_SEGMENT,
            roundup_power2_divisions: Divisions::default(),
            garbage_collection_threshold: None,
            release_on_oom: true,
            cross_stream_reuse: false,
            streams_may_end_untold: false,
            gpu_direct_rdma: None,
            publish: Publish::default(),
            history: History::Off,
            monitor: None,
            notes: Vec::new(),
        }
    }
}

impl Config {
    /// Whether it can work at all, on a device that can do what it asks for. [`Allocator::new`](crate::Allocator::new) asks this
    /// too. [`parse`](Config::parse) also refuses `max_chunk_mb` with plain segments: in a text it was meant, while a field always has some value.
    ///
    /// # Errors
    /// [`Error::Config`] names the setting and says why it cannot.
    pub fn check(&self) -> Result<(), Error> {
        let plain = matches!(self.segments, SegmentMode::Auto | SegmentMode::Plain);
        let above = |value: f64, most: bool| value > 0.0 && (value < 1.0 || most && value == 1.0);
        let rules: [(bool, &'static str, String); 9] = [
            (
                self.budget == Some(0),
                "budget",
                "0 bytes leave no room for anything; use None for no budget".into(),
            ),
            (
                self.budget_fraction.is_some_and(|part| !above(part, true)),
                "budget_fraction",
                "must be above 0 and at most 1".into(),
            ),
            (
                !self.max_chunk.is_power_of_two(),
                "max_chunk",
                "must be a power of two".into(),
            ),
            (
                self.max_split_size.is_some_and(|limit| limit < MID_SEGMENT),
                "max_split_size",
                format!(
                    "must be at least {}, the size of the segments that requests share",
                    bytes_to_pib(MID_SEGMENT)
                ),
            ),
            (
                self.max_non_split_rounding < MID_SEGMENT,
                "max_non_split_rounding",
                format!("must be at least {}", bytes_to_pib(MID_SEGMENT)),
            ),
            (
                self.max_split_size.is_some() && !plain,
                "max_split_size",
                format!(
                    "means nothing with {} segments, whose blocks leave what they do not need to others: use plain ones, or leave it out",
                    self.segments.name()
                ),
            ),
            (
                self.garbage_collection_threshold
                    .is_some_and(|part| !above(part, false)),
                "garbage_collection_threshold",
                "must be above 0 and below 1".into(),
            ),
            (
                self.garbage_collection_threshold.is_some() && self.has_budget() && !plain,
                "garbage_collection_threshold",
                format!(
                    "means nothing with {} segments, which are never idle as a whole: use plain ones, or leave it out",
                    self.segments.name()
                ),
            ),
            (
                self.gpu_direct_rdma == Some(true) && self.segments_on(true) == SegmentMode::Plain,
                "gpu_direct_rdma",
                "means nothing with plain segments, which can be reached as they are: leave it out".into(),
            ),
        ];
        match rules.into_iter().find(|(broken, ..)| *broken) {
            Some((_, setting, reason)) => Err(Error::Config { setting, reason }),
            None => self
                .history
                .check()
                .and(self.monitor.as_ref().map_or(Ok(()), MonitorConfig::check)),
        }
    }

    /// What [`segments`](Config::segments) come to on a device that can map memory into address ranges, or cannot: [`SegmentMode::Auto`] is one
    /// of the others there.
    pub fn segments_on(&self, virtual_memory: bool) -> SegmentMode {
        let collects = self.garbage_collection_threshold.is_some() && self.has_budget();
        let only_plain = self.max_split_size.is_some() || collects;
        match self.segments {
            SegmentMode::Auto if virtual_memory && !only_plain => SegmentMode::Stitched,
            SegmentMode::Auto => SegmentMode::Plain,
            asked => asked,
        }
    }

    pub(crate) fn has_budget(&self) -> bool {
        self.budget.is_some() || self.budget_fraction.is_some()
    }

    /// Most bytes to take from a device that has `total`.
    pub(crate) fn budget_on(&self, total: u64) -> Result<Option<u64>, Error> {
        let part = self.budget_fraction.map(|part| (total as f64 * part) as u64);
        if part == Some(0) {
            return Err(Error::Config {
                setting: "budget_fraction",
                reason: format!("that part of {total} bytes is no memory"),
            });
        }
        Ok(self.budget.into_iter().chain(part).min())
    }
}
