//! What a request sees that looks for its stream's lane while lanes change hands: a stream of one moment and a number of another.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::atomic::Ordering;

use super::front::{Front, place_of};
use crate::config::{Config, SegmentMode};
use crate::device::{Sim, SimConfig};
use crate::heap::Heap;
use crate::publish::Publish;
use crate::stream::Stream;
use crate::tag::Tag;

const OURS: Stream = Stream(1);
const THEIRS: Stream = Stream(2);
const BYTES: u64 = 4096;

/// A heap whose lane of stream [`THEIRS`] has a block set aside; the number of the lane, and where the block is.
fn with_a_block_aside(front: &'static Front) -> (Heap, u8, u64) {
    let config = Config {
        publish: Publish::Off,
        segments: SegmentMode::Plain,
        ..Config::default()
    };
    let mut heap = Heap::new(Sim::new(SimConfig::default()).device().driver, &config, front).unwrap();
    let (number, addr) = set_aside(&mut heap, front, THEIRS);
    (heap, number, addr)
}

/// Has a stream's lane set a block aside.
fn set_aside(heap: &mut Heap, front: &'static Front, stream: Stream) -> (u8, u64) {
    for _ in 0..1000 {
        let grant = match front.grant(BYTES, stream, Tag(0), false) {
            Some(grant) => grant,
            None => heap.allocate(BYTES, stream, Tag(0)).unwrap(),
        };
        if front.free(grant.held, false) {
            return (grant.held.lane().unwrap().0, grant.addr);
        }
        heap.free(front.block_of(grant.held).unwrap());
    }
    panic!("a size that comes a thousand times is not lent")
}

/// Our stream's name was read; then its lane was left, and another one's number stood in that place when the number was read.
#[test]
fn a_number_that_is_anothers_by_now_gets_nothing_of_theirs() {
    let front = Front::alone();
    let (_heap, number, addr) = with_a_block_aside(front);
    assert!(front.grant(BYTES, OURS, Tag(0), false).is_none(), "no lane");
    let place = place_of(OURS);
    front.numbers[place].store(number, Ordering::Relaxed);
    front.streams[place].store(OURS.0, Ordering::Release);
    assert!(
        front.grant(BYTES, OURS, Tag(0), false).is_none(),
        "another stream's lane"
    );
    let theirs = front.grant(BYTES, THEIRS, Tag(0), false).unwrap();
    assert_eq!(theirs.addr, addr, "it is still there for them");
}

/// The lane was found; then its stream ended, and the next one has it when it is locked.
#[test]
fn a_lane_that_was_left_gets_nothing_out_either() {
    let front = Front::alone();
    let (mut heap, number, _) = with_a_block_aside(front);
    heap.retire_stream(THEIRS).unwrap();
    let place = place_of(THEIRS);
    front.numbers[place].store(number, Ordering::Relaxed);
    front.streams[place].store(THEIRS.0, Ordering::Release);
    assert!(front.grant(BYTES, THEIRS, Tag(0), false).is_none(), "nobody's lane");
    front.streams[place].store(gpumem_channel::NO_STREAM, Ordering::Release);
    // The lane of the one that ended is the next one's.
    assert_eq!(set_aside(&mut heap, front, OURS).0, number);
    front.numbers[place].store(number, Ordering::Relaxed);
    front.streams[place].store(THEIRS.0, Ordering::Release);
    assert!(
        front.grant(BYTES, THEIRS, Tag(0), false).is_none(),
        "the next one's lane"
    );
    assert!(front.grant(BYTES, OURS, Tag(0), false).is_some());
}

/// What a block's own stream used last needs nothing noted; work of another one has to be.
#[test]
fn a_lane_takes_back_what_its_own_stream_used_last_and_no_more() {
    let front = Front::alone();
    let (_heap, _, addr) = with_a_block_aside(front);
    let held = front.grant(BYTES, THEIRS, Tag(0), false).unwrap().held;
    assert!(!front.free_after(held, OURS));
    assert!(
        front.grant(BYTES, THEIRS, Tag(0), false).is_none(),
        "the program holds it"
    );
    assert!(front.free_after(held, THEIRS));
    assert_eq!(front.grant(BYTES, THEIRS, Tag(0), false).unwrap().addr, addr);
}
