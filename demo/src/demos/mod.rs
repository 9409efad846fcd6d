//! The demos, one file each.

pub(crate) mod fragmentation;
pub(crate) mod replay;
pub(crate) mod train;
