//! Free memory that lies side by side in a view.

use super::Heap;
use super::cover::chunks_over;
use super::view::{Piece, View};

/// Runs of free memory that a request chooses the smallest from.
const ENOUGH: usize = 8;

/// Free bytes at the beginning and at the end of a chunk; both are all of it if it is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    first: u64,
    last: u64,
}

/// Enough free memory side by side in a view.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    view: u32,
    /// From the beginning of the view's range.
    offset: u64,
    bytes: u64,
}

impl View {
    /// The smallest run of free memory of at least `size` bytes, given what of each chunk is free.
    fn run(&self, at: u32, size: u64, free: impl Fn(u64) -> Ends) -> Option<Run> {
        if self.bytes < size {
            return None;
        }
        let mut best: Option<Run> = None;
        let mut consider = |offset: u64, bytes: u64| {
            if bytes >= size && best.is_none_or(|best| bytes < best.bytes) {
                best = Some(Run {
                    view: at,
                    offset,
                    bytes,
                });
            }
        };
        // The beginning of a stitched block may be in the same chunk as its end. A run uses it once.
        let twice = self.chunks.len() > 1 && self.chunks.first() == self.chunks.last();
        let chunks = &self.chunks[..self.chunks.len() - usize::from(twice)];
        let (mut start, mut length, mut offset) = (0, 0, 0);
        for (home, bytes) in chunks {
            let ends = free(*home);
            if ends.first == *bytes {
                length += bytes;
            } else {
                consider(start, length + ends.first);
                (start, length) = (offset + bytes - ends.last, ends.last);
            }
            offset += bytes;
        }
        consider(start, length);
        best
    }
}

impl Heap {
    /// A run of free memory in a view that a request's stream may have.
    pub(super) fn run_in_views(&mut self, size: u64, stream: u16) -> Option<Run> {
        if self.views.mappings == 0 {
            return None;
        }
        let home = self.segments.get(self.home?)?;
        let unit = self.sizes.granularity;
        let granule = |addr: u64| ((addr - home.addr) / unit) as usize;
        let mut free = std::mem::take(&mut self.views.free);
        free.resize((home.size / unit) as usize, Ends::default());
        let mut touched = Vec::new();
        for (addr, end) in self.free_at_home(stream) {
            for (chunk, size) in chunks_over(home, addr, end) {
                let ends = &mut free[granule(chunk)];
                touched.push(granule(chunk));
                if addr <= chunk {
                    ends.first = end.min(chunk + size) - chunk;
                }
                if end >= chunk + size {
                    ends.last = chunk + size - addr.max(chunk);
                }
            }
        }
        // The newest first: what was side by side lately is likely to be again.
        let newest = self.views.slots.iter().enumerate().rev();
        let views = newest.filter_map(|(at, view)| Some((at as u32, view.as_ref()?)));
        let runs = views.filter_map(|(at, view)| view.run(at, size, |home| free[granule(home)]));
        let found = runs.take(ENOUGH).min_by_key(|run| run.bytes);
        for granule in touched {
            free[granule] = Ends::default();
        }
        self.views.free = free;
        found
    }

    /// Hands out the beginning of a run.
    pub(super) fn place_in(&mut self, run: Run, size: u64) -> (u32, Vec<Piece>) {
        let pieces = self.views.pieces(run.view, run.offset, size);
        (self.views.add_block(run.view, run.offset, size), pieces)
    }
}
