//! What it takes to find the pages of managed memory: `cargo bench -p gpumem-probe`.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "criterion's macros; a bench that cannot set up must stop"
)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use gpumem_fake_uvm::{FakeUvm, Managed};
use gpumem_probe::{ManagedMemory, ManagedRange, PAGE, Root};

const START: u64 = 0x7000_0000_0000;
/// Pages of 4 GiB, and of the 2 MiB that the driver moves as one.
const PAGES: u64 = (4 << 30) / PAGE;
const BLOCK: u64 = (2 << 20) / PAGE;

/// Every other 2 MiB of 4 GiB is on the CPU. Linux 6.7 and newer scan the page table (`PAGEMAP_SCAN`), older ones have it read.
fn every_other_block(criterion: &mut Criterion) {
    let root = gpumem_fake_uvm::folder().unwrap();
    FakeUvm::install(&root, "580.159.04").unwrap();
    let managed = Managed::open(&root, 0).unwrap();
    let mapped = managed.map(START, PAGES).unwrap();
    for block in (0..PAGES / BLOCK).step_by(2) {
        mapped.touch(block * BLOCK..(block + 1) * BLOCK);
    }
    let mut memory = ManagedMemory::new(Root::at(&root));
    let pid = std::process::id();
    let ranges = memory.map(pid).unwrap().ranges;
    let end = START + PAGES * PAGE;
    assert_eq!(ranges, [ManagedRange { start: START, end }]);
    let present = memory.residency(pid, &ranges).unwrap()[0].spans.present();
    assert_eq!(u64::from(present), PAGES / 2);

    let mut group = criterion.benchmark_group("4 GiB, every other 2 MiB on the CPU");
    group.bench_function("map", |b| b.iter(|| black_box(memory.map(pid).unwrap())));
    group.bench_function("residency", |b| {
        b.iter(|| black_box(memory.residency(pid, &ranges).unwrap()));
    });
    group.finish();
    std::fs::remove_dir_all(root).unwrap();
}

criterion_group!(benches, every_other_block);
criterion_main!(benches);
