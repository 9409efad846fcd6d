//! NVML: what the driver says about every GPU.
//!
//! The figures of a sample come from calls that take microseconds. The query for PCIe throughput sleeps 20 ms, so it
//! runs on its own thread ([`slow`]), and each sample takes its latest figures with their age.

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

/// More GPUs than any machine has; bounds the work that a broken library can cause.
const MAX_GPUS: u32 = 256;

/// The driver's library, initialised. The library is shut down when this value has been dropped and a measurement in
/// progress has ended.
pub struct Nvml {
    calls: Arc<Calls>,
    root: Root,
    driver: Option<String>,
    cuda: Option<(u32, u32)>,
    rows: Vec<Row>,
    /// How many GPUs the driver listed at the last sample.
    listed: u32,
    /// Started at the end of the first sample, so that it does not slow it down.
    slow: Option<SlowSampler>,
}

impl Nvml {
    /// Loads and initialises NVML from the file `lib`, else from the file named by the environment variable
    /// `GPUMEM_NVML`, else from the driver's `libnvidia-ml.so.1` or `libnvidia-ml.so`. Takes about 14 ms with a real
    /// driver.
    ///
    /// # Errors
    /// [`NvmlState::Missing`] when there is no such library (or no such file), [`NvmlState::Failed`] when it is there
    /// and does not work.
    pub fn load(lib: Option<&Path>) -> Result<Nvml, NvmlState> {
        Nvml::load_below(lib, Root::default())
    }

    /// Loads NVML like [`Nvml::load`], and reads the kernel's files below `root` in place of `/`.
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

    /// Takes over the GPUs known before the library was reloaded. A GPU that does not come back stays in the list as
    /// lost.
    pub fn remember(&mut self, gpus: Vec<Gpu>) {
        self.rows = gpus.into_iter().map(Row::known).collect();
    }

    /// Takes a sample of all GPUs. A GPU that was seen once stays in the list: when it no longer answers it is marked
    /// lost and keeps its last known figures.
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
    /// or twice. Returns false when that takes longer than `limit`.
    pub fn wait_for_slow(&self, limit: Duration) -> bool {
        self.slow.as_ref().is_some_and(|slow| slow.wait(limit))
    }

    /// Returns how many bytes of a GPU or MIG device a process uses; `None` if the driver does not tell, or lists no such device or process.
    /// `pid` is the process's id as the driver sees it: in a container that is another one.
    pub fn used_by(&mut self, device: [u8; 16], pid: u32) -> Option<u64> {
        self.read_gpus(self.calls.device_count().ok()?.min(MAX_GPUS));
        let gpus = self.rows.iter().map(|row| &row.gpu);
        let found = gpus.flat_map(|gpu| {
            let parts = gpu.mig.iter().map(|part| (part.uuid_bytes(), &part.processes));
            std::iter::once((gpu.uuid, &gpu.processes)).chain(parts)
        });
        let lists = found.filter(|(uuid, _)| *uuid == Some(device));
        let mut processes = lists.filter_map(|(_, list)| list.value()).flatten();
        processes.find(|process| process.pid == pid)?.used.value().copied()
    }

    fn read_gpus(&mut self, count: u32) {
        // A GPU came or went, so any index may now mean another card.
        if count != self.listed {
            self.rows.iter_mut().for_each(|row| row.identified = false);
            self.listed = count;
        }
        for index in 0..count {
            self.read_gpu(index);
        }
        // The driver renumbers its list without the GPUs that it dropped. Those rows move behind the others, to indices
        // that the driver does not use.
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

    /// Records that the driver gave no handle for the GPU at this index. If the GPU was lost before the first sample,
    /// its identity comes from the kernel module. Driver and kernel module list the same cards in the same order if
    /// they list equally many.
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

/// Puts the GPU that answered at this index into its row: the row it had before, wherever that is now, or a new one. A
/// card without a UUID is assumed to be the one that was at this index.
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
