#![allow(clippy::unwrap_used, clippy::panic)]

use std::cell::Cell;
use std::sync::LazyLock;

use super::fake::{Fake, L1_REACH};
use super::*;
use crate::bench::error::BenchError;
use crate::control::End;

/// Sixteen times L2, which is as much as anything uses, and some more.
const BUDGET: u64 = 80 << 20;

/// Collects the progress, and stops after so many questions.
struct Watcher {
    seen: Vec<Progress>,
    left: Cell<u32>,
}

impl Watch for Watcher {
    fn progress(&mut self, progress: &Progress) -> Result<(), Stop> {
        self.seen.push(progress.clone());
        Ok(())
    }

    fn go_on(&self) -> Result<(), Stop> {
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(Stop::End(End::Signal(2))),
        }
    }
}

fn watcher(questions: u32) -> Watcher {
    Watcher {
        seen: Vec::new(),
        left: Cell::new(questions),
    }
}

/// A whole run on a sound device, and its progress. It takes a second without optimisation.
static RUN: LazyLock<(Report, Vec<Progress>)> = LazyLock::new(|| {
    let mut watcher = watcher(u32::MAX);
    let report = measure(&mut Fake::new(), BUDGET, &mut watcher).unwrap();
    (report, watcher.seen)
});

fn report() -> &'static Report {
    &RUN.0
}

fn level(report: &Report, rung: Rung) -> &Level {
    report.levels.iter().find(|level| level.rung == rung).unwrap()
}

#[test]
fn levels_have_the_devices_latencies_and_bandwidths() {
    let report = report();
    let expected = [
        (Rung::Registers, Some(2.0)),
        (Rung::Shared, Some(12.0)),
        (Rung::L1, Some(17.0)),
        (Rung::L2Near, Some(150.0)),
        (Rung::L2Far, Some(270.0)),
        (Rung::Device, Some(370.0)),
        (Rung::PinnedHost, Some(1000.0)),
        (Rung::PageableHost, None),
        (Rung::Disk, None),
    ];
    assert_eq!(report.levels.len(), expected.len());
    for (rung, ns) in expected {
        let level = level(report, rung);
        let latency = level.latency.as_ref();
        assert_eq!(latency.map(|l| l.ns), ns, "{rung:?}");
        assert_eq!(latency.map(|l| l.cycles), ns.map(|ns| ns * 2.0), "{rung:?}");
    }
    assert_eq!(report.sm_mhz, 2000.0);
    let device = level(report, Rung::Device);
    let rates: Vec<_> = device
        .bandwidths
        .iter()
        .map(|b| (b.what.as_str(), b.gb_per_s.round()))
        .collect();
    assert_eq!(
        rates,
        [
            ("write", 3000.0),
            ("read", 3000.0),
            ("copy", 3000.0),
            ("driver copy", 2900.0)
        ]
    );
    // 30,000 GB/s by 132 SMs at 2 GHz.
    let l1 = &level(report, Rung::L1).bandwidths[0];
    assert_eq!(l1.per_cycle_and_sm.map(f64::round), Some(114.0));
}

#[test]
fn working_sets_are_as_published_ones() {
    let report = report();
    let l2 = report.card.l2_bytes as f64;
    let share = |rung| level(report, rung).latency.as_ref().unwrap().bytes as f64 / l2;
    assert!(share(Rung::L2Near) < 0.44);
    assert!((0.70..0.85).contains(&share(Rung::L2Far)));
    assert!(share(Rung::Device) >= 4.0);
    let device = level(report, Rung::Device);
    assert!(
        device.bandwidths.iter().all(|b| b.bytes as f64 >= 8.0 * l2),
        "buffers are beyond L2"
    );
    assert_eq!(level(report, Rung::L1).bytes_per_sm, Some(L1_REACH));
}

#[test]
fn curve_rises_and_its_steps_are_named() {
    let report = report();
    assert!(report.curve.len() >= 20, "{}", report.curve.len());
    assert!(report.curve.is_sorted_by(|a, b| a.bytes < b.bytes && a.ns <= b.ns));
    for (region, ns) in [
        (Region::L1, 17.0),
        (Region::L2Near, 150.0),
        (Region::L2Far, 270.0),
        (Region::Device, 370.0),
    ] {
        let of: Vec<_> = report.curve.iter().filter(|p| p.region == region).collect();
        assert!(of.len() >= 2, "{region:?}");
        assert!(of.iter().all(|p| p.ns == ns), "{region:?} {of:?}");
    }
    let spread = report.spread.as_ref().unwrap();
    assert_eq!(
        (spread.least_ns, spread.most_ns, spread.by_sm.len()),
        (150.0, 152.0, 16)
    );
}

#[test]
fn each_peer_is_a_level_of_its_own() {
    let peer = |device, native_atomics| Peer {
        device,
        name: "NVIDIA H100 80GB HBM3".into(),
        uuid: format!("GPU-{device}"),
        performance_rank: Some(0),
        native_atomics,
    };
    let mut fake = Fake::new();
    fake.card.peers = vec![peer(1, Some(true)), peer(2, Some(false)), peer(3, None)];
    fake.no_peer = Some(3);
    let report = measure(&mut fake, BUDGET, &mut watcher(u32::MAX)).unwrap();
    let found: Vec<_> = report.levels.iter().filter(|level| level.rung == Rung::Peer).collect();
    let numbers: Vec<_> = found.iter().map(|level| level.peer).collect();
    assert_eq!(numbers, [Some(1), Some(2), Some(3)]);
    let ns: Vec<_> = found
        .iter()
        .map(|level| level.latency.as_ref().map(|latency| latency.ns))
        .collect();
    assert_eq!(ns, [Some(701.0), Some(702.0), None]);
    let rates: Vec<_> = found[1]
        .bandwidths
        .iter()
        .map(|b| (b.what.as_str(), b.gb_per_s.round()))
        .collect();
    assert_eq!(rates, [("from peer", 200.0), ("to peer", 250.0)]);
    for (level, words) in found.iter().zip(["NVLink", "PCIe", "allocating memory of a peer"]) {
        assert!(level.note.contains(words), "{}", level.note);
    }
    let text = report.text();
    assert!(
        text.contains("peer GPU 2 ") && text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert_eq!(report.clone().checked(), Ok(report), "it can be kept");
}

#[test]
fn small_budget_leaves_out_what_does_not_fit() {
    let small = 8 << 20;
    let report = measure(&mut Fake::new(), small, &mut watcher(u32::MAX)).unwrap();
    let device = level(&report, Rung::Device);
    assert!(
        device.latency.is_none() && device.note.contains("--budget"),
        "{}",
        device.note
    );
    assert!(device.bandwidths.iter().all(|b| b.bytes <= small));
    assert!(report.curve.iter().all(|p| p.bytes < small));
}

#[test]
fn failing_host_memory_leaves_the_rest() {
    let mut fake = Fake::new();
    fake.no_host = true;
    let report = measure(&mut fake, BUDGET, &mut watcher(u32::MAX)).unwrap();
    assert!(level(&report, Rung::PageableHost).note.contains("pinned memory"));
    assert!(level(&report, Rung::Device).latency.is_some());
}

#[test]
fn chase_that_gets_lost_is_an_error() {
    let mut fake = Fake::new();
    fake.lost = true;
    match measure(&mut fake, BUDGET, &mut watcher(u32::MAX)) {
        Err(Stop::Error(BenchError::Device(why))) => assert!(why.contains("pointer chase"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn run_stops_between_any_two_calls() {
    for questions in [0, 1, 10, 310, 320] {
        let mut fake = Fake::new();
        let stopped = measure(&mut fake, BUDGET, &mut watcher(questions));
        assert!(matches!(stopped, Err(Stop::End(End::Signal(2)))));
        assert!(
            fake.calls <= questions,
            "{} calls after {questions} questions",
            fake.calls
        );
    }
}

#[test]
fn progress_counts_every_step() {
    let seen = &RUN.1;
    let of = seen.len() as u64;
    assert!(seen.iter().zip(0..).all(|(p, at)| p.done == at && p.of == of));
    assert!(seen[0].left_ms > 1000, "{}", seen[0].left_ms);
}

#[test]
fn text_has_80_columns() {
    let text = report().text();
    let wide: Vec<_> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    for words in [
        "L2 cache, near",
        "H100 PCIe at 1755 MHz",
        "random cycle",
        "near L2 by SM",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
}
