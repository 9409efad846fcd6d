//! Checks the output of `--json` for a folder of mutants against what `JSON.md` promises.

use std::collections::HashMap;

use serde_json::Value;

use super::judge::{Judged, Verdict};
use super::oracle::{Figures, Oracle};
use super::text::harm;

/// A mutant in the folder, with what is known about it.
pub(crate) struct Suspect {
    /// The line of text that makes it again.
    pub(crate) line: String,
    /// The name of its file.
    pub(crate) file: String,
    /// The job label by which its rows are found, if the mutation left it intact.
    pub(crate) job: Option<String>,
    /// Whether its publisher seems to live.
    pub(crate) alive: bool,
    /// What the words of its file say.
    pub(crate) oracle: Option<Oracle>,
    /// What the reader made of it.
    pub(crate) judged: Judged,
}

/// The mutant that a fault is about, where that is known, and a description.
pub(crate) type Fault = (Option<usize>, String);

/// Returns every fault of a document.
pub(crate) fn check(document: &Value, suspects: &[Suspect], witness: u32) -> Vec<Fault> {
    let mut faults = Vec::new();
    if document["schema"] != "gpumem/1" {
        faults.push((None, format!("another schema: {}", document["schema"])));
    }
    texts(document, &mut faults);
    let rows = document["processes"].as_array().map_or(&[][..], Vec::as_slice);
    let by_job: HashMap<&str, usize> = suspects
        .iter()
        .enumerate()
        .filter_map(|(n, suspect)| Some((suspect.job.as_deref()?, n)))
        .collect();
    let suspect = |row: &Value| row["job"].as_str().and_then(|job| by_job.get(job)).copied();
    for row in rows {
        let about = suspect(row);
        let mut found = Vec::new();
        check_row(row, about.map(|n| &suspects[n]), &mut found);
        faults.extend(found.into_iter().map(|text| (about, format!("{text}: {row}"))));
    }
    for (n, suspect) in suspects.iter().enumerate() {
        let its: Vec<&Value> = rows.iter().filter(|row| about(row, suspect)).collect();
        let found = match_rows(suspect, &its, document);
        faults.extend(found.map(|text| (Some(n), text)));
    }
    let devices = document["devices"].as_array().map_or(&[][..], Vec::as_slice);
    let found = devices.iter().filter_map(|device| check_sums(device, devices, rows));
    faults.extend(found.map(|text| (None, text)));
    // An intact publisher is shown correctly whatever other files are in the folder.
    let is_witness = |row: &&Value| {
        let allocator = &row["allocator"];
        row["pid"] == witness
            && row["job"].is_null()
            && row["state"] == "publishing"
            && allocator["reserved"] == 512u64 << 20
            && allocator["allocated"] == 384u64 << 20
            && allocator["largest_free"] == 128u64 << 20
    };
    if !rows.iter().any(|row| is_witness(&row)) {
        faults.push((
            None,
            "the intact publisher beside them is not shown correctly".to_owned(),
        ));
    }
    faults
}

fn about(row: &Value, suspect: &Suspect) -> bool {
    suspect.job.as_deref().is_some_and(|job| row["job"] == job)
}

/// Checks every string of a document.
fn texts(value: &Value, faults: &mut Vec<Fault>) {
    match value {
        Value::String(text) => faults.extend(harm(text).map(|text| (None, text))),
        Value::Array(values) => values.iter().for_each(|value| texts(value, faults)),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            faults.extend(harm(name).map(|text| (None, text)));
            texts(value, faults);
        }),
        _ => {}
    }
}

/// Checks that the figures of a row can be true, whatever its state is.
fn check_row(row: &Value, suspect: Option<&Suspect>, faults: &mut Vec<String>) {
    let allocator = &row["allocator"];
    if allocator.is_null() {
        if row["state"] == "publishing" {
            faults.push("publishing, and no figures".to_owned());
        }
        return;
    }
    let of = |field: &str| allocator[field].as_u64();
    let figures = [
        "reserved",
        "allocated",
        "cached",
        "requested",
        "pending",
        "free_total",
        "largest_free",
    ]
    .map(of);
    let [
        Some(reserved),
        Some(allocated),
        Some(cached),
        Some(requested),
        Some(pending),
        Some(free),
        Some(largest),
    ] = figures
    else {
        return faults.push("a figure is missing".to_owned());
    };
    let rules = [
        (allocated > reserved, "allocated more than reserved"),
        (
            u128::from(cached) + u128::from(allocated) != reserved.into(),
            "cached is not the rest of reserved",
        ),
        (pending > cached, "pending more than cached"),
        (
            u128::from(requested) > u128::from(allocated) + u128::from(pending),
            "requested more than active",
        ),
        (of("peak_reserved") < Some(reserved), "a peak of reserved below it"),
        (of("peak_allocated") < Some(allocated), "a peak of allocated below it"),
        (largest > free, "the largest free block is more than all"),
        (
            of("inactive_split") > Some(cached),
            "more in pinned free blocks than cached",
        ),
        (
            (of("free_blocks") == Some(0)) != (free == 0),
            "free blocks and no bytes in them",
        ),
    ];
    faults.extend(
        rules
            .into_iter()
            .filter(|(broken, _)| *broken)
            .map(|(_, text)| text.to_owned()),
    );
    for share in [
        "external_fragmentation",
        "internal_fragmentation",
        "inactive_split_ratio",
    ] {
        if allocator[share]
            .as_f64()
            .is_some_and(|share| !(0.0..=1.0).contains(&share))
        {
            faults.push(format!("{share} is no share"));
        }
    }
    let Some(oracle) = suspect.and_then(|suspect| suspect.oracle.as_ref()) else {
        return;
    };
    let shown = Figures {
        reserved,
        allocated,
        active: allocated + pending,
        requested,
    };
    if !oracle.allows(&shown) {
        faults.push(format!("figures that its words do not have, {:?}", oracle.claims));
    }
    if let Some(begun) = oracle.begun
        && free > cached.saturating_add(begun.into_iter().max().unwrap_or(0))
    {
        faults.push("free blocks are more than what is cached".to_owned());
    }
}

/// Returns a fault if the rows of a mutant are not what the reader made of it.
fn match_rows(suspect: &Suspect, rows: &[&Value], document: &Value) -> Option<String> {
    suspect.job.as_ref()?;
    let judged = &suspect.judged;
    let problems = document["unreadable_channels"].as_array();
    let named = |problem: &Value| {
        problem["file"]
            .as_str()
            .is_some_and(|file| file.ends_with(&suspect.file))
    };
    let is_named = problems.is_some_and(|problems| problems.iter().any(named));
    let in_state = |state: &str| rows.iter().filter(|row| row["state"] == state).count();
    match judged.verdict {
        Verdict::Refused if !is_named => Some("refused, and not said to be".to_owned()),
        Verdict::Refused | Verdict::Unreadable => None,
        _ if rows.len() != judged.devices => Some(format!("{} rows of {} devices", rows.len(), judged.devices)),
        _ if !suspect.alive && in_state("exited") + in_state("died") != rows.len() => {
            Some("a black box that is not shown as one".to_owned())
        }
        _ if suspect.alive && in_state("publishing") > judged.sound => Some(format!(
            "{} rows are publishing, and {} sound",
            in_state("publishing"),
            judged.sound
        )),
        _ => None,
    }
}

/// Checks that a device's memory is the sum of the rows on it that have figures, and that its parts add up.
fn check_sums(device: &Value, devices: &[Value], rows: &[Value]) -> Option<String> {
    let memory = &device["memory"];
    let label = &device["label"];
    let same = devices.iter().filter(|other| other["label"] == *label).count();
    if memory.is_null() || same > 1 || device["state"] != "present" {
        return None;
    }
    let part = |field: &str| memory[field].as_u64();
    let total = part("total")?;
    let parts = [
        "allocated",
        "cached",
        "other",
        "driver_reserved",
        "free",
        "not_published",
    ];
    let sum: u128 = parts.iter().filter_map(|field| part(field)).map(u128::from).sum();
    if sum != u128::from(total) {
        return Some(format!("parts that do not add up: {device}"));
    }
    let living = rows
        .iter()
        .filter(|row| row["device"] == *label && row["state"] != "exited" && row["state"] != "died");
    let (allocated, reserved) = living.fold((0u64, 0u64), |(allocated, reserved), row| {
        let of = |field: &str| row["allocator"][field].as_u64().unwrap_or(0);
        (
            allocated.saturating_add(of("allocated")),
            reserved.saturating_add(of("reserved")),
        )
    });
    let room = total - part("driver_reserved").unwrap_or(0);
    let shown = reserved.min(room);
    let expected = (allocated.min(shown), shown - allocated.min(shown));
    let given = (part("allocated")?, part("cached")?);
    (given != expected).then(|| format!("sums of {given:?} and not {expected:?}: {device}"))
}
