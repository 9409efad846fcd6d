//! What the selected process allocated by tag, over time.

use std::collections::VecDeque;
use std::sync::Arc;

use gpumem_channel::BlockState;

use super::blocks::BlockMap;
use super::history::MAX_POINTS;
use super::process::ProcessId;
use super::{Nanos, SECOND};

/// Number of tags kept per point. The largest are kept; the others are summed up.
const MAX_TAGS: usize = 12;

/// Bytes allocated by tag at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TagPoint {
    /// When the map was read.
    pub at: Nanos,
    /// The tags with the most bytes, largest first. Blocks without a tag are not among them.
    pub tags: Vec<(Arc<str>, u64)>,
    /// Bytes of all other tags and of blocks without a tag.
    pub rest: u64,
}

impl TagPoint {
    /// Sums up the allocated blocks of a map.
    pub(crate) fn of(map: &BlockMap) -> TagPoint {
        let mut sums = vec![0u64; map.strings.len()];
        let mut rest = 0u64;
        for block in map.segments.iter().flat_map(|s| s.blocks.iter()) {
            if matches!(block.state, BlockState::Allocated | BlockState::Part) {
                let sum = sums.get_mut(block.tag.0 as usize).unwrap_or(&mut rest);
                *sum = sum.saturating_add(block.size);
            }
        }
        let named = sums.iter().zip(map.strings.iter()).filter(|(sum, _)| **sum > 0);
        let (untagged, tagged): (Vec<_>, Vec<_>) = named.partition(|(_, name)| name.is_empty());
        let mut tags: Vec<(Arc<str>, u64)> = tagged.into_iter().map(|(&sum, name)| (name.clone(), sum)).collect();
        tags.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let surplus = tags.split_off(tags.len().min(MAX_TAGS));
        let others = untagged.iter().map(|(sum, _)| **sum).chain(surplus.iter().map(|t| t.1));
        TagPoint {
            at: map.read_at,
            rest: others.fold(rest, u64::saturating_add),
            tags,
        }
    }

    /// Returns the bytes of a tag.
    pub(crate) fn bytes(&self, tag: &str) -> u64 {
        self.tags.iter().find(|(name, _)| **name == *tag).map_or(0, |t| t.1)
    }

    /// Returns the bytes of all tags and the rest.
    pub(crate) fn total(&self) -> u64 {
        self.tags.iter().map(|t| t.1).fold(self.rest, u64::saturating_add)
    }
}

/// The history of one process by tag, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TagPast {
    /// The process and device.
    pub process: ProcessId,
    /// The newest points, at most [`MAX_POINTS`].
    pub points: VecDeque<TagPoint>,
}

impl TagPast {
    /// The number of tags with a layer of their own in the Timeline; all others share one more.
    pub(crate) const STACKED: usize = 5;

    /// Creates an empty history.
    pub(crate) fn new(process: ProcessId) -> TagPast {
        TagPast {
            process,
            points: VecDeque::new(),
        }
    }

    /// Adds a point for a newer map and drops the oldest one if there are too many. Maps that were added already, or less than
    /// a fifth of a second after the newest point, are ignored. Returns whether it was added.
    pub(crate) fn push(&mut self, map: &BlockMap) -> bool {
        let newest = self.points.back().map(|p| p.at);
        if newest.is_some_and(|at| map.read_at < at.saturating_add(SECOND / 5)) {
            return false;
        }
        self.points.push_back(TagPoint::of(map));
        if self.points.len() > MAX_POINTS {
            self.points.pop_front();
        }
        true
    }

    /// Returns the tags that had the most bytes at any known moment, at most [`TagPast::STACKED`].
    pub(crate) fn largest(&self) -> Vec<Arc<str>> {
        let mut tags: Vec<(Arc<str>, u64)> = Vec::new();
        for (name, bytes) in self.points.iter().flat_map(|p| &p.tags) {
            match tags.iter_mut().find(|known| known.0 == *name) {
                Some(known) => known.1 = known.1.max(*bytes),
                None => tags.push((name.clone(), *bytes)),
            }
        }
        tags.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        tags.truncate(Self::STACKED);
        tags.into_iter().map(|tag| tag.0).collect()
    }

    /// Checks whether any point has a tag.
    pub(crate) fn any(&self) -> bool {
        self.points.iter().any(|p| !p.tags.is_empty())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use gpumem_channel::{Block, Segment, SegmentMap, StringId};

    use super::*;
    use crate::model::{ChannelKey, DeviceKey, Owner};

    fn id() -> ProcessId {
        ProcessId {
            device: DeviceKey::NvmlIndex(0),
            owner: Owner::Channel(ChannelKey(1, 1)),
        }
    }

    /// A map of blocks with these tags, sizes and states.
    fn map(at: Nanos, strings: usize, blocks: &[(u32, u64, BlockState)]) -> BlockMap {
        let block = |&(tag, size, state): &(u32, u64, BlockState)| Block {
            size,
            state,
            tag: StringId(tag),
            ..Block::default()
        };
        let segment = SegmentMap::new(0, Segment::default(), blocks.iter().map(block).collect(), false);
        let names = (0..strings).map(|i| if i == 0 { "".into() } else { format!("tag {i}").into() });
        BlockMap {
            process: id(),
            segments: vec![Arc::new(segment)],
            strings: names.collect::<Vec<Arc<str>>>().into(),
            bytes: 0,
            blocks: blocks.len(),
            left_out: 0,
            untracked: (0, 0),
            read_at: at,
            until: Some(at),
        }
    }

    #[test]
    fn allocated_blocks_are_summed_by_tag() {
        use BlockState::{Allocated, Free, PendingFree};
        let blocks = [
            (1, 5, Allocated),
            (2, 9, Allocated),
            (1, 6, Allocated),
            (2, 100, Free),
            (2, 100, PendingFree),
            (0, 3, Allocated),
            (77, 4, Allocated),
        ];
        let point = TagPoint::of(&map(1, 3, &blocks));
        let tags: Vec<(&str, u64)> = point.tags.iter().map(|(name, bytes)| (&**name, *bytes)).collect();
        assert_eq!(tags, [("tag 1", 11), ("tag 2", 9)]);
        assert_eq!((point.rest, point.total(), point.bytes("tag 2")), (7, 27, 9));
        let many: Vec<(u32, u64, BlockState)> = (1..=30).map(|i| (i, u64::from(i), Allocated)).collect();
        let point = TagPoint::of(&map(1, 31, &many));
        assert_eq!((point.tags.len(), point.total()), (MAX_TAGS, 30 * 31 / 2));
        assert_eq!(point.bytes("tag 30"), 30);
    }

    #[test]
    fn history_is_bounded_and_takes_each_map_once() {
        let mut past = TagPast::new(id());
        for second in 1..=700 {
            for tenth in [0, 0, 1] {
                past.push(&map(
                    second * SECOND + tenth * SECOND / 10,
                    1,
                    &[(0, 1, BlockState::Allocated)],
                ));
            }
        }
        assert_eq!(past.points.len(), MAX_POINTS);
        assert_eq!(past.points.back().unwrap().at, 700 * SECOND);
        assert!(!past.any(), "nothing has a tag");
    }
}
