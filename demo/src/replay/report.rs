//! What a replay found: the one JSON object of `replay --json`, with the fields' names and units.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::trace::Trace;

/// The schema that every report names. Within one schema fields are only ever added.
pub const SCHEMA: &str = "gpumem-replay/1";

/// A replay. Sizes in bytes, times in nanoseconds; `null` where a figure is not to be had.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// True on the simulated device: whoever shows a figure of this report labels it SIMULATED.
    pub simulated: bool,
    /// How many blocks a simulated device was behind: each is used by work, which is done once so many more were handed out.
    pub behind: u64,
    /// The device's name.
    pub device: String,
    /// Its memory.
    pub device_total: u64,
    /// What was replayed.
    pub trace: TracePart,
    /// Through what.
    pub allocator: AllocatorPart,
    /// The memory it took.
    pub memory: MemoryPart,
    /// The time it took.
    pub time: TimePart,
    /// Requests that found too little memory, in all passes. The replay goes on without them, and skips their frees.
    pub out_of_memory: Failures,
}

impl Default for Report {
    fn default() -> Report {
        Report {
            schema: SCHEMA,
            simulated: false,
            behind: 0,
            device: String::new(),
            device_total: 0,
            trace: TracePart::default(),
            allocator: AllocatorPart::default(),
            memory: MemoryPart::default(),
            time: TimePart::default(),
            out_of_memory: Failures::default(),
        }
    }
}

/// What was replayed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TracePart {
    /// Its file.
    pub file: String,
    /// `csv`, `rmm log` or `pytorch snapshot`.
    pub format: &'static str,
    /// Whether the file was compressed.
    pub compressed: bool,
    /// Allocations and frees.
    pub operations: u64,
    /// Streams.
    pub streams: u64,
    /// Requests of 0 bytes, which are not replayed.
    pub zero_sized: u64,
    /// Requests that failed when the trace was recorded, which are not replayed.
    pub recorded_failures: u64,
    /// Entries of a snapshot whose action is not known, which are not replayed.
    pub unknown_actions: u64,
    /// What people are told of those.
    #[serde(skip)]
    pub unknown_names: Vec<String>,
    /// Operations that the recording lacks, of PyTorch's or RMM's: blocks that were live when it began, frees in its gaps. They are replayed.
    pub assumed: u64,
    /// Further devices of the recording, which are not replayed: only the one with the longest history is.
    pub other_devices: u64,
    /// Rows of a log and entries of a history that make no sense, which are not replayed.
    pub odd_rows: u64,
    /// Frees of another size than their blocks have. They are replayed.
    pub other_sizes: u64,
    /// Logs in the file, replayed one after the other.
    pub logs: u64,
    /// Whether the file ends too early: what is there is replayed.
    pub cut: bool,
    /// What people are told of the odd rows.
    #[serde(skip)]
    pub odd: Option<String>,
    /// What people are told besides.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// Highest sum of bytes asked for and not freed.
    pub peak_requested: u64,
    /// Blocks that the trace never frees.
    pub live_at_end_blocks: u64,
    /// Bytes of those.
    pub live_at_end_bytes: u64,
    /// Time to read the file; no other time contains it.
    pub parse_ns: u64,
}

impl TracePart {
    pub(super) fn new(file: String, trace: &Trace, parse_ns: u64) -> TracePart {
        TracePart {
            file,
            format: trace.format.name(),
            compressed: trace.compressed,
            operations: trace.ops.len() as u64,
            streams: trace.streams.len() as u64,
            zero_sized: trace.zero_sized,
            recorded_failures: trace.recorded_failures,
            unknown_actions: trace.unknown_actions,
            unknown_names: trace.unknown_names.clone(),
            assumed: trace.assumed,
            other_devices: trace.other_devices,
            odd_rows: trace.odd.rows,
            other_sizes: trace.odd.sizes,
            logs: 1 + trace.odd.more_logs,
            cut: trace.odd.cut.is_some(),
            odd: trace.odd.left_out(trace.format),
            notes: trace.odd.notes(),
            peak_requested: trace.peak_requested,
            live_at_end_blocks: trace.live_blocks,
            live_at_end_bytes: trace.live_bytes,
            parse_ns,
        }
    }
}

/// Through what a trace was replayed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AllocatorPart {
    /// Its name on the command line.
    pub name: String,
    /// How our allocator took memory for large blocks; `null` for the others.
    pub segments: Option<String>,
    /// Most bytes it was allowed, by whatever allows least; `null`: as many as the device has.
    pub limit: Option<u64>,
    /// Whether it published meanwhile.
    pub publishing: bool,
}

/// The memory of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemoryPart {
    /// Highest sum of bytes asked for, got, and not freed, in the first pass.
    pub peak_requested: u64,
    /// Highest sum of blocks after rounding, in the first pass.
    pub peak_allocated: Option<u64>,
    /// Most physical memory taken from the device in the first pass: all pools, all streams.
    pub peak_reserved: Option<u64>,
    /// `peak_reserved / peak_requested`.
    pub ratio: Option<f64>,
    /// `peak_reserved` of all passes.
    pub peak_reserved_of_all_passes: Option<u64>,
    /// The state of our allocator when it first held its most memory; `null` for the others, which do not tell.
    pub fragmentation: Option<Fragmentation>,
}

/// The state of an allocator at one moment of a first pass. Measured in a pass of its own, on a new allocator that does not publish.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fragmentation {
    /// The operation it was after, from 1.
    pub operation: u64,
    /// Bytes asked for and not freed at that moment.
    pub requested: u64,
    /// Those after rounding.
    pub allocated: u64,
    /// Physical memory taken from the device, as the allocator counts it.
    pub reserved: u64,
    /// The same as the device counts it: what it has given out since the allocator was made, to whomever.
    pub device_used: u64,
    /// 1 - requested / allocated; `null` when nothing was allocated.
    pub internal: Option<f64>,
    /// 1 - largest free block / all free; `null` when nothing was free.
    pub external: Option<f64>,
    /// Free blocks that live neighbours pin in their segment / reserved.
    pub inactive_split: f64,
}

/// The time of a replay: of the loop over all operations, with the driver calls on a GPU. On the simulated device it holds that
/// device's bookkeeping, and what the calls would cost is apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TimePart {
    /// Of the first pass.
    pub cold_ns_per_op: f64,
    /// Of the best later pass, modelled driver calls counted; `null` when there was none.
    pub steady_ns_per_op: Option<f64>,
    /// The pass that was, from 1.
    pub steady_pass: Option<u32>,
    /// What the loop itself takes of each of these, as measured with an allocator that does nothing.
    pub own_ns_per_op: f64,
    /// `modelled` on the simulated device; `measured` on a GPU: within the times.
    pub driver_cost: &'static str,
    /// Every pass.
    pub passes: Vec<Pass>,
}

/// One pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pass {
    /// In all.
    pub ns: u64,
    /// Divided by the operations.
    pub ns_per_op: f64,
    /// Driver calls by name.
    pub driver_calls: BTreeMap<String, u64>,
    /// What these calls would cost on a GPU. On one what our allocator's did, within `ns`, but for questions and events (`cuStreamQuery`,
    /// `cuEventQuery`, `cuEventRecord`); `null` for the others.
    pub driver_ns: Option<u64>,
    /// Requests that found too little memory.
    pub out_of_memory: u64,
}

/// Requests that found too little memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Failures {
    /// In all passes.
    pub count: u64,
    /// The first.
    pub first: Option<FirstFailure>,
}

/// The first request that found too little memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FirstFailure {
    /// The pass, from 1.
    pub pass: u32,
    /// The operation, from 1.
    pub operation: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// What the allocator says.
    pub message: String,
}

impl TimePart {
    /// Fills in what follows from the passes.
    pub(super) fn settle(&mut self, simulated: bool) {
        let Some((first, later)) = self.passes.split_first() else {
            return;
        };
        self.cold_ns_per_op = first.ns_per_op;
        self.driver_cost = if simulated { "modelled" } else { "measured" };
        let best = (2..)
            .zip(later)
            .min_by_key(|(_, pass)| pass.ns + pass.driver_ns.filter(|_| simulated).unwrap_or(0));
        self.steady_ns_per_op = best.map(|(_, pass)| pass.ns_per_op);
        self.steady_pass = best.map(|(number, _)| number);
    }
}
