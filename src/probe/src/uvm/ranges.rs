//! A process's managed ranges, from `/proc/PID/maps`.

use std::io::{self, BufRead, BufReader, Read};

use super::PAGE;
use crate::Root;

/// Of a map file no more is read: a process with 100,000 mappings has 10 MiB of it.
const MOST_BYTES: u64 = 64 << 20;
/// More ranges of one process are counted and not kept.
const MOST_RANGES: usize = 4096;
/// Longer lines are of files with long paths.
const MOST_LINE: u64 = 4096 + 128;
/// Ranges that begin below this are the driver's own: semaphore pools of 2 MiB. CUDA places managed memory far above.
const FIRST_MANAGED: u64 = 1 << 36;
/// User addresses end here on every architecture with a driver.
const LAST_MANAGED: u64 = 1 << 57;

/// A range of managed memory: whole pages, with no gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ManagedRange {
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
}

impl ManagedRange {
    /// Its bytes.
    pub fn bytes(self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// What the memory map of a process says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedMap {
    /// Its managed ranges, in order.
    pub ranges: Vec<ManagedRange>,
    /// Ranges that it has besides.
    pub left_out: usize,
    /// Whether it has PyTorch's CUDA library loaded, which does not use managed memory itself.
    pub pytorch: bool,
    /// Whether it has bitsandbytes loaded, whose paged optimizers use managed memory.
    pub bitsandbytes: bool,
}

/// Reads the memory map of a process.
///
/// # Errors
/// When the file cannot be read, which another user's cannot.
pub(super) fn managed_ranges(root: &Root, pid: u32, device: &str) -> io::Result<ManagedMap> {
    let file = root.open(format!("proc/{pid}/maps"))?;
    parse(BufReader::new(file.take(MOST_BYTES)), device)
}

fn parse(mut maps: impl BufRead, device: &str) -> io::Result<ManagedMap> {
    let mut map = ManagedMap::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        let ManagedMap { ranges, left_out, .. } = &mut map;
        let full = ranges.len() == MOST_RANGES;
        if maps.by_ref().take(MOST_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(map);
        }
        let Some(range) = std::str::from_utf8(&line).ok().and_then(|line| managed(line, device)) else {
            map.pytorch |= has(&line, b"/libtorch_cuda");
            map.bitsandbytes |= has(&line, b"/libbitsandbytes");
            continue;
        };
        match ranges.last_mut() {
            // A part of a range that was unmapped or protected splits the mapping, not what it is a mapping of; hostile lines
            // overlap.
            Some(last) if range.start < last.end => continue,
            Some(last) if range.start == last.end => last.end = range.end,
            _ if full => *left_out += 1,
            _ => ranges.push(range),
        }
    }
}

/// Whether a line names a library.
fn has(line: &[u8], library: &[u8]) -> bool {
    line.windows(library.len()).any(|window| window == library)
}

/// The managed range of a line such as `7f0000000000-7f0010000000 rw-s 7f0000000000 00:05 1 /dev/nvidia-uvm`: the offset in the
/// driver's device equals the address.
fn managed(line: &str, device: &str) -> Option<ManagedRange> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let rights = fields.next()?;
    let offset = fields.next()?;
    let path = fields.nth(2)?;
    // A file of the driver's that was removed, or a path with blanks, has more behind it.
    if path != device || fields.next().is_some() || !rights.ends_with('s') {
        return None;
    }
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end, offset) = (hex(start)?, hex(end)?, hex(offset)?);
    let whole = start % PAGE == 0 && end % PAGE == 0;
    let placed = (FIRST_MANAGED..end).contains(&start) && end <= LAST_MANAGED;
    (offset == start && whole && placed).then_some(ManagedRange { start, end })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn ranges(maps: &str) -> Vec<(u64, u64)> {
        let map = parse(maps.as_bytes(), "/dev/nvidia-uvm").unwrap();
        map.ranges.iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn managed_ranges_are_told_from_other_mappings() {
        let maps = "\
200200000-200400000 rw-s 200200000 00:05 900 /dev/nvidia-uvm
555555554000-555555556000 r--p 00000000 08:01 12 /usr/bin/python3
7f2000000000-7f2010000000 rw-s 7f2000000000 00:05 900 /dev/nvidia-uvm
7f2010000000-7f2020000000 rw-s 00000000 00:05 901 /dev/nvidia0
7f3000000000-7f3000200000 rw-s 7f3000000000 00:05 900                    /dev/nvidia-uvm
7f4000000000-7f4000200000 rw-s 00001000 00:05 900 /dev/nvidia-uvm
7f5000000000-7f5000200000 rw-p 7f5000000000 00:05 900 /dev/nvidia-uvm
7f6000000000-7f6000200000 rw-s 7f6000000000 00:05 900 /dev/nvidia-uvm (deleted)
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
";
        assert_eq!(
            ranges(maps),
            [
                (0x7f20_0000_0000, 0x7f20_1000_0000),
                (0x7f30_0000_0000, 0x7f30_0020_0000)
            ]
        );
    }

    /// A process with 64 MiB of managed memory, on driver 580.159.04.
    #[test]
    fn a_recorded_map_has_one_managed_range() {
        let maps = include_str!("../../../../tests/fake-uvm/fixtures/maps.txt");
        assert_eq!(ranges(maps), [(0x7f6b_1a00_0000, 0x7f6b_1e00_0000)]);
    }

    /// `mprotect` of a part leaves several mappings of one range.
    #[test]
    fn neighbouring_mappings_are_one_range() {
        let maps = "\
7f2000000000-7f2000200000 rw-s 7f2000000000 00:05 900 /dev/nvidia-uvm
7f2000200000-7f2000400000 r--s 7f2000200000 00:05 900 /dev/nvidia-uvm
";
        assert_eq!(ranges(maps), [(0x7f20_0000_0000, 0x7f20_0040_0000)]);
    }

    #[test]
    fn hostile_lines_are_left_out() {
        let device = "00:05 900 /dev/nvidia-uvm";
        for range in [
            "7f2000000000-7f2000000000",
            "7f2000200000-7f2000000000",
            "7f2000000001-7f2000002000",
            "7f2000000000-ffffffffffffffff",
            "7f2000000000-1ffffffffffffffff",
            "-",
            "",
            "zzz-7f2000000000",
        ] {
            let offset = range.split('-').next().unwrap_or_default();
            assert_eq!(ranges(&format!("{range} rw-s {offset} {device}\n")), [], "{range}");
        }
        assert_eq!(ranges(&"\u{0}".repeat(100_000)), []);
    }

    #[test]
    fn libraries_that_explain_managed_memory_are_found() {
        let line = |path: &str| format!("7f2000000000-7f2000200000 r-xp 00000000 08:01 9 /usr/lib/{path}\n");
        let map = |path: &str| parse(line(path).as_bytes(), "/dev/nvidia-uvm").unwrap();
        let found = |path: &str| (map(path).pytorch, map(path).bitsandbytes);
        assert_eq!(found("torch/lib/libtorch_cuda.so"), (true, false));
        assert_eq!(found("bitsandbytes/libbitsandbytes_cuda130.so"), (false, true));
        assert_eq!(found("libc.so.6"), (false, false));
    }

    #[test]
    fn ranges_beyond_the_limit_are_counted() {
        let line = |n: u64| {
            let start = 0x7f00_0000_0000 + n * 4 * PAGE;
            format!(
                "{start:x}-{:x} rw-s {start:x} 00:05 900 /dev/nvidia-uvm\n",
                start + PAGE
            )
        };
        let maps: String = (0..MOST_RANGES as u64 + 7).map(line).collect();
        let map = parse(maps.as_bytes(), "/dev/nvidia-uvm").unwrap();
        assert_eq!((map.ranges.len(), map.left_out), (MOST_RANGES, 7));
    }
}
