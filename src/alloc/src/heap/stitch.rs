//! Stitching: one block from free pieces that lie apart.
//!
//! A driver maps whole chunks only, but a block need not use all of what is mapped for it: its first chunk may be used from some
//! place on, and its last up to some place. So a stitched block is the end of one free block, any number of whole chunks, and the
//! beginning of another free block; whatever lies before or behind in the first and the last chunk stays who it belongs to. What
//! then is still missing is new memory, and not more than that.

use gpumem_channel::{BlockState, EventKind};

use super::alias::{Alias, Piece, Stale};
use super::allocate::Request;
use super::block::NIL;
use super::segment::Segment;
use super::streams::ANY;
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
    /// A block of exactly this size that was stitched before, if all its pieces are free for the stream: no driver call.
    pub(super) fn stitched_before(&mut self, request: &Request) -> Option<Grant> {
        if self.aliases.is_empty() {
            return None;
        }
        let home = self.home?;
        let fits = |alias: &&u32| {
            self.aliases.get(**alias).is_some_and(|alias| {
                let free = |piece: &Piece| self.is_free_for(home, *piece, request.stream);
                alias.parts.is_empty() && alias.pieces.iter().all(free)
            })
        };
        let alias = *self.aliases.of_size(request.size).iter().rev().find(fits)?;
        Some(self.hand_out_stitched(home, alias, request))
    }

    /// The pieces that make the request with the least new memory and few chunks.
    pub(super) fn plan(&self, request: &Request) -> Option<Plan> {
        if request.size <= SMALL_MAX {
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
        let class = Class::Chunked as usize;
        let lines = [stream, ANY].map(|stream| &self.streams.line(stream).free[class]);
        let keys = lines.into_iter().flat_map(|index| index.at_least(1));
        keys.filter_map(|key| {
            let (addr, end) = (key.addr, key.addr + key.size);
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
        let Some(home) = self.home else { return Ok(None) };
        if plan.missing > 0 {
            let Some(addr) = self.segments.get(home).map(Segment::end) else {
                return Ok(None);
            };
            if !self.grow_end(plan.missing, request)? {
                return Ok(None);
            }
            let size = plan.missing;
            plan.pieces.push(Piece { addr, size });
        }
        let Some(alias) = self.map_alias(home, plan.pieces)? else {
            return Ok(None);
        };
        let alias = self.aliases.insert(alias);
        Ok(Some(self.hand_out_stitched(home, alias, request)))
    }

    /// Maps the chunks of pieces side by side. `None` when the driver has no room for it.
    fn map_alias(&mut self, home: u32, pieces: Vec<Piece>) -> Result<Option<Alias>, DeviceError> {
        let Some(segment) = self.segments.get(home) else {
            return Ok(None);
        };
        let start = |addr: u64| segment.chunks.range(..=addr).next_back().map_or(addr, |(at, _)| *at);
        let chunks: Vec<_> = pieces
            .iter()
            .flat_map(|piece| segment.chunks.range(start(piece.addr)..piece.addr + piece.size))
            .map(|(_, chunk)| *chunk)
            .collect();
        let before = pieces.first().map_or(0, |piece| piece.addr - start(piece.addr));
        let bytes: u64 = chunks.iter().map(|chunk| chunk.size).sum();
        self.limit_aliases(chunks.len());
        let range = match self.driver.reserve(bytes) {
            Ok(range) => range,
            Err(error) if error.is_out_of_memory() => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut mapped = 0;
        let mapping = chunks.iter().try_for_each(|chunk| {
            self.driver.map(range + mapped, chunk.size, chunk.handle)?;
            mapped += chunk.size;
            Ok(())
        });
        match mapping.and_then(|()| self.driver.set_access(range, bytes)) {
            Ok(()) => Ok(Some(Alias::new(range, bytes, chunks.len(), range + before, pieces))),
            Err(error) => {
                // Remembered if it fails, too.
                let _ = self.give_range_back(Stale { range, bytes, mapped });
                if error.is_out_of_memory() { Ok(None) } else { Err(error) }
            }
        }
    }

    /// Turns the pieces of an alias, all of them free, into the parts of a held block.
    fn hand_out_stitched(&mut self, home: u32, alias: u32, request: &Request) -> Grant {
        let (addr, size, pieces) = self.aliases.get(alias).map_or((0, 0, Vec::new()), |alias| {
            (alias.addr, alias.size, alias.pieces.clone())
        });
        self.tell_stitched(request, addr, size, home);
        self.outlet.segment_begin(home);
        let parts: Vec<u32> = pieces.iter().filter_map(|piece| self.cut_out(home, *piece)).collect();
        for b in &parts {
            self.blocks[*b].alias = alias;
        }
        let block = parts.first().copied().unwrap_or(NIL);
        if let Some(alias) = self.aliases.get_mut(alias) {
            alias.parts = parts;
        }
        self.hold_parts(alias, request);
        self.ledger.allocated(request.pool, size, request.requested);
        self.show_segment(home);
        self.tell_figures();
        Grant { block, addr, size }
    }

    /// Cuts a piece out of the free block it lies in.
    fn cut_out(&mut self, home: u32, piece: Piece) -> Option<u32> {
        let mut b = self.block_at(home, piece.addr)?;
        self.unshelve(b);
        let before = piece.addr - self.blocks[b].addr;
        if before > 0 {
            let rest = self.cut(b, before);
            self.shelve(b);
            self.show(b);
            b = rest;
        }
        if self.blocks[b].size > piece.size {
            let rest = self.cut(b, piece.size);
            self.shelve(rest);
            self.show(rest);
        }
        Some(b)
    }

    /// Hands out a stitched block that was set aside.
    pub(super) fn hand_out_set_aside(&mut self, b: u32, request: &Request) -> Grant {
        let (home, alias) = (self.blocks[b].segment, self.blocks[b].alias);
        let (addr, size) = self.aliases.get(alias).map_or((0, 0), |alias| (alias.addr, alias.size));
        self.tell_stitched(request, addr, size, home);
        self.hold_parts(alias, request);
        self.ledger.allocated(request.pool, size, request.requested);
        self.tell_figures();
        Grant { block: b, addr, size }
    }

    /// Turns the parts of an alias into those of a held block.
    fn hold_parts(&mut self, alias: u32, request: &Request) {
        let parts = self.aliases.get(alias).map_or(Vec::new(), |alias| alias.parts.clone());
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
    }

    /// Nothing uses a stitched block any more: it is set aside for the next request of its size, or its pieces join their free
    /// neighbours.
    pub(super) fn complete_stitched(&mut self, b: u32, why: EventKind) {
        let block = &self.blocks[b];
        let (alias, stream) = (block.alias, block.stream);
        let frees = self.frees;
        self.tell_block(why, b);
        let Some(held) = self.aliases.get_mut(alias) else {
            return;
        };
        held.freed(frees, stream);
        let size = held.size;
        for b in held.parts.clone() {
            let block = &mut self.blocks[b];
            block.state = BlockState::Quick;
            block.freed_at = frees;
            self.forget_owner(b);
            self.show(b);
        }
        let quick = &mut self.streams.line_mut(stream).quick;
        if quick.takes(size) {
            quick.put(size, b, &mut self.blocks);
        } else {
            self.take_apart(b);
        }
        self.tell_figures();
    }

    /// The pieces of a stitched block that was set aside join their free neighbours. The alias stays for the next time.
    pub(super) fn take_apart(&mut self, b: u32) {
        let (home, alias) = (self.blocks[b].segment, self.blocks[b].alias);
        let parts = self
            .aliases
            .get_mut(alias)
            .map(|alias| std::mem::take(&mut alias.parts));
        self.outlet.segment_begin(home);
        for b in parts.unwrap_or_default() {
            let block = &mut self.blocks[b];
            block.state = BlockState::Free;
            block.alias = NIL;
            let b = self.coalesce(b);
            self.show(b);
        }
        self.show_segment(home);
    }
}
