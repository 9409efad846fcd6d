//! Managed memory.

use std::time::Instant;

use cudarc::driver::result;
use gpumem_alloc::device::Location;
use gpumem_alloc::{Allocator, Config, ManagedBuffer, Publish};

use super::{Contents, CudaClaims, ns_since};
use crate::gpu::{arg, while_doing};
use crate::kernels::{READ, TOUCH};
use crate::rig::RigError;
use crate::rig::claims::{Arrival, Arrived, Managed, Toucher};

/// The word that the host writes everywhere.
const WORD: u32 = 0x5a5a_5a5a;
/// The unit in which the driver handles managed memory, in words.
const BLOCK_WORDS: usize = (2 << 20) / 4;

fn of_allocator(error: gpumem_alloc::Error) -> RigError {
    RigError(error.to_string())
}

impl CudaClaims {
    /// Returns managed memory of this size, in which the host has written every word.
    fn managed(&mut self, bytes: u64) -> Result<ManagedBuffer<u32>, RigError> {
        self.within_budget(bytes)?;
        let words = usize::try_from(bytes / 4).map_err(|_| RigError("too much managed memory".to_owned()))?;
        let mut memory = match self.managed.take() {
            Some(memory) if memory.len() == words => memory,
            other => {
                drop(other);
                let config = Config {
                    publish: Publish::Off,
                    ..Config::default()
                };
                let allocator = Allocator::new(self.device.clone(), config).map_err(of_allocator)?;
                allocator.alloc_managed::<u32>(words).map_err(of_allocator)?
            }
        };
        // Pages that are on the device come back as a whole, which takes less time than page by page.
        memory
            .prefetch(Location::Cpu, self.stream.named())
            .map_err(of_allocator)?;
        memory.host().map_err(of_allocator)?.fill(WORD);
        Ok(memory)
    }

    /// Has a kernel read all of some memory, and returns how long it took.
    fn read_all(&mut self, address: u64, bytes: u64) -> Result<u64, RigError> {
        let read = self.functions.get(READ)?;
        let (mut data, mut count, mut rounds, mut word) = (address, bytes / 16, 1u32, WORD);
        let mut report = self.report.on_device();
        let mut args = [
            arg(&mut data),
            arg(&mut count),
            arg(&mut rounds),
            arg(&mut word),
            arg(&mut report),
        ];
        self.timed("reading what came", read, &mut args)
    }

    /// Copies to device memory, and has a kernel read it.
    fn copied(&mut self, pinned: bool, bytes: u64) -> Result<Arrived, RigError> {
        let refused = || RigError(format!("a copy of {bytes} bytes does not fit into what there is"));
        let device = self.memory(bytes)?;
        self.contents = Contents::Unknown;
        let mut host = self.host_memory()?;
        let part = host.part(pinned, bytes).ok_or_else(refused)?;
        part.fill(WORD.to_ne_bytes()[0]);
        let began = Instant::now();
        // SAFETY: both ends have this many bytes; the call returns when the host's memory is no longer used.
        unsafe { result::memcpy_htod_sync(device, part) }.map_err(while_doing("copying to the device"))?;
        let move_ns = ns_since(began);
        self.host = Some(host);
        Ok(Arrived {
            move_ns,
            kernel_ns: self.read_all(device, bytes)?,
        })
    }
}

impl Managed for CudaClaims {
    fn arrive(&mut self, arrival: Arrival, bytes: u64) -> Result<Arrived, RigError> {
        // The kernel is there before the clock runs.
        self.functions.get(READ)?;
        match arrival {
            Arrival::CopiedPinned => return self.copied(true, bytes),
            Arrival::CopiedPageable => return self.copied(false, bytes),
            Arrival::OnDemand | Arrival::Prefetched => {}
        }
        let memory = self.managed(bytes)?;
        let began = Instant::now();
        if arrival == Arrival::Prefetched {
            let stream = self.stream.named();
            memory.prefetch(Location::Device, stream).map_err(of_allocator)?;
            self.stream.synchronize().map_err(while_doing("prefetching"))?;
        }
        let move_ns = match arrival {
            Arrival::Prefetched => ns_since(began),
            _ => 0,
        };
        let kernel_ns = self.read_all(memory.device_ptr(), bytes)?;
        self.managed = Some(memory);
        Ok(Arrived { move_ns, kernel_ns })
    }

    fn touch(&mut self, by: Toucher, bytes: u64) -> Result<u64, RigError> {
        let touch = self.functions.get(TOUCH)?;
        let mut memory = self.managed(bytes)?;
        let ns = match by {
            Toucher::Device => {
                let mut words = memory.device_ptr();
                let mut touches = u32::try_from(memory.len() / BLOCK_WORDS).unwrap_or(u32::MAX);
                let (mut step, mut word) = (BLOCK_WORDS as u32, WORD);
                let mut report = self.report.on_device();
                let mut args = [
                    arg(&mut words),
                    arg(&mut touches),
                    arg(&mut step),
                    arg(&mut word),
                    arg(&mut report),
                ];
                self.timed_as("touching managed memory", touch, (1, 1), &mut args)?
            }
            Toucher::Host => {
                let stream = self.stream.named();
                memory.prefetch(Location::Device, stream).map_err(of_allocator)?;
                let words = memory.host().map_err(of_allocator)?;
                let began = Instant::now();
                let sound = words.iter().step_by(BLOCK_WORDS).all(|word| *word == WORD);
                let ns = ns_since(began);
                if !sound {
                    return Err(RigError("managed memory holds other data than was written".to_owned()));
                }
                ns
            }
        };
        self.managed = Some(memory);
        Ok(ns)
    }
}
