#![allow(clippy::unwrap_used)]

use std::fs;

use super::*;
use crate::bench::hierarchy::{Card, SCHEMA};

fn report(uuid: &str, date: u64) -> Report {
    Report {
        schema: SCHEMA.into(),
        card: Card {
            uuid: uuid.into(),
            driver: "580.159.04".into(),
            sms: 132,
            ..Card::default()
        },
        date,
        ..Report::default()
    }
}

#[test]
fn reports_are_found_again_newest_first() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("gpumem");
    assert!(kept_in(&path).reports.is_empty() && kept_in(&path).errors.is_empty());
    let (a, b) = (report("GPU-a", 5), report("GPU-b", 7));
    let file = keep_in(&path, &a).unwrap();
    assert_eq!(file, path.join("hierarchy-GPU-a-580.159.04.json"));
    keep_in(&path, &b).unwrap();
    let found = kept_in(&path);
    assert!(found.errors.is_empty(), "{:?}", found.errors);
    let dates: Vec<_> = found.reports.iter().map(|kept| kept.report.clone()).collect();
    assert_eq!(dates, [b, a]);
}

#[test]
fn newer_report_of_a_card_replaces_the_older() {
    let home = tempfile::tempdir().unwrap();
    keep_in(home.path(), &report("GPU-a", 5)).unwrap();
    keep_in(home.path(), &report("GPU-a", 9)).unwrap();
    let mut other = report("GPU-a", 1);
    other.card.driver = "595.44".into();
    keep_in(home.path(), &other).unwrap();
    let found = kept_in(home.path());
    let dates: Vec<_> = found.reports.iter().map(|kept| kept.report.date).collect();
    assert_eq!(dates, [9, 1], "one for each driver");
}

#[test]
fn each_unreadable_file_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::create(home.path()).unwrap();
    keep_in(home.path(), &report("GPU-a", 5)).unwrap();
    folder.write("hierarchy-1.json", b"{\"schema\":").unwrap();
    folder.write("hierarchy-2.json", &[0xff; 100]).unwrap();
    let nested = [vec![b'['; 200_000], vec![b']'; 5]].concat();
    folder.write("hierarchy-3.json", &nested).unwrap();
    folder
        .write("hierarchy-4.json", b"{\"schema\":\"gpumem-hierarchy/9\"}")
        .unwrap();
    let stray = fs::read(home.path().join("hierarchy-GPU-a-580.159.04.json")).unwrap();
    folder.write("hierarchy-5.json", &stray).unwrap();
    folder.write("notes.txt", b"not ours").unwrap();
    let found = kept_in(home.path());
    assert_eq!(found.reports.len(), 1);
    let whys = [
        "not a report",
        "not a report",
        "not a report",
        "the schema",
        "another card",
    ];
    assert_eq!(found.errors.len(), whys.len(), "{:?}", found.errors);
    for ((error, why), at) in found.errors.iter().zip(whys).zip(1..) {
        let said = error.to_string();
        assert!(
            said.contains(why) && said.contains(&format!("hierarchy-{at}.json")),
            "{said}"
        );
    }
}

#[test]
fn names_of_files_stay_in_the_folder() {
    let mut report = report("../../etc/passwd", 1);
    report.card.driver = "5 8\0/0".into();
    assert_eq!(file_name(&report), "hierarchy-.._.._etc_passwd-5_8__0.json");
    let home = tempfile::tempdir().unwrap();
    assert!(keep_in(home.path(), &report).is_err(), "no such UUID");
}

#[test]
fn number_of_reports_is_bounded() {
    let home = tempfile::tempdir().unwrap();
    for card in 0..=MOST as u64 {
        keep_in(home.path(), &report(&format!("GPU-{card}"), card)).unwrap();
    }
    let found = kept_in(home.path());
    assert_eq!(found.reports.len(), MOST);
    assert!(
        found.errors[0].to_string().contains("only 64 of 65"),
        "{:?}",
        found.errors
    );
}
