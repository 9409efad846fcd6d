//! Statistics, and what went wrong.

use std::ffi::{c_char, c_int};

use gpumem::{DeviceStats, FreeBlocks, PoolStats, Stat};

use crate::boundary::enter;
use crate::devices;
use crate::failure::{self, Failure};

/// `struct gpumem_stat`
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CStat {
    current: u64,
    peak: u64,
    allocated: u64,
    freed: u64,
}

/// `struct gpumem_pool_stats`
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CPoolStats {
    allocation: CStat,
    segment: CStat,
    active: CStat,
    inactive_split: CStat,
    requested_bytes: CStat,
    allocated_bytes: CStat,
    reserved_bytes: CStat,
    active_bytes: CStat,
    inactive_split_bytes: CStat,
}

/// `struct gpumem_device_stats`. Grows at its end only.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CStats {
    size: u64,
    all: CPoolStats,
    small_pool: CPoolStats,
    large_pool: CPoolStats,
    num_alloc_retries: u64,
    num_ooms: u64,
    num_sync_all_streams: u64,
    num_device_alloc: u64,
    num_device_free: u64,
    free_bytes: u64,
    largest_free_bytes: u64,
    free_blocks: u64,
}

impl From<Stat> for CStat {
    fn from(stat: Stat) -> CStat {
        CStat {
            current: stat.current,
            peak: stat.peak,
            allocated: stat.allocated,
            freed: stat.freed(),
        }
    }
}

impl From<PoolStats> for CPoolStats {
    fn from(pool: PoolStats) -> CPoolStats {
        CPoolStats {
            allocation: pool.allocation.into(),
            segment: pool.segment.into(),
            active: pool.active.into(),
            inactive_split: pool.inactive_split.into(),
            requested_bytes: pool.requested_bytes.into(),
            allocated_bytes: pool.allocated_bytes.into(),
            reserved_bytes: pool.reserved_bytes.into(),
            active_bytes: pool.active_bytes.into(),
            inactive_split_bytes: pool.inactive_split_bytes.into(),
        }
    }
}

fn figures(stats: &DeviceStats, free: &FreeBlocks) -> CStats {
    CStats {
        size: size_of::<CStats>() as u64,
        all: stats.all().into(),
        small_pool: stats.small.into(),
        large_pool: stats.large.into(),
        num_alloc_retries: stats.num_alloc_retries,
        num_ooms: stats.num_ooms,
        num_sync_all_streams: stats.num_sync_all_streams,
        num_device_alloc: stats.num_device_alloc,
        num_device_free: stats.num_device_free,
        free_bytes: free.total,
        largest_free_bytes: free.largest,
        free_blocks: free.count,
    }
}

/// # Safety
///
/// `out` is null, or points to a `size` followed by room for as many bytes in all as it says.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpumem_stats(device: c_int, out: *mut u64) -> c_int {
    enter("gpumem_stats", -1, || {
        let place = devices::place(device)?;
        devices::not_forked()?;
        if out.is_null() || !out.is_aligned() {
            return Err(Failure::misuse("no struct gpumem_device_stats to write to"));
        }
        // SAFETY: not null, so it points to a size: the caller's contract.
        let room = unsafe { out.read() };
        if room < size_of::<u64>() as u64 {
            return Err(Failure::misuse(
                "set the field size to sizeof(struct gpumem_device_stats) first",
            ));
        }
        let mut found = place.allocator().map_or_else(
            || figures(&DeviceStats::default(), &FreeBlocks::default()),
            |allocator| figures(&allocator.stats(), &allocator.free_blocks()),
        );
        // A program compiled against another version gets what both know.
        let known = size_of::<CStats>().min(usize::try_from(room).unwrap_or(usize::MAX));
        found.size = known as u64;
        // SAFETY: both have room for `known` bytes, and `found` is made of u64 without gaps.
        unsafe { std::ptr::copy_nonoverlapping((&raw const found).cast::<u8>(), out.cast::<u8>(), known) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn gpumem_reset_peaks(device: c_int) -> c_int {
    enter("gpumem_reset_peaks", -1, || {
        devices::chosen(device)?.for_each(gpumem::Allocator::reset_peaks);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn gpumem_last_error() -> *const c_char {
    enter("gpumem_last_error", std::ptr::null(), || Ok(failure::last()))
}

#[unsafe(no_mangle)]
extern "C" fn gpumem_error_count() -> u64 {
    failure::count()
}
