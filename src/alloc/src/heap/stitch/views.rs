//! All views of a heap, and the stitched blocks in them.

use std::collections::{HashMap, HashSet};

use crate::heap::block::NIL;
use crate::heap::layout::Placement;
use crate::heap::slots::Slots;
use crate::heap::stitch::runs::Ends;
use crate::heap::stitch::view::{GONE, Part, Piece, Stale, Stitched, View};

/// Mappings of views that are kept for later; few in tests, so that views go there, too. Beyond that the ones not used for longest go:
/// address space is plenty, but a driver was seen to refuse more than half a million mappings, and a request that fits nowhere looks
/// at all of them.
const MAX_MAPPINGS: usize = if cfg!(test) { 24 } else { 16_384 };

/// All views of a heap, and the blocks in them.
#[derive(Debug)]
pub(in crate::heap) struct Views {
    all: Slots<View>,
    stitched: Slots<Stitched>,
    pub(in crate::heap) mappings: usize,
    /// Bytes of address space.
    pub(in crate::heap) room: u64,
    /// Mappings that are kept for later.
    pub(in crate::heap) most: usize,
    /// Views so far.
    serials: u32,
    /// Ranges that could not be unmapped or given back: tried again at every release.
    pub(in crate::heap) stale: Vec<Stale>,
    /// For each granule of the home segment that a chunk begins at what of the chunk is free; all zero between searches.
    pub(in crate::heap) free: Vec<Ends>,
}

impl Default for Views {
    fn default() -> Views {
        Views {
            all: Slots::default(),
            stitched: Slots::default(),
            mappings: 0,
            room: 0,
            most: MAX_MAPPINGS,
            serials: 0,
            stale: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl Views {
    /// The stitched block of that number.
    #[inline]
    pub(in crate::heap) fn stitched(&self, at: u32) -> Option<&Stitched> {
        self.stitched.get(at)
    }

    pub(in crate::heap) fn all_stitched(&self) -> impl Iterator<Item = &Stitched> {
        self.stitched.values()
    }

    pub(in crate::heap) fn view(&self, view: u32) -> Option<&View> {
        self.all.get(view)
    }

    fn view_mut(&mut self, view: u32) -> Option<&mut View> {
        self.all.get_mut(view)
    }

    /// Adds a view of chunks, given by where they are at home and by their sizes.
    pub(in crate::heap) fn insert(&mut self, range: u64, room: u64, chunks: Vec<(u64, u64)>) -> u32 {
        self.mappings += chunks.len();
        self.room += room;
        let bytes = chunks.iter().map(|(_, size)| size).sum();
        let view = View {
            range,
            bytes,
            mapped: bytes,
            room,
            chunks,
            behind: Vec::new(),
            users: 0,
            serial: self.serials,
            freed: Vec::new(),
        };
        self.serials = self.serials.wrapping_add(1);
        self.all.insert(view)
    }

    /// A block of `size` bytes from an offset of a view on.
    pub(in crate::heap) fn add_block(&mut self, view: u32, offset: u64, size: u64) -> u32 {
        let range = self.view_mut(view).map_or(0, |view| {
            view.users += 1;
            view.range
        });
        let block = Stitched {
            view,
            addr: range + offset,
            size,
            parts: Vec::new(),
        };
        self.stitched.insert(block)
    }

    pub(in crate::heap) fn set_parts(&mut self, at: u32, parts: Vec<u32>) {
        if let Some(block) = self.stitched.get_mut(at) {
            block.parts = parts;
        }
    }

    /// They are to be [set](Views::set_parts) again.
    pub(in crate::heap) fn take_parts(&mut self, at: u32) -> Vec<u32> {
        let block = self.stitched.get_mut(at);
        block.map_or(Vec::new(), |block| std::mem::take(&mut block.parts))
    }

    /// The program gave the block back: work queued on its stream until now may use the view.
    pub(in crate::heap) fn freed(&mut self, at: u32, frees: u64, stream: u16) {
        let view = self.stitched(at).map_or(NIL, |block| block.view);
        if let Some(view) = self.view_mut(view) {
            view.note_free(frees, stream);
        }
    }

    /// Forgets a block; its view stays.
    pub(in crate::heap) fn remove_block(&mut self, at: u32) -> Option<Stitched> {
        let gone = self.stitched.remove(at)?;
        if let Some(view) = self.view_mut(gone.view) {
            view.users -= 1;
        }
        Some(gone)
    }

    pub(in crate::heap) fn remove(&mut self, view: u32) -> Option<View> {
        let gone = self.all.remove(view)?;
        self.mappings -= gone.mappings();
        self.room -= gone.room;
        Some(gone)
    }

    /// A part of a view is to be unmapped. Nobody is placed there any more as somebody was before.
    pub(in crate::heap) fn cut(&mut self, view: u32, part: Part) {
        let serial = self.serials;
        let Some(view) = self.view_mut(view) else { return };
        for (home, _) in view.chunks.iter_mut().skip(part.first).take(part.count) {
            *home = GONE;
        }
        view.serial = serial;
        self.serials = serial.wrapping_add(1);
        self.mappings -= part.count;
    }

    /// Where blocks begin and end in views, by view, in order.
    pub(in crate::heap) fn blocks_in(&self) -> HashMap<u32, Vec<(u64, u64)>> {
        let mut blocks: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
        for block in self.all_stitched() {
            if let Some(view) = self.view(block.view) {
                let offset = block.addr - view.range;
                blocks
                    .entry(block.view)
                    .or_default()
                    .push((offset, offset + block.size));
            }
        }
        blocks.values_mut().for_each(|its| its.sort_unstable());
        blocks
    }

    /// Chunks were mapped behind the others of a view.
    pub(in crate::heap) fn extend(&mut self, view: u32, chunks: Vec<(u64, u64)>) {
        self.mappings += chunks.len();
        if let Some(view) = self.view_mut(view) {
            view.bytes += chunks.iter().map(|(_, size)| size).sum::<u64>();
            view.mapped = view.bytes;
            view.chunks.extend(chunks);
        }
    }

    /// So many bytes behind the chunks of a view could not be unmapped: parts of these chunks, given by where they are at home.
    pub(in crate::heap) fn leave(&mut self, view: u32, mapped: u64, chunks: impl Iterator<Item = u64>) {
        if let Some(view) = self.view_mut(view) {
            view.mapped = view.bytes + mapped;
            view.behind.extend(chunks);
        }
    }

    /// Where the chunks are at home that a view maps.
    pub(in crate::heap) fn chunks_of(&self, view: u32) -> HashSet<u64> {
        self.view(view).map_or(HashSet::new(), |view| {
            let homes = view.chunks.iter().map(|(home, _)| *home);
            homes.filter(|home| *home != GONE).collect()
        })
    }

    /// Whether as many mappings are kept as may be.
    pub(in crate::heap) fn is_full(&self) -> bool {
        self.mappings >= self.most
    }

    /// Those that no block is in.
    pub(in crate::heap) fn idle(&self) -> impl Iterator<Item = (u32, &View)> {
        self.iter().filter(|(_, view)| view.users == 0)
    }

    pub(in crate::heap) fn iter(&self) -> impl Iterator<Item = (u32, &View)> {
        self.all.iter()
    }

    /// The pieces at home of a part of a view.
    pub(in crate::heap) fn pieces(&self, view: u32, offset: u64, size: u64) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let Some(view) = self.view(view) else {
            return pieces;
        };
        let (mut at, end) = (0, offset + size);
        for (home, bytes) in &view.chunks {
            if at >= end {
                break;
            }
            let (from, to) = (offset.max(at), end.min(at + bytes));
            if from < to {
                let addr = home + (from - at);
                match pieces.last_mut().filter(|last| last.addr + last.size == addr) {
                    Some(last) => last.size += to - from,
                    None => pieces.push(Piece { addr, size: to - from }),
                }
            }
            at += bytes;
        }
        pieces
    }

    /// Where a stitched block is.
    pub(in crate::heap) fn placement_of(&self, at: u32) -> Option<Placement> {
        let block = self.stitched(at)?;
        let view = self.view(block.view)?;
        Some(Placement::View {
            view: block.view,
            serial: view.serial,
            offset: block.addr - view.range,
        })
    }

    /// Whether a view is the one of that serial number.
    pub(in crate::heap) fn is(&self, view: u32, serial: u32) -> bool {
        self.view(view).is_some_and(|view| view.serial == serial)
    }

    /// Panics unless every view has its chunks once, but for one that may be the first and the last, and in its address range.
    #[cfg(test)]
    pub(in crate::heap) fn check(&self) {
        let (mut mappings, mut room) = (0, 0);
        for (at, view) in self.iter() {
            assert_eq!(self.chunks_of(at).len() + usize::from(view.is_ring()), view.mappings());
            assert_eq!(view.chunks.iter().map(|(_, size)| size).sum::<u64>(), view.bytes);
            assert!(view.bytes <= view.mapped && view.mapped <= view.room);
            mappings += view.mappings();
            room += view.room;
        }
        assert_eq!((mappings, room), (self.mappings, self.room));
    }

    /// All stitched blocks, with their pieces.
    #[cfg(test)]
    pub(in crate::heap) fn blocks(&self) -> impl Iterator<Item = (&Stitched, Vec<Piece>)> {
        self.stitched.values().map(|block| {
            let range = self.view(block.view).map_or(0, |view| view.range);
            (block, self.pieces(block.view, block.addr - range, block.size))
        })
    }
}
