//! The report of a replay: the JSON object of `replay --json`, with the names and units of its fields.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::trace::Trace;

/// The schema that every report names. Within one schema fields are only ever added.
pub const SCHEMA: &str = "gpumem-replay/1";

/// The report of a replay. Sizes are in bytes, times in nanoseconds; unavailable figures are `null`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// True on the simulated device. Every figure of this report must then be labelled SIMULATED.
    pub simulated: bool,
    /// How many blocks a simulated device lagged behind: each block is used by work that is done once this many more blocks have
    /// been allocated.
    pub behind: u64,
    /// The device's name.
    pub device: String,
    /// The device's memory.
    pub device_total: u64,
    /// What was replayed.
    pub trace: TracePart,
    /// The allocator that served the requests.
    pub allocator: AllocatorPart,
    /// The memory it took.
    pub memory: MemoryPart,
    /// The time it took.
    pub time: TimePart,
    /// Requests that found too little memory in all passes. The replay goes on without them and skips their frees.
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
    /// The file's name.
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
    /// The names of these actions, for the text report.
    #[serde(skip)]
    pub unknown_names: Vec<String>,
    /// Operations missing from a recording of PyTorch or RMM: blocks that were live when it began, frees in its gaps. They are
    /// replayed.
    pub assumed: u64,
    /// Further devices of the recording. Only the one with the longest history is replayed.
    pub other_devices: u64,
    /// Invalid rows of a log and entries of a history, which are not replayed.
    pub odd_rows: u64,
    /// Frees with a different size than their blocks. They are replayed.
    pub other_sizes: u64,
    /// Logs in the file, which are replayed in sequence.
    pub logs: u64,
    /// Whether the file is truncated. The operations before its end are replayed.
    pub cut: bool,
    /// The invalid rows, for the text report.
    #[serde(skip)]
    pub odd: Option<String>,
    /// Further notes, for the text report.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// Peak of requested bytes that were not freed.
    pub peak_requested: u64,
    /// Blocks that the trace never frees.
    pub live_at_end_blocks: u64,
    /// Bytes of these blocks.
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

/// The allocator that served the requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AllocatorPart {
    /// Its name on the command line.
    pub name: String,
    /// How our allocator took memory for large blocks; `null` for the others.
    pub segments: Option<String>,
    /// The most bytes it was allowed, by the lowest of all limits; `null` for no limit but the device's memory.
    pub limit: Option<u64>,
    /// Whether it published during the replay.
    pub publishing: bool,
}

/// The memory of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemoryPart {
    /// Peak of bytes requested, served and not freed in the first pass.
    pub peak_requested: u64,
    /// Peak of the same after rounding, in the first pass.
    pub peak_allocated: Option<u64>,
    /// Peak of physical memory taken from the device in the first pass, over all pools and streams.
    pub peak_reserved: Option<u64>,
    /// `peak_reserved / peak_requested`.
    pub ratio: Option<f64>,
    /// `peak_reserved` of all passes.
    pub peak_reserved_of_all_passes: Option<u64>,
    /// The state of our allocator when it first reached its reserved peak; `null` for the others, which do not report it.
    pub fragmentation: Option<Fragmentation>,
}

/// The state of an allocator at one moment of a first pass, measured in a separate pass on a new allocator that does not
/// publish.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fragmentation {
    /// The operation after which it was measured, from 1.
    pub operation: u64,
    /// Requested bytes that were not freed.
    pub requested: u64,
    /// The same after rounding.
    pub allocated: u64,
    /// Physical memory taken from the device, as the allocator counts it.
    pub reserved: u64,
    /// The same as the device counts it: what it has given out to all programs since the allocator was created.
    pub device_used: u64,
    /// 1 - requested / allocated; `null` when nothing was allocated.
    pub internal: Option<f64>,
    /// 1 - largest free block / all free; `null` when nothing was free.
    pub external: Option<f64>,
    /// Free blocks that live neighbours pin in their segment / reserved.
    pub inactive_split: f64,
}

/// The time of a replay: that of the loop over all operations, including the driver calls on a GPU. On the simulated device it
/// includes the device's bookkeeping, and the modelled cost of calls is separate.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TimePart {
    /// Time per operation of the first pass.
    pub cold_ns_per_op: f64,
    /// Time per operation of the best later pass, including modelled driver calls; `null` if there was none.
    pub steady_ns_per_op: Option<f64>,
    /// The number of that pass, from 1.
    pub steady_pass: Option<u32>,
    /// The cost of the loop itself per operation, measured with an allocator that does nothing.
    pub own_ns_per_op: f64,
    /// `modelled` on the simulated device; `measured` on a GPU, where it is part of the times.
    pub driver_cost: &'static str,
    /// Every pass.
    pub passes: Vec<Pass>,
}

/// One pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pass {
    /// The time of the whole pass.
    pub ns: u64,
    /// The same per operation.
    pub ns_per_op: f64,
    /// Driver calls by name.
    pub driver_calls: BTreeMap<String, u64>,
    /// The modelled cost of these calls on a GPU. On a real one the measured cost for our allocator, which is part of `ns` and
    /// leaves out queries and events (`cuStreamQuery`, `cuEventQuery`, `cuEventRecord`); `null` for the others.
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
    /// The requested bytes.
    pub bytes: u64,
    /// The allocator's message.
    pub message: String,
}

impl TimePart {
    /// Fills in the fields that follow from the passes.
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
