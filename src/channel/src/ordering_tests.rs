//! The ordering code under loom: every interleaving and every reordering that Rust's memory model allows, for the very
//! functions that run on mappings. Each fence is also removed in turn, and then the same model must fail. Otherwise
//! either the fence is not needed, or the model does not test it.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::cell::Cell;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

use crate::word::Word;
use crate::{cells, seqlock};

mod descriptors;
mod lanes;

/// The fence that is left out: the `n`th of its kind that a thread passes, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Without {
    Nothing,
    Release(u32),
    Acquire(u32),
}

thread_local! {
    // Loom runs its threads as coroutines of one thread, so the counts are of the writer (release) and the reader (acquire).
    static WITHOUT: Cell<Without> = const { Cell::new(Without::Nothing) };
    static PASSED: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    static PERIOD: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// A loom word whose fences can be left out.
struct Modelled(AtomicU64);

impl Word for Modelled {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn put(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
    fn release_fence() {
        let (n, acquired) = PASSED.get();
        PASSED.set((n + 1, acquired));
        if WITHOUT.get() != Without::Release(n % PERIOD.get()) {
            fence(Ordering::Release);
        }
    }
    fn acquire_fence() {
        let (released, n) = PASSED.get();
        PASSED.set((released, n + 1));
        if WITHOUT.get() != Without::Acquire(n % PERIOD.get()) {
            fence(Ordering::Acquire);
        }
    }
}

fn words(n: usize) -> Arc<Vec<Modelled>> {
    Arc::new((0..n).map(|_| Modelled(AtomicU64::new(0))).collect())
}

/// Runs `model` under loom. Returns whether every execution passed.
fn holds(without: Without, period: u32, model: fn()) -> bool {
    let quiet = std::panic::take_hook();
    if without != Without::Nothing {
        std::panic::set_hook(Box::new(|_| {}));
    }
    WITHOUT.set(without);
    PERIOD.set(period);
    let outcome = std::panic::catch_unwind(|| {
        loom::model(move || {
            PASSED.set((0, 0));
            model();
        });
    });
    WITHOUT.set(Without::Nothing);
    std::panic::set_hook(quiet);
    outcome.is_ok()
}

/// Checks that `model` holds, and that it fails without each of the `fences`.
fn needs_every_fence(period: u32, model: fn(), fences: &[Without]) {
    assert!(holds(Without::Nothing, period, model));
    for &fence in fences {
        assert!(!holds(fence, period, model), "the model holds without {fence:?}");
    }
}

/// A record is read as it was written, or not at all.
fn record() {
    let record = words(3);
    let writer = {
        let record = record.clone();
        thread::spawn(move || {
            seqlock::begin(&record, 1);
            record[1].put(7);
            record[2].put(7);
            seqlock::end(&record, 1);
        })
    };
    let mut out = [0; 2];
    if let Some(seq) = seqlock::try_read(&record, &mut out) {
        let expected = if seq == 0 { [0, 0] } else { [7, 7] };
        assert_eq!(out, expected, "torn");
    }
    writer.join().unwrap();
}

#[test]
fn record_is_never_torn_and_needs_every_fence() {
    use Without::{Acquire, Release};
    needs_every_fence(2, record, &[Release(0), Release(1), Acquire(0), Acquire(1)]);
}

/// A segment's structure, as the replica reads it: the bracket with the segment's own record, and a block. A reader
/// that accepts the bracket must see segment and block of the same moment.
fn bracket() {
    const SEGMENT: usize = 0;
    const BLOCK: usize = 2;
    let memory = words(4);
    let writer = {
        let memory = memory.clone();
        thread::spawn(move || {
            seqlock::begin(&memory[SEGMENT..], 1);
            seqlock::begin(&memory[BLOCK..], 1);
            memory[BLOCK + 1].put(8);
            seqlock::end(&memory[BLOCK..], 1);
            memory[SEGMENT + 1].put(8);
            seqlock::end(&memory[SEGMENT..], 1);
        })
    };
    let (mut segment, mut block) = ([0], [0]);
    if let Some(before) = seqlock::try_read(&memory[SEGMENT..BLOCK], &mut segment)
        && seqlock::try_read(&memory[BLOCK..], &mut block).is_some()
        && memory[SEGMENT].get() == before
    {
        assert_eq!(segment, block, "two moments");
    }
    writer.join().unwrap();
}

#[test]
fn accepted_segment_is_of_one_moment() {
    use Without::{Acquire, Release};
    // Of the writer's fences 0 and 3 are the bracket's (the block's own, 1, could stand in for 0), of the reader's 0 and 1 the
    // segment record's, 2 and 3 the block's.
    needs_every_fence(u32::MAX, bracket, &[Release(3), Acquire(0), Acquire(3)]);
}

/// A slot and its group's generation: a reader that has seen the generation need not read the slot again.
fn generation() {
    const GENERATION: usize = 2;
    let memory = words(3);
    let writer = {
        let memory = memory.clone();
        thread::spawn(move || {
            seqlock::begin(&memory, 1);
            memory[1].put(7);
            seqlock::end(&memory, 1);
            memory[GENERATION].put(1);
        })
    };
    let (mut known, mut known_seq, mut copy) = (0, 0, 0);
    let mut pass = || {
        let now = memory[GENERATION].get();
        Modelled::acquire_fence();
        let mut out = [0];
        if now != known && memory[0].get() == known_seq {
            known = now;
        } else if now != known
            && let Some(seq) = seqlock::try_read(&memory[..GENERATION], &mut out)
        {
            (known, known_seq, copy) = (now, seq, out[0]);
        }
        copy
    };
    pass();
    writer.join().unwrap();
    assert_eq!(pass(), 7, "missed a change");
}

#[test]
fn seen_generation_means_a_seen_slot() {
    use Without::{Acquire, Release};
    needs_every_fence(u32::MAX, generation, &[Release(1), Acquire(0)]);
}

/// Two alternating cells: what is read is complete and of one moment, and a reader always finds a cell once one was
/// published.
fn two_cells() {
    const STRIDE: usize = 2;
    let memory = words(2 * STRIDE);
    let write = |memory: &[Modelled], ticket: u64| {
        let cell = &memory[ticket as usize % 2 * STRIDE..][..STRIDE];
        seqlock::begin(cell, ticket);
        cell[1].put(ticket + 100);
        seqlock::end(cell, ticket);
    };
    write(&memory, 0);
    let writer = {
        let memory = memory.clone();
        thread::spawn(move || write(&memory, 1))
    };
    let mut out = [0];
    match cells::try_read(&memory, STRIDE, &mut out) {
        Some(seq) => assert_eq!(out[0], (seq - 2) / 2 + 100, "of two moments"),
        None => panic!("one writer is in both cells"),
    }
    writer.join().unwrap();
}

#[test]
fn one_of_two_cells_is_always_readable() {
    assert!(holds(Without::Nothing, u32::MAX, two_cells));
}

/// A ring of two records, read by copying and then reading the count: a copy is whole if it was made before the count
/// allowed its record to be overwritten.
fn ring() {
    const HEAD: usize = 4;
    let memory = words(5);
    let writer = {
        let memory = memory.clone();
        thread::spawn(move || {
            for index in 0..4 {
                let record = &memory[index % 2 * 2..][..2];
                seqlock::begin(record, index as u64);
                record[1].put(index as u64 + 100);
                seqlock::end(record, index as u64);
                Modelled::release_fence();
                memory[HEAD].put(index as u64 + 1);
            }
        })
    };
    let head = memory[HEAD].get();
    Modelled::acquire_fence();
    if head == 2 {
        let copy = [memory[2].get(), memory[3].get()];
        Modelled::acquire_fence();
        if memory[HEAD].get() < 1 + 2 {
            // The next event's odd number may already be there.
            assert!(copy[0] >= seqlock::finished(1), "not yet there");
            assert_eq!(copy[1], 101, "torn");
        }
    }
    writer.join().unwrap();
}

#[test]
fn event_copied_in_time_is_whole() {
    use Without::{Acquire, Release};
    // The writer has three fences an event: 5 is the one before event 1 is counted, and 9 the first one after event 2
    // is counted.
    needs_every_fence(u32::MAX, ring, &[Release(5), Release(9), Acquire(0), Acquire(1)]);
}
