//! Reports that are kept in the user's cache folder, one for each card and version of its driver.

use std::path::{Path, PathBuf};

use super::report::Report;
use crate::bench::cache::{CacheError, Folder, folder};

/// What the names of their files begin and end with.
const PREFIX: &str = "hierarchy-";
const SUFFIX: &str = ".json";
/// Most reports that are read.
const MOST: usize = 64;

/// A report that was kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// Its file.
    pub path: PathBuf,
    /// The report, [checked](Report::checked). [`Report::date`] says when it was made.
    pub report: Report,
}

/// All reports that were kept.
#[derive(Debug, Default)]
pub struct KeptReports {
    /// Those that can be used, the newest first.
    pub reports: Vec<Kept>,
    /// Why others cannot, one error for each.
    pub errors: Vec<CacheError>,
}

/// Keeps a report in the user's cache folder, in place of an older one of the same card and driver. Returns its path.
///
/// # Errors
/// When there is no such folder, it belongs to another user, or it cannot be written to.
pub fn keep(report: &Report) -> Result<PathBuf, CacheError> {
    keep_in(&folder()?, report)
}

/// Returns the reports in the user's cache folder; none if there is no such folder. This reads files and opens no device.
pub fn kept() -> KeptReports {
    match folder() {
        Ok(path) => kept_in(&path),
        Err(error) => KeptReports {
            errors: vec![error],
            ..KeptReports::default()
        },
    }
}

pub(super) fn keep_in(path: &Path, report: &Report) -> Result<PathBuf, CacheError> {
    let folder = Folder::create(path)?;
    let name = file_name(report);
    let fail = |why: String| CacheError::new(&folder.path_of(&name), why);
    // A report that could not be read back would be of no use.
    let report = report.clone().checked().map_err(|error| fail(error.to_string()))?;
    let text = serde_json::to_vec_pretty(&report).map_err(|error| fail(error.to_string()))?;
    folder.write(&name, &text)?;
    Ok(folder.path_of(&name))
}

pub(super) fn kept_in(path: &Path) -> KeptReports {
    let mut found = KeptReports::default();
    if let Err(error) = read_all(path, &mut found) {
        found.errors.push(error);
    }
    found.reports.sort_by_key(|kept| std::cmp::Reverse(kept.report.date));
    found
}

fn read_all(path: &Path, found: &mut KeptReports) -> Result<(), CacheError> {
    let Some(folder) = Folder::open(path)? else {
        return Ok(());
    };
    let names = folder.names(PREFIX, SUFFIX)?;
    for name in names.iter().take(MOST) {
        match read(&folder, name) {
            Ok(report) => found.reports.push(Kept {
                path: folder.path_of(name),
                report,
            }),
            Err(error) => found.errors.push(error),
        }
    }
    match names.len() <= MOST {
        true => Ok(()),
        false => Err(CacheError::new(
            path,
            format!("only {MOST} of {} reports are read: remove old ones", names.len()),
        )),
    }
}

fn read(folder: &Folder, name: &str) -> Result<Report, CacheError> {
    let bytes = folder.read(name)?;
    let fail = |why: String| CacheError::new(&folder.path_of(name), why);
    let report: Report = serde_json::from_slice(&bytes).map_err(|error| fail(format!("not a report: {error}")))?;
    let report = report.checked().map_err(|error| fail(error.to_string()))?;
    match file_name(&report) == name {
        true => Ok(report),
        false => Err(fail("it holds the report of another card or driver".to_owned())),
    }
}

/// Returns the name of the file of a report, of characters that are safe in every file system.
fn file_name(report: &Report) -> String {
    let safe = |text: &str| -> String {
        let of = |c: char| {
            if c.is_ascii_alphanumeric() || "-.".contains(c) {
                c
            } else {
                '_'
            }
        };
        text.chars().map(of).take(80).collect()
    };
    format!(
        "{PREFIX}{}-{}{SUFFIX}",
        safe(&report.card.uuid),
        safe(&report.card.driver)
    )
}

#[cfg(test)]
#[path = "kept_tests.rs"]
mod tests;
