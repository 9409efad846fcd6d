//! Kernels that access device memory in different orders.

use cudarc::driver::{DriverError, result};

use super::{Contents, CudaClaims};
use crate::gpu::{arg, while_doing};
use crate::kernels::{FIELDS as ADD_TO_FIELDS, NUMBERS, STRIDE};
use crate::rig::RigError;
use crate::rig::claims::{Accesses, FIELDS, Layout};

/// The kernels count words by 32 bits.
const MOST_LOG_WORDS: u32 = 30;
/// Words that are compared at the beginning, in the middle and at the end of the records.
const COMPARED: usize = 1 << 14;

impl Accesses for CudaClaims {
    fn strided(&mut self, log_words: u32, log_stride: u32) -> Result<u64, RigError> {
        if log_words > MOST_LOG_WORDS || log_stride > log_words {
            return Err(RigError(format!(
                "2^{log_words} words with a stride of 2^{log_stride} are too many"
            )));
        }
        let (stride, numbers) = (self.functions.get(STRIDE)?, self.functions.get(NUMBERS)?);
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

    fn fields(&mut self, layout: Layout, records: u32, used: u32) -> Result<u64, RigError> {
        let count = u64::from(records) * u64::from(FIELDS);
        if count > 1 << MOST_LOG_WORDS || used > FIELDS || count < 2 * COMPARED as u64 {
            return Err(RigError(format!("{used} fields of {records} records cannot be used")));
        }
        let add = self.functions.get(ADD_TO_FIELDS)?;
        let mut words = self.memory(count * 4)?;
        self.contents = Contents::Unknown;
        let doing = "clearing records";
        // SAFETY: the memory has this many bytes.
        unsafe { result::memset_d8_async(words, 0, count as usize * 4, self.stream.handle()) }
            .map_err(while_doing(doing))?;
        let (mut records, mut used) = (records, used);
        let (mut record_step, mut field_step) = match layout {
            Layout::ArrayOfStructures => (FIELDS, 1),
            Layout::StructureOfArrays => (1, records),
        };
        let mut args = [
            arg(&mut words),
            arg(&mut records),
            arg(&mut record_step),
            arg(&mut field_step),
            arg(&mut used),
        ];
        let ns = self.timed("adding to fields", add, &mut args)?;
        let field_of = |word: u64| match layout {
            Layout::ArrayOfStructures => word % u64::from(FIELDS),
            Layout::StructureOfArrays => word / u64::from(records),
        };
        let last = count - COMPARED as u64;
        for begin in [0, last / 2, last] {
            let found = self.words(words, begin).map_err(while_doing("comparing records"))?;
            let expected = |word| u32::from(field_of(word) < used.into());
            if !found.iter().zip(begin..).all(|(word, at)| *word == expected(at)) {
                return Err(RigError("adding to fields: wrong words were added to".to_owned()));
            }
        }
        Ok(ns)
    }
}

impl CudaClaims {
    /// Returns some words of device memory. No kernel is running.
    fn words(&self, address: u64, begin: u64) -> Result<Vec<u32>, DriverError> {
        let mut found = vec![0; COMPARED];
        // SAFETY: the memory has this many words behind `begin`; the call returns when the copy is done.
        unsafe { result::memcpy_dtoh_sync(&mut found, address + begin * 4) }?;
        Ok(found)
    }
}
