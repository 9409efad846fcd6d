//! The verdict on every text of the corpora. The texts were written after the shapes of public messages, without knowledge of this crate.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use gpumem_triage::{Verdict, triage};

struct Entry<'a> {
    name: &'a str,
    allocators: Vec<&'a str>,
    verdicts: Vec<&'a str>,
    text: &'a str,
}

/// Splits a corpus: `=== name`, lines `key: value`, `---`, and the text up to the next `=== `.
fn entries(corpus: &str) -> Vec<Entry<'_>> {
    let parts = corpus.split("\n=== ").enumerate();
    parts
        .map(|(at, part)| {
            let part = if at == 0 { part.trim_start_matches("=== ") } else { part };
            let (head, text) = part.split_once("\n---\n").unwrap();
            let value = |key: &str| {
                let mut lines = head.lines();
                let values = lines.find_map(|line| line.strip_prefix(key)).unwrap();
                values.split(',').map(str::trim).collect::<Vec<_>>()
            };
            Entry {
                name: head.lines().next().unwrap(),
                allocators: value("allocator:"),
                verdicts: value("verdict:"),
                text,
            }
        })
        .collect()
}

fn word<T: serde::Serialize>(value: T) -> String {
    serde_json::to_value(value).unwrap().as_str().unwrap().to_owned()
}

/// At least 95 % right, and no wrong verdict that is certain.
fn check(corpus: &str, least: usize) {
    let entries = entries(corpus);
    assert!(entries.len() >= least, "{}", entries.len());
    let names: BTreeMap<_, _> = entries.iter().map(|entry| (entry.name, ())).collect();
    assert_eq!(names.len(), entries.len(), "names are unique");
    let (mut wrong, mut certain) = (Vec::new(), Vec::new());
    for entry in &entries {
        let report = triage(entry.text);
        let (verdict, allocator) = (word(report.verdict), word(report.allocator));
        let good = entry.verdicts.contains(&&*verdict) && entry.allocators.contains(&&*allocator);
        if good {
            continue;
        }
        let line = format!(
            "{}: {allocator} {verdict}, not {:?} {:?}: {} [{}]",
            entry.name,
            entry.allocators,
            entry.verdicts,
            report.why,
            report.evidence.as_ref().map_or("", |evidence| &evidence.text)
        );
        if report.verdict.is_certain() && report.verdict != Verdict::Warning {
            certain.push(line);
        } else {
            wrong.push(line);
        }
    }
    let right = entries.len() - wrong.len() - certain.len();
    let summary = format!(
        "{right} of {} right\nwrong, and not certain:\n{}\nwrong, and certain:\n{}",
        entries.len(),
        wrong.join("\n"),
        certain.join("\n")
    );
    assert!(right * 100 >= 95 * entries.len() && certain.is_empty(), "{summary}");
}

#[test]
fn corpus() {
    check(include_str!("corpus.txt"), 190);
}

#[test]
fn second_corpus() {
    check(include_str!("second.txt"), 140);
}

#[test]
fn third_corpus() {
    check(include_str!("third.txt"), 147);
}

#[test]
fn fourth_corpus() {
    check(include_str!("fourth.txt"), 121);
}

/// Messages are found in long logs, too, of which most lines are passed over.
#[test]
fn messages_in_the_middle_of_a_long_log() {
    let noise = "2026-11-28 03:10:00 step 4711 loss 2.3148 lr 3.0e-04 tokens/s 41300\n".repeat(1200);
    for entry in entries(include_str!("recorded.txt")) {
        let report = triage(&format!("{noise}{}\n{noise}", entry.text));
        assert!(entry.verdicts.contains(&&*word(report.verdict)), "{}", entry.name);
        assert!(
            report.evidence.is_some_and(|evidence| evidence.line > 1200),
            "{}",
            entry.name
        );
    }
}

#[test]
fn recorded_on_a_gpu() {
    check(include_str!("recorded.txt"), 13);
}
