//! What the demo runs on: managed memory of a GPU, or the model of one.

use std::ops::Range;
use std::time::Instant;

use gpumem_alloc::device::Location;
use gpumem_alloc::{Allocator, ManagedBuffer, Stream, scope};

use super::screen::Screen;
use crate::error::DemoError;
use crate::gpu::Kernels;
use crate::pattern::{Checked, pattern};
use crate::protocol::Measure;
use crate::uvm::{Access, Advice, BLOCK, Cause, Counters, Direction, PAGE, Processor, Uvm};

/// Seed of the pattern that is written and checked on a real device.
const SEED: u64 = 0x756e_6966_6965_6400;

/// One allocation of managed memory, and the two processors that use it. All ranges begin at its start.
pub(super) trait Machine {
    /// Begins a topic.
    fn begin(&mut self);
    /// Replaces the memory by new memory that nobody has touched.
    fn renew(&mut self) -> Result<(), DemoError>;
    /// Accesses each page of the first `bytes`, and waits.
    fn touch(&mut self, who: Processor, bytes: u64, access: Access) -> Result<(), DemoError>;
    /// Moves everything ahead of its use, and waits.
    fn prefetch(&mut self, to: Processor) -> Result<(), DemoError>;
    /// Gives advice on everything.
    fn advise(&mut self, advice: Advice) -> Result<(), DemoError>;
    /// Returns the time in nanoseconds, from any beginning.
    fn ns(&self) -> u64;
    /// Returns what the driver counted so far, where that is known.
    fn counters(&self) -> Option<Counters>;
    /// Returns what was compared with its pattern; `None` where memory has no contents.
    fn checked(&self) -> Option<Checked>;
}

/// Measures what `run` does with the machine. `bytes` is what it accesses.
pub(super) fn measure(
    machine: &mut dyn Machine,
    name: &str,
    bytes: u64,
    run: impl FnOnce(&mut dyn Machine) -> Result<(), DemoError>,
) -> Result<Measure, DemoError> {
    let (before, began) = (machine.counters(), machine.ns());
    run(machine)?;
    Ok(between(name, bytes, before, machine.counters(), machine.ns() - began))
}

/// Measures what `run` does with the model.
pub(super) fn measure_model(
    model: &mut Model<'_>,
    name: &str,
    bytes: u64,
    run: impl FnOnce(&mut Model<'_>),
) -> Measure {
    let (before, began) = (model.counters(), model.ns());
    run(model);
    between(name, bytes, before, model.counters(), model.ns() - began)
}

fn between(name: &str, bytes: u64, before: Option<Counters>, after: Option<Counters>, ns: u64) -> Measure {
    let counters = before.zip(after);
    let more = |of: fn(&Counters) -> u64| counters.map(|(before, after)| of(&after) - of(&before));
    Measure {
        name: name.to_owned(),
        ns,
        bytes,
        to_gpu: more(|c| c.bytes(Direction::ToGpu)),
        to_cpu: more(|c| c.bytes(Direction::ToCpu)),
        cpu_faults: more(|c| c.cpu_faults),
        gpu_faults: more(|c| c.gpu_faults),
        evicted: more(|c| c.moves(Direction::ToCpu, Cause::Eviction).bytes),
    }
}

/// Allocates the memory, in whole blocks.
fn allocate(allocator: &Allocator, bytes: u64) -> Result<ManagedBuffer<u64>, DemoError> {
    let _scope = scope("working set");
    let words = (bytes.next_multiple_of(BLOCK) / 8) as usize;
    let memory = allocator.alloc_managed(words);
    memory.map_err(while_doing("allocating managed memory that moves on demand"))
}

fn while_doing(doing: &'static str) -> impl FnOnce(gpumem_alloc::Error) -> DemoError {
    move |source| DemoError::Allocator { doing, source }
}

/// Gives the driver advice, which the channel shows.
fn advise(memory: &mut ManagedBuffer<u64>, advice: Advice) -> Result<(), DemoError> {
    let advised = match advice {
        Advice::PreferCpu(on) => memory.set_preferred(on.then_some(Location::Cpu)),
        Advice::ReadMostly(on) => memory.set_read_mostly(on),
    };
    advised.map_err(while_doing("advising on managed memory"))
}

/// The model.
pub(super) struct Model<'a> {
    uvm: Uvm,
    bytes: u64,
    capacity: u64,
    allocator: Allocator,
    memory: ManagedBuffer<u64>,
    screen: Screen<'a>,
}

impl<'a> Model<'a> {
    /// Allocates memory of the simulated device. The model's GPU has room for `capacity` bytes of it.
    pub(super) fn new(
        allocator: &Allocator,
        bytes: u64,
        capacity: u64,
        screen: Screen<'a>,
    ) -> Result<Model<'a>, DemoError> {
        let mut model = Model {
            uvm: Uvm::new(bytes, capacity),
            bytes,
            capacity,
            allocator: allocator.clone(),
            memory: allocate(allocator, bytes)?,
            screen,
        };
        model.show();
        Ok(model)
    }

    fn show(&mut self) {
        self.screen.picture(&self.uvm, &self.memory);
    }

    /// Accesses pages of a part of the memory, from byte to byte.
    pub(super) fn touch_part(&mut self, who: Processor, bytes: Range<u64>, access: Access) {
        let (screen, memory) = (&mut self.screen, &self.memory);
        self.uvm
            .touch(who, pages(bytes), access, &mut |uvm| screen.frame(uvm, memory));
        self.show();
    }

    /// Gives advice on a part of the memory.
    pub(super) fn advise_part(&mut self, bytes: Range<u64>, advice: Advice) {
        self.uvm.advise(pages(bytes), advice);
        self.show();
    }
}

/// Returns the pages from byte to byte.
fn pages(bytes: Range<u64>) -> Range<usize> {
    (bytes.start / PAGE) as usize..bytes.end.div_ceil(PAGE) as usize
}

impl Machine for Model<'_> {
    fn begin(&mut self) {
        self.screen.begin();
    }

    fn renew(&mut self) -> Result<(), DemoError> {
        // The clock and the counters start again, too: no measurement goes across this.
        self.uvm = Uvm::new(self.bytes, self.capacity);
        self.memory = allocate(&self.allocator, self.bytes)?;
        self.show();
        Ok(())
    }

    fn touch(&mut self, who: Processor, bytes: u64, access: Access) -> Result<(), DemoError> {
        self.touch_part(who, 0..bytes, access);
        Ok(())
    }

    fn prefetch(&mut self, to: Processor) -> Result<(), DemoError> {
        let (screen, memory) = (&mut self.screen, &self.memory);
        let all = 0..self.uvm.pages();
        self.uvm.prefetch(to, all, &mut |uvm| screen.frame(uvm, memory));
        self.show();
        Ok(())
    }

    fn advise(&mut self, advice: Advice) -> Result<(), DemoError> {
        advise(&mut self.memory, advice)?;
        self.advise_part(0..self.bytes, advice);
        Ok(())
    }

    fn ns(&self) -> u64 {
        self.uvm.counters().ns
    }

    fn counters(&self) -> Option<Counters> {
        Some(*self.uvm.counters())
    }

    fn checked(&self) -> Option<Checked> {
        None
    }
}

/// A GPU.
pub(super) struct Real<'a> {
    // Freed before the kernels, which may still run on it.
    memory: Option<ManagedBuffer<u64>>,
    kernels: Kernels,
    allocator: Allocator,
    bytes: u64,
    began: Instant,
    checked: Checked,
    screen: Screen<'a>,
}

impl<'a> Real<'a> {
    pub(super) fn new(
        kernels: Kernels,
        allocator: &Allocator,
        bytes: u64,
        screen: Screen<'a>,
    ) -> Result<Real<'a>, DemoError> {
        Ok(Real {
            memory: Some(allocate(allocator, bytes)?),
            kernels,
            allocator: allocator.clone(),
            bytes,
            began: Instant::now(),
            checked: Checked::default(),
            screen,
        })
    }

    /// Returns the memory, which is gone only if replacing it failed. Then it is tried again.
    fn memory(&mut self) -> Result<&mut ManagedBuffer<u64>, DemoError> {
        if self.memory.is_none() {
            self.renew()?;
        }
        self.memory
            .as_mut()
            .ok_or_else(|| DemoError::OutOfMemory("out of managed memory".to_owned()))
    }
}

/// Accesses one word of each page on the CPU: writes what its pattern has there, or counts words that differ from it.
fn touch_by_cpu(memory: &mut ManagedBuffer<u64>, bytes: u64, access: Access) -> Result<Checked, DemoError> {
    let words = memory
        .host()
        .map_err(while_doing("waiting before the CPU uses managed memory"))?;
    let mut checked = Checked::default();
    let words_used = words.len().min((bytes / 8) as usize);
    for (word, index) in words[..words_used].iter_mut().zip(0u64..).step_by((PAGE / 8) as usize) {
        let expected = pattern(SEED, index);
        match access {
            Access::Write => *word = expected,
            Access::Read => {
                checked.words += 1;
                if *word != expected {
                    checked.mismatches += 1;
                    checked.first.get_or_insert(index);
                }
            }
        }
    }
    Ok(checked)
}

impl Machine for Real<'_> {
    fn begin(&mut self) {
        self.screen.begin();
    }

    fn renew(&mut self) -> Result<(), DemoError> {
        // The old memory goes first, so that there are never two.
        self.memory = None;
        self.memory = Some(allocate(&self.allocator, self.bytes)?);
        Ok(())
    }

    fn touch(&mut self, who: Processor, bytes: u64, access: Access) -> Result<(), DemoError> {
        if self.memory.is_none() {
            self.renew()?;
        }
        let Real {
            memory: Some(memory),
            kernels,
            ..
        } = self
        else {
            return Ok(());
        };
        let checked = match (who, access) {
            (Processor::Cpu, access) => touch_by_cpu(memory, bytes, access)?,
            (Processor::Gpu, Access::Read) => kernels.check_managed(memory, bytes, SEED)?,
            (Processor::Gpu, Access::Write) => {
                kernels.fill_managed(memory, bytes, SEED)?;
                Checked::default()
            }
        };
        self.checked = self.checked.and(checked);
        self.screen.rest_after(bytes);
        Ok(())
    }

    fn prefetch(&mut self, to: Processor) -> Result<(), DemoError> {
        let place = match to {
            Processor::Cpu => Location::Cpu,
            Processor::Gpu => Location::Device,
        };
        let moved = self.memory()?.prefetch(place, Stream::DEFAULT);
        moved.map_err(while_doing("prefetching managed memory"))?;
        self.kernels.synchronize()?;
        self.screen.rest_after(self.bytes);
        Ok(())
    }

    fn advise(&mut self, advice: Advice) -> Result<(), DemoError> {
        advise(self.memory()?, advice)
    }

    fn ns(&self) -> u64 {
        let worked = self.began.elapsed().saturating_sub(self.screen.rested());
        u64::try_from(worked.as_nanos()).unwrap_or(u64::MAX)
    }

    fn counters(&self) -> Option<Counters> {
        None
    }

    fn checked(&self) -> Option<Checked> {
        Some(self.checked)
    }
}
