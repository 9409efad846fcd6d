//! Whether `cudaFree` waits for the GPU.

use gpumem_text::units::{MIB, bytes_to_pib};

use super::bench::{Bench, Found, MILLI, figure};
use super::report::Verdict;
use super::verdict::{Case, short, within};
use super::{Claim, Needs};
use crate::bench::error::Stop;
use crate::rig::claims::FreeBehind;

pub(super) const FREE_WAITS: Claim = Claim {
    name: "free-waits",
    words: "cudaFree waits until the GPU has finished its work.",
    source: "courses",
    method: "A kernel runs for 20 ms on a stream; cuMemFree of a block that it does not use is timed meanwhile, as a \
             percentage of the kernel's time.",
    needs: Needs::Gpu,
    guess_ms: 500,
    measure,
};

const KERNEL_NS: u64 = 20_000_000;
const SIZES: [u64; 2] = [4 << 10, 64 * MIB];
/// A call has waited if it took this much of the kernel's time, in percent; launching took a part of it.
const WAITED: f64 = 80.0;

fn measure(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let mut figures = Vec::new();
    let mut cases = Vec::new();
    for bytes in SIZES {
        let calls = bench.repeat(|gpu| gpu.free_behind(bytes, KERNEL_NS))?;
        let size = bytes_to_pib(bytes);
        let frees: Vec<f64> = calls.iter().map(|call| call.free_ns as f64 / MILLI).collect();
        figures.push(figure(
            format!("cudaFree of {size} beside a kernel of 20 ms"),
            "ms",
            &frees,
        )?);
        let shares: Vec<f64> = calls.iter().map(waited).collect();
        let share = figure(format!("the same of the kernel's time, {size}"), "%", &shares)?;
        cases.push(Case::new(format!("it frees {size}"), share.median));
        figures.push(share);
    }
    Ok(Found {
        short: format!("{} waited", short(&cases, "%")),
        figures,
        verdict: verdict(&cases),
    })
}

/// Returns the percentage of the kernel's time that the call took.
fn waited(call: &FreeBehind) -> f64 {
    100.0 * call.free_ns as f64 / call.kernel_ns as f64
}

/// Judges the percentages of all sizes. A call may end a little after the kernel.
fn verdict(cases: &[Case]) -> Verdict {
    within(cases, (WAITED, 110.0), "%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_as_long_as_the_kernel_has_waited() {
        let judge = |free_ns| {
            let call = FreeBehind {
                free_ns,
                kernel_ns: KERNEL_NS,
            };
            verdict(&[Case::new("it frees 4.0 KiB", waited(&call))])
        };
        assert_eq!(judge(19_900_000), Verdict::Holds);
        assert_eq!(judge(50_000), Verdict::DoesNotHold("less, 0.25%".to_owned()));
    }
}
