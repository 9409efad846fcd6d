//! The counters of watched processes, and which processes are watched.

use std::time::Duration;

use gpumem_probe::{Counters, Watching};
use rustix::process::Signal;

use crate::stage::{Process, Stage, run_until, signal, until_on, wait_for, why_off};

fn counters(words: [u64; 4]) -> Option<Counters> {
    let [to_gpu, to_cpu, cpu_faults, gpu_faults] = words;
    Some(Counters {
        to_gpu,
        to_cpu,
        cpu_faults,
        gpu_faults,
    })
}

pub(crate) fn counters_arrive() {
    let stage = Stage::new(
        "space=1 0 count to_gpu=4096 gpu_faults=3\nspace=1 40 count to_cpu=8192 cpu_faults=6\nspace=2 0 count to_gpu=1",
    );
    let (one, two) = (stage.target_with(&["1"]), stage.target_with(&["2"]));
    let mut watch = stage.watch();
    watch.set(&[one.target(), two.target()], None);
    assert_eq!(watch.state(one.target()), Some(&Watching::Pending));
    assert_eq!(watch.counters(one.target()), None);
    until_on(&mut watch, one.target());
    run_until(&mut watch, "the first", |watch| {
        watch.counters(one.target()) == counters([4096, 0, 0, 3])
    });
    run_until(&mut watch, "both", |watch| {
        watch.counters(one.target()) == counters([4096, 8192, 6, 3])
    });
    until_on(&mut watch, two.target());
    run_until(&mut watch, "the other's", |watch| {
        watch.counters(two.target()) == counters([1, 0, 0, 0])
    });
    // A helper that held a copy of the process's descriptor would keep its address space.
    let helpers = stage.helpers();
    assert_eq!(stage.descriptors(helpers[0], "dev/nvidia-uvm"), 0);
    assert_eq!(stage.descriptors(helpers[0], "dev/nvidia-uvm-tools"), 2);
    // Without a watched process the helper is not needed.
    watch.set(&[], None);
    assert_eq!(watch.counters(one.target()), None);
    wait_for("the helper ends", || stage.helpers().is_empty());
}

/// The counters were recorded on an H200.
pub(crate) fn recorded_counters() {
    let stage = Stage::new(include_str!("../../../../tests/fake-uvm/fixtures/ping-pong.scenario"));
    let target = stage.target();
    let mut watch = stage.watch();
    watch.set(&[target.target()], None);
    run_until(&mut watch, "as recorded", |watch| {
        watch.counters(target.target()) == counters([1_342_177_280, 1_308_622_848, 3744, 86_713])
    });
}

/// Counters, events and the table of processors in each layout of the requests.
pub(crate) fn every_series() {
    for version in ["535.54.03", "550.40.53", "560.28.03", "580.159.04"] {
        let stage = Stage::new("0 count to_gpu=4096\n0 event cpu_fault");
        stage.fake.set_version(version).unwrap();
        let target = stage.target();
        let mut watch = stage.watch();
        watch.set(&[target.target()], Some(target.target()));
        run_until(&mut watch, version, |watch| {
            watch
                .counters(target.target())
                .is_some_and(|counters| counters.to_gpu == 4096)
                && watch.events().is_some_and(|events| events.sums.cpu_faults == 1)
        });
        let processors = watch.events().unwrap().processors;
        assert_eq!(processors[1..4], [*b"fake-uvm-gpu-one", *b"fake-uvm-gpu-two", [0; 16]]);
        assert_eq!((processors[0][0], processors.len()), (0xa6, 33));
    }
}

/// A process can hold a second descriptor, for which the driver refuses to make a tracker.
pub(crate) fn second_descriptor() {
    let stage = Stage::new("0 count to_gpu=1");
    let target = stage.target_with(&["0", "lifetime"]);
    let mut watch = stage.watch();
    watch.set(&[target.target()], None);
    until_on(&mut watch, target.target());
    let tried = stage.fake.requests().unwrap().iter().filter(|r| r.number == 56).count();
    assert_eq!(tried, 2);
    assert_eq!(stage.descriptors(stage.helpers()[0], "dev/nvidia-uvm-tools"), 1);
}

pub(crate) fn two_watchers() {
    let stage = Stage::new("0 count to_gpu=7");
    let target = stage.target();
    let mut watches = [stage.watch(), stage.watch()];
    for watch in &mut watches {
        watch.set(&[target.target()], None);
        until_on(watch, target.target());
    }
    assert_eq!((stage.helpers().len(), stage.fake.open_trackers().unwrap()), (2, 2));
    for watch in &mut watches {
        run_until(watch, "counted", |watch| {
            watch.counters(target.target()) == counters([7, 0, 0, 0])
        });
    }
    let [first, mut second] = watches;
    drop(first);
    wait_for("one is left", || stage.helpers().len() == 1);
    assert_eq!(second.counters(target.target()), counters([7, 0, 0, 0]));
    target.kill();
    stage.wait_for_trackers(0);
    assert_eq!(why_off(&mut second, target.target()), "the process has ended");
}

pub(crate) fn as_many_as_there_are_slots() {
    let stage = Stage::new("space=63 0 count to_gpu=63");
    let processes: Vec<Process> = (0..65).map(|n| stage.target_with(&[&n.to_string()])).collect();
    let mut targets: Vec<_> = processes.iter().map(Process::target).collect();
    let mut watch = stage.watch();
    watch.set(&targets, None);
    let one_too_many = why_off(&mut watch, targets[64]);
    assert_eq!(one_too_many, "64 processes are watched, and no more can be");
    for target in &targets[..64] {
        until_on(&mut watch, *target);
    }
    assert_eq!(stage.fake.open_trackers().unwrap(), 64);
    run_until(&mut watch, "the last counts", |watch| {
        watch.counters(targets[63]) == counters([63, 0, 0, 0])
    });
    // The slot of a process that has ended is free, though the process is still listed.
    processes[10].kill();
    stage.wait_for_trackers(63);
    assert_eq!(why_off(&mut watch, targets[10]), "the process has ended");
    let late = stage.target_with(&["100"]);
    targets.push(late.target());
    watch.set(&targets, None);
    until_on(&mut watch, late.target());
    assert_eq!(watch.counters(late.target()), counters([0; 4]));
}

/// Messages about a process do not count for the next one in the same slot.
pub(crate) fn reused_slot() {
    let stage = Stage::new("space=1 0 count to_gpu=1\nspace=2 0 count to_gpu=2");
    let first = stage.target_with(&["1"]);
    let mut watch = stage.watch();
    watch.set(&[first.target()], None);
    until_on(&mut watch, first.target());
    run_until(&mut watch, "counted", |watch| {
        watch.counters(first.target()) == counters([1, 0, 0, 0])
    });
    // It ends, and the watch does not notice before the next one has its slot.
    first.kill();
    stage.wait_for_trackers(0);
    std::thread::sleep(Duration::from_millis(20));
    let second = stage.target_with(&["2"]);
    watch.set(&[second.target()], Some(second.target()));
    // Polls by itself, so that the watch misses no state in between.
    wait_for("it is watched", || {
        watch.wait(Duration::ZERO);
        match watch.state(second.target()) {
            Some(Watching::Off(why)) => panic!("{why}"),
            state => state == Some(&Watching::On),
        }
    });
    run_until(&mut watch, "counted anew", |watch| {
        watch.counters(second.target()) == counters([2, 0, 0, 0])
    });
}

/// The watch does not wait for a helper that it finds dead when it sends a message.
pub(crate) fn dead_helper() {
    let stage = Stage::new("");
    let (one, two) = (stage.target(), stage.target());
    let mut watch = stage.watch();
    watch.set(&[one.target()], None);
    until_on(&mut watch, one.target());
    signal(stage.helpers()[0], Signal::KILL);
    wait_for("it is dead", || stage.helpers().is_empty());
    watch.set(&[one.target(), two.target()], Some(two.target()));
    for target in [one.target(), two.target()] {
        let why = why_off(&mut watch, target);
        assert!(why.starts_with("its helper process"), "{why}");
    }
    assert!(matches!(watch.events_state(), Some((_, Watching::Off(_)))));
    assert_eq!((watch.counters(one.target()), watch.events()), (None, None));
}
