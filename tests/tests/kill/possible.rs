//! Rules that everything a reader shows must follow, whatever the publisher was doing.

use std::collections::{BTreeMap, BTreeSet};

use gpumem_alloc::SegmentMode;
use gpumem_channel::{Block, BlockState, DeviceStats, EventKind, PoolStats, SegmentKind, SegmentMap, Snapshot};

use crate::model::{Heads, Held, Model, When};
use crate::stitched::{self, Firsts};
use crate::workload::{stream_of, tag_of, waits};

/// Checks rules that every map and all figures follow, whatever happened before.
pub(crate) fn assert_possible(snapshot: &Snapshot, segments: SegmentMode, dead: bool) {
    assert_eq!((snapshot.malformed_segments, snapshot.untracked_blocks), (0, 0));
    for device in &snapshot.devices {
        let mut free_from = 0;
        for map in &device.segments {
            assert!(map.segment.addr >= free_from, "segments overlap");
            free_from = map.segment.addr + map.segment.size;
            assert!(
                map.complete || dead,
                "a map of a live publisher is incomplete: {:?}",
                map.segment
            );
            segment(snapshot, map);
        }
        if let Some(stats) = &device.stats {
            figures(stats, segments);
        }
    }
}

fn segment(snapshot: &Snapshot, map: &SegmentMap) {
    let (segment, end) = (&map.segment, map.segment.addr + map.segment.size);
    let mut at = segment.addr;
    let mut before: Option<&Block> = None;
    for block in map.blocks.iter() {
        assert!(block.addr == at || !map.complete, "a hole in {segment:?}");
        assert!(
            block.addr >= at && block.size > 0 && block.size.is_multiple_of(512),
            "{block:?}"
        );
        assert_eq!(block.segment, map.slot, "{block:?}");
        assert!(
            block.pool == segment.pool || stitched::may_be_of(block, segment),
            "{block:?} in {segment:?}"
        );
        assert!(block.time <= snapshot.read_at, "a time in the future: {block:?}");
        // The first piece of a stitched block has the request.
        let fits = block.requested <= block.size || segment.kind == SegmentKind::Stitched;
        let fingerprint = (block.stream, block.requested > 0 && fits);
        match block.state {
            BlockState::Allocated => assert_eq!(fingerprint, (stream_of(block.requested), true), "torn: {block:?}"),
            BlockState::PendingFree if !stitched::is_further_piece(block) => {
                assert_eq!(fingerprint, (stream_of(block.requested), true), "torn: {block:?}");
                assert!(waits(block.requested), "{block:?} has nothing to wait for");
            }
            BlockState::Unmapped if segment.kind == SegmentKind::Plain => panic!("{block:?} in {segment:?}"),
            BlockState::Free | BlockState::Quick | BlockState::Unmapped => {
                assert_eq!((block.requested, block.tag.0), (0, 0), "torn: {block:?}");
            }
            BlockState::Part | BlockState::PendingFree if segment.kind == SegmentKind::Stitched => {
                stitched::assert_part(snapshot, block);
            }
            BlockState::Part | BlockState::PendingFree | BlockState::Unknown(_) => panic!("{block:?} in {segment:?}"),
        }
        if block.requested > 0 {
            // A string that was interned after the strings were read is not known yet.
            let tag = snapshot.string(block.tag);
            assert!(["", tag_of(block.requested)].contains(&tag), "{tag}: {block:?}");
        }
        if let Some(before) = before.filter(|before| before.addr + before.size == block.addr && map.complete) {
            let one = |block: &Block| (block.state == BlockState::Free).then_some(block.stream);
            assert!(
                one(before).is_none() || one(before) != one(block),
                "two free blocks side by side: {before:?} {block:?}"
            );
        }
        at = block.addr + block.size;
        before = Some(block);
    }
    assert!(
        at == end || (at < end && !map.complete),
        "blocks do not tile {segment:?}"
    );
    let memory = map.blocks.iter().filter(|block| block.state != BlockState::Unmapped);
    let memory: u64 = memory.map(|block| block.size).sum();
    assert!(
        memory == segment.mapped || !map.complete,
        "{memory} bytes in {segment:?}"
    );
}

fn figures(stats: &DeviceStats, segments: SegmentMode) {
    let all = stats.all();
    for pool in [&stats.small, &stats.large, &all] {
        let PoolStats { allocation, active, .. } = pool;
        for stat in [
            allocation,
            active,
            &pool.requested_bytes,
            &pool.allocated_bytes,
            &pool.active_bytes,
        ]
        .into_iter()
        .chain([
            &pool.segment,
            &pool.reserved_bytes,
            &pool.inactive_split,
            &pool.inactive_split_bytes,
        ]) {
            assert!(
                stat.current <= stat.peak && stat.peak <= stat.allocated,
                "torn figures: {stat:?}"
            );
        }
        assert!(
            allocation.current <= active.current && allocation.allocated == active.allocated,
            "{pool:?}"
        );
        let bytes = [&pool.requested_bytes, &pool.allocated_bytes, &pool.active_bytes].map(|stat| stat.current);
        assert!(bytes[0].max(bytes[1]) <= bytes[2], "figures from two moments: {pool:?}");
    }
    // Small requests may use memory of the large pool if that is stitched.
    let apart = [&stats.small, &stats.large, &all];
    for pool in &apart[if segments == SegmentMode::Stitched { 2 } else { 0 }..] {
        let used = pool.active_bytes.current + pool.inactive_split_bytes.current;
        assert!(
            used <= pool.reserved_bytes.current,
            "figures from two moments: {pool:?}"
        );
    }
}

/// Checks that a read that began after these events matches the events, except for the operation in progress. Returns the blocks in use
/// that are not shown. Only a kill in the middle of a change can cause such blocks.
pub(crate) fn assert_told(snapshot: &Snapshot, model: &Model, before: &Heads) -> Vec<Held> {
    let held = |block: &Block| matches!(block.state, BlockState::Allocated | BlockState::PendingFree);
    let in_use = |block: &&Block| held(block) && !stitched::is_further_piece(block);
    let blocks = snapshot.devices.iter().flat_map(|device| device.blocks());
    let shown: BTreeMap<u64, &Block> = blocks.filter(in_use).map(|block| (block.addr, block)).collect();
    // The operation of an event is complete once its ring has another event.
    let over = |event: Option<When>| event.is_some_and(|when| before.is_over(when));
    let held: Vec<&Held> = model.in_use_since(before).collect();
    let mut held_at: BTreeMap<u64, Vec<&Held>> = BTreeMap::new();
    for held in &held {
        held_at.entry(held.born.addr).or_default().push(held);
    }
    let may_be = |block: &Block, held: &Held| match block.state {
        BlockState::Allocated => !over(held.freed),
        _ => held.freed.is_some(),
    };
    let mut firsts = Firsts::default();
    for (addr, block) in &shown {
        let held = held_at.get(addr).map_or(&[][..], |held| held);
        if !held.iter().any(|held| is(block, held) && may_be(block, held)) {
            firsts.add(snapshot, block, held);
        }
    }
    firsts.assert_held(&held, |block, held| may_be(block, held));
    let (lasting, passing): (Vec<&Held>, Vec<&Held>) = held
        .into_iter()
        .partition(|held| held.gone.is_none() && over(Some(When::of(&held.born))));
    stitched::assert_bytes(snapshot, &lasting, &passing);
    let at_home = |held: &&Held| shown.get(&held.born.addr).is_some_and(|block| is(block, held));
    let (known, elsewhere): (Vec<&Held>, Vec<&Held>) = lasting.into_iter().partition(at_home);
    let known: BTreeSet<u64> = known.iter().map(|held| held.born.addr).collect();
    stitched::missing(shown.values().filter(|block| !known.contains(&block.addr)), elsewhere)
}

fn is(block: &Block, held: &Held) -> bool {
    let born = &held.born;
    (block.addr, block.size, block.requested) == (born.addr, born.size, born.requested)
        && (block.stream, block.tag, block.segment, block.pool) == (born.stream, born.tag, born.segment, born.pool)
}

/// Checks what a killed publisher left: everything except the one interrupted operation, which the last event names.
pub(crate) fn assert_black_box(snapshot: &Snapshot, model: &Model) -> bool {
    let missing = assert_told(snapshot, model, &model.heads());
    let maps = || snapshot.devices.iter().flat_map(|device| &device.segments);
    let torn: Vec<_> = maps().filter(|map| !map.complete).collect();
    // Only the publisher's own ring changes the structure. An operation of a lane concerns one block.
    let last = model.last.get(&None).copied().unwrap_or_default();
    assert!(torn.len() <= 1, "{} segments were being changed at once", torn.len());
    assert!(
        missing.len() <= 1,
        "{missing:?} are not shown; the last event: {last:?}"
    );
    for held in &missing {
        let there = torn.iter().any(|map| map.slot == held.born.segment);
        assert!(
            there,
            "{held:?} is not shown, in a segment that is complete; the last event: {last:?}"
        );
        assert!(
            last.kind == EventKind::Remap || model.last.values().any(|last| last.segment == held.born.segment),
            "{held:?} after {:?}",
            model.last
        );
    }
    for device in &snapshot.devices {
        for block in device.blocks().filter(|block| block.requested > 0) {
            assert_eq!(snapshot.string(block.tag), tag_of(block.requested));
        }
    }
    let mapped: u64 = maps().map(|map| map.segment.mapped).sum();
    let under_way = last.size
        * u64::from(!matches!(
            last.kind,
            EventKind::Alloc | EventKind::Free | EventKind::FreeCompleted
        ));
    assert!(
        mapped.abs_diff(model.reserved()) <= under_way,
        "{mapped} of {} after {last:?}",
        model.reserved()
    );
    !torn.is_empty()
}
