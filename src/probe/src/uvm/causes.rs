//! Counts the driver's events about moved memory by cause, and by block of 2 MiB.

use std::collections::HashMap;

use super::abi::{self, ENTRY};

/// Bytes of the driver's block, the unit in which it manages memory.
pub const BLOCK: u64 = 2 << 20;
/// Number of parts of a block, each of 64 KiB. The location of each part is kept.
pub const PARTS: u64 = 32;
const PART: u64 = BLOCK / PARTS;

/// The most blocks in the table: those of 64 GiB of managed memory. Further ones are only counted.
pub(super) const MOST_BLOCKS: usize = 32 << 10;

/// Why memory moved, according to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// A request of the program: a prefetch call or a policy hint.
    User,
    /// A page fault.
    Fault,
    /// The driver's own prefetch, around a fault.
    Prefetch,
    /// Eviction: memory was needed on the GPU.
    Eviction,
    /// The GPU's access counters.
    AccessCounters,
    /// An unknown number.
    Other,
}

impl Cause {
    /// All of them.
    pub const ALL: [Cause; 6] = [
        Cause::User,
        Cause::Fault,
        Cause::Prefetch,
        Cause::Eviction,
        Cause::AccessCounters,
        Cause::Other,
    ];

    fn of(number: u8) -> Cause {
        let known = Cause::ALL[..5].get(usize::from(number).wrapping_sub(1));
        known.copied().unwrap_or(Cause::Other)
    }
}

/// Which way memory moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the CPU to a GPU.
    HostToDevice,
    /// From a GPU to the CPU.
    DeviceToHost,
    /// Between two GPUs.
    DeviceToDevice,
}

/// Number and bytes of migrations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Migrations.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Sums of events since their delivery began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventSums {
    /// Migrations, by cause and by direction, each in the order of its type.
    pub migrations: [[Moves; 3]; Cause::ALL.len()],
    /// Faults of the CPU.
    pub cpu_faults: u64,
    /// Faults of GPUs, one for each entry of their fault buffers.
    pub gpu_faults: u64,
    /// Pages of 4 KiB that the driver saw move back and forth.
    pub thrashing: u64,
    /// How often the driver throttled a processor because of that.
    pub throttled: u64,
    /// Mappings of memory that stays on another processor.
    pub remote: u64,
    /// Events that the driver dropped because the queue was full.
    pub dropped: u64,
    /// Blocks that did not fit in the table.
    pub blocks_left_out: u64,
}

impl EventSums {
    /// Migrations of one cause and direction.
    pub fn moves(&self, cause: Cause, direction: Direction) -> Moves {
        self.migrations[cause as usize][direction as usize]
    }
}

/// What happened to a block of 2 MiB since the delivery of events began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockMoves {
    /// Its first byte.
    pub start: u64,
    /// Bytes that moved to a GPU.
    pub to_gpu: u64,
    /// Bytes that moved to the CPU.
    pub to_cpu: u64,
    /// Its migrations.
    pub count: u32,
    /// The processor that its last migration went to: 0 is the CPU, 1 and more are indexes in the table of processors.
    pub place: u8,
    /// Whether the driver saw pages of it move back and forth.
    pub thrashed: bool,
    /// Its parts of 64 KiB, lowest first, whose last migration went to a GPU.
    pub on_gpu: u32,
    /// Its parts whose last migration was an eviction: they are in the host's memory, and not mapped until the CPU touches them.
    pub evicted: u32,
    /// Its parts whose last migration was a call that prefetches to the CPU. They are not mapped either until the CPU touches them.
    pub prefetched: u32,
    /// Its parts whose last migration was a fault of the CPU, or the driver's prefetch beside one: they were mapped. Such a part that is
    /// not present any more has gone to a GPU since.
    pub mapped: u32,
}

/// Counts events.
#[derive(Debug, Default)]
pub(super) struct Aggregator {
    pub(super) sums: EventSums,
    pub(super) blocks: Vec<BlockMoves>,
    places: HashMap<u64, usize>,
}

impl Aggregator {
    /// Takes one event as the driver wrote it.
    pub(super) fn take(&mut self, entry: &[u8; ENTRY]) {
        let word = |at: usize| {
            let bytes = entry.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            u64::from_ne_bytes(bytes.unwrap_or_default())
        };
        let sums = &mut self.sums;
        match entry[0] {
            abi::CPU_FAULT => sums.cpu_faults += 1,
            abi::GPU_FAULT => sums.gpu_faults += 1,
            abi::THRASHING => {
                sums.thrashing += 1;
                if let Some(block) = self.block(word(16)) {
                    block.thrashed = true;
                }
            }
            abi::THROTTLING => sums.throttled += 1,
            abi::MAP_REMOTE => sums.remote += 1,
            abi::MIGRATION => self.migration(entry[1], [entry[2], entry[3]], word(8), word(16)),
            _ => {}
        }
    }

    fn migration(&mut self, cause: u8, [from, to]: [u8; 2], address: u64, bytes: u64) {
        let direction = match (from, to) {
            // A migration between NUMA nodes of the host, whose causes have other numbers.
            (0, 0) => return,
            (0, _) => Direction::HostToDevice,
            (_, 0) => Direction::DeviceToHost,
            _ => Direction::DeviceToDevice,
        };
        let cause = Cause::of(cause);
        let moves = &mut self.sums.migrations[cause as usize][direction as usize];
        moves.count += 1;
        moves.bytes = moves.bytes.saturating_add(bytes);
        // The driver migrates within a block; an event that says otherwise moves the first one only.
        let offset = address % BLOCK;
        let bytes = bytes.min(BLOCK - offset);
        let Some(block) = self.block(address) else { return };
        block.count = block.count.saturating_add(1);
        block.place = to;
        let parts = parts(offset, bytes);
        for mask in [
            &mut block.on_gpu,
            &mut block.evicted,
            &mut block.prefetched,
            &mut block.mapped,
        ] {
            *mask &= !parts;
        }
        let (mask, sum) = match (direction, cause) {
            (Direction::HostToDevice | Direction::DeviceToDevice, _) => (&mut block.on_gpu, &mut block.to_gpu),
            (Direction::DeviceToHost, Cause::Eviction) => (&mut block.evicted, &mut block.to_cpu),
            (Direction::DeviceToHost, Cause::User) => (&mut block.prefetched, &mut block.to_cpu),
            (Direction::DeviceToHost, _) => (&mut block.mapped, &mut block.to_cpu),
        };
        *mask |= parts;
        *sum = sum.saturating_add(bytes);
    }

    /// Returns the block that holds an address. `None` if the table has no room for a new one.
    fn block(&mut self, address: u64) -> Option<&mut BlockMoves> {
        let start = address - address % BLOCK;
        let full = self.blocks.len() >= MOST_BLOCKS;
        let place = match self.places.get(&start) {
            Some(&place) => place,
            None if full => {
                self.sums.blocks_left_out += 1;
                return None;
            }
            None => {
                self.places.insert(start, self.blocks.len());
                self.blocks.push(BlockMoves {
                    start,
                    ..BlockMoves::default()
                });
                self.blocks.len() - 1
            }
        };
        self.blocks.get_mut(place)
    }
}

/// Returns a bit mask of the parts that `bytes` from `offset` of a block touch.
fn parts(offset: u64, bytes: u64) -> u32 {
    if bytes == 0 {
        return 0;
    }
    let (first, last) = (offset / PART, (offset + bytes - 1).min(BLOCK - 1) / PART);
    let below = |n: u64| if n >= 32 { u32::MAX } else { (1u32 << n) - 1 };
    below(last + 1) & !below(first)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn entry(bytes: &[u8], words: &[(usize, u64)]) -> [u8; ENTRY] {
        let mut entry = [0; ENTRY];
        entry[..bytes.len()].copy_from_slice(bytes);
        for (at, word) in words {
            entry[*at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        entry
    }

    fn migration(cause: u8, from: u8, to: u8, address: u64, bytes: u64) -> [u8; ENTRY] {
        entry(&[abi::MIGRATION, cause, from, to], &[(8, address), (16, bytes)])
    }

    const ADDRESS: u64 = 0x7f00_0000_0000;

    #[test]
    fn the_last_migration_says_where_a_part_is() {
        let mut events = Aggregator::default();
        events.take(&migration(2, 0, 1, ADDRESS, BLOCK));
        events.take(&migration(2, 1, 0, ADDRESS + PART, 4096));
        events.take(&migration(4, 1, 0, ADDRESS + 31 * PART, PART));
        let expected = BlockMoves {
            start: ADDRESS,
            to_gpu: BLOCK,
            to_cpu: 4096 + PART,
            count: 3,
            on_gpu: !(1 << 1 | 1 << 31),
            evicted: 1 << 31,
            mapped: 1 << 1,
            ..BlockMoves::default()
        };
        assert_eq!(events.blocks, [expected]);
        events.take(&migration(3, 0, 2, ADDRESS + 31 * PART, PART));
        let block = events.blocks[0];
        assert_eq!((block.place, block.evicted, block.on_gpu), (2, 0, !(1 << 1)));
        events.take(&migration(1, 2, 0, ADDRESS, PART));
        let block = events.blocks[0];
        assert_eq!((block.prefetched, block.on_gpu), (1, !(1 << 1 | 1)));
        let moves = |count, bytes| Moves { count, bytes };
        let sums = events.sums;
        assert_eq!(sums.moves(Cause::Fault, Direction::HostToDevice), moves(1, BLOCK));
        assert_eq!(sums.moves(Cause::Fault, Direction::DeviceToHost), moves(1, 4096));
        assert_eq!(sums.moves(Cause::Eviction, Direction::DeviceToHost), moves(1, PART));
        assert_eq!(sums.moves(Cause::Prefetch, Direction::HostToDevice), moves(1, PART));
    }

    #[test]
    fn hostile_events_are_counted_and_harm_nothing() {
        let mut events = Aggregator::default();
        events.take(&migration(200, 0, 1, u64::MAX, u64::MAX));
        events.take(&migration(0, 0, 1, ADDRESS + BLOCK - 1, u64::MAX));
        events.take(&migration(1, 0, 0, ADDRESS, 1));
        events.take(&entry(&[255], &[]));
        assert_eq!(events.sums.moves(Cause::Other, Direction::HostToDevice).count, 2);
        assert_eq!(events.blocks.len(), 2);
        assert_eq!(events.blocks[1].on_gpu, 1 << 31);
    }

    #[test]
    fn blocks_beyond_the_limit_are_counted() {
        let mut events = Aggregator::default();
        for n in 0..MOST_BLOCKS as u64 + 3 {
            events.take(&migration(2, 0, 1, ADDRESS + n * BLOCK, 4096));
        }
        assert_eq!((events.blocks.len(), events.sums.blocks_left_out), (MOST_BLOCKS, 3));
        assert_eq!(
            events.sums.moves(Cause::Fault, Direction::HostToDevice).count,
            MOST_BLOCKS as u64 + 3
        );
    }

    #[test]
    fn thrashing_marks_its_block() {
        let mut events = Aggregator::default();
        events.take(&entry(&[abi::THRASHING], &[(8, 3), (16, ADDRESS + 4096), (24, 4096)]));
        events.take(&entry(&[abi::THROTTLING, 1], &[(8, ADDRESS)]));
        events.take(&entry(&[abi::MAP_REMOTE, 1, 0, 2], &[(8, ADDRESS)]));
        assert!(events.blocks[0].thrashed);
        let sums = events.sums;
        assert_eq!((sums.thrashing, sums.throttled, sums.remote), (1, 1, 1));
    }
}
