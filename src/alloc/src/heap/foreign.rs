//! Reuse across streams.
//!
//! A block freed on stream A may serve stream B once an event that A recorded after the free is done. Such a block stays
//! B's after B frees it (B reuses it at once), until B is known to be done with it too: then it comes home to the stream
//! its segment was taken for, and joins its neighbours there.

use super::Heap;
use super::allocate::Request;
use crate::free::Key;
use crate::size::Class;

impl Heap {
    /// The best block of another stream that no queued work uses any more.
    pub(super) fn foreign_fit(&mut self, request: &Request) -> Option<Key> {
        let class = request.class as usize;
        let mut best: Option<Key> = None;
        for stream in self.streams.others(request.stream) {
            if self.streams.line(stream).free[class].best_fit(request.size).is_none() {
                continue;
            }
            self.probe(stream);
            let line = self.streams.line(stream);
            let found = line.free[class]
                .at_least(request.size)
                .find(|k| self.blocks[k.block].freed_at <= line.safe);
            best = best.into_iter().chain(found).min();
        }
        best
    }

    /// Sends every free block that is away from home, and no longer used by queued work, back; whether there was one.
    pub(super) fn bring_home(&mut self) -> bool {
        let mut away = Vec::new();
        for stream in self.streams.indices() {
            let line = self.streams.line(stream);
            for class in [Class::Small, Class::Large, Class::Chunked] {
                away.extend(line.free[class as usize].at_least(1).map(|key| key.block).filter(|b| {
                    let block = &self.blocks[*b];
                    block.freed_at <= line.safe && self.home(*b) != block.stream
                }));
            }
        }
        // Blocks never vanish on the way: one that comes home merges only with blocks that are home already, or becomes
        // part of a neighbour, and neighbours of one stream are one block.
        for b in &away {
            let home = self.home(*b);
            let segment = self.blocks[*b].segment;
            self.unshelve(*b);
            self.blocks[*b].stream = home;
            self.blocks[*b].freed_at = 0;
            self.outlet.segment_begin(segment);
            let b = self.coalesce(*b);
            self.show(b);
            self.show_segment(segment);
        }
        !away.is_empty()
    }

    fn home(&self, b: u32) -> u16 {
        let block = &self.blocks[b];
        self.segments
            .get(block.segment)
            .map_or(block.stream, |segment| segment.stream)
    }
}
