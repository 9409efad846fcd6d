//! The latencies of the memory hierarchy in cycles, as `bench hierarchy` measures them.

use super::bench::{Bench, Found, figure};
use super::verdict::{Case, short, within};
use super::{Claim, Needs};
use crate::bench::error::{BenchError, Stop};
use crate::bench::hierarchy::ring::{random_cycle, walk};
use crate::rig::{Chase, Clocks, Load, Place, RigError};

pub(super) const LATENCY_REGISTER: Claim = Claim {
    name: "latency-register",
    words: "A register takes 1 cycle.",
    source: "courses",
    method: "A chain of multiply-adds, each from the result of the one before, by the SM's clock. An SM begins a new one in \
             each cycle, but its result comes later.",
    needs: Needs::Gpu,
    guess_ms: 300,
    measure: register,
};

pub(super) const LATENCY_SHARED: Claim = Claim {
    name: "latency-shared",
    words: "Shared memory takes 20 to 30 cycles.",
    source: "courses",
    method: "A chase of pointers in random order through 32 KiB of shared memory by one thread, by the SM's clock.",
    needs: Needs::Gpu,
    guess_ms: 300,
    measure: |bench| chase(bench, SHARED),
};

pub(super) const LATENCY_L2: Claim = Claim {
    name: "latency-l2",
    words: "The L2 cache takes about 200 cycles.",
    source: "courses",
    method: "A chase of pointers in random order through 30 % of the L2 cache by one thread that passes by L1, by the SM's \
             clock. 160 to 240 cycles are about 200.",
    needs: Needs::Gpu,
    guess_ms: 600,
    measure: |bench| chase(bench, L2),
};

pub(super) const LATENCY_HBM: Claim = Claim {
    name: "latency-hbm",
    words: "Device memory takes 400 to 600 cycles.",
    source: "courses",
    method: "A chase of pointers in random order through four times the L2 cache by one thread, by the SM's clock.",
    needs: Needs::Gpu,
    guess_ms: 1000,
    measure: |bench| chase(bench, HBM),
};

/// Multiply-adds and loads of a sample.
const STEPS: u32 = 1 << 18;
const HOPS: u32 = 1 << 16;
/// The seed of the rings' order: each run measures the same one.
const SEED: u64 = 1;

/// A level of the hierarchy.
#[derive(Clone, Copy)]
struct Level {
    name: &'static str,
    place: Place,
    load: Load,
    /// Working set: bytes, and tenths of the L2 cache.
    bytes: u64,
    l2_tenths: u64,
    /// The claimed cycles.
    claimed: (f64, f64),
}

/// The claimed cycles of a register.
const REGISTER: (f64, f64) = (0.5, 1.5);

const SHARED: Level = Level {
    name: "a load from shared memory",
    place: Place::Shared,
    load: Load::Shared,
    bytes: 32 << 10,
    l2_tenths: 0,
    claimed: (20.0, 30.0),
};

const L2: Level = Level {
    name: "a load from the L2 cache",
    place: Place::Device,
    load: Load::Cg,
    bytes: 0,
    l2_tenths: 3,
    claimed: (160.0, 240.0),
};

const HBM: Level = Level {
    name: "a load from device memory",
    place: Place::Device,
    load: Load::Cg,
    bytes: 0,
    l2_tenths: 40,
    claimed: (400.0, 600.0),
};

fn register(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let clocks = bench.repeat(|gpu| gpu.hierarchy()?.chain(STEPS))?;
    found("a multiply-add", &clocks, STEPS, REGISTER)
}

fn chase(bench: &mut Bench<'_>, level: Level) -> Result<Found, Stop> {
    let gpu = bench.gpu()?;
    let bytes = level.bytes + gpu.card().l2_bytes / 10 * level.l2_tenths;
    if level.place == Place::Device && bytes > gpu.budget() / 2 {
        return Err(BenchError::Device("the budget is too small (--budget)".to_owned()).into());
    }
    let nodes = u32::try_from(bytes / u64::from(level.place.stride())).unwrap_or(u32::MAX);
    let next = random_cycle(nodes, SEED);
    bench.gpu()?.hierarchy()?.lay(level.place, &next)?;
    // What is to be in the L2 cache is brought there by a first round.
    let warm = match level.place {
        Place::Device if level.l2_tenths < 10 => nodes.next_multiple_of(16),
        Place::Device => 16,
        _ => 0,
    };
    let mut from = 0;
    let clocks = bench.repeat(|gpu| {
        let chased = gpu.hierarchy()?.chase(Chase {
            from,
            warm,
            hops: HOPS,
            load: level.load,
            sm: None,
        })?;
        if walk(&next, from, warm.saturating_add(HOPS)) != Some(chased.end) {
            return Err(RigError("a pointer chase ended at the wrong node".to_owned()));
        }
        // A chase in shared memory brings its ring with it, and always begins at its first node.
        from = if level.place == Place::Shared { 0 } else { chased.end };
        Ok(chased.clocks)
    })?;
    found(level.name, &clocks, HOPS, level.claimed)
}

fn found(name: &str, clocks: &[Clocks], steps: u32, claimed: (f64, f64)) -> Result<Found, Stop> {
    let per_step = |part: fn(&Clocks) -> u64| -> Vec<f64> {
        let steps = f64::from(steps);
        clocks.iter().map(|clock| part(clock) as f64 / steps).collect()
    };
    let cycles = figure(name, "cycles", &per_step(|clock| clock.cycles))?;
    let cases = [Case::new("measured", cycles.median)];
    Ok(Found {
        short: short(&cases, "cycles"),
        verdict: within(&cases, claimed, "cycles"),
        figures: vec![cycles, figure(name, "ns", &per_step(|clock| clock.ns))?],
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::bench::claims::Verdict;

    fn judge(cycles: u64, claimed: (f64, f64)) -> Verdict {
        let clocks = [Clocks { cycles, ns: cycles / 2 }; 7];
        let found = found("a load", &clocks, 100, claimed);
        found.unwrap().verdict
    }

    /// Of an H200 (`assets/hierarchy-h200.json`).
    #[test]
    fn cycles_of_a_step_decide() {
        assert_eq!(
            judge(411, REGISTER),
            Verdict::DoesNotHold("more, 4.11 cycles".to_owned())
        );
        assert_eq!(judge(2300, SHARED.claimed), Verdict::Holds);
        assert_eq!(
            judge(27_600, L2.claimed),
            Verdict::DoesNotHold("more, 276 cycles".to_owned())
        );
        assert_eq!(judge(50_000, HBM.claimed), Verdict::Holds);
    }
}
