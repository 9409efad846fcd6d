//! The driver's tools interface as bytes: a private kernel interface, whose layout changed between driver series.
//!
//! The layouts come from the open kernel modules 515.43.04 to 595.45.04, and were tried on 580.159.04. Only requests that change nothing
//! are here. The interface also has requests that move memory, set policies, and read or write a process's memory. They are never sent.

use super::sys::Aligned;

/// Requests on `/dev/nvidia-uvm-tools`.
pub(super) const INIT_TRACKER: u32 = 56;
pub(super) const ENABLE_EVENTS: u32 = 58;
pub(super) const ENABLE_COUNTERS: u32 = 60;
/// Requests on a descriptor of `/dev/nvidia-uvm`.
pub(super) const PROCESSOR_TABLE: u32 = 64;
pub(super) const FLUSH_EVENTS: u32 = 67;
pub(super) const INITIALIZE: u32 = 0x3000_0001;

/// Counters, as flags of the request that enables them: bytes each way, CPU faults, GPU faults.
pub(super) const COUNTER_FLAGS: u64 = 0x1 | 0x2 | 0x4 | 0x200;
/// Indexes of the counters in the control page: host to device, device to host, CPU faults, GPU faults. A page has ten words.
pub(super) const COUNTER_PLACES: [usize; 4] = [0, 1, 2, 9];
/// Words of the control page in counter mode.
pub(super) const COUNTERS: usize = 10;

/// The status for the second descriptor that a process can hold, which has no memory of its own. The other descriptor is the right one.
pub(super) const NOT_A_VA_SPACE: u32 = 0x16;
/// The status of another file than the driver's.
const NOT_UVM: u32 = 0x1b;

/// Where the words of the init request are, by driver series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// 515 to 550.40.07: status at byte 48. The processor table tells its length at byte 8.
    Old,
    /// 550.40.53 to 555: status at byte 48, the requested version at byte 52.
    Versioned,
    /// 560: the version at byte 48, status at byte 52.
    Swapped,
    /// From 565 on: status at byte 48. The processor table's status is at byte 8.
    New,
}

/// The series whose interface is known, oldest and newest.
pub(super) const KNOWN: (u32, u32) = (515, 595);

impl Layout {
    /// The layout of a driver, by its version as in `580.159.04`.
    ///
    /// # Errors
    /// A sentence, for a driver whose interface is not known.
    pub(super) fn of_driver(version: &str) -> Result<Layout, String> {
        let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
        let major = parts.next().flatten();
        let [minor, patch] = [parts.next().flatten(), parts.next().flatten()].map(|part| part.unwrap_or(0));
        match major {
            Some(550) if (minor, patch) < (40, 53) => Ok(Layout::Old),
            Some(550 | 555) => Ok(Layout::Versioned),
            Some(515 | 520 | 525 | 530 | 535 | 545) => Ok(Layout::Old),
            Some(560) => Ok(Layout::Swapped),
            Some(565 | 570 | 575 | 580 | 590 | 595) => Ok(Layout::New),
            _ => Err(format!(
                "the interface of driver {version} is not known: it is of the series {} to {}",
                KNOWN.0, KNOWN.1
            )),
        }
    }

    /// The byte of the init request's status.
    fn status_at(self) -> usize {
        match self {
            Layout::Swapped => 52,
            Layout::Old | Layout::Versioned | Layout::New => 48,
        }
    }
}

/// The queue of a tracker that delivers events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// Its address: whole pages of 64-byte entries.
    pub(super) address: u64,
    /// Its entries, a power of two.
    pub(super) entries: u64,
}

/// The request that makes a tracker of all processors for the memory of the process that `uvm_fd` belongs to; a tracker that counts
/// where there is no queue. One form fits all series: a 1 both at byte 48 and at byte 52, of which the driver sets its
/// status word to 0.
pub(super) fn init_tracker(control: u64, queue: Option<Queue>, uvm_fd: u32) -> Aligned<64> {
    let mut bytes = [0; 64];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    if let Some(queue) = queue {
        put(0, &queue.address.to_ne_bytes());
        put(8, &queue.entries.to_ne_bytes());
    }
    put(16, &control.to_ne_bytes());
    put(40, &1u32.to_ne_bytes());
    put(44, &uvm_fd.to_ne_bytes());
    put(48, &1u32.to_ne_bytes());
    put(52, &1u32.to_ne_bytes());
    Aligned(bytes)
}

/// What the driver answered to [`init_tracker`].
///
/// # Errors
/// The status when it refused, as far as the answer is one of this layout.
pub(super) fn init_status(answer: &Aligned<64>, layout: Layout) -> Result<(), Refusal> {
    let words = [48, 52].map(|at| half(&answer.0, at));
    let (status, other) = match layout.status_at() {
        48 => (words[0], words[1]),
        _ => (words[1], words[0]),
    };
    match (status, other) {
        (0, 1) => Ok(()),
        (1, 0) | (1, 1) | (0, _) => Err(Refusal::Unexpected(words)),
        (status, _) => Err(Refusal::Status(status)),
    }
}

/// Why a request did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The driver's status.
    Status(u32),
    /// An answer that no known series gives: its words at bytes 48 and 52.
    Unexpected([u32; 2]),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Status(0x03) => write!(f, "the driver is busy (status 0x3)"),
            Refusal::Status(0x51) => write!(f, "the driver is out of memory (status 0x51)"),
            Refusal::Status(NOT_UVM) => write!(f, "the descriptor is not of nvidia-uvm (status 0x1b)"),
            Refusal::Status(status) => write!(f, "the driver refused (status {status:#x})"),
            Refusal::Unexpected([a, b]) => write!(f, "the driver gave an unexpected answer ({a:#x}, {b:#x})"),
        }
    }
}

/// The request that enables counters or events.
pub(super) fn enable(flags: u64) -> Aligned<16> {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&flags.to_ne_bytes());
    // A driver that does not write its status must not look as if it had.
    bytes[8..12].copy_from_slice(&u32::MAX.to_ne_bytes());
    Aligned(bytes)
}

/// The driver's status in its answer to [`enable`].
///
/// # Errors
/// Any status but 0.
pub(super) fn enable_status(answer: &Aligned<16>) -> Result<(), Refusal> {
    status(half(&answer.0, 8))
}

fn status(status: u32) -> Result<(), Refusal> {
    match status {
        0 => Ok(()),
        status => Err(Refusal::Status(status)),
    }
}

/// Entries of the table of processors, each a UUID of 16 bytes: the CPU, then the GPUs. Zeroes where there is none.
pub(super) const PROCESSORS: usize = 33;

/// The request for the table of processors at an address.
pub(super) fn processor_table(address: u64, layout: Layout) -> Aligned<24> {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&address.to_ne_bytes());
    if layout == Layout::Swapped {
        bytes[8..12].copy_from_slice(&1u32.to_ne_bytes());
    }
    // As in `enable`.
    let at = table_status_at(layout);
    bytes[at..at + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
    Aligned(bytes)
}

fn table_status_at(layout: Layout) -> usize {
    match layout {
        Layout::New => 8,
        Layout::Old | Layout::Versioned | Layout::Swapped => 12,
    }
}

/// The driver's status in its answer to [`processor_table`].
///
/// # Errors
/// Any status but 0.
pub(super) fn processor_status(answer: &Aligned<24>, layout: Layout) -> Result<(), Refusal> {
    status(half(&answer.0, table_status_at(layout)))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    u32::from_ne_bytes(word.unwrap_or_default())
}

/// Bytes of an event of the first version, the same in all series.
pub(super) const ENTRY: usize = 64;
/// The types of events that are asked for, by number.
pub(super) const CPU_FAULT: u8 = 1;
pub(super) const MIGRATION: u8 = 2;
pub(super) const GPU_FAULT: u8 = 3;
pub(super) const THRASHING: u8 = 10;
pub(super) const THROTTLING: u8 = 11;
pub(super) const MAP_REMOTE: u8 = 13;
/// The same as a mask.
pub(super) const EVENT_FLAGS: u64 =
    1 << CPU_FAULT | 1 << MIGRATION | 1 << GPU_FAULT | 1 << THRASHING | 1 << THROTTLING | 1 << MAP_REMOTE;

/// Where the control page of a queue has its 32-bit words.
pub(super) mod control {
    pub(in crate::uvm) const GET_AHEAD: usize = 0;
    pub(in crate::uvm) const GET_BEHIND: usize = 1;
    pub(in crate::uvm) const PUT_BEHIND: usize = 3;
    /// 64-bit words from here on count the dropped events, by type.
    pub(in crate::uvm) const DROPPED: usize = 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_has_its_layout() {
        for (version, layout) in [
            ("515.43.04", Layout::Old),
            ("520.56.06", Layout::Old),
            ("525.60.11", Layout::Old),
            ("530.30.02", Layout::Old),
            ("535.43.02", Layout::Old),
            ("535.274.02", Layout::Old),
            ("545.23.06", Layout::Old),
            ("550.40.07", Layout::Old),
            ("550.40.53", Layout::Versioned),
            ("550.40.85", Layout::Versioned),
            ("550.54.14", Layout::Versioned),
            ("550.90.07", Layout::Versioned),
            ("550.163.01", Layout::Versioned),
            ("555.42.02", Layout::Versioned),
            ("560.28.03", Layout::Swapped),
            ("565.57.01", Layout::New),
            ("570.86.15", Layout::New),
            ("575.51.02", Layout::New),
            ("580.159.04", Layout::New),
            ("590.44.01", Layout::New),
            ("595.45.04", Layout::New),
        ] {
            assert_eq!(Layout::of_driver(version), Ok(layout), "{version}");
        }
    }

    #[test]
    fn other_drivers_are_refused_by_name() {
        for version in [
            "610.10.02",
            "600.1",
            "585.1",
            "470.57.02",
            "0",
            "-550.54",
            "5500.54",
            "550,54",
            "99999999999.1",
            "",
            ".",
            "abc",
        ] {
            let why = format!("the interface of driver {version} is not known: it is of the series 515 to 595");
            assert_eq!(Layout::of_driver(version), Err(why));
        }
    }

    /// Bytes in hexadecimal; blanks are for the reader.
    #[cfg(target_endian = "little")]
    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits
            .chunks_exact(2)
            .map(|pair| (pair[0] << 4 | pair[1]) as u8)
            .collect()
    }

    const ALL: [Layout; 4] = [Layout::Old, Layout::Versioned, Layout::Swapped, Layout::New];

    #[test]
    #[cfg(target_endian = "little")]
    fn requests_are_these_bytes() {
        // Queue, entries, control, the UUID of no GPU, all processors, descriptor, 1, 1, nothing.
        let counts = hex(
            "0000000000000000 0000000000000000 00f0dc5476cba700 00000000000000000000000000000000
             01000000 07000000 01000000 01000000 0000000000000000",
        );
        assert_eq!(init_tracker(0x00a7_cb76_54dc_f000, None, 7).0[..], counts);
        let queue = Queue {
            address: 0x7f12_3456_7000,
            entries: 1 << 18,
        };
        let listens = hex(
            "00705634127f0000 0000040000000000 00f0dc5476cba700 00000000000000000000000000000000
             01000000 ff010000 01000000 01000000 0000000000000000",
        );
        assert_eq!(init_tracker(0x00a7_cb76_54dc_f000, Some(queue), 0x1ff).0[..], listens);
        assert_eq!(enable(COUNTER_FLAGS).0[..], hex("0702000000000000 ffffffff 00000000"));
        assert_eq!(enable(EVENT_FLAGS).0[..], hex("0e2c000000000000 ffffffff 00000000"));
        for (layout, rest) in [
            (Layout::Old, "00000000 ffffffff 0000000000000000"),
            (Layout::Versioned, "00000000 ffffffff 0000000000000000"),
            (Layout::Swapped, "01000000 ffffffff 0000000000000000"),
            (Layout::New, "ffffffff 00000000 0000000000000000"),
        ] {
            let expected = hex(&format!("00705634127f0000 {rest}"));
            assert_eq!(processor_table(queue.address, layout).0[..], expected, "{layout:?}");
        }
    }

    /// An answer with these words at bytes 48 and 52.
    fn answer(words: [u32; 2]) -> Aligned<64> {
        let mut argument = init_tracker(0, None, 3);
        argument.0[48..52].copy_from_slice(&words[0].to_ne_bytes());
        argument.0[52..56].copy_from_slice(&words[1].to_ne_bytes());
        argument
    }

    #[test]
    fn a_tracker_is_made_when_the_status_of_its_series_says_so() {
        for layout in ALL {
            let words = |status: u32, other: u32| match layout {
                Layout::Swapped => [other, status],
                _ => [status, other],
            };
            let status = |status, other| init_status(&answer(words(status, other)), layout);
            let unexpected = |a, b| Err(Refusal::Unexpected(words(a, b)));
            assert_eq!(status(0, 1), Ok(()), "{layout:?}");
            for refusal in [0x03, 0x16, NOT_UVM, 0x1e, 0x1f, 0x51, u32::MAX] {
                assert_eq!(status(refusal, 1), Err(Refusal::Status(refusal)));
            }
            // Nothing was written, another series' word was, or both were.
            for (a, b) in [(1, 1), (1, 0), (0, 0), (0, 2), (0, 0x1f)] {
                assert_eq!(status(a, b), unexpected(a, b), "{layout:?}");
            }
        }
        // 550.40.53 and later write the version that they grant behind it.
        let mut granted = answer([0, 1]);
        granted.0[56] = 1;
        assert_eq!(init_status(&granted, Layout::Versioned), Ok(()));
    }

    #[test]
    fn an_answer_that_was_not_written_is_no_success() {
        let refused = |status| Err(Refusal::Status(status));
        assert_eq!(enable_status(&enable(COUNTER_FLAGS)), refused(u32::MAX));
        for layout in ALL {
            let mut table = processor_table(0, layout);
            assert_eq!(processor_status(&table, layout), refused(u32::MAX), "{layout:?}");
            let at = if layout == Layout::New { 8 } else { 12 };
            table.0[at..at + 4].copy_from_slice(&0x16u32.to_ne_bytes());
            assert_eq!(processor_status(&table, layout), refused(0x16));
            table.0[at..at + 4].copy_from_slice(&[0; 4]);
            assert_eq!(processor_status(&table, layout), Ok(()));
        }
        let mut enabled = enable(EVENT_FLAGS);
        enabled.0[8..12].copy_from_slice(&[0; 4]);
        assert_eq!(enable_status(&enabled), Ok(()));
    }

    /// Requests that move memory, set policies, or read and write what is in it have no constant here.
    #[test]
    fn requests_only_look() {
        assert_eq!([INIT_TRACKER, ENABLE_EVENTS, ENABLE_COUNTERS], [56, 58, 60]);
        assert_eq!([PROCESSOR_TABLE, FLUSH_EVENTS, INITIALIZE], [64, 67, 0x3000_0001]);
    }
}
