//! The host's memory, from `/proc/meminfo`.

use crate::{HostMemory, Reading, Root};

/// A real file has about 1.5 KiB.
const LIMIT: u64 = 16 << 10;

/// How much memory the host has and how much a new program could have.
pub fn host_memory(root: &Root) -> Reading<HostMemory> {
    match root.read("proc/meminfo", LIMIT) {
        Ok(bytes) => parse(&bytes).map_or_else(
            || Reading::Failed("/proc/meminfo has no usable MemTotal and MemAvailable".into()),
            Reading::Value,
        ),
        Err(e) => Reading::Failed(format!("reading /proc/meminfo: {e}")),
    }
}

/// Lines are `Name:   123 kB`, where kB means 1024 bytes.
fn parse(bytes: &[u8]) -> Option<HostMemory> {
    let text = String::from_utf8_lossy(bytes);
    let field = |name: &str| {
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        value
            .trim()
            .strip_suffix("kB")?
            .trim_end()
            .parse::<u64>()
            .ok()?
            .checked_mul(1024)
    };
    let (total, available) = (field("MemTotal")?, field("MemAvailable")?);
    (available <= total).then_some(HostMemory { total, available })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kib_become_bytes() {
        let text = b"MemTotal:       2048 kB\nMemFree:  1 kB\nMemAvailable:   1024 kB\n";
        assert_eq!(
            parse(text),
            Some(HostMemory {
                total: 2 << 20,
                available: 1 << 20
            })
        );
    }

    #[test]
    fn nonsense_is_no_figure() {
        for text in [
            &b""[..],
            b"MemTotal: 5 kB\n",
            b"MemTotal: 5 kB\nMemAvailable: 6 kB\n",
            b"MemTotal: 18446744073709551615 kB\nMemAvailable: 6 kB\n",
            b"MemTotal: -5 kB\nMemAvailable: 1 kB\n",
            b"\xff\xfe\0\0MemTotal",
        ] {
            assert_eq!(parse(text), None, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_missing_file_says_so() {
        let root = Root::at("/nonexistent-root");
        assert!(matches!(host_memory(&root), Reading::Failed(why) if why.contains("/proc/meminfo")));
    }

    #[test]
    fn this_machine_has_memory() {
        let memory = host_memory(&Root::default());
        assert!(memory.value().is_some_and(|m| m.total > 1 << 20), "{memory:?}");
    }
}
