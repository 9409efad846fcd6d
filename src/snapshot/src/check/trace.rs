//! Checks each entry of a trace against the earlier ones.

use std::collections::HashMap;

use super::Problem;
use crate::types::{Action, Snapshot, TraceEntry};

/// The state of an address according to its newest entry.
enum Last {
    /// A block of this size is allocated.
    Allocated(u64),
    /// The program has freed it.
    FreeRequested,
    /// Freeing it has completed.
    FreeCompleted,
}

impl Snapshot {
    /// Returns the entries of a device's trace that contradict earlier ones: frees of blocks that were already freed
    /// and not allocated since, or frees of another size than was allocated. Blocks allocated before the trace begins
    /// may be freed in it, and frees may be missing. Blocks of 0 bytes share addresses and are ignored.
    pub fn check_trace(&self, device: usize) -> impl Iterator<Item = Problem> {
        let trace = self.device_traces.get(device).map_or(&[][..], Vec::as_slice);
        contradictions(device, trace)
    }
}

/// Returns all contradictions of a trace.
pub(super) fn contradictions(device: usize, trace: &[TraceEntry]) -> impl Iterator<Item = Problem> {
    let mut told: HashMap<u64, (usize, Last)> = HashMap::new();
    trace.iter().enumerate().filter_map(move |(entry, now)| {
        let (last, requested) = match now.action {
            Action::Alloc if now.size == 0 => {
                told.remove(&now.addr);
                return None;
            }
            Action::Alloc => (Last::Allocated(now.size), false),
            Action::FreeRequested => (Last::FreeRequested, true),
            Action::FreeCompleted => (Last::FreeCompleted, false),
            _ => return None,
        };
        if now.size == 0 && !told.contains_key(&now.addr) {
            return None;
        }
        let is_free = !matches!(last, Last::Allocated(_));
        let (before, was) = told.insert(now.addr, (entry, last))?;
        match was {
            Last::Allocated(size) => (is_free && now.size != 0 && now.size != size).then_some(Problem::FreeSize {
                device,
                entry,
                address: now.addr,
                size: now.size,
                before,
                allocated: size,
            }),
            // The two entries of one free.
            Last::FreeRequested if !requested => None,
            Last::FreeRequested | Last::FreeCompleted => is_free.then_some(Problem::FreedTwice {
                device,
                entry,
                address: now.addr,
                before,
            }),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Action::{Alloc, FreeCompleted, FreeRequested, SegmentFree};

    fn said(trace: &[(Action, u64, u64)]) -> Vec<String> {
        let entry = |(action, addr, size): &(Action, u64, u64)| TraceEntry {
            action: *action,
            addr: *addr,
            size: *size,
            stream: 0,
            time_us: 0,
            frames: None,
            compile_context: None,
            user_metadata: None,
            extra: None,
        };
        let snapshot = Snapshot {
            device_traces: vec![Vec::new(), trace.iter().map(entry).collect()],
            ..Snapshot::default()
        };
        let said: Vec<String> = snapshot.check().iter().map(ToString::to_string).collect();
        let alone: Vec<String> = snapshot.check_trace(1).map(|problem| problem.to_string()).collect();
        assert_eq!(alone, said);
        assert_eq!(
            (snapshot.check_trace(0).count(), snapshot.check_trace(2).count()),
            (0, 0)
        );
        said
    }

    #[test]
    fn double_free_is_reported() {
        let twice = |entry, before| {
            format!(
                "device 1, entry {entry}: frees 0x200, which entry {before} freed; nothing was allocated there since"
            )
        };
        let (alloc, asked, done) = ((Alloc, 512, 7), (FreeRequested, 512, 7), (FreeCompleted, 512, 7));
        for (trace, expected) in [
            (&[alloc, asked, done, asked][..], vec![twice(3, 2)]),
            (&[alloc, asked, asked], vec![twice(2, 1)]),
            (&[alloc, asked, done, done], vec![twice(3, 2)]),
            (&[alloc, done, asked], vec![twice(2, 1)]),
            // Without the allocation, and without sizes.
            (&[asked, done, asked], vec![twice(2, 1)]),
            (&[done, asked], vec![twice(1, 0)]),
            (
                &[alloc, (FreeRequested, 512, 0), (FreeRequested, 512, 0)],
                vec![twice(2, 1)],
            ),
            (&[alloc, asked, done, asked, done, done], vec![twice(3, 2), twice(5, 4)]),
        ] {
            assert_eq!(said(trace), expected, "{trace:?}");
        }
    }

    #[test]
    fn free_of_another_size_is_reported() {
        let other = "device 1, entry 1: frees 8 bytes at 0x200, where entry 0 allocated 7";
        for free in [FreeRequested, FreeCompleted] {
            assert_eq!(said(&[(Alloc, 512, 7), (free, 512, 8)]), [other]);
        }
    }

    #[test]
    fn missing_entries_are_not_reported() {
        let (alloc, asked, done) = ((Alloc, 512, 7), (FreeRequested, 512, 7), (FreeCompleted, 512, 7));
        for trace in [
            &[alloc, asked, done, alloc, asked, done][..],
            // Allocated before the trace began.
            &[done, alloc],
            &[asked, done, (Alloc, 512, 9), (FreeRequested, 512, 9)],
            // Memory is reused after a free that was not completed, or not recorded, and with another size.
            &[alloc, asked, alloc, asked, done],
            &[alloc, done, alloc, done],
            &[alloc, (Alloc, 512, 9), (FreeRequested, 512, 9)],
            &[alloc, (FreeRequested, 512, 0), (SegmentFree, 512, 9)],
            // Blocks of 0 bytes.
            &[
                (Alloc, 512, 0),
                (Alloc, 512, 0),
                (FreeRequested, 512, 0),
                (FreeRequested, 512, 0),
            ],
        ] {
            assert_eq!(said(trace), [""; 0], "{trace:?}");
        }
    }
}
