#![allow(clippy::unwrap_used)]
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::*;
use crate::{FakeUvm, Managed, ioctl};

/// Shared memory that the driver may write to.
fn shared(pages: u64) -> Alias {
    let bytes = (pages * PAGE) as usize;
    // SAFETY: the kernel chooses the address.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    let alias = Alias::of(start as u64, bytes).unwrap();
    // SAFETY: it was mapped above, and the alias is another mapping.
    unsafe { libc::munmap(start, bytes) };
    alias
}

fn address(memory: &Alias) -> u64 {
    memory.words().as_ptr() as u64
}

struct Stage {
    fake: FakeUvm,
    target: Managed,
    control: Alias,
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.fake.root());
    }
}

impl Stage {
    fn new(version: &str) -> Stage {
        let root = crate::folder().unwrap();
        let fake = FakeUvm::install(&root, version).unwrap();
        let target = Managed::open(&root, 0).unwrap();
        let control = shared(1);
        Stage { fake, target, control }
    }

    fn tools(&self) -> File {
        File::options().read(true).write(true).open(self.fake.tools()).unwrap()
    }

    fn init(&self, queue: Option<&Alias>, entries: u64) -> [u8; 64] {
        let mut argument = [0; 64];
        argument[..8].copy_from_slice(&queue.map_or(0, address).to_ne_bytes());
        argument[8..16].copy_from_slice(&entries.to_ne_bytes());
        argument[16..24].copy_from_slice(&address(&self.control).to_ne_bytes());
        argument[40] = 1;
        argument[44..48].copy_from_slice(&self.target.descriptor().to_ne_bytes());
        (argument[48], argument[52]) = (1, 1);
        argument
    }
}

fn send<const N: usize>(file: &File, request: u32, argument: &mut [u8; N]) -> i32 {
    // SAFETY: the argument is as long as the request's in every series.
    unsafe { ioctl(file.as_raw_fd(), request.into(), argument.as_mut_ptr().cast()) }
}

fn enable(tools: &File, request: u32, flags: u64) -> u32 {
    let mut argument = [0xff; 16];
    argument[..8].copy_from_slice(&flags.to_ne_bytes());
    assert_eq!(send(tools, request, &mut argument), 0);
    half(&argument, 8)
}

fn wait_for(what: impl Fn() -> bool) {
    let begin = Instant::now();
    while !what() {
        assert!(begin.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn one_call_fits_every_series_and_writes_its_status_word_only() {
    for (version, status, granted) in [
        ("535.54.03", 48, 0),
        ("550.40.53", 48, 1),
        ("560.28.03", 52, 0),
        ("580.65.06", 48, 0),
    ] {
        let stage = Stage::new(version);
        let tools = stage.tools();
        let before = stage.init(None, 0);
        let mut expected = before;
        (expected[status], expected[56]) = (0, granted);
        let mut argument = before;
        assert_eq!(send(&tools, INIT_TRACKER, &mut argument), 0);
        assert_eq!(argument, expected, "{version}");
        // A second one on the same descriptor.
        let mut again = before;
        send(&tools, INIT_TRACKER, &mut again);
        assert_eq!(half(&again, status), 0x1f, "{version}");
        assert_eq!(stage.fake.open_trackers().unwrap(), 1);
        drop(tools);
        assert_eq!(stage.fake.open_trackers().unwrap(), 0);
    }
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let stage = Stage::new("580.65.06");
    let lifetime = Managed::open_lifetime(stage.fake.root()).unwrap();
    let other = File::open("/dev/null").unwrap();
    let put = |at: usize, value: u64, bytes: usize| {
        move |argument: &mut [u8; 64]| argument[at..at + bytes].copy_from_slice(&value.to_ne_bytes()[..bytes])
    };
    let refused = |change: &dyn Fn(&mut [u8; 64])| {
        let mut argument = stage.init(None, 0);
        change(&mut argument);
        let tools = stage.tools();
        assert_eq!(send(&tools, INIT_TRACKER, &mut argument), 0);
        half(&argument, 48)
    };
    assert_eq!(refused(&|_| ()), 0);
    assert_eq!(refused(&put(44, lifetime.descriptor() as u64, 4)), 0x16);
    assert_eq!(refused(&put(44, other.as_raw_fd() as u64, 4)), 0x1b);
    assert_eq!(refused(&put(8, 3, 8)), 0x1f);
    assert_eq!(refused(&put(16, address(&stage.control) + 8, 8)), 0x1e);
    assert_eq!(refused(&put(40, 0, 4)), 0x1f);
    for (version, status, asked) in [("550.90.07", 48, 52), ("560.28.03", 52, 48)] {
        stage.fake.set_version(version).unwrap();
        let mut argument = stage.init(None, 0);
        argument[asked] = 0;
        send(&stage.tools(), INIT_TRACKER, &mut argument);
        assert_eq!(half(&argument, status), 0x1f, "{version}");
    }
}

#[test]
fn a_full_queue_drops_and_counts() {
    let stage = Stage::new("580.65.06");
    let queue = shared(1);
    stage
        .fake
        .play("0 event migration times=100\n0 event cpu_fault times=2")
        .unwrap();
    let tools = stage.tools();
    send(&tools, INIT_TRACKER, &mut stage.init(Some(&queue), 64));
    assert_eq!(enable(&tools, ENABLE_COUNTERS, 1), 0x1f);
    assert_eq!(enable(&tools, ENABLE_EVENTS, 1 << 1 | 1 << 2), 0);
    let dropped = |kind: usize| stage.control.words()[2 + kind].load(Ordering::Relaxed);
    wait_for(|| dropped(1) == 2);
    assert_eq!(dropped(2), 37);
    assert_eq!(stage.control.halves()[3].load(Ordering::Relaxed), 63);
}

#[test]
fn counters_that_are_not_enabled_do_not_grow() {
    let stage = Stage::new("580.65.06");
    stage
        .fake
        .play("0 count to_gpu=5 to_cpu=6 cpu_faults=7 gpu_faults=8")
        .unwrap();
    let tools = stage.tools();
    send(&tools, INIT_TRACKER, &mut stage.init(None, 0));
    assert_eq!(enable(&tools, ENABLE_COUNTERS, 0x200 | 0x1), 0);
    let read = |place: usize| stage.control.words()[place].load(Ordering::Relaxed);
    wait_for(|| read(9) == 8);
    assert_eq!([0, 1, 2].map(read), [5, 0, 0]);
}

#[test]
fn other_requests_are_refused_and_recorded() {
    let stage = Stage::new("580.65.06");
    let uvm = File::open(stage.fake.root().join("dev/nvidia-uvm")).unwrap();
    assert_eq!(send(&stage.tools(), 63, &mut [0; 64]), -1);
    assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
    assert_eq!(send(&uvm, 42, &mut [0; 64]), -1);
    assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS));
    let requests: Vec<_> = stage
        .fake
        .requests()
        .unwrap()
        .iter()
        .map(|r| (r.tools, r.number))
        .collect();
    assert_eq!(requests, [(true, 63), (false, 42)]);
}

#[test]
fn other_files_go_to_the_kernel() {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"12345").unwrap();
    let mut waiting = 0i32;
    // SAFETY: the request writes an int.
    let result = unsafe { ioctl(reader.as_raw_fd(), libc::FIONREAD, (&raw mut waiting).cast()) };
    assert_eq!((result, waiting), (0, 5));
    std::io::Read::read_exact(&mut reader, &mut [0; 5]).unwrap();
}
