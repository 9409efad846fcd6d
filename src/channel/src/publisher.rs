//! The publishing end: makes the file, holds its lock, and stamps what the writer stores.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, RenameFlags};
use rustix::process::{Resource, getrlimit};

use crate::cells::Touched;
use crate::error::CreateError;
use crate::lane::Lane;
use crate::layout::{Capacity, IDENTITY, Layout};
use crate::map::{LockedFile, Map};
use crate::record::{Block, BlockState, Device, Event, EventKind, PoolId, Segment, StringId};
use crate::snapshot::Identity;
use crate::stamp::Stamp;
use crate::stats::DeviceStats;
use crate::word::{Word, Words};
use crate::writer::{Structure, Told, Writer};
use crate::{identity, life, place, sweep};

/// How large a channel is and what it says about its program.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory to publish in; `None` tries [`own_directories`](crate::own_directories).
    pub dir: Option<PathBuf>,
    /// Blocks it has room for (64 bytes each). Blocks beyond that are counted as untracked.
    pub blocks: u32,
    /// Segments it has room for (128 bytes each).
    pub segments: u32,
    /// Events it keeps (64 bytes each), rounded up to a power of two.
    pub events: u32,
    /// Different tags and marks it has room for (128 bytes each).
    pub strings: u32,
    /// Devices it has room for (1.5 KiB each); at most 256.
    pub devices: u32,
    /// Job label.
    pub job: String,
    /// Program name; `None` takes the executable's.
    pub program: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            dir: None,
            blocks: 65_536,
            segments: 4_096,
            events: 16_384,
            strings: 1_024,
            devices: 16,
            job: std::env::var("GPUMEM_JOB").unwrap_or_default(),
            program: None,
        }
    }
}

/// A request that hit the cache, or a block that came back to it, without any change of structure. Not for a block that waits for the
/// GPU.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// [`EventKind::Alloc`], [`EventKind::Free`] or [`EventKind::FreeCompleted`].
    pub kind: EventKind,
    /// The block's slot.
    pub slot: u32,
    /// The block as it is now. A free block's `requested` and `tag` are those it had: they go into the event only.
    pub block: &'a Block,
    /// The slot of the block behind it in its segment.
    pub next: Option<u32>,
    /// The pool that counts it as an inactive split while it is free, if it is one.
    pub split: Option<PoolId>,
}

/// A channel being published. One writer: every method that stores takes `&mut self`.
///
/// After creation nothing here allocates (except [`Publisher::intern`]), makes a system call, blocks, or panics. In a forked child
/// every method does nothing.
pub struct Publisher {
    writer: Writer<Map>,
    // Declared after the writer: the lock is let go of last.
    _lock: LockedFile,
    path: PathBuf,
    identity: Identity,
    strings: HashMap<Box<str>, StringId>,
    /// What follows an event belongs to the same operation and carries the same time.
    stamp: Stamp,
}

impl Publisher {
    /// Creates the channel: builds it under a temporary name and renames it once it is complete, so that nobody ever sees a part of it.
    ///
    /// Also sweeps the directory of what dead publishers left behind long ago.
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
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let io_error = |doing, path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| CreateError::Io { doing, path, source }
        };
        let identity = identity::of_this_process(options.program.as_deref(), &options.job)
            .map_err(io_error("read who we are from", Path::new("/proc/self")))?;
        let (name, temporary) = loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("{}-{}-{number}{}", identity.pid, identity.start_time, place::SUFFIX);
            match Temporary::create(handle, &name) {
                // Another pid namespace's process with our pid and start time; as rare as it sounds.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1 << 16 => {}
                Err(error) => return Err(io_error("create", &dir.join(&name))(error)),
                Ok(temporary) => break (name, temporary),
            }
        };
        let path = dir.join(&name);

        let layout = Layout::new(Capacity {
            devices: options.devices.clamp(1, 256) as usize,
            segments: options.segments.clamp(1, 1 << 20) as usize,
            blocks: options.blocks.clamp(1, 1 << 22) as usize,
            events: options.events.clamp(16, 1 << 20) as usize,
            strings: options.strings.clamp(1, 1 << 16) as usize,
        });
        let bytes = layout.len as u64 * 8;
        check_file_size(bytes)?;
        rustix::fs::fallocate(&temporary.file, FallocateFlags::empty(), 0, bytes).map_err(|error| match error {
            rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT => CreateError::NoSpace {
                dir: dir.to_owned(),
                bytes,
            },
            error => io_error("make room for", &path)(error.into()),
        })?;
        let map = Map::writable(&temporary.file, layout.len).map_err(io_error("map", &path))?;
        let lock = temporary.file.try_clone().map_err(io_error("lock", &path))?;
        life::hold(&lock).map_err(io_error("lock", &path))?;
        let lock = LockedFile::register(lock).map_err(|_| CreateError::TooMany)?;
        for (word, value) in map.words().iter().zip(layout.header()) {
            word.put(value);
        }
        for (word, value) in map.words()[IDENTITY..].iter().zip(identity::pack(&identity)) {
            word.put(value);
        }
        temporary.publish(&name).map_err(io_error("name", &path))?;
        Ok(Publisher {
            writer: Writer::new(map, layout),
            _lock: lock,
            path,
            identity,
            strings: HashMap::new(),
            stamp: Stamp::new(),
        })
    }

    /// The channel's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Who the channel says we are.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether there is nothing to publish to: we are a forked child of the process that made the channel.
    #[inline(always)]
    fn gone(&self) -> bool {
        self.writer.memory().inherited()
    }

    /// The number of `text` in the channel's string table, the same for the same text. The empty string once the table is full.
    /// Allocates the first time it sees a text.
    pub fn intern(&mut self, text: &str) -> StringId {
        if text.is_empty() || self.gone() {
            return StringId(0);
        }
        if let Some(&id) = self.strings.get(text) {
            return id;
        }
        let id = StringId(self.writer.string(text).unwrap_or(0));
        // A full table remembers no more texts either: they could be without end.
        if id != StringId(0) {
            self.strings.insert(text.into(), id);
        }
        id
    }

    /// Publishes a device under `index`, by which segments, blocks, events and figures name it.
    pub fn set_device(&mut self, index: u8, device: &Device) {
        if !self.gone() {
            self.writer.device(index, device);
        }
    }

    /// Appends to the event ring. `index` and `time` are filled in. To be called before what the event describes is published.
    #[inline]
    pub fn event(&mut self, event: &Event) {
        if !self.gone() {
            let time = self.stamp.look();
            self.writer.event(&Event { time, ..*event });
        }
    }

    /// [`Publisher::event`] where what it does to the device's figures is what PyTorch's definitions say that such an event does, and
    /// nothing else. Returns whether [`Publisher::stats`] has to follow all the same, once the blocks are told.
    #[inline]
    pub fn change(&mut self, event: &Event) -> bool {
        if self.gone() {
            return false;
        }
        let time = self.stamp.operation(event.size);
        self.writer.change(&Event { time, ..*event })
    }

    /// Publishes a block in `slot`, stable for as long as the block lives; `next` is the slot of the block behind it in its segment.
    /// `time` is filled in: that of the last event. Any change other than of a block's state, owner or times belongs between [`Publisher::segment_begin`] and
    /// [`Publisher::segment_end`]. Returns false, and stores nothing, if the table has no such slot: see [`Publisher::untracked`].
    #[inline]
    pub fn block(&mut self, slot: u32, block: &Block, next: Option<u32>) -> bool {
        !self.gone()
            && self.writer.block(
                slot,
                &Block {
                    time: self.stamp.now(),
                    ..*block
                },
                next,
            )
    }

    /// What a request that hits the cache publishes, in one go. The same as [`Publisher::event`] and [`Publisher::block`] one after the
    /// other, except that not every one looks at the clock (see [`Event::time`]), and that the figures of most are left to their
    /// events: nothing may have changed of them but what PyTorch's definitions say that the operation changes, or
    /// [`Publisher::stats`] has to follow.
    #[inline(always)]
    pub fn operation(&mut self, operation: &Operation<'_>) -> Told {
        let Operation {
            kind,
            slot,
            block,
            next,
            split,
        } = *operation;
        let Block {
            addr,
            size,
            requested,
            stream,
            state,
            device,
            pool,
            segment,
            tag,
            ..
        } = *block;
        let time = self.stamp.operation(size);
        let event = Event {
            index: 0,
            lane: None,
            time,
            kind,
            device,
            pool,
            addr,
            size,
            requested,
            stream,
            tag,
            segment,
            split,
        };
        let free = matches!(state, BlockState::Free | BlockState::Quick);
        let block = Block {
            time,
            requested: if free { 0 } else { requested },
            tag: if free { StringId(0) } else { tag },
            ..*block
        };
        self.writer.operation(&event, slot, &block, next)
    }

    /// What a request that splits a block publishes, or a free that joins some, in one go: as [`Publisher::event`] or
    /// [`Publisher::change`], and then the blocks between [`Publisher::segment_begin`] and [`Publisher::segment_close`]. Like
    /// [`Publisher::operation`] it need not look at the clock.
    #[inline(always)]
    pub fn structure<const N: usize>(&mut self, event: &Event, change: &Structure<'_, N>) -> Told {
        let time = self.stamp.operation(event.size);
        self.writer.structure(time, event, change)
    }

    /// Whether the table has a slot.
    pub fn has_slot(&self, slot: u32) -> bool {
        self.gone() || self.writer.has_slot(slot)
    }

    /// Empties a slot. Returns false if the table has no such slot.
    pub fn clear_block(&mut self, slot: u32) -> bool {
        !self.gone() && self.writer.clear_block(slot)
    }

    /// Says how many blocks were refused a slot and still live, and their bytes.
    pub fn untracked(&mut self, blocks: u64, bytes: u64) {
        if !self.gone() {
            self.writer.untracked(blocks, bytes);
        }
    }

    /// Opens the segment in `slot` for a change of structure (its own record, split, join, growth).
    #[inline]
    pub fn segment_begin(&mut self, slot: u32) {
        if !self.gone() {
            self.writer.segment_begin(slot);
        }
    }

    /// Closes it again with its new record and the slot of its first block; `None` when the segment is gone.
    #[inline]
    pub fn segment_end(&mut self, slot: u32, segment: Option<(&Segment, Option<u32>)>) {
        if !self.gone() {
            self.writer.segment_end(slot, segment);
        }
    }

    /// Closes it again with the record it had: only its blocks changed, and not which is the first.
    #[inline]
    pub fn segment_close(&mut self, slot: u32) {
        if !self.gone() {
            self.writer.segment_close(slot);
        }
    }

    /// Opens the next lane: what is published about one stream of a device by somebody other than the publisher, and at the same
    /// time. `None` when all are taken, or in a forked child.
    pub fn lane(&mut self, _device: u8, _stream: u64) -> Option<Lane> {
        None
    }

    /// Orders events: what was published on either comes before what comes after on either. The caller holds the locks of both.
    pub fn meet(&mut self, _lane: &mut Lane) {}

    /// Publishes a device's figures; `touched` says what changed since the last time.
    #[inline]
    pub fn stats(&mut self, device: u8, stats: &DeviceStats, touched: Touched) {
        if !self.gone() {
            self.writer.stats(device, stats, touched);
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if !self.gone() {
            self.writer.close();
        }
    }
}

/// A file beyond the process's limit on file sizes is refused by a signal, which ends a program that does not expect it.
fn check_file_size(bytes: u64) -> Result<(), CreateError> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < bytes => Err(CreateError::FileSizeLimit { bytes, limit }),
        _ => Ok(()),
    }
}

/// A file under its temporary name; removed again unless it is published.
struct Temporary<'a> {
    dir: &'a File,
    name: OsString,
    file: File,
}

impl<'a> Temporary<'a> {
    fn create(dir: &'a File, name: &str) -> io::Result<Temporary<'a>> {
        let name = OsString::from(format!("{}{name}", place::TEMPORARY));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir.as_fd(), &name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Temporary {
            dir,
            name,
            file: file.into(),
        })
    }

    /// Gives the file its name, which must be free.
    fn publish(&self, name: &str) -> io::Result<()> {
        let dir = self.dir.as_fd();
        match rustix::fs::renameat_with(dir, &self.name, dir, name, RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                Ok(rustix::fs::renameat(dir, &self.name, dir, name)?)
            }
            other => Ok(other?),
        }
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        // Not there any more once it was published.
        let _ = rustix::fs::unlinkat(self.dir, &self.name, AtFlags::empty());
    }
}
