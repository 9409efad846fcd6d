//! What the driver and the kernel say about GPU memory, seen from outside.

mod types;

pub use types::*;
