//! A snapshot at the moment when memory runs out, for whoever asked for it from outside:
//! `GPUMEM_SNAPSHOT_ON_OOM=/tmp/oom-%p.pickle python train.py`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use gpumem_text::clean;

use super::{ExportError, Readers};
use crate::allocator::Allocator;
use crate::error::Error;
use crate::process::{Uncancelled, say, started_by_another};
use crate::report::Help;

const VARIABLE: &str = "GPUMEM_SNAPSHOT_ON_OOM";

/// One of them is enough: what fails once is often tried again.
static WRITTEN: AtomicBool = AtomicBool::new(false);
/// One of a pool's budget beside it: programs with tenants go on when one of them is refused, and what memory then runs out of is another
/// matter.
static WRITTEN_FOR_POOL: AtomicBool = AtomicBool::new(false);

/// A path with the process's number in the place of each `%p`, of whatever bytes the rest is.
fn numbered(path: &OsStr, process: u32) -> PathBuf {
    let (number, mut rest) = (process.to_string(), path.as_bytes());
    let mut numbered = Vec::new();
    while let Some(at) = rest.windows(2).position(|two| two == b"%p") {
        numbered.extend_from_slice(&rest[..at]);
        numbered.extend_from_slice(number.as_bytes());
        rest = &rest[at + 2..];
    }
    numbered.extend_from_slice(rest);
    OsString::from_vec(numbered).into()
}

/// Where the snapshot goes, if one is wanted.
#[derive(Debug, Default)]
pub(crate) struct OnOom(Option<PathBuf>);

impl OnOom {
    /// What the environment says; `%p` is the process's number.
    pub(crate) fn from_environment() -> OnOom {
        // Who started it must not have files written where only the one may as which it runs.
        if started_by_another() {
            return OnOom::default();
        }
        let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
        OnOom(path.map(|path| numbered(&path, std::process::id())))
    }

    /// Writes it if memory ran out for the first time in this process, also where a pool's budget was spent before, for which one is written
    /// until then. Whatever happens here, the request fails as it would.
    pub(crate) fn look<T>(&self, allocator: &Allocator, result: &Result<T, Error>) {
        let (Some(path), Err(Error::OutOfMemory(report))) = (&self.0, result) else {
            return;
        };
        let refused_by_pool = report
            .helps
            .iter()
            .any(|help| matches!(help, Help::RaisePoolBudget { .. }));
        let written = match refused_by_pool {
            true => WRITTEN.load(Ordering::Relaxed) || WRITTEN_FOR_POOL.swap(true, Ordering::Relaxed),
            false => WRITTEN.swap(true, Ordering::Relaxed),
        };
        if written {
            return;
        }
        let _undisturbed = Uncancelled::begin();
        let snapshot = allocator.snapshot().map_err(ExportError::from);
        let said = match snapshot.and_then(|snapshot| super::write(&snapshot, path, Readers::Owner)) {
            Ok(()) => format!(
                "gpumem: out of memory: wrote the snapshot {}",
                clean(&path.display().to_string())
            ),
            Err(error) => format!("gpumem: {VARIABLE}: {error}"),
        };
        say(&said);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_a_file_of_its_own() {
        for (path, expected) in [
            (&b"/tmp/%p/x-%p%p.pickle"[..], &b"/tmp/77/x-7777.pickle"[..]),
            (b"no number %", b"no number %"),
            (b"\xff%%p\xfe", b"\xff%77\xfe"),
            (b"", b""),
        ] {
            let numbered = numbered(OsStr::from_bytes(path), 77);
            assert_eq!(numbered.as_os_str().as_bytes(), expected);
        }
    }
}
