//! The figures of `torch.cuda.memory_stats()` as the channel has them.

use std::collections::HashMap;

use gpumem_channel::{DeviceStats, PoolStats, Stat};

/// PyTorch's names of a pool's figures, in the order of [`PoolStats::figures_mut`].
const FIGURES: [&str; 9] = [
    "allocation",
    "active",
    "requested_bytes",
    "allocated_bytes",
    "active_bytes",
    "segment",
    "reserved_bytes",
    "inactive_split",
    "inactive_split_bytes",
];

/// Translates the figures of a device. One that is missing, as in old versions, or negative is 0.
pub(crate) fn device_stats(stats: &HashMap<String, i64>) -> DeviceStats {
    let get = |name: &str| stats.get(name).map_or(0, |value| u64::try_from(*value).unwrap_or(0));
    let pool = |of: &str| {
        let mut pool = PoolStats::default();
        for (stat, name) in pool.figures_mut().into_iter().zip(FIGURES) {
            let figure = |what: &str| get(&format!("{name}.{of}.{what}"));
            *stat = Stat {
                current: figure("current"),
                peak: figure("peak"),
                allocated: figure("allocated"),
            };
        }
        // Versions before 2.1 do not count what was requested.
        if !stats.contains_key(&format!("requested_bytes.{of}.current")) {
            pool.requested_bytes = pool.active_bytes;
        }
        pool
    };
    DeviceStats {
        small: pool("small_pool"),
        large: pool("large_pool"),
        all_peaks: FIGURES.map(|name| get(&format!("{name}.all.peak"))),
        num_alloc_retries: get("num_alloc_retries"),
        num_ooms: get("num_ooms"),
        num_sync_all_streams: get("num_sync_all_streams"),
        num_device_alloc: get("num_device_alloc"),
        num_device_free: get("num_device_free"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_their_names() {
        let mut stats = HashMap::new();
        let mut set = |name: &str, value: i64| stats.insert(name.to_owned(), value);
        set("allocated_bytes.large_pool.current", 5);
        set("allocated_bytes.large_pool.peak", 9);
        set("allocated_bytes.large_pool.allocated", 20);
        set("active_bytes.large_pool.current", 6);
        set("reserved_bytes.small_pool.current", 7);
        set("requested_bytes.small_pool.current", 2);
        set("reserved_bytes.all.peak", 11);
        set("num_ooms", 3);
        set("num_alloc_retries", -1);
        set("unknown", 1);
        let found = device_stats(&stats);
        let allocated = found.large.allocated_bytes;
        assert_eq!((allocated.current, allocated.peak, allocated.freed()), (5, 9, 15));
        assert_eq!(found.small.reserved_bytes.current, 7);
        assert_eq!(found.all().reserved_bytes.peak, 11);
        assert_eq!((found.num_ooms, found.num_alloc_retries), (3, 0));
        assert_eq!(found.small.requested_bytes.current, 2);
        assert_eq!(
            found.large.requested_bytes.current, 6,
            "it is not known: as much as is active"
        );
    }
}
