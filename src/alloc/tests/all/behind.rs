//! What streams have of each other's memory while the GPU is behind its program.

use gpumem_alloc::device::{Sim, Timeline};
use gpumem_alloc::{Allocator, Buffer, SegmentMode, Stream};

use crate::common::{MIB, sharing, start};

const A: Stream = Stream(10);
const B: Stream = Stream(20);

/// A buffer that queued work uses.
fn used(sim: &Sim, alloc: &Allocator, bytes: usize, stream: Stream) -> Buffer<u8> {
    let buffer = alloc.alloc::<u8>(bytes, stream).unwrap();
    sim.enqueue(stream, buffer.device_ptr(), bytes as u64);
    buffer
}

fn reserved(alloc: &Allocator) -> usize {
    alloc.stats().all().reserved_bytes.current as usize
}

/// A stream goes on in a corner of what it gave back long ago: others have the rest of that, whatever is young beside it.
#[test]
fn what_a_stream_is_done_with_others_have_though_it_goes_on_beside_it() {
    let (sim, alloc) = start(1 << 30, Timeline::Manual, sharing(SegmentMode::Stitched));
    drop(used(&sim, &alloc, 64 * MIB, A));
    // A is asked how far it is, and an event left there.
    let held = used(&sim, &alloc, 32 * MIB, B);
    assert_eq!(reserved(&alloc), 96 * MIB, "A still works on its own");
    sim.finish(A);
    for _ in 0..10 {
        drop(used(&sim, &alloc, 3 * MIB, A));
    }
    let more = used(&sim, &alloc, 60 * MIB, B);
    assert_eq!(reserved(&alloc), 96 * MIB, "A uses no more than 3 MiB of it");
    // What A still works on is nobody else's.
    let rest = used(&sim, &alloc, 2 * MIB, B);
    assert!(reserved(&alloc) > 96 * MIB);
    drop((held, more, rest));
    assert_eq!(sim.violations(), [""; 0]);
}

/// What came free while there was one stream counts as young when a second one comes, and grows old from then on, whatever the first one goes
/// on with.
#[test]
fn what_came_free_before_there_was_a_second_stream_grows_old_too() {
    let (sim, alloc) = start(1 << 30, Timeline::Manual, sharing(SegmentMode::Virtual));
    drop(used(&sim, &alloc, 64 * MIB, A));
    // Small blocks have memory of their own: B takes none behind what A gave back. Twice A is asked how far it is.
    let mut small = vec![used(&sim, &alloc, MIB, B)];
    for _ in 0..2 {
        drop(used(&sim, &alloc, 3 * MIB, A));
        sim.finish(A);
        drop(used(&sim, &alloc, 3 * MIB, A));
        small.extend([MIB; 2].map(|bytes| used(&sim, &alloc, bytes, B)));
    }
    let before = reserved(&alloc);
    sim.finish(A);
    drop(used(&sim, &alloc, 3 * MIB, A));
    let large = used(&sim, &alloc, 60 * MIB, B);
    assert_eq!(reserved(&alloc), before, "A uses no more than 3 MiB of it");
    drop((small, large));
    assert_eq!(sim.violations(), [""; 0]);
}

/// What a stream gave back long ago is known to be free when another one needs it, though nobody needed it before.
#[test]
fn streams_are_asked_before_others_need_what_they_gave_back() {
    let (sim, alloc) = start(1 << 30, Timeline::Behind(3), sharing(SegmentMode::Stitched));
    let held = used(&sim, &alloc, 32 * MIB, B);
    drop(used(&sim, &alloc, 64 * MIB, A));
    // A is asked how far it is, and an event left there.
    let more = used(&sim, &alloc, 32 * MIB, B);
    assert_eq!(reserved(&alloc), 128 * MIB, "A still works on its own");
    drop((held, more));
    drop(used(&sim, &alloc, 64 * MIB, A));
    for _ in 0..6 {
        drop(used(&sim, &alloc, 3 * MIB, B));
        drop(used(&sim, &alloc, 3 * MIB, A));
    }
    let all = [64, 32, 24].map(|mib| used(&sim, &alloc, mib * MIB, B));
    assert_eq!(reserved(&alloc), 128 * MIB, "A was done with most of its own long ago");
    drop(all);
    assert_eq!(sim.violations(), [""; 0]);
}
