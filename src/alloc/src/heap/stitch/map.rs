//! Chunks mapped side by side in a view.

use crate::device::Driver;
use crate::error::{DeviceError, Error};
use crate::heap::Heap;
use crate::heap::allocate::Request;
use crate::heap::segment::{Chunk, Segment};
use crate::heap::stitch::cover::chunks_over;
use crate::heap::stitch::runs::Run;
use crate::heap::stitch::view::{Piece, View};

/// Address space of a view beyond what is mapped in it at first, as a multiple of that: for what is mapped behind it later.
const ROOM: u64 = 3;

/// Address space of all views, as a multiple of the device, above which new ones have no such room.
const MOST_ROOM: u64 = 32;

impl Heap {
    /// Where no more mappings are kept, some have to go for others: learns whether the streams that used them are done. Nothing else asks
    /// where there is one stream only, for which that never matters otherwise.
    pub(in crate::heap) fn ask_about_views(&mut self, request: &Request) -> Result<(), Error> {
        if !self.views.is_full() {
            return Ok(());
        }
        let lines = self.may_use(self.views.idle());
        self.learn_for(request, &lines)
    }

    /// The streams whose queued work may use views.
    pub(in crate::heap) fn may_use<'a>(&self, views: impl Iterator<Item = (u32, &'a View)>) -> Vec<u16> {
        let freed = views.flat_map(|(_, view)| &view.freed);
        let unknown = freed.filter(|(line, at)| *at > self.streams.line(*line).safe);
        let mut lines: Vec<u16> = unknown.map(|(line, _)| *line).collect();
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    /// Maps the chunks of pieces side by side in a new view. A block there; `None` when the driver has no room for it.
    pub(in crate::heap) fn map_view(
        &mut self,
        pieces: &[Piece],
        request: &Request,
    ) -> Result<Option<u32>, DeviceError> {
        let Some(home) = self.home.and_then(|home| self.segments.get(home)) else {
            return Ok(None);
        };
        let first = pieces.first().map_or(0, |piece| piece.addr);
        let before = chunks_over(home, first, first + 1)
            .next()
            .map_or(0, |(at, _)| first - at);
        let chunks = chunks_of(home, pieces);
        let bytes: u64 = chunks.iter().map(|(_, chunk)| chunk.size).sum();
        self.give_back_for(request, self.views_beyond(chunks.len()))?;
        let room = match self.views.room + bytes <= MOST_ROOM * self.driver.info().total {
            true => bytes * (1 + ROOM),
            false => bytes,
        };
        match self.take_view(request, &chunks, room) {
            Ok(range) => {
                self.layouts.mapped(chunks.len());
                let view = self.views.insert(range, room, places(&chunks));
                Ok(Some(self.views.add_block(view, before, request.size)))
            }
            Err(error) if error.is_out_of_memory() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Maps the chunks of pieces behind a run of free memory at the end of a view. A block over both; `None` when the driver has no
    /// room for it.
    pub(in crate::heap) fn extend_view(
        &mut self,
        run: Run,
        pieces: &[Piece],
        request: &Request,
    ) -> Result<Option<u32>, DeviceError> {
        let Some(home) = self.home.and_then(|home| self.segments.get(home)) else {
            return Ok(None);
        };
        let chunks = chunks_of(home, pieces);
        let end = run.range + run.offset + run.bytes;
        // So that the view stays.
        let stitched = self.views.add_block(run.view, run.offset, request.size);
        let outcome = self.give_back_for(request, self.views_beyond(chunks.len()));
        let outcome = outcome.and_then(|_| self.take_end(request, (run.view, end), &chunks));
        let Err(error) = outcome else {
            self.layouts.mapped(chunks.len());
            self.views.extend(run.view, places(&chunks));
            return Ok(Some(stitched));
        };
        self.views.remove_block(stitched);
        if error.is_out_of_memory() { Ok(None) } else { Err(error) }
    }
}

/// Maps chunks from an address on. The bytes that are mapped, and whether all is well.
pub(in crate::heap) fn map_at(
    driver: &dyn Driver,
    addr: u64,
    chunks: &[(u64, Chunk)],
) -> (u64, Result<(), DeviceError>) {
    let mut mapped = 0;
    let mapping = chunks.iter().try_for_each(|(_, chunk)| {
        driver.map(addr + mapped, chunk.size, chunk.handle)?;
        mapped += chunk.size;
        Ok(())
    });
    let outcome = match mapped {
        0 => mapping,
        bytes => mapping.and_then(|()| driver.set_access(addr, bytes)),
    };
    (mapped, outcome)
}

/// The chunks of pieces, and where they are at home.
fn chunks_of(home: &Segment, pieces: &[Piece]) -> Vec<(u64, Chunk)> {
    let over = |piece: &Piece| chunks_over(home, piece.addr, piece.addr + piece.size);
    let starts = pieces.iter().flat_map(over).map(|(at, _)| at);
    starts.filter_map(|at| Some((at, *home.chunks.get(&at)?))).collect()
}

/// The same as a view knows them: where they are at home, and their sizes.
pub(in crate::heap) fn places(chunks: &[(u64, Chunk)]) -> Vec<(u64, u64)> {
    chunks.iter().map(|(at, chunk)| (*at, chunk.size)).collect()
}
