//! Operations that give memory back or move it.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use gpumem_alloc::device::{Call, Timeline};
use gpumem_alloc::{Action, Allocator, Done, Listener, MonitorConfig, SegmentMode};

use crate::common::sharing;
use crate::driver_calls::bench::{Bench, MIB, MINE, OTHER, pool};

#[test]
fn releasing_the_cache() {
    for (segments, call) in [
        (SegmentMode::Plain, Call::Synchronize),
        (SegmentMode::Plain, Call::Free),
        (SegmentMode::Virtual, Call::Unmap),
        (SegmentMode::Virtual, Call::Release),
        (SegmentMode::Stitched, Call::Synchronize),
        (SegmentMode::Stitched, Call::Unmap),
    ] {
        let bench = match call {
            Call::Synchronize => Bench::roomy(segments),
            _ => Bench::of(segments),
        };
        let between = bench.cache([40, 50]);
        let released = bench.others_go_on(call, || bench.alloc.release_cached().unwrap());
        // Of stitched memory whole chunks, and not what was taken again meanwhile.
        let least = if bench.roomy { 40 } else { 80 };
        assert!(released >= least << 20, "{segments:?}, {call:?}: {released}");
        drop(between);
        bench.end();
    }
}

#[test]
fn compacting_and_joining() {
    type Work = fn(&Allocator) -> bool;
    let compact: Work = |alloc| {
        let report = alloc.compact().unwrap();
        report.released + report.bytes_moved >= 80 << 20
    };
    let join: Work = |alloc| alloc.join_holes(80 << 20, OTHER).unwrap().contiguous >= 80 << 20;
    for (segments, call, work) in [
        (SegmentMode::Plain, Call::Free, compact),
        (SegmentMode::Stitched, Call::Unmap, compact),
        (SegmentMode::Virtual, Call::Map, compact),
        (SegmentMode::Virtual, Call::Synchronize, join),
        (SegmentMode::Virtual, Call::Map, join),
        (SegmentMode::Virtual, Call::SetAccess, join),
        (SegmentMode::Virtual, Call::Unmap, join),
    ] {
        let bench = match call {
            Call::Synchronize => Bench::roomy(segments),
            _ => Bench::of(segments),
        };
        let between = bench.cache([40, 50]);
        assert!(
            bench.others_go_on(call, || work(&bench.alloc)),
            "{segments:?}, {call:?}"
        );
        drop(between);
        bench.end();
    }
}

#[test]
fn a_smaller_budget() {
    for call in [Call::Synchronize, Call::Free] {
        let bench = Bench::of(SegmentMode::Plain);
        let between = bench.cache([40, 50]);
        bench.others_go_on(call, || bench.alloc.set_budget(Some(60 << 20)).unwrap());
        assert!(bench.reserved() <= 60 * MIB);
        drop(between);
        bench.end();
    }
}

#[test]
fn a_monitor_that_tidies_up() {
    for (segments, call, action) in [
        (SegmentMode::Plain, Call::Synchronize, Action::Release),
        (SegmentMode::Plain, Call::Free, Action::Release),
        (SegmentMode::Virtual, Call::Map, Action::Compact),
    ] {
        let bench = Bench::of(segments);
        let between = bench.cache([40, 50]);
        let (told, hears) = mpsc::channel();
        let config = MonitorConfig {
            above: 0.3,
            lasting: Duration::ZERO,
            least: 1,
            every: Duration::from_millis(1),
            action,
            listener: Some(Listener::new(move |alert| {
                told.send(alert.done.clone()).unwrap_or_default()
            })),
            ..MonitorConfig::default()
        };
        let monitor = bench.others_go_on(call, || bench.alloc.monitor(config).unwrap());
        let done = hears.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(!matches!(done, Done::Failed(_)), "{done:?}");
        drop((monitor, between));
        bench.end();
    }
}

#[test]
fn pools_that_give_back_and_that_go() {
    let bench = Bench::of(SegmentMode::Stitched);
    let tenant = pool(&bench, 0);
    let fill = || drop(tenant.alloc::<u8>(40 * MIB, OTHER).unwrap());
    for call in [Call::Synchronize, Call::Free] {
        fill();
        assert_eq!(bench.others_go_on(call, || tenant.release_cached().unwrap()), 40 << 20);
    }
    fill();
    let held = tenant.alloc::<u8>(20 * MIB, OTHER).unwrap();
    let last = pool(&bench, 1);
    drop(last.alloc::<u8>(30 * MIB, OTHER).unwrap());
    bench.others_go_on(Call::Free, || drop(last));
    drop(tenant);
    let before = bench.reserved();
    bench.others_go_on(Call::Free, || drop(held));
    assert_eq!(
        before - bench.reserved(),
        40 * MIB,
        "the last block of a pool that is gone"
    );
    bench.end();
}

/// A request finds that the last block of a pool that is gone is done. It gives the pool's memory back itself: who gives back something
/// else afterwards would wait for whoever calls the driver then.
#[test]
fn what_a_request_finds_of_a_pool_that_is_gone_is_left_to_nobody() {
    let bench = Bench::new(sharing(SegmentMode::Stitched), Timeline::Manual).with_room();
    let tenant = pool(&bench, 0);
    let last = tenant.alloc::<u8>(20 * MIB, OTHER).unwrap();
    last.record_stream(MINE).unwrap();
    bench.sim.enqueue(MINE, last.device_ptr(), last.bytes());
    drop((last, tenant));
    bench.sim.finish(MINE);
    let before = bench.reserved();
    let held = bench.get(20, OTHER);
    assert_eq!(before - bench.reserved(), 20 * MIB);
    bench.others_go_on(Call::Synchronize, || bench.alloc.release_cached().unwrap());
    drop(held);
    bench.end();
}

/// Who gives back the last of a pool that is gone does not wait for another thread's call: that one gives back the rest.
#[test]
fn pools_that_go_while_another_thread_calls_the_driver() {
    for by_buffer in [false, true] {
        let bench = Bench::of(SegmentMode::Stitched);
        let tenant = pool(&bench, 0);
        let held = tenant.alloc::<u8>(20 * MIB, OTHER).unwrap();
        let (first, last): (Box<dyn Send>, Box<dyn Send>) = match by_buffer {
            true => (Box::new(tenant), Box::new(held)),
            false => (Box::new(held), Box::new(tenant)),
        };
        drop(first);
        let reserved = bench.reserved();
        let pause = bench.sim.pause(Call::Create);
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| bench.get(100, OTHER));
            pause.wait();
            let goes = scope.spawn(move || drop(last));
            let began = Instant::now();
            while !goes.is_finished() && began.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let (waits, meanwhile) = (!goes.is_finished(), bench.reserved());
            drop(pause);
            assert!(!waits, "it waits for another thread's call");
            assert_eq!(meanwhile, reserved);
            drop(slow.join().unwrap());
        });
        assert!(
            bench.reserved() - (reserved - 20 * MIB) <= 102 * MIB,
            "the pool's memory"
        );
        bench.end();
    }
}

/// Blocks that others give back while the device is waited for stay if work is queued on them: to free them is to wait for that.
#[test]
fn what_is_used_again_does_not_go() {
    for segments in SegmentMode::ALL {
        let bench = Bench::new(sharing(segments), Timeline::Manual);
        let busy = bench.get(30, MINE);
        let between = bench.cache([40]);
        bench.sim.enqueue(MINE, busy.device_ptr(), busy.bytes());
        let pause = bench.sim.pause(Call::Synchronize);
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| bench.alloc.release_cached().unwrap());
            pause.wait();
            drop(busy);
            drop(pause);
            assert!((40 << 20..70 << 20).contains(&slow.join().unwrap()), "{segments:?}");
        });
        assert!(bench.reserved() >= 30 * MIB);
        drop(between);
        bench.end();
    }
}

/// The last buffer goes while a monitor, which keeps nobody, has memory of the heap on its way to the driver.
#[test]
fn a_heap_that_ends_meanwhile() {
    let bench = Bench::of(SegmentMode::Plain);
    let held = bench.get(30, OTHER);
    drop(bench.cache([40, 50]));
    let config = MonitorConfig {
        above: 0.1,
        lasting: Duration::ZERO,
        least: 1,
        every: Duration::from_millis(1),
        action: Action::Release,
        listener: Some(Listener::new(|_| {})),
        ..MonitorConfig::default()
    };
    let sim = bench.sim.clone();
    let pause = sim.pause(Call::Free);
    let monitor = bench.alloc.monitor(config).unwrap();
    pause.wait();
    std::thread::scope(|scope| {
        let last = scope.spawn(move || drop((bench, held)));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!last.is_finished());
        drop(pause);
    });
    drop(monitor);
    assert_eq!((sim.live(), sim.violations()), Default::default());
}
