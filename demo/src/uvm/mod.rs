//! A model of how NVIDIA's driver (nvidia-uvm) moves managed memory between one CPU and one GPU on PCIe.
//!
//! Memory is pages of 4 KiB in blocks of 2 MiB. A page has a copy at the CPU, at the GPU, at both if it is read-duplicated, or
//! nowhere while nobody has touched it. An access to a page that its processor cannot reach is a fault; the driver serves it by
//! moving the page, and pages around it that its prefetch tree adds ([`tree`]), but never across the edge of a block. When the GPU
//! is full, the block that was least recently faulted goes to the CPU as a whole: the driver sees faults, not accesses.
//!
//! What the driver does is from its source, versions 515 to 595 (open-gpu-kernel-modules). The counters and causes have the
//! meaning of the driver's own. What things cost is in [`cost`].
//!
//! Simplifications: advice holds for whole blocks; the GPU's faults arrive in the order of the pages (those of a real kernel
//! are scattered, so that its prefetch tree adds more and a batch serves fewer pages by faults); a block takes a whole 2 MiB of
//! the GPU's memory as soon as it has a page there, and gives it back when its last page leaves.

mod block;
mod cost;
mod counters;
mod mask;
mod thrashing;
mod tree;

use std::ops::Range;

use block::Block;
use gpumem_channel::ManagedBlock;
use mask::Mask;
use thrashing::{Bounces, Verdict};

pub(crate) use counters::{Cause, Counters, Direction};

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;
/// Bytes of a block.
pub(crate) const BLOCK: u64 = 2 << 20;
/// Pages of a block.
const PAGES: usize = (BLOCK / PAGE) as usize;
/// Faults that the driver takes from the GPU's buffer at once (`uvm_perf_fault_batch_count`).
const BATCH: usize = 256;

/// Who accesses or holds a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processor {
    Cpu,
    Gpu,
}

/// How a page is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// What `cuMemAdvise` can say of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Whether pages stay in the host's memory, where the GPU reaches them over the bus. (A CPU on PCIe does not reach a GPU's
    /// memory, so advice to stay there does not spare it a fault.)
    PreferCpu(bool),
    /// Whether readers get copies of their own.
    ReadMostly(bool),
}

/// Where the copies of a page are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg(test)]
enum Residency {
    Nowhere,
    Cpu,
    Gpu,
    Both,
}

/// An allocation of managed memory, and the GPU that it moves to and from.
#[derive(Clone, Debug)]
pub(crate) struct Uvm {
    blocks: Vec<Block>,
    /// Blocks of memory that the GPU has for managed memory.
    capacity: usize,
    /// Blocks with pages at the GPU, the least recently faulted first.
    lru: Vec<usize>,
    bounces: Bounces,
    counters: Counters,
}

impl Uvm {
    /// Allocates `bytes`, rounded up to whole blocks, of which nobody has touched any. The GPU has room for `capacity` bytes, at
    /// least two blocks: while one is served, the one before must stay.
    pub(crate) fn new(bytes: u64, capacity: u64) -> Uvm {
        Uvm {
            blocks: vec![Block::default(); bytes.div_ceil(BLOCK) as usize],
            capacity: ((capacity / BLOCK) as usize).max(2),
            lru: Vec::new(),
            bounces: Bounces::default(),
            counters: Counters::default(),
        }
    }

    /// Returns what happened so far.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the blocks as a publisher describes them, the first at `addr`.
    pub(crate) fn published(&self, addr: u64) -> Vec<ManagedBlock> {
        let blocks = self.blocks.iter().zip(0..);
        blocks.map(|(block, n)| block.published(addr + n * BLOCK)).collect()
    }

    /// Returns the number of pages.
    pub(crate) fn pages(&self) -> usize {
        self.blocks.len() * PAGES
    }

    /// Accesses each page of a range in order, once. `seen` is called whenever pages have moved.
    pub(crate) fn touch(&mut self, who: Processor, pages: Range<usize>, access: Access, seen: &mut dyn FnMut(&Uvm)) {
        for page in self.bounces.expired(self.counters.ns) {
            self.blocks[page / PAGES].unpin(page % PAGES);
        }
        match who {
            Processor::Cpu => self.touch_by_cpu(pages, access, seen),
            Processor::Gpu => self.touch_by_gpu(pages, access, seen),
        }
    }

    fn touch_by_cpu(&mut self, pages: Range<usize>, access: Access, seen: &mut dyn FnMut(&Uvm)) {
        for page in pages {
            self.counters.ns += cost::CPU_PAGE;
            if !self.blocks[page / PAGES].reached(Processor::Cpu, page % PAGES, access) {
                self.counters.cpu_faults += 1;
                self.counters.ns += cost::CPU_FAULT;
                self.serve(Processor::Cpu, page / PAGES, Mask::one(page % PAGES), access);
                seen(self);
            }
        }
    }

    /// The GPU's faults come in batches, whose faults are served block by block.
    fn touch_by_gpu(&mut self, pages: Range<usize>, access: Access, seen: &mut dyn FnMut(&Uvm)) {
        let mut next = pages.start;
        while next < pages.end {
            let (mut batch, mut faults) = (Vec::<(usize, Mask)>::new(), 0);
            while next < pages.end && faults < BATCH {
                let (index, page) = (next / PAGES, next % PAGES);
                let block = &self.blocks[index];
                let reached = block.reached(Processor::Gpu, page, access);
                self.counters.ns += match reached && block.is_remote(page) {
                    true => cost::copy(PAGE),
                    false => cost::gpu(PAGE),
                };
                if !reached {
                    faults += 1;
                    match batch.last_mut() {
                        Some((last, mask)) if *last == index => mask.set(page),
                        _ => batch.push((index, Mask::one(page))),
                    }
                }
                next += 1;
            }
            if faults > 0 {
                self.counters.gpu_faults += faults as u64;
                self.counters.batches += 1;
                self.counters.ns += cost::GPU_BATCH;
            }
            for (index, faulted) in batch {
                self.serve(Processor::Gpu, index, faulted, access);
            }
            seen(self);
        }
    }

    /// Serves faults of one processor on one block.
    fn serve(&mut self, who: Processor, index: usize, faulted: Mask, access: Access) {
        let policy = self.blocks[index].policy;
        // A reader gets a copy beside the other's.
        let duplicate = policy.read_mostly && access == Access::Read;
        if !duplicate && who == Processor::Gpu && policy.prefer_cpu {
            // The GPU reaches the host's memory over the bus, so nothing has to move.
            let block = &self.blocks[index];
            let region = match block.is_untouched() {
                true => Mask::all(),
                false => tree::region(block.copies(Processor::Cpu), faulted),
            };
            self.map_remotely(index, region);
            return;
        }
        let faulted = match duplicate {
            true => faulted,
            false => self.judge(who, index, faulted),
        };
        if faulted.is_empty() {
            return;
        }
        let block = &self.blocks[index];
        let held = block.copies(who);
        let region = match block.is_untouched() && policy.prefer_cpu && who == Processor::Cpu {
            true => Mask::all(),
            false => tree::region(held, faulted),
        };
        let added = region.without(faulted).without(self.bounces.of_block(index));
        self.take(who, index, faulted, Cause::Fault, duplicate);
        self.take(
            who,
            index,
            added.without(held),
            Cause::Prefetch,
            duplicate || policy.read_mostly,
        );
        if who == Processor::Cpu {
            self.blocks[index].map_to_cpu(added);
        }
    }

    /// Looks for pages that bounce, and returns the faulted pages that are to move.
    fn judge(&mut self, who: Processor, index: usize, faulted: Mask) -> Mask {
        let block = &self.blocks[index];
        let elsewhere = match who {
            Processor::Cpu => block.copies(Processor::Gpu).without(block.copies(Processor::Cpu)),
            Processor::Gpu => block.copies(Processor::Cpu).without(block.copies(Processor::Gpu)),
        };
        let (mut moving, mut pinned, mut nap) = (faulted, Mask::default(), false);
        for page in faulted.and(elsewhere).pages() {
            match self.bounces.bounce(index * PAGES + page, self.counters.ns) {
                Verdict::Move => {}
                Verdict::Nap => {
                    self.blocks[index].thrashed = true;
                    self.counters.throttled += 1;
                    nap = true;
                }
                // Pages are pinned in the host's memory, which both reach. One that is on the GPU moves there.
                Verdict::Pin => pinned.set(page),
            }
        }
        self.counters.thrashing = self.bounces.thrashing();
        if nap {
            self.counters.ns += cost::NAP;
        }
        if !pinned.is_empty() && who == Processor::Gpu {
            moving = faulted.without(pinned);
            self.map_remotely(index, pinned);
        }
        moving
    }

    /// Maps pages of the host's memory into the GPU. Untouched ones get memory there first, and those at the GPU move back.
    fn map_remotely(&mut self, index: usize, pages: Mask) {
        let missing = pages.without(self.blocks[index].copies(Processor::Cpu));
        self.take(Processor::Cpu, index, missing, Cause::Fault, false);
        self.blocks[index].map_remotely(pages, missing);
        self.free_if_empty(index);
        self.counters.remote += pages.count() as u64;
    }

    /// Brings pages to a processor: copies those that the other one has, and fills those that nobody touched with zeroes.
    /// Without `duplicate` the other's copies go.
    fn take(&mut self, who: Processor, index: usize, pages: Mask, cause: Cause, duplicate: bool) {
        if pages.is_empty() {
            return;
        }
        if who == Processor::Gpu {
            self.make_room(index);
        }
        let block = &mut self.blocks[index];
        let missing = pages.without(block.copies(who));
        let copied = missing.and(block.anywhere());
        let zeroed = missing.without(copied);
        let gone = block.take(who, pages, duplicate);
        if duplicate {
            self.counters.duplicated += copied.count() as u64;
        }
        self.counters.invalidated += gone.without(copied).count() as u64;
        let bytes = copied.count() as u64 * PAGE;
        self.blocks[index].moved(who, copied.runs(), bytes);
        self.counters.moved(Direction::to(who), cause, copied.runs(), bytes);
        self.counters.ns += cost::copy(bytes) + cost::zeroes(who, zeroed.count() as u64 * PAGE);
        self.free_if_empty(index);
    }

    /// Gives a block's memory at the GPU back if no page is left there.
    fn free_if_empty(&mut self, index: usize) {
        if self.blocks[index].copies(Processor::Gpu).is_empty() {
            self.lru.retain(|other| *other != index);
        }
    }

    /// Makes a block the most recently faulted one, and finds memory at the GPU for it if it has none.
    fn make_room(&mut self, index: usize) {
        if let Some(at) = self.lru.iter().position(|other| *other == index) {
            self.lru.remove(at);
        } else if self.lru.len() == self.capacity {
            let victim = self.lru.remove(0);
            let bytes = self.blocks[victim].evict().count() as u64 * PAGE;
            self.blocks[victim].moved(Processor::Cpu, u64::from(bytes > 0), bytes);
            self.counters.evicted += 1;
            // A block whose pages all have a copy at the CPU is dropped without a copy.
            self.counters
                .moved(Direction::ToCpu, Cause::Eviction, u64::from(bytes > 0), bytes);
            self.counters.ns += cost::copy(bytes);
        }
        self.lru.push(index);
    }

    /// Moves a range to a processor ahead of its use, as `cuMemPrefetchAsync` does. `seen` is called after each block.
    pub(crate) fn prefetch(&mut self, to: Processor, pages: Range<usize>, seen: &mut dyn FnMut(&Uvm)) {
        for (index, pages) in in_blocks(pages) {
            let missing = pages.without(self.blocks[index].copies(to));
            let duplicate = self.blocks[index].policy.read_mostly;
            self.take(to, index, missing, Cause::User, duplicate);
            if to == Processor::Cpu {
                self.blocks[index].map_to_cpu(pages);
            }
            seen(self);
        }
    }

    /// Gives advice on the blocks of a range.
    pub(crate) fn advise(&mut self, pages: Range<usize>, advice: Advice) {
        for (index, _) in in_blocks(pages) {
            let block = &mut self.blocks[index];
            match advice {
                Advice::PreferCpu(true) => block.policy.prefer_cpu = true,
                Advice::PreferCpu(false) => {
                    block.policy.prefer_cpu = false;
                    block.unmap_remote();
                }
                Advice::ReadMostly(true) => block.policy.read_mostly = true,
                Advice::ReadMostly(false) => {
                    block.policy.read_mostly = false;
                    block.drop_duplicates();
                    self.free_if_empty(index);
                }
            }
        }
    }

    /// Returns the blocks of memory that are in use at the GPU.
    #[cfg(test)]
    fn used(&self) -> usize {
        self.lru.len()
    }

    #[cfg(test)]
    fn residency(&self, page: usize) -> Residency {
        let block = &self.blocks[page / PAGES];
        let has = |who| block.copies(who).has(page % PAGES);
        match (has(Processor::Cpu), has(Processor::Gpu)) {
            (false, false) => Residency::Nowhere,
            (true, false) => Residency::Cpu,
            (false, true) => Residency::Gpu,
            (true, true) => Residency::Both,
        }
    }
}

/// Cuts a range of pages at the edges of blocks.
fn in_blocks(pages: Range<usize>) -> impl Iterator<Item = (usize, Mask)> {
    let blocks = pages.start / PAGES..pages.end.div_ceil(PAGES);
    blocks.map(move |index| {
        let first = pages.start.max(index * PAGES) - index * PAGES;
        let end = pages.end.min((index + 1) * PAGES) - index * PAGES;
        (index, Mask::range(first..end))
    })
}

#[cfg(test)]
mod tests;
