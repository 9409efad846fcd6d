//! The pages of one block: where they are, and who reaches them.

use super::mask::Mask;
use super::{Access, Processor};
use gpumem_channel::ManagedBlock;

/// The advice on a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policy {
    pub(super) prefer_cpu: bool,
    pub(super) read_mostly: bool,
}

/// The pages of one block.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    /// Pages with a copy in the host's memory.
    cpu: Mask,
    /// Pages with a copy in the GPU's memory.
    gpu: Mask,
    /// Pages of `cpu` that the CPU has mapped. Evicted ones are not.
    mapped: Mask,
    /// Pages of `cpu` that the GPU has mapped.
    remote: Mask,
    pub(super) policy: Policy,
    /// Bytes that moved to the GPU and to the CPU, and in how many copies.
    to_gpu: u64,
    to_cpu: u64,
    moves: u32,
    /// Whether a page of it moved back and forth.
    pub(super) thrashed: bool,
}

impl Block {
    /// Notes copies of pages.
    pub(super) fn moved(&mut self, to: Processor, copies: u64, bytes: u64) {
        let total = match to {
            Processor::Cpu => &mut self.to_cpu,
            Processor::Gpu => &mut self.to_gpu,
        };
        *total += bytes;
        self.moves = self.moves.saturating_add(u32::try_from(copies).unwrap_or(u32::MAX));
    }

    /// Returns the block as a publisher describes it.
    pub(super) fn published(&self, addr: u64) -> ManagedBlock {
        ManagedBlock {
            addr,
            on_cpu: self.mapped.words(),
            on_gpu: self.gpu.parts(),
            evicted: self.cpu.without(self.mapped).without(self.remote).parts(),
            to_gpu: self.to_gpu,
            to_cpu: self.to_cpu,
            moves: self.moves,
            thrashed: self.thrashed,
        }
    }

    pub(super) fn copies(&self, who: Processor) -> Mask {
        match who {
            Processor::Cpu => self.cpu,
            Processor::Gpu => self.gpu,
        }
    }

    pub(super) fn anywhere(&self) -> Mask {
        self.cpu.or(self.gpu)
    }

    pub(super) fn is_untouched(&self) -> bool {
        self.anywhere().is_empty()
    }

    pub(super) fn is_remote(&self, page: usize) -> bool {
        self.remote.has(page)
    }

    /// Checks whether a processor reaches a page without a fault. Nobody may write a page that both have.
    pub(super) fn reached(&self, who: Processor, page: usize, access: Access) -> bool {
        match who {
            Processor::Cpu => self.mapped.has(page) && (access == Access::Read || !self.gpu.has(page)),
            Processor::Gpu if self.remote.has(page) => true,
            Processor::Gpu => self.gpu.has(page) && (access == Access::Read || !self.cpu.has(page)),
        }
    }

    /// Gives a processor a copy of each page, and returns the pages that the other one had and lost.
    pub(super) fn take(&mut self, who: Processor, pages: Mask, duplicate: bool) -> Mask {
        let (own, other) = match who {
            Processor::Cpu => (&mut self.cpu, &mut self.gpu),
            Processor::Gpu => (&mut self.gpu, &mut self.cpu),
        };
        let lost = if duplicate { Mask::default() } else { pages.and(*other) };
        *own = own.or(pages);
        *other = other.without(lost);
        if who == Processor::Cpu {
            self.mapped = self.mapped.or(pages);
        }
        self.mapped = self.mapped.and(self.cpu);
        self.remote = self.remote.and(self.cpu);
        lost
    }

    /// Moves everything from the GPU to the host's memory, where the CPU has to fault to reach it. Returns the pages that had no
    /// copy there.
    pub(super) fn evict(&mut self) -> Mask {
        let copied = self.gpu.without(self.cpu);
        self.cpu = self.cpu.or(self.gpu);
        self.gpu = Mask::default();
        copied
    }

    pub(super) fn map_to_cpu(&mut self, pages: Mask) {
        self.mapped = self.mapped.or(pages.and(self.cpu));
    }

    /// Maps pages of the host's memory into the GPU, and not those that are `new` there into the CPU.
    pub(super) fn map_remotely(&mut self, pages: Mask, new: Mask) {
        self.gpu = self.gpu.without(pages);
        self.mapped = self.mapped.without(new);
        self.remote = self.remote.or(pages.and(self.cpu));
    }

    pub(super) fn unmap_remote(&mut self) {
        self.remote = Mask::default();
    }

    pub(super) fn unpin(&mut self, page: usize) {
        if !self.policy.prefer_cpu {
            self.remote = self.remote.without(Mask::one(page));
        }
    }

    /// Keeps the host's copy of each page that both have.
    pub(super) fn drop_duplicates(&mut self) {
        self.gpu = self.gpu.without(self.cpu);
    }
}
