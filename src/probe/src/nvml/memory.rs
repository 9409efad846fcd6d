//! A device's memory: what NVML says of it, judged figure by figure.
//!
//! One figure that cannot be does not discard the others. What NVML says to be free is taken as it is. The host's memory
//! stands in only on GPUs that have none of their own: a card of its own may answer "not supported", too.

use super::calls::{Calls, Code, Device};
use super::gpu::{reading, unless_lost};
use crate::{Doubted, GpuProcess, HostMemory, Memory, Reading, host};

/// What NVML says, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Said {
    total: u64,
    used: u64,
    /// `None`: its call does not tell it apart from `used`.
    reserved: Option<u64>,
    free: u64,
}

/// What NVML answered.
pub(super) struct Found(Reading<Said>);

impl Found {
    /// Memory v2, or v1 where the driver has no v2 (before R510) or does not offer it for this device: what the driver
    /// holds is then within `used`.
    ///
    /// # Errors
    /// The GPU is lost.
    pub(super) fn ask(calls: &Calls, device: &Device<'_>) -> Result<Found, Code> {
        let answer = match calls.memory_v2(device) {
            Ok(m) => Ok(Said {
                total: m.total,
                used: m.used,
                reserved: Some(m.reserved),
                free: m.free,
            }),
            Err(Code::FUNCTION_NOT_FOUND | Code::ARGUMENT_VERSION | Code::NOT_SUPPORTED) => {
                calls.memory_v1(device).map(|m| Said {
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

    /// What is believed of it, and the host's memory where it is the device's.
    pub(super) fn judge(
        self,
        name: &str,
        processes: &Reading<Vec<GpuProcess>>,
    ) -> (Reading<Memory>, Option<HostMemory>) {
        match self.0 {
            Reading::NotSupported | Reading::Value(Said { total: 0, .. }) if is_integrated(name) => of_host(processes),
            said => (Found(said).judge_own(), None),
        }
    }

    /// What is believed of a device that has memory of its own.
    pub(super) fn judge_own(self) -> Reading<Memory> {
        match self.0 {
            Reading::Value(Said { total: 0, .. }) => Reading::Failed("not reported: NVML gives a total of 0".into()),
            Reading::Value(said) => Reading::Value(said.judge()),
            none => none.none(),
        }
    }
}

impl Said {
    /// Each figure must fit into the total, beside what is believed to be reserved; where all fit and do not fit
    /// together, it is what is used that is not believed. Of used and free one that is not believed is what the other
    /// leaves.
    fn judge(self) -> Memory {
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
/// Tegra. NVML has no question for it. (GH200 and GB200 share addresses with the host and have memory of their own.)
fn is_integrated(name: &str) -> bool {
    const NAMES: [&str; 5] = ["GB10", "Thor", "Orin", "Xavier", "Tegra"];
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| NAMES.iter().any(|name| word.eq_ignore_ascii_case(name)))
}

/// The memory of a GPU that uses the host's. What its processes have is NVML's, process by process: it counts them there
/// although it tells nothing of the whole. The host's own figures would have an idle GPU use what the host's programs do.
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

/// The memory of a MIG device.
pub(super) fn of_part(calls: &Calls, device: &Device<'_>) -> Reading<Memory> {
    match Found::ask(calls, device) {
        Ok(found) => found.judge_own(),
        Err(code) => reading(Err(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_whole_words_are_integrated() {
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

    /// (total, used, reserved, free) as NVML says them; (used, reserved, free) as they are believed.
    #[test]
    fn each_figure_is_judged_for_itself() {
        const MAD: u64 = u64::MAX;
        for ((used, reserved, free), believed, doubted) in [
            ((40, Some(10), 50), (Some(40), Some(10), Some(50)), [false; 3]),
            ((40, None, 60), (Some(40), None, Some(60)), [false; 3]),
            // What is free is NVML's own word, also where there is a gap.
            ((40, Some(10), 45), (Some(40), Some(10), Some(45)), [false; 3]),
            (
                (MAD, Some(10), 50),
                (Some(40), Some(10), Some(50)),
                [true, false, false],
            ),
            ((40, Some(MAD), 50), (Some(40), None, Some(50)), [false, true, false]),
            (
                (40, Some(10), MAD),
                (Some(40), Some(10), Some(50)),
                [false, false, true],
            ),
            ((80, Some(10), 50), (Some(40), Some(10), Some(50)), [true, false, false]),
            ((MAD, Some(10), MAD), (None, Some(10), None), [true, false, true]),
            ((MAD, Some(MAD), MAD), (None, None, None), [true; 3]),
        ] {
            let said = Said {
                total: 100,
                used,
                reserved,
                free,
            };
            let memory = said.judge();
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
