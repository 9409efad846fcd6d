//! What the demo runs on: managed memory of a GPU, or the model of one.

use std::time::Instant;

use crate::error::DemoError;
use crate::gpu::{Kernels, Managed};
use crate::pattern::Checked;
use crate::protocol::Measure;
use crate::uvm::{Access, Advice, Cause, Counters, Direction, PAGE, Processor, Uvm};

/// Seed of the pattern that is written and checked on a real device.
const SEED: u64 = 0x756e_6966_6965_6400;

/// One allocation of managed memory, and the two processors that use it. All ranges begin at its start.
pub(super) trait Machine {
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
pub(super) fn measure_model(model: &mut Model, name: &str, bytes: u64, run: impl FnOnce(&mut Model)) -> Measure {
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

/// The model.
pub(super) struct Model {
    uvm: Uvm,
    bytes: u64,
    capacity: u64,
}

impl Model {
    pub(super) fn new(bytes: u64, capacity: u64) -> Model {
        Model {
            uvm: Uvm::new(bytes, capacity),
            bytes,
            capacity,
        }
    }

    /// Accesses pages of a part of the memory, from byte to byte.
    pub(super) fn touch_part(&mut self, who: Processor, bytes: std::ops::Range<u64>, access: Access) {
        let pages = (bytes.start / PAGE) as usize..bytes.end.div_ceil(PAGE) as usize;
        self.uvm.touch(who, pages, access);
    }

    /// Gives advice on a part of the memory.
    pub(super) fn advise_part(&mut self, bytes: std::ops::Range<u64>, advice: Advice) {
        let pages = (bytes.start / PAGE) as usize..bytes.end.div_ceil(PAGE) as usize;
        self.uvm.advise(pages, advice);
    }
}

impl Machine for Model {
    fn renew(&mut self) -> Result<(), DemoError> {
        // The clock and the counters start again, too: no measurement goes across this.
        self.uvm = Uvm::new(self.bytes, self.capacity);
        Ok(())
    }

    fn touch(&mut self, who: Processor, bytes: u64, access: Access) -> Result<(), DemoError> {
        self.touch_part(who, 0..bytes, access);
        Ok(())
    }

    fn prefetch(&mut self, to: Processor) -> Result<(), DemoError> {
        self.uvm.prefetch(to, 0..self.uvm.pages());
        Ok(())
    }

    fn advise(&mut self, advice: Advice) -> Result<(), DemoError> {
        self.uvm.advise(0..self.uvm.pages(), advice);
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
pub(super) struct Real {
    // Freed before the kernels, whose context it uses.
    memory: Option<Managed>,
    kernels: Kernels,
    bytes: u64,
    began: Instant,
    checked: Checked,
}

impl Real {
    pub(super) fn new(kernels: Kernels, bytes: u64) -> Result<Real, DemoError> {
        Ok(Real {
            memory: Some(Managed::new(&kernels, bytes)?),
            kernels,
            bytes,
            began: Instant::now(),
            checked: Checked::default(),
        })
    }

    /// Returns the memory, which is gone only if replacing it failed. Then it is tried again.
    fn memory(&mut self) -> Result<&mut Managed, DemoError> {
        if self.memory.is_none() {
            self.renew()?;
        }
        self.memory
            .as_mut()
            .ok_or_else(|| DemoError::OutOfMemory("out of managed memory".to_owned()))
    }
}

impl Machine for Real {
    fn renew(&mut self) -> Result<(), DemoError> {
        // The old memory goes first, so that there are never two.
        self.memory = None;
        self.memory = Some(Managed::new(&self.kernels, self.bytes)?);
        Ok(())
    }

    fn touch(&mut self, who: Processor, bytes: u64, access: Access) -> Result<(), DemoError> {
        let mut memory = match self.memory.take() {
            Some(memory) => memory,
            None => Managed::new(&self.kernels, self.bytes)?,
        };
        let checked = match (who, access) {
            (Processor::Cpu, access) => memory.touch(bytes, access == Access::Write, SEED),
            (Processor::Gpu, Access::Read) => self.kernels.check_managed(&mut memory, bytes, SEED),
            (Processor::Gpu, Access::Write) => {
                let filled = self.kernels.fill_managed(&mut memory, bytes, SEED);
                filled.map(|()| Checked::default())
            }
        };
        self.memory = Some(memory);
        self.checked = self.checked.and(checked?);
        Ok(())
    }

    fn prefetch(&mut self, to: Processor) -> Result<(), DemoError> {
        Ok(self.memory()?.prefetch(to == Processor::Gpu)?)
    }

    fn advise(&mut self, advice: Advice) -> Result<(), DemoError> {
        let memory = self.memory()?;
        match advice {
            Advice::PreferCpu(on) => memory.prefer_cpu(on)?,
            Advice::ReadMostly(on) => memory.read_mostly(on)?,
        }
        Ok(())
    }

    fn ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn counters(&self) -> Option<Counters> {
        None
    }

    fn checked(&self) -> Option<Checked> {
        Some(self.checked)
    }
}
