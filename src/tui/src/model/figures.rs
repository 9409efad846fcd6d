//! One publisher's figures on one device, computed once per sample.

use std::sync::Arc;

use gpumem_channel::{DeviceMap, SegmentKind};

use super::pools::{PoolShare, pools};
use super::ran_out::RanOut;

/// What a publisher says about its memory on one device. Bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Taken from the driver.
    pub reserved: u64,
    /// The most that the program lets itself take from it now.
    pub budget: Option<u64>,
    /// Held by the program, rounded.
    pub allocated: u64,
    /// Asked for by the program, of what is pending, too (as PyTorch counts it).
    pub requested: u64,
    /// Reserved and not allocated.
    pub cached: u64,
    /// Of it: freed by the program, still in use by queued GPU work (PyTorch: active - allocated).
    pub pending: u64,
    /// Highest `allocated` so far.
    pub peak_allocated: u64,
    /// Highest `reserved` so far.
    pub peak_reserved: u64,
    /// Bytes of free blocks that live neighbours pin in their segment.
    pub inactive_split: u64,
    /// Bytes of all free blocks in the map.
    pub free: u64,
    /// Bytes of the largest of them.
    pub largest_free: u64,
    /// Number of them.
    pub free_blocks: u64,
    /// Blocks held by the program or waiting for the GPU.
    pub active_blocks: u64,
    /// Segments taken from the driver.
    pub segments: u64,
    /// Requests that failed.
    pub ooms: u64,
    /// The last of them; `None` when its event was not seen.
    pub ran_out: Option<RanOut>,
    /// Requests that succeeded only after room was made.
    pub retries: u64,
    /// Named pools that hold memory of their own; a part of the figures above.
    pub pools: Vec<PoolShare>,
    /// Free blocks that lie apart serve one request together.
    pub stitched: bool,
    /// The map is whole: no block is missing or torn. Without it, `free` and `largest_free` are lower bounds.
    pub complete: bool,
}

impl Figures {
    /// Figures of a published device, with its channel's strings; `None` when its scalars could not be read consistently, or
    /// contradict themselves: no sum is to have a part of them.
    pub(crate) fn of(map: &DeviceMap, strings: &[Arc<str>]) -> Option<Figures> {
        let stats = map.stats.as_ref().filter(|_| map.contradiction.is_none())?;
        let free = map.free();
        let all = stats.all();
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
            complete: map.segments.iter().all(|s| s.complete),
        })
    }

    /// External fragmentation: 1 - largest free block / all free. `None` when nothing is free.
    pub(crate) fn fragmentation(&self) -> Option<f64> {
        (self.free > 0).then(|| 1.0 - self.largest_free as f64 / self.free as f64)
    }

    /// Internal fragmentation: 1 - requested / active, which is allocated or pending, as what was requested is. `None` when nothing is active.
    pub(crate) fn internal_fragmentation(&self) -> Option<f64> {
        let active = self.allocated.saturating_add(self.pending);
        (active > 0).then(|| (1.0 - self.requested as f64 / active as f64).clamp(0.0, 1.0))
    }

    /// Inactive split / reserved. `None` when nothing is reserved.
    pub(crate) fn inactive_split_ratio(&self) -> Option<f64> {
        (self.reserved > 0).then(|| (self.inactive_split as f64 / self.reserved as f64).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipeline whose blocks wait for other streams half of the time would seem to lose nothing to rounding.
    #[test]
    fn what_waits_for_the_gpu_is_on_both_sides_of_internal_fragmentation() {
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
        assert_eq!(internal(u64::MAX, u64::MAX, 1), Some(0.0), "whatever a channel says");
    }
}
