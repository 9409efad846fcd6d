//! The kernel's log, as far as it is about the NVIDIA driver: `NVRM` lines, which have the Xid errors of GPUs.

use std::collections::VecDeque;
use std::io::{self, Read};

use gpumem_text::clean_line;

use crate::{Fact, Root};

/// The most bytes that are read. The log is a ring, usually of 256 KiB to a few MiB.
const MAX: usize = 16 << 20;
/// The most lines that are returned, and characters of a line.
const LINES: usize = 200;
const LENGTH: usize = 500;

/// Returns the newest lines of the driver in the kernel's log, oldest first, each with its time since boot: `[1234.567890] NVRM: Xid ...`.
pub fn driver_log(root: &Root) -> Fact<Vec<String>> {
    kernel_log(root, |text| {
        ["NVRM", "Xid", "nvidia"].iter().any(|word| text.contains(word))
    })
}

/// Returns the newest lines of the kernel's log that pass, oldest first, each with its time since boot.
pub(crate) fn kernel_log(root: &Root, passes: fn(&str) -> bool) -> Fact<Vec<String>> {
    let log = read(root).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("/dev/kmsg: {error}; root can read it, and others if kernel.dmesg_restrict is 0")
        }
        _ => format!("/dev/kmsg: {error}"),
    })?;
    let mut lines = VecDeque::new();
    for line in log
        .split(|byte| *byte == b'\n')
        .filter_map(|record| line(record, passes))
    {
        lines.push_back(line);
        if lines.len() > LINES {
            lines.pop_front();
        }
    }
    Ok(lines.into())
}

/// Reads `/dev/kmsg`, which returns one record a read, and an error where the end of the log is or a record was overwritten.
fn read(root: &Root) -> io::Result<Vec<u8>> {
    let mut file = root.open("dev/kmsg")?;
    let (mut log, mut record) = (Vec::new(), [0; 8192]);
    while log.len() < MAX {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(n) => log.extend_from_slice(&record[..n]),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => break,
                io::ErrorKind::BrokenPipe | io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            },
        }
    }
    Ok(log)
}

/// Formats a record `priority,sequence,microseconds,flags;text` that passes; `None` for any other line.
fn line(record: &[u8], passes: fn(&str) -> bool) -> Option<String> {
    let at = record.iter().position(|byte| *byte == b';')?;
    let (head, text) = (record.get(..at)?, record.get(at + 1..)?);
    let text = clean_line(text, LENGTH);
    if !passes(&text) {
        return None;
    }
    let head = String::from_utf8_lossy(head);
    let micros: u64 = head.split(',').nth(2)?.parse().ok()?;
    Some(format!("[{}.{:06}] {text}", micros / 1_000_000, micros % 1_000_000))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn log_of(text: &[u8]) -> Fact<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("dev")).unwrap();
        std::fs::write(folder.path().join("dev/kmsg"), text).unwrap();
        driver_log(&Root::at(folder.path()))
    }

    #[test]
    fn lines_of_the_driver_are_found() {
        let log = b"6,339,5140900,-;Linux version 6.8 (secret@host)\n\
                    4,340,1234000042,-;NVRM: Xid (PCI:0000:01:00): 79, GPU has \x1b[31m fallen off the bus\n\
                    \x20SUBSYSTEM=pci\n\
                    4,341,nonsense,-;NVRM: no time\n\
                    NVRM: no record\n";
        let expected = "[1234.000042] NVRM: Xid (PCI:0000:01:00): 79, GPU has \u{fffd}[31m fallen off the bus";
        assert_eq!(log_of(log), Ok(vec![expected.to_owned()]));
        assert_eq!(log_of(b""), Ok(Vec::new()));
    }

    #[test]
    fn newest_lines_are_kept() {
        let log: String = (0..LINES + 5).map(|n| format!("4,{n},{n},-;NVRM: {n}\n")).collect();
        let lines = log_of(log.as_bytes()).unwrap();
        assert_eq!(lines.len(), LINES);
        assert!(lines[0].ends_with("NVRM: 5"), "{}", lines[0]);
    }

    #[test]
    fn log_that_cannot_be_read_has_a_reason() {
        let nothing = tempfile::tempdir().unwrap();
        let why = driver_log(&Root::at(nothing.path())).unwrap_err();
        assert!(why.starts_with("/dev/kmsg: "), "{why}");
    }
}
