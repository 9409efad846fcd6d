//! The demos, one file each, and the list of them.

mod fragmentation;
mod replay;
mod train;

use crate::demo::{Demo, Entry, row};

pub use fragmentation::{Fix, Fragmentation, Sizes};
pub use replay::Replay;
pub use train::Train;

/// Every demo, in the order of a list.
pub(crate) const LIST: [Entry; 3] = [row::<Fragmentation>(), row::<Train>(), row::<Replay>()];

/// The name of the demo that is shown where there is no GPU.
pub const WITHOUT_GPU: &str = Train::NAME;
