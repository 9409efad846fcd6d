//! What an allocation costs that is served from a cache.

use std::time::Instant;

use gpumem_alloc::{Allocator, Config, Publish, Stream};
use gpumem_text::units::MIB;

use super::bench::{Bench, Found, failed, figure};
use super::figure::range;
use super::report::Verdict;
use super::{Claim, Needs};
use crate::bench::error::Stop;

pub(super) const CACHED_COST: Claim = Claim {
    name: "cached-cost",
    words: "An allocation from a caching allocator takes microseconds or less.",
    source: "courses",
    method: "2,000 times allocating and freeing 1 MiB by gpumem-alloc, whose cache has it; the mean by the host's clock, the \
             best of five. No driver is called, so it is the same without a GPU.",
    needs: Needs::Allocator,
    guess_ms: 50,
    measure,
};

const ROUNDS: u32 = 2_000;
/// Batches of a sample, of which the fastest counts: others on the host hold up some.
const BATCHES: u32 = 5;
const BYTES: usize = MIB as usize;
/// The most microseconds that are "microseconds".
const MOST_US: f64 = 10.0;

fn measure(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let config = Config {
        publish: Publish::Off,
        ..Config::default()
    };
    let allocator = Allocator::new(bench.device.clone(), config).map_err(failed)?;
    let samples = bench.repeat_on_device(|_| {
        let mut best = f64::INFINITY;
        for _ in 0..BATCHES {
            let began = Instant::now();
            for _ in 0..ROUNDS {
                drop(allocator.alloc::<u8>(BYTES, Stream::DEFAULT)?);
            }
            best = best.min(began.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS));
        }
        Ok(best)
    })?;
    let pair = figure("allocating and freeing 1 MiB", "µs", &samples)?;
    Ok(Found {
        short: range(pair.median, pair.median, "µs"),
        verdict: verdict(pair.median),
        figures: vec![pair],
    })
}

/// Judges the microseconds of an allocation and its free.
fn verdict(us: f64) -> Verdict {
    match us <= MOST_US {
        true => Verdict::Holds,
        false => Verdict::DoesNotHold(range(us, us, "µs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_ten_microseconds_are_too_many() {
        assert_eq!(verdict(0.08), Verdict::Holds);
        assert_eq!(verdict(10.0), Verdict::Holds);
        assert_eq!(verdict(46.0), Verdict::DoesNotHold("46 µs".to_owned()));
    }
}
