//! Copies and kernels that overlap on several streams.

use gpumem_text::units::MIB;

use super::bench::{Bench, Found, MILLI, figure};
use super::report::Verdict;
use super::verdict::{Case, short};
use super::{Claim, Needs};
use crate::bench::error::Stop;
use crate::rig::Route;
use crate::rig::claims::Pipeline;

pub(super) const THREE_STREAMS: Claim = Claim {
    name: "three-streams",
    words: "Three streams overlap copies to the device, kernels and copies back.",
    source: "courses",
    method: "Eight chunks of 4 MiB are copied to the device, computed on for as long as a copy takes, and copied back; on \
             three streams in turn against one stream. The results are compared on the host.",
    needs: Needs::Gpu,
    guess_ms: 1500,
    measure,
};

const CHUNKS: usize = 8;
const CHUNK: u64 = 4 * MIB;
/// Rounds of the kernel that its time is taken from, and the most that it is given.
const TRIAL_ROUNDS: u32 = 1000;
const MOST_ROUNDS: u32 = 100_000;
/// Streams overlap if they are so many times as fast as one. Eight chunks of three equal stages could be 2.4 times.
const OVERLAP: f64 = 1.5;

fn measure(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let copies = bench.repeat(|gpu| gpu.copy_async(Route::PinnedToDevice, CHUNK))?;
    let kernels = bench.repeat(|gpu| gpu.compute(CHUNK, TRIAL_ROUNDS))?;
    let copies: Vec<f64> = copies.iter().map(|copy| copy.done_ns as f64 / MILLI).collect();
    let kernels: Vec<f64> = kernels.iter().map(|ns| *ns as f64 / MILLI).collect();
    let (copy, kernel) = (
        figure("a copy of 4 MiB", "ms", &copies)?,
        figure("1,000 rounds of the kernel", "ms", &kernels)?,
    );
    let rounds = rounds(copy.median, kernel.median);
    let mut figures = vec![copy, kernel];
    let mut cases = Vec::new();
    for (kind, pinned) in [("pinned", true), ("pageable", false)] {
        let mut medians = Vec::new();
        for streams in [1, 3] {
            let pipeline = Pipeline {
                streams,
                chunks: CHUNKS,
                chunk_bytes: CHUNK,
                rounds,
                pinned,
            };
            let ns = bench.repeat(|gpu| gpu.pipeline(pipeline))?;
            let samples: Vec<f64> = ns.iter().map(|ns| *ns as f64 / MILLI).collect();
            let figure = figure(format!("{kind} memory, streams: {streams}"), "ms", &samples)?;
            medians.push(figure.median);
            figures.push(figure);
        }
        if let [one, three] = medians[..] {
            cases.push(Case::new(format!("memory is {kind}"), one / three));
        }
    }
    Ok(Found {
        short: short(&cases, "x"),
        figures,
        verdict: verdict(&cases),
    })
}

/// Returns how many rounds take as long as a copy.
fn rounds(copy_ms: f64, trial_ms: f64) -> u32 {
    let rounds = f64::from(TRIAL_ROUNDS) * copy_ms / trial_ms;
    // No time gives no number, and the cast of that is 0.
    (rounds as u32).clamp(1, MOST_ROUNDS)
}

/// Judges how many times as fast three streams are, by kind of memory.
fn verdict(cases: &[Case]) -> Verdict {
    let overlapping: Vec<&Case> = cases.iter().filter(|case| case.value >= OVERLAP).collect();
    match &overlapping[..] {
        [] => Verdict::DoesNotHold("no overlap".to_owned()),
        all if all.len() == cases.len() => Verdict::Holds,
        some => Verdict::HoldsWhen(
            some.iter()
                .map(|case| case.when.as_str())
                .collect::<Vec<_>>()
                .join(" or "),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_takes_pinned_memory() {
        let judge = |pinned, pageable| {
            verdict(&[
                Case::new("memory is pinned", pinned),
                Case::new("memory is pageable", pageable),
            ])
        };
        assert_eq!(judge(2.2, 1.1), Verdict::HoldsWhen("memory is pinned".to_owned()));
        assert_eq!(judge(2.2, 1.6), Verdict::Holds);
        assert_eq!(judge(1.2, 1.1), Verdict::DoesNotHold("no overlap".to_owned()));
    }

    #[test]
    fn kernel_takes_as_long_as_a_copy() {
        assert_eq!(rounds(0.15, 0.05), 3000);
        assert_eq!(rounds(0.15, 0.0), MOST_ROUNDS);
        assert_eq!(rounds(0.0, 0.0), 1);
    }
}
