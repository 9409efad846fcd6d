//! Snapshots as PyTorch's viewer reads them: it goes back from the segments that are there through all events.

use std::collections::BTreeMap;

use gpumem_alloc::device::Timeline;
use gpumem_alloc::{Buffer, Config, History, SegmentMode, Snapshot, Stacks, Stream};
use gpumem_snapshot::Action;

use crate::common::{MIB, get, of, start};

/// What it knows of memory: by where it begins where it ends, and its stream.
#[derive(Default)]
struct Viewer(BTreeMap<u64, (u64, i64)>);

impl Viewer {
    fn end(snapshot: &Snapshot) -> Viewer {
        let segments = snapshot.segments.iter();
        Viewer(
            segments
                .map(|s| (s.address, (s.address + s.total_size, s.stream)))
                .collect(),
        )
    }

    /// It was unmapped afterwards. What lies side by side becomes one if it is of one stream.
    fn map(&mut self, mut from: u64, mut to: u64, stream: i64) {
        if let Some((end, _)) = self.0.get(&to).copied().filter(|(_, its)| *its == stream) {
            self.0.remove(&to);
            to = end;
        }
        let before = self.0.range(..from).next_back().map(|(begin, part)| (*begin, *part));
        if let Some((begin, _)) = before.filter(|(_, part)| *part == (from, stream)) {
            from = begin;
        }
        self.0.insert(from, (to, stream));
    }

    /// It was mapped by this event. Where it does not find all of it in one piece it ends with an error.
    fn unmap(&mut self, from: u64, to: u64) {
        let part = self.0.range(..=from).next_back().map(|(begin, part)| (*begin, *part));
        let (begin, (end, stream)) = part
            .filter(|(_, (end, _))| to <= *end)
            .unwrap_or_else(|| panic!("{from:#x} to {to:#x} is not one piece, but {part:x?}"));
        self.0.remove(&begin);
        if begin < from {
            self.0.insert(begin, (from, stream));
        }
        if to < end {
            self.0.insert(to, (end, stream));
        }
    }
}

fn view(snapshot: &Snapshot) {
    let mut viewer = Viewer::end(snapshot);
    for event in snapshot.device_traces[0].iter().rev() {
        let (from, to) = (event.addr, event.addr + event.size);
        match event.action {
            Action::SegmentUnmap => viewer.map(from, to, event.stream),
            Action::SegmentMap => viewer.unmap(from, to),
            Action::SegmentFree => _ = viewer.0.insert(from, (to, event.stream)),
            Action::SegmentAlloc => assert!(viewer.0.remove(&from).is_some()),
            _ => {}
        }
    }
    assert!(viewer.0.is_empty(), "the history has all of it: {:x?}", viewer.0);
}

fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state as usize
}

/// Memory moves and goes, and so do streams, that of whom the memory was taken for among them.
#[test]
fn it_finds_what_was_mapped() {
    for segments in [SegmentMode::Plain, SegmentMode::Virtual, SegmentMode::Stitched] {
        let config = Config {
            history: History::On {
                max_events: 1 << 20,
                stacks: Stacks::None,
            },
            ..of(segments)
        };
        let (sim, alloc) = start(1 << 30, Timeline::Immediate, config);
        let (mut state, mut held) = (88_172_645_463_325_252, Vec::<Buffer<u8>>::new());
        let mut streams = [11, 12, 13].map(Stream);
        for round in 0..1500u64 {
            let stream = streams[random(&mut state) % streams.len()];
            let bytes = (random(&mut state) % (40 * MIB)).max(1);
            held.extend(alloc.alloc(bytes, stream).ok());
            while held.len() > 20 {
                drop(held.swap_remove(random(&mut state) % held.len()));
            }
            if round % 20 == 7 {
                // Sixteen that have ended are kept in mind at least.
                let at = (round / 20) as usize % streams.len();
                alloc.retire_stream(streams[at]).unwrap();
                sim.destroy_stream(streams[at]);
                streams[at] = Stream(100 + round);
            }
            match round % 100 {
                20 => _ = alloc.compact().unwrap(),
                40 => _ = alloc.release_cached().unwrap(),
                99 => view(&alloc.snapshot().unwrap()),
                _ => {}
            }
        }
        assert_eq!(alloc.history().unwrap().dropped, 0);
    }
}

/// A block whose free is completed later than it is requested is shown as waiting for other streams until then.
#[test]
fn stitched_blocks_that_wait_for_nobody_are_not_shown_as_waiting() {
    let config = Config {
        history: History::ON,
        ..of(SegmentMode::Stitched)
    };
    let (_sim, alloc) = start(1 << 30, Timeline::Immediate, config);
    let mut blocks: Vec<_> = (0..8).map(|_| Some(get(&alloc, 20))).collect();
    blocks.iter_mut().step_by(2).for_each(|block| *block = None);
    drop(get(&alloc, 60));
    let snapshot = alloc.snapshot().unwrap();
    let trace = &snapshot.device_traces[0];
    let pieces = trace.iter().rev().take_while(|event| event.action != Action::Alloc);
    assert!(pieces.count() >= 6, "three pieces at least");
    for two in trace.windows(2).filter(|two| two[1].action == Action::FreeCompleted) {
        assert_eq!((two[0].action, two[0].addr), (Action::FreeRequested, two[1].addr));
    }
}
