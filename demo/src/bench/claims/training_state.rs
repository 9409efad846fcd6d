//! What a training step holds besides weights: the optimizer's state, and activations of half the precision.

use super::bench::{Bench, Found, figure};
use super::figure::number;
use super::report::Verdict;
use super::tensors::{Tensors, counted};
use super::verdict::{Case, short, within};
use super::{Claim, Needs};
use crate::bench::error::Stop;

pub(super) const ADAM: Claim = Claim {
    name: "adam",
    words: "Adam keeps two more copies of the weights.",
    source: "courses",
    method: "What gpumem-alloc holds between two steps of a model with SGD and with Adam, whose two moments have the type and \
             size of the weights, is counted; in sizes of the weights.",
    needs: Needs::Allocator,
    guess_ms: 20,
    measure: adam,
};

pub(super) const MIXED_PRECISION: Claim = Claim {
    name: "mixed-precision",
    words: "Mixed precision halves the memory of activations.",
    source: "courses",
    method: "The peak of a step with Adam is counted, in 32 bits, and with activations, gradients and a copy of the weights in \
             16 bits beside 32-bit weights and moments; the activations alone and the whole step, in percent. There are \
             eight values of activations for each weight.",
    needs: Needs::Allocator,
    guess_ms: 20,
    measure: mixed_precision,
};

/// Layers of the model.
const LAYERS: usize = 8;
/// Values of activations for each weight: the part that grows with the batch.
const ACTIVATIONS: u64 = 8;
/// Bytes of a value of 32 and of 16 bits.
const FULL: u64 = 4;
const HALF: u64 = 2;
/// The claimed percentages of activations: half, and a little for rounding.
const CLAIMED: (f64, f64) = (48.0, 52.0);

fn adam(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let (tensors, unit) = Tensors::new(bench)?;
    let weights = tensors.several(LAYERS, unit)?;
    // A step allocates gradients and frees them again.
    drop(tensors.several(LAYERS, unit)?);
    let sgd = tensors.held();
    let moments = [tensors.several(LAYERS, unit)?, tensors.several(LAYERS, unit)?];
    drop(tensors.several(LAYERS, unit)?);
    let adam = tensors.held();
    drop((weights, moments));
    let copies = (adam as f64 - sgd as f64) / (LAYERS as u64 * unit) as f64;
    Ok(Found {
        short: format!("{} copies more", number(copies)),
        figures: vec![counted("held with SGD", sgd)?, counted("held with Adam", adam)?],
        verdict: two_copies(copies),
    })
}

/// Judges how many copies of the weights Adam adds.
fn two_copies(copies: f64) -> Verdict {
    match (1.95..=2.05).contains(&copies) {
        true => Verdict::Holds,
        false => Verdict::DoesNotHold(format!("{} copies", number(copies))),
    }
}

/// Bytes of a step.
struct Step {
    activations: u64,
    peak: u64,
}

/// Runs a step whose tensors have `unit / 8` values: those of activations and gradients take `working` bytes each.
fn step(bench: &mut Bench<'_>, working: u64) -> Result<Step, Stop> {
    let (mut tensors, unit) = Tensors::new(bench)?;
    let values = unit / 8;
    let mut activations = 0;
    let peak = tensors.peak(|tensors| {
        let _weights_and_moments = tensors.several(3 * LAYERS, values * FULL)?;
        let _copy = match working < FULL {
            true => tensors.several(LAYERS, values * working)?,
            false => Vec::new(),
        };
        let before = tensors.held();
        let mut kept = tensors.several(LAYERS, ACTIVATIONS * values * working)?;
        activations = tensors.held() - before;
        let mut gradients = Vec::new();
        while kept.pop().is_some() {
            gradients.push(tensors.tensor(values * working)?);
        }
        Ok(())
    })?;
    Ok(Step { activations, peak })
}

fn mixed_precision(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let full = step(bench, FULL)?;
    let mixed = step(bench, HALF)?;
    let percent = |mixed: u64, full: u64| 100.0 * mixed as f64 / full as f64;
    let cases = [
        Case::new("only activations count", percent(mixed.activations, full.activations)),
        Case::new("the whole step counts", percent(mixed.peak, full.peak)),
    ];
    Ok(Found {
        short: short(&cases, "%"),
        verdict: within(&cases, CLAIMED, "%"),
        figures: vec![
            counted("activations, 32 bits", full.activations)?,
            counted("activations, mixed", mixed.activations)?,
            counted("peak of the step, 32 bits", full.peak)?,
            counted("peak of the step, mixed", mixed.peak)?,
            figure("the step of mixed precision", "%", &[percent(mixed.peak, full.peak)])?,
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_copies_are_what_is_claimed() {
        assert_eq!(two_copies(2.0), Verdict::Holds);
        assert_eq!(two_copies(1.0), Verdict::DoesNotHold("1 copies".to_owned()));
    }

    #[test]
    fn weights_are_not_halved() {
        let cases = [
            Case::new("only activations count", 50.0),
            Case::new("the whole step counts", 68.0),
        ];
        let expected = Verdict::HoldsWhen("only activations count".to_owned());
        assert_eq!(within(&cases, CLAIMED, "%"), expected);
    }
}
