//! Copies and kernels of several streams.

use std::time::Instant;

use cudarc::driver::{DriverError, result, sys};

use super::{Contents, CudaClaims, ns_since};
use crate::gpu::rig::own_stream::OwnStream;
use crate::gpu::{arg, while_doing};
use crate::kernels::COMPUTE;
use crate::rig::RigError;
use crate::rig::claims::Pipeline;

/// The bytes that are copied to the device.
const BEFORE: u8 = 0x5a;

/// Returns what the kernel makes of a word of these bytes.
fn after(rounds: u32) -> u32 {
    let step = |x: u32, _| x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (0..rounds).fold(u32::from_ne_bytes([BEFORE; 4]), step)
}

impl CudaClaims {
    pub(super) fn compute_timed(&mut self, bytes: u64, rounds: u32) -> Result<u64, RigError> {
        let compute = self.functions.get(COMPUTE)?;
        let (mut words, mut count, mut rounds) = (self.memory(bytes)?, bytes / 4, rounds);
        self.contents = Contents::Unknown;
        let mut args = [arg(&mut words), arg(&mut count), arg(&mut rounds)];
        self.timed("computing", compute, &mut args)
    }

    pub(super) fn run_pipeline(&mut self, pipeline: Pipeline) -> Result<u64, RigError> {
        let refused = || RigError(format!("{pipeline:?} does not fit into what there is"));
        let bytes = pipeline
            .chunk_bytes
            .checked_mul(pipeline.chunks as u64)
            .ok_or_else(refused)?;
        let compute = self.functions.get(COMPUTE)?;
        let device = self.memory(bytes)?;
        self.contents = Contents::Unknown;
        // The streams end before the host's memory does.
        let mut host = self.host_memory()?;
        let streams: Vec<OwnStream> = (0..pipeline.streams)
            .map(|_| OwnStream::new())
            .collect::<Result<_, _>>()?;
        let data = host.part(pipeline.pinned, bytes).ok_or_else(refused)?;
        data.fill(BEFORE);
        let ran = self.queue(pipeline, compute, device, &streams, data);
        // On an error's way, too, nothing is under way when the memory goes.
        let ended = self.context.synchronize();
        let ns = ran.and_then(|ns| ended.map(|()| ns));
        let ns = ns.map_err(while_doing("overlapping copies and kernels"))?;
        let expected = after(pipeline.rounds).to_ne_bytes();
        let sound = data.chunks_exact(4).all(|word| word == expected);
        self.host = Some(host);
        match sound {
            true => Ok(ns),
            false => Err(RigError(
                "overlapping copies and kernels: wrong results came back".to_owned(),
            )),
        }
    }

    /// Queues everything, and returns the time until the last chunk is back.
    fn queue(
        &self,
        pipeline: Pipeline,
        compute: sys::CUfunction,
        device: u64,
        streams: &[OwnStream],
        data: &mut [u8],
    ) -> Result<u64, DriverError> {
        let began = Instant::now();
        let chunks = data.chunks_exact_mut(pipeline.chunk_bytes as usize);
        for ((chunk, stream), at) in chunks.zip(streams.iter().cycle()).zip(0u64..) {
            let mut words = device + at * pipeline.chunk_bytes;
            let (mut count, mut rounds) = (pipeline.chunk_bytes / 4, pipeline.rounds);
            // SAFETY: this part of the device's memory has the chunk's size; the caller keeps both until the device was waited for.
            unsafe { result::memcpy_htod_async(words, chunk, stream.handle()) }?;
            let mut args = [arg(&mut words), arg(&mut count), arg(&mut rounds)];
            self.launch(stream, compute, self.whole(), &mut args)?;
            // SAFETY: as above.
            unsafe { result::memcpy_dtoh_async(chunk, words, stream.handle()) }?;
        }
        streams.iter().try_for_each(OwnStream::synchronize)?;
        Ok(ns_since(began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_computed_as_the_kernel_does() {
        assert_eq!(after(0), 0x5a5a_5a5a);
        assert_eq!(
            after(1),
            0x5a5a_5a5a_u32.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)
        );
    }
}
