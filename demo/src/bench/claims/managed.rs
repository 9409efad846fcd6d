//! Managed memory: the first touch of its pages, prefetching, and the time of a migration.

use gpumem_text::units::MIB;

use super::bench::{Bench, Found, MICRO, MILLI, figure};
use super::figure::{Figure, range};
use super::report::Verdict;
use super::verdict::{Case, short, within};
use super::{Claim, Needs};
use crate::bench::error::Stop;
use crate::rig::claims::{Arrival, Toucher};

pub(super) const FIRST_TOUCH: Claim = Claim {
    name: "first-touch",
    words: "The first touch of managed memory is 10 to 100 times slower.",
    source: "courses",
    method: "A kernel reads 64 MiB of managed memory that the host wrote: as it touches them, and after they were \
             prefetched. First its own time is compared, then that of moving and reading together.",
    needs: Needs::Gpu,
    guess_ms: 1500,
    measure: first_touch,
};

pub(super) const PREFETCH: Claim = Claim {
    name: "prefetch",
    words: "Prefetched managed memory approaches the speed of explicit copies.",
    source: "courses",
    method: "64 MiB that the host wrote are prefetched, or copied by cuMemcpyHtoD from pinned and from pageable memory, by \
             the host's clock; the speed of prefetching as a percentage of that of copying.",
    needs: Needs::Gpu,
    guess_ms: 2000,
    measure: prefetch,
};

pub(super) const MIGRATION: Claim = Claim {
    name: "migration",
    words: "A page migration takes microseconds.",
    source: "courses",
    method: "One thread touches a word in each 2 MiB of 64 MiB of managed memory that is on the other side: a thread of a \
             kernel, and a thread of the host. Each touch is a page fault and moves the pages around it.",
    needs: Needs::Gpu,
    guess_ms: 1500,
    measure: migration,
};

const BYTES: u64 = 64 * MIB;
/// The claimed slowdown.
const SLOWER: (f64, f64) = (10.0, 100.0);
/// "Approaches" is at least so many percent of the speed.
const APPROACHES: f64 = 80.0;
/// "Microseconds" of one fault with its migration.
const MICROSECONDS: (f64, f64) = (1.0, 100.0);
/// The driver moves pages within blocks of 2 MiB, so each touch of another block is a fault.
const TOUCHES: f64 = (BYTES / (2 * MIB)) as f64;

/// Milliseconds of moving data to the device and of the kernel that reads it.
struct Times {
    moving: Figure,
    kernel: Figure,
    both: Figure,
}

fn arrive(bench: &mut Bench<'_>, name: &str, arrival: Arrival) -> Result<Times, Stop> {
    let arrived = bench.repeat(|gpu| gpu.arrive(arrival, BYTES))?;
    let ms = |ns: u64| ns as f64 / MILLI;
    let moving: Vec<f64> = arrived.iter().map(|a| ms(a.move_ns)).collect();
    let kernel: Vec<f64> = arrived.iter().map(|a| ms(a.kernel_ns)).collect();
    let both: Vec<f64> = arrived.iter().map(|a| ms(a.move_ns + a.kernel_ns)).collect();
    Ok(Times {
        moving: figure(format!("moving, {name}"), "ms", &moving)?,
        kernel: figure(format!("the kernel, {name}"), "ms", &kernel)?,
        both: figure(format!("both, {name}"), "ms", &both)?,
    })
}

fn first_touch(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let on_demand = arrive(bench, "on demand", Arrival::OnDemand)?;
    let prefetched = arrive(bench, "prefetched", Arrival::Prefetched)?;
    let kernel = on_demand.kernel.median / prefetched.kernel.median;
    let both = on_demand.both.median / prefetched.both.median;
    Ok(Found {
        short: format!("{}, in all {}", range(kernel, kernel, "x"), range(both, both, "x")),
        verdict: slower(kernel, both),
        figures: vec![on_demand.kernel, prefetched.kernel, prefetched.moving, prefetched.both],
    })
}

/// Judges the slowdown of the kernel itself, and that of moving and reading together.
fn slower(kernel: f64, both: f64) -> Verdict {
    let cases = [
        Case::new("the kernel alone counts", kernel),
        Case::new("moving counts, too", both),
    ];
    match within(&cases, SLOWER, "x") {
        Verdict::DoesNotHold(_) => Verdict::DoesNotHold(format!(
            "kernel {}, in all {}",
            range(kernel, kernel, "x"),
            range(both, both, "x")
        )),
        verdict => verdict,
    }
}

fn prefetch(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let prefetched = arrive(bench, "prefetched", Arrival::Prefetched)?.moving;
    let pinned = arrive(bench, "copied from pinned memory", Arrival::CopiedPinned)?.moving;
    let pageable = arrive(bench, "copied from pageable memory", Arrival::CopiedPageable)?.moving;
    let speed = |copied: &Figure| 100.0 * copied.median / prefetched.median;
    let cases = [
        Case::new("the copies are pinned", speed(&pinned)),
        Case::new("the copies are pageable", speed(&pageable)),
    ];
    Ok(Found {
        short: short(&cases, "%"),
        verdict: approaches(&cases),
        figures: vec![prefetched, pinned, pageable],
    })
}

/// Judges the speed of prefetching in percent of that of copying, by kind of the host's memory.
fn approaches(cases: &[Case]) -> Verdict {
    within(cases, (APPROACHES, f64::INFINITY), "%")
}

fn migration(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let mut figures = Vec::new();
    let mut cases = Vec::new();
    for (who, by) in [("the GPU", Toucher::Device), ("the CPU", Toucher::Host)] {
        let ns = bench.repeat(|gpu| gpu.touch(by, BYTES))?;
        let samples: Vec<f64> = ns.iter().map(|ns| *ns as f64 / MICRO / TOUCHES).collect();
        let touch = figure(format!("a touch by {who}"), "µs", &samples)?;
        cases.push(Case::new(format!("{who} touches it"), touch.median));
        figures.push(touch);
    }
    Ok(Found {
        short: short(&cases, "µs"),
        figures,
        verdict: within(&cases, MICROSECONDS, "µs"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of NVIDIA's blog of 2017 on a GTX 1080: 8.2 GB/s on demand against 242 prefetched, and 2 to 3 times in all.
    #[test]
    fn slowdown_is_that_of_the_kernel() {
        assert_eq!(
            slower(29.5, 2.5),
            Verdict::HoldsWhen("the kernel alone counts".to_owned())
        );
    }

    /// An H200: neither figure is in the claimed range, and one is on either side of it.
    #[test]
    fn kernel_and_total_are_told_apart() {
        assert_eq!(
            slower(205.0, 3.87),
            Verdict::DoesNotHold("kernel 205x, in all 3.87x".to_owned())
        );
    }

    /// From the same source: prefetched 10.9, cudaMemcpy 11.4 GB/s.
    #[test]
    fn prefetching_at_four_fifths_of_the_speed_approaches() {
        let judge = |pinned, pageable| {
            approaches(&[
                Case::new("the copies are pinned", pinned),
                Case::new("the copies are pageable", pageable),
            ])
        };
        assert_eq!(judge(95.6, 210.0), Verdict::Holds);
        assert_eq!(
            judge(60.0, 210.0),
            Verdict::HoldsWhen("the copies are pageable".to_owned())
        );
        assert_eq!(judge(40.0, 70.0), Verdict::DoesNotHold("less, 40 to 70%".to_owned()));
    }

    /// nvprof has 47 µs for a group of faults on a P100, 152 on a V100 and 234 on a T4.
    #[test]
    fn hundreds_of_microseconds_are_too_many() {
        let judge = |us| within(&[Case::new("the GPU touches it", us)], MICROSECONDS, "µs");
        assert_eq!(judge(47.0), Verdict::Holds);
        assert_eq!(judge(234.0), Verdict::DoesNotHold("more, 234 µs".to_owned()));
    }
}
