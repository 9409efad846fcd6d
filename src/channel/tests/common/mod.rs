//! A toy heap that publishes like an allocator, and knows what a reader must show.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test binary uses its part"
)]

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gpumem_channel::{
    Block, BlockState, Device, DeviceMap, DeviceStats, Event, EventKind, Lane, LaneStat, Operation, Options, PoolId,
    Published, Publisher, Segment, SegmentKind, Snapshot, Split, Touched,
};

/// Makes a private directory on tmpfs, as channels need it.
pub(crate) fn channel_dir() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let private = std::fs::Permissions::from_mode(0o700);
    tempfile::Builder::new()
        .prefix("gpumem-test-")
        .permissions(private)
        .tempdir_in("/dev/shm")
        .unwrap()
}

/// Returns how many of the `full` steps of a campaign to run: a tenth, or with `GPUMEM_FULL=1` all.
pub(crate) fn campaign(full: u64) -> u64 {
    match std::env::var_os("GPUMEM_FULL") {
        Some(_) => full,
        None => full.div_ceil(10),
    }
}

/// Lists the files of a directory.
pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).unwrap().flatten().map(|e| e.path()).collect()
}

/// Returns a command that runs one test of this binary, in `dir`.
pub(crate) fn victim(test: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test])
        .env("GPUMEM_TEST_VICTIM", dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Returns the options of a small channel in `dir`.
pub(crate) fn options(dir: &Path) -> Options {
    Options {
        dir: Some(dir.to_owned()),
        blocks: 4096,
        segments: 64,
        events: 256,
        strings: 64,
        devices: 2,
        lanes: 3,
        lane_events: 64,
        managed: 0,
        fit: false,
        ..Options::default()
    }
}

/// Makes a publisher of one device with such a channel.
pub(crate) fn publisher(dir: &Path) -> Publisher {
    publisher_with(&options(dir))
}

/// Makes a publisher of one device.
pub(crate) fn publisher_with(options: &Options) -> Publisher {
    let mut publisher = Publisher::create(options).unwrap();
    publisher.set_device(0, &Device::default());
    publisher
}

/// Publishes an operation on a lane, with a block of this size that has no slot: only its event is published.
pub(crate) fn operate(lane: &mut Lane, size: u64) -> Published {
    let block = Block {
        size,
        ..Block::default()
    };
    lane.operation(&Operation {
        kind: EventKind::Alloc,
        slot: u32::MAX,
        state: BlockState::Allocated,
        block: &block,
        next: None,
        split: Split::NO,
    })
}

/// Counting, as a program with lanes does it.
pub(crate) trait Count {
    fn add(&mut self, n: u64);
    fn sub(&mut self, n: u64);
}

impl Count for LaneStat {
    fn add(&mut self, n: u64) {
        self.current = self.current.wrapping_add(n);
        self.allocated = self.allocated.wrapping_add(n);
    }

    fn sub(&mut self, n: u64) {
        self.current = self.current.wrapping_sub(n);
    }
}

/// Small deterministic random numbers (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[derive(Clone)]
struct Entry {
    slot: u32,
    size: u64,
    state: BlockState,
    requested: u64,
}

struct Seg {
    segment: Segment,
    blocks: BTreeMap<u64, Entry>,
}

/// A heap of segments of random size, with blocks that are split, joined, allocated and freed.
pub(crate) struct Heap {
    pub(crate) random: Random,
    segments: BTreeMap<u32, Seg>,
    free_slots: Vec<u32>,
    next_addr: u64,
    pub(crate) stats: DeviceStats,
}

pub(crate) const UNIT: u64 = 512;

impl Heap {
    pub(crate) fn new(seed: u64) -> Heap {
        Heap {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            segments: BTreeMap::new(),
            free_slots: (0..4096).rev().collect(),
            next_addr: 1 << 40,
            stats: DeviceStats::default(),
        }
    }

    /// Makes a heap that has published `steps` random operations.
    pub(crate) fn after(seed: u64, steps: u32, publisher: &mut Publisher) -> Heap {
        let mut heap = Heap::new(seed);
        for _ in 0..steps {
            heap.step(publisher);
        }
        heap
    }

    /// Publishes one random operation.
    pub(crate) fn step(&mut self, publisher: &mut Publisher) {
        match self.random.below(100) {
            0..3 if self.segments.len() < 32 => self.add_segment(publisher),
            3 if self.segments.len() > 8 => self.remove_segment(publisher),
            4..40 => self.split_one(publisher),
            40..60 => self.join_one(publisher),
            _ => self.toggle_one(publisher),
        }
    }

    fn event(publisher: &mut Publisher, kind: EventKind, addr: u64, size: u64) {
        publisher.event(&Event {
            kind,
            addr,
            size,
            ..Event::default()
        });
    }

    fn add_segment(&mut self, publisher: &mut Publisher) {
        let slot = (0..).find(|slot| !self.segments.contains_key(slot)).unwrap();
        let size = UNIT * (8 + self.random.below(200));
        let segment = Segment {
            addr: self.next_addr,
            size,
            mapped: size,
            kind: SegmentKind::Plain,
            pool: PoolId::LARGE,
            ..Segment::default()
        };
        self.next_addr += size + UNIT * self.random.below(3);
        let block = Entry {
            slot: self.free_slots.pop().unwrap(),
            size,
            state: BlockState::Free,
            requested: 0,
        };
        Self::event(publisher, EventKind::SegmentAlloc, segment.addr, size);
        self.segments.insert(
            slot,
            Seg {
                segment,
                blocks: BTreeMap::from([(segment.addr, block)]),
            },
        );
        publisher.segment_begin(slot);
        self.publish_block(publisher, slot, segment.addr);
        self.close(publisher, slot);
        self.stats.large.segment.add(1);
        self.stats.large.reserved_bytes.add(size);
        publisher.stats(0, &self.stats, Touched::COLD);
    }

    fn remove_segment(&mut self, publisher: &mut Publisher) {
        let Some((&slot, _)) = self.segments.iter().find(|(_, s)| s.blocks.len() == 1) else {
            return;
        };
        let seg = self.segments.remove(&slot).unwrap();
        Self::event(publisher, EventKind::SegmentFree, seg.segment.addr, seg.segment.size);
        publisher.segment_begin(slot);
        for block in seg.blocks.values() {
            publisher.clear_block(block.slot);
            self.free_slots.push(block.slot);
            if block.state == BlockState::Allocated {
                self.stats.large.allocated_bytes.sub(block.size);
                self.stats.large.active_bytes.sub(block.size);
                self.stats.large.requested_bytes.sub(block.requested);
            }
        }
        publisher.segment_end(slot, None);
        self.stats.large.segment.sub(1);
        self.stats.large.reserved_bytes.sub(seg.segment.size);
        publisher.stats(0, &self.stats, Touched::ALL);
    }

    fn pick(&mut self) -> Option<(u32, u64)> {
        let n = self.random.below(self.segments.len().max(1) as u64) as usize;
        let (&slot, seg) = self.segments.iter().nth(n)?;
        let m = self.random.below(seg.blocks.len() as u64) as usize;
        Some((slot, *seg.blocks.keys().nth(m).unwrap()))
    }

    fn split_one(&mut self, publisher: &mut Publisher) {
        let Some((slot, addr)) = self.pick() else { return };
        let units = self.segments[&slot].blocks[&addr].size / UNIT;
        if units < 2 || self.free_slots.is_empty() || self.segments[&slot].blocks[&addr].state != BlockState::Free {
            return;
        }
        let left = UNIT * (1 + self.random.below(units - 1));
        Self::event(publisher, EventKind::Alloc, addr, left);
        publisher.segment_begin(slot);
        let rest = self.free_slots.pop().unwrap();
        let seg = self.segments.get_mut(&slot).unwrap();
        let block = seg.blocks.get_mut(&addr).unwrap();
        let entry = Entry {
            slot: rest,
            size: block.size - left,
            state: BlockState::Free,
            requested: 0,
        };
        block.size = left;
        seg.blocks.insert(addr + left, entry);
        self.publish_block(publisher, slot, addr);
        self.publish_block(publisher, slot, addr + left);
        self.close(publisher, slot);
    }

    fn join_one(&mut self, publisher: &mut Publisher) {
        let Some((slot, addr)) = self.pick() else { return };
        let seg = self.segments.get_mut(&slot).unwrap();
        let Some((&next_addr, next)) = seg.blocks.range(addr + 1..).next() else {
            return;
        };
        if next.state != BlockState::Free || seg.blocks[&addr].state != BlockState::Free {
            return;
        }
        let next = seg.blocks.remove(&next_addr).unwrap();
        seg.blocks.get_mut(&addr).unwrap().size += next.size;
        Self::event(publisher, EventKind::Free, addr, next.size);
        publisher.segment_begin(slot);
        self.publish_block(publisher, slot, addr);
        publisher.clear_block(next.slot);
        self.free_slots.push(next.slot);
        self.close(publisher, slot);
    }

    /// Allocates or frees one block in place.
    pub(crate) fn toggle_one(&mut self, publisher: &mut Publisher) {
        let Some((slot, addr)) = self.pick() else { return };
        let block = self.segments.get_mut(&slot).unwrap().blocks.get_mut(&addr).unwrap();
        let large = &mut self.stats.large;
        let kind = match block.state {
            BlockState::Free => {
                (block.state, block.requested) = (BlockState::Allocated, block.size - 8);
                large.allocated_bytes.add(block.size);
                large.active_bytes.add(block.size);
                large.requested_bytes.add(block.requested);
                EventKind::Alloc
            }
            _ => {
                large.allocated_bytes.sub(block.size);
                large.active_bytes.sub(block.size);
                large.requested_bytes.sub(block.requested);
                (block.state, block.requested) = (BlockState::Free, 0);
                EventKind::Free
            }
        };
        Self::event(publisher, kind, addr, block.size);
        self.publish_block(publisher, slot, addr);
        publisher.stats(0, &self.stats, Touched::ALL);
    }

    fn publish_block(&self, publisher: &mut Publisher, slot: u32, addr: u64) {
        let seg = &self.segments[&slot];
        let entry = &seg.blocks[&addr];
        let next = seg.blocks.range(addr + 1..).next().map(|(_, next)| next.slot);
        assert!(publisher.block(entry.slot, &self.block(slot, addr, entry), next));
    }

    fn close(&self, publisher: &mut Publisher, slot: u32) {
        let seg = &self.segments[&slot];
        let first = seg.blocks.values().next().map(|b| b.slot);
        publisher.segment_end(slot, Some((&seg.segment, first)));
    }

    fn block(&self, segment: u32, addr: u64, entry: &Entry) -> Block {
        Block {
            addr,
            size: entry.size,
            requested: entry.requested,
            state: entry.state,
            pool: PoolId::LARGE,
            segment,
            ..Block::default()
        }
    }

    /// Checks that a reader shows exactly this heap.
    pub(crate) fn assert_shown_by(&self, snapshot: &Snapshot, device: &DeviceMap) {
        assert_eq!(device.segments.len(), self.segments.len());
        for map in &device.segments {
            let seg = &self.segments[&map.slot];
            assert!(map.complete);
            assert_eq!(map.segment, seg.segment);
            let shown: Vec<Block> = map.blocks.iter().map(|b| Block { time: 0, ..*b }).collect();
            let real: Vec<Block> = seg
                .blocks
                .iter()
                .map(|(addr, e)| self.block(map.slot, *addr, e))
                .collect();
            assert_eq!(shown, real);
            assert!(map.blocks.iter().all(|b| b.time > 0 && b.time <= snapshot.read_at));
        }
    }
}

/// Runs `child` in a forked copy of this process and returns its pid. There is no exec, as for Python's workers.
#[allow(unsafe_code, reason = "fork has no safe interface")]
pub(crate) fn fork(child: impl FnOnce()) -> i32 {
    // SAFETY: see `run_in_child`.
    run_in_child(unsafe { libc::fork() }, child)
}

/// Forks without the C library, so that no handlers run.
#[allow(unsafe_code, reason = "fork has no safe interface")]
pub(crate) fn raw_fork(child: impl FnOnce()) -> i32 {
    // SAFETY: shares nothing with the child; the rest see `run_in_child`.
    let forked = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    run_in_child(i32::try_from(forked).unwrap(), child)
}

/// Registers a handler that runs in every child, before those registered later.
#[allow(unsafe_code, reason = "pthread_atfork has no safe interface")]
pub(crate) fn at_fork(in_child: extern "C" fn()) {
    // SAFETY: a plain function, which stays valid for the life of the program.
    assert_eq!(unsafe { libc::pthread_atfork(None, None, Some(in_child)) }, 0);
}

/// In the child, runs `child`, which uses no lock that another thread could hold, and then exits without unwinding.
#[allow(unsafe_code, reason = "as above")]
fn run_in_child(forked: i32, child: impl FnOnce()) -> i32 {
    match forked {
        0 => {
            let done = catch_unwind(AssertUnwindSafe(child));
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(done.is_err().into()) }
        }
        pid => pid,
    }
}

/// Makes `fallocate(2)` of more than `most` bytes fail in this thread as if interrupted by a signal. Older kernels then
/// release everything.
#[allow(unsafe_code, reason = "seccomp has no safe interface")]
pub(crate) fn interrupt_allocations_beyond(most: u32) {
    let step = |code: u32, value: u32, else_skip: u8| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: else_skip,
        k: value,
    };
    // Offsets in seccomp's data of the call's number, and of the lower half of the fourth argument.
    let (number, length) = (0, if cfg!(target_endian = "little") { 40 } else { 44 });
    let load = |from: u32| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, from, 0);
    let leave = |with: u32| step(libc::BPF_RET | libc::BPF_K, with, 0);
    let mut filter = [
        load(number),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            libc::SYS_fallocate as u32,
            3,
        ),
        load(length),
        step(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, most, 1),
        leave(libc::SECCOMP_RET_ERRNO | libc::EINTR as u32),
        leave(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the first call passes no memory; the kernel copies the filter, which lives until then.
    let filtered = unsafe {
        (libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
            && (libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0)
    };
    assert!(filtered, "no filter: {}", std::io::Error::last_os_error());
}

/// Closes stdin, stdout and stderr.
#[allow(unsafe_code, reason = "the descriptors are the process's")]
pub(crate) fn close_stdio() {
    // SAFETY: nothing is opened under these numbers before they are closed, and later uses fail because they are not
    // open.
    (0..=2).for_each(|number| assert_eq!(unsafe { libc::close(number) }, 0));
}

/// Waits for a forked child and returns its status; 0 on success.
#[allow(unsafe_code, reason = "waiting for a child has no safe interface")]
pub(crate) fn ended(child: i32) -> i32 {
    let mut status = -1;
    // SAFETY: waits for a child of `fork`; `status` is valid for writes.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}

/// Replaces this process's descriptor of a file by another file, as in a program that closes all descriptors and opens
/// a file.
#[allow(unsafe_code, reason = "the descriptor is the library's")]
pub(crate) fn put_in_place_of(path: &Path, file: &File) -> OwnedFd {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let mut numbers = descriptors.filter(|descriptor| std::fs::read_link(descriptor.path()).is_ok_and(|to| to == path));
    let number: i32 = numbers.next().unwrap().file_name().to_str().unwrap().parse().unwrap();
    // SAFETY: replaces an open descriptor by a copy of another one, which is the caller's.
    unsafe {
        assert_eq!(libc::dup2(file.as_raw_fd(), number), number);
        OwnedFd::from_raw_fd(number)
    }
}
