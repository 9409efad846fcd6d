//! Our allocator as a replayer.

use std::path::Path;

use gpumem_alloc::device::{Call, Device, Sim};
use gpumem_alloc::{Allocator, Buffer, Config, Error, Stream};

use crate::protocol::OutOfMemory;
use crate::replay::ReplayError;
use crate::replay::replayer::{Costs, Peaks, Refused, Replayer, Streams};
use crate::replay::report::Fragmentation;
use crate::trace::{Op, Trace};

/// Our allocator, and the live buffers.
pub(crate) struct Gpumem {
    live: Vec<Option<Buffer<u8>>>,
    streams: Vec<Stream>,
    /// The simulated device, if it lags behind and has work for each block.
    behind: Option<Sim>,
    allocator: Allocator,
}

impl Gpumem {
    pub(crate) fn new(
        device: &Device,
        config: Config,
        trace: &Trace,
        streams: &Streams,
        behind: u32,
    ) -> Result<Gpumem, ReplayError> {
        let allocator = Allocator::new(device.clone(), config).map_err(|error| match error {
            Error::Config { .. } => ReplayError::Settings(error),
            error => ReplayError::while_doing("setting up the allocator", error),
        })?;
        Ok(Gpumem {
            behind: device.as_sim().filter(|_| behind > 0).cloned(),
            ..Gpumem::with(allocator, trace, streams)
        })
    }

    /// Wraps an existing allocator.
    pub(crate) fn with(allocator: Allocator, trace: &Trace, streams: &Streams) -> Gpumem {
        Gpumem {
            live: std::iter::repeat_with(|| None).take(trace.slots).collect(),
            streams: streams.handles.clone(),
            behind: None,
            allocator,
        }
    }

    /// Returns the most bytes that it may take, wherever that was set.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.allocator.budget()
    }

    /// Checks whether there is a channel, which cannot always be created.
    pub(crate) fn publishes(&self) -> bool {
        self.allocator.channel().is_ok()
    }

    /// Returns the state that a request found when it was refused just now.
    pub(crate) fn out_of_memory(&self, requested: u64, why: &(dyn std::error::Error + 'static)) -> OutOfMemory {
        if let Some(Error::OutOfMemory(report)) = why.downcast_ref() {
            return OutOfMemory::from(&**report);
        }
        let (all, free) = (self.allocator.stats().all(), self.allocator.free_blocks());
        OutOfMemory {
            requested,
            free_total: free.total,
            largest_free: free.largest,
            reserved: all.reserved_bytes.current,
            allocated: all.allocated_bytes.current,
            report: why.to_string(),
        }
    }

    /// Replays once more and looks at the figures after every request, to find the state at the peak: the moment when the known
    /// peak is reserved, or else the latest new peak. Looking changes what lanes keep, so later figures may differ.
    pub(crate) fn survey(
        &mut self,
        trace: &Trace,
        reserved_at_peak: Option<u64>,
    ) -> Result<Option<Fragmentation>, ReplayError> {
        let broken = |why: String| ReplayError::while_doing("looking for the peak", why);
        let used = |device: &Device| match device.memory() {
            Ok(memory) => Ok(memory.total.saturating_sub(memory.free)),
            Err(error) => Err(broken(error.to_string())),
        };
        let before = used(self.allocator.device())?;
        let mut found: Option<Fragmentation> = None;
        for (at, op) in trace.ops.iter().enumerate() {
            let (slot, stream, bytes) = match *op {
                Op::Alloc { slot, stream, bytes } => (slot, stream, bytes),
                Op::Free { slot } => {
                    self.free(slot).map_err(broken)?;
                    continue;
                }
            };
            if let Err(Refused::Broken(why)) = self.alloc(slot, bytes, stream) {
                return Err(broken(why));
            }
            let all = self.allocator.stats().all();
            let reserved = all.reserved_bytes.current;
            let more = reserved > found.as_ref().map_or(0, |found| found.reserved);
            if more && reserved >= reserved_at_peak.unwrap_or(0) {
                let free = self.allocator.free_blocks();
                let (requested, allocated) = (all.requested_bytes.current, all.allocated_bytes.current);
                found = Some(Fragmentation {
                    operation: at as u64 + 1,
                    requested,
                    allocated,
                    reserved,
                    device_used: used(self.allocator.device())?.saturating_sub(before),
                    internal: (allocated > 0).then(|| 1.0 - requested as f64 / allocated as f64),
                    external: free.fragmentation(),
                    inactive_split: all.inactive_split_bytes.current as f64 / reserved as f64,
                });
                if reserved_at_peak.is_some() {
                    break;
                }
            }
        }
        Ok(found)
    }
}

impl Replayer for Gpumem {
    #[inline]
    fn alloc(&mut self, slot: u32, bytes: u64, stream: u16) -> Result<(), Refused> {
        let stream = self.streams[usize::from(stream)];
        match self.allocator.alloc(bytes as usize, stream) {
            Ok(buffer) => {
                if let Some(device) = &self.behind {
                    device.enqueue(stream, buffer.device_ptr(), bytes);
                }
                self.live[slot as usize] = Some(buffer);
                Ok(())
            }
            Err(error) => Err(refused(error)),
        }
    }

    #[inline]
    fn free(&mut self, slot: u32) -> Result<(), String> {
        self.live[slot as usize] = None;
        Ok(())
    }

    fn clear(&mut self) -> Result<(), String> {
        self.live.iter_mut().for_each(|buffer| *buffer = None);
        Ok(())
    }

    fn costs(&self) -> Costs {
        let device = self.allocator.device();
        Costs {
            calls: Call::ALL
                .iter()
                .map(|call| (call.name(), device.calls(*call)))
                .collect(),
            calls_ns: Some(device.calls_ns()),
            untimed_ns: 0,
        }
    }

    fn peaks(&mut self) -> Result<Peaks, String> {
        let all = self.allocator.stats().all();
        Ok(Peaks {
            allocated: Some(all.allocated_bytes.peak),
            reserved: Some(all.reserved_bytes.peak),
        })
    }
}

#[cold]
fn refused(error: Error) -> Refused {
    match error {
        Error::OutOfMemory(_) | Error::TooLarge { .. } => Refused::Memory(Box::new(error)),
        error => Refused::Broken(error.to_string()),
    }
}

/// Returns the job of a replay's channel.
pub(crate) fn job(trace: &Path) -> String {
    let name = trace.file_name().unwrap_or_default().to_string_lossy();
    format!("replay {}", gpumem_text::clean(&name))
}
