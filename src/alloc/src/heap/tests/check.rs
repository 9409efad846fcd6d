//! The heap's invariants, checked by counting everything again.
#![allow(clippy::unwrap_used, clippy::panic)]

use gpumem_channel::{BlockState, DeviceStats, PoolId, PoolStats, SegmentKind};

use crate::config::SegmentMode;
use crate::counts::Figures;
use crate::free::FreeBlocks;
use crate::heap::Heap;
use crate::heap::block::{Block, NIL};
use crate::heap::streams::LaneOf;
use crate::lane::{Record, State};
use crate::size::Class;

/// A block as tests see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) addr: u64,
    pub(crate) size: u64,
    pub(crate) state: BlockState,
}

impl Heap {
    /// All blocks, segment by segment.
    pub(crate) fn all_blocks(&self) -> Vec<Seen> {
        let mut seen = Vec::new();
        for (_, segment) in self.segments.iter() {
            let mut b = segment.first;
            while b != NIL {
                let block = &self.blocks[b];
                seen.push(Seen {
                    addr: block.addr,
                    size: block.size,
                    state: match self.record_of(b).map(|record| record.state) {
                        Some(State::Aside) => BlockState::Quick,
                        _ => block.state,
                    },
                });
                b = block.next;
            }
        }
        seen
    }

    /// Panics unless every invariant holds.
    pub(crate) fn check(&self) {
        self.check_lines();
        let mut small = PoolStats::default();
        let mut large = PoolStats::default();
        let (mut blocks, mut pending, mut apart) = (0, 0, 0);
        for (slot, segment) in self.segments.iter() {
            let of = |id: PoolId| usize::from(id != PoolId::SMALL);
            let mut pools = [&mut small, &mut large];
            let pool = &mut pools[of(segment.class.pool())];
            pool.segment.current += u64::from(segment.size > 0);
            pool.reserved_bytes.current += segment.mapped;
            let mut at = segment.addr;
            let (mut prev, mut b, mut holes, mut mapped) = (NIL, segment.first, 0, 0);
            while b != NIL {
                let block = &self.blocks[b];
                assert_eq!(
                    (block.addr, block.prev, block.segment),
                    (at, prev, slot),
                    "blocks tile their segment"
                );
                assert!(block.size > 0 && block.size.is_multiple_of(512));
                assert_eq!(block.class, segment.class);
                if block.state != BlockState::Unmapped {
                    assert_eq!(self.arena_of(b), segment.arena, "in its arena");
                }
                let pool = &mut pools[of(block.pool)];
                let whole = self
                    .views
                    .stitched(block.stitched)
                    .map_or(block.size, |whole| whole.size);
                let record = self.record_of(b);
                let further = self.is_further_piece(b);
                match block.state {
                    _ if record.is_some() => self.check_lent(b, &record.unwrap(), pool),
                    BlockState::Free => self.check_free(b, pool),
                    BlockState::Quick if block.stitched == NIL => apart += 1,
                    BlockState::Quick => self.check_aside(b),
                    BlockState::Allocated => {
                        pool.allocation.current += 1;
                        pool.allocated_bytes.current += whole;
                    }
                    BlockState::PendingFree if further => self.check_further(b),
                    BlockState::PendingFree => pending += 1,
                    BlockState::Unmapped => {
                        holes += 1;
                        assert_eq!(segment.holes.get(&block.addr), Some(&b));
                        assert!(
                            prev == NIL || self.blocks[prev].state != BlockState::Unmapped,
                            "holes are merged"
                        );
                    }
                    BlockState::Part => {
                        assert!(further);
                        self.check_further(b);
                    }
                    BlockState::Unknown(_) => panic!("unknown state"),
                }
                let counts = record.is_none() && !further;
                if counts && matches!(block.state, BlockState::Allocated | BlockState::PendingFree) {
                    pool.active.current += 1;
                    pool.active_bytes.current += whole;
                    pool.requested_bytes.current += block.requested;
                    assert!(block.requested > 0 && block.requested <= whole);
                    assert!(!block.split_counted);
                    assert_eq!(self.users.contains_key(&b), block.used);
                }
                if block.state != BlockState::Unmapped {
                    mapped += block.size;
                }
                blocks += 1;
                at += block.size;
                (prev, b) = (b, block.next);
            }
            assert_eq!((at, prev), (segment.end(), segment.last));
            assert_eq!(holes, segment.holes.len());
            assert_eq!(mapped, segment.mapped, "what is not a hole has memory");
            if segment.kind == SegmentKind::Virtual {
                self.check_chunks(slot);
            }
        }
        self.views.check();
        for (block, pieces) in self.views.blocks() {
            let held = block.parts.iter().map(|b| (self.blocks[*b].addr, self.blocks[*b].size));
            assert_eq!(
                merged(held),
                merged(pieces.iter().map(|piece| (piece.addr, piece.size)))
            );
        }
        let homes = self
            .segments
            .iter()
            .filter(|(_, s)| s.kind == SegmentKind::Virtual && s.class == Class::Chunked);
        assert!(
            self.sizes.mode != SegmentMode::Stitched || homes.count() <= 1,
            "views are of one home"
        );
        assert_eq!(blocks, self.blocks.len(), "no block outside of segments");
        assert!(self.users.keys().all(|b| self.blocks[*b].used));
        assert_eq!((pending, apart), (self.streams.pending, self.apart));
        large.reserved_bytes.current += self.ledger.loose();
        assert!(self.orphans.iter().map(|chunk| chunk.size).sum::<u64>() <= self.ledger.loose());
        let mut stats = *self.ledger.clone().stats();
        self.add_lanes(&mut stats);
        self.check_granted();
        self.check_stats(&small, &stats.small);
        self.check_stats(&large, &stats.large);
        Heap::check_peaks(&stats);
        self.check_free_blocks();
        self.check_survey();
        self.check_spare();
    }

    fn check_free_blocks(&self) {
        let sizes = |state| {
            let blocks = self.all_blocks().into_iter();
            blocks.filter(move |block| block.state == state).map(|block| block.size)
        };
        let free = || sizes(BlockState::Free);
        let counted = FreeBlocks {
            total: free().chain(sizes(BlockState::Quick)).sum(),
            largest: free().max().unwrap_or(0),
            count: free().count() as u64,
        };
        assert_eq!(self.count_free(), counted);
    }

    fn check_free(&self, b: u32, pool: &mut PoolStats) {
        let block = &self.blocks[b];
        let line = self.streams.line(block.stream);
        let key = block.key(b);
        let mut indexed = false;
        line.free[block.class as usize].each(|known| indexed |= known == key);
        assert!(indexed, "free blocks are indexed");
        if block.prev != NIL {
            let prev = &self.blocks[block.prev];
            assert!(
                prev.state != BlockState::Free || prev.stream != block.stream,
                "free neighbours are merged"
            );
        }
        Heap::check_split(block, pool);
    }

    fn check_split(block: &Block, pool: &mut PoolStats) {
        let split = matches!(block.class, Class::Small | Class::Large) && (block.prev != NIL || block.next != NIL);
        assert_eq!(block.split_counted, split);
        if split {
            pool.inactive_split.current += 1;
            pool.inactive_split_bytes.current += block.size;
        }
    }

    /// A block that is lent: its record says what it is, and the lane has it among those set aside if it is.
    fn check_lent(&self, b: u32, record: &Record, pool: &mut PoolStats) {
        let block = &self.blocks[b];
        let line = self.streams.line(block.stream);
        assert_eq!(
            (record.addr, record.size, record.place.parts().2),
            (block.addr, block.size, block.segment)
        );
        assert_eq!((record.block, record.next), (b, block.next));
        assert_eq!(record.split.is_one(), Heap::is_split(block));
        assert_eq!(
            (block.state, block.stitched, block.used),
            (BlockState::Allocated, NIL, false)
        );
        assert!(record.freed_at <= self.frees + 1 && !block.split_counted);
        let LaneOf::Some(lane) = line.lane else {
            panic!("lent without a lane")
        };
        let aside = self.front.with(lane, |lane| lane.aside(block.size)).unwrap();
        let times = aside.iter().filter(|at| **at == block.record).count();
        if record.state == State::Held {
            assert!(times == 0 && record.requested > 0 && record.requested <= record.size);
            pool.allocation.current += 1;
            pool.active.current += 1;
            pool.allocated_bytes.current += record.size;
            pool.active_bytes.current += record.size;
            pool.requested_bytes.current += record.requested;
        } else {
            assert_eq!((times, record.state), (1, State::Aside));
            if record.split.is_one() {
                pool.inactive_split.current += 1;
                pool.inactive_split_bytes.current += record.size;
            }
        }
    }

    /// Whether it is a piece of a stitched block, and not the first one.
    fn is_further_piece(&self, b: u32) -> bool {
        let whole = self.views.stitched(self.blocks[b].stitched);
        whole.is_some_and(|whole| whole.parts[0] != b)
    }

    /// A further piece of a stitched block that is held, or waits.
    fn check_further(&self, b: u32) {
        let block = &self.blocks[b];
        let first = &self.blocks[self.views.stitched(block.stitched).unwrap().parts[0]];
        assert!(
            block.requested == 0 && first.requested > 0,
            "its first piece tells of the request"
        );
        let its = match first.state {
            BlockState::Allocated => BlockState::Part,
            state => state,
        };
        assert_eq!((block.state, block.pool, block.tag), (its, first.pool, first.tag));
    }

    /// A piece of a stitched block that is set aside.
    fn check_aside(&self, b: u32) {
        let block = &self.blocks[b];
        let whole = self.views.stitched(block.stitched).unwrap();
        let aside = &self.streams.line(block.stream).aside;
        let times = aside.iter().filter(|set| **set == (whole.size, whole.parts[0])).count();
        assert_eq!(times, 1);
    }

    /// What lanes may count is what the ledger granted them, and passes no peak.
    fn check_granted(&self) {
        let mut allowed = Figures::default();
        self.front.each(|lane| {
            for (sum, more) in allowed.iter_mut().flatten().zip(lane.counts.allowed().iter().flatten()) {
                *sum += more;
            }
        });
        self.ledger.check_granted(&allowed);
        for stream in self.streams.indices() {
            let LaneOf::Some(lane) = self.streams.line(stream).lane else {
                continue;
            };
            let lent = self.segments.iter().flat_map(|(_, segment)| {
                std::iter::successors(Some(segment.first).filter(|b| *b != NIL), |b| {
                    Some(self.blocks[*b].next).filter(|b| *b != NIL)
                })
            });
            let lent = lent.filter(|b| self.blocks[*b].record != NIL && self.blocks[*b].stream == stream);
            let (mut held, mut aside) = (0, [0; 2]);
            for b in lent {
                match self.record_of(b) {
                    Some(record) if record.state == State::Aside => aside[crate::size::half(record.size)] += 1,
                    Some(_) => held += 1,
                    None => {}
                }
            }
            let known = self.front.with(lane, |lane| (lane.held().len(), lane.count_aside()));
            assert_eq!(known, Some((held, aside)));
        }
    }

    fn check_chunks(&self, slot: u32) {
        let segment = self.segments.get(slot).unwrap();
        let total: u64 = segment.chunks.values().map(|chunk| chunk.size).sum();
        assert_eq!(total, segment.mapped);
        for (addr, chunk) in &segment.chunks {
            let granules = [*addr, addr + chunk.size].map(|border| self.sizes.granule(border - segment.addr));
            assert!(self.home != Some(slot) || granules.iter().all(|at| segment.may_have_border(*at, *at)));
            for (hole, b) in &segment.holes {
                let size = self.blocks[*b].size;
                assert!(
                    addr + chunk.size <= *hole || hole + size <= *addr,
                    "a hole holds no chunk"
                );
            }
        }
    }

    fn check_stats(&self, counted: &PoolStats, kept: &PoolStats) {
        let figures = |p: &PoolStats| {
            [
                ("allocation", p.allocation),
                ("active", p.active),
                ("requested_bytes", p.requested_bytes),
                ("allocated_bytes", p.allocated_bytes),
                ("active_bytes", p.active_bytes),
                ("segment", p.segment),
                ("reserved_bytes", p.reserved_bytes),
                ("inactive_split", p.inactive_split),
                ("inactive_split_bytes", p.inactive_split_bytes),
            ]
        };
        for ((name, counted), (_, kept)) in figures(counted).into_iter().zip(figures(kept)) {
            assert_eq!(counted.current, kept.current, "{name}");
            assert!(
                kept.current <= kept.peak && kept.peak <= kept.allocated,
                "{name}: {kept:?}"
            );
        }
    }

    fn check_peaks(stats: &DeviceStats) {
        let all = stats.all();
        let parts = [
            (
                all.allocated_bytes,
                stats.small.allocated_bytes,
                stats.large.allocated_bytes,
            ),
            (all.active, stats.small.active, stats.large.active),
            (
                all.reserved_bytes,
                stats.small.reserved_bytes,
                stats.large.reserved_bytes,
            ),
            (
                all.inactive_split_bytes,
                stats.small.inactive_split_bytes,
                stats.large.inactive_split_bytes,
            ),
        ];
        for (all, small, large) in parts {
            assert!(all.peak >= all.current && all.peak >= small.peak.max(large.peak));
            assert!(all.peak <= small.peak + large.peak);
        }
    }
}

/// Ranges with those that follow each other put together.
fn merged(ranges: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (addr, size) in ranges {
        match merged.last_mut().filter(|last| last.0 + last.1 == addr) {
            Some(last) => last.1 += size,
            None => merged.push((addr, size)),
        }
    }
    merged
}
