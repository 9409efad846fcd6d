//! The memory that the helper process shares with the dashboard: a page of counters for each watched process, which the driver
//! itself writes, and what the helper counted of events.
//!
//! The dashboard reads it with `pread` and maps nothing. The helper is the only writer. A sequence word is odd while it writes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::abi::{COUNTER_PLACES, COUNTERS, PROCESSORS};
use super::causes::{BlockMoves, Cause, EventSums, MOST_BLOCKS, Moves};
use super::sys::Shared;
use super::{Counters, PAGE};

/// Processes whose counters can be watched at once.
pub(super) const SLOTS: usize = 64;
/// Offset of the events' page, which is after the counters' pages.
const EVENTS: u64 = SLOTS as u64 * PAGE;
/// Offset of the blocks, which are after the events' page.
const BLOCKS: u64 = EVENTS + PAGE;
/// 64-bit words of a block.
const BLOCK_WORDS: usize = 6;
/// Bytes of the whole file. Pages that were never written take no memory.
pub(super) const BYTES: u64 = BLOCKS + (MOST_BLOCKS * BLOCK_WORDS * 8) as u64;

/// Words of the events' page: the sequence, the number of blocks, sums, migrations, the table of processors.
const SEQUENCE: usize = 0;
const COUNT: usize = 1;
const SUMS: usize = 2;
const MIGRATIONS: usize = 16;
const TABLE: usize = 64;
const HEADER_WORDS: usize = TABLE + PROCESSORS * 2;

/// What the events of one process say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Sums since the delivery of events began.
    pub sums: EventSums,
    /// Blocks that moved, in the order in which they first did.
    pub blocks: Vec<BlockMoves>,
    /// UUIDs of the processors by the driver's numbers, as in [`BlockMoves::place`]; zeroes where there is none.
    pub processors: Vec<[u8; 16]>,
}

/// Returns the offset of a slot's page.
pub(super) fn slot_offset(slot: usize) -> u64 {
    slot as u64 * PAGE
}

/// Reads a slot's counters. Each is one word, and only grows while a tracker is attached.
pub(super) fn read_counters(file: &File, slot: usize) -> io::Result<Counters> {
    let mut bytes = [0; COUNTERS * 8];
    file.read_exact_at(&mut bytes, slot_offset(slot))?;
    let [to_gpu, to_cpu, cpu_faults, gpu_faults] = COUNTER_PLACES.map(|place| word(&bytes, place));
    Ok(Counters {
        to_gpu,
        to_cpu,
        cpu_faults,
        gpu_faults,
    })
}

fn word(bytes: &[u8], place: usize) -> u64 {
    let word = bytes
        .get(place * 8..place * 8 + 8)
        .and_then(|word| word.try_into().ok());
    u64::from_ne_bytes(word.unwrap_or_default())
}

/// The helper's side of the events.
#[derive(Debug)]
pub(super) struct Writer(Shared);

impl Writer {
    pub(super) fn new(file: &File) -> io::Result<Writer> {
        Shared::of_file(file, EVENTS, (BYTES - EVENTS) as usize).map(Writer)
    }

    /// Replaces the published events.
    pub(super) fn write(&self, sums: &EventSums, blocks: &[BlockMoves], processors: &[u64]) {
        let words = self.0.words();
        let sequence = words[SEQUENCE].load(Ordering::Relaxed) | 1;
        words[SEQUENCE].store(sequence, Ordering::Relaxed);
        fence(Ordering::Release);
        let store = |place: usize, value: u64| {
            if let Some(word) = words.get(place) {
                word.store(value, Ordering::Relaxed);
            }
        };
        let blocks = &blocks[..blocks.len().min(MOST_BLOCKS)];
        store(COUNT, blocks.len() as u64);
        for (n, value) in sum_words(sums).into_iter().enumerate() {
            store(SUMS + n, value);
        }
        let moves = sums.migrations.iter().flatten();
        for (n, moves) in moves.enumerate() {
            store(MIGRATIONS + 2 * n, moves.count);
            store(MIGRATIONS + 2 * n + 1, moves.bytes);
        }
        for (n, value) in processors.iter().take(PROCESSORS * 2).enumerate() {
            store(TABLE + n, *value);
        }
        let first = PAGE as usize / 8;
        for (n, block) in blocks.iter().enumerate() {
            let place = first + n * BLOCK_WORDS;
            let values = [
                block.start,
                block.to_gpu,
                block.to_cpu,
                u64::from(block.count) | u64::from(block.prefetched) << 32,
                u64::from(block.place) | u64::from(block.thrashed) << 8 | u64::from(block.mapped) << 32,
                u64::from(block.on_gpu) | u64::from(block.evicted) << 32,
            ];
            (place..).zip(values).for_each(|(place, value)| store(place, value));
        }
        words[SEQUENCE].store(sequence.wrapping_add(1), Ordering::Release);
    }
}

fn sum_words(sums: &EventSums) -> [u64; 7] {
    [
        sums.cpu_faults,
        sums.gpu_faults,
        sums.thrashing,
        sums.throttled,
        sums.remote,
        sums.dropped,
        sums.blocks_left_out,
    ]
}

/// Reads the events. `None` if the helper was writing during three attempts in a row.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn read_events(file: &File) -> io::Result<Option<Events>> {
    for _ in 0..3 {
        let header = read_words(file, EVENTS, HEADER_WORDS)?;
        let sequence = word(&header, SEQUENCE);
        let count = usize::try_from(word(&header, COUNT))
            .unwrap_or(usize::MAX)
            .min(MOST_BLOCKS);
        let blocks = read_words(file, BLOCKS, count * BLOCK_WORDS)?;
        fence(Ordering::Acquire);
        let again = read_words(file, EVENTS, 1)?;
        if sequence.is_multiple_of(2) && word(&again, 0) == sequence {
            return Ok(Some(Events {
                sums: sums(&header),
                blocks: blocks.chunks_exact(BLOCK_WORDS * 8).map(block).collect(),
                processors: header[TABLE * 8..].chunks_exact(16).map(uuid).collect(),
            }));
        }
    }
    Ok(None)
}

fn read_words(file: &File, offset: u64, words: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; words * 8];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

fn uuid(bytes: &[u8]) -> [u8; 16] {
    bytes.try_into().unwrap_or_default()
}

fn sums(header: &[u8]) -> EventSums {
    let sum = |n| word(header, SUMS + n);
    let mut migrations = [[Moves::default(); 3]; Cause::ALL.len()];
    for (n, moves) in migrations.iter_mut().flatten().enumerate() {
        moves.count = word(header, MIGRATIONS + 2 * n);
        moves.bytes = word(header, MIGRATIONS + 2 * n + 1);
    }
    EventSums {
        migrations,
        cpu_faults: sum(0),
        gpu_faults: sum(1),
        thrashing: sum(2),
        throttled: sum(3),
        remote: sum(4),
        dropped: sum(5),
        blocks_left_out: sum(6),
    }
}

fn block(bytes: &[u8]) -> BlockMoves {
    let [count, place, parts] = [3, 4, 5].map(|n| word(bytes, n));
    BlockMoves {
        start: word(bytes, 0),
        to_gpu: word(bytes, 1),
        to_cpu: word(bytes, 2),
        count: count as u32,
        place: place as u8,
        thrashed: place & 1 << 8 != 0,
        on_gpu: parts as u32,
        evicted: (parts >> 32) as u32,
        prefetched: (count >> 32) as u32,
        mapped: (place >> 32) as u32,
    }
}

/// Sets the words of a page to zero.
pub(super) fn clear(words: &[AtomicU64]) {
    words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn events_are_read_as_they_were_written() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(BYTES).unwrap();
        let writer = Writer::new(&file).unwrap();
        let mut sums = EventSums {
            cpu_faults: 1,
            gpu_faults: 2,
            thrashing: 3,
            throttled: 4,
            remote: 5,
            dropped: 6,
            blocks_left_out: 7,
            ..EventSums::default()
        };
        for (n, moves) in (8..).step_by(2).zip(sums.migrations.iter_mut().flatten()) {
            (moves.count, moves.bytes) = (n, n + 1);
        }
        let block = |n: u32| BlockMoves {
            start: u64::from(n) << 21,
            to_gpu: 1,
            to_cpu: 2,
            count: 3,
            place: 4,
            thrashed: n.is_multiple_of(2),
            on_gpu: 5 + n,
            evicted: 6,
            prefetched: 7,
            mapped: 8 + n,
        };
        let blocks: Vec<_> = (0..3000).map(block).collect();
        let processors: Vec<u64> = (1000..1066).collect();
        writer.write(&sums, &blocks, &processors);
        let read = read_events(&file).unwrap().unwrap();
        assert_eq!((read.sums, &read.blocks), (sums, &blocks));
        let flat: Vec<u8> = read.processors.concat();
        let written: Vec<u8> = processors.iter().flat_map(|n| n.to_ne_bytes()).collect();
        assert_eq!(flat, written);
        // Half-written events are not shown.
        writer.0.words()[SEQUENCE].fetch_add(1, Ordering::Relaxed);
        assert_eq!(read_events(&file).unwrap(), None);
    }
}
