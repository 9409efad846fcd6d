//! The reading end: opens a channel, checks everything, and hands out plain values.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use rustix::time::ClockId;

use crate::cells::Cell;
use crate::codec::{self, DEVICE_DATA};
use crate::error::ReadError;
use crate::format::{live, words};
use crate::layout::Layout;
use crate::mirror::Mirror;
use crate::record::Device;
use crate::section::SECTIONS;
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

/// An open channel.
pub struct Reader {
    pub(crate) file: Arc<File>,
    pub(crate) source: Source,
    /// The same by `pread`, for the event ring: mapped, all of it would come to be resident here.
    copied: Source,
    pub(crate) layout: Layout,
    identity: Arc<Identity>,
    life: Life,
    /// Whether the file is of this boot, which cannot change while we run.
    same_boot: bool,
    mirror: Mirror,
    devices: Vec<(u64, Option<Device>)>,
    /// The publisher's figures of each device and the number of events they are after.
    figures: Vec<Option<Cell>>,
    /// Whether these and those of the lanes were read in a moment in which no lane published.
    of_one_moment: bool,
    /// Readings in a row in which the figures of each device contradicted themselves.
    doubts: Vec<u8>,
    /// Devices that are read at most.
    devices_most: usize,
    /// The publisher's event ring, and behind it those of the lanes that were opened.
    rings: Vec<Ring>,
    lanes: Vec<Lane>,
    strings: Arc<[Arc<str>]>,
    /// Slots of the segments that are shown, by device and address; out of date when `unsorted`.
    shown: Vec<Vec<u32>>,
    unsorted: bool,
    malformed: u32,
    events_lost: u64,
    /// Room for a part of a ring.
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
    /// Whether the publisher lives, at the price of a system call or two.
    ///
    /// # Errors
    /// When the file itself fails.
    pub fn life(&mut self) -> Result<Life, ReadError> {
        self.refresh_life()?;
        Ok(self.life)
    }

    /// Whether the file has no name any more: who looks for it from now on does not find it.
    ///
    /// # Errors
    /// When the file itself fails.
    pub fn is_removed(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.nlink() == 0)
    }

    /// Who publishes.
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Reads what changed and returns the newest state. Never goes back: what cannot be read consistently now stays as it was.
    ///
    /// What the caller keeps of an earlier snapshot stays as it is, at the price of a copy of the blocks of every segment that
    /// changes.
    ///
    /// # Errors
    /// When the file itself fails. The channel is then to be closed.
    pub fn refresh(&mut self) -> Result<Snapshot, ReadError> {
        self.source.check_len(&self.file, self.layout.len)?;
        self.find_lanes()?;
        let events = self.count_events()?;
        // Asked before reading: what a dead publisher left is then read after its death, whole.
        self.refresh_life()?;
        let dead = self.life != Life::Alive;
        self.unsorted |= self.mirror.refresh(&mut self.source, &self.layout, dead)?;
        // After what names them: a segment is of a device that was published before.
        self.refresh_strings()?;
        self.refresh_devices()?;
        self.refresh_figures()?;
        if std::mem::take(&mut self.unsorted) {
            self.sort_segments();
        }
        let mut snapshot = self.without_segments()?;
        for (map, shown) in snapshot.devices.iter_mut().zip(&self.shown) {
            let maps = shown.iter().filter_map(|&slot| self.mirror.map(slot));
            map.segments = maps.cloned().collect();
        }
        self.read_sections(&mut snapshot)?;
        self.check_free(&mut snapshot, events)?;
        Ok(snapshot)
    }

    /// Fills in the parts whose sections say themselves how they are read.
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

    /// Reads the figures alone, at next to no price: the devices of the snapshot have no segments,
    /// and of optional sections nothing is known.
    ///
    /// # Errors
    /// When the file itself fails. The channel is then to be closed.
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
        });
        let (strays, their_bytes) = self.mirror.strays();
        #[allow(clippy::needless_update, reason = "a row of the table of sections may fill in more")]
        let mut snapshot = Snapshot {
            identity: self.identity.clone(),
            life: self.life,
            devices: devices.collect(),
            lanes: self.view_lanes()?,
            event_count,
            events_lost: self.events_lost,
            untracked_blocks: self.live(live::UNTRACKED_BLOCKS)?.saturating_add(strays),
            untracked_bytes: self.live(live::UNTRACKED_BYTES)?.saturating_add(their_bytes),
            lagging_segments: self.mirror.lagging(),
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

    /// The dead stay dead: nobody else can ever take the lock of a published file for writing.
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
                    devices[i] = (seq, codec::to_device(&words));
                    *unsorted = true;
                }
            },
        )
    }

    /// Deals the segments out to their devices, by address. What contradicts itself or overlaps another is counted, not shown, so
    /// that sums of sizes never overflow.
    fn sort_segments(&mut self) {
        self.malformed = 0;
        let mut shown: Vec<Vec<&Arc<SegmentMap>>> = vec![Vec::new(); self.devices.len()];
        for map in self.mirror.maps() {
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
                // What is behind gives way: its memory went back to the driver, and came again as another segment.
                while apart
                    .last()
                    .is_some_and(|last| overlaps(last, map) && self.mirror.is_behind(last.slot))
                {
                    apart.pop();
                }
                match apart.last().filter(|last| overlaps(last, map)) {
                    None => apart.push(map),
                    Some(_) if self.mirror.is_behind(map.slot) => {}
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

/// Whether a segment begins before one ends that begins no later.
fn overlaps(first: &SegmentMap, second: &SegmentMap) -> bool {
    second.segment.addr < first.segment.addr + first.segment.size
}
