//! What the library takes of the host's memory: of a process's own, in which nothing else is done.

use std::fs;

use gpumem_alloc::device::{self, SimConfig};
use gpumem_alloc::{Allocator, Config, Publish, Stream};

use crate::common::has_a_process;

const STREAMS: u64 = 2000;
const ALLOCATORS: u64 = 100;

/// An allocator that has served something.
fn allocator() -> Allocator {
    let config = Config {
        publish: Publish::Off,
        ..Config::default()
    };
    let alloc = Allocator::new(device::sim(SimConfig::default()), config).unwrap();
    drop(alloc.alloc::<u8>(512, Stream::DEFAULT).unwrap());
    alloc
}

/// Bytes of this process's own memory.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

/// What it takes for each stream that every one of them has a block of so many bytes for a moment.
fn for_a_stream(alloc: &Allocator, bytes: usize) -> u64 {
    let before = resident();
    for stream in 1..=STREAMS {
        drop(alloc.alloc::<u8>(bytes, Stream(stream)).unwrap());
    }
    resident().saturating_sub(before) / STREAMS
}

/// Some programs have thousands of streams: what is kept for one is in proportion to what it had.
#[test]
fn a_stream_that_had_little_takes_little() {
    if !has_a_process("host_memory::a_stream_that_had_little_takes_little") {
        return;
    }
    let alloc = allocator();
    let small = for_a_stream(&alloc, 512);
    let large = for_a_stream(&alloc, 4 << 20);
    assert!(
        (1..4 << 10).contains(&small),
        "{small} bytes of host memory for one stream"
    );
    assert!(large < 4 << 10, "{large} more for a large block");
}

/// Some programs make one for each of their jobs.
#[test]
fn allocators_that_come_and_go_take_nothing() {
    if !has_a_process("host_memory::allocators_that_come_and_go_take_nothing") {
        return;
    }
    drop(allocator());
    let before = resident();
    (0..ALLOCATORS).for_each(|_| drop(allocator()));
    let each = resident().saturating_sub(before) / ALLOCATORS;
    assert!(each < 4 << 10, "{each} bytes of host memory for one allocator");
}
