//! A publisher's figures on one device, computed once per sample.

use std::sync::Arc;

use gpumem_channel::{DeviceMap, Sampled, SegmentKind, StringId};

use super::pools::{PoolShare, pools};
use super::ran_out::RanOut;

/// What a publisher reports about its memory on one device. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Taken from the driver.
    pub reserved: u64,
    /// The most that the program allows itself to take from the driver.
    pub budget: Option<u64>,
    /// Held by the program, rounded.
    pub allocated: u64,
    /// Asked for by the program. As in PyTorch, this includes what is pending.
    pub requested: u64,
    /// Reserved but not allocated.
    pub cached: u64,
    /// The part of `cached` that the program freed and queued GPU work still uses (PyTorch: active - allocated).
    pub pending: u64,
    /// Highest `allocated` so far.
    pub peak_allocated: u64,
    /// Highest `reserved` so far.
    pub peak_reserved: u64,
    /// Free blocks in segments that also hold live blocks, so that they cannot go back to the driver.
    pub inactive_split: u64,
    /// All free blocks in the map.
    pub free: u64,
    /// The largest free block.
    pub largest_free: u64,
    /// Number of free blocks.
    pub free_blocks: u64,
    /// Number of blocks that the program holds or that wait for the GPU.
    pub active_blocks: u64,
    /// Number of segments taken from the driver.
    pub segments: u64,
    /// Number of requests that failed.
    pub ooms: u64,
    /// The last request that failed; `None` if its event was not read.
    pub ran_out: Option<RanOut>,
    /// Number of requests that succeeded only after cached memory was released.
    pub retries: u64,
    /// Named pools with their own segments. Their memory is part of the figures above.
    pub pools: Vec<PoolShare>,
    /// Whether separate free blocks can serve one request together.
    pub stitched: bool,
    /// Whether there is a map: `free` and `largest_free` are not known without. A publisher that samples another allocator has one only
    /// while somebody looks at it.
    pub mapped: bool,
    /// Why there is none although somebody does.
    pub map_skipped: Option<Arc<str>>,
    /// Why the history of operations that the program records is not read; `None` if it is, or there is none.
    pub events_skipped: Option<Arc<str>>,
    /// Whether another allocator than ours is sampled: PyTorch's.
    pub sampled: bool,
    /// What the process used outside of the allocator when it began to use the device; `None` if that was not measured.
    pub outside_at_start: Option<u64>,
    /// Libraries and features in use that take memory outside of the allocator; empty if none is known.
    pub outside_users: Arc<str>,
    /// Whether no block of the map is missing or torn. If not, `free` and `largest_free` are lower bounds.
    pub complete: bool,
}

impl Figures {
    /// Computes the figures of a published device, given its channel's strings. Returns `None` if its statistics could not be
    /// read consistently or contradict themselves, so that they become part of no sum.
    pub(crate) fn of(map: &DeviceMap, strings: &[Arc<str>], sampled: Option<&Sampled>) -> Option<Figures> {
        let stats = map.stats.as_ref().filter(|_| map.contradiction.is_none())?;
        let free = map.free();
        let all = stats.all();
        let mapped = sampled.is_none_or(|sampled| sampled.blocks_at > 0);
        let string = |id: StringId| strings.get(id.0 as usize).filter(|text| !text.is_empty()).cloned();
        let outside = map.outside.unwrap_or_default();
        Some(Figures {
            reserved: all.reserved_bytes.current,
            budget: (map.device.budget > 0).then_some(map.device.budget),
            stitched: map.segments.iter().any(|map| map.segment.kind == SegmentKind::Stitched),
            allocated: all.allocated_bytes.current,
            requested: all.requested_bytes.current,
            cached: stats.cached_bytes(),
            pending: stats.pending_bytes(),
            peak_allocated: all.allocated_bytes.peak,
            peak_reserved: all.reserved_bytes.peak,
            inactive_split: all.inactive_split_bytes.current,
            free: free.bytes,
            largest_free: free.largest,
            free_blocks: free.count,
            active_blocks: all.active.current,
            segments: all.segment.current,
            ooms: stats.num_ooms,
            ran_out: None,
            retries: stats.num_alloc_retries,
            pools: pools(map, strings),
            mapped,
            map_skipped: sampled.and_then(|sampled| string(sampled.skipped)),
            events_skipped: sampled.and_then(|sampled| string(sampled.events_skipped)),
            sampled: sampled.is_some(),
            outside_at_start: (outside.measured_at > 0).then_some(outside.at_start),
            outside_users: string(outside.users).unwrap_or_default(),
            complete: mapped && map.segments.iter().all(|s| s.complete),
        })
    }

    /// Returns the largest free block; `None` if there is no map.
    pub(crate) fn largest(&self) -> Option<u64> {
        self.mapped.then_some(self.largest_free)
    }

    /// Returns the external fragmentation: 1 - largest free block / all free. `None` if nothing is free, or there is no map.
    pub(crate) fn fragmentation(&self) -> Option<f64> {
        (self.free > 0).then(|| 1.0 - self.largest_free as f64 / self.free as f64)
    }

    /// Returns the internal fragmentation: 1 - requested / active. Active is allocated + pending, since `requested` includes
    /// both. `None` if nothing is active.
    pub(crate) fn internal_fragmentation(&self) -> Option<f64> {
        let active = self.allocated.saturating_add(self.pending);
        (active > 0).then(|| (1.0 - self.requested as f64 / active as f64).clamp(0.0, 1.0))
    }

    /// Returns inactive split / reserved. `None` if nothing is reserved.
    pub(crate) fn inactive_split_ratio(&self) -> Option<f64> {
        (self.reserved > 0).then(|| (self.inactive_split as f64 / self.reserved as f64).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a pipeline whose blocks wait for other streams half of the time would show no loss to rounding.
    #[test]
    fn internal_fragmentation_includes_pending_blocks() {
        let internal = |requested, allocated, pending| {
            let figures = Figures {
                requested,
                allocated,
                pending,
                ..Figures::default()
            };
            figures.internal_fragmentation()
        };
        assert_eq!(internal(75, 100, 0), Some(0.25));
        assert_eq!(internal(150, 100, 100), Some(0.25));
        assert_eq!(internal(75, 0, 100), Some(0.25));
        assert_eq!(internal(0, 0, 0), None);
        assert_eq!(
            internal(u64::MAX, u64::MAX, 1),
            Some(0.0),
            "for any figures of a channel"
        );
    }
}
