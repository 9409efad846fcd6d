//! `max_split_size` and expandable segments against fragmentation, on recorded programs.

use gpumem_alloc::device::{SimConfig, sim};
use gpumem_alloc::{Allocator, Config, Publish, SegmentMode};
use gpumem_text::units::MIB;

use super::bench::{Bench, Found, failed, figure};
use super::report::Verdict;
use super::verdict::{Case, short};
use super::{Claim, Needs};
use crate::bench::error::{BenchError, Stop};
use crate::replay::gpumem::Gpumem;
use crate::replay::replayer::{Refused, Replayer, Streams};
use crate::trace::{Op, Trace};

pub(super) const MAX_SPLIT: Claim = Claim {
    name: "max-split",
    words: "max_split_size_mb reduces fragmentation.",
    source: "courses",
    method: "Recorded PyTorch programs replayed by gpumem-alloc with plain segments on the simulated device, without \
             max_split_size and with 128 MiB: peak reserved over peak requested bytes, and \
             that over plain segments. 5 % less is a reduction.",
    needs: Needs::Simulation,
    guess_ms: 300,
    measure: |bench| measure(bench, "max_split_size 128 MiB", max_split),
};

pub(super) const EXPANDABLE: Claim = Claim {
    name: "expandable",
    words: "Expandable segments reduce fragmentation.",
    source: "courses",
    method: "Recorded PyTorch programs replayed by gpumem-alloc with plain and with virtual segments, which grow in place as \
             PyTorch's expandable ones do, on the simulated device: peak reserved over peak requested bytes, and that over plain segments. \
             5 % less is a reduction.",
    needs: Needs::Simulation,
    guess_ms: 300,
    measure: |bench| measure(bench, "expandable", expandable),
};

/// A recorded program, by what `demo/tests/data` calls it.
struct Program {
    name: &'static str,
    file: &'static [u8],
}

const PROGRAMS: [Program; 3] = [
    Program {
        name: "gnn",
        file: include_bytes!("../../../tests/data/torch211_gnn.csv.gz"),
    },
    Program {
        name: "speech",
        file: include_bytes!("../../../tests/data/torch211_speech.csv.gz"),
    },
    Program {
        name: "detect",
        file: include_bytes!("../../../tests/data/torch211_detect.csv.gz"),
    },
];

/// A reduction leaves at most this part of what is reserved.
const REDUCED: f64 = 0.95;

fn plain() -> Config {
    Config {
        segments: SegmentMode::Plain,
        publish: Publish::Off,
        ..Config::default()
    }
}

fn max_split() -> Config {
    Config {
        max_split_size: Some(128 * MIB),
        ..plain()
    }
}

fn expandable() -> Config {
    Config {
        segments: SegmentMode::Virtual,
        ..plain()
    }
}

fn measure(bench: &mut Bench<'_>, name: &str, config: fn() -> Config) -> Result<Found, Stop> {
    let mut figures = Vec::new();
    let mut cases = Vec::new();
    for program in PROGRAMS {
        bench.watch.go_on()?;
        let trace = Trace::read(program.file).map_err(|problem| BenchError::Device(problem.to_string()))?;
        let mut ratios = Vec::new();
        for (what, config) in [("plain", plain as fn() -> Config), (name, config)] {
            bench.watch.go_on()?;
            let ratio = replayed(&trace, config())?;
            figures.push(figure(format!("{}, {what}", program.name), "x", &[ratio])?);
            ratios.push(ratio);
        }
        if let [before, after] = ratios[..] {
            cases.push(Case::new(program.name, after / before));
        }
    }
    Ok(Found {
        short: short(&cases, "x"),
        figures,
        verdict: verdict(&cases),
    })
}

/// Returns peak reserved over peak requested bytes of a replay on an empty simulated device.
fn replayed(trace: &Trace, config: Config) -> Result<f64, Stop> {
    let broken = |why: String| Stop::from(BenchError::Device(why));
    let device = sim(SimConfig::default());
    let streams = Streams::new(&device, trace).map_err(broken)?;
    let allocator = Allocator::new(device, config).map_err(failed)?;
    let mut replayer = Gpumem::with(allocator, trace, &streams);
    for op in &trace.ops {
        match *op {
            Op::Alloc { slot, stream, bytes } => replayer.alloc(slot, bytes, stream).map_err(|refused| {
                broken(match refused {
                    Refused::Memory(why) => why.to_string(),
                    Refused::Broken(why) => why,
                })
            })?,
            Op::Free { slot } => replayer.free(slot).map_err(broken)?,
        }
    }
    let reserved = replayer.peaks().map_err(broken)?.reserved.unwrap_or(0);
    Ok(reserved as f64 / trace.peak_requested as f64)
}

/// Judges what is left of the reserved bytes, by program.
fn verdict(cases: &[Case]) -> Verdict {
    let reduced: Vec<&str> = cases
        .iter()
        .filter(|case| case.value <= REDUCED)
        .map(|case| case.when.as_str())
        .collect();
    match reduced.len() {
        0 if cases.iter().all(|case| case.value > 1.0) => Verdict::DoesNotHold("it takes more".to_owned()),
        0 => Verdict::DoesNotHold("it takes as much".to_owned()),
        all if all == cases.len() => Verdict::Holds,
        _ => Verdict::HoldsWhen(format!("the program is {}", reduced.join(" or "))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn programs_with_less_reserved_memory_decide() {
        let judge = |a, b| verdict(&[Case::new("gnn", a), Case::new("speech", b)]);
        assert_eq!(judge(0.4, 0.6), Verdict::Holds);
        assert_eq!(judge(0.4, 1.0), Verdict::HoldsWhen("the program is gnn".to_owned()));
        assert_eq!(judge(1.0, 1.2), Verdict::DoesNotHold("it takes as much".to_owned()));
        assert_eq!(judge(1.1, 1.2), Verdict::DoesNotHold("it takes more".to_owned()));
    }

    /// `demo/tests/data/README.md` has 2.90 for PyTorch's allocator, which plain segments are like.
    #[test]
    fn plain_segments_fragment_as_recorded() {
        let trace = Trace::read(PROGRAMS[0].file).unwrap();
        let ratio = replayed(&trace, plain()).unwrap();
        assert!((2.0..3.5).contains(&ratio), "{ratio}");
    }
}
