//! The devices, their memory, and its mappings. One lock guards everything, which is enough for tests.

mod queues;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::device;
use crate::pool::Pools;
use crate::result;
use crate::settings::Settings;
use crate::shared::Bytes;

/// Size of a page of device memory in bytes.
pub(crate) const GRANULARITY: u64 = 2 << 20;
const FIRST_ADDR: u64 = 0x7f00_0000_0000;

#[derive(Debug)]
struct Physical {
    device: i32,
    bytes: Bytes,
    mappings: u32,
    released: bool,
    /// Whether network cards reach it.
    rdma: bool,
    /// Whether it came from another process.
    imported: bool,
}

/// The devices that reach a mapping.
#[derive(Debug)]
enum Access {
    /// Memory of `cuMemAlloc`, which every device with peer access reaches. Peer access is not checked here.
    All,
    Of(BTreeSet<i32>),
}

impl Access {
    fn has(&self, device: i32) -> bool {
        match self {
            Access::All => true,
            Access::Of(devices) => devices.contains(&device),
        }
    }
}

#[derive(Debug)]
struct Mapping {
    size: u64,
    physical: u64,
    /// The devices that reach it.
    access: Access,
    /// Whether `cuMemAlloc` made it.
    plain: bool,
}

#[derive(Debug)]
struct Event {
    device: i32,
    /// How often a query will still return "not ready".
    left: u64,
}

/// The capture of a graph.
#[derive(Debug)]
struct Capture {
    stream: u64,
    /// Whether a call has invalidated it.
    ended: bool,
}

/// The state of all devices.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) initialized: bool,
    next_addr: u64,
    next_id: u64,
    ranges: BTreeMap<u64, u64>,
    physical: HashMap<u64, Physical>,
    mappings: BTreeMap<u64, Mapping>,
    used: HashMap<i32, u64>,
    events: HashMap<u64, Event>,
    /// How often each device's primary context is retained.
    contexts: HashMap<i32, u64>,
    /// The device of each stream.
    streams: HashMap<u64, i32>,
    capture: Option<Capture>,
    pub(crate) pools: Pools,
    calls: HashMap<&'static str, u64>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// Runs a driver call: makes it wait, counts it, and fails it if the environment says so.
pub(crate) fn call(name: &'static str, f: impl FnOnce(&mut State) -> Result<(), i32>) -> i32 {
    let awaited = state().get_or_insert_with(State::new).awaited(name);
    if let Some(path) = awaited {
        let _ = std::fs::write(path.with_extension("waits"), "");
        let begin = Instant::now();
        while !path.exists() && begin.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let mut state = state();
    let state = state.get_or_insert_with(State::new);
    crate::code(state.begin(name).and_then(|()| f(state)))
}

fn state() -> MutexGuard<'static, Option<State>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn new() -> State {
        State {
            settings: Settings::read(),
            initialized: false,
            next_addr: FIRST_ADDR,
            next_id: 0x1000,
            ranges: BTreeMap::new(),
            physical: HashMap::new(),
            mappings: BTreeMap::new(),
            used: HashMap::new(),
            events: HashMap::new(),
            contexts: HashMap::new(),
            streams: HashMap::new(),
            capture: None,
            pools: Pools::default(),
            calls: HashMap::new(),
        }
    }

    /// Returns the file that a call waits for.
    fn awaited(&self, name: &str) -> Option<PathBuf> {
        let wait = self.settings.wait.as_ref();
        wait.filter(|(call, _)| call == name).map(|(_, path)| path.clone())
    }

    fn begin(&mut self, name: &'static str) -> Result<(), i32> {
        let count = self.calls.entry(name).or_default();
        *count += 1;
        self.mind_capture(name)?;
        let count = &self.calls[name];
        match &self.settings.fail {
            Some((call, numbers, code)) if call == name && numbers.contains(count) => Err(*code),
            _ if !self.initialized && name != "cuInit" => Err(result::NOT_INITIALIZED),
            _ => Ok(()),
        }
    }

    pub(crate) fn device(&self, device: i32) -> Result<i32, i32> {
        if (0..self.settings.devices).contains(&device) {
            Ok(device)
        } else {
            Err(result::INVALID_DEVICE)
        }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn free_bytes(&self, device: i32) -> u64 {
        let used = self.used.get(&device).copied().unwrap_or(0);
        self.settings
            .total
            .saturating_sub(self.settings.used)
            .saturating_sub(used)
    }

    // Memory

    fn new_physical(&mut self, device: i32, bytes: u64, rdma: bool) -> Result<u64, i32> {
        if bytes > self.free_bytes(device) {
            return Err(result::OUT_OF_MEMORY);
        }
        *self.used.entry(device).or_default() += bytes;
        Ok(self.add_physical(device, Bytes::Own(vec![0; bytes as usize]), rdma))
    }

    fn add_physical(&mut self, device: i32, bytes: Bytes, rdma: bool) -> u64 {
        let id = self.id();
        self.physical.insert(
            id,
            Physical {
                device,
                bytes,
                mappings: 0,
                released: false,
                rdma,
                imported: false,
            },
        );
        id
    }

    // Other processes

    /// Returns the file of a chunk.
    pub(crate) fn export(&mut self, id: u64) -> Result<File, i32> {
        let live = self.physical.get_mut(&id).filter(|physical| !physical.released);
        live.ok_or(result::INVALID_VALUE)?.bytes.share()
    }

    /// Adds a chunk of another process, which counts the memory.
    pub(crate) fn import(&mut self, device: i32, file: File) -> Result<u64, i32> {
        let bytes = Bytes::of(file)?;
        let id = self.add_physical(device, bytes, false);
        self.physical.entry(id).and_modify(|p| p.imported = true);
        Ok(id)
    }

    /// Returns the descriptor of a plain allocation, which is open as long as the allocation lives.
    pub(crate) fn export_plain(&mut self, addr: u64) -> Result<i32, i32> {
        let plain = self.mappings.get(&addr).filter(|mapping| mapping.plain);
        let id = plain.ok_or(result::INVALID_VALUE)?.physical;
        self.export(id)?;
        let file = self.physical.get(&id).and_then(|physical| physical.bytes.file());
        file.map(AsRawFd::as_raw_fd).ok_or(result::UNKNOWN)
    }

    /// Maps a plain allocation of another process.
    pub(crate) fn open_plain(&mut self, device: i32, file: File) -> Result<u64, i32> {
        let physical = self.import(device, file)?;
        let size = self.physical.get(&physical).map_or(0, |p| p.bytes.len() as u64);
        self.map_plain(physical, size)
    }

    fn drop_if_unused(&mut self, id: u64) {
        let unused = |physical: &Physical| physical.released && physical.mappings == 0;
        if self.physical.get(&id).is_some_and(unused)
            && let Some(physical) = self.physical.remove(&id)
            && !physical.imported
        {
            *self.used.entry(physical.device).or_default() -= physical.bytes.len() as u64;
        }
    }

    fn new_range(&mut self, bytes: u64) -> Result<u64, i32> {
        let addr = self.next_addr;
        let gap = bytes
            .checked_next_multiple_of(GRANULARITY)
            .and_then(|bytes| bytes.checked_add(GRANULARITY));
        self.next_addr = gap.and_then(|gap| addr.checked_add(gap)).ok_or(result::OUT_OF_MEMORY)?;
        Ok(addr)
    }

    pub(crate) fn alloc(&mut self, device: i32, bytes: u64) -> Result<u64, i32> {
        if bytes == 0 {
            return Err(result::INVALID_VALUE);
        }
        let rounded = bytes
            .checked_next_multiple_of(GRANULARITY)
            .ok_or(result::OUT_OF_MEMORY)?;
        let physical = self.new_physical(device, rounded, true)?;
        self.map_plain(physical, bytes)
    }

    fn map_plain(&mut self, physical: u64, size: u64) -> Result<u64, i32> {
        let addr = self.new_range(size)?;
        self.physical.entry(physical).and_modify(|p| p.mappings = 1);
        self.mappings.insert(
            addr,
            Mapping {
                size,
                physical,
                access: Access::All,
                plain: true,
            },
        );
        Ok(addr)
    }

    pub(crate) fn free(&mut self, addr: u64) -> Result<(), i32> {
        if !self.mappings.get(&addr).is_some_and(|mapping| mapping.plain) {
            return Err(result::INVALID_VALUE);
        }
        if let Some(mapping) = self.mappings.remove(&addr) {
            self.physical.entry(mapping.physical).and_modify(|p| {
                p.mappings = 0;
                p.released = true;
            });
            self.drop_if_unused(mapping.physical);
        }
        Ok(())
    }

    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<u64, i32> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return Err(result::INVALID_VALUE);
        }
        let addr = self.new_range(bytes)?;
        self.ranges.insert(addr, bytes);
        Ok(addr)
    }

    pub(crate) fn unreserve(&mut self, addr: u64, bytes: u64) -> Result<(), i32> {
        let mapped = self.mappings.range(addr..addr.saturating_add(bytes)).next().is_some();
        if self.ranges.get(&addr) != Some(&bytes) || mapped {
            return Err(result::INVALID_VALUE);
        }
        self.ranges.remove(&addr);
        Ok(())
    }

    pub(crate) fn create(&mut self, device: i32, bytes: u64, rdma: bool) -> Result<u64, i32> {
        if rdma && !self.settings.rdma {
            return Err(result::NOT_SUPPORTED);
        }
        self.refuse_rdma("cuMemCreate", rdma)?;
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return Err(result::INVALID_VALUE);
        }
        self.new_physical(device, bytes, rdma)
    }

    /// Returns an error if `call` is the one that refuses chunks for RDMA, and the chunk is one.
    fn refuse_rdma(&self, call: &str, is_for_it: bool) -> Result<(), i32> {
        match is_for_it && self.settings.rdma_refused_by.as_deref() == Some(call) {
            true => Err(result::UNKNOWN),
            false => Ok(()),
        }
    }

    pub(crate) fn is_for_rdma(&self, addr: u64) -> Result<bool, i32> {
        let below = self.mappings.range(..=addr).next_back();
        let (_, mapping) = below
            .filter(|(start, mapping)| addr < *start + mapping.size)
            .ok_or(result::INVALID_VALUE)?;
        Ok(self
            .physical
            .get(&mapping.physical)
            .is_some_and(|physical| physical.rdma))
    }

    pub(crate) fn release(&mut self, id: u64) -> Result<(), i32> {
        match self.physical.get_mut(&id) {
            Some(physical) if !physical.released => physical.released = true,
            _ => return Err(result::INVALID_VALUE),
        }
        self.drop_if_unused(id);
        Ok(())
    }

    pub(crate) fn map(&mut self, addr: u64, bytes: u64, id: u64) -> Result<(), i32> {
        self.refuse_rdma("cuMemMap", self.physical.get(&id).is_some_and(|physical| physical.rdma))?;
        let end = addr.checked_add(bytes).ok_or(result::INVALID_VALUE)?;
        let reserved = self
            .ranges
            .range(..=addr)
            .next_back()
            .is_some_and(|(start, len)| end <= start + len);
        let free = self
            .mappings
            .range(..end)
            .next_back()
            .is_none_or(|(start, m)| start + m.size <= addr);
        match self.physical.get_mut(&id) {
            Some(p) if p.bytes.len() as u64 == bytes && !p.released && reserved && free => p.mappings += 1,
            _ => return Err(result::INVALID_VALUE),
        }
        self.mappings.insert(
            addr,
            Mapping {
                size: bytes,
                physical: id,
                access: Access::Of(BTreeSet::new()),
                plain: false,
            },
        );
        Ok(())
    }

    /// Returns the start addresses of the whole mappings that tile a range.
    fn tiles(&self, addr: u64, bytes: u64) -> Result<Vec<u64>, i32> {
        let end = addr.checked_add(bytes).ok_or(result::INVALID_VALUE)?;
        let mut found = Vec::new();
        let mut at = addr;
        while at < end {
            let mapping = self
                .mappings
                .get(&at)
                .filter(|mapping| !mapping.plain)
                .ok_or(result::INVALID_VALUE)?;
            found.push(at);
            at += mapping.size;
        }
        if at == end {
            Ok(found)
        } else {
            Err(result::INVALID_VALUE)
        }
    }

    pub(crate) fn set_access(&mut self, addr: u64, bytes: u64, by: &[i32]) -> Result<(), i32> {
        for tile in self.tiles(addr, bytes)? {
            self.refuse_rdma("cuMemSetAccess", self.is_for_rdma(tile)?)?;
            if let Some(Access::Of(devices)) = self.mappings.get_mut(&tile).map(|mapping| &mut mapping.access) {
                devices.extend(by);
            }
        }
        Ok(())
    }

    pub(crate) fn unmap(&mut self, addr: u64, bytes: u64) -> Result<(), i32> {
        for tile in self.tiles(addr, bytes)? {
            if let Some(mapping) = self.mappings.remove(&tile) {
                self.physical.entry(mapping.physical).and_modify(|p| p.mappings -= 1);
                self.drop_if_unused(mapping.physical);
            }
        }
        Ok(())
    }

    /// Passes the pieces of a range to `visit`, in order. Fails before the first if any part is not accessible to the current device.
    pub(crate) fn pieces(&mut self, addr: u64, len: u64, mut visit: impl FnMut(&mut [u8])) -> Result<(), i32> {
        let end = addr.checked_add(len).ok_or(result::INVALID_VALUE)?;
        let by = device::current()?;
        let mut parts = Vec::new();
        let mut at = addr;
        while at < end {
            let (start, mapping) = self
                .mappings
                .range(..=at)
                .next_back()
                .filter(|(start, mapping)| at < **start + mapping.size && mapping.access.has(by))
                .ok_or(result::ILLEGAL_ADDRESS)?;
            let stop = (start + mapping.size).min(end);
            parts.push((mapping.physical, (at - start) as usize, (stop - start) as usize));
            at = stop;
        }
        for (id, from, to) in parts {
            if let Some(bytes) = self.physical.get_mut(&id).and_then(|p| p.bytes.get_mut(from..to)) {
                visit(bytes);
            }
        }
        Ok(())
    }
}
