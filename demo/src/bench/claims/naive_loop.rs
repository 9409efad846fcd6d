//! The part of a training loop's time that allocation by the driver takes.

use gpumem_text::units::MIB;

use super::bench::{Bench, Found, MILLI, figure};
use super::figure::{number, range};
use super::report::Verdict;
use super::{Claim, Needs};
use crate::bench::error::Stop;
use crate::rig::claims::{Op, Source};

pub(super) const NAIVE_LOOP: Claim = Claim {
    name: "naive-loop",
    words: "Naive allocation takes 15 to 20 % of a training loop's time.",
    source: "courses",
    method: "A step of 12 layers, each a kernel of a known time forward and of twice that backward, with cuMemAlloc for \
             every activation and gradient, and with gpumem-alloc; the difference as a percentage.",
    needs: Needs::Gpu,
    guess_ms: 1500,
    measure,
};

const LAYERS: usize = 12;
const ACTIVATION: u64 = 16 * MIB;
const GRADIENT: u64 = 4 * MIB;
/// Microseconds that a layer computes forward.
const LAYERS_US: [u64; 3] = [100, 300, 1000];
/// The claimed percentages.
const CLAIMED: (f64, f64) = (15.0, 20.0);

/// Returns a training step: forward allocates activations, backward frees them as gradients appear, the optimizer frees those.
fn step(layer_us: u64) -> Vec<Op> {
    let kernel = |slot, tenths: u64| Op::Kernel {
        slot,
        ns: layer_us * 100 * tenths,
    };
    let mut ops = Vec::new();
    for layer in 0..LAYERS {
        ops.push(Op::Alloc {
            slot: layer,
            bytes: ACTIVATION,
        });
        ops.push(kernel(layer, 10));
    }
    for layer in (0..LAYERS).rev() {
        let gradient = LAYERS + layer;
        ops.push(Op::Alloc {
            slot: gradient,
            bytes: GRADIENT,
        });
        ops.push(kernel(gradient, 20));
        ops.push(Op::Free { slot: layer });
    }
    for gradient in LAYERS..2 * LAYERS {
        ops.push(kernel(gradient, 1));
        ops.push(Op::Free { slot: gradient });
    }
    ops
}

fn measure(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let mut figures = Vec::new();
    let mut steps = Vec::new();
    for us in LAYERS_US {
        let ops = step(us);
        let mut medians = Vec::new();
        for (name, source) in [("cudaMalloc", Source::Driver), ("gpumem-alloc", Source::Cache)] {
            let ns = bench.repeat(|gpu| gpu.program(source, &ops))?;
            let samples: Vec<f64> = ns.iter().map(|ns| *ns as f64 / MILLI).collect();
            let step = figure(format!("a step with {name}, layers of {us} µs"), "ms", &samples)?;
            medians.push(step.median);
            figures.push(step);
        }
        if let [naive, cached] = medians[..] {
            steps.push(Step { naive, cached });
        }
    }
    let (least, most) = shares(&steps);
    Ok(Found {
        short: range(least, most, "%"),
        figures,
        verdict: verdict(&steps),
    })
}

/// Milliseconds of a step with both allocators.
#[derive(Clone, Copy, Debug)]
struct Step {
    naive: f64,
    cached: f64,
}

impl Step {
    fn percent(self) -> f64 {
        100.0 * (1.0 - self.cached / self.naive)
    }
}

fn shares(steps: &[Step]) -> (f64, f64) {
    let all = || steps.iter().map(|step| step.percent().max(0.0));
    let least = all().min_by(f64::total_cmp).unwrap_or(f64::NAN);
    (least, all().max_by(f64::total_cmp).unwrap_or(f64::NAN))
}

/// Judges by what allocation costs a step, which hardly depends on how long the layers compute: from that follows for which
/// layers it takes the claimed part. Layers of one step compute 3.1 times their time forward, see [`step`].
fn verdict(steps: &[Step]) -> Verdict {
    let mut costs: Vec<f64> = steps.iter().map(|step| step.naive - step.cached).collect();
    costs.sort_by(f64::total_cmp);
    let cost = costs.get(costs.len() / 2).copied().unwrap_or(f64::NAN);
    if steps
        .iter()
        .all(|step| (CLAIMED.0..=CLAIMED.1).contains(&step.percent()))
        && !steps.is_empty()
    {
        return Verdict::Holds;
    }
    // A cost that is lost in noise.
    if cost.is_nan() || steps.iter().all(|step| step.percent() < 1.0) {
        return Verdict::DoesNotHold("less than 1%".to_owned());
    }
    // cost / (cost + computing) = share
    let layer = |percent: f64| cost * (100.0 / percent - 1.0) / (3.1 * LAYERS as f64);
    let (from, to) = (number(layer(CLAIMED.1)), number(layer(CLAIMED.0)));
    Verdict::HoldsWhen(format!("layers take {from} to {to} ms"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_frees_what_it_allocates() {
        let ops = step(100);
        let count = |is: fn(&Op) -> bool| ops.iter().filter(|op| is(op)).count();
        assert_eq!(count(|op| matches!(op, Op::Alloc { .. })), 2 * LAYERS);
        assert_eq!(count(|op| matches!(op, Op::Free { .. })), 2 * LAYERS);
        let ns: u64 = ops
            .iter()
            .map(|op| if let Op::Kernel { ns, .. } = op { *ns } else { 0 })
            .sum();
        assert_eq!(ns, 12 * 310_000);
    }

    #[test]
    fn cost_says_for_which_layers_it_holds() {
        // 3 ms of allocation a step.
        let step = |cached: f64| Step {
            naive: cached + 3.0,
            cached,
        };
        let steps = [step(3.72), step(11.16), step(37.2)];
        assert_eq!(
            verdict(&steps),
            Verdict::HoldsWhen("layers take 0.323 to 0.457 ms".to_owned())
        );
        assert_eq!(shares(&steps).1.round(), 45.0);
        assert_eq!(verdict(&[step(14.0), step(15.0)]), Verdict::Holds);
        let same = Step {
            naive: 10.0,
            cached: 10.0,
        };
        assert_eq!(verdict(&[same]), Verdict::DoesNotHold("less than 1%".to_owned()));
        assert!(matches!(verdict(&[]), Verdict::DoesNotHold(_)));
    }
}
