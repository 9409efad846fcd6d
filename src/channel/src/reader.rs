//! The reading end: opens a channel, checks everything, and returns plain values.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::time::ClockId;

use crate::cells::Cell;
use crate::codec::{self, DEVICE_DATA};
use crate::error::ReadError;
use crate::format::{live, words};
use crate::layout::Layout;
use crate::past::PastFigures;
use crate::record::Device;
use crate::replica::Replica;
use crate::section::SECTIONS;
use crate::section::past::{self, PAST};
use crate::snapshot::{DeviceMap, Identity, Life, SegmentMap, Snapshot};
use crate::source::Source;
use crate::{identity, life, text};
use figures::Lane;
use rings::Ring;

mod contradictions;
mod events;
mod figures;
mod merge;
mod open;
mod rings;
mod summary;

/// Reads an open channel.
pub struct Reader {
    pub(crate) file: Arc<File>,
    pub(crate) source: Source,
    /// The same file by `pread`, for the event rings: if they were mapped, all of them would become resident in this
    /// process.
    copied: Source,
    pub(crate) layout: Layout,
    identity: Arc<Identity>,
    life: Life,
    /// Whether the file is of this boot. That cannot change while this process runs.
    same_boot: bool,
    replica: Replica,
    devices: Vec<(u64, Option<Device>)>,
    /// The publisher's figures of each device, with the number of events before them.
    figures: Vec<Option<Cell>>,
    /// Whether the figures of publisher and lanes were read while no lane published.
    of_one_moment: bool,
    /// For each device, the number of successive reads in which its figures contradicted themselves.
    doubts: Vec<u8>,
    /// Most devices that are read.
    devices_most: usize,
    /// The publisher's event ring, followed by those of the open lanes.
    rings: Vec<Ring>,
    lanes: Vec<Lane>,
    strings: Arc<[Arc<str>]>,
    /// Slots of the segments that are shown, by device and address; outdated if `unsorted`.
    shown: Vec<Vec<u32>>,
    unsorted: bool,
    malformed: u32,
    events_lost: u64,
    /// Buffer for a part of a ring.
    copy: Vec<u64>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("identity", &self.identity)
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Checks whether the publisher lives. Takes one or two system calls.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn life(&mut self) -> Result<Life, ReadError> {
        self.refresh_life()?;
        Ok(self.life)
    }

    /// Whether the file has been removed, so that discovery no longer finds it.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn is_removed(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.nlink() == 0)
    }

    /// Tells a publisher that [samples](crate::Options::sampled) another allocator that somebody wants to see its blocks, by
    /// the access time of the file. Nothing else of the file changes.
    ///
    /// # Errors
    /// If this user may not set it: only the file's owner and root may.
    pub fn want_blocks(&self) -> io::Result<()> {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let omit = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: omit,
        };
        Ok(rustix::fs::futimens(&self.file, &times)?)
    }

    /// Returns the identity of the publisher.
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Reads what changed and returns the newest state. Never goes back to an older state: what cannot be read
    /// consistently now stays as it was.
    ///
    /// Earlier snapshots that the caller keeps do not change. The price is a copy of the blocks of every segment that
    /// changes.
    ///
    /// # Errors
    /// If the file cannot be read. The channel is then to be closed.
    pub fn refresh(&mut self) -> Result<Snapshot, ReadError> {
        self.source.check_len(&self.file, self.layout.len)?;
        self.find_lanes()?;
        let events = self.count_events()?;
        // Checked before reading, so that the data of a dead publisher is read completely after its death.
        self.refresh_life()?;
        let dead = self.life != Life::Alive;
        self.unsorted |= self.replica.refresh(&mut self.source, &self.layout, dead)?;
        // Read after the segments: the device of a segment was published before it.
        self.refresh_strings()?;
        self.refresh_devices()?;
        self.refresh_figures()?;
        if std::mem::take(&mut self.unsorted) {
            self.sort_segments();
        }
        let mut snapshot = self.without_segments()?;
        for (map, shown) in snapshot.devices.iter_mut().zip(&self.shown) {
            let maps = shown.iter().filter_map(|&slot| self.replica.map(slot));
            map.segments = maps.cloned().collect();
        }
        self.read_sections(&mut snapshot)?;
        self.check_free(&mut snapshot, events)?;
        Ok(snapshot)
    }

    /// Reads the figures of earlier moments, oldest first; none if the publisher keeps none. A record that is being written is left out.
    ///
    /// # Errors
    /// If the file cannot be read. The channel is then to be closed.
    pub fn past_figures(&self) -> Result<Vec<PastFigures>, ReadError> {
        let section = self.layout.past;
        // A damaged file may have a section of any size.
        let count = section.count.min(PAST);
        let mut found = Vec::new();
        if count == 0 {
            return Ok(found);
        }
        self.source.changed(
            &section,
            0..count,
            |_| 0,
            |_, record: Option<(u64, _)>| {
                found.extend(record.map(|(_, words)| past::decode(&words)));
            },
        )?;
        found.sort_by_key(|figures| figures.time);
        Ok(found)
    }

    /// Reads the sections that have their own read function.
    fn read_sections(&self, snapshot: &mut Snapshot) -> Result<(), ReadError> {
        for row in SECTIONS {
            let Some(read) = row.read else { continue };
            let section = self.layout.section(row);
            if section.count > 0 {
                read(&self.source, &section, snapshot)?;
            }
        }
        Ok(())
    }

    /// Reads the figures only, which is cheap: the devices of the snapshot have no segments, and nothing is read of
    /// optional sections.
    ///
    /// # Errors
    /// If the file cannot be read. The channel is then to be closed.
    pub fn glance(&mut self) -> Result<Snapshot, ReadError> {
        self.source.check_len(&self.file, self.layout.len)?;
        self.refresh_life()?;
        self.refresh_devices()?;
        self.refresh_figures()?;
        self.without_segments()
    }

    fn without_segments(&mut self) -> Result<Snapshot, ReadError> {
        let event_count = self.count_events()?;
        let devices = self.devices.iter().enumerate();
        let devices = devices.map(|(index, (_, device))| DeviceMap {
            device: device.clone().unwrap_or_default(),
            stats: self.figures_of(index),
            contradiction: None,
            segments: Vec::new(),
            outside: None,
        });
        let (orphans, their_bytes) = self.replica.orphans();
        let mut snapshot = Snapshot {
            identity: self.identity.clone(),
            life: self.life,
            devices: devices.collect(),
            lanes: self.view_lanes()?,
            event_count,
            events_lost: self.events_lost,
            untracked_blocks: self.live(live::UNTRACKED_BLOCKS)?.saturating_add(orphans),
            untracked_bytes: self.live(live::UNTRACKED_BYTES)?.saturating_add(their_bytes),
            lagging_segments: self.replica.lagging(),
            malformed_segments: self.malformed,
            read_at: identity::now(ClockId::Monotonic),
            strings: self.strings.clone(),
            ..Snapshot::default()
        };
        self.check_figures(&mut snapshot);
        Ok(snapshot)
    }

    pub(crate) fn live(&self, which: usize) -> Result<u64, ReadError> {
        self.source.load(self.layout.live.start + which)
    }

    /// Updates the publisher's life. A dead publisher stays dead: no process ever takes the lock of a published file
    /// again.
    fn refresh_life(&mut self) -> Result<(), ReadError> {
        if self.life == Life::Alive && !(self.same_boot && life::is_held(&self.file)?) {
            self.life = if self.live(live::CLOSED)? == 1 {
                Life::Closed
            } else {
                Life::Died
            };
        }
        Ok(())
    }

    fn refresh_strings(&mut self) -> Result<(), ReadError> {
        let count = (self.live(live::STRINGS)? as usize).min(self.layout.strings.count);
        self.source.fence();
        if count <= self.strings.len() {
            return Ok(());
        }
        let mut strings: Vec<Arc<str>> = self.strings.to_vec();
        for i in strings.len()..count {
            let mut record = [0; words::STRING];
            self.source.copy(self.layout.strings.record(i).start, &mut record)?;
            strings.push(text::unpack(record[0], &record[1..]).into());
        }
        self.strings = strings.into();
        Ok(())
    }

    fn refresh_devices(&mut self) -> Result<(), ReadError> {
        let count = self.device_count()?.min(self.devices_most).max(self.devices.len());
        self.source.fence();
        self.devices.resize(count, (0, None));
        self.figures.resize(count, None);
        let known: Vec<u64> = self.devices.iter().map(|device| device.0).collect();
        let (devices, unsorted) = (&mut self.devices, &mut self.unsorted);
        self.source.changed(
            &self.layout.devices,
            0..count,
            |i| known[i],
            |i, record: Option<(u64, [u64; DEVICE_DATA])>| {
                if let Some((seq, words)) = record {
                    devices[i] = (seq, codec::decode_device(&words));
                    *unsorted = true;
                }
            },
        )
    }

    /// Assigns the segments to their devices, by address. Segments that contradict themselves or overlap another are
    /// counted and not shown, so that sums of sizes never overflow.
    fn sort_segments(&mut self) {
        self.malformed = 0;
        let mut shown: Vec<Vec<&Arc<SegmentMap>>> = vec![Vec::new(); self.devices.len()];
        for map in self.replica.maps() {
            let segment = &map.segment;
            let sound =
                segment.size > 0 && segment.mapped <= segment.size && segment.addr.checked_add(segment.size).is_some();
            match shown.get_mut(segment.device as usize).filter(|_| sound) {
                Some(maps) => maps.push(map),
                None => self.malformed += 1,
            }
        }
        for maps in &mut shown {
            maps.sort_unstable_by_key(|map| map.segment.addr);
            let mut apart: Vec<&Arc<SegmentMap>> = Vec::with_capacity(maps.len());
            for &map in maps.iter() {
                // The outdated segment is dropped: its memory went back to the driver and was allocated again as
                // another segment.
                while apart
                    .last()
                    .is_some_and(|last| overlaps(last, map) && self.replica.is_behind(last.slot))
                {
                    apart.pop();
                }
                match apart.last().filter(|last| overlaps(last, map)) {
                    None => apart.push(map),
                    Some(_) if self.replica.is_behind(map.slot) => {}
                    Some(_) => self.malformed += 1,
                }
            }
            *maps = apart;
        }
        self.shown = shown
            .iter()
            .map(|maps| maps.iter().map(|map| map.slot).collect())
            .collect();
    }
}

/// Whether `second`, which begins no earlier, begins before `first` ends.
fn overlaps(first: &SegmentMap, second: &SegmentMap) -> bool {
    second.segment.addr < first.segment.addr + first.segment.size
}
