//! What the allocators of this process are told.

use gpumem::device::Device;
use gpumem::{Allocator, Config};

use crate::failure::Failure;

/// The allocator of a device, limited to a fraction of its memory if the program said so.
pub(crate) fn allocator(device: Device, fraction: Option<f64>) -> Result<Allocator, Failure> {
    let mut config = Config::default();
    if let Some(fraction) = fraction {
        let part = (device.info().total as f64 * fraction) as u64;
        config.budget = Some(config.budget.map_or(part, |budget| budget.min(part)));
    }
    Ok(Allocator::new(device, config)?)
}
