//! How the file of a channel comes into being.

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

use super::Publisher;
use crate::error::CreateError;
use crate::format::IDENTITY;
use crate::map::{LockedFile, Map, Process, file_size_limit};
use crate::options::Options;
use crate::snapshot::Identity;
use crate::stamp::Stamp;
use crate::word::{Word, Words};
use crate::writer::Writer;
use crate::{identity, life, place, sweep};

impl Publisher {
    /// Creates the channel: builds it under a temporary name and renames it once it is complete, so that nobody ever sees a part of it.
    ///
    /// Also sweeps the directory of what dead publishers left behind, and where there is no room takes theirs.
    ///
    /// # Errors
    /// See [`CreateError`]. The caller works on without a channel.
    pub fn create(options: &Options) -> Result<Publisher, CreateError> {
        let candidates = options.dir.clone().map_or_else(place::own_directories, |dir| vec![dir]);
        let mut refused = Vec::new();
        for dir in candidates {
            match place::open_own(&dir) {
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
        let layout = options.layout_within(place::total(handle));
        let bytes = layout.bytes();
        let io_error = |doing, path: &Path| {
            let (dir, path) = (dir.to_owned(), path.to_owned());
            move |source: io::Error| match lacks_room(&source) {
                true => CreateError::NoSpace { dir, bytes },
                false => CreateError::Io { doing, path, source },
            }
        };
        let identity = identity::of_this_process(options.program.as_deref(), &options.job)
            .map_err(io_error("read who we are from", Path::new("/proc/self")))?;
        // Forks are watched from here on.
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
        name.first_free(|name| temporary.publish(name))
            .map_err(io_error("name", &path))?;
        Ok(Publisher {
            writer: Writer::new(map, layout),
            _lock: lock,
            path: dir.join(name.text()),
            strings: HashMap::new(),
            stamp: Stamp::new(),
        })
    }
}

/// The name of a channel: its process, and a number. Another copy of this library counts in the same names: in a library that the program
/// loaded, or in the program that executed this one. And another pid namespace may have a process of our pid and start time.
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
        format!("{pid}-{start_time}-{}{}", self.number, place::SUFFIX)
    }

    /// Does something that needs the name to be free, going on to the next one until it is.
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

/// Milliseconds until it is tried again where no black box is left: of programs that begin at the same time each may have taken a part of
/// what is enough for one of them, and given it back.
const PAUSES: [u64; 4] = [1, 2, 4, 8];

/// What room is made for at a time at least.
const LEAST_PART: u64 = 64 << 10;

/// Does what takes room in `dir`. While there is none black boxes go, those first that are worth least: who lives comes before them.
fn with_room<T>(dir: &File, mut take: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut pauses = PAUSES.into_iter();
    loop {
        match take() {
            Err(error) if lacks_room(&error) => {
                if !sweep::remove_least(dir) {
                    let pause = pauses.next().ok_or(error)?;
                    thread::sleep(Duration::from_millis(pause));
                }
            }
            done => return done,
        }
    }
}

/// Has a file system keep `bytes` for a file. Older kernels give all of a call back that a signal interrupts: where a profiler sends one
/// every millisecond a call for all of it would never be done, one for a part of it is.
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

/// Whether the file system is full, or what this user may have of it.
fn lacks_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether a file system that says it is full has no room for one more file, whatever that holds.
fn lacks_inodes(dir: &File) -> bool {
    rustix::fs::fstatvfs(dir).is_ok_and(|there| there.f_files > 0 && there.f_ffree == 0)
}

/// A file beyond the process's limit on file sizes is refused by a signal, which ends a program that does not expect it.
fn check_file_size(bytes: u64) -> Result<(), CreateError> {
    match file_size_limit() {
        Some(limit) if limit < bytes => Err(CreateError::FileSizeLimit { bytes, limit }),
        _ => Ok(()),
    }
}

/// A file under its temporary name; removed again unless it was renamed.
struct Temporary<'a> {
    dir: &'a File,
    name: OsString,
    file: File,
    /// The name is free, and may be another copy's by now.
    renamed: bool,
}

impl<'a> Temporary<'a> {
    const FLAGS: OFlags = OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

    fn create(dir: &'a File, name: &str) -> io::Result<Temporary<'a>> {
        let name = OsString::from(format!("{}{name}", place::TEMPORARY));
        let flags = Self::FLAGS | OFlags::CREATE | OFlags::EXCL;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(dir.as_fd(), &name, flags, mode)?;
        let temporary = Temporary {
            dir,
            name,
            file: above_stderr(file)?.into(),
            renamed: false,
        };
        // The program's mask may have taken a part. If it cannot be given back the file cannot be opened again.
        let _ = rustix::fs::fchmod(&temporary.file, mode);
        Ok(temporary)
    }

    fn open_again(&self) -> io::Result<File> {
        let file = rustix::fs::openat(self.dir.as_fd(), &self.name, Self::FLAGS, Mode::empty())?;
        Ok(above_stderr(file)?.into())
    }

    /// Gives the file its name, which must be free.
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

/// The same file under a number that is none of stdin's, stdout's and stderr's: what a program that has closed those writes to them must not
/// come here.
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
