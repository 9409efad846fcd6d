//! Blocks that are stitched from pieces. A map shows each piece in the segment that owns its memory, and the first piece has the request.
//! Events have the address of the whole block, in a view. So a block and its event are matched by the request, and pieces by their bytes.

use std::collections::BTreeMap;

use gpumem_channel::{Block, BlockState, PoolId, Segment, SegmentKind, SegmentMap, Snapshot, StringId};

use crate::model::Held;
use crate::workload::TAGS;

/// The largest request of the small pool.
const SMALL_MAX: u64 = 1 << 20;

/// What a first piece stores of its request: bytes, stream, tag, segment and pool.
type Request = (u64, u64, StringId, u32, PoolId);

fn asked(block: &Block) -> Request {
    (block.requested, block.stream, block.tag, block.segment, block.pool)
}

fn born(held: &Held) -> Request {
    let born = &held.born;
    (born.requested, born.stream, born.tag, born.segment, born.pool)
}

fn maps(snapshot: &Snapshot) -> impl Iterator<Item = &SegmentMap> {
    let maps = snapshot.devices.iter().flat_map(|device| &device.segments);
    maps.map(|map| &**map)
}

fn homes(snapshot: &Snapshot) -> impl Iterator<Item = &SegmentMap> {
    maps(snapshot).filter(|map| map.segment.kind == SegmentKind::Stitched)
}

/// Returns whether a block is a small request in stitched memory, which may be in a segment of another pool.
pub(crate) fn may_be_of(block: &Block, segment: &Segment) -> bool {
    let held = block.requested > 0 && block.requested <= SMALL_MAX;
    segment.kind == SegmentKind::Stitched && block.pool == PoolId::SMALL && (held || is_further_piece(block))
}

/// Returns whether a block is a piece of a stitched block, but not the first.
pub(crate) fn is_further_piece(block: &Block) -> bool {
    block.state == BlockState::Part || block.state == BlockState::PendingFree && block.requested == 0
}

/// Checks rules that every further piece follows.
pub(crate) fn assert_part(snapshot: &Snapshot, block: &Block) {
    let tag = snapshot.string(block.tag);
    assert!(
        block.requested == 0 && block.tag != StringId(0) && (tag.is_empty() || TAGS.contains(&tag)),
        "torn: {block:?}"
    );
}

/// First pieces: blocks in use for which no event has the same address.
#[derive(Default)]
pub(crate) struct Firsts<'a>(BTreeMap<Request, Vec<&'a Block>>);

impl<'a> Firsts<'a> {
    /// Adds a block at whose address only the blocks `held` are in use.
    pub(crate) fn add(&mut self, snapshot: &Snapshot, block: &'a Block, held: &[&Held]) {
        let home = homes(snapshot).any(|map| map.slot == block.segment);
        assert!(home, "no event matches {block:?}: {held:?}");
        self.0.entry(asked(block)).or_default().push(block);
    }

    /// Checks that each is the first piece of one of the blocks `held`.
    pub(crate) fn assert_held(&self, held: &[&Held], may_be: impl Fn(&Block, &Held) -> bool) {
        for (request, firsts) in &self.0 {
            let theirs: Vec<&&Held> = held.iter().filter(|held| born(held) == *request).collect();
            for first in firsts {
                let is = |held: &&&Held| first.size <= held.born.size && may_be(first, held);
                assert!(theirs.iter().any(is), "no event matches {first:?}: {theirs:?}");
            }
            assert!(
                firsts.len() <= theirs.len(),
                "more first pieces than blocks: {firsts:?} of {theirs:?}"
            );
        }
    }
}

/// Checks that every piece is a part of a block that is held: the pieces of a stream and tag have as many bytes as such blocks. The blocks
/// `passing` may or may not be shown.
pub(crate) fn assert_bytes(snapshot: &Snapshot, lasting: &[&Held], passing: &[&Held]) {
    for map in homes(snapshot).filter(|map| map.complete) {
        let mut shown: BTreeMap<(u64, StringId), u64> = BTreeMap::new();
        for block in &map.blocks {
            if matches!(
                block.state,
                BlockState::Allocated | BlockState::PendingFree | BlockState::Part
            ) {
                *shown.entry((block.stream, block.tag)).or_default() += block.size;
            }
        }
        let bytes = |held: &[&Held]| {
            let mut bytes: BTreeMap<(u64, StringId), u64> = BTreeMap::new();
            for held in held.iter().filter(|held| held.born.segment == map.slot) {
                *bytes.entry((held.born.stream, held.born.tag)).or_default() += held.born.size;
            }
            bytes
        };
        let (least, more) = (bytes(lasting), bytes(passing));
        for owner in least.keys().chain(shown.keys()) {
            let of = |bytes: &BTreeMap<(u64, StringId), u64>| bytes.get(owner).copied().unwrap_or(0);
            let (shown, least, more) = (of(&shown), of(&least), of(&more));
            assert!(
                shown >= least && shown <= least + more,
                "{shown} bytes of stream and tag {owner:?} in pieces, not between {least} and {more} more"
            );
        }
    }
}

/// Returns the blocks `held` that have no first piece among those `shown`.
pub(crate) fn missing<'a>(shown: impl Iterator<Item = &'a &'a Block>, held: Vec<&Held>) -> Vec<Held> {
    let mut firsts: BTreeMap<Request, usize> = BTreeMap::new();
    for block in shown {
        *firsts.entry(asked(block)).or_default() += 1;
    }
    let found = |held: &&Held| match firsts.get_mut(&born(held)) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        _ => false,
    };
    let (_, missing): (Vec<&Held>, Vec<&Held>) = held.into_iter().partition(found);
    missing.into_iter().cloned().collect()
}

/// Counts the pieces in all maps that are not first ones.
pub(crate) fn parts(snapshot: &Snapshot) -> u64 {
    let blocks = maps(snapshot).flat_map(|map| &map.blocks);
    blocks.filter(|block| block.state == BlockState::Part).count() as u64
}
