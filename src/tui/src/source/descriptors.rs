//! Open files: how many this process may have, and how many of them are for channels. A program that publishes takes one for as
//! long as it lives.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Enough for all channels that a scan finds, and as many again.
const WANTED: u64 = 8192;
/// Left for all else, or a quarter of few: the search itself, the driver's device files, a demo's pipes.
const RESERVED: u64 = 64;

/// Raises how many files this process may have open, as far as that is allowed to. 1024, a common limit, is less than the programs
/// that a large machine runs.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Some(current) = raised(limit.current, limit.maximum) {
        // What it may be raised to was asked a moment ago; a channel that finds no descriptor is told of.
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(current),
                ..limit
            },
        );
    }
}

/// What a limit is to be raised to; `None` leaves it.
fn raised(current: Option<u64>, maximum: Option<u64>) -> Option<u64> {
    let wanted = maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
    current.is_some_and(|current| current < wanted).then_some(wanted)
}

/// How many files this process may have open.
pub(super) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many of them may be channels.
pub(super) fn for_channels(limit: u64) -> u64 {
    limit - RESERVED.min(limit / 4)
}

/// Whether something failed because this process, or the machine, has as many files open as it may.
pub(super) fn none_left(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_raised_as_far_as_is_allowed_and_never_lowered() {
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
    fn some_are_left_for_all_else() {
        for (limit, channels) in [(0, 0), (12, 9), (64, 48), (1024, 960), (u64::MAX, u64::MAX - 64)] {
            assert_eq!(for_channels(limit), channels);
        }
    }
}
