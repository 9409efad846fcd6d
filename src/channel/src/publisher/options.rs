//! How large a channel is.

use std::path::PathBuf;

use crate::layout::{LANES_MAX, Layout, words};

/// How large a channel is and what it says about its program.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory to publish in, made if its parent is there; `None` tries [`own_directories`](crate::own_directories). It must be in memory
    /// (tmpfs), belong to this user, be nobody else's to enter (mode 0700), and be no symbolic link. The dashboard looks into those of
    /// its own environment: give it the same one as `GPUMEM_DIR`.
    pub dir: Option<PathBuf>,
    /// Blocks it has room for (64 bytes each). Blocks beyond that are counted as untracked.
    pub blocks: u32,
    /// Segments it has room for (128 bytes each).
    pub segments: u32,
    /// Events it keeps (64 bytes each), rounded up to a power of two.
    pub events: u32,
    /// Different tags, names of pools and marks it has room for (128 bytes each); marks take three quarters at most.
    pub strings: u32,
    /// Devices it has room for (1.5 KiB each); at most 256.
    pub devices: u32,
    /// Lanes it has room for (1 KiB each, and their events); at most 63, and none if 0.
    pub lanes: u32,
    /// Events that it keeps of each lane (64 bytes each), rounded up to a power of two.
    pub lane_events: u32,
    /// Job label.
    pub job: String,
    /// Program name; `None` takes the executable's.
    pub program: Option<String>,
    /// Whether it is made smaller where it would take more than a sixteenth of its file system, which others need, too: a container's
    /// `/dev/shm` has 64 MiB, where the ranks of a job and the workers that load its data put theirs. Of blocks,
    /// segments and events, what takes most is halved as often as that takes.
    pub fit: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            dir: None,
            blocks: 65_536,
            segments: 4_096,
            events: 16_384,
            strings: 1_024,
            devices: 16,
            lanes: 8,
            lane_events: 8_192,
            job: std::env::var_os("GPUMEM_JOB")
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            program: None,
            fit: true,
        }
    }
}

/// What one channel takes of its file system at most, where it is to fit.
const PART: u64 = 16;
/// Bytes of a table that is too small to halve it.
const LITTLE: u64 = 64 << 10;

impl Options {
    /// Bytes of the file of such a channel. All of them are taken when it is made.
    pub fn file_len(&self) -> u64 {
        Layout::of(self).bytes()
    }

    /// The same where [`fit`](Options::fit) is looked at, in a file system of `total` bytes; 0 is one without a limit.
    pub fn file_len_within(&self, total: u64) -> u64 {
        self.layout_within(total).bytes()
    }

    pub(super) fn layout_within(&self, total: u64) -> Layout {
        let most = if self.fit && total > 0 { total / PART } else { u64::MAX };
        let mut smaller = self.clone();
        while smaller.file_len() > most && smaller.halve_largest() {}
        Layout::of(&smaller)
    }

    /// Halves the table that takes most. False if that is too small.
    fn halve_largest(&mut self) -> bool {
        // Of equals the last: blocks are the truth, events what led to it.
        let tables = [
            (words::SEGMENT, &mut self.segments),
            (words::BLOCK, &mut self.blocks),
            (words::EVENT, &mut self.events),
            (
                words::EVENT * (self.lanes as usize).min(LANES_MAX),
                &mut self.lane_events,
            ),
        ];
        let bytes = |(words, count): (usize, u32)| 8 * words as u64 * u64::from(count);
        let largest = tables.into_iter().max_by_key(|(words, count)| bytes((*words, **count)));
        match largest {
            Some((words, count)) if bytes((words, *count)) > LITTLE => {
                *count /= 2;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_takes_most_gives_way_in_a_small_file_system() {
        let options = Options::default();
        for total in [0, 1 << 40, PART * options.file_len()] {
            assert_eq!(options.file_len_within(total), options.file_len());
        }
        let small = options.layout_within(64 * MIB);
        assert!(small.bytes() <= 4 * MIB);
        let counts = [small.blocks.count, small.segments.count, small.lane_events.count / 8];
        assert_eq!(counts, [16_384, 4_096, 2_048]);
        // What somebody wants to have few of stays, and what is wanted of many things is as much as there is room for.
        let odd = Options {
            blocks: u32::MAX,
            segments: 3,
            ..options.clone()
        };
        let odd = odd.layout_within(64 * MIB);
        assert!(odd.bytes() <= 4 * MIB && odd.blocks.count >= 8_192 && odd.segments.count == 3);
        // What is left is too little to do without.
        let least = options.file_len_within(MIB);
        assert!((MIB / 8..MIB).contains(&least), "{least}");
        let exact = Options { fit: false, ..options };
        assert_eq!(exact.file_len_within(MIB), exact.file_len());
    }
}
