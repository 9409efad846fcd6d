//! A device's memory: the figures that NVML reports, each checked for plausibility.
//!
//! An impossible figure does not discard the others. The free memory that NVML reports is taken as it is. The host's
//! memory is used only for GPUs without memory of their own: a discrete card may answer "not supported", too.

use super::calls::{Calls, Code, Device};
use super::gpu::{reading, unless_lost};
use crate::{Doubted, GpuProcess, HostMemory, Memory, Reading, host};

/// The figures that NVML reports, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Reported {
    total: u64,
    used: u64,
    /// `None` if the call includes it in `used`.
    reserved: Option<u64>,
    free: u64,
}

/// NVML's answer, not yet checked.
pub(super) struct Found(Reading<Reported>);

impl Found {
    /// Queries memory v2, or v1 if the driver has no v2 (before R510) or does not offer it for this device. With v1
    /// `used` includes what the driver holds.
    ///
    /// # Errors
    /// The GPU is lost.
    pub(super) fn ask(calls: &Calls, device: &Device<'_>) -> Result<Found, Code> {
        let answer = match calls.memory_v2(device) {
            Ok(m) => Ok(Reported {
                total: m.total,
                used: m.used,
                reserved: Some(m.reserved),
                free: m.free,
            }),
            Err(Code::FUNCTION_NOT_FOUND | Code::ARGUMENT_VERSION | Code::NOT_SUPPORTED) => {
                calls.memory_v1(device).map(|m| Reported {
                    total: m.total,
                    used: m.used,
                    reserved: None,
                    free: m.free,
                })
            }
            Err(code) => Err(code),
        };
        unless_lost(answer).map(Found)
    }

    /// Returns the plausible figures, and the host's memory if the device uses it.
    pub(super) fn check(
        self,
        name: &str,
        processes: &Reading<Vec<GpuProcess>>,
    ) -> (Reading<Memory>, Option<HostMemory>) {
        match self.0 {
            Reading::NotSupported | Reading::Value(Reported { total: 0, .. }) if is_integrated(name) => {
                of_host(processes)
            }
            reported => (Found(reported).check_own(), None),
        }
    }

    /// Returns the plausible figures of a device that has its own memory.
    pub(super) fn check_own(self) -> Reading<Memory> {
        match self.0 {
            Reading::Value(Reported { total: 0, .. }) => {
                Reading::Failed("not reported: NVML gives a total of 0".into())
            }
            Reading::Value(reported) => Reading::Value(reported.check()),
            none => none.none(),
        }
    }
}

impl Reported {
    /// Checks that each figure fits into the total beside the reserved memory. If each fits but not all together,
    /// `used` is rejected. If only one of `used` and `free` is rejected, it is computed from the other.
    fn check(self) -> Memory {
        let total = self.total;
        let reserved = self.reserved.filter(|&driver| driver <= total);
        let room = total - reserved.unwrap_or(0);
        let free = Some(self.free).filter(|&free| free <= room);
        let used = Some(self.used).filter(|&used| used <= room - free.unwrap_or(0));
        Memory {
            total,
            used: used.or(free.map(|free| room - free)),
            reserved,
            free: free.or(used.map(|used| room - used)),
            doubted: Doubted {
                used: Some(self.used).filter(|_| used.is_none()),
                reserved: self.reserved.filter(|_| reserved.is_none()),
                free: Some(self.free).filter(|_| free.is_none()),
            },
        }
    }
}

/// Whether a GPU of this name has no memory of its own: GB10 (DGX Spark), and the Jetsons' Thor, Orin, Xavier and
/// Tegra. NVML has no query for this. (GH200 and GB200 share addresses with the host but have their own memory.)
fn is_integrated(name: &str) -> bool {
    const NAMES: [&str; 5] = ["GB10", "Thor", "Orin", "Xavier", "Tegra"];
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| NAMES.iter().any(|name| word.eq_ignore_ascii_case(name)))
}

/// Returns the memory of a GPU that uses the host's. `used` is the sum of NVML's figures of its processes: NVML reports
/// those although it reports no total. With the host's own figure an idle GPU would seem to use the memory of the
/// host's programs.
fn of_host(processes: &Reading<Vec<GpuProcess>>) -> (Reading<Memory>, Option<HostMemory>) {
    let host = match host::without_limit() {
        Reading::Value(host) => host,
        none => return (none.none(), None),
    };
    let counted = |list: &Vec<GpuProcess>| list.iter().try_fold(0u64, |sum, p| sum.checked_add(*p.used.value()?));
    let memory = Memory {
        total: host.total,
        used: processes.value().and_then(counted),
        reserved: None,
        free: Some(host.available),
        doubted: Doubted::default(),
    };
    (Reading::Value(memory), Some(host))
}

/// Returns the memory of a MIG device.
pub(super) fn of_part(calls: &Calls, device: &Device<'_>) -> Reading<Memory> {
    match Found::ask(calls, device) {
        Ok(found) => found.check_own(),
        Err(code) => reading(Err(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integrated_gpus_are_recognised_by_whole_words() {
        for name in ["NVIDIA GB10", "Orin (nvgpu)", "NVIDIA Thor", "NVIDIA Tegra X1", "GB10"] {
            assert!(is_integrated(name), "{name}");
        }
        for name in [
            "NVIDIA GB102",
            "NVIDIA GB100",
            "NVIDIA H100 80GB HBM3",
            "NVIDIA GH200 480GB",
            "Author",
            "",
        ] {
            assert!(!is_integrated(name), "{name}");
        }
    }

    /// Each case: (used, reserved, free) as NVML reports them, as they are shown, and which of them are rejected. The
    /// total is 100.
    #[test]
    fn memory_figures_are_checked_one_by_one() {
        const IMPOSSIBLE: u64 = u64::MAX;
        for ((used, reserved, free), believed, doubted) in [
            ((40, Some(10), 50), (Some(40), Some(10), Some(50)), [false; 3]),
            ((40, None, 60), (Some(40), None, Some(60)), [false; 3]),
            // Free memory is NVML's figure, even if the figures do not add up.
            ((40, Some(10), 45), (Some(40), Some(10), Some(45)), [false; 3]),
            (
                (IMPOSSIBLE, Some(10), 50),
                (Some(40), Some(10), Some(50)),
                [true, false, false],
            ),
            (
                (40, Some(IMPOSSIBLE), 50),
                (Some(40), None, Some(50)),
                [false, true, false],
            ),
            (
                (40, Some(10), IMPOSSIBLE),
                (Some(40), Some(10), Some(50)),
                [false, false, true],
            ),
            ((80, Some(10), 50), (Some(40), Some(10), Some(50)), [true, false, false]),
            (
                (IMPOSSIBLE, Some(10), IMPOSSIBLE),
                (None, Some(10), None),
                [true, false, true],
            ),
            (
                (IMPOSSIBLE, Some(IMPOSSIBLE), IMPOSSIBLE),
                (None, None, None),
                [true; 3],
            ),
        ] {
            let reported = Reported {
                total: 100,
                used,
                reserved,
                free,
            };
            let memory = reported.check();
            assert_eq!(
                (memory.used, memory.reserved, memory.free),
                believed,
                "{used} {reserved:?} {free}"
            );
            let d = memory.doubted;
            assert_eq!([d.used.is_some(), d.reserved.is_some(), d.free.is_some()], doubted);
        }
    }
}
