//! Programs that allocate, run kernels and free, with memory from different sources.

use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::{CudaContext, sys};
use gpumem_alloc::device::Device;
use gpumem_alloc::{Allocator, Buffer, Config, Publish};

use super::{CudaClaims, ns_since};
use crate::gpu::{DriverMemory, while_doing};
use crate::rig::RigError;
use crate::rig::claims::{Op, Source};

/// A source of memory, which keeps its cache from run to run.
#[derive(Debug)]
pub(super) struct Program {
    memory: Memory,
    budget: u64,
}

#[derive(Debug)]
enum Memory {
    Driver(DriverMemory),
    Pool(DriverMemory),
    Cache(Allocator),
}

/// A live block.
enum Block {
    Driver(u64, u64),
    Pool(u64, u64),
    Cache(Buffer<u8>),
}

impl Block {
    fn address(&self) -> u64 {
        match self {
            Block::Driver(address, _) | Block::Pool(address, _) => *address,
            Block::Cache(buffer) => buffer.device_ptr(),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Block::Driver(_, bytes) | Block::Pool(_, bytes) => *bytes,
            Block::Cache(buffer) => buffer.bytes(),
        }
    }
}

impl Program {
    pub(super) fn new(
        source: Source,
        context: &Arc<CudaContext>,
        device: &Device,
        budget: u64,
    ) -> Result<Program, RigError> {
        let memory = match source {
            Source::Driver => Memory::Driver(DriverMemory::new(context, false)?),
            Source::Pool => Memory::Pool(DriverMemory::new(context, true)?),
            Source::Cache => {
                let config = Config {
                    budget: Some(budget),
                    publish: Publish::Off,
                    ..Config::default()
                };
                Memory::Cache(Allocator::new(device.clone(), config).map_err(of_allocator)?)
            }
        };
        Ok(Program { memory, budget })
    }

    pub(super) fn source(&self) -> Source {
        match self.memory {
            Memory::Driver(_) => Source::Driver,
            Memory::Pool(_) => Source::Pool,
            Memory::Cache(_) => Source::Cache,
        }
    }

    /// Runs a program, and returns the time until its last kernel has ended. Frees what it left, and checks that its kernels ran.
    pub(super) fn run(&mut self, gpu: &CudaClaims, spin: sys::CUfunction, ops: &[Op]) -> Result<u64, RigError> {
        gpu.clear_report();
        let mut blocks: Vec<Option<Block>> = Vec::new();
        let began = Instant::now();
        let ran = ops
            .iter()
            .try_for_each(|op| self.step(gpu, spin, &mut blocks, *op))
            .and_then(|()| Ok(gpu.stream.synchronize().map_err(while_doing("running a program"))?));
        let ns = ns_since(began);
        // Blocks of an error's way go back, too.
        for block in blocks.into_iter().flatten() {
            self.free(gpu, block)?;
        }
        ran?;
        let kernels = ops.iter().filter(|op| matches!(op, Op::Kernel { .. })).count() as u64;
        match gpu.read_report() {
            counted if counted == kernels => Ok(ns),
            counted => Err(RigError(format!("{counted} of a program's {kernels} kernels ran"))),
        }
    }

    fn step(
        &self,
        gpu: &CudaClaims,
        spin: sys::CUfunction,
        blocks: &mut Vec<Option<Block>>,
        op: Op,
    ) -> Result<(), RigError> {
        let wrong = || RigError("a program uses a block that it does not have".to_owned());
        match op {
            Op::Alloc { slot, bytes } => {
                let held: u64 = blocks.iter().flatten().map(Block::bytes).sum();
                if bytes.saturating_add(held) > self.budget {
                    return Err(RigError(format!(
                        "a program needs more than the budget of {}",
                        self.budget
                    )));
                }
                if blocks.len() <= slot {
                    blocks.resize_with(slot + 1, || None);
                }
                let block = self.alloc(gpu, bytes)?;
                *blocks.get_mut(slot).ok_or_else(wrong)? = Some(block);
            }
            Op::Kernel { slot, ns } => {
                let block = blocks.get(slot).and_then(Option::as_ref).ok_or_else(wrong)?;
                gpu.spin(spin, ns, block.address())
                    .map_err(while_doing("running a program"))?;
            }
            Op::Free { slot } => {
                let block = blocks.get_mut(slot).and_then(Option::take).ok_or_else(wrong)?;
                self.free(gpu, block)?;
            }
        }
        Ok(())
    }

    fn alloc(&self, gpu: &CudaClaims, bytes: u64) -> Result<Block, RigError> {
        let stream = gpu.stream.named();
        Ok(match &self.memory {
            Memory::Driver(memory) => Block::Driver(memory.alloc(bytes)?, bytes),
            Memory::Pool(memory) => Block::Pool(memory.alloc_async(bytes, stream)?, bytes),
            Memory::Cache(allocator) => {
                let len = usize::try_from(bytes).map_err(|_| RigError("a block is too large".to_owned()))?;
                Block::Cache(allocator.alloc(len, stream).map_err(of_allocator)?)
            }
        })
    }

    fn free(&self, gpu: &CudaClaims, block: Block) -> Result<(), RigError> {
        match (&self.memory, block) {
            (Memory::Driver(memory), Block::Driver(address, _)) => Ok(memory.free(address)?),
            (Memory::Pool(memory), Block::Pool(address, _)) => Ok(memory.free_async(address, gpu.stream.named())?),
            // A buffer goes back when it is dropped, and a block is never of another source.
            _ => Ok(()),
        }
    }
}

fn of_allocator(error: gpumem_alloc::Error) -> RigError {
    RigError(error.to_string())
}
