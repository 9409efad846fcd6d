//! Managed memory on a CUDA device, and its use by kernels and by the CPU.

use std::sync::Arc;

use cudarc::driver::{CudaContext, DriverError, result, sys};
use gpumem_alloc::Stream;

use super::{GpuError, Kernels, arg, while_doing};
use crate::pattern::{Checked, pattern};

/// Bytes of a page of the CPU. Where pages are larger, some are touched several times.
const PAGE: u64 = 4096;

/// Managed memory of a device. Only this object has its address, and each of its methods waits for the GPU.
#[derive(Debug)]
pub(crate) struct Managed {
    context: Arc<CudaContext>,
    address: sys::CUdeviceptr,
    bytes: u64,
}

impl Managed {
    /// Allocates `bytes`. Nothing takes memory until it is touched.
    ///
    /// # Errors
    /// When the device and its system cannot move pages on demand, or the driver refuses.
    pub(crate) fn new(kernels: &Kernels, bytes: u64) -> Result<Managed, GpuError> {
        use sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS as ON_DEMAND;
        let context = Arc::clone(&kernels.context);
        let allocate = || {
            context.bind_to_thread()?;
            if context.attribute(ON_DEMAND)? == 0 {
                return Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_SUPPORTED));
            }
            // SAFETY: the context is current on this thread. The memory is only accessed as whole words, of which any is valid.
            unsafe { result::malloc_managed(bytes as usize, sys::CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL) }
        };
        let address = allocate().map_err(while_doing("allocating managed memory that moves on demand"))?;
        Ok(Managed {
            context,
            address,
            bytes,
        })
    }

    /// Accesses one word of each page of the first `bytes` on the CPU: writes what the pattern of `seed` has there, or reads it and
    /// counts words that differ.
    ///
    /// # Errors
    /// When waiting for the GPU fails.
    pub(crate) fn touch(&mut self, bytes: u64, write: bool, seed: u64) -> Result<Checked, GpuError> {
        self.wait("waiting before the CPU uses managed memory")?;
        let mut checked = Checked::default();
        for offset in (0..bytes.min(self.bytes)).step_by(PAGE as usize) {
            let word = (self.address + offset) as *mut u64;
            let expected = pattern(seed, offset / 8);
            if write {
                // SAFETY: the word is within the allocation, which lives as long as `self`, and aligned. The device moves pages on
                // demand (`new` checked it), so the CPU may access them. No kernel is running, and nobody else has the address.
                unsafe { word.write_volatile(expected) };
            } else {
                // SAFETY: as above; any bytes are a valid word.
                let found = unsafe { word.read_volatile() };
                checked.words += 1;
                if found != expected {
                    checked.mismatches += 1;
                    checked.first.get_or_insert(offset / 8);
                }
            }
        }
        Ok(checked)
    }

    /// Moves everything to the GPU or to the CPU ahead of its use.
    ///
    /// # Errors
    /// When the driver refuses.
    pub(crate) fn prefetch(&mut self, to_gpu: bool) -> Result<(), GpuError> {
        let to = self.device(to_gpu);
        let prefetch = || {
            self.context.bind_to_thread()?;
            // The first version of the call, which drivers of CUDA 12.0 have, too. Newer ones still have it.
            // SAFETY: the range is this object's; the stream is the default one.
            unsafe { sys::cuMemPrefetchAsync(self.address, self.bytes as usize, to, std::ptr::null_mut()) }.result()
        };
        prefetch().map_err(while_doing("cuMemPrefetchAsync"))?;
        self.wait("waiting for cuMemPrefetchAsync")
    }

    /// Says that everything is best kept in the host's memory, or takes that back.
    ///
    /// # Errors
    /// When the driver refuses.
    pub(crate) fn prefer_cpu(&mut self, on: bool) -> Result<(), GpuError> {
        use sys::CUmem_advise_enum::{CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION};
        self.advise(match on {
            true => CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
            false => CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION,
        })
    }

    /// Says that everything is mostly read, or takes that back.
    ///
    /// # Errors
    /// When the driver refuses.
    pub(crate) fn read_mostly(&mut self, on: bool) -> Result<(), GpuError> {
        use sys::CUmem_advise_enum::{CU_MEM_ADVISE_SET_READ_MOSTLY, CU_MEM_ADVISE_UNSET_READ_MOSTLY};
        self.advise(match on {
            true => CU_MEM_ADVISE_SET_READ_MOSTLY,
            false => CU_MEM_ADVISE_UNSET_READ_MOSTLY,
        })
    }

    fn advise(&self, advice: sys::CUmem_advise) -> Result<(), GpuError> {
        let advise = || {
            self.context.bind_to_thread()?;
            // The first version of the call, as for prefetching. Advice on reading ignores the device.
            // SAFETY: the range is this object's.
            unsafe { sys::cuMemAdvise(self.address, self.bytes as usize, advice, self.device(false)) }.result()
        };
        advise().map_err(while_doing("cuMemAdvise"))
    }

    fn device(&self, gpu: bool) -> sys::CUdevice {
        /// `CU_DEVICE_CPU`.
        const CPU: sys::CUdevice = -1;
        if gpu { self.context.cu_device() } else { CPU }
    }

    fn wait(&self, doing: &'static str) -> Result<(), GpuError> {
        self.context.synchronize().map_err(while_doing(doing))
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        // A context that is broken or gone has freed it already.
        if self.context.synchronize().is_ok() && self.context.bind_to_thread().is_ok() {
            // SAFETY: the address came from `malloc_managed` of this object, once, and no kernel is running.
            let _ = unsafe { result::free_sync(self.address) };
        }
    }
}

impl Kernels {
    /// Writes the pattern of `seed` over the first `bytes` of managed memory, and waits.
    ///
    /// # Errors
    /// When the driver refuses the launch, or the kernel faulted.
    pub(crate) fn fill_managed(&self, memory: &mut Managed, bytes: u64, seed: u64) -> Result<(), GpuError> {
        let (mut words, mut count, mut seed) = (memory.address, bytes.min(memory.bytes) / 8, seed);
        let mut args = [arg(&mut words), arg(&mut count), arg(&mut seed)];
        self.launch(self.fill, Stream::DEFAULT, &mut args)
            .map_err(while_doing("filling managed memory"))?;
        self.synchronize()
    }

    /// Compares the first `bytes` of managed memory with the pattern of `seed`.
    ///
    /// # Errors
    /// As [`Kernels::fill_managed`].
    pub(crate) fn check_managed(&self, memory: &mut Managed, bytes: u64, seed: u64) -> Result<Checked, GpuError> {
        self.verdict()?;
        let (mut words, mut count) = (memory.address, bytes.min(memory.bytes) / 8);
        let (mut seed, mut report) = (seed, self.report as u64);
        let checked = count;
        let mut args = [arg(&mut words), arg(&mut count), arg(&mut seed), arg(&mut report)];
        self.launch(self.check, Stream::DEFAULT, &mut args)
            .map_err(while_doing("checking managed memory"))?;
        Ok(Checked {
            words: checked,
            ..self.verdict()?
        })
    }
}
