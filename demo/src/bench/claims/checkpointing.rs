//! Gradient checkpointing.

use super::bench::{Bench, Found, figure};
use super::figure::{number, range};
use super::report::Verdict;
use super::tensors::{Tensor, Tensors, counted};
use super::{Claim, Needs};
use crate::bench::error::Stop;

pub(super) const CHECKPOINTING: Claim = Claim {
    name: "checkpointing",
    words: "Gradient checkpointing needs the square root of the memory for a third more computing.",
    source: "courses",
    method: "Steps of models of 16 and 64 layers with activations of gpumem-alloc: all kept, and with checkpoints at every 4th \
             and 8th layer, between which they are computed again. The peak is counted, and computing in evaluations of \
             layers, 1 forward and 2 backward.",
    needs: Needs::Allocator,
    guess_ms: 50,
    measure,
};

/// Layers, each a square: checkpoints are as many as the layers between two of them.
const MODELS: [usize; 2] = [16, 64];
/// With four times the layers the square root is twice as large; the working tensors add a little.
const GROWTH: (f64, f64) = (1.7, 2.3);
/// A third more computing, in percent.
const MORE: (f64, f64) = (25.0, 40.0);

fn measure(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let mut figures = Vec::new();
    let mut peaks = Vec::new();
    let mut more = Vec::new();
    for layers in MODELS {
        let (mut tensors, unit) = Tensors::new(bench)?;
        // 64 activations and some are within the budget.
        let bytes = unit / 2;
        let all = tensors.peak(|tensors| keep_all(tensors, layers, bytes))?;
        let evaluations = std::mem::take(&mut tensors.evaluations);
        let some = tensors.peak(|tensors| keep_some(tensors, layers, bytes))?;
        figures.push(counted(format!("{layers} layers, all activations kept"), all)?);
        figures.push(counted(format!("{layers} layers, checkpoints"), some)?);
        let percent = 100.0 * (tensors.evaluations as f64 / evaluations as f64 - 1.0);
        figures.push(figure(format!("{layers} layers, more computing"), "%", &[percent])?);
        peaks.push(some as f64 / bytes as f64);
        more.push(percent);
    }
    let (growth, percent) = (
        peaks.last().copied().unwrap_or(f64::NAN) / peaks.first().copied().unwrap_or(f64::NAN),
        more.last().copied().unwrap_or(f64::NAN),
    );
    Ok(Found {
        short: format!("{} by 4x, +{}%", range(growth, growth, "x"), number(percent)),
        figures,
        verdict: verdict(growth, percent),
    })
}

/// A step that keeps the activations of all layers until backward has used them.
fn keep_all(tensors: &mut Tensors, layers: usize, bytes: u64) -> Result<(), Stop> {
    let activations = forward(tensors, layers, bytes)?;
    backward(tensors, activations);
    Ok(())
}

/// A step that keeps one activation in each group of layers, and computes the others of the group again for backward.
fn keep_some(tensors: &mut Tensors, layers: usize, bytes: u64) -> Result<(), Stop> {
    let group = layers.isqrt().max(1);
    let mut checkpoints = Vec::new();
    for _ in 0..layers / group {
        let mut activations = forward(tensors, group, bytes)?;
        // Each layer needs the one before only, so that a program frees these as it goes; the peak is that of backward.
        checkpoints.extend(activations.pop());
    }
    while let Some(checkpoint) = checkpoints.pop() {
        let mut activations = forward(tensors, group - 1, bytes)?;
        activations.push(checkpoint);
        backward(tensors, activations);
    }
    Ok(())
}

fn forward(tensors: &mut Tensors, layers: usize, bytes: u64) -> Result<Vec<Tensor>, Stop> {
    tensors.evaluations += layers as u64;
    tensors.several(layers, bytes)
}

/// Frees the activations from the last layer on.
fn backward(tensors: &mut Tensors, mut activations: Vec<Tensor>) {
    while activations.pop().is_some() {
        tensors.evaluations += 2;
    }
}

/// Judges how the peak grows with four times the layers, and how many percent more are computed.
fn verdict(growth: f64, percent: f64) -> Verdict {
    let inside = |value: f64, (least, most): (f64, f64)| (least..=most).contains(&value);
    match (inside(growth, GROWTH), inside(percent, MORE)) {
        (true, true) => Verdict::Holds,
        (true, false) => Verdict::DoesNotHold(format!("{}% more computing", number(percent))),
        (false, _) => Verdict::DoesNotHold(format!("memory grows {}", range(growth, growth, "x"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn square_root_for_a_third_is_what_is_claimed() {
        assert_eq!(verdict(2.1, 29.0), Verdict::Holds);
        assert_eq!(verdict(4.0, 33.0), Verdict::DoesNotHold("memory grows 4x".to_owned()));
        assert_eq!(
            verdict(2.0, 60.0),
            Verdict::DoesNotHold("60% more computing".to_owned())
        );
    }
}
