//! The limit on open files, and how many of them channels may use. Each running program that publishes takes one.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Twice the number of channels that a scan returns.
const WANTED: u64 = 8192;
/// Descriptors kept for everything else: the scan itself, the driver's device files, a demo's pipes. At most a quarter of
/// the limit.
const RESERVED: u64 = 64;

/// Raises the soft limit on open files to [`WANTED`], or to the hard limit if that is lower. The common limit of 1024 is less
/// than the number of programs on a large machine.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Some(current) = raised(limit.current, limit.maximum) {
        // The hard limit was read just above, so this should not fail. If it does, channels without a descriptor are
        // reported.
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(current),
                ..limit
            },
        );
    }
}

/// Returns the new soft limit; `None` to leave it as it is.
fn raised(current: Option<u64>, maximum: Option<u64>) -> Option<u64> {
    let wanted = maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
    current.is_some_and(|current| current < wanted).then_some(wanted)
}

/// Returns how many files this process may have open.
pub(super) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns how many of `limit` open files may be channels.
pub(super) fn for_channels(limit: u64) -> u64 {
    limit - RESERVED.min(limit / 4)
}

/// Checks whether an error says that this process, or the machine, is at its limit of open files.
pub(super) fn out_of_descriptors(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_raised_as_far_as_allowed_and_never_lowered() {
        let cases = [
            (Some(1024), Some(524_288), Some(WANTED)),
            (Some(1024), None, Some(WANTED)),
            (Some(1024), Some(4096), Some(4096)),
            (Some(1024), Some(1024), None),
            (Some(100_000), Some(524_288), None),
            (None, None, None),
        ];
        for (current, maximum, expected) in cases {
            assert_eq!(raised(current, maximum), expected, "{current:?} of {maximum:?}");
        }
    }

    #[test]
    fn some_descriptors_are_kept_for_other_uses() {
        for (limit, channels) in [(0, 0), (12, 9), (64, 48), (1024, 960), (u64::MAX, u64::MAX - 64)] {
            assert_eq!(for_channels(limit), channels);
        }
    }
}
