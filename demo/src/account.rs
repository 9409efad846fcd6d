//! Who held the memory: what `demo train --snapshot` tells at its end.

use std::path::Path;

use gpumem_alloc::History;

use crate::error::DemoError;
use crate::protocol::Body;
use crate::run::Stage;

/// Begins to record, unless the allocator was told to already.
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

/// Says who held the memory at the peak and what stays or grows, and writes a snapshot of it all.
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
    let message = format!(
        "wrote the snapshot {}",
        gpumem_channel::clean(&path.display().to_string())
    );
    stage.output.say(Body::Notice { message })
}
