//! Who tells the frames of a thread may wait for others that use the allocator: an interpreter has a lock of its own, and runs who has that.
//! In a process of its own, as `named_frames`.

use std::cell::Cell;
use std::io::Write;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use gpumem_alloc::device::{Sim, SimConfig};
use gpumem_alloc::{
    Action, Allocator, Config, History, Measure, MonitorConfig, Pool, PoolConfig, Publish, Route, SegmentMode, Stack,
    Stacks, Stream,
};

use crate::common::has_a_process;

const MIB: u64 = 1 << 20;

/// Has another thread use the allocator, and is told when it has.
static OTHER: OnceLock<Mutex<Sender<Sender<()>>>> = OnceLock::new();
/// What was done meanwhile, and how often the other one came through.
static DOING: Mutex<(&str, u32)> = Mutex::new(("", 0));
thread_local! {
    static IS_OTHER: Cell<bool> = const { Cell::new(false) };
}

fn waits_for_another(_: &mut [u64]) -> Option<usize> {
    if !IS_OTHER.get() {
        let (done, told) = channel();
        OTHER.get().unwrap().lock().unwrap().send(done).unwrap();
        let waited = told.recv_timeout(Duration::from_secs(30));
        let mut doing = DOING.lock().unwrap();
        if waited.is_err() {
            // Not a panic: what it unwound would wait for the lock.
            let said = format!("a lock is held while it is asked: {}\n", doing.0);
            std::io::stderr().write_all(said.as_bytes()).unwrap();
            std::process::exit(1);
        }
        doing.1 += 1;
    }
    None
}

/// Takes each lock that there is.
fn use_all(allocator: &Allocator, pool: &Pool) {
    let addr = allocator.alloc_raw(70 * MIB, Stream(8)).unwrap();
    allocator.begin_allocate_to_pool(pool, Route::ThisThread).unwrap();
    let of_pool = allocator.alloc_raw(MIB, Stream(8)).unwrap();
    allocator.end_allocate_to_pool(pool).unwrap();
    allocator.free_raw(of_pool).unwrap();
    allocator.free_raw(addr).unwrap();
    // Not while a graph is captured.
    allocator.release_cached().unwrap_or_default();
}

#[test]
fn no_lock_is_held_while_the_program_tells_its_frames() {
    if !has_a_process("named_frames_locks::no_lock_is_held_while_the_program_tells_its_frames") {
        return;
    }
    let config = Config {
        publish: Publish::Off,
        segments: SegmentMode::Virtual,
        history: History::On {
            max_events: 1000,
            stacks: Stacks::All,
        },
        ..Config::default()
    };
    let allocator = Allocator::new(Sim::new(SimConfig::default()).device(), config).unwrap();
    let pool = allocator.pool("tenant", PoolConfig::default()).unwrap();
    let (ask, asked) = channel::<Sender<()>>();
    OTHER.set(Mutex::new(ask)).unwrap();
    std::thread::spawn({
        let (allocator, pool) = (
            allocator.clone(),
            allocator.pool("other", PoolConfig::default()).unwrap(),
        );
        move || {
            IS_OTHER.set(true);
            for done in asked {
                use_all(&allocator, &pool);
                done.send(()).unwrap();
            }
        }
    });
    Stack::set_source(Some(Box::new(waits_for_another)));
    let doing = |what: &'static str, work: &dyn Fn()| {
        *DOING.lock().unwrap() = (what, 0);
        work();
        DOING.lock().unwrap().1
    };
    let take = |bytes| allocator.alloc_raw(bytes, Stream::DEFAULT).unwrap();
    let held = [take(64 * MIB), take(64 * MIB)];
    // One stack for a call, however often the driver is called.
    assert_eq!(
        doing("taking memory", &|| allocator.free_raw(take(256 * MIB)).unwrap()),
        2
    );
    doing("reserving", &|| allocator.reserve(400 * MIB, Stream::DEFAULT).unwrap());
    doing("too little memory", &|| {
        drop(allocator.alloc_raw(1 << 50, Stream::DEFAULT).unwrap_err())
    });
    doing("a use elsewhere", &|| {
        allocator.record_stream_raw(held[0], Stream(3)).unwrap()
    });
    doing("giving back", &|| allocator.free_raw(held[0]).unwrap());
    doing("joining", &|| drop(allocator.join_holes(80 * MIB, Stream(5))));
    doing("compacting", &|| assert!(allocator.compact().is_ok()));
    doing("a budget", &|| allocator.set_budget(Some(1 << 30)).unwrap());
    doing("releasing", &|| assert!(allocator.release_cached().is_ok()));
    doing("a pool", &|| {
        let route = pool.serve(Route::Stream(Stream(6))).unwrap();
        let addr = allocator.alloc_raw(MIB, Stream(6)).unwrap();
        drop(route);
        allocator.free_raw(addr).unwrap();
        pool.release_cached().unwrap();
    });
    doing("a pool's end", &|| {
        let gone = allocator.pool("gone", PoolConfig::default()).unwrap();
        let addr = gone.alloc_raw(MIB, Stream::DEFAULT).unwrap();
        drop(gone);
        allocator.free_raw(addr).unwrap();
        allocator.poll();
    });
    doing("a capture", &|| {
        let graph = allocator.private_pool().unwrap();
        allocator.begin_allocate_to_pool(&graph, Route::ThisThread).unwrap();
        allocator.end_allocate_to_pool(&graph).unwrap();
    });
    // A monitor's thread is none of an interpreter's, and who has that waits for its end.
    let small: Vec<u64> = (0..64).map(|_| take(MIB)).collect();
    small
        .iter()
        .step_by(2)
        .for_each(|addr| allocator.free_raw(*addr).unwrap());
    let asked = doing("a monitor", &|| {
        let (tell, told) = channel();
        let config = MonitorConfig {
            above: 0.01,
            measure: Measure::Cached,
            least: 1,
            every: Duration::from_millis(1),
            lasting: Duration::ZERO,
            action: Action::Release,
            listener: Some(gpumem_alloc::Listener::new(move |_| tell.send(()).unwrap_or_default())),
            ..MonitorConfig::default()
        };
        let _monitor = allocator.monitor(config).unwrap();
        told.recv_timeout(Duration::from_secs(30)).unwrap();
    });
    assert_eq!(asked, 0);
    Stack::set_source(None);
}
