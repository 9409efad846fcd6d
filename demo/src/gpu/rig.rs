//! The benchmarks' device on CUDA.

mod attributes;
mod chase;
mod claims;
mod copy;
mod event;
mod functions;
mod memory;
mod own_stream;
mod peer;
mod stream;

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::{CudaContext, DriverError, result, sys};
use gpumem_alloc::device::Device;

use super::{GpuError, while_doing};
use crate::kernels::CHAIN;
use crate::rig::{Card, Chase, Chased, Clocks, Load, Moved, Place, Rig, RigError, Route, Stream};
use chase::Ring;
pub(crate) use claims::CudaClaims;
use copy::HostMemory;
use event::Event;
use functions::Functions;
use memory::{Arena, Pinned};
use peer::PeerMemory;

/// Words of the kernels' report; see `kernels/chase.cu`.
const REPORT_WORDS: usize = 8;

/// A CUDA device with the kernels of the benchmarks and all memory that they use. Work runs on the legacy default stream.
///
/// The device's memory is one allocation of the budget's size, so that no measurement can take more. Memory of a peer GPU is at most as
/// much again, on one peer at a time.
#[derive(Debug)]
pub(crate) struct CudaRig {
    card: Card,
    context: Arc<CudaContext>,
    functions: Functions,
    /// The kernels' report, in pinned memory of the host.
    report: Pinned,
    events: [Event; 2],
    arena: Arena,
    ring: Option<Ring>,
    /// Bytes at the arena's beginning that hold the word that the reading kernels expect.
    filled: u64,
    host: Option<HostMemory>,
    /// Memory of the peer that was measured last.
    peer: Option<PeerMemory>,
    load_ns: u64,
    // Last, because its context has to outlive what is above.
    _device: Device,
}

impl CudaRig {
    /// Opens a device and runs a first kernel. `budget` says how many bytes to take of those that are then free.
    ///
    /// # Errors
    /// When the device, the kernels or the memory cannot be had, or `budget` refuses.
    pub(crate) fn open<E: From<GpuError>>(
        device: Device,
        budget: impl FnOnce(u64) -> Result<u64, E>,
    ) -> Result<CudaRig, E> {
        let refused = || while_doing("making a context")(DriverError(sys::CUresult::CUDA_ERROR_INVALID_CONTEXT));
        let context = Arc::clone(device.cuda_context().ok_or_else(refused)?);
        context.bind_to_thread().map_err(while_doing("making a context"))?;
        let began = Instant::now();
        let mut functions = Functions::new(&context);
        functions.get(CHAIN)?;
        let loading = began.elapsed();
        let card = attributes::card(&context, device.info())?;
        let report = Pinned::new(&context, REPORT_WORDS * size_of::<u64>())?;
        let events = [Event::new()?, Event::new()?];
        let (free, _) = result::mem_get_info().map_err(while_doing("asking for free memory"))?;
        let arena = Arena::new(&context, budget(free as u64)? & !255)?;
        let mut rig = CudaRig {
            card,
            context,
            functions,
            report,
            events,
            arena,
            ring: None,
            filled: 0,
            host: None,
            peer: None,
            load_ns: 0,
            _device: device,
        };
        let began = Instant::now();
        rig.try_chain(64)?;
        rig.load_ns = u64::try_from((loading + began.elapsed()).as_nanos()).unwrap_or(u64::MAX);
        Ok(rig)
    }

    /// Returns the bytes of device memory that the measurements may use.
    pub(crate) fn budget(&self) -> u64 {
        self.arena.bytes
    }

    /// Returns how long it took to load the first kernel and to run it, in nanoseconds. The context was there.
    pub(crate) fn load_ns(&self) -> u64 {
        self.load_ns
    }

    /// Queues a kernel.
    fn launch(&self, function: sys::CUfunction, shape: Shape, args: &mut [*mut c_void]) -> Result<(), DriverError> {
        let Shape {
            blocks,
            threads,
            shared,
        } = shape;
        // SAFETY: the function belongs to a module of this object; `args` has as many values, of the same widths, as the kernel has
        // parameters, and the driver copies them before it returns; addresses among them are those of memory of this object.
        unsafe {
            result::launch_kernel(
                function,
                (blocks, 1, 1),
                (threads, 1, 1),
                shared,
                result::stream::null(),
                args,
            )
        }
    }

    /// Sets the report to zeros. No kernel is running.
    fn clear_report(&self) {
        for word in 0..REPORT_WORDS {
            // SAFETY: the report has this many words, and no kernel that uses it is running.
            unsafe { self.report.address.cast::<u64>().add(word).write_volatile(0) };
        }
    }

    /// Waits for the kernels, and returns their report.
    fn report(&self) -> Result<[u64; REPORT_WORDS], DriverError> {
        self.context.synchronize()?;
        let mut words = [0; REPORT_WORDS];
        for (at, word) in words.iter_mut().enumerate() {
            // SAFETY: the report has this many words, and no kernel that uses it is running.
            *word = unsafe { self.report.address.cast::<u64>().add(at).read_volatile() };
        }
        Ok(words)
    }
}

/// The shape of a launch.
#[derive(Clone, Copy, Debug)]
struct Shape {
    blocks: u32,
    threads: u32,
    /// Bytes of shared memory of a block.
    shared: u32,
}

impl Shape {
    /// One thread, for a chase.
    const SINGLE: Shape = Shape {
        blocks: 1,
        threads: 1,
        shared: 0,
    };
}

impl From<GpuError> for RigError {
    fn from(error: GpuError) -> RigError {
        RigError(error.to_string())
    }
}

impl Rig for CudaRig {
    fn card(&self) -> &Card {
        &self.card
    }

    fn lay(&mut self, place: Place, next: &[u32]) -> Result<(), RigError> {
        self.lay_ring(place, next)
    }

    fn chase(&mut self, chase: Chase) -> Result<Chased, RigError> {
        match chase.load {
            Load::Ca | Load::Cg => self.chase_global(chase),
            Load::Shared | Load::SharedIndex => self.chase_shared(chase),
        }
    }

    fn chain(&mut self, steps: u32) -> Result<Clocks, RigError> {
        Ok(self.try_chain(steps)?)
    }

    fn stream(&mut self, stream: Stream) -> Result<Moved, RigError> {
        self.run_stream(stream)
    }

    fn copy(&mut self, route: Route, bytes: u64) -> Result<Moved, RigError> {
        self.copy_by_driver(route, bytes)
    }
}
