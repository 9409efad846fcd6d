//! A device with an allocator on it, and blocks whose contents can be checked.

use std::time::Instant;

use gpumem_alloc::conf::Note;
use gpumem_alloc::device::{self, Device, SimConfig};
use gpumem_alloc::{Allocator, Buffer, Config, Error, JoinReport, Options, Publish, SegmentMode, Stream};
use gpumem_channel::DeviceKind;

use crate::args::{DeviceChoice, RunArgs};
use crate::budget::{USUAL_BUDGET, budget, managed_size, simulated_budget};
use crate::conf::{Segments, allocator_config, has_only_publishing_options};
use crate::error::DemoError;
use crate::gpu::{self, Kernels};
use crate::pattern::Checked;
use crate::protocol::{MapBlock, OutOfMemory, Phase, Stats};
use crate::sim_pattern;
use crate::uvm::BLOCK;

/// How a demo's memory is set up, and which of the user's options apply.
#[derive(Clone, Copy, Debug)]
pub enum MemoryPlan {
    /// As for a training program: plain segments within the whole budget, unless the user configures otherwise.
    Program,
    /// Virtual segments within the given bytes of the budget, and no release of the cache by itself. Only the user's options
    /// about publishing apply.
    Full(fn(u64) -> u64),
    /// Managed memory, which does not come from the allocator, of this many bytes. The default is 256 MiB, or the budget if that is
    /// less. Only the user's options about publishing apply.
    Managed(Option<u64>),
    /// As for a recorded program: the whole device, unless the user limits it. No kernels are loaded.
    Device {
        /// Overrides the configuration.
        segments: Option<Segments>,
    },
}

/// A device with an allocator on it.
pub(crate) struct Lab {
    device: Device,
    allocator: Allocator,
    gpu: Option<Kernels>,
    budget: u64,
    limit: Option<u64>,
    notes: Vec<Note>,
}

/// A block filled with its own pattern.
pub(crate) struct Block {
    buffer: Buffer<u64>,
    seed: u64,
}

/// The result of a request.
pub(crate) enum Request {
    /// The block, filled with its pattern.
    Served(Block),
    /// It did not fit.
    Failed(OutOfMemory),
}

/// The floats that layers compute on.
pub(crate) type Tensor = Buffer<f32>;

/// The result of an allocation that may find too little memory.
pub(crate) enum Want<T> {
    Got(T),
    Short,
}

fn while_doing(doing: &'static str) -> impl FnOnce(Error) -> DemoError {
    move |source| DemoError::Allocator { doing, source }
}

impl Lab {
    pub(crate) fn open(args: &RunArgs, plan: MemoryPlan, label: String) -> Result<Lab, DemoError> {
        if matches!(plan, MemoryPlan::Full(_) | MemoryPlan::Managed(_))
            && args
                .conf
                .as_ref()
                .is_some_and(|conf| !has_only_publishing_options(conf))
        {
            return Err(DemoError::Argument {
                argument: "--conf",
                reason: "publish, job, history and monitor are all that this demo takes: what it shows depends on its own sizes, segments and \
                         budget (--budget)"
                    .to_owned(),
            });
        }
        let whole = matches!(plan, MemoryPlan::Device { .. });
        let device = match args.device.unwrap_or_default() {
            DeviceChoice::Sim => device::sim(SimConfig::default()),
            DeviceChoice::Auto if whole && gpu::may_simulate(args.json && !args.steer) => {
                device::sim(SimConfig::default())
            }
            DeviceChoice::Auto => open_cuda(0)?,
            DeviceChoice::Cuda(ordinal) => open_cuda(ordinal)?,
        };
        // The kernels are loaded before the budget is computed, because they take some of the free memory.
        let context = device.cuda_context().filter(|_| !whole);
        let gpu = context.map(Kernels::new).transpose()?;
        let memory = device
            .memory()
            .map_err(|e| while_doing("asking for free memory")(e.into()))?;
        let budget = match (device.as_sim(), plan) {
            (sim, MemoryPlan::Managed(size)) => managed_size(size, args.budget, sim.is_none().then_some(memory.free))?,
            (_, MemoryPlan::Device { .. }) => memory.free,
            (None, _) => budget(args.budget, memory.free)?,
            (Some(_), MemoryPlan::Full(_)) => simulated_budget(args.budget, USUAL_BUDGET, memory.total)?,
            // Simulated memory costs nothing, and a device that is mostly in use is more interesting to watch.
            (Some(_), MemoryPlan::Program) => simulated_budget(args.budget, memory.total / 16 * 15, memory.total)?,
        };
        let segments = match plan {
            MemoryPlan::Device { segments } => segments,
            MemoryPlan::Program | MemoryPlan::Full(_) | MemoryPlan::Managed(_) => None,
        };
        let config = allocator_config(args.conf.as_ref(), segments, args.channel_dir.clone(), label)?;
        let config = match plan {
            // What the demo shows depends on sizes, segments and budget, so neither the configuration nor the environment sets them.
            MemoryPlan::Full(bytes) => Config {
                budget: Some(bytes(budget)),
                segments: SegmentMode::Virtual,
                release_on_oom: false,
                publish: config.publish,
                history: config.history,
                monitor: config.monitor,
                notes: config.notes,
                ..Config::default()
            },
            MemoryPlan::Managed(_) => Config {
                publish: match config.publish {
                    // Only a model knows where pages are; of a real device the driver is asked.
                    Publish::On(options) if device.as_sim().is_some() => Publish::On(Options {
                        managed_blocks: u32::try_from(budget.div_ceil(BLOCK)).unwrap_or(u32::MAX),
                        ..options
                    }),
                    publish => publish,
                },
                history: config.history,
                monitor: config.monitor,
                notes: config.notes,
                ..Config::default()
            },
            // With stitched segments memory would hardly fragment.
            MemoryPlan::Program => Config {
                segments: match config.segments {
                    SegmentMode::Auto => SegmentMode::Plain,
                    segments => segments,
                },
                budget: config.budget.into_iter().chain([budget]).min(),
                ..config
            },
            MemoryPlan::Device { .. } => Config {
                budget: args.budget.or(config.budget),
                ..config
            },
        };
        let notes = config.without_effect();
        let allocator = Allocator::new(device.clone(), config).map_err(|error| match error {
            Error::Config { .. } => DemoError::Settings(error),
            error => while_doing("setting up the allocator")(error),
        })?;
        let limit = match plan {
            MemoryPlan::Program | MemoryPlan::Device { .. } => allocator.budget(),
            MemoryPlan::Full(_) | MemoryPlan::Managed(_) => Some(budget),
        };
        Ok(Lab {
            device,
            allocator,
            gpu,
            budget: limit.unwrap_or(budget),
            limit,
            notes,
        })
    }

    /// Takes the kernels out, for a demo that uses them on memory of its own. `None` on the simulated device.
    pub(crate) fn take_kernels(&mut self) -> Option<Kernels> {
        self.gpu.take()
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// Returns the bytes that the demo scales its sizes to.
    pub(crate) fn budget(&self) -> u64 {
        self.budget
    }

    /// Returns the bytes that the demo will not exceed, or `None` if it may take all there is.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Returns notes on options of the allocator that have no effect.
    pub(crate) fn notes(&self) -> &[Note] {
        &self.notes
    }

    pub(crate) fn device_name(&self) -> String {
        self.device.info().name.clone()
    }

    pub(crate) fn simulated(&self) -> bool {
        self.device.info().kind == DeviceKind::Simulated
    }

    /// Returns the path of the channel, if there is one.
    pub(crate) fn channel(&self) -> Option<String> {
        self.allocator.channel().ok().map(|path| path.display().to_string())
    }

    /// Allocates a block of `bytes` and fills it with its pattern. The seed is made of address and size, so no two live blocks
    /// share one.
    pub(crate) fn block(&self, bytes: u64) -> Result<Block, DemoError> {
        match self.request(bytes)? {
            Request::Served(block) => Ok(block),
            Request::Failed(oom) => Err(DemoError::OutOfMemory(oom.report)),
        }
    }

    /// Requests a block of `bytes`, which may not fit.
    pub(crate) fn request(&self, bytes: u64) -> Result<Request, DemoError> {
        match self.allocator.alloc::<u64>((bytes / 8) as usize, Stream::DEFAULT) {
            Ok(buffer) => {
                let seed = buffer.device_ptr() ^ bytes.rotate_left(40);
                let mut block = Block { buffer, seed };
                self.fill(&mut block)?;
                Ok(Request::Served(block))
            }
            Err(Error::OutOfMemory(report)) => Ok(Request::Failed(OutOfMemory::from(&*report))),
            Err(error) => Err(while_doing("allocating a block")(error)),
        }
    }

    /// Fills a block with its pattern.
    pub(crate) fn fill(&self, block: &mut Block) -> Result<(), DemoError> {
        self.fill_prefix(block, block.buffer.bytes(), block.seed)
    }

    /// Fills the first `bytes` of a block with the pattern of `seed`, as a temporary in a workspace would. (The simulated device
    /// fills the whole block.)
    pub(crate) fn fill_prefix(&self, block: &mut Block, bytes: u64, seed: u64) -> Result<(), DemoError> {
        match &self.gpu {
            Some(gpu) => Ok(gpu.fill(&mut block.buffer, bytes, seed)?),
            None => sim_pattern::write(&mut block.buffer, seed).map_err(while_doing("filling a block")),
        }
    }

    /// Compares a block with its pattern.
    pub(crate) fn check(&self, block: &Block) -> Result<Checked, DemoError> {
        match &self.gpu {
            Some(gpu) => Ok(gpu.check(&block.buffer, block.seed)?),
            None => sim_pattern::check(&block.buffer, block.seed).map_err(while_doing("checking a block")),
        }
    }

    /// Returns who compares patterns, as text.
    pub(crate) fn checker(&self) -> &'static str {
        if self.gpu.is_some() {
            "by a kernel on the GPU"
        } else {
            "in the simulated memory"
        }
    }

    /// Allocates a tensor of `bytes`, if there is enough memory.
    pub(crate) fn want(&self, bytes: u64) -> Result<Want<Tensor>, DemoError> {
        match self.allocator.alloc::<f32>((bytes / 4) as usize, Stream::DEFAULT) {
            Ok(tensor) => Ok(Want::Got(tensor)),
            Err(Error::OutOfMemory(_)) => Ok(Want::Short),
            Err(error) => Err(while_doing("allocating a tensor")(error)),
        }
    }

    /// Allocates a tensor of `bytes`.
    pub(crate) fn tensor(&self, bytes: u64) -> Result<Tensor, DemoError> {
        let tensor = self.allocator.alloc::<f32>((bytes / 4) as usize, Stream::DEFAULT);
        tensor.map_err(while_doing("allocating the model's weights"))
    }

    /// Computes `out` from `input`, or from nothing, as a layer would. The simulated device computes nothing.
    pub(crate) fn compute(&self, out: &Tensor, input: Option<&Tensor>, rounds: u32) -> Result<(), DemoError> {
        let Some(gpu) = &self.gpu else { return Ok(()) };
        Ok(gpu.work(out, input, rounds)?)
    }

    /// Waits for the device.
    pub(crate) fn synchronize(&self) -> Result<(), DemoError> {
        Ok(self.gpu.as_ref().map_or(Ok(()), Kernels::synchronize)?)
    }

    /// Returns all unused memory to the driver, and the number of bytes released.
    pub(crate) fn release(&self) -> Result<u64, DemoError> {
        self.allocator
            .release_cached()
            .map_err(while_doing("releasing the cache"))
    }

    pub(crate) fn join_holes(&self, bytes: u64) -> Result<JoinReport, DemoError> {
        self.allocator
            .join_holes(bytes, Stream::DEFAULT)
            .map_err(while_doing("joining the holes"))
    }

    /// Puts a mark into the timeline.
    pub(crate) fn mark(&self, name: &str) {
        self.allocator.mark(name);
    }

    /// Runs `doing` and says how long it took, or would have taken on a real device if this one is simulated.
    pub(crate) fn timed<T>(&self, doing: impl FnOnce(&Lab) -> Result<T, DemoError>) -> Result<(T, String), DemoError> {
        let modelled = || self.device.as_sim().map(|sim| sim.modelled_ns());
        let (began, model) = (Instant::now(), modelled());
        let done = doing(self)?;
        let time = match modelled().zip(model) {
            Some((after, before)) => format!(
                "It would take about {:.1} ms on a real device",
                (after - before) as f64 / 1e6
            ),
            None => format!("It took {:.1} ms", began.elapsed().as_secs_f64() * 1e3),
        };
        Ok((done, time))
    }

    /// Returns the figures at the end of a phase.
    pub(crate) fn phase(&self, name: &str) -> Phase {
        let all = self.allocator.stats().all();
        Phase {
            name: name.to_owned(),
            allocated: all.allocated_bytes.current,
            reserved: all.reserved_bytes.current,
        }
    }

    /// Returns the allocator's blocks by address.
    pub(crate) fn map(&self) -> Result<Vec<MapBlock>, DemoError> {
        let snapshot = self.allocator.snapshot().map_err(while_doing("reading the blocks"))?;
        let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
        let mut map: Vec<MapBlock> = blocks
            .map(|block| MapBlock {
                addr: block.address,
                size: block.size,
                free: !block.state.active(),
            })
            .collect();
        map.sort_unstable_by_key(|block| block.addr);
        Ok(map)
    }

    /// Returns the current figures.
    pub(crate) fn stats(&self) -> Stats {
        let device = self.allocator.stats();
        let all = device.all();
        let free = self.allocator.free_blocks();
        let (requested, allocated) = (all.requested_bytes.current, all.allocated_bytes.current);
        Stats {
            requested,
            allocated,
            active: all.active_bytes.current,
            reserved: all.reserved_bytes.current,
            cached: device.cached_bytes(),
            peak_allocated: all.allocated_bytes.peak,
            peak_reserved: all.reserved_bytes.peak,
            largest_free: free.largest,
            free_total: free.total,
            external_fragmentation: free.fragmentation(),
            internal_fragmentation: (allocated > 0).then(|| 1.0 - requested as f64 / allocated as f64),
            driver_free: self.device.memory().ok().map(|memory| memory.free),
            segments: all.segment.current,
            blocks: all.allocation.current,
            ooms: device.num_ooms,
            retries: device.num_alloc_retries,
        }
    }
}

pub(crate) fn open_cuda(ordinal: u32) -> Result<Device, DemoError> {
    device::cuda(ordinal).map_err(|error| DemoError::NoDevice(error.to_string()))
}
