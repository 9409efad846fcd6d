//! The driver's answers to requests.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::atomic::Ordering;

use crate::device::{self, Device, Use};
use crate::install::{GPUS, Request, VERSION, requests_file};
use crate::layout::{self, Layout, status};
use crate::memory::{Alias, Caller, PAGE};
use crate::replay::{self, FLUSHES};
use crate::scenario::{ENTRY, Fate, Scenario};
use crate::tracker::{Queue, Tracker};

pub(crate) const INIT_TRACKER: u32 = 56;
pub(crate) const ENABLE_EVENTS: u32 = 58;
pub(crate) const ENABLE_COUNTERS: u32 = 60;
pub(crate) const PROCESSOR_TABLE: u32 = 64;
pub(crate) const FLUSH: u32 = 67;
pub(crate) const INITIALIZE: u32 = 0x3000_0001;

/// Masks of the existing counters and types of events.
const COUNTERS: u64 = 0x3ff;
const EVENTS: u64 = 0x7ffe;

/// The UUID of the CPU in every table.
const CPU: [u8; 16] = [
    0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73,
];

/// Answers a request. The result is that of `ioctl`. The driver's status is written to the argument.
pub(crate) fn answer(root: &Path, device: Device, fd: RawFd, request: u32, argument: u64) -> io::Result<()> {
    let text = std::fs::read_to_string(root.join(VERSION))?;
    let layout = layout::version_in(&text).and_then(layout::of_version);
    let layout = layout.ok_or_else(|| errno(libc::ENODEV))?;
    let (bytes, status_at) = match (device, request) {
        (Device::Tools, INIT_TRACKER) => (layout.init_bytes, layout.init_status),
        (Device::Tools, ENABLE_EVENTS | ENABLE_COUNTERS) | (Device::Uvm, INITIALIZE) => (16, 8),
        (Device::Uvm, PROCESSOR_TABLE) => (layout.table_bytes, layout.table_status),
        (Device::Uvm, FLUSH) => (4, 0),
        _ => (0, 0),
    };
    let mut struct_bytes = vec![0; bytes];
    let caller = Caller(argument);
    caller.copy_in(&mut struct_bytes)?;
    record(root, device, request, &struct_bytes)?;
    if bytes == 0 {
        return Err(errno(match device {
            Device::Tools => libc::EINVAL,
            Device::Uvm => libc::ENOSYS,
        }));
    }
    let scenario = Scenario::read(root).map_err(io::Error::other)?;
    let status = match scenario.fates.get(&request) {
        Some(Fate::Silent) => return Ok(()),
        Some(Fate::Fail(error)) => return Err(errno(*error)),
        Some(Fate::Refuse(status)) => *status,
        None => {
            let argument = &mut struct_bytes;
            let done = match request {
                INIT_TRACKER => init_tracker(root, fd, argument, layout),
                ENABLE_EVENTS | ENABLE_COUNTERS => enable(root, fd, request, argument, scenario),
                PROCESSOR_TABLE => processor_table(fd, argument, layout),
                FLUSH => flush(fd),
                _ => Use::Space(0).set(fd).map_err(|_| status::INVALID_ARGUMENT),
            };
            done.err().unwrap_or(status::OK)
        }
    };
    struct_bytes[status_at..status_at + 4].copy_from_slice(&status.to_ne_bytes());
    caller.copy_out(&struct_bytes)
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn record(root: &Path, device: Device, number: u32, argument: &[u8]) -> io::Result<()> {
    let request = Request {
        pid: std::process::id(),
        tools: device == Device::Tools,
        number,
        argument: argument.to_owned(),
    };
    let mut file = OpenOptions::new().append(true).create(true).open(requests_file(root))?;
    file.write_all(request.to_line().as_bytes())
}

fn half(argument: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(argument[at..at + 4].try_into().unwrap_or_default())
}

fn word(argument: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(argument[at..at + 8].try_into().unwrap_or_default())
}

/// Checks the version of the entries that the caller wants, where the series has one.
fn version(argument: &[u8], at: Option<usize>) -> Result<u32, u32> {
    match at.map(|at| half(argument, at)) {
        None => Ok(1),
        Some(version @ 1..=2) => Ok(version),
        Some(_) => Err(status::INVALID_ARGUMENT),
    }
}

fn init_tracker(root: &Path, fd: RawFd, argument: &mut [u8], layout: Layout) -> Result<(), u32> {
    let (queue, entries, control) = (word(argument, 0), word(argument, 8), word(argument, 16));
    let (all, uvm) = (half(argument, 40), half(argument, 44) as RawFd);
    let granted = version(argument, layout.init_version)?;
    // Counters of a single GPU are not supported.
    let twice = Tracker::of(root, fd).is_some();
    let size_fits = entries == 0 || (entries.is_power_of_two() && (2..=1 << 24).contains(&entries));
    if twice || all != 1 || !size_fits {
        return Err(status::INVALID_ARGUMENT);
    }
    match device::of(uvm) {
        Some((Device::Uvm, of)) if of == root => {}
        _ => return Err(status::INSUFFICIENT_PERMISSIONS),
    }
    let Use::Space(space) = Use::of(uvm) else {
        return Err(status::ILLEGAL_ACTION);
    };
    let map = |address: u64, bytes: u64| {
        if bytes == 0 || !address.is_multiple_of(PAGE) || !bytes.is_multiple_of(PAGE) {
            return Err(status::INVALID_ADDRESS);
        }
        Alias::of(address, bytes as usize).map_err(|_| status::INVALID_ADDRESS)
    };
    let control = map(control, PAGE)?;
    let queue = match entries {
        0 => None,
        _ => Some(Queue {
            memory: map(queue, entries * ENTRY as u64)?,
            entries: entries as u32,
        }),
    };
    Tracker::make(fd, space, control, queue).map_err(|_| status::INVALID_ARGUMENT)?;
    if let Some(at) = layout.init_granted {
        argument[at..at + 4].copy_from_slice(&granted.to_ne_bytes());
    }
    Ok(())
}

fn enable(root: &Path, fd: RawFd, request: u32, argument: &[u8], scenario: Scenario) -> Result<(), u32> {
    let tracker = Tracker::of(root, fd).ok_or(status::INVALID_ARGUMENT)?;
    let (known, right_mode) = match request {
        ENABLE_EVENTS => (EVENTS, tracker.queue.is_some()),
        _ => (COUNTERS, tracker.queue.is_none()),
    };
    let flags = word(argument, 0);
    if flags & !known != 0 || !right_mode {
        return Err(status::INVALID_ARGUMENT);
    }
    if tracker.enabled.fetch_or(flags, Ordering::Relaxed) == 0 {
        replay::start(root, tracker, scenario);
    }
    Ok(())
}

fn processor_table(fd: RawFd, argument: &mut [u8], layout: Layout) -> Result<(), u32> {
    let Use::Space(_) = Use::of(fd) else {
        return Err(status::ILLEGAL_ACTION);
    };
    version(argument, layout.table_version)?;
    if let Some(at) = layout.table_count {
        if layout.table_count_in && ![0, 33].contains(&half(argument, at)) {
            return Err(status::INVALID_ARGUMENT);
        }
        argument[at..at + 4].copy_from_slice(&(1 + GPUS.len() as u32).to_ne_bytes());
    }
    if layout.table_bytes == 24 {
        argument[16..20].copy_from_slice(&1u32.to_ne_bytes());
    }
    let mut table = [0; 33 * 16];
    for (place, uuid) in table.chunks_exact_mut(16).zip(std::iter::once(&CPU).chain(&GPUS)) {
        place.copy_from_slice(uuid);
    }
    let table_address = Caller(word(argument, 0));
    table_address.copy_out(&table).map_err(|_| status::INVALID_ADDRESS)
}

fn flush(fd: RawFd) -> Result<(), u32> {
    match Use::of(fd) {
        Use::Space(_) => {
            FLUSHES.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        Use::Fresh | Use::Lifetime => Err(status::ILLEGAL_ACTION),
    }
}

#[cfg(test)]
mod tests;
