//! The trait of replayers: an allocator with the live blocks.

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use gpumem_alloc::Stream;
use gpumem_alloc::device::{Device, driver_message};
use gpumem_channel::PER_THREAD_STREAMS;

use crate::trace::Trace;

/// Why a request got no block.
pub(crate) enum Refused {
    /// Too little memory. The reason is put into words only when it is shown.
    Memory(Box<dyn Error>),
    /// Any other failure, which ends the replay.
    Broken(String),
}

/// The driver calls so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Costs {
    /// The number of calls by their names.
    pub(crate) calls: Vec<(&'static str, u64)>,
    /// Their cost in nanoseconds: modelled on the simulated device, or measured on a real one if it is.
    pub(crate) calls_ns: Option<u64>,
    /// Time spent on querying the device, in nanoseconds, which is not the allocator's.
    pub(crate) untimed_ns: u64,
}

/// Peaks so far, in bytes; `None` where the allocator does not keep them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peaks {
    /// Held by the program after rounding.
    pub(crate) allocated: Option<u64>,
    /// Physical memory taken from the device.
    pub(crate) reserved: Option<u64>,
}

/// An allocator that a trace is replayed on. Slots and streams are the trace's.
pub(crate) trait Replayer {
    /// Requests a block for a free slot.
    fn alloc(&mut self, slot: u32, bytes: u64, stream: u16) -> Result<(), Refused>;
    /// Frees the block of a slot; does nothing if its request was refused.
    fn free(&mut self, slot: u32) -> Result<(), String>;
    /// Frees every block.
    fn clear(&mut self) -> Result<(), String>;
    fn costs(&self) -> Costs;
    fn peaks(&mut self) -> Result<Peaks, String>;
}

/// One stream of the device for each stream of the trace.
pub(crate) struct Streams {
    pub(crate) handles: Vec<Stream>,
    /// Keeps the handles valid.
    _streams: Vec<Arc<CudaStream>>,
}

impl Streams {
    pub(crate) fn new(device: &Device, trace: &Trace) -> Result<Streams, String> {
        let mut streams = Streams {
            handles: Vec::new(),
            _streams: Vec::new(),
        };
        for number in &trace.streams {
            let handle = match device.as_sim() {
                None if *number != 0 => {
                    let context = device.cuda_context().ok_or("the driver refuses another context")?;
                    let stream = context.new_stream().map_err(driver_message)?;
                    let handle = Stream::from(&stream);
                    streams._streams.push(stream);
                    handle
                }
                // A per-thread stream of the recorded program would be taken for that of a thread that has ended. The numbers
                // after those are not used as handles, either.
                _ if PER_THREAD_STREAMS.contains(number) => {
                    Stream(number - PER_THREAD_STREAMS.start + PER_THREAD_STREAMS.end)
                }
                _ => Stream(*number),
            };
            streams.handles.push(handle);
        }
        Ok(streams)
    }
}
