//! How a program ends.

use std::collections::BTreeMap;
use std::time::Duration;

use gpumem_alloc::device::{Call, Live, Sim};
use gpumem_alloc::{Allocator, Snapshot, Stream};
use gpumem_channel::Reader;
use gpumem_snapshot::{Action, BlockState, StackId};

use crate::everything::world::{Held, Open, What};

/// What is left when all threads are gone is as it was counted, and goes.
pub(crate) fn finish(
    sim: &Sim,
    alloc: Allocator,
    held: Vec<Held>,
    pools: Vec<Open>,
    ranges: &BTreeMap<u64, u64>,
    faults: &[(Call, u64)],
) {
    for open in &pools {
        while alloc.end_allocate_to_pool(&open.pool).unwrap() {}
    }
    // Nothing is pending then.
    alloc.release_cached().unwrap();
    let mut reader = Reader::open(&alloc.channel().unwrap()).unwrap();
    judge_published(&alloc, &mut reader);
    judge_held(&alloc, &held);
    assert_eq!(
        ranges.len(),
        held.iter().filter(|held| held.bytes > 0).count(),
        "nobody else's"
    );
    for held in held {
        if let What::Raw(addr) = held.what {
            alloc.free_raw(addr).unwrap();
        }
    }
    drop(pools);
    alloc.release_cached().unwrap();
    let all = alloc.stats().all();
    assert_eq!(
        (all.allocation.current, all.active.current, all.requested_bytes.current),
        (0, 0, 0)
    );
    assert_eq!((all.reserved_bytes.current, sim.live().bytes), (0, 0));
    judge_published(&alloc, &mut reader);
    alloc.set_budget(None).unwrap();
    drop(alloc.alloc::<u8>(1000, Stream(1)).unwrap());
    // Fewer than it is tried.
    faults.iter().for_each(|(call, times)| sim.fail_next(*call, *times));
    drop(alloc);
    assert_eq!(sim.live(), Live::default());
    assert_eq!(sim.violations(), Vec::<String>::new());
}

/// The channel shows what the allocator says.
fn judge_published(alloc: &Allocator, reader: &mut Reader) {
    // A monitor may change something in between, but not each time.
    let mut same = || reader.refresh().unwrap().devices[0].stats == Some(alloc.stats());
    let shown = same()
        || (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            same()
        });
    assert!(shown);
    let shown = reader.refresh().unwrap();
    assert_eq!(shown.devices[0].device.budget, alloc.budget().unwrap_or(0));
    assert_eq!((shown.malformed_segments, shown.devices[0].contradiction), (0, None));
}

/// Figures, history and snapshot are of what is held.
fn judge_held(alloc: &Allocator, held: &[Held]) {
    let held: Vec<&Held> = held.iter().filter(|held| held.bytes > 0).collect();
    let requested: u64 = held.iter().map(|held| held.bytes).sum();
    let least: u64 = held.iter().map(|held| held.size).sum();
    let (count, all) = (held.len() as u64, alloc.stats().all());
    assert_eq!(
        (all.allocation.current, all.requested_bytes.current),
        (count, requested)
    );
    assert!(all.allocated_bytes.current >= least);
    if let Some(leaks) = alloc.leaks(0) {
        let sum = leaks
            .leaks
            .iter()
            .fold((0, 0), |sum, leak| (sum.0 + leak.blocks, sum.1 + leak.bytes));
        assert_eq!(sum, (count, all.allocated_bytes.current));
        assert_eq!(alloc.history().unwrap().held, count);
        let peak = alloc.peak().unwrap();
        assert!(peak.allocated >= sum.1);
        let owned: u64 = peak.owners.iter().map(|owner| owner.bytes).sum();
        assert_eq!(owned, peak.allocated);
    }
    let taken = alloc.snapshot().unwrap();
    assert_eq!(taken.check(), []);
    let blocks = taken.segments.iter().flat_map(|segment| &segment.blocks);
    let active = blocks.filter(|block| block.state == BlockState::ActiveAllocated);
    assert_eq!(active.map(|block| block.requested_size).sum::<u64>(), requested);
    judge_written(&taken);
}

/// A snapshot that is written and read again tells the same.
fn judge_written(taken: &Snapshot) {
    let (mut json, mut pickle) = (Vec::new(), Vec::new());
    taken.write_json(&mut json).unwrap();
    taken.write_pickle(&mut pickle).unwrap();
    for bytes in [json, pickle] {
        let read = Snapshot::from_bytes(&bytes).unwrap();
        assert!(blocks(&read) == blocks(taken), "the blocks are others");
        assert!(events(&read) == events(taken), "the events are others");
    }
}

/// Function and line, innermost first.
type Frames = Vec<(String, i64)>;

fn frames(shot: &Snapshot, stack: StackId) -> Frames {
    let frames = shot.tables.get_stack(stack).iter();
    let frames = frames.map(|at| shot.tables.get_frame(*at).unwrap());
    frames
        .map(|frame| (shot.tables.get_text(frame.name).to_owned(), frame.line))
        .collect()
}

/// Segments with pool and stream, and their blocks: addresses, sizes, states and who asked for them.
fn blocks(shot: &Snapshot) -> Vec<([u64; 7], BlockState, Frames)> {
    let blocks = shot.segments.iter().flat_map(|segment| {
        let (pool, _) = segment.segment_pool_id;
        let place = [segment.address, segment.total_size, segment.stream as u64, pool];
        segment.blocks.iter().map(move |block| (place, block))
    });
    blocks
        .map(|([segment, total, stream, pool], b)| {
            let numbers = [segment, total, stream, pool, b.address, b.size, b.requested_size];
            (numbers, b.state, frames(shot, b.frames))
        })
        .collect()
}

fn events(shot: &Snapshot) -> Vec<(Action, [u64; 4], Option<Frames>)> {
    let events = shot.device_traces.iter().flatten();
    events
        .map(|e| {
            let numbers = [e.addr, e.size, e.stream as u64, e.time_us];
            (e.action, numbers, e.frames.map(|stack| frames(shot, stack)))
        })
        .collect()
}
