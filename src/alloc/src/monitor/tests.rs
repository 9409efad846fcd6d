#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

use gpumem_channel::{EventKind, Options, Reader};

use super::*;
use crate::device::{Call, Live, Sim, SimConfig, Timeline};
use crate::{Allocator, Buffer, Config, Publish, Route, SegmentMode, Stream};

pub(super) const MIB: u64 = 1 << 20;

pub(super) type Alerts = Arc<Mutex<Vec<Alert>>>;

/// An allocator on a device whose work is done when the test says so.
pub(super) fn start(segments: SegmentMode, publish: Publish) -> (Sim, Allocator) {
    let sim = Sim::new(SimConfig {
        total: 1000 * MIB,
        timeline: Timeline::Manual,
        ..SimConfig::default()
    });
    let config = Config {
        segments,
        publish,
        cross_stream_reuse: true,
        ..Config::default()
    };
    let allocator = Allocator::new(sim.device(), config).unwrap();
    (sim, allocator)
}

/// Holes: 80 MiB free, in pieces of 16 MiB; and what holds them apart.
fn holes(allocator: &Allocator) -> Vec<Buffer<u8>> {
    let mut blocks: Vec<Option<Buffer<u8>>> = (0..10)
        .map(|_| allocator.alloc((16 * MIB) as usize, Stream(1)).ok())
        .collect();
    blocks.iter_mut().step_by(2).for_each(|block| *block = None);
    blocks.into_iter().flatten().collect()
}

/// Looks for more than half of 64 MiB in pieces for 2 s.
pub(super) fn looking_for(action: Action) -> (MonitorConfig, Alerts) {
    let told = Alerts::default();
    let listener = Arc::clone(&told);
    let config = MonitorConfig {
        action,
        lasting: Duration::from_secs(2),
        least: 64 * MIB,
        every: Duration::from_millis(1),
        listener: Some(Listener::new(move |alert| listener.lock().unwrap().push(alert.clone()))),
        ..MonitorConfig::default()
    };
    (config, told)
}

pub(super) fn eye(allocator: &Allocator, config: MonitorConfig) -> Eye {
    Eye::new(allocator.0.home, config).unwrap()
}

/// Looks at these seconds.
pub(super) fn look(eye: &mut Eye, seconds: std::ops::Range<u64>) {
    for second in seconds {
        assert!(eye.look(Duration::from_secs(second)));
    }
}

#[test]
fn it_warns_once_an_episode_and_changes_nothing() {
    let (sim, allocator) = start(SegmentMode::Virtual, Publish::Off);
    let (config, told) = looking_for(Action::Warn);
    let mut eye = eye(&allocator, config);
    look(&mut eye, 0..10);
    assert!(told.lock().unwrap().is_empty(), "there is nothing");
    let held = holes(&allocator);
    let calls = sim.total_calls();
    look(&mut eye, 10..12);
    assert!(told.lock().unwrap().is_empty(), "not for long enough");
    look(&mut eye, 12..30);
    assert_eq!(sim.total_calls(), calls, "looking and warning are no driver calls");
    let alerts = told.lock().unwrap().clone();
    assert_eq!(alerts.len(), 1);
    let free = (alerts[0].free.total, alerts[0].free.largest, alerts[0].free.count);
    assert_eq!(
        (free, alerts[0].allocated, alerts[0].lasted.as_secs()),
        ((80 * MIB, 16 * MIB, 5), 80 * MIB, 2)
    );
    assert_eq!(
        alerts[0].to_string(),
        "device 0: external fragmentation of 80 % for 2 s: 80.0 MiB free in 5 blocks, the largest 16.0 MiB; \
         reserved 160 MiB, allocated 80.0 MiB; releasing the cache or making it compact may help"
    );
    let soon = Alert {
        lasted: Duration::from_millis(300),
        ..alerts[0].clone()
    };
    assert!(soon.to_string().contains("80 % for 0.3 s: 80.0 MiB free"), "{soon}");
    // All is free and one piece: the episode is over, and the next is another.
    drop(held);
    look(&mut eye, 30..40);
    let _held = holes(&allocator);
    look(&mut eye, 40..50);
    assert_eq!(told.lock().unwrap().len(), 2);
}

#[test]
fn little_memory_is_no_trouble_whatever_the_ratio() {
    let (_, allocator) = start(SegmentMode::Virtual, Publish::Off);
    let (config, told) = looking_for(Action::Release);
    let config = MonitorConfig {
        least: 80 * MIB + 1,
        ..config
    };
    let mut eye = eye(&allocator, config);
    let _held = holes(&allocator);
    look(&mut eye, 0..10);
    assert!(told.lock().unwrap().is_empty());
}

#[test]
fn it_releases_the_cache() {
    let (sim, allocator) = start(SegmentMode::Plain, Publish::Off);
    let (config, told) = looking_for(Action::Release);
    let mut eye = eye(&allocator, config);
    let held = holes(&allocator);
    sim.enqueue(Stream(1), held[0].device_ptr(), 16 * MIB);
    look(&mut eye, 0..10);
    assert_eq!(told.lock().unwrap()[0].done, Done::Released(80 * MIB));
    assert_eq!((told.lock().unwrap().len(), sim.live().bytes), (1, 80 * MIB));
    assert_eq!(sim.violations(), Vec::<String>::new());
    // It comes again, and is seen to again: that helped.
    drop(held);
    let _held = holes(&allocator);
    look(&mut eye, 10..20);
    assert_eq!(told.lock().unwrap().len(), 2);
}

#[test]
fn it_makes_the_cache_compact() {
    let (_, allocator) = start(SegmentMode::Virtual, Publish::Off);
    let (config, told) = looking_for(Action::Compact);
    let mut eye = eye(&allocator, config);
    let _held = holes(&allocator);
    look(&mut eye, 0..10);
    let alerts = told.lock().unwrap();
    assert_eq!(alerts.len(), 1);
    assert!(
        alerts[0]
            .to_string()
            .ends_with("the largest free block is 80.0 MiB now"),
        "{}",
        alerts[0]
    );
    assert_eq!(allocator.free_blocks().fragmentation(), Some(0.0));
}

/// What could not be tidied up is tried again after a while.
#[test]
fn a_driver_that_fails_is_told_and_left_alone_for_a_while() {
    let (sim, allocator) = start(SegmentMode::Plain, Publish::Off);
    let (config, told) = looking_for(Action::Release);
    let mut eye = eye(&allocator, config);
    let _held = holes(&allocator);
    look(&mut eye, 0..2);
    sim.fail_after(0, false);
    look(&mut eye, 2..5);
    assert_eq!((sim.calls(Call::Synchronize), sim.calls(Call::Free)), (1, 0));
    look(&mut eye, 5..30);
    let alerts = told.lock().unwrap();
    let [Done::Failed(why), Done::Released(bytes)] = [&alerts[0].done, &alerts[1].done] else {
        panic!("{alerts:?}");
    };
    assert!(why.contains("cuCtxSynchronize"));
    assert_eq!((*bytes, alerts.len(), sim.calls(Call::Free)), (80 * MIB, 2, 5));
}

#[test]
fn a_listener_that_panics_is_not_called_again_and_the_monitor_goes_on() {
    let (_, allocator) = start(SegmentMode::Virtual, Publish::Off);
    let (config, told) = looking_for(Action::Release);
    let calls = Arc::clone(&told);
    let mut eye = eye(
        &allocator,
        MonitorConfig {
            listener: Some(Listener::new(move |alert| {
                calls.lock().unwrap().push(alert.clone());
                std::panic::resume_unwind(Box::new("a listener's"));
            })),
            ..config
        },
    );
    for round in 1..4 {
        drop(holes(&allocator));
        let held = holes(&allocator);
        look(&mut eye, round * 1000..round * 1000 + 3);
        assert_eq!(allocator.stats().all().reserved_bytes.current, 80 * MIB, "{round}");
        drop(held);
        look(&mut eye, round * 1000 + 3..round * 1000 + 9);
    }
    // The lock that it panicked with is poisoned: that is its own affair.
    let told = told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    assert_eq!(told.len(), 1);
}

/// A capture was under way, or all free memory was pinned by what is held, when something was first done about it.
#[test]
fn what_did_not_help_at_first_helps_later() {
    let (_, allocator) = start(SegmentMode::Plain, Publish::Off);
    let (config, told) = looking_for(Action::Release);
    let mut eye = eye(&allocator, config);
    let pool = allocator.private_pool().unwrap();
    let mut held = holes(&allocator);
    allocator
        .begin_allocate_to_pool(&pool, Route::Stream(Stream(9)))
        .unwrap();
    look(&mut eye, 0..4);
    allocator.end_allocate_to_pool(&pool).unwrap();
    held.truncate(2);
    look(&mut eye, 4..30);
    let done: Vec<Done> = told.lock().unwrap().iter().map(|alert| alert.done.clone()).collect();
    assert!(
        matches!(done[..], [Done::Failed(_), Done::Released(bytes), ..] if bytes > 0),
        "{done:?}"
    );
}

/// Looks each second after the program's turn. The seconds at which memory went back to the driver.
fn given_back(sim: &Sim, eye: &mut Eye, seconds: std::ops::Range<u64>, mut program: impl FnMut()) -> Vec<u64> {
    let gives = |second: &u64| {
        program();
        let before = sim.live().bytes;
        look(eye, *second..*second + 1);
        sim.live().bytes < before
    };
    seconds.filter(gives).collect()
}

/// Much is given back, but what is left is as fragmented, and what was given back is taken again at once.
#[test]
fn what_changed_something_did_not_help_where_the_ratio_stays() {
    for segments in [SegmentMode::Plain, SegmentMode::Stitched] {
        let (sim, allocator) = start(segments, Publish::Off);
        let (config, told) = looking_for(Action::Release);
        let mut eye = eye(&allocator, config);
        let take = |bytes: u64| allocator.alloc::<u8>(bytes as usize, Stream(1)).unwrap();
        let mut at = 0..;
        // No hole has a whole chunk that could be stitched.
        let mut held: Vec<Buffer<u8>> = (0..100).map(|_| take(3 * MIB / 2)).collect();
        held.retain(|_| at.next().is_some_and(|at| at % 2 == 1));
        let seconds = given_back(&sim, &mut eye, 0..40, || drop(take(30 * MIB)));
        assert_eq!(seconds, [2, 5, 10, 19, 36], "{segments:?}");
        let alerts = told.lock().unwrap();
        assert!(
            matches!(alerts[..], [Alert { done: Done::Released(bytes), .. }] if bytes >= 30 * MIB),
            "{segments:?}: {alerts:?}"
        );
    }
}

/// Others go on while the driver takes something back: what they set aside meanwhile is free memory, too.
#[test]
fn what_was_given_back_meanwhile_counts_for_whether_it_helped() {
    let (sim, allocator) = start(SegmentMode::Plain, Publish::Off);
    let (config, told) = looking_for(Action::Release);
    let mut eye = eye(&allocator, config);
    let large = || allocator.alloc::<u8>((100 * MIB) as usize, Stream(2)).unwrap();
    // Of a size that comes again: it is set aside when it is given back.
    (0..10).for_each(|_| drop(large()));
    let (large, held) = (large(), holes(&allocator));
    look(&mut eye, 0..2);
    let pause = sim.pause(Call::Free);
    std::thread::scope(|scope| {
        scope.spawn(|| look(&mut eye, 2..3));
        pause.wait();
        drop(large);
        drop(pause);
    });
    drop(held);
    let _held = holes(&allocator);
    look(&mut eye, 3..10);
    let lasted = told
        .lock()
        .unwrap()
        .iter()
        .map(|alert| alert.lasted.as_secs())
        .collect::<Vec<_>>();
    assert_eq!(lasted, [2, 2], "two episodes, each from its own beginning on");
}

#[test]
fn what_is_compact_but_as_much_is_told_once() {
    let (_, allocator) = start(SegmentMode::Virtual, Publish::Off);
    let (config, told) = looking_for(Action::Compact);
    let config = MonitorConfig {
        measure: Measure::Cached,
        above: 0.4,
        ..config
    };
    let mut eye = eye(&allocator, config);
    let _held = holes(&allocator);
    look(&mut eye, 0..40);
    let alerts = told.lock().unwrap();
    let [
        Alert {
            done: Done::Compacted(report),
            ratio: 0.5,
            ..
        },
    ] = &alerts[..]
    else {
        panic!("{alerts:?}");
    };
    assert!(report.bytes_moved > 0);
}

/// Each time it helps, and is undone.
#[test]
fn what_helps_for_a_moment_is_done_less_and_less_often() {
    let (sim, allocator) = start(SegmentMode::Plain, Publish::Off);
    let (config, told) = looking_for(Action::Release);
    let mut eye = eye(&allocator, config);
    let mut held = Vec::new();
    let seconds = given_back(&sim, &mut eye, 0..40, || {
        held.clear();
        held = holes(&allocator);
    });
    assert_eq!(seconds, [2, 5, 10, 19, 36]);
    assert_eq!(told.lock().unwrap().len(), 5, "episodes of their own");
}

#[test]
fn how_much_is_cached_can_be_watched_too() {
    let (_, allocator) = start(SegmentMode::Plain, Publish::Off);
    let (config, told) = looking_for(Action::Warn);
    let config = MonitorConfig {
        measure: Measure::Cached,
        ..config
    };
    let mut eye = eye(&allocator, config);
    let held = allocator.alloc::<u8>((100 * MIB) as usize, Stream(1)).unwrap();
    drop(allocator.alloc::<u8>((99 * MIB) as usize, Stream(1)).unwrap());
    look(&mut eye, 0..10);
    assert!(told.lock().unwrap().is_empty());
    drop(held);
    look(&mut eye, 10..20);
    assert_eq!(told.lock().unwrap().len(), 1);
}

#[test]
fn the_timeline_has_a_mark() {
    let private = std::fs::Permissions::from_mode(0o700);
    let dir = tempfile::Builder::new()
        .permissions(private)
        .tempdir_in("/dev/shm")
        .unwrap();
    let options = Options {
        dir: Some(dir.path().to_owned()),
        ..Options::default()
    };
    let (_, allocator) = start(SegmentMode::Virtual, Publish::On(options));
    let mut reader = Reader::open(&allocator.channel().unwrap()).unwrap();
    let mut eye = eye(&allocator, looking_for(Action::Compact).0);
    let _held = holes(&allocator);
    look(&mut eye, 0..10);
    let (snapshot, events) = (reader.refresh().unwrap(), reader.events().unwrap());
    let marks = events.events.iter().filter(|event| event.kind == EventKind::Mark);
    let marks: Vec<&str> = marks.map(|event| snapshot.string(event.tag)).collect();
    assert_eq!(marks, ["monitor: fragmented", "monitor: tidied up"]);
}

/// Waits for what another thread does.
fn until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(30), "it never came true");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_thread_looks_until_its_guard_is_dropped() {
    let (_, allocator) = start(SegmentMode::Virtual, Publish::Off);
    let (config, told) = looking_for(Action::Warn);
    let config = MonitorConfig {
        lasting: Duration::ZERO,
        ..config
    };
    let monitor = allocator.monitor(config.clone()).unwrap();
    assert!(monitor.is_running());
    let held = holes(&allocator);
    until(|| told.lock().unwrap().len() == 1);
    drop(monitor);
    drop(held);
    assert_eq!(
        Arc::strong_count(&told),
        2,
        "the thread is gone, and its listener; this test has one"
    );
    // One that never looks is stopped as soon.
    let began = Instant::now();
    let monitor = allocator.monitor(MonitorConfig {
        every: Duration::from_secs(3600),
        ..config
    });
    drop(monitor.unwrap());
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn it_keeps_no_allocator_alive_and_ends_with_it() {
    let (sim, allocator) = start(SegmentMode::Virtual, Publish::Off);
    let monitor = allocator.monitor(looking_for(Action::Warn).0).unwrap();
    let held = holes(&allocator);
    drop(allocator);
    assert!(
        sim.live().bytes > 0 && monitor.is_running(),
        "buffers live, and so does the allocator"
    );
    drop(held);
    assert_eq!(sim.live(), Live::default());
    until(|| !monitor.is_running());
    // Its home may have another tenant now, who is none of its business.
    let (_, other) = start(SegmentMode::Virtual, Publish::Off);
    drop((other, monitor));
}

#[test]
fn the_configuration_starts_one_that_ends_with_the_last_handle() {
    let (monitor, told) = looking_for(Action::Warn);
    let monitor = MonitorConfig {
        lasting: Duration::ZERO,
        ..monitor
    };
    let config = Config {
        segments: SegmentMode::Virtual,
        publish: Publish::Off,
        monitor: Some(monitor),
        ..Config::default()
    };
    let sim = Sim::new(SimConfig::default());
    let allocator = Allocator::new(sim.device(), config.clone()).unwrap();
    drop(config);
    let held = holes(&allocator);
    until(|| told.lock().unwrap().len() == 1);
    drop(held);
    drop(allocator);
    assert_eq!(
        (Arc::strong_count(&told), sim.live()),
        (1, Live::default()),
        "thread and allocator are gone"
    );
}

#[test]
fn settings_that_cannot_work_are_errors() {
    let (_, allocator) = start(SegmentMode::Plain, Publish::Off);
    let usual = MonitorConfig::default;
    for config in [
        MonitorConfig { above: 0.0, ..usual() },
        MonitorConfig {
            above: f64::NAN,
            ..usual()
        },
        MonitorConfig {
            below: Some(0.6),
            ..usual()
        },
        MonitorConfig {
            every: Duration::ZERO,
            ..usual()
        },
    ] {
        let error = allocator.monitor(config.clone()).unwrap_err();
        assert!(error.to_string().starts_with("monitor: "), "{error}");
        let told = Config {
            monitor: Some(config),
            ..Config::default()
        };
        assert!(Allocator::new(Sim::new(SimConfig::default()).device(), told).is_err());
    }
}
