//! What a `cudaMalloc` costs.

use gpumem_text::units::{MIB, bytes_to_pib};

use super::bench::{Bench, Found, MILLI, figure};
use super::report::Verdict;
use super::verdict::{Case, short, within};
use super::{Claim, Needs};
use crate::bench::error::Stop;

pub(super) const MALLOC_COST: Claim = Claim {
    name: "malloc-cost",
    words: "cudaMalloc costs 1 to 10 ms.",
    source: "courses",
    method: "cuMemAlloc of several sizes on an idle device, each freed at once; time of the call by the host's clock. \
             The first one of a process, which also makes the context, is not among them.",
    needs: Needs::Gpu,
    guess_ms: 100,
    measure,
};

const SIZES: [u64; 4] = [4 << 10, 2 * MIB, 64 * MIB, 512 * MIB];
/// The claimed milliseconds.
const CLAIMED: (f64, f64) = (1.0, 10.0);

fn measure(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let most = bench.gpu()?.budget();
    let mut figures = Vec::new();
    let mut cases = Vec::new();
    for bytes in SIZES.into_iter().filter(|bytes| *bytes <= most) {
        let calls = bench.repeat(|gpu| gpu.malloc(bytes))?;
        let ms = |ns: u64| ns as f64 / MILLI;
        let allocs: Vec<f64> = calls.iter().map(|call| ms(call.alloc_ns)).collect();
        let frees: Vec<f64> = calls.iter().map(|call| ms(call.free_ns)).collect();
        let size = bytes_to_pib(bytes);
        let alloc = figure(format!("cudaMalloc of {size}"), "ms", &allocs)?;
        cases.push(Case::new(format!("it takes {size}"), alloc.median));
        figures.push(alloc);
        figures.push(figure(format!("cudaFree of {size}"), "ms", &frees)?);
    }
    Ok(Found {
        short: short(&cases, "ms"),
        figures,
        verdict: verdict(&cases),
    })
}

/// Judges the medians of all sizes, in milliseconds.
fn verdict(cases: &[Case]) -> Verdict {
    within(cases, CLAIMED, "ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_blocks_alone_may_cost_milliseconds() {
        let judge = |small, large| {
            verdict(&[
                Case::new("it takes 2.0 MiB", small),
                Case::new("it takes 512 MiB", large),
            ])
        };
        assert_eq!(judge(1.2, 4.0), Verdict::Holds);
        assert_eq!(judge(0.05, 1.1), Verdict::HoldsWhen("it takes 512 MiB".to_owned()));
        assert_eq!(
            judge(0.046, 0.43),
            Verdict::DoesNotHold("less, 0.046 to 0.43 ms".to_owned())
        );
    }
}
