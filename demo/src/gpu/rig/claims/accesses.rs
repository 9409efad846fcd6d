//! Kernels that access device memory in different orders.

use super::{Contents, CudaClaims};
use crate::gpu::arg;
use crate::kernels::{NUMBERS, STRIDE};
use crate::rig::RigError;
use crate::rig::claims::Accesses;

/// The kernel counts words by 32 bits.
const MOST_LOG_WORDS: u32 = 30;

impl Accesses for CudaClaims {
    fn strided(&mut self, log_words: u32, log_stride: u32) -> Result<u64, RigError> {
        if log_words > MOST_LOG_WORDS || log_stride > log_words {
            return Err(RigError(format!(
                "2^{log_words} words with a stride of 2^{log_stride} are too many"
            )));
        }
        let (stride, numbers) = (self.function(STRIDE)?, self.function(NUMBERS)?);
        let mut count = 1u32 << log_words;
        let mut words = self.memory(u64::from(count) * 4)?;
        if self.contents != Contents::Numbers(count.into()) {
            self.contents = Contents::Unknown;
            let mut args = [arg(&mut words), arg(&mut count)];
            self.timed("writing numbers", numbers, &mut args)?;
            self.contents = Contents::Numbers(count.into());
        }
        let (mut log_words, mut log_stride, mut report) = (log_words, log_stride, self.report.on_device());
        let mut args = [
            arg(&mut words),
            arg(&mut log_words),
            arg(&mut log_stride),
            arg(&mut report),
        ];
        self.timed("reading with a stride", stride, &mut args)
    }
}
