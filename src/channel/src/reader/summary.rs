//! Summary data of a channel that has not been read in full, for callers with more channels than they can show.

use super::Reader;
use crate::cells;
use crate::error::ReadError;
use crate::format::{live, words};

impl Reader {
    /// Limits reading to the first `most` devices, as a protection against hostile publishers.
    pub fn limit_devices(&mut self, most: usize) {
        self.devices_most = most;
    }

    /// Returns the number of published devices, including those that are not read.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn device_count(&self) -> Result<usize, ReadError> {
        Ok((self.live(live::DEVICES)? as usize).min(self.layout.devices.count))
    }

    /// Returns the size of the channel in bytes.
    pub fn file_len(&self) -> u64 {
        self.layout.bytes()
    }

    /// Whether a request has failed on any published device. Copies the figures once, and nothing else of the channel.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn ran_out_of_memory(&self) -> Result<bool, ReadError> {
        let stats = &self.layout.stats;
        let mut figures = vec![0; self.device_count()? * stats.stride];
        self.copied.copy(stats.start, &mut figures)?;
        // The count only grows, and a word is read atomically, so even a cell in the middle of a change is valid here.
        let cells = figures.chunks_exact(stats.stride).flat_map(|cells| {
            let (cells, _) = cells[..words::STATS].as_chunks::<{ words::STATS_CELL }>();
            cells.iter()
        });
        let mut counts = cells
            .filter_map(|cell| cell[1..].first_chunk())
            .map(cells::of_publisher);
        Ok(counts.any(|figures| figures.num_ooms > 0))
    }
}
