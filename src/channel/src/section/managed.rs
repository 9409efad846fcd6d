//! Managed (unified) memory as words: its ranges, and, where a publisher knows it itself, where the pages are and why they moved.
//!
//! Three optional sections. The ranges are what a program allocated, with its tags and advice; the driver does not tell
//! these to others. Blocks and figures are written only by a device that is simulated: of a real one the dashboard asks
//! the kernel and the driver.

use crate::error::ReadError;
use crate::format::Section;
use crate::managed::{
    MANAGED_BLOCK, ManagedBlock, ManagedCounters, ManagedFigures, ManagedMoves, ManagedRange, Preferred,
};
use crate::record::StringId;
use crate::snapshot::Snapshot;
use crate::source::Source;
use crate::word::byte;

/// Records that are read of each section. A file that has more is not believed to need them.
const RANGES_MOST: usize = 4 << 10;
const BLOCKS_MOST: usize = 32 << 10;

/// Words of a range's record, with its sequence word.
pub(crate) const RANGE_WORDS: usize = 8;
/// Words of a block's record.
pub(crate) const BLOCK_WORDS: usize = 16;
/// Words of the figures' record.
pub(crate) const FIGURES_WORDS: usize = 40;

/// Bits of the word that has a range's device in its lowest byte, and the advice on it.
const PREFERRED: u32 = 8;
const READ_MOSTLY: u64 = 1 << 16;

impl Preferred {
    fn number(self) -> u8 {
        match self {
            Preferred::Nowhere => 0,
            Preferred::Cpu => 1,
            Preferred::Device => 2,
            Preferred::Unknown(number) => number,
        }
    }

    fn of(number: u8) -> Preferred {
        match number {
            0 => Preferred::Nowhere,
            1 => Preferred::Cpu,
            2 => Preferred::Device,
            number => Preferred::Unknown(number),
        }
    }
}

pub(crate) fn encode_range(range: &ManagedRange) -> [u64; RANGE_WORDS - 1] {
    let advice = u64::from(range.device)
        | u64::from(range.preferred.number()) << PREFERRED
        | if range.read_mostly { READ_MOSTLY } else { 0 };
    [range.addr, range.size, advice, u64::from(range.tag.0), range.time, 0, 0]
}

/// Returns `None` for an empty slot, and for a range that cannot be.
fn decode_range(w: &[u64; RANGE_WORDS - 1]) -> Option<ManagedRange> {
    let (addr, size) = (w[0], w[1]);
    addr.checked_add(size).filter(|_| size > 0)?;
    Some(ManagedRange {
        addr,
        size,
        device: byte(w[2], 0),
        preferred: Preferred::of(byte(w[2], 1)),
        read_mostly: w[2] & READ_MOSTLY != 0,
        tag: StringId(w[3] as u32),
        time: w[4],
    })
}

pub(crate) fn encode_block(block: &ManagedBlock) -> [u64; BLOCK_WORDS - 1] {
    let mut w = [0; BLOCK_WORDS - 1];
    w[0] = block.addr;
    w[1..9].copy_from_slice(&block.on_cpu);
    w[9] = u64::from(block.on_gpu) | u64::from(block.evicted) << 32;
    w[10] = block.to_gpu;
    w[11] = block.to_cpu;
    w[12] = u64::from(block.moves) | u64::from(block.thrashed) << 32;
    w
}

/// Returns `None` for an empty slot, and for a block that is none.
fn decode_block(w: &[u64; BLOCK_WORDS - 1]) -> Option<ManagedBlock> {
    if w[0] == 0 || !w[0].is_multiple_of(MANAGED_BLOCK) || w[0].checked_add(MANAGED_BLOCK).is_none() {
        return None;
    }
    let mut on_cpu = [0; 8];
    on_cpu.copy_from_slice(&w[1..9]);
    Some(ManagedBlock {
        addr: w[0],
        on_cpu,
        on_gpu: w[9] as u32,
        evicted: (w[9] >> 32) as u32,
        to_gpu: w[10],
        to_cpu: w[11],
        moves: w[12] as u32,
        thrashed: w[12] >> 32 & 1 != 0,
    })
}

pub(crate) fn encode_figures(figures: &ManagedFigures) -> [u64; FIGURES_WORDS - 1] {
    let mut w = [0; FIGURES_WORDS - 1];
    (w[0], w[1]) = (figures.ranges_left_out, figures.bytes_left_out);
    if let Some(counters) = &figures.counters {
        w[2] = 1;
        w[3..7].copy_from_slice(&[
            counters.cpu_faults,
            counters.gpu_faults,
            counters.throttled,
            counters.remote,
        ]);
        let moves = counters.to_gpu.iter().chain(&counters.to_cpu);
        for (to, moves) in w[7..23].chunks_exact_mut(2).zip(moves) {
            to.copy_from_slice(&[moves.count, moves.bytes]);
        }
        w[23] = counters.thrashing;
    }
    w
}

fn decode_figures(w: &[u64; FIGURES_WORDS - 1]) -> ManagedFigures {
    let moves = |from: usize| {
        std::array::from_fn(|n| ManagedMoves {
            count: w[from + 2 * n],
            bytes: w[from + 2 * n + 1],
        })
    };
    ManagedFigures {
        ranges_left_out: w[0],
        bytes_left_out: w[1],
        counters: (w[2] == 1).then(|| ManagedCounters {
            to_gpu: moves(7),
            to_cpu: moves(15),
            cpu_faults: w[3],
            gpu_faults: w[4],
            thrashing: w[23],
            throttled: w[5],
            remote: w[6],
        }),
    }
}

/// Reads the records of a section that are not empty.
fn records<const N: usize, T>(
    source: &Source,
    section: &Section,
    most: usize,
    decode: impl Fn(&[u64; N]) -> Option<T>,
) -> Result<Vec<T>, ReadError> {
    let mut found = Vec::new();
    source.changed(
        section,
        0..section.count.min(most),
        |_| 0,
        |_, record: Option<(u64, [u64; N])>| found.extend(record.and_then(|(_, words)| decode(&words))),
    )?;
    Ok(found)
}

/// Reads the ranges. Of two that overlap only the first is kept, so that sums of sizes never overflow.
pub(super) fn read_ranges(source: &Source, section: &Section, snapshot: &mut Snapshot) -> Result<(), ReadError> {
    let mut ranges = records(source, section, RANGES_MOST, decode_range)?;
    ranges.sort_unstable_by_key(|range| range.addr);
    let mut end = 0;
    ranges.retain(|range| {
        let apart = range.addr >= end;
        end = end.max(range.addr + range.size);
        apart
    });
    snapshot.managed.get_or_insert_default().ranges = ranges;
    Ok(())
}

pub(super) fn read_blocks(source: &Source, section: &Section, snapshot: &mut Snapshot) -> Result<(), ReadError> {
    let mut blocks = records(source, section, BLOCKS_MOST, decode_block)?;
    blocks.sort_unstable_by_key(|block| block.addr);
    blocks.dedup_by_key(|block| block.addr);
    snapshot.managed.get_or_insert_default().blocks = blocks;
    Ok(())
}

pub(super) fn read_figures(source: &Source, section: &Section, snapshot: &mut Snapshot) -> Result<(), ReadError> {
    let figures = records(source, section, 1, |words| Some(decode_figures(words)))?;
    snapshot.managed.get_or_insert_default().figures = figures.first().copied().unwrap_or_default();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(addr: u64, size: u64) -> ManagedRange {
        ManagedRange {
            addr,
            size,
            device: 3,
            preferred: Preferred::Device,
            read_mostly: true,
            tag: StringId(7),
            time: 99,
        }
    }

    /// The format, word for word.
    #[test]
    fn words_of_managed_records_are_fixed() {
        let words = encode_range(&range(4096, 8192));
        assert_eq!(words, [4096, 8192, 0x1_0203, 7, 99, 0, 0]);
        assert_eq!(decode_range(&words), Some(range(4096, 8192)));

        let block = ManagedBlock {
            addr: 4 << 20,
            on_cpu: [1, 2, 3, 4, 5, 6, 7, 8],
            on_gpu: 0xf0,
            evicted: 0x0f,
            to_gpu: 10,
            to_cpu: 11,
            moves: 12,
            thrashed: true,
        };
        let words = encode_block(&block);
        let expected = [
            4 << 20,
            1,
            2,
            3,
            4,
            5,
            6,
            7,
            8,
            0x0000_000f_0000_00f0,
            10,
            11,
            0x1_0000_000c,
            0,
            0,
        ];
        assert_eq!(words, expected);
        assert_eq!(decode_block(&words), Some(block));

        let moves = |n| ManagedMoves {
            count: n,
            bytes: 100 * n,
        };
        let figures = ManagedFigures {
            ranges_left_out: 1,
            bytes_left_out: 2,
            counters: Some(ManagedCounters {
                to_gpu: [1, 2, 3, 4].map(moves),
                to_cpu: [5, 6, 7, 8].map(moves),
                cpu_faults: 20,
                gpu_faults: 21,
                thrashing: 24,
                throttled: 22,
                remote: 23,
            }),
        };
        let words = encode_figures(&figures);
        assert_eq!(words[..11], [1, 2, 1, 20, 21, 22, 23, 1, 100, 2, 200]);
        assert_eq!(words[21..], [8, 800, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode_figures(&words), figures);
        let unknown = ManagedFigures {
            counters: None,
            ..figures
        };
        assert_eq!(decode_figures(&encode_figures(&unknown)), unknown);
    }

    #[test]
    fn absurd_records_are_not_believed() {
        assert_eq!(decode_range(&[0; 7]), None, "an empty slot");
        assert_eq!(decode_range(&encode_range(&range(u64::MAX, 2))), None, "it has no end");
        let block = |addr| {
            decode_block(&encode_block(&ManagedBlock {
                addr,
                ..ManagedBlock::default()
            }))
        };
        assert_eq!(block(0), None, "an empty slot");
        assert_eq!(block(4096), None, "not where blocks begin");
        assert_eq!(block(u64::MAX - MANAGED_BLOCK + 1), None, "it has no end");
        assert!(block(MANAGED_BLOCK).is_some());
    }
}
