//! Kernels that move as much as the device can.

use std::ffi::c_void;

use cudarc::driver::{DriverError, sys};

use super::{CudaRig, Shape};
use crate::gpu::{arg, while_doing};
use crate::kernels::{COPY, MULTIPLY_ADD, READ, READ_L1, READ_SHARED, WRITE};
use crate::rig::{Clocks, Moved, RigError, Stream};

/// What is in memory that the kernels read.
const PATTERN: u32 = 0x9e37_79b9;

/// Threads per block and blocks per SM of kernels whose data is on the SM: as many threads as any SM has, in all.
const SM_THREADS: u32 = 1024;
const SM_BLOCKS: u32 = 2;
/// Vectors of 16 bytes that a block of such a kernel reads: 32 KiB, so that those of two blocks fit into any L1.
const SM_VECTORS: u32 = 2048;

/// Threads per block and blocks per SM of kernels that read and write device memory.
const THREADS: u32 = 256;
const BLOCKS: u32 = 16;

/// A vector, in bytes.
const VECTOR: u64 = 16;

/// The factor and summand of the multiply-adds, which start from 1.
const FACTOR: f32 = 0.999;
const SUMMAND: f32 = 0.5;

impl CudaRig {
    pub(super) fn run_stream(&mut self, stream: Stream) -> Result<Moved, RigError> {
        match stream {
            Stream::Registers(rounds) => self.multiply_add(rounds),
            Stream::Shared(loads) => self.read_shared(loads),
            Stream::L1(loads) => self.read_l1(loads),
            Stream::Read { bytes, rounds } => self.read(bytes, rounds),
            Stream::Write { bytes } => self.write(bytes),
            Stream::Copy { bytes } => self.copy_by_kernel(bytes),
        }
    }

    fn on_sms(&self, shared: u32) -> Shape {
        Shape {
            blocks: self.card.sms.saturating_mul(SM_BLOCKS),
            threads: SM_THREADS,
            shared,
        }
    }

    fn multiply_add(&mut self, rounds: u32) -> Result<Moved, RigError> {
        let function = self.functions.get(MULTIPLY_ADD)?;
        let shape = self.on_sms(0);
        let (mut factor, mut summand, mut rounds) = (FACTOR, SUMMAND, rounds);
        let mut result = (0..rounds).fold(1f32, |x, _| x.mul_add(FACTOR, SUMMAND));
        let mut report = self.report.on_device();
        let mut args = [
            arg(&mut factor),
            arg(&mut summand),
            arg(&mut rounds),
            arg(&mut result),
            arg(&mut report),
        ];
        // Eight chains a thread; three operands and a result of 4 bytes.
        let bytes = shape.all_threads() * 8 * u64::from(rounds) * 16;
        self.timed("multiplying and adding", function, shape, &mut args, bytes)
    }

    fn read_shared(&mut self, loads: u32) -> Result<Moved, RigError> {
        let function = self.functions.get(READ_SHARED)?;
        let shape = self.on_sms(SM_VECTORS * 16);
        let (mut count, mut loads, mut word) = (SM_VECTORS, loads, PATTERN);
        let mut report = self.report.on_device();
        let mut args = [arg(&mut count), arg(&mut loads), arg(&mut word), arg(&mut report)];
        let bytes = shape.all_threads() * u64::from(loads) * VECTOR;
        self.timed("reading shared memory", function, shape, &mut args, bytes)
    }

    fn read_l1(&mut self, loads: u32) -> Result<Moved, RigError> {
        let function = self.functions.get(READ_L1)?;
        let shape = self.on_sms(0);
        let (mut data, mut count, mut loads, mut word) = (self.arena.address, SM_VECTORS, loads, PATTERN);
        self.fill(u64::from(shape.blocks) * u64::from(SM_VECTORS) * VECTOR)?;
        let mut report = self.report.on_device();
        let mut args = [
            arg(&mut data),
            arg(&mut count),
            arg(&mut loads),
            arg(&mut word),
            arg(&mut report),
        ];
        let bytes = shape.all_threads() * u64::from(loads) * VECTOR;
        self.timed("reading L1", function, shape, &mut args, bytes)
    }

    fn on_memory(&self) -> Shape {
        Shape {
            blocks: self.card.sms.saturating_mul(BLOCKS),
            threads: THREADS,
            shared: 0,
        }
    }

    fn read(&mut self, bytes: u64, rounds: u32) -> Result<Moved, RigError> {
        let function = self.functions.get(READ)?;
        self.fill(bytes)?;
        let (mut data, mut count, mut rounds, mut word) = (self.arena.address, bytes / VECTOR, rounds, PATTERN);
        let mut report = self.report.on_device();
        let mut args = [
            arg(&mut data),
            arg(&mut count),
            arg(&mut rounds),
            arg(&mut word),
            arg(&mut report),
        ];
        let moved = count * VECTOR * u64::from(rounds);
        self.timed("reading device memory", function, self.on_memory(), &mut args, moved)
    }

    fn write(&mut self, bytes: u64) -> Result<Moved, RigError> {
        let function = self.functions.get(WRITE)?;
        self.fits(bytes)?;
        let (mut data, mut count, mut word) = (self.arena.address, bytes / VECTOR, PATTERN);
        let mut args = [arg(&mut data), arg(&mut count), arg(&mut word)];
        let moved = count * VECTOR;
        let done = self.timed("writing device memory", function, self.on_memory(), &mut args, moved)?;
        self.ring = None;
        self.filled = self.filled.max(moved);
        Ok(done)
    }

    fn copy_by_kernel(&mut self, bytes: u64) -> Result<Moved, RigError> {
        let function = self.functions.get(COPY)?;
        self.fill(bytes)?;
        let count = bytes / 2 / VECTOR;
        let (mut from, mut vectors) = (self.arena.address, count);
        let mut to = from + count * VECTOR;
        let mut args = [arg(&mut to), arg(&mut from), arg(&mut vectors)];
        self.timed(
            "copying device memory",
            function,
            self.on_memory(),
            &mut args,
            count * VECTOR * 2,
        )
    }

    fn fits(&self, bytes: u64) -> Result<(), RigError> {
        match bytes <= self.arena.bytes && bytes >= VECTOR {
            true => Ok(()),
            false => Err(RigError(format!(
                "{bytes} bytes are not within the budget of {}",
                self.arena.bytes
            ))),
        }
    }

    /// Writes the pattern, unless it is there.
    fn fill(&mut self, bytes: u64) -> Result<(), RigError> {
        self.fits(bytes)?;
        if self.filled < bytes {
            self.write(bytes)?;
        }
        Ok(())
    }

    /// Runs a kernel between two events.
    fn timed(
        &self,
        doing: &'static str,
        function: sys::CUfunction,
        shape: Shape,
        args: &mut [*mut c_void],
        bytes: u64,
    ) -> Result<Moved, RigError> {
        self.clear_report();
        let [before, after] = &self.events;
        let mut run = || -> Result<_, DriverError> {
            before.record()?;
            self.launch(function, shape, args)?;
            after.record()?;
            Ok((after.ns_since(before)?, self.report()?))
        };
        let (ns, report) = run().map_err(while_doing(doing))?;
        if report[0] != 0 {
            return Err(RigError(format!(
                "{doing}: {} threads found other data than was written",
                report[0]
            )));
        }
        let clocks = Clocks {
            cycles: report[1],
            ns: report[2],
        };
        Ok(Moved {
            bytes,
            ns,
            clocks: (clocks.cycles > 0).then_some(clocks),
        })
    }
}

impl Shape {
    fn all_threads(self) -> u64 {
        u64::from(self.blocks) * u64::from(self.threads)
    }
}
