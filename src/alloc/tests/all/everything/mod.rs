//! Everything at once: random programs of several threads that use pools, routes, captures, raw addresses, other streams and streams that
//! end, while budgets change, a history comes and goes, a monitor tidies up, others take memory of the device, and driver calls fail.

mod end;
mod program;
mod worker;
mod world;

use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use gpumem_alloc::device::{Call, Sim, SimConfig, Timeline};
use gpumem_alloc::{Allocator, Config, Options, Publish, Stream};
use proptest::prelude::*;

use crate::common::campaign;
use end::finish;
use program::{Op, TOTAL, calls, config, op, timeline};
use worker::Worker;
use world::{Held, World};

/// Driver calls take their time, some of one kind after some of another, until the program is done.
fn linger(sim: &Sim, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        for call in Call::ALL {
            let pause = match call as usize % 2 {
                0 => sim.pause(call),
                _ => sim.pause_first(call),
            };
            std::thread::sleep(Duration::from_micros(200));
            drop(pause);
        }
    }
}

/// `faults`: `None` where no driver call fails, else those that fail as the allocator ends.
fn run(config: &Config, timeline: Timeline, threads: &[Vec<Op>], faults: Option<&[(Call, u64)]>) {
    let sim = Sim::new(SimConfig {
        total: TOTAL,
        timeline,
        ..SimConfig::default()
    });
    let dir = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let publish = Publish::On(Options {
        dir: Some(dir.path().to_owned()),
        ..Options::default()
    });
    let config = Config {
        publish,
        ..config.clone()
    };
    let world = World {
        alloc: Allocator::new(sim.device(), config).unwrap(),
        sim: sim.clone(),
        faulty: faults.is_some(),
        ranges: Mutex::default(),
        sent: Mutex::default(),
        pools: Mutex::default(),
        made: AtomicU64::new(0),
        routes: AtomicU64::new(0),
    };
    let done = AtomicBool::new(false);
    let held: Vec<Held> = std::thread::scope(|scope| {
        if threads.len() > 1 {
            scope.spawn(|| linger(&sim, &done));
        }
        let workers: Vec<_> = (0..)
            .zip(threads)
            .map(|(me, ops)| {
                let mut worker = Worker {
                    world: &world,
                    held: Vec::new(),
                    own: Stream(10 + me),
                    lives: 0,
                };
                scope.spawn(move || {
                    ops.iter().for_each(|op| worker.step(op));
                    let Worker { held, .. } = worker;
                    held
                })
            })
            .collect();
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Relaxed);
        ended.into_iter().flat_map(Result::unwrap).collect()
    });
    let World {
        alloc,
        sent,
        pools,
        ranges,
        ..
    } = world;
    sim.clear_failure();
    Call::ALL.into_iter().for_each(|call| sim.fail_next(call, 0));
    sim.set_used_by_others(0);
    let mut held = held;
    held.extend(sent.into_inner().unwrap());
    finish(
        &sim,
        alloc,
        held,
        pools.into_inner().unwrap(),
        &ranges.into_inner().unwrap(),
        faults.unwrap_or_default(),
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: campaign(20), ..ProptestConfig::default() })]

    #[test]
    fn one_thread(config in config(), timeline in timeline(), ops in prop::collection::vec(op(false), 1..150)) {
        run(&config, timeline, &[ops], None);
    }

    #[test]
    fn several_threads(
        config in config(),
        timeline in timeline(),
        threads in prop::collection::vec(prop::collection::vec(op(false), 1..150), 2..5),
    ) {
        run(&config, timeline, &threads, None);
    }

    #[test]
    fn several_threads_while_the_driver_fails(
        config in config(),
        timeline in timeline(),
        threads in prop::collection::vec(prop::collection::vec(op(true), 1..150), 1..4),
        faults in prop::collection::vec(calls(), 0..3),
    ) {
        run(&config, timeline, &threads, Some(&faults));
    }
}
