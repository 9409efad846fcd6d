//! What is counted for each pool. Nothing is for what is no pool's.

use super::Heap;

impl Heap {
    /// Whose memory a block is that was handed out: the stream's it was handed out on, and its segment's.
    #[inline(always)]
    pub(super) fn arena_of(&self, b: u32) -> u16 {
        self.streams.line(self.blocks[b].stream).arena
    }

    pub(super) fn pool_reserved(&mut self, arena: u16, bytes: u64) {
        if let Some(arena) = self.arenas.get_mut(arena) {
            arena.figures.segment.add(1);
            arena.figures.reserved_bytes.add(bytes);
        }
    }

    pub(super) fn pool_released(&mut self, arena: u16, bytes: u64) {
        if let Some(arena) = self.arenas.get_mut(arena) {
            arena.figures.segment.sub(1);
            arena.figures.reserved_bytes.sub(bytes);
        }
    }

    /// A block of a pool was handed out.
    pub(super) fn pool_granted(&mut self, b: u32) {
        let block = &self.blocks[b];
        let (arena, size, requested) = (self.arena_of(b), block.size, block.requested);
        if let Some(arena) = self.arenas.get_mut(arena) {
            let figures = &mut arena.figures;
            figures.allocation.add(1);
            figures.active.add(1);
            figures.requested_bytes.add(requested);
            figures.allocated_bytes.add(size);
            figures.active_bytes.add(size);
        }
    }

    /// The program gave a block of a pool back; whatever queued work does with it.
    pub(super) fn pool_freed(&mut self, b: u32) {
        let block = &self.blocks[b];
        let (arena, size, requested) = (self.arena_of(b), block.size, block.requested);
        if let Some(arena) = self.arenas.get_mut(arena) {
            let figures = &mut arena.figures;
            figures.allocation.sub(1);
            figures.requested_bytes.sub(requested);
            figures.allocated_bytes.sub(size);
        }
    }

    /// Nothing uses a block of a pool any more.
    pub(super) fn pool_done(&mut self, arena: u16, size: u64) {
        let Some(its) = self.arenas.get_mut(arena) else { return };
        its.figures.active.sub(1);
        its.figures.active_bytes.sub(size);
        if its.is_gone() {
            self.look_at_closing(arena);
        }
    }

    pub(super) fn pool_overflowed(&mut self, arena: u16) {
        if let Some(arena) = self.arenas.get_mut(arena) {
            arena.figures.num_overflows += 1;
        }
    }

    pub(super) fn pool_ran_out(&mut self, arena: u16) {
        if let Some(arena) = self.arenas.get_mut(arena) {
            arena.figures.num_ooms += 1;
        }
    }
}
