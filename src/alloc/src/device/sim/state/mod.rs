//! The simulated driver itself: what is counted, plain allocations, physical memory. Beside it: address ranges
//! (`ranges`), streams (`handles`, `queues`) and what memory holds (`contents`).

mod contents;
mod handles;
mod pages;
mod queues;
mod ranges;

use std::collections::{BTreeMap, HashMap, HashSet};

use super::memory::Memory;
use super::{SimConfig, Timeline};
use crate::device::{Call, Result};
use crate::error::DeviceError;
use handles::{Handles, Name};
use pages::Pages;
use queues::Queue;

pub(in crate::device::sim) const GRANULARITY: u64 = 2 << 20;
/// Where addresses begin: high, so that an offset never looks like an address.
const FIRST_ADDR: u64 = 0x10_0000_0000;

const OUT_OF_MEMORY: (i32, &str) = (DeviceError::OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY");
const INVALID_VALUE: (i32, &str) = (1, "CUDA_ERROR_INVALID_VALUE");
const UNKNOWN: (i32, &str) = (999, "CUDA_ERROR_UNKNOWN");

/// What is alive on a simulated device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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
    /// Bytes that it takes of the device by itself: none of what shares a page.
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
struct Failure {
    skip: u64,
    out_of_memory: bool,
}

#[derive(Debug)]
pub(in crate::device::sim) struct State {
    total: u64,
    pub(in crate::device::sim) used_by_others: u64,
    timeline: Timeline,
    next_addr: u64,
    next_id: u64,
    used: u64,
    /// Plain allocations are mappings too, listed here by address.
    plain: HashSet<u64>,
    pages: Pages,
    ranges: BTreeMap<u64, u64>,
    physical: HashMap<u64, Physical>,
    mappings: BTreeMap<u64, Mapping>,
    handles: Handles,
    queues: BTreeMap<Name, Queue>,
    /// The work that each waits for: the last piece of a stream, or of several.
    events: HashMap<u64, Vec<(Name, u64)>>,
    failure: Option<Failure>,
    /// How many calls of each kind fail before one succeeds.
    failing: [u64; Call::COUNT],
    /// Allocators that have graphs captured.
    pub(in crate::device::sim) capturing: usize,
    /// Streams that graphs are captured from.
    pub(in crate::device::sim) captured: HashSet<u64>,
    pub(in crate::device::sim) calls: [u64; Call::COUNT],
    clock: u64,
    /// Pieces of work that were queued.
    launches: u64,
    pub(in crate::device::sim) modelled_ns: u64,
    pub(in crate::device::sim) violations: Vec<String>,
}

fn error(call: Call, (code, name): (i32, &str)) -> DeviceError {
    DeviceError {
        call: call.name(),
        code,
        name: name.to_owned(),
    }
}

impl State {
    pub(in crate::device::sim) fn new(config: &SimConfig) -> State {
        State {
            total: config.total,
            used_by_others: config.used_by_others,
            timeline: config.timeline,
            next_addr: FIRST_ADDR,
            next_id: 1,
            used: 0,
            plain: HashSet::new(),
            pages: Pages::default(),
            ranges: BTreeMap::new(),
            physical: HashMap::new(),
            mappings: BTreeMap::new(),
            handles: Handles::default(),
            queues: BTreeMap::new(),
            events: HashMap::new(),
            failure: None,
            failing: [0; Call::COUNT],
            capturing: 0,
            captured: HashSet::new(),
            calls: [0; Call::COUNT],
            clock: 0,
            launches: 0,
            modelled_ns: 0,
            violations: Vec::new(),
        }
    }

    /// Counts a call and fails it if a failure is due.
    pub(in crate::device::sim) fn begin(&mut self, call: Call, bytes: u64, chunks: u64) -> Result<()> {
        self.calls[call as usize] += 1;
        self.clock += 1;
        self.modelled_ns = self.modelled_ns.saturating_add(call.nanoseconds(bytes, chunks));
        self.settle();
        let ends_capture = matches!(
            call,
            Call::Free | Call::QueryStream | Call::Record | Call::RecordAll | Call::Query | Call::Synchronize
        );
        if self.capturing > 0 && ends_capture {
            self.violations
                .push(format!("{} while a graph is captured", call.name()));
        }
        if let Some(left) = self.failing[call as usize].checked_sub(1) {
            self.failing[call as usize] = left;
            return Err(error(call, UNKNOWN));
        }
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

    pub(in crate::device::sim) fn fail_after(&mut self, skip: u64, out_of_memory: bool) {
        self.failure = Some(Failure { skip, out_of_memory });
    }

    pub(in crate::device::sim) fn fail_next(&mut self, call: Call, times: u64) {
        self.failing[call as usize] = times;
    }

    pub(in crate::device::sim) fn clear_failure(&mut self) -> bool {
        self.failure.take().is_some()
    }

    pub(in crate::device::sim) fn free_bytes(&self) -> u64 {
        self.total.saturating_sub(self.used).saturating_sub(self.used_by_others)
    }

    pub(in crate::device::sim) fn live(&self) -> Live {
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

    fn take(&mut self, call: Call, bytes: u64) -> Result<()> {
        if bytes > self.free_bytes() {
            return Err(error(call, OUT_OF_MEMORY));
        }
        self.used += bytes;
        Ok(())
    }

    fn new_physical(&mut self, call: Call, bytes: u64) -> Result<u64> {
        self.take(call, bytes)?;
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

    pub(in crate::device::sim) fn alloc(&mut self, bytes: u64) -> Result<u64> {
        let shares = Pages::shares(bytes);
        // The driver hands out memory in 2 MiB pages, and takes time for those that it hands out.
        let pages = match shares && self.pages.has(bytes) {
            true => Some(0),
            false => bytes.checked_next_multiple_of(GRANULARITY),
        };
        let fits = pages.is_some_and(|pages| pages <= self.free_bytes());
        self.begin(Call::Alloc, if fits { bytes } else { 0 }, 0)?;
        let pages = pages.ok_or_else(|| error(Call::Alloc, OUT_OF_MEMORY))?;
        if shares && pages > 0 {
            self.take(Call::Alloc, pages)?;
            let page = self.new_range(pages);
            self.pages.add(page);
        }
        let physical = self.new_physical(Call::Alloc, if shares { 0 } else { pages })?;
        let shared = shares.then(|| self.pages.take(bytes)).flatten();
        let addr = shared.unwrap_or_else(|| self.new_range(bytes));
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

    pub(in crate::device::sim) fn free(&mut self, addr: u64) -> Result<()> {
        let bytes = self.mappings.get(&addr).map_or(0, |m| m.size);
        self.begin(Call::Free, bytes, 0)?;
        if !self.plain.remove(&addr) {
            return self.violation(Call::Free, format!("0x{addr:x} is not allocated"));
        }
        // cuMemFree waits for the device.
        self.finish_all();
        if let Some(mapping) = self.mappings.remove(&addr) {
            if Pages::shares(mapping.size) && self.pages.give_back(addr, mapping.size) {
                self.used -= GRANULARITY;
            }
            self.physical.entry(mapping.physical).and_modify(|p| {
                p.mappings = 0;
                p.released = true;
            });
            self.drop_if_unused(mapping.physical);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn small_plain_allocations_share_pages() {
        let mut state = State::new(&SimConfig {
            total: 100 << 20,
            ..SimConfig::default()
        });
        let pages = |state: &State| state.live().bytes / GRANULARITY;
        let blocks: Vec<u64> = (0..=4096).map(|_| state.alloc(1).unwrap()).collect();
        assert_eq!((pages(&state), blocks[1] - blocks[0]), (2, 512));
        let places: HashSet<u64> = blocks.iter().copied().collect();
        assert_eq!(places.len(), 4097, "no two at one place");
        // Half of each page, and then what fits into it.
        for addr in blocks.iter().filter(|addr| **addr % 1024 == 0) {
            state.free(*addr).unwrap();
        }
        assert_eq!(pages(&state), 1, "that with one block is gone");
        let more = [1536 << 10, 500 << 10, 3 << 20].map(|bytes| state.alloc(bytes).unwrap());
        assert_eq!((pages(&state), more[1] - more[0]), (1 + 1 + 2, 1536 << 10));
        let rest = blocks.iter().filter(|addr| **addr % 1024 != 0);
        for addr in rest.chain(&more) {
            state.free(*addr).unwrap();
        }
        assert_eq!(state.live(), Live::default());
        assert!(state.alloc(0).is_ok_and(|nothing| state.free(nothing).is_ok()));
        assert_eq!((state.live().bytes, state.violations.len()), (0, 0));
    }

    /// A trace may ask for that very often, and its cost is a number that people compare.
    #[test]
    fn a_refused_allocation_costs_no_pages() {
        let mut state = State::new(&SimConfig {
            total: 100 << 20,
            ..SimConfig::default()
        });
        let mut cost = |bytes: u64| {
            let before = state.modelled_ns;
            assert_eq!(state.alloc(bytes).is_ok(), bytes == 2 << 20);
            state.modelled_ns - before
        };
        let served = cost(2 << 20);
        assert!([200 << 30, u64::MAX].into_iter().all(|bytes| cost(bytes) <= served));
    }
}
