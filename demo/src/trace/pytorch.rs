//! PyTorch's snapshots with a history: the requests of one device, as [`Snapshot::requests`] tells them.

use std::cmp::Reverse;

use gpumem_snapshot::{Action, RequestKind, Snapshot};

use super::builder::Builder;
use super::error::Problem;
use super::{Format, Trace};

/// The trace of the device with the longest history.
pub(super) fn trace(snapshot: &Snapshot) -> Result<Trace, Problem> {
    let histories = snapshot.device_traces.iter().enumerate();
    let longest = histories.max_by_key(|(device, entries)| (entries.len(), Reverse(*device)));
    let Some((device, entries)) = longest.filter(|(_, entries)| !entries.is_empty()) else {
        return Err(Problem::NoHistory);
    };
    if let Some(contradiction) = snapshot.check_trace(device) {
        return Err(contradiction.into());
    }
    let mut builder = Builder::default();
    for entry in entries {
        match entry.action {
            Action::Alloc | Action::FreeRequested | Action::FreeCompleted => {}
            Action::Oom => builder.recorded_failure(),
            _ => builder.other(),
        }
    }
    for (number, request) in (1..).zip(snapshot.requests(device)) {
        let done = match request.kind {
            RequestKind::Alloc => builder.alloc(request.addr, request.size, request.stream as u64),
            RequestKind::Free => builder.free(request.addr),
        };
        done.map_err(|wrong| Problem::Request {
            number,
            what: wrong.what(&format!("the block at 0x{:x}", request.addr)),
        })?;
        // One of 0 bytes is no operation.
        if !request.recorded && request.size > 0 {
            builder.assumed();
        }
    }
    let told = snapshot.device_traces.iter().filter(|entries| !entries.is_empty());
    Ok(Trace {
        other_devices: told.count() as u64 - 1,
        ..builder.finish(Format::PyTorch)
    })
}
