//! Pinned host memory (`cudaMallocHost`), as far as the kernel shows it.
//!
//! The driver maps such memory as anonymous shared memory, which `/proc/PID/maps` calls `/dev/zero (deleted)`, and its pages are resident at
//! once (seen with driver 580.159.04, 2026-11-29: 512 MiB of `cuMemAllocHost` and 700 MiB of PyTorch's `pin_memory`, which is 1 GiB, as
//! one mapping each). A context itself has 8 MiB of it. What is mapped write-combined is a mapping of `/dev/nvidiactl` and cannot be told from
//! the context's; what the program mapped itself and registered (`cudaHostRegister`) looks as before.

use std::io;

use super::libraries::LIMIT;
use crate::Root;
use crate::stat::Status;

/// A context has 8 MiB of such mappings, and programs have a little for other reasons.
const LEAST: u64 = 64 << 20;
/// The list is read again when the resident shared memory has changed by this much.
const STEP: u64 = 16 << 20;

/// What is known of the pinned memory of a process that uses the driver.
#[derive(Default)]
pub(super) struct Pinned {
    /// The resident shared memory when the list was last read.
    shared: u64,
    bytes: u64,
}

impl Pinned {
    /// Looks again if something may have changed and `left`, the number of lists that may still be read, allows it. Returns the bytes of
    /// pinned memory, if that is much.
    pub(super) fn now(&mut self, root: &Root, pid: u32, left: &mut usize) -> Option<u64> {
        let shared = Status::read(root, pid).ok()?.shared.unwrap_or(0);
        if *left > 0 && shared.abs_diff(self.shared) >= STEP {
            *left -= 1;
            self.bytes = read(root, pid).ok()?;
            self.shared = shared;
        }
        // What is not resident is not pinned.
        Some(self.bytes.min(shared)).filter(|bytes| *bytes >= LEAST)
    }
}

fn read(root: &Root, pid: u32) -> io::Result<u64> {
    Ok(sum(&root.read(format!("proc/{pid}/maps"), LIMIT)?))
}

/// Sums the mappings of anonymous shared memory.
fn sum(maps: &[u8]) -> u64 {
    let sizes = maps.split(|&b| b == b'\n').filter_map(|line| {
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let is_shared = words.next()?.starts_with("rw-s");
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).ok());
        (is_shared && line.ends_with("/dev/zero (deleted)")).then_some(end?.saturating_sub(start?))
    });
    sizes.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_memory_is_the_anonymous_shared_mappings() {
        // 512 and 256 MiB by cuMemAllocHost and cuMemHostAlloc, 8 MiB of the context.
        let maps = include_bytes!("../../tests/fixtures/pinned-maps.txt");
        assert_eq!(sum(maps), (512 + 256 + 8) << 20);
        for hostile in [
            "",
            "-",
            "x-y rw-s 0 0:0 1 /dev/zero (deleted)",
            "2-1 rw-s 0 0:0 1 /dev/zero (deleted)",
        ] {
            assert_eq!(sum(hostile.as_bytes()), 0, "{hostile}");
        }
    }
}
