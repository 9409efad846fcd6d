//! A lane and the publisher: two writers on two threads, ordered as if by a lock, and a reader that does not wait.

use super::Without::{self, Acquire, Release};
use super::{Cell, Modelled, holds, needs_every_fence, thread, words};
use crate::put::WRITERS;
use crate::seqlock;
use crate::word::Word;

const PUBLISHER_TICKET: u64 = WRITERS;

thread_local! {
    static LANE_TICKET: Cell<u64> = const { Cell::new(WRITERS + 1) };
}

/// Stores `value` in a record of one word or two.
fn write(record: &[Modelled], ticket: u64, value: u64) {
    seqlock::begin(record, ticket);
    record[1..].iter().for_each(|word| word.put(value));
    seqlock::end(record, ticket);
}

/// Runs `first` on a thread, which then starts another that runs `second`: that orders them as a lock does.
fn in_turn(first: impl FnOnce() + 'static, second: impl FnOnce() + 'static) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        first();
        thread::spawn(second).join().unwrap();
    })
}

/// A slot that the publisher and a lane write in turn is read as either wrote it.
fn slot_of_two_writers() {
    let record = words(3);
    let [one, other] = [record.clone(), record.clone()];
    let ticket = LANE_TICKET.get();
    let writers = in_turn(
        move || write(&one, PUBLISHER_TICKET, 7),
        move || write(&other, ticket, 8),
    );
    let mut out = [0; 2];
    if seqlock::try_read(&record, &mut out).is_some() {
        assert_eq!(out[0], out[1], "torn");
    }
    writers.join().unwrap();
}

#[test]
fn slot_of_two_writers_is_never_torn() {
    needs_every_fence(
        2,
        slot_of_two_writers,
        &[Release(0), Release(1), Acquire(0), Acquire(1)],
    );
    LANE_TICKET.set(PUBLISHER_TICKET);
    let mistaken = !holds(Without::Nothing, 2, slot_of_two_writers);
    LANE_TICKET.set(WRITERS + 1);
    assert!(mistaken, "the model holds with equal tickets");
}

/// A slot and the generation words of both writers: a reader that has seen both need not read the slot again.
fn two_generations() {
    const GENERATIONS: usize = 2;
    let memory = words(GENERATIONS + 2);
    let [one, other] = [memory.clone(), memory.clone()];
    let change = |memory: &[Modelled], row: usize, ticket: u64, value: u64| {
        write(&memory[..GENERATIONS], ticket, value);
        memory[GENERATIONS + row].put(ticket);
    };
    let writers = in_turn(
        move || change(&one, 0, PUBLISHER_TICKET, 7),
        move || change(&other, 1, WRITERS + 1, 8),
    );
    let (mut known, mut known_seq, mut copy) = ([0; 2], 0, 0);
    let mut pass = || {
        let now = [memory[GENERATIONS].get(), memory[GENERATIONS + 1].get()];
        Modelled::acquire_fence();
        let mut out = [0];
        if now == known {
        } else if memory[0].get() == known_seq {
            known = now;
        } else if let Some(seq) = seqlock::try_read(&memory[..GENERATIONS], &mut out) {
            (known, known_seq, copy) = (now, seq, out[0]);
        }
        copy
    };
    pass();
    writers.join().unwrap();
    assert_eq!(pass(), 8, "missed a change");
}

#[test]
fn last_write_of_a_slot_is_seen_from_either_writer() {
    needs_every_fence(u32::MAX, two_generations, &[Acquire(0)]);
}

const LANE: usize = 0;
const PUBLISHER: usize = 1;

/// Two counts of events. A reader reads the lane's, the publisher's, and the lane's again: it sees no event without
/// those before it.
fn three_looks(writers: [usize; 2]) {
    let counts = words(2);
    let [one, other] = writers.map(|writer| {
        let counts = counts.clone();
        move || {
            Modelled::release_fence();
            counts[writer].put(1);
        }
    });
    let ended = in_turn(one, other);
    let sure = counts[LANE].get();
    Modelled::acquire_fence();
    let own = counts[PUBLISHER].get();
    Modelled::acquire_fence();
    let seen = counts[LANE].get();
    if writers[0] == LANE {
        assert!(seen >= own, "the publisher's event without the lane's before it");
    } else {
        assert!(own >= sure, "the lane's event without the publisher's before it");
    }
    ended.join().unwrap();
}

#[test]
fn no_event_is_seen_without_those_before_it() {
    // The fence that is needed is the one between the later event and its count.
    needs_every_fence(u32::MAX, || three_looks([PUBLISHER, LANE]), &[Release(1), Acquire(0)]);
    needs_every_fence(u32::MAX, || three_looks([LANE, PUBLISHER]), &[Release(1), Acquire(1)]);
}
