//! `cudaMallocAsync` against `cudaMalloc`.

use gpumem_text::units::MIB;

use super::bench::{Bench, Found, MICRO, figure};
use super::verdict::{Case, short, within};
use super::{Claim, Needs};
use crate::bench::error::Stop;
use crate::rig::claims::{Op, Source};

pub(super) const MALLOC_ASYNC: Claim = Claim {
    name: "malloc-async",
    words: "cudaMallocAsync makes allocation-heavy work 2 to 5 times as fast.",
    source: "courses",
    method: "100 times allocating 2 MiB, running a kernel of a known time on it and freeing it, by cuMemAlloc and by \
             cuMemAllocAsync with a pool that keeps its memory; until the last kernel has ended.",
    needs: Needs::Gpu,
    guess_ms: 800,
    measure,
};

const ROUNDS: usize = 100;
const BYTES: u64 = 2 * MIB;
/// Microseconds of a kernel.
const KERNELS_US: [u64; 3] = [10, 50, 200];
/// The claimed ratio.
const CLAIMED: (f64, f64) = (2.0, 5.0);

/// Returns the program: each block is freed before the next one is allocated.
fn program(kernel_us: u64) -> Vec<Op> {
    let round = [
        Op::Alloc { slot: 0, bytes: BYTES },
        Op::Kernel {
            slot: 0,
            ns: kernel_us * 1000,
        },
        Op::Free { slot: 0 },
    ];
    round.repeat(ROUNDS)
}

fn measure(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let mut figures = Vec::new();
    let mut cases = Vec::new();
    for us in KERNELS_US {
        let ops = program(us);
        let mut medians = Vec::new();
        for (name, source) in [("cudaMalloc", Source::Driver), ("cudaMallocAsync", Source::Pool)] {
            let ns = bench.repeat(|gpu| gpu.program(source, &ops))?;
            let samples: Vec<f64> = ns.iter().map(|ns| *ns as f64 / MICRO / ROUNDS as f64).collect();
            let round = figure(format!("{name}, a kernel of {us} µs, a free"), "µs", &samples)?;
            medians.push(round.median);
            figures.push(round);
        }
        if let [plain, pool] = medians[..] {
            cases.push(Case::new(format!("kernels take {us} µs"), plain / pool));
        }
    }
    Ok(Found {
        short: short(&cases, "x"),
        figures,
        verdict: within(&cases, CLAIMED, "x"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::claims::Verdict;

    #[test]
    fn program_holds_one_block_at_a_time() {
        let ops = program(50);
        assert_eq!(ops.len(), 3 * ROUNDS);
        assert!(ops.chunks(3).all(|round| matches!(
            round,
            [Op::Alloc { .. }, Op::Kernel { ns: 50_000, .. }, Op::Free { .. }]
        )));
    }

    #[test]
    fn long_kernels_hide_the_difference() {
        let judge = |ratios: [f64; 3]| {
            let cases: Vec<Case> = KERNELS_US
                .iter()
                .zip(ratios)
                .map(|(us, ratio)| Case::new(format!("kernels take {us} µs"), ratio))
                .collect();
            within(&cases, CLAIMED, "x")
        };
        assert_eq!(
            judge([9.0, 3.0, 1.5]),
            Verdict::HoldsWhen("kernels take 50 µs".to_owned())
        );
        assert_eq!(judge([5.0, 3.0, 2.0]), Verdict::Holds);
    }
}
