//! Kills a writer between any two of its stores: every operation is interrupted after its first store, its second, and
//! so on. A reader opened before the kill and one opened after it must both show a state that existed, or report that
//! they cannot.
#![allow(clippy::unwrap_used)]

use std::cell::Cell as StdCell;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use crate::cells::Touched;
use crate::layout::{Capacity, Layout};
use crate::record::{Block, BlockState, Device, Event, EventKind, Segment};
use crate::snapshot::Snapshot;
use crate::stats::DeviceStats;
use crate::word::{Word, Words};
use crate::writer::Writer;
use crate::{Life, Reader};

mod fences;
mod lanes;
mod operations;

use operations::{LAST, OPERATIONS};

thread_local! {
    /// Number of stores until the kill.
    static LEFT: StdCell<u64> = const { StdCell::new(u64::MAX) };
}

/// A word that ignores stores once the writer is dead.
#[derive(Clone)]
struct CrashWord(StdCell<u64>);

impl Word for CrashWord {
    fn get(&self) -> u64 {
        self.0.get()
    }
    fn put(&self, value: u64) {
        fences::stored(self);
        if let Some(left) = LEFT.get().checked_sub(1) {
            LEFT.set(left);
            self.0.set(value);
        }
    }
    fn release_fence() {
        fences::passed();
    }
    fn acquire_fence() {}
}

/// The words of a file, shared by several writers.
type Memory = Rc<Vec<CrashWord>>;

impl Words for Memory {
    type W = CrashWord;
    fn here(&self) -> Option<&[CrashWord]> {
        Some(self)
    }
}

const CAPACITY: Capacity = Capacity {
    devices: 1,
    segments: 4,
    blocks: 16,
    events: 16,
    strings: 4,
    lanes: 2,
    lane_events: 16,
};
const SEGMENT: Segment = Segment {
    addr: 1 << 30,
    size: 4096,
    mapped: 4096,
    device: 0,
    pool: crate::PoolId::SMALL,
    kind: crate::SegmentKind::Plain,
    stream: 0,
    chunk: 0,
    time: 0,
    tag: crate::StringId(0),
    pool_name: crate::StringId(0),
};

fn block(offset: u64, size: u64, state: BlockState) -> Block {
    let requested = if state == BlockState::Allocated { size - 8 } else { 0 };
    Block {
        addr: SEGMENT.addr + offset,
        size,
        requested,
        state,
        ..Block::default()
    }
}

fn show(writer: &mut Writer<Memory>, slot: u32, block: Block, next: Option<u32>) {
    assert!(writer.block(slot, 0, block.state, &block, next));
}

fn figures(blocks: u64) -> DeviceStats {
    let mut stats = DeviceStats::default();
    stats.small.allocation.add(blocks);
    stats.small.allocated_bytes.add(blocks * 512);
    stats
}

fn small(kind: EventKind) -> Event {
    Event {
        kind,
        size: 512,
        requested: 504,
        pool: crate::PoolId::SMALL,
        ..Event::default()
    }
}

fn fresh() -> Writer<Memory> {
    let layout = Layout::new(CAPACITY);
    let mut words = vec![CrashWord(StdCell::new(0)); layout.len];
    for (word, value) in words.iter_mut().zip(layout.header()) {
        word.0.set(value);
    }
    let boot = crate::identity::pack(&crate::identity::of_process(&crate::Options::default()).unwrap());
    for (word, value) in words[crate::format::IDENTITY..].iter_mut().zip(boot) {
        word.0.set(value);
    }
    let mut writer = Writer::new(Rc::new(words), layout);
    LEFT.set(u64::MAX);
    writer.device(
        0,
        &Device {
            total: 1 << 20,
            ..Device::default()
        },
    );
    writer.stats(0, &figures(0), Touched::ALL);
    writer
}

fn write(writer: &Writer<Memory>, file: &std::fs::File) {
    let bytes: Vec<u8> = writer
        .memory()
        .words()
        .iter()
        .flat_map(|w| w.0.get().to_le_bytes())
        .collect();
    file.write_all_at(&bytes, 0).unwrap();
}

/// Returns the blocks of a snapshot without their times, to compare them with a state that existed.
fn shape(snapshot: &Snapshot) -> Option<Vec<Block>> {
    let map = snapshot.devices[0].segments.first()?;
    map.complete.then(|| map.blocks.to_vec())
}

#[test]
fn kill_between_any_two_stores_leaves_an_earlier_state() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("1-1-0.gpumem");
    for cut in 0..OPERATIONS.len() {
        let mut stores = 0;
        loop {
            let mut writer = fresh();
            for operation in &OPERATIONS[..cut] {
                operation(&mut writer);
            }
            let file = std::fs::File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(&path)
                .unwrap();
            write(&writer, &file);
            crate::life::hold(&file).unwrap();
            let mut witness = Reader::open(&path).unwrap();
            let before = witness.refresh().unwrap();
            let seen = before.event_count;

            LEFT.set(stores);
            OPERATIONS[cut](&mut writer);
            let finished = LEFT.get() > 0;
            LEFT.set(u64::MAX);
            write(&writer, &file);

            // Stopped, not yet dead: the reader shows the old state or the new one, never a mixture, and always the
            // figures.
            let stopped = witness.refresh().unwrap();
            assert!(
                [expected(cut), expected(cut + 1)].contains(&shape(&stopped)),
                "{cut}: {stores}"
            );
            assert!(stopped.devices[0].stats.is_some());
            // A reader opened now may have to wait for the map, but never shows a part of one.
            let newcomer = Reader::open(&path).unwrap().refresh().unwrap();
            assert!(
                [None, expected(cut), expected(cut + 1)].contains(&shape(&newcomer)),
                "{cut}: {stores}"
            );
            assert!(newcomer.devices[0].segments.iter().all(|map| map.complete));
            drop(file);

            // Dead: both readers agree, the black box is complete or marked as incomplete, and the last event names the
            // operation.
            let mut late = Reader::open(&path).unwrap();
            let ends = [&mut witness, &mut late].map(|reader| reader.refresh().unwrap());
            assert_eq!(ends[0].devices, ends[1].devices, "{cut}: {stores}");
            for dead in ends {
                assert_eq!(dead.life, Life::Died);
                assert_eq!(dead.malformed_segments, 0);
                let stats = dead.devices[0].stats.unwrap();
                assert_eq!(
                    stats.small.allocated_bytes.current,
                    stats.small.allocation.current * 512,
                    "{cut}: {stores}"
                );
                if let Some(shape) = shape(&dead) {
                    assert!(
                        [expected(cut), expected(cut + 1)].contains(&Some(shape)),
                        "{cut}: {stores}"
                    );
                } else if shape(&before).is_some() {
                    assert_eq!(
                        dead.event_count,
                        seen + 1,
                        "an operation was interrupted, and its event names it"
                    );
                    assert!(
                        cut == LAST || dead.devices[0].segments.len() == 1,
                        "{cut}: {stores}: the stored part is shown as incomplete"
                    );
                }
            }
            if finished {
                break;
            }
            stores += 1;
        }
        assert!(stores > 20, "the operation was interrupted in {stores} places only");
    }
}

/// Returns the blocks after the first `n` operations.
fn expected(n: usize) -> Option<Vec<Block>> {
    use BlockState::{Allocated, Free};
    Some(match n {
        0 | 7 => return None,
        1 | 4 | 6 => vec![block(0, 4096, Free)],
        2 | 5 => vec![block(0, 512, Allocated), block(512, 3584, Free)],
        _ => vec![block(0, 512, Allocated), block(512, 3584, Allocated)],
    })
}
