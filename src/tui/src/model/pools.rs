//! The named pools of a publisher.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpumem_channel::{DeviceMap, FreeSums, StringId};

/// A pool's part of a publisher's memory on one device, summed over the pool's own segments. Memory of requests that overflowed out
/// of the pool is not included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolShare {
    /// Its name, as the program set it.
    pub name: Arc<str>,
    /// Number of its segments.
    pub segments: u64,
    /// Bytes of physical memory.
    pub reserved: u64,
    /// Its free blocks.
    pub free: FreeSums,
}

/// Returns the pools that have segments, in the order in which the program named them.
pub(super) fn pools(map: &DeviceMap, strings: &[Arc<str>]) -> Vec<PoolShare> {
    let mut pools: BTreeMap<StringId, PoolShare> = BTreeMap::new();
    for segment in &map.segments {
        let id = segment.segment.pool_name;
        let Some(name) = strings.get(id.0 as usize).filter(|name| !name.is_empty()) else {
            continue;
        };
        let pool = pools.entry(id).or_insert_with(|| PoolShare {
            name: Arc::clone(name),
            segments: 0,
            reserved: 0,
            free: FreeSums::default(),
        });
        pool.segments += 1;
        pool.reserved = pool.reserved.saturating_add(segment.segment.mapped);
        pool.free = pool.free.and(segment.free);
    }
    pools.into_values().collect()
}

#[cfg(test)]
mod tests {
    use gpumem_channel::{Block, Segment, SegmentMap};

    use super::*;

    #[test]
    fn segments_are_summed_by_pool_name() {
        let segment = |slot: u32, pool_name, bytes: u64| {
            let addr = u64::from(slot) << 30;
            let segment = Segment {
                addr,
                size: bytes,
                mapped: bytes,
                pool_name: StringId(pool_name),
                ..Segment::default()
            };
            let block = Block {
                addr,
                size: bytes,
                ..Block::default()
            };
            Arc::new(SegmentMap::new(slot, segment, [block].into(), true))
        };
        let map = DeviceMap {
            segments: vec![
                segment(0, 0, 1),
                segment(1, 2, 10),
                segment(2, 1, 20),
                segment(3, 2, 30),
                // The name is not known.
                segment(4, 7, 40),
            ],
            ..DeviceMap::default()
        };
        let strings: Vec<Arc<str>> = ["", "graph", "tenant"].map(Arc::from).into();
        let shares: Vec<_> = pools(&map, &strings)
            .into_iter()
            .map(|p| (p.name.to_string(), p.segments, p.reserved, p.free.bytes, p.free.largest))
            .collect();
        assert_eq!(
            shares,
            [("graph".into(), 1, 20, 20, 20), ("tenant".into(), 2, 40, 40, 30)]
        );
    }
}
