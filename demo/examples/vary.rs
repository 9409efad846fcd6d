//! Measures how much memory variations of recorded programs reserve, and how many chunks are mapped for them. The allocator
//! cannot have been tuned for these.
//!
//! `cargo run --release -p gpumem-demo --example vary [TRACE...]`. Without arguments it takes the traces of `tests/data`.
//!
//! Each trace is replayed on the simulated device in many variations: all sizes multiplied by a factor, each size also by a
//! factor of its own (equal sizes stay equal), and a tenth of the blocks left out.

use std::error::Error;
use std::path::{Path, PathBuf};

use gpumem_alloc::device::{Call, Sim, SimConfig};
use gpumem_alloc::{Allocator, Config, Publish, Stream};
use gpumem_demo::pattern;
use gpumem_demo::trace::{Op, Trace};
use gpumem_text::units::bytes_to_pib;

const FACTORS: [f64; 13] = [0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 1.7, 2.0, 2.5, 3.0];

/// The ratio of reserved to requested memory that few variations should exceed.
const FEW: f64 = 1.06;

/// For programs smaller than this a chunk of 2 MiB is half a percent or more.
const LARGE: u64 = 400 << 20;

/// The result of the first pass over a variation.
struct Outcome {
    ratio: f64,
    peak_requested: u64,
    mapped: u64,
}

/// Returns a pseudorandom number from 0 to 1 for a pair of numbers.
fn chance(of: u64, variation: u64) -> f64 {
    (pattern(variation, of) >> 11) as f64 / (1u64 << 53) as f64
}

fn varied(trace: &Trace, factor: f64, variation: u64) -> Vec<Op> {
    let mut left_out = vec![false; trace.slots];
    let mut ops = Vec::with_capacity(trace.ops.len());
    for (at, op) in trace.ops.iter().enumerate() {
        match *op {
            Op::Alloc { slot, stream, bytes } => {
                left_out[slot as usize] = chance(at as u64, variation) < 0.1;
                let own = 0.85 + 0.3 * chance(bytes, !variation);
                let bytes = ((bytes as f64 * factor * own) as u64).max(1);
                ops.extend((!left_out[slot as usize]).then_some(Op::Alloc { slot, stream, bytes }));
            }
            Op::Free { slot } => ops.extend((!left_out[slot as usize]).then_some(*op)),
        }
    }
    ops
}

fn replay(trace: &Trace, ops: &[Op]) -> Result<Outcome, gpumem_alloc::Error> {
    let sim = Sim::new(SimConfig::default());
    let config = Config {
        publish: Publish::Off,
        ..Config::default()
    };
    let allocator = Allocator::new(sim.device(), config)?;
    let mut held: Vec<_> = (0..trace.slots).map(|_| None).collect();
    for op in ops {
        match *op {
            Op::Alloc { slot, stream, bytes } => {
                let stream = Stream(trace.streams[usize::from(stream)]);
                held[slot as usize] = Some(allocator.alloc::<u8>(bytes as usize, stream)?);
            }
            Op::Free { slot } => held[slot as usize] = None,
        }
    }
    let all = allocator.stats().all();
    Ok(Outcome {
        ratio: all.reserved_bytes.peak as f64 / all.requested_bytes.peak as f64,
        peak_requested: all.requested_bytes.peak,
        mapped: sim.calls(Call::Map),
    })
}

/// Summarizes outcomes: the geometric mean of the ratios, the highest, how many are above [`FEW`], and the chunks mapped.
fn summary(name: &str, outcomes: &[Outcome]) -> String {
    let mean = outcomes.iter().map(|one| one.ratio.ln()).sum::<f64>() / outcomes.len() as f64;
    let most = outcomes.iter().map(|one| one.ratio).fold(0.0, f64::max);
    let above = outcomes.iter().filter(|one| one.ratio > FEW).count();
    let mapped: u64 = outcomes.iter().map(|one| one.mapped).sum();
    let count = outcomes.len();
    format!(
        "{name:<24} {count:>6} {:>8.4} {most:>8.4} {above:>6} {mapped:>10}",
        mean.exp()
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if paths.is_empty() {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        let entries = std::fs::read_dir(data)?.map(|entry| Ok(entry?.path()));
        paths = entries.collect::<std::io::Result<_>>()?;
        // The other files are excerpts of programs.
        paths.retain(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("torch"))
        });
        paths.sort();
    }
    println!("trace                    number    ratio  highest > 1.06   mappings");
    let mut all = Vec::new();
    for path in paths {
        let trace = Trace::open(&path)?;
        let mut outcomes = Vec::new();
        for (variation, factor) in FACTORS.into_iter().enumerate() {
            outcomes.push(replay(&trace, &varied(&trace, factor, variation as u64))?);
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        println!("{}", summary(name.split('.').next().unwrap_or_default(), &outcomes));
        all.append(&mut outcomes);
    }
    println!("{}", summary("all", &all));
    all.retain(|one| one.peak_requested >= LARGE);
    if !all.is_empty() {
        println!("{}", summary(&format!("from {} on", bytes_to_pib(LARGE)), &all));
    }
    Ok(())
}
