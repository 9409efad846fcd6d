//! Managed memory as programs publish it: ranges with tags and advice, and of simulated devices the pages.

use std::sync::Arc;

use gpumem_channel::{ManagedBlock, ManagedCounters, ManagedRange, Preferred, Snapshot};
use gpumem_probe::{
    BLOCK, BlockMoves, Cause, Counters, Direction, EventSums, Events, ManagedRange as PageRange, Moves, PAGE, Resident,
    Spans,
};

use super::managed::{Causes, Counting, KnownCauses, ManagedProcess, ManagedSums, Origin, Pages};

/// The largest range of a simulated device whose pages are shown, in bytes.
const LARGEST: u64 = 1 << 40;

/// A range that a program published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublishedRange {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// Its tag; empty if it has none.
    pub tag: Arc<str>,
    /// Where the program advised the driver to keep it.
    pub preferred: Preferred,
    /// Whether the program advised the driver that it is mostly read.
    pub read_mostly: bool,
}

impl PublishedRange {
    /// Describes it by its tag and the advice on it; `None` if it has neither.
    pub(crate) fn words(&self) -> Option<String> {
        let tag = Some(&*self.tag).filter(|tag| !tag.is_empty()).map(str::to_owned);
        let preferred = match self.preferred {
            Preferred::Cpu => Some("prefers the CPU"),
            Preferred::Device => Some("prefers the GPU"),
            Preferred::Nowhere | Preferred::Unknown(_) => None,
        };
        let read_mostly = self.read_mostly.then_some("read-mostly");
        let parts: Vec<String> = tag
            .into_iter()
            .chain([preferred, read_mostly].into_iter().flatten().map(str::to_owned))
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// What a process publishes of its managed memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PublishedManaged {
    /// Its ranges by address.
    pub ranges: Vec<PublishedRange>,
    /// The memory itself, if its device is simulated. Of a real one the driver and the kernel know more.
    pub simulated: Option<(ManagedProcess, Causes)>,
}

impl PublishedManaged {
    /// Takes what a channel says; `None` if it has no managed ranges. `simulated` says whether its device is.
    pub(crate) fn of(snapshot: &Snapshot, simulated: bool) -> Option<PublishedManaged> {
        let managed = snapshot.managed.as_ref().filter(|managed| !managed.ranges.is_empty())?;
        let ranges = managed.ranges.iter().map(|range| PublishedRange {
            start: range.addr,
            bytes: range.size,
            tag: snapshot.strings.get(range.tag.0 as usize).cloned().unwrap_or_default(),
            preferred: range.preferred,
            read_mostly: range.read_mostly,
        });
        Some(PublishedManaged {
            ranges: ranges.collect(),
            simulated: simulated.then(|| {
                let counters = managed.figures.counters.unwrap_or_default();
                let left_out = usize::try_from(managed.figures.ranges_left_out).unwrap_or(usize::MAX);
                of_model(
                    &managed.ranges,
                    (&managed.blocks, left_out),
                    &counters,
                    snapshot.read_at,
                )
            }),
        })
    }

    /// Adds what another channel of the same process says.
    pub(crate) fn add(&mut self, other: PublishedManaged) {
        self.ranges.extend(other.ranges);
        self.ranges.sort_by_key(|range| range.start);
        if self.simulated.is_none() {
            self.simulated = other.simulated;
        }
    }

    /// Returns the range that contains an address.
    pub(crate) fn range_of(&self, addr: u64) -> Option<&PublishedRange> {
        let behind = self.ranges.partition_point(|range| range.start <= addr);
        let range = self.ranges.get(behind.checked_sub(1)?)?;
        (addr - range.start < range.bytes).then_some(range)
    }
}

/// Returns a model's memory in the form that observed memory has.
fn of_model(
    ranges: &[ManagedRange],
    (blocks, left_out): (&[ManagedBlock], usize),
    counters: &ManagedCounters,
    at: u64,
) -> (ManagedProcess, Causes) {
    let shown = ranges.iter().filter(|range| range.size <= LARGEST);
    let residents: Vec<Resident> = shown.clone().filter_map(|range| resident(range, blocks)).collect();
    let left_out = left_out.saturating_add(ranges.len() - residents.len());
    let pages = Pages {
        at,
        ranges: residents,
        left_out,
    };
    let causes = Causes::On(Box::new(KnownCauses::new(Events {
        sums: sums_of(counters),
        blocks: blocks.iter().map(moves_of).collect(),
        processors: Vec::new(),
    })));
    let present = pages.ranges.iter().map(|range| u64::from(range.spans.present()) * PAGE);
    let sums = ManagedSums {
        ranges: ranges.len(),
        bytes: ranges.iter().fold(0, |sum: u64, range| sum.saturating_add(range.size)),
        on_cpu: present.sum(),
        origin: Origin::Unknown,
    };
    let total = |moves: &[gpumem_channel::ManagedMoves]| {
        let bytes = moves.iter().map(|moves| moves.bytes);
        bytes.fold(0, u64::saturating_add)
    };
    let process = ManagedProcess {
        sums: Ok(sums),
        places: pages.sums(Some(&causes)),
        pages: Some(Arc::new(pages)),
        counting: Counting::On(Counters {
            to_gpu: total(&counters.to_gpu),
            to_cpu: total(&counters.to_cpu),
            cpu_faults: counters.cpu_faults,
            gpu_faults: counters.gpu_faults,
        }),
    };
    (process, causes)
}

/// Returns a range in whole pages, with those that its blocks have on the CPU.
fn resident(range: &ManagedRange, blocks: &[ManagedBlock]) -> Option<Resident> {
    let start = range.addr / PAGE * PAGE;
    let end = range.addr.checked_add(range.size)?.checked_next_multiple_of(PAGE)?;
    let mut spans = Spans::new(u32::try_from((end - start) / PAGE).ok()?);
    let first = blocks.partition_point(|block| block.addr.saturating_add(BLOCK) <= start);
    for block in blocks[first..].iter().take_while(|block| block.addr < end) {
        for page in (0..BLOCK / PAGE).filter(|page| block.on_cpu[(page / 64) as usize] >> (page % 64) & 1 == 1) {
            let addr = block.addr + page * PAGE;
            if (start..end).contains(&addr) {
                let page = ((addr - start) / PAGE) as u32;
                spans.push(page..page + 1);
            }
        }
    }
    let range = PageRange { start, end };
    Some(Resident { range, spans })
}

fn moves_of(block: &ManagedBlock) -> BlockMoves {
    BlockMoves {
        start: block.addr,
        to_gpu: block.to_gpu,
        to_cpu: block.to_cpu,
        count: block.moves,
        place: u8::from(block.on_gpu != 0),
        thrashed: block.thrashed,
        on_gpu: block.on_gpu,
        evicted: block.evicted,
        ..BlockMoves::default()
    }
}

fn sums_of(counters: &ManagedCounters) -> EventSums {
    let mut sums = EventSums {
        cpu_faults: counters.cpu_faults,
        gpu_faults: counters.gpu_faults,
        thrashing: counters.thrashing,
        throttled: counters.throttled,
        remote: counters.remote,
        ..EventSums::default()
    };
    // In the order in which the channel has them.
    let causes = [Cause::User, Cause::Fault, Cause::Prefetch, Cause::Eviction];
    for (direction, all) in [
        (Direction::HostToDevice, &counters.to_gpu),
        (Direction::DeviceToHost, &counters.to_cpu),
    ] {
        for (cause, moves) in causes.into_iter().zip(all) {
            sums.migrations[cause as usize][direction as usize] = Moves {
                count: moves.count,
                bytes: moves.bytes,
            };
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use gpumem_channel::{Managed, ManagedFigures, ManagedMoves, StringId};

    use super::*;

    const START: u64 = 64 << 20;

    fn snapshot(ranges: &[(u64, u64)], blocks: Vec<ManagedBlock>) -> Snapshot {
        let range = |&(addr, size): &(u64, u64)| ManagedRange {
            addr,
            size,
            tag: StringId(1),
            preferred: Preferred::Cpu,
            ..ManagedRange::default()
        };
        let moves = |bytes| ManagedMoves { count: 1, bytes };
        let counters = ManagedCounters {
            to_gpu: [1, 20, 300, 4000].map(moves),
            to_cpu: [0, 0, 0, BLOCK].map(moves),
            gpu_faults: 9,
            ..ManagedCounters::default()
        };
        Snapshot {
            managed: Some(Managed {
                ranges: ranges.iter().map(range).collect(),
                blocks,
                figures: ManagedFigures {
                    counters: Some(counters),
                    ..ManagedFigures::default()
                },
            }),
            strings: ["", "weights"].map(Arc::from).into(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn pages_of_a_model_are_those_of_its_blocks() {
        let block = ManagedBlock {
            addr: START,
            on_cpu: [0b1011, 0, 0, 0, 0, 0, 0, 1 << 63],
            on_gpu: 1 << 1,
            evicted: 1 << 2,
            ..ManagedBlock::default()
        };
        // The range ends in the middle of its second block, of which nothing was touched.
        let snapshot = snapshot(&[(START, BLOCK + 5 * PAGE - 7)], vec![block]);
        let published = PublishedManaged::of(&snapshot, true).unwrap();
        let (process, causes) = published.simulated.unwrap();
        let places = process.places;
        assert_eq!((places.cpu, places.gpu, places.evicted), (4 * PAGE, 64 << 10, 64 << 10));
        let all = BLOCK + 5 * PAGE;
        assert_eq!(places.elsewhere, all - places.cpu - places.gpu - places.evicted);
        let Counting::On(counters) = process.counting else {
            panic!("a model is counted");
        };
        assert_eq!(
            (counters.to_gpu, counters.to_cpu, counters.gpu_faults),
            (4321, BLOCK, 9)
        );
        let sums = causes.known().unwrap().events.sums;
        assert_eq!(sums.moves(Cause::Prefetch, Direction::HostToDevice).bytes, 300);
        assert_eq!(sums.moves(Cause::Eviction, Direction::DeviceToHost).bytes, BLOCK);
    }

    #[test]
    fn absurd_ranges_of_a_model_are_left_out() {
        let snapshot = snapshot(&[(START, PAGE), (1 << 50, 1 << 55), (u64::MAX - 3, 2)], Vec::new());
        let (process, _) = PublishedManaged::of(&snapshot, true).unwrap().simulated.unwrap();
        let pages = process.pages.unwrap();
        assert_eq!((pages.ranges.len(), pages.left_out), (1, 2));
    }

    #[test]
    fn range_is_found_by_address_and_described() {
        let snapshot = snapshot(&[(START, PAGE), (START + 2 * PAGE, PAGE)], Vec::new());
        let published = PublishedManaged::of(&snapshot, false).unwrap();
        assert!(published.simulated.is_none());
        let words = |addr| published.range_of(addr).and_then(PublishedRange::words);
        assert_eq!(words(START + PAGE - 1).as_deref(), Some("weights, prefers the CPU"));
        assert_eq!(words(START + PAGE), None);
        assert_eq!(words(START - 1), None);
    }
}
