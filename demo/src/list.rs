//! Which demos there are.

/// A demo as it is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demo {
    /// What the command line takes.
    pub name: &'static str,
    /// One line for a list.
    pub summary: &'static str,
}

/// Every demo, in the order of a list.
pub fn list() -> &'static [Demo] {
    &[
        Demo {
            name: "fragmentation",
            summary: "free memory that no request can use, and three ways to get it back",
        },
        Demo {
            name: "train",
            summary: "a synthetic training loop: forward, backward and optimizer as a sawtooth",
        },
    ]
}
