//! Everything at once: random programs of several threads that use pools, routes, captures, raw addresses, other streams and streams that
//! end, while budgets change, a history comes and goes, a monitor tidies up, others take memory of the device, and driver calls fail.
#![allow(clippy::unwrap_used, clippy::panic)]

mod end;
mod program;
mod worker;
mod world;

use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use gpumem_alloc::device::{Sim, SimConfig, Timeline};
use gpumem_alloc::{Allocator, Config, Options, Publish, Stream};
use proptest::prelude::*;

use end::finish;
use program::{Op, TOTAL, config, op, timeline};
use worker::Worker;
use world::{Held, World};

fn run(config: &Config, timeline: Timeline, threads: &[Vec<Op>], faulty: bool) {
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
        faulty,
        ranges: Mutex::default(),
        sent: Mutex::default(),
        pools: Mutex::default(),
        made: AtomicU64::new(0),
        routes: AtomicU64::new(0),
    };
    let held: Vec<Held> = std::thread::scope(|scope| {
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
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let World {
        alloc,
        sent,
        pools,
        ranges,
        ..
    } = world;
    sim.clear_failure();
    sim.set_used_by_others(0);
    let mut held = held;
    held.extend(sent.into_inner().unwrap());
    finish(
        &sim,
        alloc,
        held,
        pools.into_inner().unwrap(),
        &ranges.into_inner().unwrap(),
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn one_thread(config in config(), timeline in timeline(), ops in prop::collection::vec(op(false), 1..150)) {
        run(&config, timeline, &[ops], false);
    }

    #[test]
    fn several_threads(
        config in config(),
        timeline in timeline(),
        threads in prop::collection::vec(prop::collection::vec(op(false), 1..150), 2..5),
    ) {
        run(&config, timeline, &threads, false);
    }

    #[test]
    fn several_threads_while_the_driver_fails(
        config in config(),
        timeline in timeline(),
        threads in prop::collection::vec(prop::collection::vec(op(true), 1..150), 1..4),
    ) {
        run(&config, timeline, &threads, true);
    }
}
