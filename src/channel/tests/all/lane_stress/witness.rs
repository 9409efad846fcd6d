//! The reader, with the checks of everything that it shows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gpumem_channel::{BlockState, Event, EventKind, LaneFigures, Life, Reader, Snapshot};

use crate::common::Count;
use crate::lane_stress::program::LANES;

/// A reader, and what it has shown so far.
pub(crate) struct Witness {
    pub(crate) reader: Reader,
    /// The figures of each lane after each of its events.
    pub(crate) history: [Vec<LaneFigures>; LANES],
    /// For each lane, the highest number of meetings in an event.
    pub(crate) epochs: [u64; LANES],
    /// Number of the publisher's events.
    pub(crate) own: u64,
    pub(crate) exact: u64,
    /// Requested size of the block at each address, 0 if it is free.
    blocks: BTreeMap<u64, u64>,
    /// Address of the block of each lane's last event.
    last: [u64; LANES],
}

impl Witness {
    pub(crate) fn new(reader: Reader) -> Witness {
        Witness {
            reader,
            history: std::array::from_fn(|_| vec![LaneFigures::default()]),
            epochs: [0; LANES],
            own: 0,
            exact: 0,
            blocks: BTreeMap::new(),
            last: [0; LANES],
        }
    }

    pub(crate) fn take_events(&mut self) {
        let new = self.reader.events().unwrap();
        assert_eq!(new.lost, 0, "the rings hold all of them");
        assert!(new.events.is_sorted_by_key(|event| event.time));
        for event in &new.events {
            let lane = match event.lane {
                Some(lane) => {
                    self.follow(lane.into(), event);
                    lane.into()
                }
                None => {
                    assert_eq!(event.index, self.own);
                    self.own += 1;
                    event.size as usize
                }
            };
            assert!(
                event.stream >= self.epochs[lane],
                "returned after a meeting although it came before it: {event:?}"
            );
            self.epochs[lane] = event.stream;
        }
    }

    pub(crate) fn follow(&mut self, lane: usize, event: &Event) {
        let history = &mut self.history[lane];
        assert_eq!(
            event.index + 1,
            history.len() as u64,
            "an event of lane {lane} is missing"
        );
        let mut now = *history.last().unwrap();
        let small = &mut now.small;
        match event.kind {
            EventKind::Alloc => {
                small.allocation.add(1);
                small.requested_bytes.add(event.requested);
                small.allocated_bytes.add(event.size);
            }
            _ => {
                assert_eq!(event.kind, EventKind::Free);
                small.allocation.sub(1);
                small.requested_bytes.sub(event.requested);
                small.allocated_bytes.sub(event.size);
            }
        }
        history.push(now);
        self.last[lane] = event.addr;
        let held = event.kind == EventKind::Alloc;
        self.blocks.insert(event.addr, if held { event.requested } else { 0 });
        assert_eq!(u64::from(event.tag.0), event.requested % 7, "torn: {event:?}");
    }

    pub(crate) fn look(&mut self) -> Snapshot {
        let snapshot = self.reader.refresh().unwrap();
        self.take_events();
        for (number, lane) in snapshot.lanes.iter().enumerate() {
            let after = self.history[number][lane.event_count as usize];
            assert_eq!(lane.figures, after, "lane {number} after {} events", lane.event_count);
        }
        let parts = snapshot
            .lanes
            .iter()
            .map(|lane| lane.figures.small.allocated_bytes.current);
        let shown = snapshot.devices[0].stats.unwrap().small.allocated_bytes.current;
        assert_eq!(shown, parts.sum(), "the publisher itself holds nothing");
        assert_eq!(snapshot.malformed_segments, 0);
        for map in &snapshot.devices[0].segments {
            assert!(map.complete || snapshot.life != Life::Alive);
            for block in &map.blocks {
                let whole = u64::from(block.tag.0) == block.requested % 7
                    && (block.requested > 0) == (block.state == BlockState::Allocated)
                    && block.requested <= block.size;
                assert!(whole, "torn: {block:?}");
            }
        }
        self.exact += u64::from(snapshot.lagging_segments == 0 && !snapshot.devices[0].segments.is_empty());
        snapshot
    }

    /// A process that was waited for may keep its lock for a moment longer (seen on Linux 6.18 with 16 processors).
    fn look_until_dead(&mut self) -> Snapshot {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let snapshot = self.look();
            if snapshot.life == Life::Died {
                return snapshot;
            }
            assert!(Instant::now() < deadline, "it is {:?}", snapshot.life);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Checks what a kill left: everything except the one operation of each lane that was interrupted, which its last
    /// event names.
    pub(crate) fn look_at_black_box(&mut self) -> Snapshot {
        let snapshot = self.look_until_dead();
        for (lane, history) in snapshot.lanes.iter().zip(&self.history) {
            let events = history.len() as u64 - 1;
            assert!(lane.event_count + 1 >= events, "{} of {events}", lane.event_count);
        }
        let shown: BTreeMap<u64, u64> = snapshot.devices[0]
            .blocks()
            .map(|block| (block.addr, block.requested))
            .collect();
        let whole = snapshot.devices[0].segments.iter().all(|map| map.complete);
        let over = self.blocks.iter().filter(|(addr, _)| !self.last.contains(addr));
        let (reported, missing): (Vec<_>, Vec<_>) = over.partition(|(addr, _)| shown.contains_key(addr));
        for (addr, requested) in reported {
            assert_eq!(
                shown[addr], *requested,
                "at {addr:x}: differs from the last event about it"
            );
        }
        // The heap may have been rewriting one of a lane's blocks.
        assert!(missing.len() <= usize::from(!whole), "not shown: {missing:?}");
        snapshot
    }
}
