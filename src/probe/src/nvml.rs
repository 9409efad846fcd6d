//! NVML: what the driver says about every GPU.
//!
//! The figures of a sample come from calls that take microseconds. PCIe throughput, whose query sleeps 20 ms, is
//! measured on a thread of its own ([`slow`]) and the latest figures are merged in, with their age.

mod calls;
mod gpu;
mod load;
mod memory;
mod mig;
mod processes;
mod slow;
mod stub;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use calls::{Calls, Code};
use gpu::Row;
use slow::SlowSampler;

use crate::{Gpu, NvmlSample, NvmlState, Root, facts};

/// More than any machine has; bounds what a broken library can make us do.
const MAX_GPUS: u32 = 256;

/// The driver's library, initialised. It is shut down when this value is dropped and the measurement then under way has
/// ended.
pub struct Nvml {
    calls: Arc<Calls>,
    root: Root,
    driver: Option<String>,
    cuda: Option<(u32, u32)>,
    rows: Vec<Row>,
    /// How many GPUs the driver listed last time.
    listed: u32,
    /// Started by the first sample, so that it does not compete with it.
    slow: Option<SlowSampler>,
}

impl Nvml {
    /// Loads and initialises NVML: the file `lib`, else the file that the environment variable `GPUMEM_NVML` names,
    /// else the driver's `libnvidia-ml.so.1` or `libnvidia-ml.so`. Takes about 14 ms with a real driver.
    ///
    /// # Errors
    /// [`NvmlState::Missing`] when there is no such library (or no such file), [`NvmlState::Failed`] when it is there
    /// and does not work.
    pub fn load(lib: Option<&Path>) -> Result<Nvml, NvmlState> {
        Nvml::load_below(lib, Root::default())
    }

    /// The same, with another tree in place of `/` for what is read of the kernel's.
    ///
    /// # Errors
    /// Those of [`Nvml::load`].
    pub fn load_below(lib: Option<&Path>, root: Root) -> Result<Nvml, NvmlState> {
        let calls = load::load(lib, &root)?;
        Ok(Nvml {
            driver: calls.driver_version().ok(),
            cuda: calls.cuda_version().ok(),
            calls: Arc::new(calls),
            root,
            rows: Vec::new(),
            listed: 0,
            slow: None,
        })
    }

    /// Takes over what was known of the GPUs before the library was loaded again: one that does not come back stays in
    /// the list, lost.
    pub fn remember(&mut self, gpus: Vec<Gpu>) {
        self.rows = gpus.into_iter().map(Row::known).collect();
    }

    /// What NVML says now. A GPU that was seen once stays in the list, lost if need be, with its last known figures.
    pub fn sample(&mut self) -> NvmlSample {
        let state = match self.calls.device_count() {
            Ok(count) => {
                self.read_gpus(count.min(MAX_GPUS));
                NvmlState::Ready
            }
            Err(code) => {
                let why = code.text();
                self.rows.iter_mut().for_each(|row| row.lose(&why));
                load::failed(code, &self.root)
            }
        };
        self.merge_slow();
        NvmlSample {
            state,
            driver: self.driver.clone(),
            cuda: self.cuda,
            gpus: self.rows.iter().map(|row| row.gpu.clone()).collect(),
        }
    }

    /// Waits until the slow figures have been measured once since the last sample, for programs that sample only once
    /// or twice. False when that takes longer than `limit`.
    pub fn wait_for_slow(&self, limit: Duration) -> bool {
        self.slow.as_ref().is_some_and(|slow| slow.wait(limit))
    }

    fn read_gpus(&mut self, count: u32) {
        // A GPU came or went: any index may now mean another card.
        if count != self.listed {
            self.rows.iter_mut().for_each(|row| row.identified = false);
            self.listed = count;
        }
        for index in 0..count {
            self.read_gpu(index);
        }
        // The driver counts on without those that fell out of its list: their places behind the others are numbers that
        // it does not give.
        for (at, row) in (0..).zip(&mut self.rows) {
            row.gpu.index = at;
            if at >= count {
                row.leave_list();
            }
        }
    }

    fn read_gpu(&mut self, index: u32) {
        let at = index as usize;
        if at >= self.rows.len() {
            self.rows.push(Row::new(index));
        }
        let device = match self.calls.device(index) {
            Ok(device) => device,
            Err(code) => return self.refused(at, code),
        };
        if !self.rows[at].identified {
            match Row::identify(&self.calls, index, &device) {
                Ok(found) => place(&mut self.rows, at, found),
                Err(code) => return self.refused(at, code),
            }
        }
        self.rows[at].read(&self.calls, &device);
    }

    /// The driver keeps the GPU at this index to itself. Of one that was lost before anybody looked the kernel module
    /// still tells who it is; the two list the same cards in the same order unless their numbers differ.
    fn refused(&mut self, at: usize, code: Code) {
        if code.is_lost() && !self.rows[at].is_known() {
            let cards = facts::cards(&self.root);
            if cards.len() == self.listed as usize
                && let Some(card) = cards.into_iter().nth(at)
            {
                self.rows[at].take_card(card);
            }
        }
        self.rows[at].refuse(code);
    }

    fn merge_slow(&mut self) {
        let slow = self.slow.get_or_insert_with(|| SlowSampler::start(&self.calls));
        let latest = slow.latest_and_request();
        for row in &mut self.rows {
            row.merge_slow(&latest);
        }
    }
}

/// Puts the GPU that answered at this index into its row: the one it had, wherever that is now, or a new one. A
/// card that gives no UUID is taken for the one that was here.
fn place(rows: &mut Vec<Row>, at: usize, found: Row) {
    let known = found
        .gpu
        .uuid
        .and_then(|uuid| rows.iter().skip(at).position(|row| row.gpu.uuid == Some(uuid)));
    let here = found.gpu.uuid.is_none() || rows[at].gpu.uuid.is_none();
    match known.or(here.then_some(0)) {
        Some(offset) => {
            rows.swap(at, at + offset);
            rows[at].take_identity(found);
        }
        None => {
            rows.insert(at, found);
            rows.truncate(MAX_GPUS as usize);
            rows.iter_mut().skip(at + 1).for_each(|row| row.identified = false);
        }
    }
}
