//! The driver's own allocators as replayers: `cuMemAlloc`, and the stream-ordered pool.

use std::time::Instant;

use gpumem_alloc::Stream;
use gpumem_alloc::device::{Call, Device, Sim};
use gpumem_text::units::bytes_to_pib;

use super::ReplayError;
use super::args::{AllocatorChoice, ReplayArgs};
use super::replayer::{Costs, Peaks, Refused, Replayer, Streams};
use crate::gpu::{DriverMemory, OUT_OF_MEMORY};
use crate::trace::{Op, Trace};

/// The device is queried for its free memory again once this much more is held, which is its granularity. It is also queried
/// at the first block, at the trace's peak, and when a request was refused, because a trace may hold less than this.
const GRANULARITY: u64 = 2 << 20;

/// Returns the device memory that a block takes: large blocks take whole pages, while small ones share theirs.
fn span(bytes: u64) -> u64 {
    match bytes < GRANULARITY {
        true => bytes,
        false => bytes.checked_next_multiple_of(GRANULARITY).unwrap_or(bytes),
    }
}

/// Returns the peak of the spans of a trace's live blocks.
fn peak_span(trace: &Trace) -> u64 {
    let mut spans = vec![0; trace.slots];
    let (mut held, mut peak) = (0_u64, 0);
    for op in &trace.ops {
        match *op {
            Op::Alloc { slot, bytes, .. } => {
                spans[slot as usize] = span(bytes);
                held = held.saturating_add(span(bytes));
                peak = held.max(peak);
            }
            Op::Free { slot } => held = held.saturating_sub(std::mem::take(&mut spans[slot as usize])),
        }
    }
    peak
}

/// The source of allocations.
enum Source {
    Sim(Sim),
    Plain(DriverMemory),
    Pool(DriverMemory),
}

/// A live block.
#[derive(Clone, Copy, Default)]
struct Held {
    /// 0 for none.
    addr: u64,
    bytes: u64,
    stream: u16,
}

/// One of the driver's allocators, and the live blocks.
pub(super) struct Mallocs {
    source: Source,
    device: Device,
    streams: Vec<Stream>,
    live: Vec<Held>,
    /// The most bytes to take from the device. For the pool, which only reports its peak, the most bytes to hold.
    limit: Option<u64>,
    requested: u64,
    /// The sum of the live blocks' [`span`], and the trace's peak of it, which is not reached if the device refuses a request.
    spanned: u64,
    peak: u64,
    refused: bool,
    allocs: u64,
    frees: u64,
    /// The highest `spanned` at which the device was queried, and the most it had given out beyond `baseline`.
    asked_at: u64,
    most_used: u64,
    baseline: u64,
    untimed_ns: u64,
    untimed_modelled_ns: u64,
}

impl Mallocs {
    pub(super) fn new(
        device: &Device,
        args: &ReplayArgs,
        trace: &Trace,
        streams: &Streams,
    ) -> Result<Mallocs, ReplayError> {
        let doing = "setting up the driver's allocator";
        let pool = args.allocator == AllocatorChoice::CudaMallocAsync;
        let source = match (device.as_sim(), device.cuda_context()) {
            (Some(_), _) | (_, None) if pool => return Err(ReplayError::NoPool),
            (_, Some(context)) => {
                let memory = DriverMemory::new(context, pool).map_err(|e| ReplayError::while_doing(doing, e))?;
                if pool {
                    Source::Pool(memory)
                } else {
                    Source::Plain(memory)
                }
            }
            (Some(sim), None) => Source::Sim(sim.clone()),
            (None, None) => return Err(ReplayError::NoPool),
        };
        let mut mallocs = Mallocs {
            source,
            device: device.clone(),
            streams: streams.handles.clone(),
            live: vec![Held::default(); trace.slots],
            limit: args.limit,
            requested: 0,
            spanned: 0,
            peak: peak_span(trace),
            refused: false,
            allocs: 0,
            frees: 0,
            asked_at: 0,
            most_used: 0,
            baseline: 0,
            untimed_ns: 0,
            untimed_modelled_ns: 0,
        };
        mallocs.baseline = mallocs.used().map_err(|e| ReplayError::while_doing(doing, e))?;
        Ok(mallocs)
    }

    /// Returns the device's memory in use by all programs.
    fn used(&self) -> Result<u64, String> {
        let memory = self.device.memory().map_err(|e| e.to_string())?;
        Ok(memory.total.saturating_sub(memory.free))
    }

    /// Runs `work`, which is not the allocator's, and excludes its time.
    fn untimed<R>(&mut self, work: impl FnOnce(&Mallocs) -> Result<R, String>) -> Result<R, String> {
        let modelled = |source: &Source| {
            if let Source::Sim(sim) = source {
                sim.modelled_ns()
            } else {
                0
            }
        };
        let (began, before) = (Instant::now(), modelled(&self.source));
        let done = work(self);
        self.untimed_modelled_ns += modelled(&self.source) - before;
        self.untimed_ns += began.elapsed().as_nanos() as u64;
        done
    }

    /// Queries the memory that the device has given out beyond `baseline`.
    fn ask(&mut self) -> Result<u64, String> {
        Ok(self.untimed(Mallocs::used)?.saturating_sub(self.baseline))
    }

    /// Records the result of a query.
    fn note(&mut self, used: u64) {
        self.asked_at = self.asked_at.max(self.spanned);
        self.most_used = self.most_used.max(used);
    }

    /// Queries the device, unless it was queried with as much held.
    fn ask_at_new_peak(&mut self) -> Result<(), String> {
        if self.spanned > self.asked_at {
            let used = self.ask()?;
            self.note(used);
        }
        Ok(())
    }

    /// Checks whether to query the device after a block was taken. A simulated one is queried each time, which is cheap.
    fn is_worth_asking(&self) -> bool {
        let (now, before) = (self.spanned, self.asked_at);
        let grown = before == 0 || now >= before.saturating_add(GRANULARITY) || now >= self.peak;
        self.limit.is_some() || matches!(self.source, Source::Sim(_)) || now > before && grown
    }

    /// Queries the device after a block was taken. Returns false if it exceeds the limit; the block is then freed.
    fn within_limit(&mut self, taken: Held) -> Result<bool, Refused> {
        let used = self.ask().map_err(Refused::Broken)?;
        if self.limit.is_some_and(|limit| used > limit) {
            self.untimed(|mallocs| mallocs.give_back(taken))
                .map_err(Refused::Broken)?;
            return Ok(false);
        }
        self.note(used);
        Ok(true)
    }

    /// Returns the refusal of a request. `limit` describes the limit, because the held memory may be below it.
    fn beyond_limit(&self, bytes: u64, limit: &str) -> Refused {
        let [bytes, held, most] = [bytes, self.requested, self.limit.unwrap_or(0)].map(bytes_to_pib);
        Refused::Memory(format!("{bytes} requested, {held} held, {limit} {most}").into())
    }

    fn release(&mut self, held: Held) -> Result<(), String> {
        self.requested -= held.bytes;
        self.spanned -= span(held.bytes);
        self.frees += 1;
        self.give_back(held)
    }

    fn give_back(&self, held: Held) -> Result<(), String> {
        match &self.source {
            Source::Sim(sim) => sim.free(held.addr).map_err(|e| e.to_string()),
            Source::Plain(memory) => memory.free(held.addr).map_err(|e| e.to_string()),
            Source::Pool(memory) => {
                let stream = self.streams[usize::from(held.stream)];
                memory.free_async(held.addr, stream).map_err(|e| e.to_string())
            }
        }
    }
}

impl Replayer for Mallocs {
    fn alloc(&mut self, slot: u32, bytes: u64, stream: u16) -> Result<(), Refused> {
        if self
            .limit
            .is_some_and(|limit| self.requested.saturating_add(bytes) > limit)
        {
            return Err(self.beyond_limit(bytes, "limit"));
        }
        self.allocs += 1;
        let refused = |out_of_memory: bool, why: String| {
            if out_of_memory {
                Refused::Memory(why.into())
            } else {
                Refused::Broken(why)
            }
        };
        let of_gpu = |e: crate::GpuError| refused(e.code() == OUT_OF_MEMORY, e.to_string());
        let addr = match &self.source {
            Source::Sim(sim) => sim
                .alloc(bytes)
                .map_err(|e| refused(e.is_out_of_memory(), e.to_string())),
            Source::Plain(memory) => memory.alloc(bytes).map_err(of_gpu),
            Source::Pool(memory) => {
                let stream = self.streams[usize::from(stream)];
                memory.alloc_async(bytes, stream).map_err(of_gpu)
            }
        };
        let pool = matches!(self.source, Source::Pool(_));
        if addr.is_err() && !pool {
            self.refused = true;
            self.ask_at_new_peak().map_err(Refused::Broken)?;
        }
        let taken = Held {
            addr: addr?,
            bytes,
            stream,
        };
        self.requested += bytes;
        self.spanned += span(bytes);
        if !pool && self.is_worth_asking() && !self.within_limit(taken)? {
            self.requested -= bytes;
            self.spanned -= span(bytes);
            return Err(self.beyond_limit(bytes, "for which the device gives more than the limit of"));
        }
        self.live[slot as usize] = taken;
        Ok(())
    }

    fn free(&mut self, slot: u32) -> Result<(), String> {
        if self.refused {
            self.ask_at_new_peak()?;
        }
        match std::mem::take(&mut self.live[slot as usize]) {
            Held { addr: 0, .. } => Ok(()),
            held => self.release(held),
        }
    }

    fn clear(&mut self) -> Result<(), String> {
        for slot in 0..self.live.len() {
            self.free(slot as u32)?;
        }
        if let Source::Pool(memory) = &self.source {
            memory.synchronize().map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn costs(&self) -> Costs {
        let (alloc, free) = match self.source {
            Source::Pool(_) => ("cuMemAllocAsync", "cuMemFreeAsync"),
            _ => (Call::Alloc.name(), Call::Free.name()),
        };
        let calls_ns = match &self.source {
            Source::Sim(sim) => Some(sim.modelled_ns() - self.untimed_modelled_ns),
            _ => None,
        };
        Costs {
            calls: vec![(alloc, self.allocs), (free, self.frees)],
            calls_ns,
            untimed_ns: self.untimed_ns,
        }
    }

    fn peaks(&mut self) -> Result<Peaks, String> {
        match &self.source {
            Source::Pool(memory) => {
                let (used, reserved) = memory.pool_peaks().map_err(|e| e.to_string())?;
                Ok(Peaks {
                    allocated: Some(used),
                    reserved: Some(reserved),
                })
            }
            _ => {
                self.ask_at_new_peak()?;
                // If the device reports no growth, the blocks lie in memory that was taken before, for the context or by others.
                let known = self.most_used > 0 || self.asked_at == 0;
                Ok(Peaks {
                    allocated: None,
                    reserved: known.then_some(self.most_used),
                })
            }
        }
    }
}

impl Drop for Mallocs {
    fn drop(&mut self) {
        // A failure is already the replay's error.
        let _ = self.clear();
    }
}
