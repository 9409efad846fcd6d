//! The fields of the JSON document, in the order in which they are written. `JSON.md` describes them.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;

/// Why figures are null, by field.
pub(super) type Reasons = BTreeMap<&'static str, String>;

#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    pub(super) schema: &'static str,
    pub(super) version: &'static str,
    pub(super) time_unix_ms: u64,
    pub(super) sampled_unix_ms: BTreeMap<&'static str, u64>,
    pub(super) host: &'a str,
    pub(super) simulated: bool,
    /// The fields of sources, by their names.
    #[serde(flatten)]
    pub(super) sources: BTreeMap<&'static str, Box<RawValue>>,
    pub(super) devices: Vec<JsonDevice<'a>>,
    pub(super) processes: Vec<JsonProcess<'a>>,
    pub(super) findings: Vec<JsonFinding<'a>>,
    pub(super) unreadable_channels: Vec<JsonProblem<'a>>,
    pub(super) channels_not_shown: Vec<JsonLeftOut<'a>>,
}

#[derive(Debug, Serialize)]
pub(super) struct JsonDevice<'a> {
    pub(super) label: &'a str,
    pub(super) kind: &'static str,
    pub(super) simulated: bool,
    pub(super) name: Option<&'a str>,
    pub(super) uuid: Option<String>,
    pub(super) pci: Option<&'a str>,
    pub(super) state: &'static str,
    pub(super) publishers: usize,
    pub(super) memory_is_host_memory: bool,
    pub(super) memory: Option<JsonMemory>,
    pub(super) utilization: Option<f64>,
    pub(super) memory_utilization: Option<f64>,
    pub(super) temperature_celsius: Option<u32>,
    pub(super) power_watts: Option<f64>,
    pub(super) power_limit_watts: Option<f64>,
    pub(super) pcie_host_to_device_bytes_per_second: Option<u64>,
    pub(super) pcie_device_to_host_bytes_per_second: Option<u64>,
    pub(super) host_memory: Option<JsonHost>,
    pub(super) part_of: Option<&'a str>,
    pub(super) mig: Vec<JsonMig<'a>>,
    pub(super) unavailable: Reasons,
}

#[derive(Debug, Serialize)]
pub(super) struct JsonMemory {
    pub(super) total: u64,
    pub(super) allocated: u64,
    pub(super) cached: u64,
    pub(super) other: Option<u64>,
    pub(super) managed_at_most: Option<u64>,
    pub(super) host: Option<u64>,
    pub(super) driver_reserved: Option<u64>,
    pub(super) free: Option<u64>,
    pub(super) not_published: Option<u64>,
    pub(super) source: &'static str,
    pub(super) skewed: bool,
    pub(super) unavailable: Reasons,
}

#[derive(Debug, Serialize)]
pub(super) struct JsonHost {
    pub(super) total: u64,
    pub(super) available: u64,
    pub(super) free: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct JsonMig<'a> {
    pub(super) index: u32,
    pub(super) name: &'a str,
    pub(super) uuid: &'a str,
    pub(super) total: Option<u64>,
    pub(super) used: Option<u64>,
    pub(super) driver_reserved: Option<u64>,
    pub(super) free: Option<u64>,
    pub(super) unavailable: Reasons,
}

#[derive(Debug, Serialize)]
pub(super) struct JsonProcess<'a> {
    pub(super) pid: u32,
    pub(super) device: Option<&'a str>,
    pub(super) simulated: bool,
    pub(super) mps_client: bool,
    pub(super) user: Option<&'a str>,
    pub(super) command: Option<&'a str>,
    pub(super) label: Option<&'a str>,
    pub(super) job: Option<&'a str>,
    pub(super) rank: Option<u32>,
    pub(super) ranks: Option<usize>,
    pub(super) outlier: Option<JsonOutlier>,
    pub(super) state: &'static str,
    pub(super) stopped: Option<bool>,
    pub(super) ended_unix_ms: Option<u64>,
    pub(super) nvml: Option<u64>,
    pub(super) outside: Option<JsonOutside>,
    pub(super) managed: Option<u64>,
    pub(super) managed_on_cpu: Option<u64>,
    pub(super) allocator: Option<JsonFigures<'a>>,
    pub(super) hints: Vec<JsonHint>,
    pub(super) unavailable: Reasons,
}

/// Something that explains the memory of a process.
#[derive(Debug, Serialize)]
pub(super) struct JsonHint {
    pub(super) source: &'static str,
    pub(super) text: String,
}

/// What a process uses besides the memory of its allocator.
#[derive(Debug, Serialize)]
pub(super) struct JsonOutside {
    pub(super) bytes: u64,
    pub(super) at_start: Option<u64>,
    pub(super) users: String,
}

#[derive(Debug, Serialize)]
pub(super) struct JsonOutlier {
    pub(super) figure: &'static str,
    pub(super) above_median: i64,
}

#[derive(Debug, Serialize)]
pub(super) struct JsonFigures<'a> {
    pub(super) reserved: u64,
    pub(super) budget: Option<u64>,
    pub(super) allocated: u64,
    pub(super) requested: u64,
    pub(super) cached: u64,
    pub(super) pending: u64,
    pub(super) peak_reserved: u64,
    pub(super) peak_allocated: u64,
    pub(super) inactive_split: u64,
    pub(super) free_total: u64,
    pub(super) largest_free: Option<u64>,
    pub(super) free_blocks: u64,
    pub(super) active_blocks: u64,
    pub(super) segments: u64,
    pub(super) ooms: u64,
    pub(super) retries: u64,
    pub(super) external_fragmentation: Option<f64>,
    pub(super) internal_fragmentation: Option<f64>,
    pub(super) inactive_split_ratio: Option<f64>,
    pub(super) map_complete: bool,
    pub(super) pools: Vec<JsonPool<'a>>,
}

#[derive(Debug, Serialize)]
pub(super) struct JsonPool<'a> {
    pub(super) name: &'a str,
    pub(super) reserved: u64,
    pub(super) free_total: u64,
    pub(super) largest_free: u64,
    pub(super) segments: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct JsonFinding<'a> {
    pub(super) severity: &'static str,
    pub(super) pid: Option<u32>,
    pub(super) device: Option<&'a str>,
    pub(super) text: &'a str,
}

#[derive(Debug, Serialize)]
pub(super) struct JsonProblem<'a> {
    pub(super) file: &'a str,
    pub(super) kind: &'static str,
    pub(super) reason: &'a str,
}

#[derive(Debug, Serialize)]
pub(super) struct JsonLeftOut<'a> {
    pub(super) user: &'a str,
    pub(super) uid: u32,
    pub(super) channels: usize,
    pub(super) channels_not_shown: usize,
    pub(super) devices_not_shown: usize,
}
