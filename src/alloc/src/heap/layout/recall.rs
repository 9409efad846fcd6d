//! Requests placed as they were before.

use gpumem_channel::BlockState;

use crate::error::Error;
use crate::heap::allocate::Request;
use crate::heap::block::{Block, NIL};
use crate::heap::layout::{Moment, Placement};
use crate::heap::stitch::view::Piece;
use crate::heap::turn::{Calls, suspended};
use crate::heap::{Grant, Heap};
use crate::lane::State;

impl Heap {
    /// Tells the layouts what is held as a request comes.
    #[inline(always)]
    pub(in crate::heap) fn note_moment(&mut self) {
        let [blocks, requested, bytes, ..] = self.ledger.own.current(1);
        self.layouts.comes(Moment {
            blocks,
            bytes,
            requested,
            frees: self.frees,
        });
    }

    /// A block where the request went before, or another one.
    pub(in crate::heap) fn allocate_remembered(&mut self, request: &Request) -> Result<Grant, Error> {
        self.note_moment();
        let before = self.layouts.expect_once(request.stream, request.size);
        let grant = self.allocate_there(before, request)?;
        self.note_placement(&grant, request);
        Ok(grant)
    }

    /// A block where the request went before, or another one. Its placement is to be noted.
    pub(in crate::heap) fn allocate_there(
        &mut self,
        before: Option<Placement>,
        request: &Request,
    ) -> Result<Grant, Error> {
        if let Some(before) = before {
            if let Some(grant) = self.place(before, request) {
                return Ok(grant);
            }
            if let Some(progress) = self.progress.as_mut().filter(|progress| progress.wanted.is_some()) {
                progress.before = Some(before);
                return Err(suspended().into());
            }
            self.layouts.was_taken(request.stream);
        }
        self.allocate_anew(request)
    }

    /// A block where the request went before; it may [wonder](crate::heap::ask::wonder) whether it may go there.
    pub(in crate::heap) fn allocate_as_before(&mut self, request: &Request) -> Option<Grant> {
        let before = self.layouts.expect_once(request.stream, request.size)?;
        self.calls = Calls::Wonders;
        let placed = self.place(before, request);
        self.calls = Calls::Here;
        match &placed {
            Some(grant) => self.note_placement(grant, request),
            None if self.wonders() => self.layouts.was_asked(request.stream, request.size, Some(before)),
            None => self.layouts.was_taken(request.stream),
        }
        placed
    }

    /// [`allocate_remembered`](Heap::allocate_remembered) for a request that [could not](crate::heap::layout::Layouts::may_repeat) go where it
    /// went before, after it went elsewhere.
    pub(in crate::heap) fn note_as_new(&mut self, grant: &Grant, request: &Request) {
        self.layouts.expect(request.stream, request.size);
        self.note_placement(grant, request);
    }

    /// Notes where a request went, if it is to be remembered.
    pub(in crate::heap) fn note_placement(&mut self, grant: &Grant, request: &Request) {
        if let Some(placement) = self.placement_of(&self.blocks[grant.block])
            && self.layouts.remembers(request.size)
        {
            self.layouts.note(request.stream, request.size, placement);
        }
    }

    fn placement_of(&self, block: &Block) -> Option<Placement> {
        match block.stitched {
            NIL => Some(Placement::Home(block.addr)),
            stitched => self.views.placement_of(stitched),
        }
    }

    /// The request at that place, if all of it is free for the request's stream.
    fn place(&mut self, placement: Placement, request: &Request) -> Option<Grant> {
        match placement {
            Placement::Home(addr) => self.place_at_home(addr, request),
            Placement::View { view, serial, offset } if self.views.is(view, serial) => {
                self.place_in_view(placement, (view, offset), request)
            }
            Placement::View { .. } => None,
        }
    }

    fn place_at_home(&mut self, addr: u64, request: &Request) -> Option<Grant> {
        let first = self.block_at(addr)?;
        if let Some(grant) = self.hand_out_if_free(addr, first, request) {
            return Some(grant);
        }
        let size = request.size;
        let first = self.make_free(Piece { addr, size }, Some(first), request)?;
        let grant = self.hand_out_if_free(addr, first, request);
        Some(grant.unwrap_or_else(|| self.hand_out_at(addr, request)))
    }

    /// The request at that place, if it is part of the block that is there, and its stream may have that at once.
    fn hand_out_if_free(&mut self, addr: u64, b: u32, request: &Request) -> Option<Grant> {
        let owner = self.blocks[b].stream;
        if owner != request.stream && owner != self.streams.line(request.stream).any {
            return None;
        }
        self.hand_out_inside(addr, b, request)
    }

    fn place_in_view(&mut self, placement: Placement, (view, offset): (u32, u64), request: &Request) -> Option<Grant> {
        let size = request.size;
        let pieces = self.views.pieces(view, offset, size);
        if let Some(b) = self.set_aside_at(pieces.first()?.addr, placement, request) {
            return Some(self.hand_out_set_aside(b, request));
        }
        let stream = request.stream;
        let is_free = |heap: &Heap, piece: &Piece| heap.look_at(*piece, heap.block_at(piece.addr), stream).is_ok();
        if !pieces.iter().all(|piece| is_free(self, piece)) {
            for piece in &pieces {
                self.make_free(*piece, self.block_at(piece.addr), request)?;
            }
            if !pieces.iter().all(|piece| is_free(self, piece)) {
                return None;
            }
        }
        let stitched = self.views.add_block(view, offset, size);
        Some(self.hand_out_stitched(stitched, &pieces, request))
    }

    /// The block that is set aside there, if it is what the request wants.
    fn set_aside_at(&mut self, addr: u64, placement: Placement, request: &Request) -> Option<u32> {
        let b = self.block_at(addr)?;
        let block = &self.blocks[b];
        let same = block.state == BlockState::Quick
            && block.stream == request.stream
            && self.size_of(b) == request.size
            && self.placement_of(block) == Some(placement);
        (same && self.streams.line_mut(request.stream).take_aside(b)).then_some(b)
    }

    /// Makes a part of the home segment free for a stream, if it can be at once: what is set aside joins its neighbours, and other
    /// streams are asked whether they are done, for which the request may be suspended. That may take what is nobody's beside it from
    /// another part. The block that the part begins in, which was `first` before.
    fn make_free(&mut self, piece: Piece, mut first: Option<u32>, request: &Request) -> Option<u32> {
        let mut last = None;
        loop {
            let b = match self.look_at(piece, first, request.stream) {
                Ok(first) => return Some(first),
                Err(b) => b?,
            };
            let block = &self.blocks[b];
            let (mut met, owner) = ((block.addr, block.state), block.stream);
            if self.record_of(b).is_some_and(|record| record.state == State::Aside) {
                met.1 = BlockState::Quick;
            }
            match met.1 {
                _ if last.replace(met) == Some(met) => return None,
                BlockState::Quick => {
                    self.drain(owner, 1);
                }
                BlockState::Free => {
                    if self.asks_first(owner, request) {
                        return None;
                    }
                    self.disown(owner);
                }
                _ => return None,
            }
            first = self.block_at(piece.addr);
        }
    }

    /// The block that a part of the home segment begins in, if a stream may have all of it at once; else the first block that it may not
    /// have, if there is one.
    fn look_at(&self, piece: Piece, first: Option<u32>, stream: u16) -> Result<u32, Option<u32>> {
        let any = self.streams.line(stream).any;
        let first = first.ok_or(None)?;
        let mut b = first;
        loop {
            let block = &self.blocks[b];
            if block.state != BlockState::Free || (block.stream != stream && block.stream != any) {
                return Err(Some(b));
            }
            if block.addr + block.size >= piece.addr + piece.size {
                return Ok(first);
            }
            b = (block.next != NIL).then_some(block.next).ok_or(None)?;
        }
    }

    /// Hands out a part of the home segment that is free for the request's stream.
    fn hand_out_at(&mut self, addr: u64, request: &Request) -> Grant {
        let home = self.home.unwrap_or(NIL);
        self.outlet.segment_begin(home);
        let (mut parts, mut left) = (Vec::new(), Vec::new());
        let size = request.size;
        self.cut_out(Piece { addr, size }, &mut parts, &mut left);
        let b = parts.first().copied().unwrap_or(NIL);
        for _ in 1..parts.len() {
            self.swallow_next(b);
        }
        self.shelve(b);
        self.tell_blocks(home, left.into_iter().chain([b]));
        // Free it would be one with what is left beside it.
        let grant = self.hand_out(self.blocks[b].key(b), request);
        self.outlet.segment_close(home);
        grant
    }
}
