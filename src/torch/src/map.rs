//! A snapshot's segments and blocks in the channel. Only what changed since the last one is written.

use std::collections::{HashMap, HashSet};

use gpumem_channel::{Block, BlockState, Event, EventKind, PoolId, Publisher, Segment, SegmentKind, StringId};
use gpumem_snapshot as snapshot;

use crate::history::History;
use crate::slots::Slots;

/// The segments that are published.
#[derive(Debug, Default)]
pub(crate) struct Map {
    /// By device and address.
    shown: HashMap<(u8, u64), Shown>,
    segments: Slots,
    blocks: Slots,
}

/// A published segment.
#[derive(Debug)]
struct Shown {
    slot: u32,
    segment: Segment,
    /// Its blocks, each with its slot.
    blocks: Vec<(u32, Block)>,
}

impl Map {
    /// Publishes the segments of a snapshot in place of those before, with what `history` knows of their blocks. `tell` says whether what is
    /// new or gone is an event: those before were the last ones, and no history tells.
    pub(crate) fn show(
        &mut self,
        publisher: &mut Publisher,
        snapshot: &snapshot::Snapshot,
        history: &History,
        tell: bool,
    ) {
        let mut found = HashMap::with_capacity(snapshot.segments.len());
        for segment in &snapshot.segments {
            if let Ok(device) = u8::try_from(segment.device)
                && segment.total_size > 0
            {
                found.insert((device, segment.address), segment);
            }
        }
        let gone: Vec<_> = self
            .shown
            .keys()
            .filter(|key| !found.contains_key(key))
            .copied()
            .collect();
        for key in gone {
            self.remove(publisher, key, tell);
        }
        let mut keys: Vec<_> = found.keys().copied().collect();
        keys.sort_unstable();
        for key in keys {
            let pool_name = pool_name(publisher, found[&key].segment_pool_id);
            self.put(publisher, (key, found[&key]), pool_name, history, tell);
        }
        let (blocks, bytes) = self.untracked(publisher);
        publisher.untracked(blocks, bytes);
    }

    /// Removes all segments: nobody looks at them any more, and they would be outdated.
    pub(crate) fn clear(&mut self, publisher: &mut Publisher) {
        let keys: Vec<_> = self.shown.keys().copied().collect();
        for key in keys {
            self.remove(publisher, key, false);
        }
        publisher.untracked(0, 0);
    }

    fn put(
        &mut self,
        publisher: &mut Publisher,
        (key, found): ((u8, u64), &snapshot::Segment),
        pool_name: StringId,
        history: &History,
        tell: bool,
    ) {
        let (device, addr) = key;
        let pool = match found.segment_type {
            snapshot::SegmentType::Small => PoolId::SMALL,
            _ => PoolId::LARGE,
        };
        let old = self.shown.remove(&key);
        let slot = old.as_ref().map_or_else(|| self.segments.take(), |old| old.slot);
        let time = old.as_ref().map_or_else(|| publisher.now(), |old| old.segment.time);
        let segment = Segment {
            addr,
            size: found.total_size,
            mapped: found.total_size,
            device,
            pool,
            kind: match found.is_expandable {
                true => SegmentKind::Virtual,
                false => SegmentKind::Plain,
            },
            stream: found.stream as u64,
            chunk: 0,
            time,
            tag: StringId(0),
            pool_name,
        };
        let before = old.as_ref().map_or(&[][..], |old| &old.blocks);
        let now = publisher.now();
        let blocks: Vec<Block> = found
            .blocks
            .iter()
            .map(|block| since(of_snapshot(block, &segment, slot, history), before, now))
            .collect();
        let same = |old: &Shown| old.segment == segment && old.blocks.iter().map(|(_, block)| block).eq(&blocks);
        if let Some(old) = old {
            if same(&old) {
                self.shown.insert(key, old);
                return;
            }
            for (slot, _) in &old.blocks {
                self.blocks.give(*slot);
            }
            self.write(publisher, key, (slot, segment), blocks, old.blocks);
            return;
        }
        if tell {
            publisher.event(&event(EventKind::SegmentAlloc, &segment));
        }
        self.write(publisher, key, (slot, segment), blocks, Vec::new());
    }

    /// Writes a segment and its blocks. Slots of `before` that are not used again are emptied.
    fn write(
        &mut self,
        publisher: &mut Publisher,
        key: (u8, u64),
        (slot, segment): (u32, Segment),
        blocks: Vec<Block>,
        before: Vec<(u32, Block)>,
    ) {
        let slots: Vec<u32> = blocks.iter().map(|_| self.blocks.take()).collect();
        publisher.segment_begin(slot);
        let used: HashSet<u32> = slots.iter().copied().collect();
        for (old, _) in before.iter().filter(|(old, _)| !used.contains(old)) {
            publisher.clear_block(*old);
        }
        for (n, block) in blocks.iter().enumerate() {
            publisher.past_block(slots[n], block, slots.get(n + 1).copied());
        }
        publisher.segment_end(slot, Some((&segment, slots.first().copied())));
        let blocks = slots.into_iter().zip(blocks).collect();
        let shown = Shown { slot, segment, blocks };
        self.shown.insert(key, shown);
    }

    fn remove(&mut self, publisher: &mut Publisher, key: (u8, u64), tell: bool) {
        let Some(old) = self.shown.remove(&key) else { return };
        if tell {
            publisher.event(&event(EventKind::SegmentFree, &old.segment));
        }
        publisher.segment_begin(old.slot);
        for (slot, _) in &old.blocks {
            publisher.clear_block(*slot);
            self.blocks.give(*slot);
        }
        publisher.segment_end(old.slot, None);
        self.segments.give(old.slot);
    }

    /// Returns the number and bytes of the blocks that the channel's table has no room for.
    fn untracked(&self, publisher: &Publisher) -> (u64, u64) {
        let blocks = self.shown.values().flat_map(|shown| &shown.blocks);
        let left_out = blocks.filter(|(slot, _)| !publisher.has_slot(*slot));
        left_out.fold((0, 0), |(count, bytes), (_, block)| {
            (count + 1, u64::saturating_add(bytes, block.size))
        })
    }
}

/// The name of a private pool, as PyTorch numbers it; empty for everybody's.
fn pool_name(publisher: &mut Publisher, id: (u64, u64)) -> StringId {
    match id {
        (0, 0) => StringId(0),
        (graph, pool) => publisher.intern(&format!("pool ({graph}, {pool})")),
    }
}

fn event(kind: EventKind, segment: &Segment) -> Event {
    Event {
        kind,
        device: segment.device,
        pool: segment.pool,
        addr: segment.addr,
        size: segment.size,
        stream: segment.stream,
        ..Event::default()
    }
}

/// Returns a block with the time since when it is in its state: as long as it was seen to be, if its own time is not known. `before` are the
/// blocks that its segment had, by address.
fn since(block: Block, before: &[(u32, Block)], now: u64) -> Block {
    if block.time > 0 {
        return block;
    }
    let at = before.binary_search_by_key(&block.addr, |(_, old)| old.addr).ok();
    let old = at.and_then(|at| before.get(at)).map(|(_, old)| old);
    let same = old.filter(|old| Block { time: 0, ..**old } == block);
    Block {
        time: same.map_or(now, |old| old.time),
        ..block
    }
}

fn of_snapshot(block: &snapshot::Block, segment: &Segment, slot: u32, history: &History) -> Block {
    let state = match block.state {
        snapshot::BlockState::ActiveAllocated => BlockState::Allocated,
        snapshot::BlockState::ActivePendingFree => BlockState::PendingFree,
        snapshot::BlockState::Inactive | snapshot::BlockState::Other(_) => BlockState::Free,
    };
    let known = match block.state.active() {
        true => history.of(segment.device, block),
        false => Default::default(),
    };
    Block {
        addr: block.address,
        size: block.size,
        requested: if block.state.active() { block.requested_size } else { 0 },
        stream: segment.stream,
        state,
        device: segment.device,
        pool: segment.pool,
        segment: slot,
        tag: known.tag,
        time: known.time,
    }
}
