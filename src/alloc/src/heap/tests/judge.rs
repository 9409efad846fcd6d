//! What must hold of the heap while a random program runs, and of what moves memory or gives it back.
#![allow(clippy::unwrap_used)]

use gpumem_channel::BlockState;

use crate::device::{Call, Live};
use crate::heap::block::NIL;
use crate::heap::tests::check::Seen;
use crate::heap::tests::meanwhile::Among;
use crate::heap::tests::model::World;
use crate::heap::tests::pools::unless_capturing;
use crate::heap::*;
use crate::stack::Stack;
use crate::stream::Stream;
use crate::tag::Tag;

const MIB: u64 = 1 << 20;
/// No stream of any program.
const NOBODY: Stream = Stream(1 << 40);

impl World {
    /// What the options about sizes promise of a block, on plain segments.
    pub(in crate::heap) fn judge_size(&self, bytes: u64, grant: Grant) {
        let rounded = self.config.roundup_power2_divisions.round(bytes);
        assert!(grant.size >= rounded);
        let limit = self.config.max_split_size.map(|limit| limit.next_multiple_of(2 * MIB));
        if let Some(limit) = limit {
            let whole = self
                .heap
                .segments
                .get(self.heap.blocks[grant.block].segment)
                .unwrap()
                .size;
            let (may, alone) = (self.config.max_non_split_rounding, whole == grant.size);
            if rounded <= limit {
                assert!(whole <= limit, "{bytes} of {whole}");
            } else {
                assert!(alone && grant.size - rounded < may, "{bytes} of {whole}");
            }
        }
    }

    /// Free blocks are counted as they would be found by a request.
    pub(in crate::heap) fn judge_free(&mut self) {
        let told = self.heap.free_blocks();
        let free: Vec<u64> = self.seen(BlockState::Free).map(|block| block.size).collect();
        assert_eq!(
            (told.total, told.count, told.largest),
            (
                free.iter().sum(),
                free.len() as u64,
                free.iter().copied().max().unwrap_or(0)
            )
        );
        assert_eq!(self.seen(BlockState::Quick).count(), 0, "nothing is set aside any more");
    }

    /// Peaks were reset just now.
    pub(in crate::heap) fn judge_peaks(&mut self) {
        let stats = self.heap.stats();
        for (name, pool) in [("small", stats.small), ("large", stats.large), ("all", stats.all())] {
            for stat in pool.figures() {
                assert_eq!(stat.peak, stat.current, "{name}: {stat:?}");
            }
        }
        self.pools.judge_peaks(&self.heap);
    }

    pub(in crate::heap) fn judge(&self, report: &crate::OomReport) {
        let free: u64 = self.seen(BlockState::Free).map(|b| b.size).sum();
        let pending: u64 = self.seen(BlockState::PendingFree).map(|b| b.size).sum();
        assert_eq!((report.total_free, report.pending), (free, pending));
        assert_eq!(report.allocated, self.held.iter().map(|h| h.grant.size).sum::<u64>());
        assert!(report.largest_free <= free && !report.helps.is_empty());
    }

    fn seen(&self, state: BlockState) -> impl Iterator<Item = Seen> {
        self.heap
            .all_blocks()
            .into_iter()
            .filter(move |block| block.state == state)
    }

    /// Whether others are at work while memory goes back to the driver.
    pub(in crate::heap) fn has_company(&self) -> bool {
        self.held.len().is_multiple_of(2)
    }

    pub(in crate::heap) fn release(&mut self) -> Result<(), Error> {
        let before = self.sim.live().bytes;
        let company = self.has_company();
        let released = match company {
            true => crate::heap::release_cached(&mut Among(self, 0)),
            false => self.heap.release_cached(),
        };
        let Some(freed) = unless_capturing(&self.pools, released)? else {
            return Ok(());
        };
        if !company {
            self.pools.judge_gone(&self.heap);
        }
        let back = before - self.sim.live().bytes;
        // What an earlier failure left behind comes back too; it was no longer counted as reserved.
        assert!(
            back == freed || self.faulty && back > freed,
            "{freed} came free, the device got {back}"
        );
        Ok(())
    }

    /// What came free the device got, and of what stayed nothing whole lies apart.
    pub(in crate::heap) fn compact(&mut self) -> Result<(), Error> {
        let before = self.sim.live().bytes;
        let company = self.has_company();
        let compacted = match company {
            true => crate::heap::compact(&mut Among(self, 0)),
            false => self.heap.compact(),
        };
        let Some(report) = unless_capturing(&self.pools, compacted)? else {
            return Ok(());
        };
        let back = before - self.sim.live().bytes;
        assert!(back == report.released || self.faulty && back > report.released);
        self.judge_free();
        if company {
            // What they gave back meanwhile may be anywhere.
            return Ok(());
        }
        let mut whole = 0;
        for (_, segment) in self.heap.segments.iter() {
            let free = |block: &Seen| {
                block.state == BlockState::Free && segment.addr <= block.addr && block.addr < segment.end()
            };
            let chunks = |block: Seen| segment.bytes_within(block.addr, block.addr + block.size);
            whole += self.heap.all_blocks().into_iter().filter(free).map(chunks).sum::<u64>();
            let one = segment.first != NIL && segment.first == segment.last;
            let idle = one && self.heap.blocks[segment.first].state == BlockState::Free;
            assert!(
                !idle
                    || segment.kind == gpumem_channel::SegmentKind::Virtual
                    || !self.heap.arenas.may_shrink(segment.arena),
                "a free segment stayed"
            );
        }
        let joined = self.heap.sizes.mode != SegmentMode::Virtual || report.after.largest >= whole;
        assert!(joined, "{whole} bytes of whole chunks lie apart: {report:?}");
        Ok(())
    }

    /// Memory on the device that is no pool's. What a pool leaves behind goes back by itself, at any time.
    fn common_memory(&self) -> u64 {
        let pools = self.heap.segments.iter().filter(|(_, segment)| segment.arena != COMMON);
        self.sim.live().bytes - pools.map(|(_, segment)| segment.mapped).sum::<u64>()
    }

    pub(in crate::heap) fn join(&mut self, bytes: u64, stream: Stream) -> Result<(), Error> {
        let before = self.common_memory();
        let company = self.has_company();
        let joined = match company {
            true => crate::heap::join(&mut Among(self, 0), bytes, stream),
            false => self.heap.join(bytes, stream),
        };
        match unless_capturing(&self.pools, joined) {
            Ok(None) => Ok(()),
            Ok(Some(report)) => {
                assert_eq!(self.common_memory(), before, "no new memory");
                if company {
                    // They may have taken it.
                    return Ok(());
                }
                assert!(report.contiguous >= bytes);
                let grant = self.heap.allocate(bytes, stream, Tag(0)).unwrap();
                assert_eq!(self.common_memory(), before, "the request fits without new memory");
                self.naive.allocated(grant, (Tag(0), Stack::NONE));
                self.heap.free(grant.block);
                self.naive.freed(grant);
                Ok(())
            }
            Err(Error::HolesTooSmall { available, requested }) => {
                assert!(available < requested);
                Ok(())
            }
            Err(Error::NotVirtual) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Everything that must hold between steps.
    pub(in crate::heap) fn judge_all(&mut self) {
        self.heap.check();
        self.naive.judge(&self.heap);
        self.pools
            .judge(&self.heap, self.held.iter().map(|held| (held.grant, held.requested)));
        assert_eq!(self.sim.violations(), Vec::<String>::new());
        let all = self.heap.stats().all();
        assert_eq!(all.allocation.current, self.held.len() as u64);
        assert_eq!(
            all.allocated_bytes.current,
            self.held.iter().map(|h| h.grant.size).sum::<u64>()
        );
        self.naive.judge_held(&all);
        self.judge_device();
        self.judge_ages();
        let pending = self.heap.stats().pending_bytes();
        assert_eq!(pending, self.seen(BlockState::PendingFree).map(|b| b.size).sum::<u64>());
        let reserved = all.reserved_bytes.current;
        let allowed = self.budget.map_or(u64::MAX, |budget| budget.max(self.reserved));
        assert!(reserved <= allowed, "{reserved} are reserved, {allowed} allowed");
        self.reserved = reserved;
    }

    /// What is nobody's no queued work uses, nor what is known to be old of what is a stream's.
    fn judge_ages(&self) {
        let is_used = |(addr, end): (u64, u64)| self.sim.busy_for(NOBODY, addr, end - addr);
        for (_, segment) in self.heap.segments.iter() {
            let mut b = segment.first;
            while b != NIL {
                let block = &self.heap.blocks[b];
                if block.state == BlockState::Free {
                    let whole = (block.addr, block.addr + block.size);
                    let nobodys = self.heap.streams.is_any(block.stream);
                    assert!(!nobodys || !is_used(whole), "what is nobody's is used");
                    let safe = self.heap.streams.line(block.stream).safe;
                    let old = self.heap.old_parts(b, safe).into_iter().filter(|_| !nobodys);
                    old.for_each(|part| assert!(!is_used(part), "what is old is used"));
                }
                b = block.next;
            }
        }
    }

    /// The device says the same as the figures about it.
    fn judge_device(&mut self) {
        let (stats, live) = (self.heap.stats(), self.sim.live());
        assert_eq!(stats.num_ooms, self.ooms);
        let reserved = stats.all().reserved_bytes.current;
        if self.faulty {
            // What was made and could not be undone is not always known to be there.
            return assert!(reserved <= live.bytes, "{reserved} are reserved, {}", live.bytes);
        }
        assert_eq!(reserved, live.bytes);
        let taken = (live.allocations + live.chunks) as u64;
        assert_eq!(stats.num_device_alloc - stats.num_device_free, taken);
        assert_eq!(stats.num_sync_all_streams, self.sim.calls(Call::Synchronize));
    }

    /// Live blocks hold what was written into them.
    pub(in crate::heap) fn judge_contents(&self) {
        self.pools.judge_mapped(&self.heap);
        for held in &self.held {
            assert!(held.requested <= held.grant.size);
            for at in [
                held.grant.addr,
                held.grant.addr + held.grant.size / 8 * 4,
                held.grant.addr + held.grant.size - 4,
            ] {
                let mut word = [0; 4];
                let driver = &self.heap.driver;
                let stream = self.lives.alive(held.stream).unwrap_or_default();
                let read = driver.read(at, &mut word, stream);
                // A failure injected there is not the heap's, and comes once.
                read.or_else(|_| driver.read(at, &mut word, stream)).unwrap();
                assert_eq!(u32::from_le_bytes(word), held.stamp);
            }
        }
    }

    /// Frees everything and drops the heap; nothing may be left.
    pub(in crate::heap) fn end(mut self) {
        for held in std::mem::take(&mut self.held) {
            self.heap.free(held.grant.block);
        }
        self.heap.check();
        drop(self.heap);
        assert_eq!(self.sim.live(), Live::default(), "nothing leaks");
        assert_eq!(self.sim.violations(), Vec::<String>::new());
    }
}
