//! The host's memory and the limit of our control group, through `sysinfo`.

use sysinfo::{MemoryRefreshKind, Pid, ProcessRefreshKind, ProcessesToUpdate, RefreshKind, System};

use crate::{HostMemory, MemoryLimit, Reading};

/// Reads how much memory the host has, how much a new program could get, and the limit of this process's control group.
pub fn host_memory() -> Reading<HostMemory> {
    let memory = without_limit();
    match memory {
        Reading::Value(host) => Reading::Value(HostMemory { limit: limit(), ..host }),
        other => other,
    }
}

/// Reads the memory of the whole host, without the control group's limit: a GPU that uses the host's memory is not
/// bound by it.
pub(crate) fn without_limit() -> Reading<HostMemory> {
    let only_memory = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    // A new `System` each time: an old one keeps its last figures when `/proc/meminfo` cannot be read.
    match System::new_with_specifics(only_memory) {
        Ok(system) => checked(system.total_memory(), system.available_memory(), system.free_memory()),
        Err(e) => Reading::Failed(format!("reading the host's memory: {e}")),
    }
}

/// Rejects figures that cannot be: `sysinfo` leaves 0 where it could not read.
fn checked(total: u64, available: u64, free: u64) -> Reading<HostMemory> {
    if total == 0 || available > total {
        return Reading::Failed("/proc/meminfo cannot be read or has no usable MemTotal and MemAvailable".into());
    }
    Reading::Value(HostMemory {
        total,
        available,
        free: free.min(total),
        limit: None,
    })
}

/// Returns the tightest limit on the path from this process's control group up to the root that is visible here.
fn limit() -> Option<MemoryLimit> {
    let mut system = System::new().ok()?;
    let own = Pid::from_u32(std::process::id());
    system.refresh_processes_specifics(
        ProcessesToUpdate::Some(&[own]),
        true,
        ProcessRefreshKind::nothing().without_tasks(),
    );
    let limits = system.process(own)?.cgroup_limits()?;
    Some(MemoryLimit {
        total: limits.total_memory,
        free: limits.free_memory,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn zero_and_impossible_figures_are_rejected() {
        for (total, available) in [(0, 0), (0, 5), (5, 6)] {
            assert!(matches!(checked(total, available, 0), Reading::Failed(why) if why.contains("/proc/meminfo")));
        }
        assert!(checked(5, 0, 0).value().is_some());
    }

    #[test]
    fn host_memory_agrees_with_proc_meminfo() {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
        let kib: u64 = total.trim().strip_suffix(" kB").unwrap().parse().unwrap();
        let memory = *host_memory().value().unwrap();
        assert_eq!(memory.total, kib << 10);
        assert!(memory.available > 0);
        assert!(
            memory
                .limit
                .is_none_or(|limit| limit.free <= limit.total && limit.total <= memory.total)
        );
    }
}
