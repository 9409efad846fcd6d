//! kvcached's record of a KV cache, in shared memory.
//!
//! Each engine that runs on kvcached keeps a file of 24 bytes in `/dev/shm`: the limit, the used and the preallocated bytes, each an
//! `int64_t` (`MemInfoStruct` in `csrc/inc/mem_info_tracker.hpp` and `kvcached/cli/utils.py` of ovg-project/kvcached). Writers hold an
//! exclusive `flock`. A reader that took the lock could hold up an engine, so the record is read twice instead, without it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};

use super::variables::{KVCACHED_IPC_NAME, Variables};
use crate::stat::Status;
use crate::{KvCached, Root};

/// Size of the record.
const SIZE: usize = 24;
/// Longest name; kvcached cuts longer ones.
const LONGEST: usize = 64;
/// A file system in memory, `TMPFS_MAGIC` of `statfs(2)`. Another one might not answer.
const TMPFS: u64 = 0x0102_1994;

/// Where a process's record may be.
#[derive(Debug)]
pub(super) struct Records {
    /// Names of files in `/dev/shm`, as the process sees it.
    names: Vec<String>,
    /// The process's user ids. The record must belong to one of them.
    owners: [u32; 3],
}

impl Records {
    /// Returns where the record of a process may be: under the name that it was given, else under the default names, which have
    /// the number of the process group. `status` is that of the process.
    pub(super) fn of(status: &Status, variables: &Variables) -> Option<Self> {
        let given = variables.get(KVCACHED_IPC_NAME);
        let named = |name: &str| {
            let safe = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
            name.chars().take(LONGEST).map(safe).collect()
        };
        let names = match (given, status.group) {
            (Some(name), _) => vec![named(name)],
            // The first is that of the C++ allocator, the others are those of Python.
            (None, Some(group)) => ["engine", "vLLM", "SGLang"]
                .map(|tag| format!("kvcached_{tag}_{group}"))
                .into(),
            (None, None) => return None,
        };
        Some(Records {
            names,
            owners: status.uids?,
        })
    }

    /// Reads the first record that is there.
    pub(super) fn read(&self, root: &Root, pid: u32) -> Option<KvCached> {
        let shm = shared_memory(root, pid).ok()?;
        self.names.iter().find_map(|name| self.one(&shm, name))
    }

    fn one(&self, shm: &OwnedFd, name: &str) -> Option<KvCached> {
        // To open a device does something, so the type is known before.
        let there = rustix::fs::statat(shm, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if FileType::from_raw_mode(there.st_mode) != FileType::RegularFile {
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(shm, name, flags, Mode::empty()).ok()?);
        let about = file.metadata().ok()?;
        let is_record = about.is_file() && about.len() == SIZE as u64 && self.owners.contains(&about.uid());
        if !is_record {
            return None;
        }
        let mut before = words(&file)?;
        for _ in 0..3 {
            let now = words(&file)?;
            if now == before {
                return parse(now);
            }
            before = now;
        }
        None
    }
}

/// Opens `/dev/shm` as the process sees it, which is another one in a container. A link there leads nowhere outside of it.
fn shared_memory(root: &Root, pid: u32) -> io::Result<OwnedFd> {
    let place = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let its_root = rustix::fs::open(root.path(format!("proc/{pid}/root")), place, Mode::empty())?;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let shm = rustix::fs::openat2(&its_root, "dev/shm", place, Mode::empty(), inside)?;
    match rustix::fs::fstatfs(&shm)?.f_type as u64 {
        TMPFS => Ok(shm),
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, "not in memory")),
    }
}

fn words(file: &File) -> Option<[i64; 3]> {
    let mut bytes = [0; SIZE];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let (words, _) = bytes.as_chunks::<8>();
    let mut words = words.iter().map(|word| i64::from_le_bytes(*word));
    Some([words.next()?, words.next()?, words.next()?])
}

/// Checks a record: no figure is negative, and no GPU has a pebibyte.
fn parse(words: [i64; 3]) -> Option<KvCached> {
    let bytes = |n: i64| u64::try_from(n).ok().filter(|&n| n < 1 << 50);
    let [limit, used, preallocated] = words;
    Some(KvCached {
        limit: bytes(limit)?,
        used: bytes(used)?,
        preallocated: bytes(preallocated)?,
    })
}
