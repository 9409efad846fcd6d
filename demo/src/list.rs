//! Which demos there are.

/// A demo as it is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demo {
    /// What the command line takes.
    pub name: &'static str,
    /// One line for a list.
    pub summary: &'static str,
    /// What it does, in sentences.
    pub description: &'static str,
    /// The fixes it offers, by name; empty where there is nothing to fix.
    pub fixes: &'static [&'static str],
}

const DEMOS: &[Demo] = &[
    Demo {
        name: "fragmentation",
        summary: "free memory that no request can use, and three ways to get it back",
        description: "Fills its budget with eight blocks, frees every other one, and asks for more than the largest hole \
             but less than all of them together: that fails. Then one of three fixes makes the same request succeed. \
             Every block carries a pattern that is checked at the end.",
        fixes: &["release", "remap", "workspace"],
    },
    Demo {
        name: "train",
        summary: "a synthetic training loop: forward, backward and optimizer as a sawtooth",
        description: "Allocates activations layer by layer, frees them in reverse while gradients appear, and updates the \
             weights in a workspace. Batches vary a little, so that the cache fragments as in real training. The layers are spread \
             over the three seconds of a step, so that the eye can follow. On a GPU kernels work on the buffers; the simulated \
             device is used nearly whole.",
        fixes: &[],
    },
];

/// Every demo, in the order of a list.
pub fn list() -> &'static [Demo] {
    DEMOS
}
