//! A dashboard that runs for days must not leak memory, files or threads. The test has a process of its own, so that it counts only its own
//! resources.

use std::fs;

use gpumem_fake_nvml::FakeNvml;
use gpumem_probe::{Nvml, Processes};

use crate::{alone, is_alone};

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// Returns the anonymous resident memory in KiB.
fn memory() -> i64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn thousands_of_samples_leak_nothing() {
    alone("days::inner_takes_thousands_of_samples", &[]);
}

#[test]
fn inner_takes_thousands_of_samples() {
    if !is_alone() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let worlds = [
        "gpus=2;gpu0.process=self:1M:both",
        "gpus=1;gpu0.state=lost",
        "gpus=0",
        "calls=unknown",
        "gpus=3;gpu1.mig=2;gpu2.memory=not_supported",
    ];
    let fake = FakeNvml::install(folder.path(), worlds[0]).unwrap();
    let mut nvml = Nvml::load(Some(fake.path())).unwrap();
    let mut processes = Processes::default();
    let mut step = |i: usize| {
        fake.play(worlds[i / 7 % worlds.len()]).unwrap();
        let sample = nvml.sample();
        let listed = sample
            .gpus
            .iter()
            .flat_map(|g| g.processes.value().into_iter().flatten());
        let pids: Vec<u32> = listed.map(|p| p.pid).chain([1, 4_000_000_000 - i as u32]).collect();
        processes.look_up(&pids);
    };
    (0..200).for_each(&mut step);
    let before = (open_files(), threads(), memory());
    (0..3000).for_each(&mut step);
    assert_eq!((open_files(), threads()), (before.0, before.1));
    let growth = memory() - before.2;
    assert!(growth < 512, "{growth} KiB more after 3000 samples");
}
