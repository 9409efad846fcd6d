//! What others do while the driver is asked what a report says, and what is counted where the driver does not take memory back.

use gpumem_alloc::device::{Call, Timeline};
use gpumem_alloc::{Config, SegmentMode, Stream};

use crate::common::{MIB, start};

/// A request is refused for what there is, not for what there was.
#[test]
fn what_is_given_back_while_a_request_is_about_to_be_refused_serves_it() {
    for segments in SegmentMode::ALL {
        let config = Config {
            segments,
            ..Config::default()
        };
        let (sim, alloc) = start(100 * MIB, Timeline::Immediate, config);
        let held = alloc.alloc::<u8>(60 * MIB, Stream(1)).unwrap();
        let pause = sim.pause_first(Call::MemoryInfo);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| alloc.alloc::<u8>(60 * MIB, Stream(1)).map(drop));
            pause.wait();
            drop(held);
            drop(pause);
            late.join().unwrap().unwrap();
        });
        assert_eq!(alloc.stats().num_ooms, 0, "{segments:?}");
    }
}

#[test]
fn a_chunk_that_goes_at_last_is_counted_once() {
    let (sim, alloc) = start(1000 * MIB, Timeline::Immediate, Config::default());
    drop(alloc.alloc::<u8>(8 * MIB, Stream::DEFAULT).unwrap());
    sim.fail_next(Call::Release, 1000);
    let _ = alloc.release_cached();
    sim.fail_next(Call::Release, 0);
    alloc.release_cached().unwrap();
    let stats = alloc.stats();
    assert_eq!(stats.all().reserved_bytes.current, 0);
    assert_eq!(stats.num_device_free, stats.num_device_alloc);
}
