//! Channel events that become marks on the timeline.

use std::sync::Arc;

use gpumem_channel::{DeviceMap, Event, EventKind, Life, MONITOR, Snapshot};

use crate::model::{ChannelKey, DeviceKey, Mark, MarkKind, Nanos, Owner, ProcessId};

/// Returns the mark for a channel event, if it has one. Allocations and frees have none: there are millions of them.
pub(super) fn of(key: ChannelKey, snapshot: &Snapshot, event: &Event) -> Option<Mark> {
    let kind = match event.kind {
        EventKind::OutOfMemory => MarkKind::OutOfMemory,
        EventKind::Retry => MarkKind::Retry,
        EventKind::SegmentAlloc | EventKind::SegmentMap => MarkKind::SegmentTaken,
        EventKind::SegmentFree | EventKind::SegmentUnmap => MarkKind::SegmentFreed,
        EventKind::CacheRelease => MarkKind::CacheReleased,
        EventKind::Remap => MarkKind::Remapped,
        EventKind::Mark => MarkKind::Phase,
        _ => return None,
    };
    let text = snapshot
        .strings
        .get(event.tag.0 as usize)
        .cloned()
        .unwrap_or_else(|| Arc::from(""));
    let (kind, text) = match text.strip_prefix(MONITOR).filter(|_| kind == MarkKind::Phase) {
        Some(what) => (MarkKind::Monitor, Arc::from(what)),
        None => (kind, text),
    };
    let index = usize::from(event.device);
    let device = &snapshot.devices.get(index)?.device;
    let bytes = match kind {
        MarkKind::OutOfMemory => event.requested,
        MarkKind::Phase | MarkKind::Monitor => 0,
        _ => event.size,
    };
    let number = if kind == MarkKind::Phase { event.size } else { 0 };
    let process = ProcessId {
        device: DeviceKey::of(key, index, device),
        owner: Owner::Channel(key),
    };
    Some(Mark {
        at: event.time,
        kind,
        process,
        bytes,
        number,
        text,
    })
}

/// Returns the mark for the end of a program, whose last sign of life on a device was at `at`. It has the bytes that were held then.
pub(super) fn of_end(key: ChannelKey, (index, map): (usize, &DeviceMap), life: Life, at: Nanos) -> Mark {
    let stats = map.stats.as_ref().map(|stats| stats.all());
    Mark {
        at,
        kind: if life == Life::Died {
            MarkKind::Died
        } else {
            MarkKind::Exited
        },
        process: ProcessId {
            device: DeviceKey::of(key, index, &map.device),
            owner: Owner::Channel(key),
        },
        bytes: stats.map_or(0, |stats| stats.allocated_bytes.current),
        number: 0,
        text: Arc::from(""),
    }
}
