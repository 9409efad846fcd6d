//! The driver's policy for managed memory, from its module parameters.

use gpumem_text::clean_line;

use crate::Root;

/// The policy in force, as far as the driver shows it. A parameter that this driver does not have is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UvmPolicy {
    /// `uvm_perf_prefetch_enable`: a fault brings neighbouring pages too, within 2 MiB.
    pub prefetch: Option<bool>,
    /// `uvm_perf_prefetch_threshold`, percent: from this share of a part on, the rest comes too.
    pub prefetch_threshold: Option<u64>,
    /// `uvm_perf_thrashing_enable`: pages that go back and forth are slowed down, then pinned.
    pub thrashing: Option<bool>,
    /// `uvm_perf_thrashing_threshold`: how often a page moves within `thrashing_lapse` to count as thrashing.
    pub thrashing_threshold: Option<u64>,
    /// `uvm_perf_thrashing_lapse_usec`, microseconds.
    pub thrashing_lapse: Option<u64>,
    /// `uvm_perf_access_counter_migration_enable`: -1 leaves it to the driver, which uses them where the CPU and the GPU share page tables.
    pub access_counters: Option<i64>,
    /// `uvm_disable_hmm`: ordinary memory is not migrated.
    pub hmm_disabled: Option<bool>,
    /// `uvm_ats_mode`: the GPU uses the CPU's page tables where the machine can.
    pub ats: Option<bool>,
}

/// The parameters' folder.
const PARAMETERS: &str = "sys/module/nvidia_uvm/parameters";

impl UvmPolicy {
    /// Reads the policy. `None` while the module is not loaded or not visible.
    pub fn read(root: &Root) -> Option<UvmPolicy> {
        if !root.path(PARAMETERS).is_dir() {
            return None;
        }
        let text = |name: &str| {
            let bytes = root.read(format!("{PARAMETERS}/{name}"), 64).ok()?;
            Some(clean_line(bytes.trim_ascii(), 64))
        };
        let number = |name: &str| text(name)?.parse().ok();
        // Parameters are numbers or the kernel's booleans, by series.
        let flag = |name: &str| match text(name)?.as_str() {
            "Y" => Some(true),
            "N" => Some(false),
            number => number.parse::<i64>().ok().map(|n| n != 0),
        };
        Some(UvmPolicy {
            prefetch: flag("uvm_perf_prefetch_enable"),
            prefetch_threshold: number("uvm_perf_prefetch_threshold"),
            thrashing: flag("uvm_perf_thrashing_enable"),
            thrashing_threshold: number("uvm_perf_thrashing_threshold"),
            thrashing_lapse: number("uvm_perf_thrashing_lapse_usec"),
            access_counters: text("uvm_perf_access_counter_migration_enable").and_then(|n| n.parse().ok()),
            hmm_disabled: flag("uvm_disable_hmm"),
            ats: flag("uvm_ats_mode"),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn parameters_are_numbers_or_booleans() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        assert_eq!(UvmPolicy::read(&root), None);
        let folder = dir.path().join(PARAMETERS);
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in [
            ("uvm_perf_prefetch_enable", "1\n"),
            ("uvm_perf_prefetch_threshold", "51\n"),
            ("uvm_perf_access_counter_migration_enable", "-1\n"),
            ("uvm_disable_hmm", "N\n"),
            ("uvm_perf_thrashing_threshold", "many\n"),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let policy = UvmPolicy::read(&root).unwrap();
        let expected = UvmPolicy {
            prefetch: Some(true),
            prefetch_threshold: Some(51),
            access_counters: Some(-1),
            hmm_disabled: Some(false),
            ..UvmPolicy::default()
        };
        assert_eq!(policy, expected);
    }
}
