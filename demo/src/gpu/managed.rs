//! Kernels on managed memory.

use gpumem_alloc::{ManagedBuffer, Stream};

use super::{GpuError, Kernels, arg, while_doing};
use crate::pattern::Checked;

impl Kernels {
    /// Writes the pattern of `seed` over the first `bytes` of managed memory, and waits.
    ///
    /// # Errors
    /// When the driver refuses the launch, or the kernel faulted.
    pub(crate) fn fill_managed(&self, memory: &mut ManagedBuffer<u64>, bytes: u64, seed: u64) -> Result<(), GpuError> {
        let (mut words, mut count, mut seed) = (memory.device_ptr(), bytes.min(memory.bytes()) / 8, seed);
        let mut args = [arg(&mut words), arg(&mut count), arg(&mut seed)];
        self.launch(self.fill, Stream::DEFAULT, &mut args)
            .map_err(while_doing("filling managed memory"))?;
        self.synchronize()
    }

    /// Compares the first `bytes` of managed memory with the pattern of `seed`.
    ///
    /// # Errors
    /// As [`Kernels::fill_managed`].
    pub(crate) fn check_managed(
        &self,
        memory: &ManagedBuffer<u64>,
        bytes: u64,
        seed: u64,
    ) -> Result<Checked, GpuError> {
        self.verdict()?;
        let (mut words, mut count) = (memory.device_ptr(), bytes.min(memory.bytes()) / 8);
        let (mut seed, mut report) = (seed, self.report as u64);
        let checked = count;
        let mut args = [arg(&mut words), arg(&mut count), arg(&mut seed), arg(&mut report)];
        self.launch(self.check, Stream::DEFAULT, &mut args)
            .map_err(while_doing("checking managed memory"))?;
        Ok(Checked {
            words: checked,
            ..self.verdict()?
        })
    }
}
