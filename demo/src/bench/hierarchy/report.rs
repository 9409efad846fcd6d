//! What was measured of a card, as data and as a JSON document.

use serde::{Deserialize, Serialize};

pub use crate::rig::{Card, Peer};

/// The schema of [`Report`]. Readers refuse other schemas. Within one schema number fields are only added.
pub const SCHEMA: &str = "gpumem-hierarchy/1";

/// The memory hierarchy of a card, measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// The card's attributes.
    pub card: Card,
    /// When the measurement ended, in seconds since 1970-01-01 UTC.
    pub date: u64,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// Device memory that the measurements could use, in bytes. A context takes several hundred MiB more.
    pub budget: u64,
    /// Clock of the SM during the latency measurements, in MHz: cycles / ns of the same kernels, the median.
    pub sm_mhz: f64,
    /// How long loading the first kernel and running it took, in milliseconds; `None` if it was not measured. The context was there.
    pub load_ms: Option<f64>,
    /// The levels, from the fastest to the slowest.
    pub levels: Vec<Level>,
    /// Latency by the size of the working set, by increasing size.
    pub curve: Vec<Point>,
    /// Latency of the near part of L2 by SM.
    pub spread: Option<Spread>,
}

/// A level of the hierarchy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Which one.
    pub rung: Rung,
    /// The number of the peer GPU, which [`Card::peers`] has; `None` for other levels.
    #[serde(default)]
    pub peer: Option<u32>,
    /// Bytes of one SM's part; `None` if the level is not divided among SMs, or not known.
    #[serde(default)]
    pub bytes_per_sm: Option<u64>,
    /// Bytes in all; `None` if not known.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// Latency, unless it was not measured.
    #[serde(default)]
    pub latency: Option<Latency>,
    /// Latencies that other methods give.
    #[serde(default)]
    pub other_latencies: Vec<Latency>,
    /// Bandwidths.
    #[serde(default)]
    pub bandwidths: Vec<Bandwidth>,
    /// Why a figure is missing, or what is to know about it; empty if nothing.
    #[serde(default)]
    pub note: String,
    /// Figures that others published of the same kind of card.
    #[serde(default)]
    pub published: Vec<Published>,
}

impl Level {
    /// Returns its name as people say it, with the peer's number.
    pub fn title(&self) -> String {
        self.rung.title_of(self.peer)
    }
}

/// The kinds of levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// Registers of an SM.
    Registers,
    /// Shared memory of an SM.
    Shared,
    /// L1 cache of an SM.
    L1,
    /// L2 cache, working sets up to 44 % of it.
    L2Near,
    /// L2 cache, working sets from 70 % to 85 % of it. Cards whose L2 has two parts show a second step there.
    L2Far,
    /// The device's memory.
    Device,
    /// Memory of a peer GPU. There is a level for each.
    Peer,
    /// Pinned memory of the host, over the bus.
    PinnedHost,
    /// Pageable memory of the host, copied by the driver.
    PageableHost,
    /// A disk, as a reference. Not measured.
    Disk,
}

impl Rung {
    /// Every rung, from the fastest to the slowest.
    pub const ALL: [Rung; 10] = [
        Rung::Registers,
        Rung::Shared,
        Rung::L1,
        Rung::L2Near,
        Rung::L2Far,
        Rung::Device,
        Rung::Peer,
        Rung::PinnedHost,
        Rung::PageableHost,
        Rung::Disk,
    ];

    /// Returns its name as people say it.
    pub fn title(self) -> &'static str {
        match self {
            Rung::Registers => "registers",
            Rung::Shared => "shared memory",
            Rung::L1 => "L1 cache",
            Rung::L2Near => "L2 cache, near",
            Rung::L2Far => "L2 cache, far",
            Rung::Device => "device memory",
            Rung::Peer => "peer GPU",
            Rung::PinnedHost => "pinned host",
            Rung::PageableHost => "pageable host",
            Rung::Disk => "disk",
        }
    }
}

impl Rung {
    pub(super) fn title_of(self, peer: Option<u32>) -> String {
        match peer {
            Some(number) => format!("{} {number}", self.title()),
            None => self.title().to_owned(),
        }
    }
}

/// A latency: the time from a load to the use of its result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// Cycles of the SM's clock, the median of the samples.
    pub cycles: f64,
    /// Nanoseconds, the median of the samples.
    pub ns: f64,
    /// The smallest sample in nanoseconds.
    pub least_ns: f64,
    /// The largest sample in nanoseconds.
    pub most_ns: f64,
    /// Samples (a count).
    pub samples: u32,
    /// Loads of a sample (a count).
    pub hops: u32,
    /// Working set in bytes; 0 for registers.
    pub bytes: u64,
    /// Bytes from one node of the ring to the next in memory; 0 for registers.
    pub stride: u32,
    /// The order of the accesses: `random cycle`, or `dependent chain` for registers.
    pub order: String,
    /// The instruction.
    pub load: String,
    /// The SM it ran on.
    pub sm: u32,
}

/// A bandwidth.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bandwidth {
    /// What was done: `read`, `write`, `copy`, `driver copy`, `to device`, `from device`, `multiply-add`.
    pub what: String,
    /// GB/s (10^9 bytes per second) of the best sample. Copies on the device count bytes read and bytes written.
    pub gb_per_s: f64,
    /// GB/s of the median sample.
    pub median_gb_per_s: f64,
    /// Samples (a count).
    pub samples: u32,
    /// Working set in bytes; 0 for registers.
    pub bytes: u64,
    /// Bytes per cycle and SM, where the kernel read its SM's clock.
    pub per_cycle_and_sm: Option<f64>,
}

/// A point of the curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Working set in bytes.
    pub bytes: u64,
    /// Nanoseconds of a load, the median of the samples.
    pub ns: f64,
    /// The same in cycles of the SM's clock.
    pub cycles: f64,
    /// The level that a working set of this size is in.
    pub region: Region,
}

/// The parts of the curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Region {
    /// Within L1.
    L1,
    /// Within the near part of L2.
    L2Near,
    /// Within L2.
    L2Far,
    /// At least four times L2.
    Device,
    /// Where a part of the loads is served by one level and the rest by the next.
    Between,
}

/// Latencies by SM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spread {
    /// Working set in bytes.
    pub bytes: u64,
    /// The SMs and their latencies in nanoseconds.
    pub by_sm: Vec<(u32, f64)>,
    /// The smallest of them.
    pub least_ns: f64,
    /// The median.
    pub median_ns: f64,
    /// The largest.
    pub most_ns: f64,
}

/// A published figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Published {
    /// The card, with its clock where the source names it.
    pub card: String,
    /// Latency in cycles of the SM's clock, from and to.
    pub cycles: Option<(f64, f64)>,
    /// Latency in nanoseconds, from and to.
    pub ns: Option<(f64, f64)>,
    /// Bandwidth in GB/s (10^9 bytes per second), from and to.
    pub gb_per_s: Option<(f64, f64)>,
    /// Where it was published.
    pub source: String,
}
