//! The history against a naive one: lists that are added up anew for every question.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use gpumem_channel::{PoolStats, StringId};
use gpumem_snapshot::{Action, BlockState, Snapshot, TraceEntry};

use crate::heap::tests::heap_on;
use crate::heap::{Grant, Heap};
use crate::history::{History, Stacks};
use crate::stack::Stack;
use crate::tag::{self, Tag};

/// Every address that a segment may begin or end at is a multiple of this.
const PAGE: u64 = 2 << 20;

/// Bytes and blocks of an owner: its tag and its call stack.
type Owners = BTreeMap<(String, Stack), (u64, u64)>;

struct Block {
    addr: u64,
    size: u64,
    owner: (String, Stack),
    /// 0: from before the history.
    step: u64,
}

/// What was held: blocks, and bytes of them.
type Held = [u64; 2];

/// All that a history should know, and how much was held.
#[derive(Default)]
pub(in crate::heap) struct Naive {
    /// All so far, and the most at once since peaks were reset.
    came: Held,
    most: Held,
    on: bool,
    held: Vec<Block>,
    peak: u64,
    owners_at_peak: Owners,
    steps: u64,
    /// When the history began.
    before: Snapshot,
}

fn sum<'a>(blocks: impl Iterator<Item = &'a Block>) -> Owners {
    let mut owners = Owners::new();
    for block in blocks {
        let owned = owners.entry(block.owner.clone()).or_default();
        owned.0 += block.size;
        owned.1 += 1;
    }
    owners
}

/// Who asks for so many bytes: one of four tags at one of five places.
pub(in crate::heap) fn caller(bytes: u64) -> (Tag, Stack) {
    let _scope = match bytes % 4 {
        0 => None,
        n => Some(tag::scope(["a", "b", "c"][n as usize - 1])),
    };
    let stack = match bytes % 5 {
        0 => Stack::NONE,
        n => Stack::of(&[n, 77]),
    };
    (tag::current(), stack)
}

impl Naive {
    /// The history is switched on anew, or off.
    pub(in crate::heap) fn record(&mut self, heap: &mut Heap, max_events: Option<usize>) {
        let history = max_events.map_or(History::Off, |max_events| History::On {
            max_events,
            stacks: Stacks::All,
        });
        heap.record_history(history).unwrap();
        heap.set_lending(max_events.is_none());
        self.on = max_events.is_some();
        for block in &mut self.held {
            (block.step, block.owner.1) = (0, Stack::NONE);
        }
        (self.steps, self.peak) = (0, 0);
        self.owners_at_peak.clear();
        self.before = crate::export::snapshot(&heap.picture(), false);
        self.look();
    }

    pub(in crate::heap) fn allocated(&mut self, grant: Grant, (tag, stack): (Tag, Stack)) {
        self.held.push(Block {
            addr: grant.addr,
            size: grant.size,
            owner: (tag::name(tag), if self.on { stack } else { Stack::NONE }),
            step: self.steps + 1,
        });
        self.came = [self.came[0] + 1, self.came[1] + grant.size];
        self.look();
    }

    pub(in crate::heap) fn freed(&mut self, grant: Grant) {
        let at = self.held.iter().position(|block| block.addr == grant.addr).unwrap();
        self.held.swap_remove(at);
    }

    pub(in crate::heap) fn step(&mut self, heap: &mut Heap) {
        heap.step();
        self.steps += u64::from(self.on);
    }

    /// The peak is what is held now.
    pub(in crate::heap) fn reset_peak(&mut self) {
        (self.peak, self.most) = (0, Held::default());
        self.owners_at_peak.clear();
        self.look();
    }

    fn look(&mut self) {
        let now: u64 = self.held.iter().map(|block| block.size).sum();
        let blocks = self.held.len() as u64;
        self.most = [self.most[0].max(blocks), self.most[1].max(now)];
        if now > self.peak {
            self.peak = now;
            self.owners_at_peak = sum(self.held.iter());
        }
    }

    /// The figures of what was held must be as here.
    pub(in crate::heap) fn judge_held(&self, all: &PoolStats) {
        let figures = [all.allocation, all.allocated_bytes];
        assert_eq!(figures.map(|figure| figure.allocated), self.came);
        assert_eq!(figures.map(|figure| figure.peak), self.most);
    }

    /// The heap's history must be as this one.
    pub(in crate::heap) fn judge(&self, heap: &Heap) {
        let Some(figures) = heap.history_figures() else {
            assert!(!self.on && heap.peak_report().is_none() && heap.leak_report(0).is_none());
            judge_snapshot(&crate::export::snapshot(&heap.picture(), false));
            return;
        };
        assert!(self.on);
        assert_eq!((figures.held, figures.steps), (self.held.len() as u64, self.steps));
        let recorder = heap.outlet().recorder().unwrap();
        let held: u64 = self.held.iter().map(|block| block.size).sum();
        assert_eq!(recorder.totals(), (held, heap.ledger.reserved()));
        let peak = heap.peak_report().unwrap();
        let owners = peak
            .owners
            .iter()
            .map(|o| ((o.tag.clone(), o.stack), (o.bytes, o.blocks)));
        assert_eq!(
            (peak.allocated, owners.collect::<Owners>()),
            (self.peak, self.owners_at_peak.clone())
        );
        for min_steps in [0, 1, 3] {
            let old = |block: &&Block| self.steps + 1 - block.step.max(1) >= min_steps;
            let report = heap.leak_report(min_steps).unwrap();
            let told = report
                .leaks
                .iter()
                .map(|l| ((l.tag.clone(), l.stack), (l.bytes, l.blocks)));
            assert_eq!(told.collect::<Owners>(), sum(self.held.iter().filter(old)));
            let all = sum(self.held.iter());
            for leak in &report.leaks {
                let held = (leak.held_bytes, leak.held_blocks);
                assert_eq!(all[&(leak.tag.clone(), leak.stack)], held);
            }
        }
        let snapshot = crate::export::snapshot(&heap.picture(), false);
        judge_snapshot(&snapshot);
        if figures.dropped == 0 {
            judge_trace(&self.before, &snapshot);
        }
        if figures.dropped > 0 {
            assert!(figures.events > 0 || snapshot.device_traces[0].is_empty());
        }
    }
}

/// The snapshot adds up, by PyTorch's rules.
fn judge_snapshot(snapshot: &Snapshot) {
    assert_eq!(snapshot.check(), []);
    assert_eq!(snapshot.device_traces.len(), 1);
}

/// Addresses with what was asked for there.
type Blocks = BTreeMap<u64, u64>;

fn blocks(snapshot: &Snapshot, state: BlockState) -> Blocks {
    let all = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let of_state = all.filter(|block| block.state == state);
    of_state.map(|block| (block.address, block.requested_size)).collect()
}

fn pages(snapshot: &Snapshot) -> BTreeSet<u64> {
    let segments = snapshot.segments.iter();
    segments
        .flat_map(|segment| range(segment.address, segment.total_size))
        .collect()
}

fn range(addr: u64, size: u64) -> impl Iterator<Item = u64> {
    assert!(
        addr.is_multiple_of(PAGE) && size.is_multiple_of(PAGE),
        "{addr:#x} {size}"
    );
    (addr / PAGE)..((addr + size) / PAGE)
}

/// What was there before, changed by the events one by one, is what is there now.
fn judge_trace(before: &Snapshot, now: &Snapshot) {
    let mut held = blocks(before, BlockState::ActiveAllocated);
    let mut waiting = blocks(before, BlockState::ActivePendingFree);
    let mut memory = pages(before);
    for TraceEntry { action, addr, size, .. } in &now.device_traces[0] {
        match action {
            Action::Alloc => assert_eq!(held.insert(*addr, *size), None, "{addr:#x} was held"),
            Action::FreeRequested => {
                assert_eq!(held.remove(addr), Some(*size), "{addr:#x} was held");
                waiting.insert(*addr, *size);
            }
            Action::FreeCompleted => assert!(waiting.remove(addr).is_some(), "{addr:#x} was waiting"),
            Action::SegmentAlloc | Action::SegmentMap => {
                range(*addr, *size).for_each(|page| assert!(memory.insert(page), "{addr:#x} had memory"));
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                range(*addr, *size).for_each(|page| assert!(memory.remove(&page), "{addr:#x} had no memory"));
            }
            _ => {}
        }
    }
    assert_eq!(held, blocks(now, BlockState::ActiveAllocated));
    assert_eq!(waiting, blocks(now, BlockState::ActivePendingFree));
    assert_eq!(memory, pages(now));
}

/// Numbers of tags that no channel gives still have names.
#[test]
fn tags_have_names_without_a_channel() {
    let sim = crate::device::Sim::new(crate::device::SimConfig::default());
    let mut heap = heap_on(&sim, crate::Config::default());
    let _scope = tag::scope("weights of naive");
    let grant = heap.allocate(5, crate::Stream::DEFAULT, tag::current()).unwrap();
    assert_ne!(heap.blocks[grant.block].tag, StringId(0));
    heap.record_history(History::ON).unwrap();
    assert_eq!(heap.peak_report().unwrap().owners[0].tag, "weights of naive");
}
