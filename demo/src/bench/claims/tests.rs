#![allow(clippy::unwrap_used, clippy::panic)]

use std::cell::Cell;
use std::collections::BTreeSet;

use gpumem_alloc::device::{Device, SimConfig, sim};

use super::fake::Fake;
use super::perform::{Machine, check};
use super::*;
use crate::bench::hierarchy::Watch;
use crate::bench::protocol::Progress;
use crate::control::End;
use crate::rig::claims::ClaimRig;

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
        let left = self.left.get().checked_sub(1).ok_or(Stop::End(End::Signal(2)))?;
        self.left.set(left);
        Ok(())
    }
}

fn watcher(questions: u32) -> Watcher {
    Watcher {
        seen: Vec::new(),
        left: Cell::new(questions),
    }
}

fn device() -> Device {
    sim(SimConfig::default())
}

fn checked(gpu: Option<&mut Fake>) -> Report {
    let all: Vec<&Claim> = CLAIMS.iter().collect();
    let gpu = gpu.map(|gpu| gpu as &mut dyn ClaimRig);
    let device = device();
    let card = gpu.as_ref().map(|gpu| gpu.card().clone());
    let machine = Machine { gpu, device: &device };
    Report {
        schema: SCHEMA.to_owned(),
        card,
        rows: check(&all, machine, &mut watcher(u32::MAX)).unwrap(),
        ..Report::default()
    }
}

fn verdict<'a>(report: &'a Report, name: &str) -> &'a Verdict {
    &report.rows.iter().find(|row| row.name == name).unwrap().verdict
}

#[test]
fn every_claim_has_figures_and_a_verdict() {
    let report = checked(Some(&mut Fake::new()));
    for row in &report.rows {
        assert!(!row.figures.is_empty() && !row.short.is_empty(), "{}", row.name);
        // This one has a real clock, and the machine of the tests may be busy.
        let verdict = row.name == "cached-cost" || !matches!(row.verdict, Verdict::NotMeasured(_));
        assert!(verdict, "{}: {}", row.name, row.verdict);
        assert!(
            row.figures
                .iter()
                .all(|figure| figure.samples == 1 || figure.samples >= 5),
            "{}",
            row.name
        );
    }
    assert_eq!(verdict(&report, "coalescing"), &Verdict::Holds);
    assert_eq!(verdict(&report, "pageable-async"), &Verdict::Holds);
}

#[test]
fn claims_without_a_gpu_say_so() {
    let report = checked(None);
    for (row, claim) in report.rows.iter().zip(&CLAIMS) {
        let expected = Verdict::NotMeasured("needs a GPU".to_owned());
        assert_eq!(row.verdict == expected, claim.needs == Needs::Gpu, "{}", row.name);
        assert_eq!(row.place, Place::Simulated);
    }
    assert!(report.text(false, Some(80)).starts_with("SIMULATED"));
}

#[test]
fn busy_card_gives_no_verdict() {
    let mut fake = Fake::new();
    fake.busy_from = 220;
    let report = checked(Some(&mut fake));
    let Verdict::NotMeasured(reason) = verdict(&report, "malloc-cost") else {
        panic!("{:?}", verdict(&report, "malloc-cost"));
    };
    assert_eq!(reason, "busy, a kernel's time changed by +100%");
    assert!(
        matches!(verdict(&report, "coalescing"), Verdict::Holds),
        "it is steady again"
    );
}

#[test]
fn broken_card_leaves_a_reason_in_each_row() {
    let mut fake = Fake::new();
    fake.broken_from = 230;
    let report = checked(Some(&mut fake));
    let expected = Verdict::NotMeasured("the card fell off the bus".to_owned());
    for (row, claim) in report.rows.iter().zip(&CLAIMS) {
        assert_eq!(
            row.verdict == expected,
            claim.needs != Needs::Simulation,
            "{}",
            row.name
        );
    }
}

#[test]
fn run_stops_between_any_two_calls() {
    let all: Vec<&Claim> = CLAIMS.iter().collect();
    for questions in [0, 1, 150, 215, 240, 300] {
        let mut fake = Fake::new();
        let device = device();
        let machine = Machine {
            gpu: Some(&mut fake),
            device: &device,
        };
        let stopped = check(&all, machine, &mut watcher(questions));
        assert!(matches!(stopped, Err(Stop::End(End::Signal(2)))), "{questions}");
        assert!(
            fake.calls <= questions,
            "{} calls after {questions} questions",
            fake.calls
        );
    }
}

#[test]
fn progress_counts_every_claim_and_the_time_left() {
    let all: Vec<&Claim> = CLAIMS.iter().collect();
    let mut watcher = watcher(u32::MAX);
    let device = device();
    let machine = Machine {
        gpu: None,
        device: &device,
    };
    check(&all, machine, &mut watcher).unwrap();
    assert_eq!(watcher.seen.len(), CLAIMS.len());
    assert!(
        watcher
            .seen
            .iter()
            .zip(0..)
            .all(|(p, at)| p.done == at && p.of == CLAIMS.len() as u64)
    );
    assert!(watcher.seen.is_sorted_by(|a, b| a.left_ms >= b.left_ms));
    assert!(watcher.seen[0].left_ms < 90_000, "all of it takes less than 90 s");
}

#[test]
fn claims_are_told_apart_and_said_in_sentences() {
    let names: BTreeSet<_> = names().collect();
    assert_eq!(names.len(), CLAIMS.len());
    for claim in &CLAIMS {
        assert!(claim.name.len() <= 16, "{}", claim.name);
        assert!(
            claim.words.ends_with('.') && claim.method.ends_with('.'),
            "{}",
            claim.name
        );
    }
}

#[test]
fn text_has_80_columns() {
    for report in [checked(Some(&mut Fake::new())), checked(None)] {
        for explained in [false, true] {
            let text = report.text(explained, Some(80));
            let wide: Vec<_> = text.lines().filter(|line| line.chars().count() > 80).collect();
            assert!(wide.is_empty(), "{wide:#?}");
        }
        let cut: Vec<_> = report
            .rows
            .iter()
            .filter(|row| report.text(false, Some(80)).contains(&row.name))
            .collect();
        assert_eq!(cut.len(), CLAIMS.len());
        // What the table cuts off is lost to the reader.
        assert!(
            !report.text(false, Some(80)).contains('…'),
            "{}",
            report.text(false, Some(80))
        );
        assert!(
            report
                .text(true, Some(80))
                .contains("claim    cudaMalloc costs 1 to 10 ms. (courses)")
        );
    }
}

#[test]
fn wide_lines_have_the_words_of_the_claims() {
    let report = checked(Some(&mut Fake::new()));
    let whole = report.text(false, None);
    for (row, line) in report.rows.iter().zip(whole.lines().skip(1)) {
        assert!(line.starts_with(&row.name), "{line}");
        assert!(line.ends_with(&format!("{} ({})", row.claim, row.source)), "{line}");
        assert!(line.contains(&row.verdict.to_string()), "{line}");
    }
    let wide = report.text(false, Some(132));
    assert!(wide.contains("cudaMalloc costs 1 to 10 ms. (courses)"), "{wide}");
    assert!(wide.lines().all(|line| line.chars().count() <= 132), "{wide}");
}

#[test]
fn report_reads_back_from_json() {
    let report = checked(Some(&mut Fake::new()));
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    assert!(text.contains(r#""verdict":{"is":"holds"}"#), "{text}");
}
