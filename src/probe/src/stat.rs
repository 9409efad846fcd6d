//! `/proc/PID/stat` and `/proc/PID/status`: the few fields that the probe needs. Field numbers are those of `proc(5)`.

use std::io;

use gpumem_text::clean_line;

use crate::Root;

/// Bytes read of either file; both are well below this.
const LIMIT: u64 = 16 << 10;

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Name of the executable or thread; the kernel gives at most 15 bytes.
    pub(crate) comm: String,
    /// One letter: `Z` is a zombie, `T` a process stopped by a signal, `t` one stopped by a debugger.
    pub(crate) state: char,
    /// The parent's pid; 0 if the parent is not in this pid namespace.
    pub(crate) parent: u32,
    /// Start time in clock ticks since boot.
    pub(crate) start_time: u64,
}

impl Stat {
    /// Reads the file of a process.
    pub(crate) fn read(root: &Root, pid: u32) -> io::Result<Self> {
        let bytes = root.read(format!("proc/{pid}/stat"), LIMIT)?;
        Self::parse(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not the format of proc(5)"))
    }

    /// Whether a signal or a debugger has stopped the process.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// Parses the file. The name is in parentheses and may itself contain blanks, parentheses and line ends: it ends at
    /// the last `)`.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let open = bytes.iter().position(|&b| b == b'(')?;
        let close = bytes.iter().rposition(|&b| b == b')')?;
        let comm = clean_line(bytes.get(open + 1..close)?, 64);
        let rest = std::str::from_utf8(bytes.get(close + 1..)?).ok()?;
        // The first of these is field 3 of `proc(5)`.
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let start_time = fields.nth(22 - 5)?.parse().ok()?;
        Some(Stat {
            comm,
            state,
            parent,
            start_time,
        })
    }
}

/// Fields of `/proc/PID/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// The process's pid in each pid namespace, from that of this process to its own.
    pub(crate) ns_pids: Vec<u32>,
    /// Its real, effective and saved user ids.
    pub(crate) uids: Option<[u32; 3]>,
    /// Its process group in its own pid namespace.
    pub(crate) group: Option<u32>,
    /// Effective capabilities, as a bit set.
    pub(crate) capabilities: Option<u64>,
    /// Permitted capabilities: those that it can make effective.
    pub(crate) permitted: Option<u64>,
    /// Resident shared memory (`RssShmem`), in bytes.
    pub(crate) shared: Option<u64>,
}

impl Status {
    /// Reads the file of a process; `pid` may be `self`.
    pub(crate) fn read(root: &Root, pid: impl std::fmt::Display) -> io::Result<Self> {
        Ok(Self::parse(&root.read(format!("proc/{pid}/status"), LIMIT)?))
    }

    fn parse(bytes: &[u8]) -> Self {
        /// The kernel nests at most 32 pid namespaces.
        const DEEPEST: usize = 33;
        let mut status = Status::default();
        for line in String::from_utf8_lossy(bytes).lines() {
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let mut words = value.split_ascii_whitespace();
            match key {
                "NSpid" => status.ns_pids = words.take(DEEPEST).map_while(|w| w.parse().ok()).collect(),
                "NSpgid" => status.group = words.take(DEEPEST).last().and_then(|w| w.parse().ok()),
                "Uid" => {
                    let uids: Vec<u32> = words.take(3).map_while(|w| w.parse().ok()).collect();
                    status.uids = uids.try_into().ok();
                }
                "CapEff" => status.capabilities = words.next().and_then(|w| u64::from_str_radix(w, 16).ok()),
                "CapPrm" => status.permitted = words.next().and_then(|w| u64::from_str_radix(w, 16).ok()),
                "RssShmem" => {
                    status.shared = words.next().and_then(|w| w.parse::<u64>().ok()?.checked_mul(1024));
                }
                _ => {}
            }
        }
        status
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn stat(comm: &str, start: &str) -> Vec<u8> {
        format!(
            "12 ({comm}) S 1 12 12 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 {start} 1000 42 18446744073709551615 1 1\n"
        )
        .into_bytes()
    }

    #[test]
    fn name_may_contain_any_character() {
        for comm in ["python", "a b", "tmux: server", ") S 1 (", "((", "))", "a\nb"] {
            let stat = Stat::parse(&stat(comm, "777")).unwrap();
            assert_eq!((stat.start_time, stat.state, stat.parent), (777, 'S', 1), "{comm}");
        }
        assert_eq!(Stat::parse(&stat("\x1b[2J", "1")).unwrap().comm, "\u{fffd}[2J");
    }

    #[test]
    fn truncated_or_malformed_stat_is_rejected() {
        for bytes in [
            &b""[..],
            b"12",
            b"12 (a",
            b"12 (a)",
            b"12 (a) S 1 2 3",
            b")(",
            b"\xff(\xff)\xff \xff",
            &stat("a", "-1"),
        ] {
            assert_eq!(Stat::parse(bytes), None, "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn status_has_pids_user_ids_and_capabilities() {
        let status = Status::parse(
            b"Name:\tx\nUid:\t1000\t0\t5\t7\nNSpid:\t4121\t7\nNSpgid:\t4100\t5\nCapPrm:\t00000000002a0000\nCapEff:\t0000000000280000\nRssShmem:\t    8192 kB\n",
        );
        assert_eq!(
            status,
            Status {
                ns_pids: vec![4121, 7],
                uids: Some([1000, 0, 5]),
                group: Some(5),
                capabilities: Some(0x28_0000),
                permitted: Some(0x2a_0000),
                shared: Some(8 << 20),
            }
        );
        assert_eq!(
            Status::parse(b"NSpid:\nNSpgid:\nUid:\t1\t2\tx\t3\nCapEff:\tq\nRssShmem:\t18446744073709551615 kB\n"),
            Status::default()
        );
    }

    #[test]
    fn own_stat_and_status_are_read() {
        let pid = std::process::id();
        let stat = Stat::read(&Root::default(), pid).unwrap();
        assert!(stat.start_time > 0);
        let status = Status::read(&Root::default(), "self").unwrap();
        assert_eq!(status.ns_pids.last(), Some(&pid));
    }

    #[test]
    fn hostile_files_are_errors() {
        use rustix::fs::{CWD, Mode, mkfifoat, symlinkat};
        let dir = tempfile::tempdir().unwrap();
        let file = |pid: u32| dir.path().join(format!("proc/{pid}/stat"));
        for pid in 1..=4 {
            std::fs::create_dir_all(file(pid).parent().unwrap()).unwrap();
        }
        symlinkat("stat", CWD, file(1)).unwrap();
        std::fs::write(file(2), vec![b'('; 10 << 20]).unwrap();
        mkfifoat(CWD, file(3), Mode::RUSR).unwrap();
        std::fs::write(file(4), b"").unwrap();
        for pid in 1..=5 {
            assert!(Stat::read(&Root::at(dir.path()), pid).is_err(), "{pid}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Stat::parse(&bytes);
            prop_assert!(Status::parse(&bytes).ns_pids.len() <= 33);
        }
    }
}
