//! Finds the rank of a job that holds much more, or much less, memory than its siblings.
//!
//! Ranks that do the same work hold about the same. A figure of a rank is unusual if it deviates from the median of the job's
//! ranks by more than each of three limits:
//!
//! - [`SHARE`] of the median, and [`LEAST`]: smaller differences are usual, as rank 0 also writes logs and checkpoints;
//! - [`SPREADS`] times the median absolute deviation of the ranks: pipeline stages differ by design, and where all ranks differ,
//!   none of them stands out. Median and median absolute deviation, unlike mean and standard deviation, are not moved by the
//!   outlier itself.
//!
//! Ranks are compared in each [`Figure`], until there is one in which more than a third of them are unusual: the job is uneven
//! then, and the rest would only say in what its ranks differ least.
//!
//! With two ranks nobody can say which one is unusual, so that takes three.

use gpumem_text::units;

/// The deviation, as a divisor of the median, up to which a figure is usual: 10 %.
const SHARE: u64 = 10;
/// The deviation in bytes up to which a figure is usual: about the size of a CUDA context, which a rank may hold more or less of.
const LEAST: u64 = 512 << 20;
/// The deviation in median absolute deviations up to which a figure is usual. In a normal distribution 4 of them are 2.7 standard
/// deviations, which 1 in 140 ranks exceeds.
const SPREADS: u64 = 4;
/// Fewest ranks with a figure that are compared.
const FEWEST: usize = 3;
/// Fewest ranks for each outlier. If more than a third are unusual, they are not the exception, and none is marked.
const PER_OUTLIER: usize = 3;

/// A figure in which ranks are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Taken from the driver.
    Reserved,
    /// Held by the program.
    Allocated,
    /// Reserved but not allocated.
    Cached,
    /// The device's memory as NVML counts it.
    Nvml,
}

impl Figure {
    /// All figures. The first in which a rank is unusual is the one that is shown.
    pub(crate) const ALL: [Figure; 4] = [Figure::Reserved, Figure::Allocated, Figure::Cached, Figure::Nvml];

    /// Returns its name in a sentence.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Figure::Reserved => "reserved",
            Figure::Allocated => "allocated",
            Figure::Cached => "cached",
            Figure::Nvml => "by NVML",
        }
    }
}

/// How a rank differs from the others of its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outlier {
    /// The figure that is unusual.
    pub figure: Figure,
    /// Bytes above the median of the ranks; negative if the rank has less.
    pub above_median: i64,
}

impl std::fmt::Display for Outlier {
    /// Writes how far the rank is from the median: `+12.1 GiB reserved`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.above_median < 0 { '-' } else { '+' };
        let size = units::bytes(self.above_median.unsigned_abs());
        write!(f, "{sign}{size} {}", self.figure.name())
    }
}

/// What one rank holds on its device, in bytes. `None` where that is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holdings {
    /// Taken from the driver.
    pub reserved: Option<u64>,
    /// Held by the program.
    pub allocated: Option<u64>,
    /// Highest `allocated` so far.
    pub peak_allocated: Option<u64>,
    /// The largest free block.
    pub largest_free: Option<u64>,
    /// As NVML counts it.
    pub nvml: Option<u64>,
}

impl Holdings {
    /// Returns the bytes that are reserved but not allocated.
    pub(crate) fn cached(&self) -> Option<u64> {
        Some(self.reserved?.saturating_sub(self.allocated?))
    }

    /// Returns a figure.
    pub(crate) fn figure(&self, figure: Figure) -> Option<u64> {
        match figure {
            Figure::Reserved => self.reserved,
            Figure::Allocated => self.allocated,
            Figure::Cached => self.cached(),
            Figure::Nvml => self.nvml,
        }
    }

    /// Returns what of a figure does not change within a training step: ranks are read at different moments of their steps, so
    /// that equal ranks have different bytes allocated.
    fn steady(&self, figure: Figure) -> Option<u64> {
        match figure {
            Figure::Reserved | Figure::Nvml => self.figure(figure),
            Figure::Allocated => self.peak_allocated,
            Figure::Cached => Some(self.reserved?.saturating_sub(self.peak_allocated?)),
        }
    }

    /// Checks whether the rank publishes but has taken no memory yet.
    fn is_starting(&self) -> bool {
        self.reserved == Some(0)
    }
}

/// The ranks of a job, compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// The median of each figure, over the ranks that have taken memory.
    pub median: Holdings,
    /// For each rank, how it differs from the others, if it does.
    pub outliers: Vec<Option<Outlier>>,
    /// Whether more than a third of the ranks are unusual in a figure, so that none of them is called an outlier.
    pub uneven: bool,
}

impl Comparison {
    /// Compares what the ranks of a job hold.
    pub(crate) fn of(ranks: &[Holdings]) -> Comparison {
        let none = Holdings::default();
        let running: Vec<Holdings> = ranks
            .iter()
            .map(|rank| if rank.is_starting() { none } else { *rank })
            .collect();
        let mut outliers = vec![None; ranks.len()];
        let mut refused = false;
        for figure in Figure::ALL {
            let mut marked = outliers.clone();
            let now = deviations(running.iter().map(|rank| rank.figure(figure)));
            let steady = deviations(running.iter().map(|rank| rank.steady(figure)));
            for ((mark, now), steady) in marked.iter_mut().zip(now).zip(steady) {
                if let (None, Some(above_median), Some(steady)) = (*mark, now, steady)
                    && above_median.signum() == steady.signum()
                {
                    *mark = Some(Outlier { figure, above_median });
                }
            }
            refused = marked.iter().flatten().count() * PER_OUTLIER > ranks.len();
            if refused {
                break;
            }
            outliers = marked;
        }
        let median = |of: fn(&Holdings) -> Option<u64>| middle(running.iter().filter_map(of).collect());
        Comparison {
            median: Holdings {
                reserved: median(|rank| rank.reserved),
                allocated: median(|rank| rank.allocated),
                peak_allocated: median(|rank| rank.peak_allocated),
                largest_free: median(|rank| rank.largest_free),
                nvml: median(|rank| rank.nvml),
            },
            uneven: refused && outliers.iter().all(Option::is_none),
            outliers,
        }
    }
}

/// Returns for each value how far it is from the median of all, if that is unusual.
fn deviations(values: impl Iterator<Item = Option<u64>> + Clone) -> Vec<Option<i64>> {
    let known: Vec<u64> = values.clone().flatten().collect();
    let enough = known.len() >= FEWEST;
    let median = middle(known.clone()).unwrap_or(0);
    let spread = middle(known.iter().map(|value| value.abs_diff(median)).collect()).unwrap_or(0);
    let usual = LEAST.max(median / SHARE).max(spread.saturating_mul(SPREADS));
    let deviation = |value: u64| (enough && value.abs_diff(median) > usual).then(|| signed_difference(value, median));
    values.map(|value| value.and_then(deviation)).collect()
}

/// Returns `a - b`, or the nearest number that fits.
pub(crate) fn signed_difference(a: u64, b: u64) -> i64 {
    let size = i64::try_from(a.abs_diff(b)).unwrap_or(i64::MAX);
    if a < b { -size } else { size }
}

/// Returns the median; the mean of the middle two if their number is even.
fn middle(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    let upper = *values.get(values.len() / 2)?;
    Some(match values.len() % 2 {
        0 => u64::midpoint(values[values.len() / 2 - 1], upper),
        _ => upper,
    })
}

#[cfg(test)]
#[path = "outlier_tests.rs"]
mod tests;
