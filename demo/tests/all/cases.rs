//! Files as people have them: what of each is replayed, or what is said of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gpumem_demo::DeviceChoice;
use gpumem_demo::replay::{ReplayArgs, run};

/// One line each: the file, and what is said.
const SAID: &str = include_str!("../data/cases/said.txt");

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases")
}

/// What people see: the paragraph about the trace without the time that reading took, or the error without the folder.
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
fn every_file_is_replayed_as_far_as_it_can_be_or_told_by_its_name() {
    let all: Vec<String> = SAID
        .lines()
        .map(|line| {
            let (file, _) = line.split_once(": ").unwrap();
            format!("{file}: {}", said(file))
        })
        .collect();
    assert_eq!(all, SAID.lines().collect::<Vec<_>>());
}

#[test]
fn no_file_is_forgotten() {
    let mut files = BTreeSet::new();
    for kind in ["rmm", "trace"] {
        for entry in std::fs::read_dir(folder().join(kind)).unwrap() {
            let name = entry.unwrap().file_name();
            files.insert(format!("{kind}/{}", name.to_str().unwrap()));
        }
    }
    let told: BTreeSet<String> = SAID
        .lines()
        .filter_map(|line| Some(line.split_once(": ")?.0.to_owned()))
        .collect();
    assert_eq!(told, files);
}
