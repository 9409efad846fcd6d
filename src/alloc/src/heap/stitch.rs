//! Stitching: one block from free pieces that lie apart.
//!
//! A driver maps whole chunks only, but a block need not use all of what is mapped for it: its first chunk may be used from some
//! place on, and its last up to some place. So a stitched block is the end of one free block, any number of whole chunks, and the
//! beginning of another free block; whatever lies before or behind in the first and the last chunk stays who it belongs to. What
//! then is still missing is new memory, and not more than that.

use gpumem_channel::{BlockState, EventKind};

use super::allocate::Request;
use super::block::NIL;
use super::cover::chunks_over;
use super::segment::Segment;
use super::view::{Piece, Stale};
use super::{Grant, Heap};
use crate::error::DeviceError;
use crate::size::{Class, SMALL_MAX};

/// A free block and the borders of chunks in it.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    addr: u64,
    end: u64,
    /// The first and the last border of a chunk in it.
    first: u64,
    last: u64,
}

impl Candidate {
    /// Bytes it has as the beginning of a stitched block, in its middle, and as its end.
    fn head(&self) -> u64 {
        self.last - self.addr
    }

    fn middle(&self) -> u64 {
        self.last - self.first
    }

    fn tail(&self) -> u64 {
        self.end - self.first
    }
}

/// What a stitched block is made of.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pieces: Vec<Piece>,
    /// Bytes of new memory, behind the pieces.
    pub(super) missing: u64,
}

impl Heap {
    /// A block from what lies side by side in a view: no driver call.
    pub(super) fn fit_in_views(&mut self, request: &Request) -> Option<Grant> {
        if request.class != Class::Chunked {
            return None;
        }
        let run = self.run_in_views(request.size, request.stream)?;
        let (stitched, pieces) = self.place_in(run, request.size);
        Some(self.hand_out_stitched(stitched, &pieces, request))
    }

    /// Addresses and ends of the home segment's free blocks that a stream may have.
    pub(super) fn free_at_home(&self, stream: u16) -> impl Iterator<Item = (u64, u64)> {
        let class = Class::Chunked as usize;
        let lines = [stream, self.streams.line(stream).any].map(|stream| &self.streams.line(stream).free[class]);
        let keys = lines.into_iter().flat_map(|index| index.at_least(1));
        keys.map(|key| (key.addr, key.addr + key.size))
    }

    /// The pieces that make the request with the least new memory and few chunks.
    pub(super) fn plan(&self, request: &Request) -> Option<Plan> {
        if request.class != Class::Chunked || request.size <= SMALL_MAX {
            return None;
        }
        let home = self.segments.get(self.home?)?;
        let mut candidates = self.candidates(home, request.stream);
        let mut plan = Plan {
            pieces: Vec::new(),
            missing: request.size,
        };
        let add = |plan: &mut Plan, addr: u64, size: u64| {
            plan.missing -= size;
            plan.pieces.push(Piece { addr, size });
        };
        let first = (0..candidates.len()).max_by_key(|i| candidates[*i].head())?;
        let first = candidates.swap_remove(first);
        if first.head() > 0 {
            add(&mut plan, first.addr, first.head());
        }
        while plan.missing > 0 {
            let fits = candidates.iter().filter(|c| c.tail() >= plan.missing);
            if let Some(end) = fits.min_by_key(|c| (c.tail(), c.addr)) {
                let missing = plan.missing;
                add(&mut plan, end.first, missing);
                break;
            }
            let next = (0..candidates.len()).max_by_key(|i| candidates[*i].middle());
            let next = next.map(|next| candidates.swap_remove(next));
            match next.filter(|next| next.middle() > 0) {
                Some(next) => add(&mut plan, next.first, next.middle()),
                None => break,
            }
        }
        (!plan.pieces.is_empty()).then_some(plan)
    }

    /// The free blocks that a stream may have and that reach a border of a chunk.
    fn candidates(&self, home: &Segment, stream: u16) -> Vec<Candidate> {
        self.free_at_home(stream)
            .filter_map(|(addr, end)| {
                let (at, chunk) = home.chunks.range(..=addr).next_back()?;
                let first = if *at == addr { addr } else { at + chunk.size };
                let (at, chunk) = home.chunks.range(..end).next_back()?;
                let last = if at + chunk.size == end { end } else { *at };
                (first <= last).then_some(Candidate { addr, end, first, last })
            })
            .collect()
    }

    /// Maps what a plan says, with new memory for what is missing, and hands it out. `None`: not with the memory there is.
    pub(super) fn stitch(&mut self, mut plan: Plan, request: &Request) -> Result<Option<Grant>, DeviceError> {
        if plan.missing > 0 {
            let Some(addr) = self.home.and_then(|home| self.segments.get(home)).map(Segment::end) else {
                return Ok(None);
            };
            if !self.grow_end(plan.missing, request)? {
                return Ok(None);
            }
            let size = plan.missing;
            plan.pieces.push(Piece { addr, size });
        }
        let Some((view, before)) = self.map_view(&plan.pieces)? else {
            return Ok(None);
        };
        let stitched = self.views.add_block(view, before, request.size);
        Ok(Some(self.hand_out_stitched(stitched, &plan.pieces, request)))
    }

    /// Maps the chunks of pieces side by side. The view, and where in it the first piece begins; `None` when the driver has no room
    /// for it.
    fn map_view(&mut self, pieces: &[Piece]) -> Result<Option<(u32, u64)>, DeviceError> {
        let Some(home) = self.home.and_then(|home| self.segments.get(home)) else {
            return Ok(None);
        };
        let over = |piece: &Piece| chunks_over(home, piece.addr, piece.addr + piece.size);
        let before = pieces
            .first()
            .map_or(0, |piece| over(piece).next().map_or(0, |(at, _)| piece.addr - at));
        let chunks: Vec<(u64, u64)> = pieces.iter().flat_map(over).collect();
        let handles: Vec<_> = chunks
            .iter()
            .filter_map(|(at, size)| Some((home.chunks.get(at)?.handle, *size)))
            .collect();
        let bytes: u64 = chunks.iter().map(|(_, size)| size).sum();
        self.limit_views(chunks.len());
        let range = match self.driver.reserve(bytes) {
            Ok(range) => range,
            Err(error) if error.is_out_of_memory() => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut mapped = 0;
        let mapping = handles.into_iter().try_for_each(|(handle, size)| {
            self.driver.map(range + mapped, size, handle)?;
            mapped += size;
            Ok(())
        });
        match mapping.and_then(|()| self.driver.set_access(range, bytes)) {
            Ok(()) => {
                self.layouts.mapped(chunks.len());
                Ok(Some((self.views.insert(range, chunks), before)))
            }
            Err(error) => {
                // Remembered if it fails, too.
                let _ = self.give_range_back(Stale { range, bytes, mapped });
                if error.is_out_of_memory() { Ok(None) } else { Err(error) }
            }
        }
    }

    /// Turns pieces, all of them free, into the parts of a held block.
    pub(super) fn hand_out_stitched(&mut self, stitched: u32, pieces: &[Piece], request: &Request) -> Grant {
        let home = self.home.unwrap_or(NIL);
        let (addr, size) = self.place_of(stitched);
        let due = self.tell_stitched(request, addr, size, home);
        self.outlet.segment_begin(home);
        let mut parts = Vec::with_capacity(pieces.len());
        for piece in pieces {
            self.cut_out(*piece, &mut parts);
        }
        for b in &parts {
            self.blocks[*b].stitched = stitched;
        }
        let block = parts.first().copied().unwrap_or(NIL);
        self.views.set_parts(stitched, parts);
        self.hold_parts(stitched, request);
        self.ledger.allocated(request.pool, size, request.requested);
        self.outlet.segment_close(home);
        self.tell_rest(due);
        Grant { block, addr, size }
    }

    /// Address and bytes of a stitched block.
    fn place_of(&self, stitched: u32) -> (u64, u64) {
        self.views
            .stitched(stitched)
            .map_or((0, 0), |block| (block.addr, block.size))
    }

    /// Cuts a piece out of the free block it lies in, or blocks: what is nobody's may lie beside what is the stream's.
    pub(super) fn cut_out(&mut self, piece: Piece, parts: &mut Vec<u32>) {
        let (mut addr, end) = (piece.addr, piece.addr + piece.size);
        while addr < end {
            let Some(mut b) = self.block_at(addr) else { return };
            self.unshelve(b);
            let before = addr - self.blocks[b].addr;
            if before > 0 {
                let rest = self.cut(b, before);
                self.shelve(b);
                self.show(b);
                b = rest;
            }
            if self.blocks[b].size > end - addr {
                let rest = self.cut(b, end - addr);
                self.shelve(rest);
                self.show(rest);
            }
            parts.push(b);
            addr += self.blocks[b].size;
        }
    }

    /// Hands out a stitched block that was set aside.
    pub(super) fn hand_out_set_aside(&mut self, b: u32, request: &Request) -> Grant {
        let (home, stitched) = (self.blocks[b].segment, self.blocks[b].stitched);
        let (addr, size) = self.place_of(stitched);
        let due = self.tell_stitched(request, addr, size, home);
        self.hold_parts(stitched, request);
        self.ledger.allocated(request.pool, size, request.requested);
        self.tell_rest(due);
        Grant { block: b, addr, size }
    }

    /// Turns the parts of a stitched block into those of a held one.
    fn hold_parts(&mut self, stitched: u32, request: &Request) {
        let parts = self
            .views
            .stitched(stitched)
            .map_or(Vec::new(), |block| block.parts.clone());
        for (i, b) in parts.into_iter().enumerate() {
            let block = &mut self.blocks[b];
            (block.state, block.requested) = match i {
                0 => (BlockState::Allocated, request.requested),
                _ => (BlockState::Part, 0),
            };
            block.pool = request.pool;
            block.stream = request.stream;
            block.freed_at = 0;
            block.tag = request.tag;
            self.show(b);
        }
        self.record_stitched(stitched, request);
    }

    /// Nothing uses a stitched block any more: it is set aside for the next request of its size, or its pieces join their free
    /// neighbours.
    pub(super) fn complete_stitched(&mut self, b: u32, why: EventKind) {
        let (stitched, stream) = (self.blocks[b].stitched, self.blocks[b].stream);
        let frees = self.frees;
        let due = self.tell_block(why, b);
        self.views.freed(stitched, frees, stream);
        let Some(held) = self.views.stitched(stitched) else {
            return;
        };
        let size = held.size;
        for b in held.parts.clone() {
            let block = &mut self.blocks[b];
            block.state = BlockState::Quick;
            block.freed_at = frees;
            self.forget_owner(b);
            self.show(b);
        }
        let quick = self.streams.quick(stream, size);
        if quick.takes(size) {
            quick.put(size, b, &mut self.blocks);
        } else {
            self.take_apart(b);
        }
        self.tell_rest(due);
    }

    /// The pieces of a stitched block that was set aside join their free neighbours. The view stays for the next time.
    pub(super) fn take_apart(&mut self, b: u32) {
        let (home, stitched) = (self.blocks[b].segment, self.blocks[b].stitched);
        let gone = self.views.remove_block(stitched);
        self.outlet.segment_begin(home);
        for b in gone.map_or(Vec::new(), |block| block.parts) {
            let block = &mut self.blocks[b];
            block.state = BlockState::Free;
            block.stitched = NIL;
            let b = self.coalesce(b);
            self.show(b);
        }
        self.outlet.segment_close(home);
    }
}
