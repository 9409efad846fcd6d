//! The simulated driver itself.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::memory::Memory;
use super::{SimConfig, Timeline};
use crate::device::{Call, Result};
use crate::error::DeviceError;
use crate::stream::Stream;

pub(super) const GRANULARITY: u64 = 2 << 20;
/// Where addresses begin: high, so that an offset never looks like an address.
const FIRST_ADDR: u64 = 0x10_0000_0000;

const OUT_OF_MEMORY: (i32, &str) = (DeviceError::OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY");
const INVALID_VALUE: (i32, &str) = (1, "CUDA_ERROR_INVALID_VALUE");
const ILLEGAL_ADDRESS: (i32, &str) = (700, "CUDA_ERROR_ILLEGAL_ADDRESS");
const UNKNOWN: (i32, &str) = (999, "CUDA_ERROR_UNKNOWN");

/// What is alive on a simulated device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Plain allocations.
    pub allocations: usize,
    /// Reserved address ranges.
    pub ranges: usize,
    /// Physical chunks that were not released.
    pub chunks: usize,
    /// Mappings of chunks.
    pub mappings: usize,
    /// Events.
    pub events: usize,
    /// Bytes of physical memory in use.
    pub bytes: u64,
}

#[derive(Debug)]
struct Physical {
    size: u64,
    /// Places it is mapped at; plain allocations count as one.
    mappings: u32,
    released: bool,
    memory: Memory,
}

#[derive(Debug)]
struct Mapping {
    size: u64,
    physical: u64,
    access: bool,
}

#[derive(Debug)]
struct Work {
    number: u64,
    addr: u64,
    bytes: u64,
    due: u64,
}

#[derive(Debug, Default)]
struct Queue {
    submitted: u64,
    completed: u64,
    work: Vec<Work>,
}

#[derive(Debug)]
struct Failure {
    skip: u64,
    out_of_memory: bool,
}

#[derive(Debug)]
pub(super) struct State {
    total: u64,
    pub(super) used_by_others: u64,
    timeline: Timeline,
    next_addr: u64,
    next_id: u64,
    used: u64,
    /// Plain allocations are mappings too, listed here by address.
    plain: HashSet<u64>,
    ranges: BTreeMap<u64, u64>,
    physical: HashMap<u64, Physical>,
    mappings: BTreeMap<u64, Mapping>,
    queues: BTreeMap<Stream, Queue>,
    events: HashMap<u64, (Stream, u64)>,
    failure: Option<Failure>,
    pub(super) calls: [u64; Call::COUNT],
    clock: u64,
    pub(super) modelled_ns: u64,
    pub(super) violations: Vec<String>,
}

fn error(call: Call, (code, name): (i32, &str)) -> DeviceError {
    DeviceError {
        call: call.name(),
        code,
        name: name.to_owned(),
    }
}

impl State {
    pub(super) fn new(config: &SimConfig) -> State {
        State {
            total: config.total,
            used_by_others: config.used_by_others,
            timeline: config.timeline,
            next_addr: FIRST_ADDR,
            next_id: 1,
            used: 0,
            plain: HashSet::new(),
            ranges: BTreeMap::new(),
            physical: HashMap::new(),
            mappings: BTreeMap::new(),
            queues: BTreeMap::new(),
            events: HashMap::new(),
            failure: None,
            calls: [0; Call::COUNT],
            clock: 0,
            modelled_ns: 0,
            violations: Vec::new(),
        }
    }

    /// Counts a call and fails it if a failure is due.
    pub(super) fn begin(&mut self, call: Call, bytes: u64, chunks: u64) -> Result<()> {
        self.calls[call as usize] += 1;
        self.clock += 1;
        self.modelled_ns += call.nanoseconds(bytes, chunks);
        self.settle();
        match &mut self.failure {
            Some(failure) if failure.skip == 0 => {
                let kind = if failure.out_of_memory { OUT_OF_MEMORY } else { UNKNOWN };
                self.failure = None;
                Err(error(call, kind))
            }
            Some(failure) => {
                failure.skip -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(super) fn fail_after(&mut self, skip: u64, out_of_memory: bool) {
        self.failure = Some(Failure { skip, out_of_memory });
    }

    pub(super) fn clear_failure(&mut self) -> bool {
        self.failure.take().is_some()
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.total.saturating_sub(self.used).saturating_sub(self.used_by_others)
    }

    pub(super) fn live(&self) -> Live {
        Live {
            allocations: self.plain.len(),
            ranges: self.ranges.len(),
            chunks: self.physical.values().filter(|p| !p.released).count() - self.plain.len(),
            mappings: self.mappings.len() - self.plain.len(),
            events: self.events.len(),
            bytes: self.used,
        }
    }

    fn violation<T>(&mut self, call: Call, what: String) -> Result<T> {
        self.violations.push(format!("{}: {what}", call.name()));
        Err(error(call, INVALID_VALUE))
    }

    fn new_physical(&mut self, call: Call, bytes: u64) -> Result<u64> {
        if bytes > self.free_bytes() {
            return Err(error(call, OUT_OF_MEMORY));
        }
        self.used += bytes;
        let id = self.next_id;
        self.next_id += 1;
        let physical = Physical {
            size: bytes,
            mappings: 0,
            released: false,
            memory: Memory::default(),
        };
        self.physical.insert(id, physical);
        Ok(id)
    }

    fn drop_if_unused(&mut self, id: u64) {
        if let Some(physical) = self.physical.get(&id)
            && physical.released
            && physical.mappings == 0
        {
            self.used -= physical.size;
            self.physical.remove(&id);
        }
    }

    fn new_range(&mut self, bytes: u64) -> u64 {
        let addr = self.next_addr;
        // A gap between ranges, so that neighbours in address space are never neighbours by accident.
        self.next_addr += bytes.next_multiple_of(GRANULARITY) + GRANULARITY;
        addr
    }

    pub(super) fn alloc(&mut self, bytes: u64) -> Result<u64> {
        self.begin(Call::Alloc, bytes, 0)?;
        // The driver hands out memory in 2 MiB pages.
        let physical = self.new_physical(Call::Alloc, bytes.next_multiple_of(GRANULARITY))?;
        let addr = self.new_range(bytes);
        self.plain.insert(addr);
        self.mappings.insert(
            addr,
            Mapping {
                size: bytes,
                physical,
                access: true,
            },
        );
        self.physical.entry(physical).and_modify(|p| p.mappings = 1);
        Ok(addr)
    }

    pub(super) fn free(&mut self, addr: u64) -> Result<()> {
        let bytes = self.mappings.get(&addr).map_or(0, |m| m.size);
        self.begin(Call::Free, bytes, 0)?;
        if !self.plain.remove(&addr) {
            return self.violation(Call::Free, format!("0x{addr:x} is not allocated"));
        }
        // cuMemFree waits for the device.
        self.finish_all();
        if let Some(mapping) = self.mappings.remove(&addr) {
            self.physical.entry(mapping.physical).and_modify(|p| {
                p.mappings = 0;
                p.released = true;
            });
            self.drop_if_unused(mapping.physical);
        }
        Ok(())
    }

    pub(super) fn reserve(&mut self, bytes: u64) -> Result<u64> {
        self.begin(Call::Reserve, bytes, 0)?;
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return self.violation(Call::Reserve, format!("{bytes} bytes are not whole pages"));
        }
        let addr = self.new_range(bytes);
        self.ranges.insert(addr, bytes);
        Ok(addr)
    }

    pub(super) fn unreserve(&mut self, addr: u64, bytes: u64) -> Result<()> {
        self.begin(Call::Unreserve, bytes, 0)?;
        if self.ranges.get(&addr) != Some(&bytes) {
            return self.violation(
                Call::Unreserve,
                format!("0x{addr:x} is not a reserved range of {bytes} bytes"),
            );
        }
        if self.mappings.range(addr..addr + bytes).next().is_some() {
            return self.violation(Call::Unreserve, format!("0x{addr:x} still has mappings"));
        }
        self.ranges.remove(&addr);
        Ok(())
    }

    pub(super) fn create(&mut self, bytes: u64) -> Result<u64> {
        self.begin(Call::Create, bytes, 1)?;
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return self.violation(Call::Create, format!("{bytes} bytes are not whole pages"));
        }
        self.new_physical(Call::Create, bytes)
    }

    pub(super) fn release(&mut self, id: u64) -> Result<()> {
        self.begin(Call::Release, 0, 1)?;
        match self.physical.get_mut(&id) {
            Some(physical) if !physical.released => physical.released = true,
            _ => return self.violation(Call::Release, format!("handle {id} is not alive")),
        }
        self.drop_if_unused(id);
        Ok(())
    }

    pub(super) fn map(&mut self, addr: u64, bytes: u64, id: u64) -> Result<()> {
        self.begin(Call::Map, bytes, 1)?;
        let reserved = self
            .ranges
            .range(..=addr)
            .next_back()
            .is_some_and(|(s, len)| addr + bytes <= s + len);
        let free = self
            .mappings
            .range(..addr + bytes)
            .next_back()
            .is_none_or(|(s, m)| s + m.size <= addr);
        match self.physical.get_mut(&id) {
            Some(physical) if physical.size == bytes && !physical.released && reserved && free => {
                physical.mappings += 1;
                self.mappings.insert(
                    addr,
                    Mapping {
                        size: bytes,
                        physical: id,
                        access: false,
                    },
                );
                Ok(())
            }
            _ => self.violation(Call::Map, format!("handle {id} of {bytes} bytes at 0x{addr:x}")),
        }
    }

    /// Start addresses of the mappings that tile a range; `None` when they do not.
    fn tiles(&self, addr: u64, bytes: u64) -> Option<Vec<u64>> {
        let mut at = addr;
        let mut found = Vec::new();
        while at < addr + bytes {
            let mapping = self.mappings.get(&at)?;
            found.push(at);
            at += mapping.size;
        }
        (at == addr + bytes && !found.iter().any(|a| self.plain.contains(a))).then_some(found)
    }

    pub(super) fn set_access(&mut self, addr: u64, bytes: u64) -> Result<()> {
        let tiles = self.tiles(addr, bytes);
        self.begin(Call::SetAccess, bytes, tiles.as_ref().map_or(1, |t| t.len() as u64))?;
        let Some(tiles) = tiles else {
            return self.violation(Call::SetAccess, format!("0x{addr:x} is not wholly mapped"));
        };
        for tile in tiles {
            self.mappings.entry(tile).and_modify(|m| m.access = true);
        }
        Ok(())
    }

    pub(super) fn unmap(&mut self, addr: u64, bytes: u64) -> Result<()> {
        let tiles = self.tiles(addr, bytes);
        self.begin(Call::Unmap, bytes, tiles.as_ref().map_or(1, |t| t.len() as u64))?;
        let Some(tiles) = tiles else {
            return self.violation(Call::Unmap, format!("0x{addr:x} is not whole mappings"));
        };
        if self.busy(addr, bytes, None) {
            self.violations.push(format!("cuMemUnmap: queued work uses 0x{addr:x}"));
        }
        for tile in tiles {
            if let Some(mapping) = self.mappings.remove(&tile) {
                self.physical.entry(mapping.physical).and_modify(|p| p.mappings -= 1);
                self.drop_if_unused(mapping.physical);
            }
        }
        Ok(())
    }

    // Streams and events

    fn settle(&mut self) {
        let clock = self.clock;
        for queue in self.queues.values_mut() {
            while let Some(first) = queue.work.first()
                && first.due <= clock
            {
                queue.completed = first.number;
                queue.work.remove(0);
            }
        }
    }

    pub(super) fn enqueue(&mut self, stream: Stream, addr: u64, bytes: u64) -> u64 {
        let due = match self.timeline {
            Timeline::Immediate => self.clock,
            Timeline::Manual => u64::MAX,
            Timeline::After(calls) => self.clock + calls,
        };
        let queue = self.queues.entry(stream).or_default();
        queue.submitted += 1;
        let number = queue.submitted;
        queue.work.push(Work {
            number,
            addr,
            bytes,
            due,
        });
        self.settle();
        number
    }

    pub(super) fn advance(&mut self, stream: Stream, steps: u64) {
        if let Some(queue) = self.queues.get_mut(&stream) {
            queue.completed = queue.completed.saturating_add(steps).min(queue.submitted);
            queue.work.retain(|work| work.number > queue.completed);
        }
    }

    fn finish_all(&mut self) {
        for queue in self.queues.values_mut() {
            queue.completed = queue.submitted;
            queue.work.clear();
        }
    }

    /// Whether unfinished work, of streams other than `except`, uses any of these bytes.
    pub(super) fn busy(&self, addr: u64, bytes: u64, except: Option<Stream>) -> bool {
        self.queues
            .iter()
            .filter(|(stream, _)| Some(**stream) != except)
            .flat_map(|(_, queue)| &queue.work)
            .any(|work| work.addr < addr + bytes && addr < work.addr + work.bytes)
    }

    pub(super) fn record(&mut self, stream: Stream) -> Result<u64> {
        self.begin(Call::Record, 0, 0)?;
        let number = self.enqueue(stream, 0, 0);
        let id = self.next_id;
        self.next_id += 1;
        self.events.insert(id, (stream, number));
        Ok(id)
    }

    pub(super) fn query(&mut self, id: u64) -> Result<bool> {
        self.begin(Call::Query, 0, 0)?;
        let Some((stream, number)) = self.events.get(&id).copied() else {
            return self.violation(Call::Query, format!("event {id} is not alive"));
        };
        Ok(self.queues.get(&stream).is_none_or(|queue| queue.completed >= number))
    }

    pub(super) fn retire(&mut self, id: u64) {
        if self.events.remove(&id).is_none() {
            self.violations.push(format!("cuEventDestroy: event {id} is not alive"));
        }
    }

    pub(super) fn synchronize(&mut self) -> Result<()> {
        self.begin(Call::Synchronize, 0, 0)?;
        self.finish_all();
        Ok(())
    }

    // Contents

    /// Cuts a range at the borders of its mappings and hands each piece's memory to `visit` with the offset into it and
    /// the offset into the range.
    fn pieces(
        &mut self,
        addr: u64,
        len: u64,
        mut visit: impl FnMut(&mut Memory, u64, std::ops::Range<u64>),
    ) -> Result<()> {
        let mut at = addr;
        while at < addr + len {
            let Some((start, mapping)) = self
                .mappings
                .range(..=at)
                .next_back()
                .filter(|(s, m)| at < **s + m.size && m.access)
            else {
                return Err(error(Call::Copy, ILLEGAL_ADDRESS));
            };
            let end = (start + mapping.size).min(addr + len);
            let offset = at - start;
            if let Some(physical) = self.physical.get_mut(&mapping.physical) {
                visit(&mut physical.memory, offset, at - addr..end - addr);
            }
            at = end;
        }
        Ok(())
    }

    pub(super) fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<()> {
        self.begin(Call::Copy, bytes.len() as u64, 0)?;
        self.pieces(addr, bytes.len() as u64, |memory, at, part| {
            memory.write(at, &bytes[part.start as usize..part.end as usize]);
        })
    }

    pub(super) fn read(&mut self, addr: u64, bytes: &mut [u8]) -> Result<()> {
        self.begin(Call::Copy, bytes.len() as u64, 0)?;
        self.pieces(addr, bytes.len() as u64, |memory, at, part| {
            memory.read(at, &mut bytes[part.start as usize..part.end as usize]);
        })
    }

    pub(super) fn fill(&mut self, addr: u64, value: u32, words: u64) -> Result<()> {
        self.begin(Call::Copy, 0, 0)?;
        self.pieces(addr, words * 4, |memory, at, part| {
            memory.fill(at, value, part.end - part.start)
        })
    }
}
