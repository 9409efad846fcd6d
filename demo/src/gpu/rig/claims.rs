//! The GPU of `bench claims` on CUDA. Work runs on a stream of its own, which does not wait for the legacy default stream.

mod accesses;
mod allocations;
mod copies;
mod managed;
mod pipeline;
mod program;

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::{CudaContext, DriverError, result, sys};
use gpumem_alloc::ManagedBuffer;
use gpumem_alloc::device::Device;

use super::copy::HostMemory;
use super::event::Event;
use super::functions::Functions;
use super::memory::{Arena, Pinned};
use super::own_stream::OwnStream;
use super::{CudaRig, REPORT_WORDS, attributes};
use crate::gpu::{GpuError, arg, while_doing};
use crate::kernels::{READ, WRITE};
use crate::rig::claims::ClaimRig;
use crate::rig::{Card, Rig, RigError};
use program::Program;

/// Threads of a block, and blocks of an SM, of kernels that access device memory.
const THREADS: u32 = 256;
const BLOCKS: u32 = 16;
/// Device memory that [`ClaimRig::calibrate`] reads, and the word that is there.
const CALIBRATION_BYTES: u64 = 64 << 20;
const CALIBRATION_WORD: u32 = 0x9e37_79b9;
/// How often it reads it: for about a millisecond on a large card.
const CALIBRATION_ROUNDS: u32 = 50;

/// A CUDA device on which claims are checked.
#[derive(Debug)]
pub(crate) struct CudaClaims {
    card: Card,
    budget: u64,
    hierarchy: Option<CudaRig>,
    context: Arc<CudaContext>,
    functions: Functions,
    /// Before the stream, whose handle its allocator has.
    program: Option<Program>,
    /// The kernels' report, in pinned memory of the host.
    report: Pinned,
    stream: OwnStream,
    events: [Event; 2],
    /// Device memory that one claim uses again and again, and what the kernels have written there.
    memory: Option<Arena>,
    contents: Contents,
    host: Option<HostMemory>,
    managed: Option<ManagedBuffer<u32>>,
    /// Last, because its context has to outlive what is above.
    device: Device,
}

/// What is in the device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    Unknown,
    /// Each of so many words holds its index.
    Numbers(u64),
    /// Each of so many bytes' words holds [`CALIBRATION_WORD`].
    Calibration(u64),
}

/// Returns the nanoseconds since `began`.
fn ns_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl CudaClaims {
    /// Opens a device. `budget` says how many bytes its measurements may use of those that are free.
    ///
    /// # Errors
    /// When the device cannot be had, or `budget` refuses.
    pub(crate) fn open<E: From<GpuError>>(
        device: Device,
        budget: impl FnOnce(u64) -> Result<u64, E>,
    ) -> Result<CudaClaims, E> {
        let refused = || while_doing("making a context")(DriverError(sys::CUresult::CUDA_ERROR_INVALID_CONTEXT));
        let context = Arc::clone(device.cuda_context().ok_or_else(refused)?);
        context.bind_to_thread().map_err(while_doing("making a context"))?;
        let mut functions = Functions::new(&context);
        // A driver that refuses the first kernel refuses all.
        functions.get(READ)?;
        let card = attributes::card(&context, device.info())?;
        let report = Pinned::new(&context, REPORT_WORDS * size_of::<u64>())?;
        let stream = OwnStream::new()?;
        let events = [Event::new()?, Event::new()?];
        let (free, _) = result::mem_get_info().map_err(while_doing("asking for free memory"))?;
        Ok(CudaClaims {
            card,
            budget: budget(free as u64)?,
            hierarchy: None,
            functions,
            report,
            stream,
            events,
            memory: None,
            contents: Contents::Unknown,
            host: None,
            managed: None,
            program: None,
            context,
            device,
        })
    }

    fn within_budget(&self, bytes: u64) -> Result<(), RigError> {
        match bytes <= self.budget {
            true => Ok(()),
            false => Err(RigError(format!(
                "{bytes} bytes are not within the budget of {}",
                self.budget
            ))),
        }
    }

    /// Returns the address of device memory of at least so many bytes. What was there may be lost.
    fn memory(&mut self, bytes: u64) -> Result<u64, RigError> {
        self.within_budget(bytes)?;
        let arena = match self.memory.take() {
            Some(arena) if arena.bytes >= bytes => arena,
            small => {
                drop(small);
                self.contents = Contents::Unknown;
                Arena::new(&self.context, bytes)?
            }
        };
        Ok(self.memory.insert(arena).address)
    }

    /// Queues a kernel of so many blocks and threads.
    fn launch(
        &self,
        stream: &OwnStream,
        function: sys::CUfunction,
        (blocks, threads): (u32, u32),
        args: &mut [*mut c_void],
    ) -> Result<(), DriverError> {
        // SAFETY: the function belongs to a module of this object; `args` has as many values, of the same widths, as the kernel has
        // parameters, and the driver copies them before it returns; addresses among them are those of memory of this object.
        unsafe { result::launch_kernel(function, (blocks, 1, 1), (threads, 1, 1), 0, stream.handle(), args) }
    }

    /// Returns the blocks and threads that fill the device.
    fn whole(&self) -> (u32, u32) {
        (self.card.sms.saturating_mul(BLOCKS), THREADS)
    }

    /// Runs a kernel that fills the device and reports the threads that found wrong data, and returns how long it took by the
    /// device's clock.
    fn timed(&self, doing: &'static str, function: sys::CUfunction, args: &mut [*mut c_void]) -> Result<u64, RigError> {
        self.timed_as(doing, function, self.whole(), args)
    }

    /// The same with so many blocks and threads.
    fn timed_as(
        &self,
        doing: &'static str,
        function: sys::CUfunction,
        shape: (u32, u32),
        args: &mut [*mut c_void],
    ) -> Result<u64, RigError> {
        self.clear_report();
        let [before, after] = &self.events;
        let mut run = || -> Result<u64, DriverError> {
            before.record_on(&self.stream)?;
            self.launch(&self.stream, function, shape, args)?;
            after.record_on(&self.stream)?;
            after.ns_since(before)
        };
        let ns = run().map_err(while_doing(doing))?;
        match self.read_report() {
            0 => Ok(ns),
            wrong => Err(RigError(format!(
                "{doing}: {wrong} threads found other data than was written"
            ))),
        }
    }

    /// Queues a kernel of one thread that takes `ns` nanoseconds and writes 8 bytes to `address`.
    fn spin(&self, spin: sys::CUfunction, ns: u64, address: u64) -> Result<(), DriverError> {
        let (mut ns, mut block, mut report) = (ns, address, self.report.on_device());
        let mut args = [arg(&mut ns), arg(&mut block), arg(&mut report)];
        self.launch(&self.stream, spin, (1, 1), &mut args)
    }

    /// Sets the first word of the report to 0. No kernel is running.
    fn clear_report(&self) {
        // SAFETY: the report has this word, and no kernel that uses it is running.
        unsafe { self.report.address.cast::<u64>().write_volatile(0) };
    }

    /// Returns the first word of the report. No kernel is running.
    fn read_report(&self) -> u64 {
        // SAFETY: the report has this word, and no kernel that uses it is running.
        unsafe { self.report.address.cast::<u64>().read_volatile() }
    }
}

impl ClaimRig for CudaClaims {
    fn card(&self) -> &Card {
        &self.card
    }

    fn budget(&self) -> u64 {
        self.budget
    }

    fn hierarchy(&mut self) -> Result<&mut dyn Rig, RigError> {
        let rig = match self.hierarchy.take() {
            Some(rig) => rig,
            None => {
                self.tidy();
                CudaRig::open::<GpuError>(self.device.clone(), |_| Ok(self.budget))?
            }
        };
        Ok(self.hierarchy.insert(rig))
    }

    fn calibrate(&mut self) -> Result<u64, RigError> {
        let bytes = CALIBRATION_BYTES.min(self.budget);
        let (read, write) = (self.functions.get(READ)?, self.functions.get(WRITE)?);
        let (mut data, mut count) = (self.memory(bytes)?, bytes / 16);
        let (mut rounds, mut word, mut report) = (CALIBRATION_ROUNDS, CALIBRATION_WORD, self.report.on_device());
        if self.contents != Contents::Calibration(bytes) {
            self.contents = Contents::Unknown;
            let mut args = [arg(&mut data), arg(&mut count), arg(&mut word)];
            self.timed("writing device memory", write, &mut args)?;
            self.contents = Contents::Calibration(bytes);
        }
        let mut args = [
            arg(&mut data),
            arg(&mut count),
            arg(&mut rounds),
            arg(&mut word),
            arg(&mut report),
        ];
        self.timed("reading device memory", read, &mut args)
    }

    fn tidy(&mut self) {
        self.hierarchy = None;
        self.memory = None;
        self.contents = Contents::Unknown;
        self.host = None;
        self.managed = None;
        self.program = None;
    }
}
