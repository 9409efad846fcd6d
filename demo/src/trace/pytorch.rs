//! PyTorch's snapshots with a history: the requests of one device, from [`Snapshot::requests`].

use std::cmp::Reverse;

use gpumem_snapshot::{Action, Damage, Problem as Contradiction, RequestKind, Snapshot, TextId};
use gpumem_text::clean;

use super::builder::Builder;
use super::error::Problem;
use super::odd::Odd;
use super::{Format, Trace};

/// The most unknown actions that are named.
const NAMED: usize = 3;
/// The most characters of such a name.
const LONGEST: usize = 32;

/// Returns the trace of the device with the longest history.
pub(super) fn trace(snapshot: &Snapshot, damage: Damage) -> Result<Trace, Problem> {
    let histories = snapshot.device_traces.iter().enumerate();
    let longest = histories.max_by_key(|(device, entries)| (entries.len(), Reverse(*device)));
    let (device, entries) = longest.map_or((0, &[][..]), |(device, entries)| (device, &entries[..]));
    let mut odd = Odd {
        rows: damage.odd_entries,
        first: clean(&damage.first_odd.unwrap_or_default()),
        cut: damage.cut.map(|why| clean(&why)),
        more: damage.more,
        ..Odd::default()
    };
    let all = entries.len() as u64 + odd.rows;
    for problem in snapshot.check_trace(device) {
        match problem {
            Contradiction::FreeSize { .. } => odd.size(&problem.to_string()),
            _ => odd.row(&problem.to_string()),
        }
    }
    if odd.rows * 2 > all {
        return Err(Problem::Odd {
            first: odd.first,
            odd: odd.rows,
            all,
            rows: false,
        });
    }
    let tells = |action| {
        use Action::{Alloc, FreeCompleted, FreeRequested, Oom, Other};
        matches!(action, Alloc | FreeRequested | FreeCompleted | Oom | Other(_))
    };
    // A single entry is the snapshot's own, in a history that keeps one.
    if all <= 1 || !entries.iter().any(|entry| tells(entry.action)) {
        return Err(match odd.cut {
            Some(why) => Problem::CutBefore(why),
            None => Problem::NoHistory { entries: all },
        });
    }
    let mut builder = Builder::default();
    let (mut unknown_actions, mut unknown) = (0, Vec::new());
    for entry in entries {
        match entry.action {
            Action::Alloc | Action::FreeRequested | Action::FreeCompleted => {}
            Action::Oom => builder.recorded_failure(),
            Action::Other(name) => {
                unknown_actions += 1;
                // One more than is named, to know that there are more.
                if unknown.len() <= NAMED && !unknown.contains(&name) {
                    unknown.push(name);
                }
            }
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
        // A request of 0 bytes is not an operation.
        if !request.recorded && request.size > 0 {
            builder.assumed();
        }
    }
    let with_history = snapshot.device_traces.iter().filter(|entries| !entries.is_empty());
    Ok(Trace {
        other_devices: (with_history.count() as u64).saturating_sub(1),
        unknown_actions,
        unknown_names: names(snapshot, &unknown),
        odd,
        ..builder.finish(Format::PyTorch)
    })
}

/// Returns names that are safe to print, whatever the file has there.
fn names(snapshot: &Snapshot, ids: &[TextId]) -> Vec<String> {
    let name = |id: &TextId| {
        let text = snapshot.tables.get_text(*id);
        let cut: String = text.chars().take(LONGEST).collect();
        let more = if cut.len() < text.len() { "..." } else { "" };
        clean(&cut) + more
    };
    let more = (ids.len() > NAMED).then(|| "...".to_owned());
    ids.iter().take(NAMED).map(name).chain(more).collect()
}
