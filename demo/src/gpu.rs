//! The kernels on a CUDA device, and the driver's own allocators. This is the only module of the crate that calls the driver.
#![allow(unsafe_code)]

mod driver_memory;
mod managed;
mod modules;
mod rig;

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::{CudaContext, DriverError, result, sys};
use gpumem_alloc::{Buffer, Element, Stream};

use crate::kernels::{CHECK, FILL, WORK};
use crate::pattern::Checked;

use modules::Modules;

pub(crate) use driver_memory::DriverMemory;
pub(crate) use rig::{CudaClaims, CudaRig};

/// Threads per block and blocks per grid: enough to fill any GPU. The kernels stride over the rest.
const BLOCK: u32 = 256;
const GRID: u32 = 2048;

/// The kernels, loaded into a device's context. Work runs on the legacy default stream, in order. The caller must synchronise
/// buffers that another stream uses, too.
#[derive(Debug)]
pub struct Kernels {
    context: Arc<CudaContext>,
    fill: sys::CUfunction,
    check: sys::CUfunction,
    work: sys::CUfunction,
    modules: Modules,
    /// Two words of pinned host memory for the check kernel's report, so that it takes no device memory.
    report: *mut u64,
}

/// A kernel call that failed.
#[derive(Debug, thiserror::Error)]
#[error("{doing} failed: {}", gpumem_alloc::device::driver_message(*error))]
pub struct GpuError {
    doing: &'static str,
    error: DriverError,
}

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: i32 = sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as i32;

impl GpuError {
    /// Returns the driver's error number.
    pub(crate) fn code(&self) -> i32 {
        self.error.0 as i32
    }
}

fn while_doing(doing: &'static str) -> impl FnOnce(DriverError) -> GpuError {
    move |error| GpuError { doing, error }
}

impl Kernels {
    /// Loads the kernels into a device's context.
    ///
    /// # Errors
    /// When the driver refuses them, for example because it is older than R525.
    pub fn new(context: &Arc<CudaContext>) -> Result<Kernels, GpuError> {
        let mut gpu = Kernels {
            context: Arc::clone(context),
            fill: std::ptr::null_mut(),
            check: std::ptr::null_mut(),
            work: std::ptr::null_mut(),
            modules: Modules::new(context),
            report: std::ptr::null_mut(),
        };
        gpu.fill = gpu.modules.load(FILL)?;
        gpu.check = gpu.modules.load(CHECK)?;
        gpu.work = gpu.modules.load(WORK)?;
        // SAFETY: the context is current on this thread (loading bound it); the memory is written before it is read.
        let report = unsafe { result::malloc_host(2 * size_of::<u64>(), 0) };
        gpu.report = report.map_err(while_doing("allocating pinned memory"))?.cast();
        gpu.verdict()?;
        Ok(gpu)
    }

    /// Waits for all work.
    ///
    /// # Errors
    /// When any of it failed.
    pub fn synchronize(&self) -> Result<(), GpuError> {
        self.context
            .synchronize()
            .map_err(while_doing("waiting for the kernels"))
    }

    /// Queues writing the pattern of `seed` over the first `bytes` of a buffer, or over all of it if that is less. Bytes
    /// after the last whole word of 8 are left alone.
    ///
    /// # Errors
    /// When the buffer is of another device, or the driver refuses the launch. A fault of the kernel is reported by the next
    /// call that waits.
    pub fn fill<T: Element>(&self, buffer: &mut Buffer<T>, bytes: u64, seed: u64) -> Result<(), GpuError> {
        self.own(buffer)?;
        let (mut words, mut count, mut seed) = (buffer.device_ptr(), bytes.min(buffer.bytes()) / 8, seed);
        let mut args = [arg(&mut words), arg(&mut count), arg(&mut seed)];
        self.launch(self.fill, buffer.stream(), &mut args)
            .map_err(while_doing("filling a block"))
    }

    /// Compares a buffer with the pattern of `seed` and waits for the result.
    ///
    /// # Errors
    /// When the buffer is of another device, the driver refuses the launch, or this or an earlier kernel faulted.
    pub fn check<T: Element>(&self, buffer: &Buffer<T>, seed: u64) -> Result<Checked, GpuError> {
        self.verdict()?;
        self.queue_check(buffer, seed)?;
        let found = self.verdict()?;
        Ok(Checked {
            words: buffer.bytes() / 8,
            ..found
        })
    }

    /// Queues comparing a buffer with the pattern of `seed` on the buffer's stream. [`Kernels::verdict`] has the result.
    ///
    /// # Errors
    /// When the buffer is of another device, or the driver refuses the launch.
    pub fn queue_check<T: Element>(&self, buffer: &Buffer<T>, seed: u64) -> Result<(), GpuError> {
        self.own(buffer)?;
        let (mut words, mut count) = (buffer.device_ptr(), buffer.bytes() / 8);
        let (mut seed, mut report) = (seed, self.report as u64);
        let mut args = [arg(&mut words), arg(&mut count), arg(&mut seed), arg(&mut report)];
        self.launch(self.check, buffer.stream(), &mut args)
            .map_err(while_doing("checking a block"))
    }

    /// Waits for all work, and returns the result of all comparisons queued since the last verdict. It does not count their words.
    ///
    /// # Errors
    /// When any of the work failed.
    pub fn verdict(&self) -> Result<Checked, GpuError> {
        self.synchronize()?;
        // SAFETY: `report` is two words of pinned memory of this object; every kernel that uses it has ended.
        let (mismatches, first) = unsafe {
            let found = (self.report.read_volatile(), self.report.add(1).read_volatile());
            self.report.write_volatile(0);
            self.report.add(1).write_volatile(u64::MAX);
            found
        };
        Ok(Checked {
            words: 0,
            mismatches,
            first: (mismatches != 0).then_some(first),
        })
    }

    /// Queues a layer's work: `out` from `input`, or from nothing, with `rounds` multiply-adds per float.
    ///
    /// # Errors
    /// As [`Kernels::fill`].
    pub fn work(&self, out: &Buffer<f32>, input: Option<&Buffer<f32>>, rounds: u32) -> Result<(), GpuError> {
        self.own(out)?;
        input.map_or(Ok(()), |input| self.own(input))?;
        let stream = out.stream();
        let (mut out, mut out_count) = (out.device_ptr(), out.bytes() / 4);
        let (mut input, mut in_count) = input.map_or((0, 0), |input| (input.device_ptr(), input.bytes() / 4));
        let mut rounds = rounds;
        let mut args = [
            arg(&mut out),
            arg(&mut out_count),
            arg(&mut input),
            arg(&mut in_count),
            arg(&mut rounds),
        ];
        self.launch(self.work, stream, &mut args)
            .map_err(while_doing("computing a layer"))
    }

    /// Refuses a buffer of another device or the simulated one, whose address means nothing here.
    fn own<T: Element>(&self, buffer: &Buffer<T>) -> Result<(), GpuError> {
        let theirs = buffer.allocator().ok();
        let theirs = theirs.as_ref().and_then(|allocator| allocator.device().cuda_context());
        let theirs = theirs.map(|context| context.cu_ctx());
        if theirs == Some(self.context.cu_ctx()) {
            return Ok(());
        }
        let refused = DriverError(sys::CUresult::CUDA_ERROR_INVALID_CONTEXT);
        Err(while_doing("using a buffer of another device")(refused))
    }

    fn launch(&self, function: sys::CUfunction, stream: Stream, args: &mut [*mut c_void]) -> Result<(), DriverError> {
        self.context.bind_to_thread()?;
        let stream = stream.0 as sys::CUstream;
        // SAFETY: a buffer's stream outlives it; `function` belongs to a module of this object; `args` has as many values, of the
        // same widths, as the kernel has parameters, and the driver copies them before it returns.
        unsafe { result::launch_kernel(function, (GRID, 1, 1), (BLOCK, 1, 1), 0, stream, args) }
    }
}

fn arg<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

impl Drop for Kernels {
    fn drop(&mut self) {
        // A context that is broken or gone has freed all of this already.
        if self.synchronize().is_err() {
            return;
        }
        if !self.report.is_null() {
            // SAFETY: the pointer came from `malloc_host` of this object, once.
            let _ = unsafe { result::free_host(self.report.cast()) };
        }
    }
}

/// Checks whether NVIDIA's driver library is on this machine, working or not.
pub(crate) fn driver_present() -> bool {
    // SAFETY: this loads a shared library by name; the driver's initialisers are as trusted as the driver.
    unsafe { sys::is_culib_present() }
}

/// Checks whether a run without a chosen device gets the simulated one. People get it where NVIDIA's driver is not installed,
/// and read that it is simulated. Programs never get it.
pub(crate) fn may_simulate(for_programs: bool) -> bool {
    !for_programs && !driver_present()
}
