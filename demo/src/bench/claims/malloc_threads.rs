//! Whether threads wait for each other in `cudaMalloc` and `cudaFree`.

use gpumem_text::units::MIB;

use super::bench::{Bench, Found, MICRO, figure};
use super::figure::range;
use super::report::Verdict;
use super::{Claim, Needs};
use crate::bench::error::Stop;

pub(super) const MALLOC_THREADS: Claim = Claim {
    name: "malloc-threads",
    words: "cudaMalloc and cudaFree serialise threads.",
    source: "courses",
    method: "100 times cuMemAlloc and cuMemFree of 2 MiB in one thread, and in each of four threads at once: threads that \
             wait for each other take four times as long.",
    needs: Needs::Gpu,
    guess_ms: 500,
    measure,
};

const THREADS: u32 = 4;
const ROUNDS: u32 = 100;
const BYTES: u64 = 2 * MIB;
/// Threads that wait take at least this much of `THREADS` times as long, and threads that do not at most this many times.
const SERIAL: f64 = 0.75;
const PARALLEL: f64 = 1.5;

fn measure(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let mut figures = Vec::new();
    for threads in [1, THREADS] {
        let ns = bench.repeat(|gpu| gpu.malloc_threads(threads, ROUNDS, BYTES))?;
        let samples: Vec<f64> = ns.iter().map(|ns| *ns as f64 / MICRO / f64::from(ROUNDS)).collect();
        figures.push(figure(format!("a pair in each of {threads} threads"), "µs", &samples)?);
    }
    let times = match &figures[..] {
        [one, many] => many.median / one.median,
        _ => f64::NAN,
    };
    Ok(Found {
        short: format!("{} in {THREADS} threads", range(times, times, "x")),
        figures,
        verdict: verdict(times),
    })
}

/// Judges how many times as long as one thread `THREADS` threads take.
fn verdict(times: f64) -> Verdict {
    match times {
        times if times >= SERIAL * f64::from(THREADS) => Verdict::Holds,
        times if times <= PARALLEL => Verdict::DoesNotHold("they run side by side".to_owned()),
        _ => Verdict::DoesNotHold("they wait in part".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_threads_that_wait_take_four_times_as_long() {
        assert_eq!(verdict(4.1), Verdict::Holds);
        assert_eq!(verdict(1.0), Verdict::DoesNotHold("they run side by side".to_owned()));
        assert_eq!(verdict(2.2), Verdict::DoesNotHold("they wait in part".to_owned()));
    }
}
