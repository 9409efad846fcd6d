//! Stitching: one block from free pieces that lie apart.
//!
//! A driver maps whole chunks only, but a block need not use all of what is mapped for it: its first chunk may be used from some
//! place on, and its last up to some place. So a stitched block is the end of one free block, any number of whole chunks, and the
//! beginning of another free block; whatever lies before or behind in the first and the last chunk stays who it belongs to. What
//! then is still missing is new memory, and not more than that.

pub(super) mod cover;
pub(super) mod map;
pub(super) mod plan;
pub(super) mod runs;
pub(super) mod view;
pub(super) mod views;

use gpumem_channel::{BlockState, EventKind};

use super::allocate::Request;
use super::block::{Block, NIL};
use super::segment::Segment;
use super::{Grant, Heap};
use crate::error::DeviceError;
use crate::size::Class;
use plan::Plan;
use runs::Look;
use view::Piece;

impl Heap {
    /// A block from what lies side by side in a view: no driver call.
    pub(super) fn fit_in_views(&mut self, request: &Request, look: Look) -> Option<Grant> {
        if request.class != Class::Chunked {
            return None;
        }
        let run = self.run_in_views((request.size, look), request.stream)?;
        let (stitched, pieces) = self.place_in(run, request.size);
        Some(self.hand_out_stitched(stitched, &pieces, request))
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
        let mapped = match plan.onto {
            Some(run) => self.extend_view(run, &plan.pieces, request)?,
            None => self.map_view(&plan.pieces, request)?,
        };
        let Some(stitched) = mapped else { return Ok(None) };
        let mut pieces = plan.before;
        pieces.append(&mut plan.pieces);
        Ok(Some(self.hand_out_stitched(stitched, &pieces, request)))
    }

    /// Turns pieces, all of them free, into the parts of a held block.
    pub(super) fn hand_out_stitched(&mut self, stitched: u32, pieces: &[Piece], request: &Request) -> Grant {
        let home = self.home.unwrap_or(NIL);
        let (addr, size) = self.place_of(stitched);
        let due = self.tell_stitched(request, addr, size, home);
        let mut parts = Vec::with_capacity(pieces.len());
        let mut left = std::mem::take(&mut self.left);
        for piece in pieces {
            self.cut_out(*piece, &mut parts, &mut left);
        }
        for b in &parts {
            self.blocks[*b].stitched = stitched;
        }
        let block = parts.first().copied().unwrap_or(NIL);
        self.hold_parts(&parts, request);
        self.tell_blocks(home, left.iter().chain(&parts).copied());
        self.views.set_parts(stitched, parts);
        self.record_stitched(stitched, request);
        left.clear();
        self.left = left;
        self.count_allocated(request, size);
        self.tell_rest(due);
        Grant::by_heap(block, addr, size)
    }

    /// Address and bytes of a stitched block.
    fn place_of(&self, stitched: u32) -> (u64, u64) {
        self.views
            .stitched(stitched)
            .map_or((0, 0), |block| (block.addr, block.size))
    }

    /// Cuts a piece out of the free block it lies in, or blocks: what is nobody's may lie beside what is the stream's. The channel is to be
    /// told of the parts and of what is left of these blocks.
    pub(super) fn cut_out(&mut self, piece: Piece, parts: &mut Vec<u32>, left: &mut Vec<u32>) {
        let (mut addr, end) = (piece.addr, piece.addr + piece.size);
        while addr < end {
            let Some(mut b) = self.block_at(addr) else { return };
            self.unshelve(b);
            let before = addr - self.blocks[b].addr;
            if before > 0 {
                let rest = self.cut(b, before);
                self.shelve(b);
                left.push(b);
                b = rest;
            }
            if self.blocks[b].size > end - addr {
                let rest = self.cut(b, end - addr);
                self.shelve(rest);
                left.push(rest);
            }
            parts.push(b);
            addr += self.blocks[b].size;
        }
    }

    /// Turns the parts of a stitched block into those of a held one.
    fn hold_parts(&mut self, parts: &[u32], request: &Request) {
        for (i, b) in parts.iter().enumerate() {
            let block = &mut self.blocks[*b];
            (block.state, block.requested) = match i {
                0 => (BlockState::Allocated, request.requested),
                _ => (BlockState::Part, 0),
            };
            block.pool = request.pool;
            block.stream = request.stream;
            block.freed_at = 0;
            block.tag = request.tag;
        }
    }

    /// Hands out a stitched block that was set aside.
    pub(super) fn hand_out_set_aside(&mut self, b: u32, request: &Request) -> Grant {
        let (home, stitched) = (self.blocks[b].segment, self.blocks[b].stitched);
        let (addr, size) = self.place_of(stitched);
        let due = self.tell_stitched(request, addr, size, home);
        let parts = self.views.take_parts(stitched);
        self.hold_parts(&parts, request);
        self.tell_blocks(home, parts.iter().copied());
        self.views.set_parts(stitched, parts);
        self.record_stitched(stitched, request);
        self.count_allocated(request, size);
        self.tell_rest(due);
        Grant::by_heap(b, addr, size)
    }

    /// Nothing uses a stitched block any more: it is set aside for the next request of its size.
    pub(super) fn complete_stitched(&mut self, b: u32, why: EventKind) {
        let Block {
            segment: home,
            stitched,
            stream,
            ..
        } = self.blocks[b];
        let frees = self.frees;
        let due = self.tell_block(why, b);
        self.views.freed(stitched, frees, stream);
        let (_, size) = self.place_of(stitched);
        let parts = self.views.take_parts(stitched);
        for b in &parts {
            let block = &mut self.blocks[*b];
            block.state = BlockState::Quick;
            block.freed_at = frees;
            block.forget_owner();
        }
        self.tell_blocks(home, parts.iter().copied());
        self.views.set_parts(stitched, parts);
        self.streams.set_aside(stream, size, b);
        self.tell_rest(due);
    }

    /// The pieces of the stitched blocks that were set aside on a stream join their free neighbours.
    pub(super) fn take_all_apart(&mut self, stream: u16) {
        while let Some((_, b)) = self.streams.line_mut(stream).aside.pop() {
            self.take_apart(b);
        }
    }

    /// The pieces of a stitched block that was set aside join their free neighbours. The view stays for the next time.
    fn take_apart(&mut self, b: u32) {
        let (home, stitched) = (self.blocks[b].segment, self.blocks[b].stitched);
        let mut parts = self
            .views
            .remove_block(stitched)
            .map_or(Vec::new(), |block| block.parts);
        for b in &mut parts {
            let block = &mut self.blocks[*b];
            block.state = BlockState::Free;
            block.stitched = NIL;
            self.note_age(*b);
            *b = self.coalesce_quietly(*b);
        }
        self.tell_free(home, parts.into_iter());
        self.tell_rest(false);
    }
}
