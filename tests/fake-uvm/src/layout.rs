//! The layout of the requests of each driver series. It comes from the headers of the open kernel modules, and not from the program under
//! test.

/// The driver's status words.
pub(crate) mod status {
    pub(crate) const OK: u32 = 0;
    /// The descriptor is not an address space.
    pub(crate) const ILLEGAL_ACTION: u32 = 0x16;
    /// The descriptor is not of nvidia-uvm.
    pub(crate) const INSUFFICIENT_PERMISSIONS: u32 = 0x1b;
    pub(crate) const INVALID_ADDRESS: u32 = 0x1e;
    pub(crate) const INVALID_ARGUMENT: u32 = 0x1f;
}

/// Sizes and offsets in the arguments of one series, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes of the argument that initialises a tracker.
    pub(crate) init_bytes: usize,
    pub(crate) init_status: usize,
    /// Where the caller writes the version of the entries that it wants: 1 or 2.
    pub(crate) init_version: Option<usize>,
    /// Where the driver writes the version that it delivers.
    pub(crate) init_granted: Option<usize>,
    /// Bytes of the argument that asks for the table of processors.
    pub(crate) table_bytes: usize,
    pub(crate) table_status: usize,
    /// Where the driver writes the length of the table. From 550.40.53 on the caller writes a length there as well, and 0 means 33.
    pub(crate) table_count: Option<usize>,
    pub(crate) table_count_in: bool,
    pub(crate) table_version: Option<usize>,
}

const OLD: Layout = Layout {
    init_bytes: 56,
    init_status: 48,
    init_version: None,
    init_granted: None,
    table_bytes: 16,
    table_status: 12,
    table_count: Some(8),
    table_count_in: false,
    table_version: None,
};

const VERSIONED: Layout = Layout {
    init_bytes: 64,
    init_version: Some(52),
    init_granted: Some(56),
    table_bytes: 24,
    table_count_in: true,
    ..OLD
};

const SWAPPED: Layout = Layout {
    init_status: 52,
    init_version: Some(48),
    table_count: None,
    table_version: Some(8),
    ..OLD
};

const NEW: Layout = Layout {
    table_status: 8,
    table_count: None,
    ..OLD
};

/// Returns the layout of a driver version. `None` for an unknown one.
pub(crate) fn of_version(version: &str) -> Option<Layout> {
    let numbers: Vec<u32> = version.split('.').map_while(|part| part.parse().ok()).collect();
    match *numbers.first()? {
        515 | 520 | 525 | 530 | 535 | 545 => Some(OLD),
        550 if numbers[1..] < [40, 53][..] => Some(OLD),
        550 | 555 => Some(VERSIONED),
        560 => Some(SWAPPED),
        565 | 570 | 575 | 580 | 590 | 595 => Some(NEW),
        _ => None,
    }
}

/// Returns the version in the text of `/proc/driver/nvidia/version`.
pub(crate) fn version_in(text: &str) -> Option<&str> {
    let is_version = |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    text.split_whitespace().find(is_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_has_its_layout() {
        for (version, layout) in [
            ("515.43.04", Some(OLD)),
            ("550.40.07", Some(OLD)),
            ("550.40.53", Some(VERSIONED)),
            ("550.163.01", Some(VERSIONED)),
            ("555.42.02", Some(VERSIONED)),
            ("560.35.03", Some(SWAPPED)),
            ("565.57.01", Some(NEW)),
            ("595.45.04", Some(NEW)),
            ("610.10", None),
            ("", None),
        ] {
            assert_eq!(of_version(version), layout, "{version}");
        }
    }

    #[test]
    fn the_recorded_version_is_found() {
        let recorded = include_str!("../fixtures/version.txt");
        assert_eq!(version_in(recorded), Some("580.159.04"));
    }
}
