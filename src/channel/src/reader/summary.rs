//! What a channel is, before it is read in full: for who has more of them than can be shown.

use super::Reader;
use crate::cells;
use crate::error::ReadError;
use crate::format::{live, words};

impl Reader {
    /// Reads no more than the first so many devices from now on, whatever is published: of somebody who publishes to be a burden.
    pub fn limit_devices(&mut self, most: usize) {
        self.devices_most = most;
    }

    /// Devices that are published, read or not.
    ///
    /// # Errors
    /// When the file itself fails.
    pub fn device_count(&self) -> Result<usize, ReadError> {
        Ok((self.live(live::DEVICES)? as usize).min(self.layout.devices.count))
    }

    /// Bytes of the channel.
    pub fn file_len(&self) -> u64 {
        self.layout.bytes()
    }

    /// Whether a request failed on any device that is published, at the price of one copy of the figures: without the rest of the channel.
    ///
    /// # Errors
    /// When the file itself fails.
    pub fn ran_out_of_memory(&self) -> Result<bool, ReadError> {
        let stats = &self.layout.stats;
        let mut figures = vec![0; self.device_count()? * stats.stride];
        self.copied.copy(stats.start, &mut figures)?;
        // The count only grows, and a word is read whole: a cell in the middle of a change tells it as well.
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
