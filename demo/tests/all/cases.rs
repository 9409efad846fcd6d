//! Files as people have them, with the operations replayed from each, or its error.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gpumem_demo::DeviceChoice;
use gpumem_demo::replay::{ReplayArgs, run};

/// One line per file: its name, and the expected text.
const EXPECTED: &str = include_str!("../data/cases/expected.txt");

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases")
}

/// Returns what people see: the paragraph about the trace without the time for reading, or the error without the folder.
fn said(file: &str) -> String {
    let report = run(&ReplayArgs {
        trace: folder().join(file),
        device: DeviceChoice::Sim,
        publish: false,
        passes: 1,
        ..ReplayArgs::default()
    });
    match report {
        Ok(report) => {
            let text = report.text();
            let lines = text.lines().skip_while(|line| !line.starts_with("trace "));
            let lines = lines.take_while(|line| !line.starts_with("allocator "));
            let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
            let words = words.join(" ");
            let (_, about) = words.split_once(" (").unwrap();
            let (before, after) = about.split_once(", read in ").unwrap();
            format!("({before}{}", after.find(';').map_or("", |at| &after[at..]))
        }
        Err(error) => {
            assert_eq!(error.exit_code(), 1, "{file}: {error}");
            let error = error.to_string();
            let (_, error) = error.split_once(&format!("{file}: ")).unwrap();
            error.to_owned()
        }
    }
}

#[test]
fn every_file_is_replayed_or_refused_as_expected() {
    let all: Vec<String> = EXPECTED
        .lines()
        .map(|line| {
            let (file, _) = line.split_once(": ").unwrap();
            format!("{file}: {}", said(file))
        })
        .collect();
    assert_eq!(all, EXPECTED.lines().collect::<Vec<_>>());
}

#[test]
fn every_file_has_an_expectation() {
    let mut files = BTreeSet::new();
    for kind in ["rmm", "trace"] {
        for entry in std::fs::read_dir(folder().join(kind)).unwrap() {
            let name = entry.unwrap().file_name();
            files.insert(format!("{kind}/{}", name.to_str().unwrap()));
        }
    }
    let listed: BTreeSet<String> = EXPECTED
        .lines()
        .filter_map(|line| Some(line.split_once(": ")?.0.to_owned()))
        .collect();
    assert_eq!(listed, files);
}
