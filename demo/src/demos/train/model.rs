//! The sizes of the model that `demo train` trains, and how its batches vary. Pure arithmetic.

use gpumem_text::units::MIB;

use crate::pattern::pattern;

/// Shares of the budget in 1/1000: the weights, and each of the optimizer's two states; the activations of a mean batch; the
/// scratch memory of one layer. Between steps there are only weights and states, a third of the budget. At the end of forward
/// there are activations as well, three quarters in all. In backward each layer's gradient replaces its larger activations.
/// The rest is room for fragmentation.
const WEIGHTS: u64 = 110;
const ACTIVATIONS: u64 = 380;
const SCRATCH: u64 = 30;
/// A batch differs from the mean by at most 1/8.
const JITTER: u64 = 8;
/// Sizes of layers relative to each other: attention, its projection, and the wide middle of the block.
const SHAPE: [u64; 3] = [3, 2, 4];

/// The model: bytes per layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Model {
    /// Bytes of each layer's weights; gradients and optimizer states have the same sizes.
    pub(crate) weights: Vec<u64>,
    /// Bytes of each layer's activations per 1/1024 of a mean batch.
    activations: Vec<u64>,
    /// Bytes of one layer's scratch memory at a mean batch.
    scratch: u64,
    batch: u64,
    seed: u64,
}

impl Model {
    /// Creates a model of `layers` layers whose training at mean batch size `batch` fits into `budget` bytes.
    pub(crate) fn new(budget: u64, layers: u32, batch: u32, seed: u64) -> Model {
        let shape = || SHAPE.into_iter().cycle().take(layers as usize);
        let total: u64 = shape().sum::<u64>().max(1);
        let share = |per_mille: u64| (budget / 1000) * per_mille;
        Model {
            weights: shape().map(|s| (share(WEIGHTS) / total * s).max(512)).collect(),
            activations: shape().map(|s| share(ACTIVATIONS) / total * s / 1024).collect(),
            scratch: share(SCRATCH),
            batch: u64::from(batch),
            seed,
        }
    }

    /// Returns the number of samples in the batch of step `step`.
    pub(crate) fn batch(&self, step: u64) -> u64 {
        let spread = self.batch / JITTER;
        let low = self.batch - spread;
        low + pattern(self.seed, step) % (2 * spread + 1)
    }

    /// Returns the bytes of layer `layer`'s activations for `batch` samples.
    pub(crate) fn activation(&self, layer: usize, batch: u64) -> u64 {
        let per_batch = self.activations.get(layer).copied().unwrap_or(0) * 1024;
        scaled(per_batch, batch, self.batch)
    }

    /// Returns the bytes of a layer's scratch memory for `batch` samples.
    pub(crate) fn scratch(&self, batch: u64) -> u64 {
        scaled(self.scratch, batch, self.batch)
    }

    /// Returns the most bytes that live at once in a step of `batch` samples: at the end of forward, or in backward when a layer
    /// has its gradient and still its activations.
    #[cfg(test)]
    fn peak(&self, batch: u64) -> u64 {
        let weights: u64 = self.weights.iter().sum();
        let mut live: u64 = (0..self.weights.len()).map(|l| self.activation(l, batch)).sum();
        let mut peak = live;
        for (layer, gradient) in self.weights.iter().enumerate().rev() {
            live += gradient;
            peak = peak.max(live);
            live -= self.activation(layer, batch);
        }
        3 * weights + peak + self.scratch(batch)
    }
}

/// Scales `bytes` from `mean` to `batch` samples, to at least one block of the allocator.
fn scaled(bytes: u64, batch: u64, mean: u64) -> u64 {
    let exact = u128::from(bytes) * u128::from(batch) / u128::from(mean.max(1));
    u64::try_from(exact).unwrap_or(u64::MAX).max(512)
}

/// Returns the argument that makes a model impossible, with the reason, if there is one.
pub(crate) fn objection(budget: u64, layers: u32, batch: u32) -> Option<(&'static str, String)> {
    if !(1..=1000).contains(&layers) {
        return Some(("--layers", format!("{layers} layers: must be from 1 to 1000")));
    }
    if !(1..=65536).contains(&batch) {
        return Some(("--batch", format!("{batch} samples: must be from 1 to 65536")));
    }
    let least = 64 * MIB;
    (budget < least).then(|| ("--budget", "at least 64 MiB are needed".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A demo that runs forever must not run out of memory, whatever its batches are.
        #[test]
        fn peak_leaves_room_for_fragmentation(
            budget in 64 * MIB..1u64 << 48, layers in 1u32..=1000, batch in 1u32..=65536, step: u64, seed: u64,
        ) {
            let model = Model::new(budget, layers, batch, seed);
            let samples = model.batch(step);
            prop_assert!(samples >= 1);
            prop_assert!(samples.abs_diff(u64::from(batch)) <= u64::from(batch) / JITTER);
            // A model of one layer has all of its gradient and all of its activations at once.
            let most = if layers < 3 { 91 } else { 86 };
            prop_assert!(model.peak(samples) <= budget / 100 * most, "{} of {budget}", model.peak(samples));
        }
    }

    #[test]
    fn batches_vary_and_depend_only_on_the_seed() {
        let batches = |seed| {
            (0..50)
                .map(|step| Model::new(1 << 31, 12, 32, seed).batch(step))
                .collect::<Vec<_>>()
        };
        assert_eq!(batches(1), batches(1));
        assert_ne!(batches(1), batches(2));
        let mut distinct = batches(1);
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() > 4, "{distinct:?}");
    }
}
