//! Allocations by the driver and from a cache, timed by the host's clock.

use std::sync::Barrier;
use std::time::Instant;

use cudarc::driver::{DriverError, result};

use super::program::Program;
use super::{CudaClaims, ns_since};
use crate::gpu::{GpuError, while_doing};
use crate::kernels::SPIN;
use crate::rig::RigError;
use crate::rig::claims::{Allocations, FreeBehind, Malloc, Op, Source};

/// Allocates and frees on the current thread, to which the context is bound.
fn malloc_and_free(bytes: u64) -> Result<Malloc, GpuError> {
    let began = Instant::now();
    // SAFETY: the context is current on this thread; nothing reads the memory.
    let address = unsafe { result::malloc_sync(bytes as usize) }.map_err(while_doing("cuMemAlloc"))?;
    let alloc_ns = ns_since(began);
    let began = Instant::now();
    // SAFETY: the address came from `malloc_sync` just now.
    unsafe { result::free_sync(address) }.map_err(while_doing("cuMemFree"))?;
    Ok(Malloc {
        alloc_ns,
        free_ns: ns_since(began),
    })
}

impl CudaClaims {
    fn wait_until_idle(&self) -> Result<(), GpuError> {
        self.context
            .synchronize()
            .map_err(while_doing("waiting for the device"))
    }
}

impl Allocations for CudaClaims {
    fn malloc(&mut self, bytes: u64) -> Result<Malloc, RigError> {
        self.within_budget(bytes)?;
        self.wait_until_idle()?;
        Ok(malloc_and_free(bytes)?)
    }

    fn malloc_threads(&mut self, threads: u32, rounds: u32, bytes: u64) -> Result<u64, RigError> {
        self.within_budget(bytes.saturating_mul(threads.into()))?;
        self.wait_until_idle()?;
        // All threads and this one.
        let begin = Barrier::new(threads as usize + 1);
        let work = || -> Result<(), GpuError> {
            let bound = self
                .context
                .bind_to_thread()
                .map_err(while_doing("binding the context"));
            begin.wait();
            bound?;
            (0..rounds).try_for_each(|_| malloc_and_free(bytes).map(drop))
        };
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            begin.wait();
            let began = Instant::now();
            for thread in running {
                let ended = thread.join();
                ended.map_err(|_| RigError("a thread that allocates panicked".to_owned()))??;
            }
            Ok(ns_since(began))
        })
    }

    fn free_behind(&mut self, bytes: u64, kernel_ns: u64) -> Result<FreeBehind, RigError> {
        self.within_budget(bytes)?;
        let spin = self.functions.get(SPIN)?;
        self.wait_until_idle()?;
        // SAFETY: the context is current on this thread; nothing reads the memory.
        let address = unsafe { result::malloc_sync(bytes as usize) }.map_err(while_doing("cuMemAlloc"))?;
        let run = || -> Result<FreeBehind, DriverError> {
            let began = Instant::now();
            // The kernel writes behind its own report.
            let launched = self.spin(spin, kernel_ns, self.report.on_device() + 8);
            let freeing = Instant::now();
            // SAFETY: the address came from `malloc_sync`, and no kernel uses the memory.
            unsafe { result::free_sync(address) }?;
            let free_ns = ns_since(freeing);
            launched?;
            self.stream.synchronize()?;
            Ok(FreeBehind {
                free_ns,
                kernel_ns: ns_since(began),
            })
        };
        Ok(run().map_err(while_doing("freeing while a kernel runs"))?)
    }

    fn program(&mut self, source: Source, ops: &[Op]) -> Result<u64, RigError> {
        let spin = self.functions.get(SPIN)?;
        self.wait_until_idle()?;
        let mut program = match self.program.take() {
            Some(program) if program.source() == source => program,
            other => {
                drop(other);
                Program::new(source, &self.context, &self.device, self.budget)?
            }
        };
        let ns = program.run(self, spin, ops)?;
        self.program = Some(program);
        Ok(ns)
    }
}
