//! The snapshot and the reports that `demo train --snapshot` writes at its end.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gpumem_alloc::History;
use rustix::fs::{Access, access};

use crate::error::DemoError;
use crate::protocol::Body;
use crate::stage::Stage;

/// Checks whether a snapshot can be written to `path`, so that a long run does not fail at its end for a reason that was known
/// at its start. Touches no file.
pub(crate) fn check(path: &Path) -> Result<(), DemoError> {
    let refuse = |why: &str| {
        let path = gpumem_text::clean(&path.display().to_string());
        Err(DemoError::Argument {
            argument: "--snapshot",
            reason: format!("{path}: {why}"),
        })
    };
    let is_folder = path.as_os_str().as_bytes().ends_with(b"/");
    let ending = path.extension().filter(|_| !is_folder);
    if !ending.is_some_and(|ending| {
        ["pickle", "json"]
            .iter()
            .any(|known| ending.eq_ignore_ascii_case(known))
    }) {
        return refuse("a snapshot is a pickle or JSON, not compressed: its name ends in .pickle or .json");
    }
    // Links are not followed.
    if std::fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        return refuse("it exists and is not a file: say another name");
    }
    // The new file is written beside an old one and then replaces it.
    match access(path.with_file_name("."), Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Ok(()),
        Err(error) => refuse(&format!(
            "nothing can be written in its folder: {}",
            std::io::Error::from(error)
        )),
    }
}

/// Starts recording a history, unless the allocator's configuration did.
pub(crate) fn open(stage: &Stage<'_>) -> Result<(), DemoError> {
    let allocator = stage.lab.allocator();
    if allocator.history().is_some() {
        return Ok(());
    }
    let begun = allocator.record_history(History::ON);
    begun.map_err(|source| DemoError::Allocator {
        doing: "beginning a history",
        source,
    })
}

/// Reports who held the memory at the peak and what stays or grows, and writes the snapshot.
pub(crate) fn close(stage: &mut Stage<'_>, path: &Path) -> Result<(), DemoError> {
    let allocator = stage.lab.allocator().clone();
    let peak = allocator.peak().map(|report| report.to_string());
    let leaks = allocator.leaks(stage.steps_done / 2).map(|report| report.to_string());
    for report in peak.into_iter().chain(leaks) {
        stage.output.say(Body::Notice {
            message: report.trim_end().to_owned(),
        })?;
    }
    allocator.write_snapshot(path)?;
    let message = format!("wrote the snapshot {}", gpumem_text::clean(&path.display().to_string()));
    stage.output.say(Body::Notice { message })
}
