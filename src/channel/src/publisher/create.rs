//! Creates the file of a channel.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, RenameFlags};

use super::{Publisher, sampled};
use crate::clock::Clock;
use crate::error::CreateError;
use crate::format::IDENTITY;
use crate::map::{LockedFile, Map, Process, file_size_limit};
use crate::options::Options;
use crate::snapshot::Identity;
use crate::word::{Word, Words};
use crate::writer::Writer;
use crate::{directory, identity, life, sweep};

impl Publisher {
    /// Creates the channel: builds it under a temporary name and renames it once it is complete, so that no reader ever
    /// sees an incomplete file.
    ///
    /// Also removes old black boxes of dead publishers from the directory, and more of them if there is no space.
    ///
    /// # Errors
    /// See [`CreateError`]. The caller can continue without a channel.
    pub fn create(options: &Options) -> Result<Publisher, CreateError> {
        let candidates = options
            .dir
            .clone()
            .map_or_else(directory::own_directories, |dir| vec![dir]);
        let mut refused = Vec::new();
        for dir in candidates {
            match directory::open_own(&dir) {
                Ok(handle) => {
                    sweep::sweep(&handle);
                    return Publisher::create_in(&dir, &handle, options);
                }
                Err(why) => refused.push(why),
            }
        }
        Err(CreateError::NoDirectory(refused))
    }

    fn create_in(dir: &Path, handle: &File, options: &Options) -> Result<Publisher, CreateError> {
        let layout = options.layout_within(directory::total(handle));
        let bytes = layout.bytes();
        let io_error = |doing, path: &Path| {
            let (dir, path) = (dir.to_owned(), path.to_owned());
            move |source: io::Error| match lacks_room(&source) {
                true => CreateError::NoSpace { dir, bytes },
                false => CreateError::Io { doing, path, source },
            }
        };
        let about = options
            .process
            .map_or("/proc/self".to_owned(), |pid| format!("/proc/{pid}"));
        let identity = identity::of_process(options)
            .map_err(io_error("read the identity of the process from", Path::new(&about)))?;
        // From here on forked children are detected.
        let process = Process::current();
        let mut name = Name::next(&identity);
        let made = with_room(handle, || name.first_free(|name| Temporary::create(handle, name)));
        let mut temporary = made.map_err(|error| match lacks_room(&error) && lacks_inodes(handle) {
            true => CreateError::NoInodes { dir: dir.to_owned() },
            false => io_error("create", &dir.join(name.text()))(error),
        })?;
        let path = dir.join(name.text());
        let lock = LockedFile::open(&temporary.file, process, || temporary.open_again())
            .map_err(io_error("open", &path))?
            .ok_or(CreateError::TooMany)?;

        check_file_size(bytes)?;
        with_room(handle, || take_room(&temporary.file, bytes)).map_err(io_error("make room for", &path))?;
        let map = Map::writable(&temporary.file, layout.len).map_err(io_error("map", &path))?;
        life::hold(lock.file()).map_err(io_error("lock", &path))?;
        for (word, value) in map.words().iter().zip(layout.header()) {
            word.put(value);
        }
        for (word, value) in map.words()[IDENTITY..].iter().zip(identity::pack(&identity)) {
            word.put(value);
        }
        let unasked = sampled::mark_unasked(&temporary.file);
        name.first_free(|name| temporary.publish(name))
            .map_err(io_error("name", &path))?;
        Ok(Publisher {
            writer: Writer::new(map, layout),
            _lock: lock,
            path: dir.join(name.text()),
            strings: HashMap::new(),
            clock: Clock::new(),
            unasked,
            past: 0,
        })
    }
}

/// The name of a channel: its process, and a number. Another copy of this library in the process, or the program that
/// executed this one, may use the same names. So may a process of another pid namespace with the same pid and start
/// time.
struct Name<'a> {
    identity: &'a Identity,
    number: u32,
}

impl<'a> Name<'a> {
    fn next(identity: &'a Identity) -> Name<'a> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        Name {
            identity,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn text(&self) -> String {
        let Identity { pid, start_time, .. } = self.identity;
        format!("{pid}-{start_time}-{}{}", self.number, directory::SUFFIX)
    }

    /// Tries names one after the other until `take` finds one that is free.
    fn first_free<T>(&mut self, mut take: impl FnMut(&str) -> io::Result<T>) -> io::Result<T> {
        loop {
            match take(&self.text()) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && self.number < 1 << 16 => {
                    *self = Name::next(self.identity);
                }
                done => return done,
            }
        }
    }
}

/// Milliseconds before each retry when no black box is left. Programs that start at the same time may each have taken a
/// part of the space, which is enough for one of them, and released it again.
const PAUSES: [u64; 4] = [1, 2, 4, 8];

/// Smallest part of a file that is allocated at a time, in bytes.
const LEAST_PART: u64 = 64 << 10;

/// Does something that takes space in `dir`. While there is none, removes black boxes, least valuable first: live
/// channels have precedence.
fn with_room<T>(dir: &File, mut take: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut pauses = PAUSES.into_iter();
    loop {
        match take() {
            Err(error) if lacks_room(&error) => {
                if !sweep::remove_least_valuable(dir) {
                    let pause = pauses.next().ok_or(error)?;
                    thread::sleep(Duration::from_millis(pause));
                }
            }
            done => return done,
        }
    }
}

/// Allocates `bytes` of the file system for a file. Older kernels undo a whole call that a signal interrupts. If a
/// profiler sends a signal every millisecond, one call for everything would never finish, but calls for parts of it do.
fn take_room(file: &File, bytes: u64) -> io::Result<()> {
    let (mut taken, mut part) = (0, bytes);
    while taken < bytes {
        let next = part.min(bytes - taken);
        match rustix::fs::fallocate(file, FallocateFlags::empty(), taken, next) {
            Ok(()) => taken += next,
            Err(rustix::io::Errno::INTR) => part = (part / 2).max(LEAST_PART),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Whether the file system or this user's quota is full.
fn lacks_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether a full file system has no free inode.
fn lacks_inodes(dir: &File) -> bool {
    rustix::fs::fstatvfs(dir).is_ok_and(|there| there.f_files > 0 && there.f_ffree == 0)
}

/// Checks the process's limit on file sizes. Exceeding it raises a signal that kills the program by default.
fn check_file_size(bytes: u64) -> Result<(), CreateError> {
    match file_size_limit() {
        Some(limit) if limit < bytes => Err(CreateError::FileSizeLimit { bytes, limit }),
        _ => Ok(()),
    }
}

/// A file under its temporary name. It is removed on drop unless it was renamed.
struct Temporary<'a> {
    dir: &'a File,
    name: OsString,
    file: File,
    /// Whether the file was renamed. The temporary name is then free, and may be another file's by now.
    renamed: bool,
}

impl<'a> Temporary<'a> {
    const FLAGS: OFlags = OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

    fn create(dir: &'a File, name: &str) -> io::Result<Temporary<'a>> {
        let name = OsString::from(format!("{}{name}", directory::TEMPORARY));
        let flags = Self::FLAGS | OFlags::CREATE | OFlags::EXCL;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(dir.as_fd(), &name, flags, mode)?;
        let temporary = Temporary {
            dir,
            name,
            file: above_stderr(file)?.into(),
            renamed: false,
        };
        // The process's umask may have removed permissions. If they cannot be restored, the file cannot be opened
        // again.
        let _ = rustix::fs::fchmod(&temporary.file, mode);
        Ok(temporary)
    }

    fn open_again(&self) -> io::Result<File> {
        let file = rustix::fs::openat(self.dir.as_fd(), &self.name, Self::FLAGS, Mode::empty())?;
        Ok(above_stderr(file)?.into())
    }

    /// Renames the file to its final name, which must be free.
    fn publish(&mut self, name: &str) -> io::Result<()> {
        let dir = self.dir.as_fd();
        match rustix::fs::renameat_with(dir, &self.name, dir, name, RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                Ok(rustix::fs::linkat(dir, &self.name, dir, name, AtFlags::empty())?)
            }
            other => {
                self.renamed = other.is_ok();
                Ok(other?)
            }
        }
    }
}

/// Moves a descriptor above those of stdin, stdout and stderr: the output of a program that has closed these must not
/// go into the channel.
fn above_stderr(file: OwnedFd) -> io::Result<OwnedFd> {
    match file.as_raw_fd() {
        0..=2 => Ok(rustix::io::fcntl_dupfd_cloexec(&file, 3)?),
        _ => Ok(file),
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = rustix::fs::unlinkat(self.dir, &self.name, AtFlags::empty());
        }
    }
}
